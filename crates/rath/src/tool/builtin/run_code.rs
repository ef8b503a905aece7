//! The tool that runs a program that the model writes.

use std::time::Duration;

use rath_record::chunk::ToolSpec;
use serde_json::{Value, json};

use super::shell::{MAX_SECONDS, OUTPUT_GRACE};
use super::{command, spec, text};
use crate::error::ErrorKind;
use crate::policy::Use;
use crate::sandbox::{Command, ExitStatus};
use crate::session::{Error, Result};
use crate::tool::{Output, Tool, ToolCx, Touch};

/// Runs a program that the model writes.
///
/// Part of [`all`](super::all).
#[derive(Clone, Copy, Debug)]
pub struct RunCode;

/// A language in which programs can be written.
struct Language {
    name: &'static str,
    /// The names of its interpreter, of which the first that is installed is used.
    programs: &'static str,
    /// The option of the interpreter that precedes the text of a program.
    option: &'static str,
}

const LANGUAGES: [Language; 3] = [
    Language { name: "python", programs: "python3 python", option: "-c" },
    Language { name: "bash", programs: "bash", option: "-c" },
    Language { name: "node", programs: "node nodejs", option: "-e" },
];

/// The size of the longest program: an argument of a command may have about 128 KiB.
const MAX_CODE_BYTES: usize = 100_000;

impl Tool for RunCode {
    fn spec(&self) -> ToolSpec {
        let names: Vec<_> = LANGUAGES.iter().map(|language| language.name).collect();
        let properties = json!({
            "language": {"type": "string", "enum": names, "description": "What it is written in."},
            "code": {"type": "string", "description": "The program."},
            "timeout": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_SECONDS,
                "description": "After how many seconds to end it; 600 if left out.",
            },
        });
        let description = "Runs a short program in the workspace and gives what it prints. The program itself is written to \
                           no file; what it prints, files it writes and its exit code are all that comes of it.";
        spec("run_code", description, properties, &["language", "code"])
    }

    fn is_builtin(&self) -> bool {
        true
    }

    fn touches(&self, _: &Value) -> Vec<Touch> {
        vec![Touch::everything()]
    }

    fn uses(&self, arguments: &Value) -> Vec<Use> {
        let (name, code) = (text(arguments, "language"), text(arguments, "code"));
        match name {
            "bash" => vec![Use::CommandLine(code.to_owned())],
            _ => vec![Use::Program(vec![name.to_owned(), code.to_owned()])],
        }
    }

    fn time_limit(&self) -> Duration {
        Duration::from_secs(MAX_SECONDS) + OUTPUT_GRACE
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let (name, code) = (text(&arguments, "language"), text(&arguments, "code"));
        let Some(language) = LANGUAGES.iter().find(|language| language.name == name) else {
            return Err(Error::new(ErrorKind::Arguments, format_args!("unknown language `{name}`")));
        };
        if code.len() > MAX_CODE_BYTES {
            let why = format!(
                "`code` has {} bytes, and the limit is {MAX_CODE_BYTES}; write it to a file and run that",
                code.len()
            );
            return Err(Error::new(ErrorKind::Arguments, why));
        }
        // The shell looks for the interpreter, so that one command is enough.
        let Language { programs, option, .. } = language;
        let find = format!(
            "for program in {programs}; do command -v $program >/dev/null 2>&1 && exec $program {option} \"$1\"; done; exit 127"
        );
        let mut run = Command::argv(["sh", "-c", &find, "sh", code]);
        run.timeout = Duration::from_secs(arguments["timeout"].as_u64().unwrap_or(MAX_SECONDS).min(MAX_SECONDS));
        // Unbuffered, so that the output of a program that is killed is complete; and no bytecode files in the workspace.
        run.env = [("PYTHONUNBUFFERED", "1"), ("PYTHONDONTWRITEBYTECODE", "1")]
            .map(|(name, on)| (name.into(), on.into()))
            .into();
        let ran = command::run(cx, &run).await?;
        if ran.status == ExitStatus::Exit(127) && ran.stdout.total_bytes + ran.stderr.total_bytes == 0 {
            let installed = installed_languages(cx).await?;
            if !installed.contains(&name) {
                let known = if installed.is_empty() { "none".to_owned() } else { installed.join(", ") };
                return Err(Error::new(ErrorKind::Tool, format_args!("`{name}` is not installed; installed: {known}")));
            }
        }
        command::to_output(&ran, &run)
    }
}

/// Returns the languages whose interpreter is installed in the sandbox.
async fn installed_languages(cx: &ToolCx) -> Result<Vec<&'static str>> {
    let look = |language: &Language| {
        let Language { name, programs, .. } = language;
        format!("for program in {programs}; do command -v $program >/dev/null 2>&1 && echo {name}; done\n")
    };
    let look = Command::shell(&LANGUAGES.iter().map(look).collect::<String>());
    let ran = cx.sandbox().await?.run(&look).await?;
    let printed = String::from_utf8_lossy(&ran.stdout.head).into_owned();
    Ok(LANGUAGES
        .iter()
        .map(|language| language.name)
        .filter(|name| printed.lines().any(|line| line == *name))
        .collect())
}
