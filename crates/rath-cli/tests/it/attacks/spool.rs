//! Long output that rath stores on the disk: a link in the place of the directory does not lead rath elsewhere.
//!
//! Without the guard a program that opens files by their path writes in that directory after the same commands.

use serde_json::json;

use super::place::{EVIL, Place, results, shell};
use super::{Attack, Guard, HoldsIn, Observation, Plane, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    let row = |(name, row): &(&'static str, &'static SpoolRow)| {
        Attack::new(name, Plane::Walls, HoldsIn::Isolated, |trial| try_swap(trial, row))
    };
    ROWS.iter().map(row).collect()
}

/// The place of temporary files, and how commands can write there.
struct SpoolRow {
    temporary: &'static str,
    sandbox: &'static str,
    /// The directory for the data of the user. In a file it cannot be created.
    data: &'static str,
}

const ROWS: &[(&str, &SpoolRow)] = &[
    (
        "temporary files of rath in the workspace",
        &SpoolRow { temporary: "work/tmp", sandbox: "isolated:.", data: "data" },
    ),
    (
        "temporary files of rath in a workspace for such files",
        &SpoolRow { temporary: "work", sandbox: "isolated:.", data: "data" },
    ),
    (
        "temporary files of rath in a directory that commands write",
        &SpoolRow { temporary: "tmp", sandbox: "isolated:.?write={tmp}", data: "data" },
    ),
    (
        "temporary files of rath in the workspace of a user without a home",
        &SpoolRow { temporary: "work/tmp", sandbox: "isolated:.", data: "script.jsonl/data" },
    ),
    (
        "temporary files of rath beside the workspace of a user without a home",
        &SpoolRow { temporary: "tmp", sandbox: "isolated:.?write={tmp}", data: "script.jsonl/data" },
    ),
];

/// Puts links in the place of all directories for long output, and lets rath store the next one.
fn try_swap(trial: Trial, row: &SpoolRow) -> Observation {
    let place = Place::new();
    let temporary = place.path(row.temporary);
    std::fs::create_dir_all(temporary.join("rath-spool-other")).expect("made");
    let (tmp, out) = (temporary.display(), place.text("outside"));
    let swap = format!("cd '{tmp}'; for d in rath-spool-*; do test -d $d && mv $d gone-$d && ln -s '{out}' $d; done");
    let long = format!("echo {EVIL}; head -c 700000 /dev/zero | tr '\\0' x");
    let turns = [&long, &swap, &long].map(|line| json!({"calls": [shell(line)]}));
    let [model, script] = place.script(&turns);
    let sandbox = row.sandbox.replace("{tmp}", &temporary.display().to_string());
    let run = ["run", "Go.", &model, &script, "--json", "--store", "memory:", "--mode", "full", "--sandbox", &sandbox];
    let mut rath = place.command(&run);
    let output = rath.env("TMPDIR", &temporary).env("XDG_DATA_HOME", place.path(row.data)).output().expect("rath runs");
    let link = temporary.join("rath-spool-other");
    assert!(link.is_symlink(), "{}", results(&output));
    if trial.guard == Guard::Off {
        std::fs::write(link.join("output"), EVIL).expect("written");
    }
    let files = place.survey("outside");
    let is_written = files.values().any(|file| file.starts_with(EVIL));
    Observation::new(is_written, format!("{} {:?}", results(&output).len(), files.keys()))
}
