//! `rath verify`: is the file as it was written?

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rath::record::codec::{Ending, Report};
use rath::record::draw::{count, printable};
use rath::record::graph::GraphReport;

use crate::output::{self, Done, Status};

/// Check that a file is as it was written, and name what is not
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A session file, or a graph that `rath export` wrote
    file: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Done {
    if is_graph(&args.file) { graph(args) } else { session(args) }
}

fn session(args: &Args) -> Done {
    let report = rath::verify(&args.file)?;
    let status = if report.is_whole() { Status::Fine } else { Status::Damaged };
    if args.json {
        output::data(|out| output::json_line(out, &session_json(&report)))?;
        return Ok(status);
    }
    output::text(|out| {
        for damage in &report.damage {
            writeln!(out, "{damage}")?;
        }
        if report.unlisted > 0 {
            writeln!(out, "and {} more", report.unlisted)?;
        }
        for (kind, count) in &report.unread {
            writeln!(
                out,
                "{count} of kind `{}`, which this version cannot read and keeps as they are",
                printable(kind)
            )?;
        }
        if report.ending != Ending::Closed {
            writeln!(out, "{}", report.ending)?;
        }
        let verdict = match report {
            _ if report.is_whole() => "whole",
            _ if report.damage.is_empty() => "not closed",
            _ => "damaged",
        };
        let [rows, steps] = [count(report.rows, "row"), count(report.steps, "step")];
        writeln!(out, "{verdict}: {rows}, {steps}, {} bytes", report.bytes)
    })?;
    Ok(status)
}

fn graph(args: &Args) -> Done {
    let report = rath::verify_graph(&args.file)?;
    let status = if report.problems.is_empty() { Status::Fine } else { Status::Damaged };
    if args.json {
        output::data(|out| output::json_line(out, &graph_json(&report)))?;
        return Ok(status);
    }
    output::text(|out| {
        for problem in &report.problems {
            writeln!(out, "{}", printable(&problem.to_string()))?;
        }
        let sessions = count(report.rows, "session");
        match status {
            Status::Fine => writeln!(out, "sound: a graph of {sessions}, every seal fits and every parent is there"),
            Status::Damaged => writeln!(out, "damaged: a graph of {sessions}"),
        }
    })?;
    Ok(status)
}

/// A row of a graph begins with an id; a row of a session file with its seal.
///
/// Only of a file is the beginning looked at: from a pipe it would be gone.
fn is_graph(path: &Path) -> bool {
    let mut start = [0; 6];
    path.is_file()
        && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
        && start == *br#"{"id":"#
}

fn session_json(report: &Report) -> serde_json::Value {
    let damage = report.damage.iter().map(|damage| {
        serde_json::json!({
            "line": damage.line,
            "offset": damage.offset,
            "row": damage.row,
            "step": damage.step,
            "fault": damage.fault.to_string(),
        })
    });
    serde_json::json!({
        "whole": report.is_whole(),
        "ending": report.ending.to_string(),
        "bytes": report.bytes,
        "lines": report.lines,
        "rows": report.rows,
        "steps": report.steps,
        "damage": damage.collect::<Vec<_>>(),
        "unlisted": report.unlisted,
        "unread": report.unread,
    })
}

fn graph_json(report: &GraphReport) -> serde_json::Value {
    let problems = report
        .problems
        .iter()
        .map(|problem| serde_json::json!({"line": problem.line, "id": problem.id, "fault": problem.fault.to_string()}));
    serde_json::json!({
        "sound": report.problems.is_empty(),
        "rows": report.rows,
        "problems": problems.collect::<Vec<_>>(),
    })
}
