//! Running a program that the model writes.

use std::time::Duration;

use rath_record::chunk::ToolSpec;
use serde_json::{Value, json};

use super::shell::{GRACE, SECONDS_MOST};
use super::{command, spec, text};
use crate::error::ErrorKind;
use crate::sandbox::{Command, Ended};
use crate::session::{Error, Result};
use crate::tool::{Output, Tool, ToolCx, Touch};

/// Runs a program that the model writes.
#[derive(Clone, Copy, Debug)]
pub struct RunCode;

/// A language: its name, what runs it, and how that is told to run a text.
struct Language {
    name: &'static str,
    programs: &'static str,
    option: &'static str,
}

const LANGUAGES: [Language; 3] = [
    Language { name: "python", programs: "python3 python", option: "-c" },
    Language { name: "bash", programs: "bash", option: "-c" },
    Language { name: "node", programs: "node nodejs", option: "-e" },
];

/// How long a program can be: systems take about 128 KiB as one argument.
const BYTES_MOST: usize = 100_000;

impl Tool for RunCode {
    fn spec(&self) -> ToolSpec {
        let names: Vec<_> = LANGUAGES.iter().map(|language| language.name).collect();
        let properties = json!({
            "language": {"type": "string", "enum": names, "description": "What it is written in."},
            "code": {"type": "string", "description": "The program."},
            "timeout": {
                "type": "integer",
                "minimum": 1,
                "maximum": SECONDS_MOST,
                "description": "After how many seconds to end it; 600 if left out.",
            },
        });
        let description = "Runs a short program in the workspace and gives what it prints. The program itself is written to \
                           no file; what it prints, files it writes and its exit code are all that comes of it.";
        spec("run_code", description, properties, &["language", "code"])
    }

    fn touches(&self, _: &Value) -> Vec<Touch> {
        vec![Touch::everything()]
    }

    fn time_limit(&self) -> Duration {
        Duration::from_secs(SECONDS_MOST) + GRACE
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let (name, code) = (text(&arguments, "language"), text(&arguments, "code"));
        let Some(language) = LANGUAGES.iter().find(|language| language.name == name) else {
            return Err(Error::new(ErrorKind::Arguments, format_args!("unknown language `{name}`")));
        };
        if code.len() > BYTES_MOST {
            let why = format!(
                "`code` has {} bytes, and the most is {BYTES_MOST}; write it to a file and run that",
                code.len()
            );
            return Err(Error::new(ErrorKind::Arguments, why));
        }
        // Which of its names a program has is found out in there, in the same go.
        let Language { programs, option, .. } = language;
        let find = format!(
            "for program in {programs}; do command -v $program >/dev/null 2>&1 && exec $program {option} \"$1\"; done; exit 127"
        );
        let mut run = Command::argv(["sh", "-c", &find, "sh", code]);
        run.time = Duration::from_secs(arguments["timeout"].as_u64().unwrap_or(SECONDS_MOST).min(SECONDS_MOST));
        // What is printed is there when it is ended early, and nothing is left beside files that are imported.
        run.env = [("PYTHONUNBUFFERED", "1"), ("PYTHONDONTWRITEBYTECODE", "1")]
            .map(|(name, on)| (name.into(), on.into()))
            .into();
        let ran = command::run(cx, &run).await?;
        if ran.ended == Ended::Exit(127) && ran.out.bytes + ran.err.bytes == 0 {
            let there = there(cx).await?;
            if !there.contains(&name) {
                let known = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
                return Err(Error::new(ErrorKind::Tool, format_args!("there is no `{name}` here; there is: {known}")));
            }
        }
        command::said(&ran, &run)
    }
}

/// The languages that can be run here.
async fn there(cx: &ToolCx) -> Result<Vec<&'static str>> {
    let look = |language: &Language| {
        let Language { name, programs, .. } = language;
        format!("for program in {programs}; do command -v $program >/dev/null 2>&1 && echo {name}; done\n")
    };
    let look = Command::shell(&LANGUAGES.iter().map(look).collect::<String>());
    let ran = cx.sandbox()?.run(&look, &mut |_, _| {}).await?;
    let found = String::from_utf8_lossy(&ran.out.beginning).into_owned();
    Ok(LANGUAGES.iter().map(|language| language.name).filter(|name| found.lines().any(|line| line == *name)).collect())
}
