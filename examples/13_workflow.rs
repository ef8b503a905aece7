//! Tools, agents and workflows: a run takes a session and returns it with a step for everything that happened.

use rath::prelude::*;

/// Count the words in a short text.
#[tool]
async fn word_count(
    /// Text to count.
    text: String,
) -> Result<usize> {
    Ok(text.split_whitespace().count())
}

/// Counts words, then replaces the conversation by a summary.
#[derive(Module)]
struct Readme {
    agent: Agent,
    compressor: Compressor,
}

impl Workflow for Readme {
    async fn forward(&self, mut session: Session) -> Result<Session> {
        self.agent.remember(&mut session, "The user likes compact technical summaries.").await?;
        session = self.agent.run(session).await?;
        self.agent.commit(&mut session).await?;
        self.compressor.run(session).await
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // The script gives the model's answers. `Provider::open("openai:gpt-5").await?` asks a real model.
    let provider = Provider::from(Script::of([
        r#"{"calls": [{"name": "word_count", "arguments": {"text": "the session is the value"}}], "usage": {"input": 92, "output": 18}}"#,
        r#"{"text": "Five words.", "usage": {"input": 131, "output": 4}}"#,
        r#"{"text": "The user asked for a word count; it is five.", "usage": {"input": 120, "output": 12}}"#,
    ])?);
    let readme = Readme {
        agent: Agent::new("You count words.", &provider).tool(word_count).memory(&Memory::in_process("notes")),
        compressor: Compressor::new(&provider).keep(0),
    };
    println!("{}\n", readme.tree());
    let session = readme.run(Session::user("How many words: the session is the value?")).await?;
    println!("{}\n", session.lineage());
    println!("{session}");
    Ok(())
}
