//! `rath verify`: check a session, a file or a store for damage.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use rath::record::codec::{Ending, Report};
use rath::record::draw::{count, one_line};
use rath::record::graph::GraphReport;
use rath::store::Damage;
use rath::{FileCheck, FileFault};

use crate::json;
use crate::output::{self, CommandResult, Exit};
use crate::sessions::{self, Source, StoreArg};

/// Check a session, a file or a whole store for damage
///
/// Every step is read, and every version of a file that a step names, and compared with what was recorded.
#[derive(clap::Args)]
pub(crate) struct VerifyArgs {
    /// A session in the store, a session file, or a graph written by `rath export` (default: the whole store)
    session: Option<String>,
    #[command(flatten)]
    store: StoreArg,
    /// Check the steps only, not the files that they name
    #[arg(long)]
    quick: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &VerifyArgs) -> CommandResult {
    match args.session.as_deref() {
        None => verify_store(args).await,
        Some(name) => match sessions::as_file(name) {
            Some(path) if is_graph(path) => verify_graph(args, path).await,
            Some(path) => verify_file(args, path).await,
            None => verify_stored(args, name).await,
        },
    }
}

/// Checks everything in a store.
async fn verify_store(args: &VerifyArgs) -> CommandResult {
    let store = args.store.open().await?;
    let check = store.check().await?;
    let files = match args.quick {
        true => None,
        false => Some(store.check_files(sessions::store_directory()).await?),
    };
    let (branches, steps) = (check.branches, check.steps);
    let facts = serde_json::json!({"branches": branches, "steps": steps});
    let counted = format!("{}, {}", counted(branches, "branch", "branches"), count(steps, "step"));
    report(args, &check.damage, files.as_ref(), facts, &counted)
}

/// Checks one session in a store.
async fn verify_stored(args: &VerifyArgs, name: &str) -> CommandResult {
    let loaded = sessions::read(name, &args.store).await?;
    let Source::Store(_, listed, damage) = &loaded.source else { return Ok(Exit::Success) };
    let files = match args.quick {
        true => None,
        false => Some(loaded.session.check_files().await?),
    };
    let steps = loaded.lineage.walk().len() as u64;
    let facts = serde_json::json!({"session": listed.branch, "steps": steps});
    report(args, damage, files.as_ref(), facts, &count(steps, "step"))
}

/// Prints the result of a check of steps, and of files if they were checked.
fn report(
    args: &VerifyArgs,
    damage: &[Damage],
    files: Option<&FileCheck>,
    mut facts: serde_json::Value,
    counted: &str,
) -> CommandResult {
    let is_whole = damage.is_empty() && files.is_none_or(FileCheck::is_whole);
    if args.json {
        facts["whole"] = is_whole.into();
        facts["damage"] = json::store_damage(damage).into();
        facts["files"] = files.map_or(serde_json::Value::Null, files_json);
        output::data(|out| output::json_line(out, &facts))?;
    } else {
        output::text(|out| {
            damage.iter().try_for_each(|damage| writeln!(out, "{damage}"))?;
            files.map_or(Ok(()), |files| print_files(out, files))?;
            let checked = match files {
                Some(files) => format!(", {}", count(files.files, "file version")),
                None => "; files not checked".to_owned(),
            };
            writeln!(out, "{}: {counted}{checked}", if is_whole { "intact" } else { "damaged" })
        })?;
    }
    Ok(if is_whole { Exit::Success } else { Exit::Differs })
}

/// Lists the files that are not as they were stored.
fn print_files(out: &mut dyn Write, files: &FileCheck) -> std::io::Result<()> {
    files.damage.iter().try_for_each(|damage| writeln!(out, "{}", one_line(&damage.to_string())))?;
    if files.unlisted > 0 {
        writeln!(out, "and {} more files", files.unlisted)?;
    }
    if files.forgotten > 0 {
        writeln!(out, "{} without content: removed with `rath forget`", count(files.forgotten, "file version"))?;
    }
    if files.absent > 0 {
        writeln!(out, "{} not checked: never in this copy", count(files.absent, "file version"))?;
    }
    Ok(())
}

