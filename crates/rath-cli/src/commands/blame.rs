//! `rath blame`: which call wrote a line.

use std::io::{self, Write};

use rath::StepId;
use rath::chunk::Call;
use rath::record::draw::{count, preview, printable};
use rath::{Line, Origin};
use serde_json::json;

use crate::output::{self, BRANCH, Done, Failure};
use crate::sessions::{self, StoreArg};

/// Show which call wrote each line of a file, and who asked for it
///
/// What a shell command wrote is known as well as what an editing tool did.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file, and the number of a line
    #[arg(value_name = "PATH[:LINE]")]
    path: String,
    /// The session, and the step; the one that was written last if none is named
    #[arg(value_name = "SESSION[@STEP]")]
    session: Option<String>,
    #[command(flatten)]
    store: StoreArg,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Done {
    let named = sessions::read_or_newest(args.session.as_deref(), &args.store)?;
    let exit = named.warn();
    named.has_files()?;
    let (path, wanted) = match args.path.rsplit_once(':').map(|(path, line)| (path, line.parse::<usize>())) {
        Some((path, Ok(line))) => (path, Some(line)),
        _ => (args.path.as_str(), None),
    };
    let Some(blame) = named.session.blame(path)? else {
        let what = format!("there is no file `{path}` in the session {}", named.name());
        return Err(Failure::told(what, "paths are relative to the workspace, and ignored files are not kept"));
    };
    if let Some(line) = wanted.filter(|line| *line == 0 || *line > blame.lines.len()) {
        let lines = count(blame.lines.len() as u64, "line");
        let what = format!("`{path}` has {lines}, and no line {line}");
        return Err(Failure::told(what, "lines are counted from 1"));
    }
    let lines = blame.lines.iter().zip(1..).filter(|(_, number)| wanted.is_none_or(|wanted| wanted == *number));
    let lines: Vec<_> = lines.collect();
    if args.json {
        output::data(|out| {
            lines.iter().try_for_each(|(line, number)| output::json_line(out, &as_json(line, *number)))
        })?;
    } else {
        let whole = wanted.is_some();
        output::text(|out| lines.iter().try_for_each(|(line, number)| print(out, line, *number, whole)))?;
    }
    Ok(exit)
}

fn as_json(line: &Line, number: usize) -> serde_json::Value {
    let (origin, author) = match &line.origin {
        Origin::Before => ("before", None),
        Origin::Outside => ("outside", None),
        Origin::Merge => ("merge", None),
        Origin::Call(author) => ("call", Some(author)),
    };
    json!({
        "line": number, "text": line.text, "origin": origin, "step": line.step, "checks": line.checks,
        "call": author.map(|author| &author.call), "by": author.and_then(|author| author.by.as_ref()),
        "answer": author.map(|author| author.answer), "request": author.and_then(|author| author.request),
    })
}

fn print(out: &mut dyn Write, line: &Line, number: usize, whole: bool) -> io::Result<()> {
    let who = match &line.origin {
        Origin::Before => "before the session".to_owned(),
        Origin::Outside => "outside the session".to_owned(),
        Origin::Merge => "merged".to_owned(),
        Origin::Call(author) => author.call.tool.to_string(),
    };
    writeln!(
        out,
        "{} {BRANCH}{:<19}{BRANCH:#} {number:>5}  {}",
        output::short(&line.step),
        preview(&who),
        printable(&line.text)
    )?;
    if !whole {
        return Ok(());
    }
    if let Origin::Call(author) = &line.origin {
        asked(out, &author.call, author.by.as_deref(), author.answer)?;
        author.request.iter().try_for_each(|request| writeln!(out, "  request: {request:.16}"))?;
    }
    match &line.checks[..] {
        [] => writeln!(out, "  checks: none that covers it"),
        checks => writeln!(out, "  checks: {}", preview(&checks.join(", "))),
    }
}

/// Says which call it was, and who asked for it.
pub(super) fn asked(out: &mut dyn Write, call: &Call, by: Option<&str>, answer: StepId) -> io::Result<()> {
    writeln!(out, "  call: {} {}", preview(&call.tool), call.arguments.as_str().map(preview).unwrap_or_default())?;
    by.iter().try_for_each(|by| writeln!(out, "  by: {}", preview(by)))?;
    writeln!(out, "  asked for in: {}", output::short(&answer))
}
