//! `rath demo`: what a session is, in one run, without a key.

use std::path::PathBuf;

use rath::prelude::*;
use rath::record::draw::{self, BranchNames};

use crate::output::{self, BRANCH, Done, Exit};

/// Show a small run: tools, a sub-agent, two branches at once, and the session that comes of it
///
/// A script plays the model, so no key is needed, and the ids are the same everywhere.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Keep the session in a file, to look at with the other commands
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

/// Count the words in a short text.
#[tool(read_only)]
async fn word_count(
    /// Text to count.
    text: String,
) -> usize {
    text.split_whitespace().count()
}

/// Writes a sentence, lets two others look at it side by side, and settles it.
#[derive(Module)]
struct Demo {
    writer: Agent,
    critic: Agent,
    checker: Agent,
    editor: Agent,
}

impl Workflow for Demo {
    async fn forward(&self, session: Session) -> Result<Session> {
        let session = self.writer.run(session).await?;
        let branches = [Branch::new("critic", &self.critic), Branch::new("checker", &self.checker)];
        let session = fork_join(&session, branches).await.merge()?;
        self.editor.run(session).await
    }
}

fn demo() -> Result<Demo> {
    let script = Script::of(include_str!("demo.jsonl").lines())?.named("demo");
    let provider = Provider::from(script);
    let counter = Agent::new("You count words.", &provider).tool(word_count).describe("Counts the words of a text.");
    Ok(Demo {
        writer: Agent::new("You write short sentences.", &provider).tool(word_count),
        critic: Agent::new("You find what is wrong.", &provider),
        checker: Agent::new("You check facts.", &provider),
        editor: Agent::new("You settle matters.", &provider).delegate("count", counter),
    })
}

pub(crate) fn run(args: &Args) -> Done {
    let demo = demo()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let session = runtime.block_on(demo.run(Session::user("Say in at most ten words what a session is.")))?;
    output::text(|out| {
        writeln!(out, "A workflow of four agents, the last of which can hand tasks to a fifth:\n\n{}\n", demo.tree())?;
        writeln!(out, "What happened, newest first:\n")?;
        let lineage = session.lineage();
        let names = BranchNames::new(&lineage);
        for row in draw::rows(&lineage, |step| {
            let branch = names.display_name(step);
            format!("{} {BRANCH}{branch}{BRANCH:#}  {}", output::short(&step.id()), draw::headline(step))
        }) {
            out.write_all(row.as_bytes())?;
        }
        writeln!(out, "\nThe answer: {}", session.text().unwrap_or_default())?;
        writeln!(out, "{session}")
    })?;
    match &args.save {
        Some(path) => {
            session.save(path)?;
            let path = path.display();
            anstream::eprintln!(
                "\nlook at it: rath log {path}, rath show {path} head, rath render {path}, rath cost {path}, rath verify {path}"
            );
        }
        None => anstream::eprintln!(
            "\n`rath demo --save demo.rath` keeps it, to look at with `rath log`, `show`, `render` and `cost`"
        ),
    }
    Ok(Exit::Fine)
}