fn files_json(files: &FileCheck) -> serde_json::Value {
    let damage = files.damage.iter().map(|it| {
        let (fault, why) = match &it.fault {
            FileFault::Damaged { why } => ("damaged", Some(why)),
            _ => ("missing", None),
        };
        serde_json::json!({"step": it.step, "path": it.path, "version": it.id, "fault": fault, "why": why})
    });
    serde_json::json!({
        "checked": files.files,
        "directories": files.directories,
        "bytes": files.bytes,
        "forgotten": files.forgotten,
        "absent": files.absent,
        "damage": damage.collect::<Vec<_>>(),
        "unlisted": files.unlisted,
    })
}

fn versions(number: u64) -> String {
    count(number, "file version")
}

fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

async fn verify_file(args: &VerifyArgs, path: &Path) -> CommandResult {
    let report = rath::verify(path).await?;
    let exit = if report.is_whole() { Exit::Success } else { Exit::Differs };
    if args.json {
        output::data(|out| output::json_line(out, &session_json(&report)))?;
        return Ok(exit);
    }
    output::text(|out| {
        for damage in &report.damage {
            writeln!(out, "{damage}")?;
        }
        if report.unlisted > 0 {
            writeln!(out, "and {} more", report.unlisted)?;
        }
        for (kind, count) in &report.unread {
            writeln!(out, "{count} of kind `{}`, which this version cannot read and leaves unchanged", one_line(kind))?;
        }
        if report.gone > 0 {
            writeln!(
                out,
                "{} marked as missing: lost earlier, or removed by `rath forget`",
                count(report.gone, "item")
            )?;
        }
        if report.withheld > 0 {
            writeln!(out, "{} without its text: removed by `rath forget`", count(report.withheld, "step"))?;
        }
        if report.ending != Ending::Closed {
            writeln!(out, "{}", report.ending)?;
        }
        let verdict = match report {
            _ if report.is_whole() => "intact",
            _ if report.damage.is_empty() => "not closed",
            _ => "damaged",
        };
        if report.gone_objects > 0 {
            writeln!(
                out,
                "{} left out when it was written, or removed by `rath forget`",
                versions(report.gone_objects)
            )?;
        }
        let [rows, steps] = [count(report.rows, "row"), count(report.steps, "step")];
        let files = if report.has_files { format!(", {}", versions(report.files)) } else { String::new() };
        writeln!(out, "{verdict}: {rows}, {steps}{files}, {} bytes", report.bytes)?;
        match report.absent_objects {
            0 => Ok(()),
            _ => writeln!(out, "files not checked: the steps name some, and the file holds none"),
        }
    })?;
    Ok(exit)
}

async fn verify_graph(args: &VerifyArgs, path: &Path) -> CommandResult {
    let report = rath::verify_graph(path).await?;
    let exit = if report.problems.is_empty() { Exit::Success } else { Exit::Differs };
    if args.json {
        output::data(|out| output::json_line(out, &graph_json(&report)))?;
        return Ok(exit);
    }
    output::text(|out| {
        for problem in &report.problems {
            writeln!(out, "{}", one_line(&problem.to_string()))?;
        }
        let sessions = count(report.rows, "session");
        match &report.problems[..] {
            [] => writeln!(out, "intact: a graph of {sessions}; every seal matches and no parent is missing"),
            _ => writeln!(out, "damaged: a graph of {sessions}"),
        }
    })?;
    Ok(exit)
}

/// Returns `true` for a file whose first row begins with an id; a row of a session file begins with its seal.
///
/// The beginning of a pipe is not read, since it could not be read again.
fn is_graph(path: &Path) -> bool {
    let mut start = [0; 6];
    path.is_file()
        && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
        && start == *br#"{"id":"#
}

fn session_json(report: &Report) -> serde_json::Value {
    serde_json::json!({
        "whole": report.is_whole(),
        "ending": report.ending.to_string(),
        "bytes": report.bytes,
        "lines": report.lines,
        "rows": report.rows,
        "steps": report.steps,
        "damage": json::file_damage(report),
        "unlisted": report.unlisted,
        "gone": report.gone,
        "withheld": report.withheld,
        "has_files": report.has_files,
        "files": report.files,
        "directories": report.directories,
        "gone_files": report.gone_objects,
        "cuts": report.cuts,
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
