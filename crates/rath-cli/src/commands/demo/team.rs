//! The agents of the demo, and the script that gives the answers of their models.

use rath::prelude::*;
use rath::tool::builtin;

use super::directory::DemoDirectory;
use crate::output::Failure;

/// The answers of the models until the crash.
pub(super) const BEFORE_CRASH: &str = include_str!("team.jsonl");
/// The answers of the models after it.
pub(super) const AFTER_CRASH: &str = include_str!("after.jsonl");

/// The command that tests the project.
pub(super) const TESTS: &str = "sh test.sh";
/// The file with the bug.
pub(super) const REPAIRED_FILE: &str = "split.sh";
/// The line that the repair replaces.
pub(super) const REPAIRED_LINE: usize = 6;
/// The file of the project with a script for `rath resume`.
pub(super) const MODEL_FILE: &str = "model.jsonl";
/// The name under which a script is recorded: that of [`MODEL_FILE`], with which the session goes on.
const MODEL: &str = "model";

/// The rule of the user that the memory has, and that a repair has to heed.
pub(super) const RULE: &str = "A refund is split like any bill: never lose a cent.";

/// The agents. All have the tools of `rath run`, so that `rath resume` continues the session with equal ones.
pub(super) struct Team {
    /// Finds the cause.
    pub(super) lead: Agent,
    /// Gives the rest of the division to the last person.
    pub(super) rest: Agent,
    /// Spreads it evenly.
    pub(super) even: Agent,
    /// Chooses the repair that goes on.
    pub(super) selector: Selector,
    /// Notes the change.
    pub(super) release: Agent,
}

impl Team {
    /// Sets up the agents with the answers of `script`.
    pub(super) async fn new(directory: &DemoDirectory, script: &str) -> Result<Self, Failure> {
        let provider = Provider::from(Script::of(script.lines())?.named(MODEL));
        let memory = Memory::open(&directory.memory()).await?;
        let agent =
            |name: &str, prompt: &str| Agent::new(prompt, &provider).named(name).tools(builtin::all()).memory(&memory);
        Ok(Team {
            lead: agent("lead", "You find the cause of a failure. You change nothing."),
            rest: agent("rest", "You repair: the last one pays what a division leaves over. Check your work."),
            even: agent("even", "You repair: what a division leaves over is spread evenly. Check your work."),
            selector: Selector::new(&provider).named("selector"),
            release: agent("release", "You note changes in CHANGES, and try the program at length."),
        })
    }
}
