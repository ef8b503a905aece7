//! A workspace that is a directory of rath's own, with the key or the configuration of the user.
//!
//! Without the guard it is the directory of another user.

use serde_json::json;

use super::place::{EVIL, Place, printed, tool};
use super::{Attack, Guard, HoldsIn, Observation, Plane, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    let row = |(name, directory, file): &(&'static str, &'static str, &'static str)| {
        Attack::new(name, Plane::FileTools, HoldsIn::Both, |trial| try_write(trial, directory, file))
    };
    ROWS.iter().map(row).collect()
}

/// The workspace, and the file in there that is written.
const ROWS: &[(&str, &str, &str)] = &[
    ("the key in a workspace that is its directory", "xdg/rath", "user.key"),
    ("the configuration in a workspace that is its directory", "xdg/rath", "config.toml"),
    ("the key in a workspace above its directory", "xdg", "rath/user.key"),
    ("the key in a workspace around its directory", "", "xdg/rath/user.key"),
    ("temporary files of rath in a workspace that is their directory", "xdg/rath/tmp", "output"),
];

fn try_write(trial: Trial, directory: &str, file: &str) -> Observation {
    let place = Place::new();
    for name in ["user.key", "config.toml", "tmp/output"] {
        place.write(&format!("xdg/rath/{name}"), "");
    }
    let [model, script] = place.script(&[json!({"calls": [tool("write_file", json!({"path": file, "text": EVIL}))]})]);
    let run = ["run", "Go.", &model, &script, "--store", "memory:", "--mode", "full", "--sandbox", trial.sandbox.uri()];
    let mut rath = place.command(&run);
    // The configuration would be refused first.
    let variable = if file.ends_with(".toml") { "XDG_CONFIG_HOME" } else { "XDG_DATA_HOME" };
    if trial.guard == Guard::On {
        rath.env(variable, place.path("xdg"));
    }
    let output = rath.current_dir(place.path(directory)).output().expect("rath runs");
    let text = std::fs::read_to_string(place.path(directory).join(file)).unwrap_or_default();
    Observation::new(text == EVIL, printed(&output))
}
