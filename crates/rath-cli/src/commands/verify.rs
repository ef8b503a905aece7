//! `rath verify`: check a session, a file or a store for damage.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rath::record::codec::{Ending, Report};
use rath::record::draw::{count, one_line};
use rath::record::graph::GraphReport;
use rath::store::Damage;

use crate::output::{self, CommandResult, Exit};
use crate::sessions::{self, Source, StoreArg};

/// Check a session, a file or a whole store for damage
#[derive(clap::Args)]
pub(crate) struct VerifyArgs {
    /// A session in the store, a session file, or a graph written by `rath export` (default: the whole store)
    session: Option<String>,
    #[command(flatten)]
    store: StoreArg,
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
    let check = args.store.open().await?.check().await?;
    let (branches, steps) = (check.branches, check.steps);
    if args.json {
        let json = serde_json::json!({
            "whole": check.damage.is_empty(),
            "branches": branches,
            "steps": steps,
            "damage": damage_json(&check.damage),
        });
        output::data(|out| output::json_line(out, &json))?;
    } else {
        print_damage(&check.damage, &format!("{}, {}", counted(branches, "branch", "branches"), count(steps, "step")))?;
    }
    Ok(exit(&check.damage))
}

/// Checks one session in a store.
async fn verify_stored(args: &VerifyArgs, name: &str) -> CommandResult {
    let loaded = sessions::read(name, &args.store).await?;
    let Source::Store(_, listed, damage) = &loaded.source else { return Ok(Exit::Success) };
    let steps = loaded.lineage.walk().len() as u64;
    if args.json {
        let json = serde_json::json!({
            "whole": damage.is_empty(),
            "session": listed.branch,
            "steps": steps,
            "damage": damage_json(damage),
        });
        output::data(|out| output::json_line(out, &json))?;
    } else {
        print_damage(damage, &count(steps, "step"))?;
    }
    Ok(exit(damage))
}

fn print_damage(damage: &[Damage], counted: &str) -> std::io::Result<()> {
    output::text(|out| {
        damage.iter().try_for_each(|damage| writeln!(out, "{damage}"))?;
        writeln!(out, "{}: {counted}", if damage.is_empty() { "intact" } else { "damaged" })
    })
}

fn damage_json(damage: &[Damage]) -> Vec<serde_json::Value> {
    let json = |it: &Damage| serde_json::json!({"place": it.place, "step": it.step, "fault": it.what});
    damage.iter().map(json).collect()
}

fn exit(damage: &[Damage]) -> Exit {
    if damage.is_empty() { Exit::Success } else { Exit::Differs }
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
        let [rows, steps] = [count(report.rows, "row"), count(report.steps, "step")];
        writeln!(out, "{verdict}: {rows}, {steps}, {} bytes", report.bytes)
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
        "gone": report.gone,
        "withheld": report.withheld,
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
