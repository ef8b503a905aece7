//! Memory: notes outlive a session. What one session says, another one recalls, and the record has both.

use rath::chunk::MemoryEvent;
use rath::memory::Note;
use rath::prelude::*;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // In this process; `Memory::open("local:.rath/memory").await?` keeps notes in a directory.
    let memory = Memory::in_process("notes");
    memory.remember(Note::new("We deploy on Mondays only.")).await?;

    let provider = Provider::from(Script::of([
        r#"{"text": "Noted."}"#,
        r#"{"text": "On Monday, and Ada has to be there.", "expect": {"contains": ["Mondays only", "Ada"]}}"#,
    ])?);
    // `commit_on_run` writes what was said to the memory after each run.
    let agent = Agent::new("You help a team.", &provider).memory(&memory).commit_on_run();
    let first = agent.run(Session::user("Ada has to be there when we deploy.")).await?;

    // A new session knows nothing of the first one but what the memory finds.
    let second = agent.run(Session::user("When can we deploy next?")).await?;
    println!("{}\n", second.text().unwrap_or_default());
    for chunk in second.chunks() {
        if let Chunk::Memory(memory) = chunk
            && let MemoryEvent::Recall { found, .. } = &memory.event
        {
            for entry in found {
                let by = entry.said_by.as_deref().unwrap_or("nobody");
                println!("recalled, said by {by}: {}", entry.text.as_str().unwrap_or_default());
            }
        }
    }

    // Forgetting takes notes out of the memory, not off the record of the sessions that said them.
    let hits = memory.recall("When do we deploy?").await?;
    let ids: Vec<_> = hits.iter().map(|hit| hit.note.id.clone()).collect();
    println!("\n{} notes about that", ids.len());
    memory.forget(&ids).await?;
    println!("{} after forgetting them", memory.recall("When do we deploy?").await?.len());
    rath_examples::keep(&first).await?;
    rath_examples::keep(&second).await
}
