//! `rath blame`: show the tool call that wrote each line of a file.

use std::io::{self, Write};

use rath::StepId;
use rath::chunk::Call;
use rath::record::draw::{count, preview, printable};
use rath::{Certainty, Line, Origin};
use serde_json::json;

use crate::output::{self, BRANCH, CommandResult, Failure};
use crate::sessions::{self, LoadedSession, StoreArg};

/// Show which tool call wrote each line of a file
///
/// Lines that a shell command wrote are known too. With a line number, the call, its agent and the checks that passed
/// or failed on the line are shown.
#[derive(clap::Args)]
pub(crate) struct BlameArgs {
    /// The file, and the number of one line
    #[arg(value_name = "PATH[:LINE]")]
    path: String,
    /// The session, and the step (default: the newest session)
    #[arg(value_name = "SESSION[@STEP]")]
    session: Option<String>,
    #[command(flatten)]
    store: StoreArg,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &BlameArgs) -> CommandResult {
    let loaded = sessions::read_or_newest(args.session.as_deref(), &args.store).await?;
    let exit = loaded.warn();
    let (path, wanted) = match args.path.rsplit_once(':').map(|(path, line)| (path, line.parse::<usize>())) {
        Some((path, Ok(line))) => (path, Some(line)),
        _ => (args.path.as_str(), None),
    };
    let lines = find_lines(&loaded, path, wanted).await?;
    match args.json {
        true => output::data(|out| write_json(out, &lines))?,
        false => output::text(|out| print(out, &lines, wanted.is_some()))?,
    }
    Ok(exit)
}

/// Finds the origin of the lines of a file, or of one line, each with its number.
pub(super) async fn find_lines(
    loaded: &LoadedSession,
    path: &str,
    wanted: Option<usize>,
) -> Result<Vec<(Line, usize)>, Failure> {
    loaded.require_files()?;
    let Some(blame) = loaded.session.blame(path).await.map_err(|error| loaded.explain(error))? else {
        let message = format!("there is no file `{path}` in session {}", loaded.name());
        let hint = "name it relative to the session's directory; ignored files are not recorded";
        return Err(Failure::new(message, hint));
    };
    if let Some(line) = wanted.filter(|line| *line == 0 || *line > blame.lines.len()) {
        let lines = count(blame.lines.len() as u64, "line");
        let message = format!("there is no line {line} in `{path}`, which has {lines}");
        return Err(Failure::new(message, "lines are counted from 1"));
    }
    let lines = blame.lines.into_iter().zip(1..).filter(|(_, number)| wanted.is_none_or(|wanted| wanted == *number));
    Ok(lines.collect())
}

/// Prints lines with their origins.
pub(super) fn print(out: &mut dyn Write, lines: &[(Line, usize)], with_details: bool) -> io::Result<()> {
    lines.iter().try_for_each(|(line, number)| print_line(out, line, *number, with_details))
}

/// Writes lines with their origins, one JSON line for each.
pub(super) fn write_json(out: &mut dyn Write, lines: &[(Line, usize)]) -> io::Result<()> {
    lines.iter().try_for_each(|(line, number)| output::json_line(out, &as_json(line, *number)))
}

fn as_json(line: &Line, number: usize) -> serde_json::Value {
    let (origin, author) = match &line.origin {
        Origin::Before => ("before", None),
        Origin::Outside => ("outside", None),
        Origin::Merge => ("merge", None),
        Origin::InDoubt(_) => ("interrupted call", None),
        Origin::Forgotten => ("forgotten", None),
        Origin::Call(author) => ("call", Some(author)),
    };
    json!({
        "line": number, "text": line.text, "origin": origin, "step": line.step, "checks": line.checks,
        "failed_checks": line.failed_checks,
        "call": author.map(|author| &author.call), "by": author.and_then(|author| author.by.as_ref()),
        "certainty": author.map(|author| match author.certainty {
            Certainty::By => "by",
            Certainty::During => "during",
        }),
        "answer": author.map(|author| author.answer), "request": author.and_then(|author| author.request),
    })
}

fn print_line(out: &mut dyn Write, line: &Line, number: usize, with_details: bool) -> io::Result<()> {
    let author = match &line.origin {
        Origin::Before => "before the session".to_owned(),
        Origin::Outside => "outside the agent".to_owned(),
        Origin::Merge => "merged".to_owned(),
        Origin::InDoubt(_) => "interrupted call?".to_owned(),
        Origin::Forgotten => "forgotten".to_owned(),
        Origin::Call(author) if author.certainty == Certainty::During => format!("during {}", author.call.tool),
        Origin::Call(author) => author.call.tool.to_string(),
    };
    writeln!(
        out,
        "{} {BRANCH}{:<19}{BRANCH:#} {number:>5}  {}",
        output::short(&line.step),
        preview(&author),
        printable(&line.text)
    )?;
    if !with_details {
        return Ok(());
    }
    if let Origin::Call(author) = &line.origin {
        print_call(out, &author.call, author.by.as_deref(), author.answer)?;
        author.request.iter().try_for_each(|request| writeln!(out, "  request: {request:.16}"))?;
        if author.certainty == Certainty::During {
            writeln!(out, "  written while this call ran, by it or by another process")?;
        }
    }
    if let Origin::InDoubt(calls) = &line.origin {
        let calls: Vec<_> = calls.iter().map(ToString::to_string).collect();
        writeln!(out, "  written by {}, which was interrupted, or outside the agent", preview(&calls.join(", ")))?;
    }
    if line.origin == Origin::Forgotten {
        writeln!(out, "  written in this step, which was removed with `rath forget`, or after it")?;
    }
    match &line.checks[..] {
        [] => writeln!(out, "  checks: none covers this line")?,
        checks => writeln!(out, "  checks: {}", preview(&checks.join(", ")))?,
    }
    match &line.failed_checks[..] {
        [] => Ok(()),
        checks => writeln!(out, "  failed checks: {}", preview(&checks.join(", "))),
    }
}

/// Prints a call, the agent that made it, and the step of the answer that asked for it.
pub(super) fn print_call(out: &mut dyn Write, call: &Call, by: Option<&str>, answer: StepId) -> io::Result<()> {
    // Before it is cut: a part of a secret would not be recognised.
    let arguments = output::hide_secrets(call.arguments.as_str().unwrap_or_default().to_owned());
    writeln!(out, "  call: {} {}", preview(&call.tool), preview(&arguments))?;
    by.iter().try_for_each(|by| writeln!(out, "  by: {}", preview(by)))?;
    writeln!(out, "  answer: {}", output::short(&answer))
}
