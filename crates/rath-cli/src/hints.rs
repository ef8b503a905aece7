//! Advice about errors of the library, for a person at a command line.

use rath::ErrorKind;

/// Returns the advice about an error: its own, unless there is none or it is for the author of a program.
pub(crate) fn hint(error: &rath::Error) -> String {
    let own = error.hint().filter(|hint| !is_for_programs(hint));
    let usual = || if is_disk_full(error) { "free some space, and run this again" } else { usual_hint(error.kind()) };
    own.unwrap_or_else(usual).to_owned()
}

/// Returns true if an error comes from a disk without space.
pub(crate) fn is_disk_full(error: &rath::Error) -> bool {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let is_full = |error: &std::io::Error| {
        matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
    };
    let mut causes = causes.filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    causes.any(is_full) || error.message().contains("No space left on device")
}

/// Returns true if a hint names something in Rust: `Session::save`, `session.decide(path, ..)`.
fn is_for_programs(hint: &str) -> bool {
    let is_call = |code: &str| code.split_once('(').is_some_and(|(name, _)| !name.contains(' '));
    let is_rust = |code: &str| code.contains("::") || is_call(code);
    hint.split('`').skip(1).step_by(2).any(is_rust)
}

/// Returns the advice about errors of a kind.
fn usual_hint(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NoSuchStep => "`rath log` lists the steps",
        ErrorKind::NoSuchSession => "`rath ls --all` lists the sessions",
        ErrorKind::Place => "`--sandbox isolated:.` names another sandbox; `rath doctor` says what works here",
        ErrorKind::Io | ErrorKind::Store => "see if the path is right, and if you may read and write it",
        ErrorKind::Format => "name a file that rath wrote; `rath export --help` lists the formats",
        ErrorKind::Provider | ErrorKind::Model => {
            "name another model: `--model openai:NAME`, `anthropic:NAME`, `gemini:NAME` or `script:FILE`"
        }
        ErrorKind::Key => "`rath config set-key --help` tells how to keep a key",
        ErrorKind::Refused => "the model's server gives the reason; `--model` names another model",
        ErrorKind::Busy | ErrorKind::Timeout | ErrorKind::Connection | ErrorKind::Answer => {
            "see if the network and the model's server work, and try again"
        }
        ErrorKind::Budget => "`--budget` sets another limit: see `rath run --help`",
        ErrorKind::Limit => "`--turns` allows more: see `rath run --help`",
        ErrorKind::Turn | ErrorKind::Approval | ErrorKind::Merge => "`rath review` shows what is waiting for you",
        ErrorKind::Payload | ErrorKind::Request | ErrorKind::Damaged => {
            "`rath verify` lists what is damaged or missing"
        }
        ErrorKind::Script => "a line of a script is one answer: {\"text\": \"hello\"}",
        ErrorKind::Policy => "`rath config --help` shows the form of a rule",
        ErrorKind::Guest => "`rath adopt --help` tells how to take over a session that others made",
        ErrorKind::Memory => "`rath memory --help` tells how a memory is named",
        ErrorKind::Check => "`rath check` lists the checks",
        ErrorKind::Cancelled => "`rath resume` continues",
        ErrorKind::Conflict => "wait until the other process is done, or work on a fork: `rath fork --help`",
        ErrorKind::Differs => "`rath status` shows what changed",
        ErrorKind::Replay => "`rath replay --help` tells what is compared",
        _ => "`rath doctor` says what works on this machine",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_in_rust_is_for_programs() {
        for (hint, expected) in [
            ("place it with `session.to(..)`", true),
            ("decide each with `session.decide(path, ..)`, then run again", true),
            ("decide on each with `session.approve(call)` or `session.deny(call, reason)`, and run again", true),
            ("`rath export --as bundle` and `Session::save` write files that can be read", true),
            ("`rath resume --sandbox` gives it one, in a program `session.to(..)`", true),
            ("write `sqlite:.rath/rath.db`", false),
            ("`rath check 'f(x)'` runs it (this is recorded)", false),
        ] {
            assert_eq!(is_for_programs(hint), expected, "{hint}");
        }
    }
}
