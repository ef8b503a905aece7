//! `rath demo`: an example run that needs no key.

use std::path::PathBuf;

use rath::Usage;
use rath::prelude::*;
use rath::record::draw::{self, BranchNames};

use crate::output::{self, BRANCH, CommandResult, Exit};

/// Show an example run of five agents
///
/// The agents use a tool, work in parallel and delegate to each other. A script stands in for the model, so that no
/// key is needed and every id is the same on each run.
#[derive(clap::Args)]
pub(crate) struct DemoArgs {
    /// Save the session in a file that the other commands can read
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

/// Writes a sentence, has two agents review it in parallel, and edits it.
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
        let session = fork_join(&session, branches).await.merge().await?;
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

pub(crate) async fn run(args: &DemoArgs) -> CommandResult {
    let demo = demo()?;
    let session = demo.run(Session::user("Say in at most ten words what a session is.")).await?;
    output::text(|out| {
        writeln!(
            out,
            "A workflow of four agents, the last of which can delegate to a fifth:\n\n{}
",
            demo.tree()
        )?;
        writeln!(out, "Its session, newest step first:\n")?;
        let lineage = session.lineage();
        let names = BranchNames::new(&lineage);
        for row in draw::rows(&lineage, |step| {
            let branch = names.display_name(step);
            format!("{} {BRANCH}{branch}{BRANCH:#}  {}", output::short(&step.id()), draw::headline(step))
        }) {
            out.write_all(row.as_bytes())?;
        }
        let Usage { input, output, .. } = session.usage();
        writeln!(out, "\nThe answer: {}", session.text().unwrap_or_default())?;
        writeln!(out, "Tokens: {} in, {} out", output::grouped(input), output::grouped(output))
    })?;
    match &args.save {
        Some(path) => {
            session.save(path).await?;
            let path = output::quote(&path.display().to_string());
            output::message!("\nsaved; try:");
            for command in ["log PATH", "show PATH head", "render PATH", "cost PATH", "verify PATH"] {
                output::message!("  rath {}", command.replace("PATH", &path));
            }
        }
        None => output::message!(
            "\n`rath demo --save demo.rath` saves the session; then `rath log demo.rath` shows it again"
        ),
    }
    Ok(Exit::Success)
}
