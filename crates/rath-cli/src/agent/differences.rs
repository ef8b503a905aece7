//! The differences of a stored session from its last turn, in words.

use rath::record::draw::one_line;
use rath::{Certificate, Difference};

use crate::changed_files::shorten_list;
use crate::sandboxes::in_current_directory;

/// Returns the files that a person or another program changed between two turns.
pub(super) fn changed_paths(difference: &Difference) -> Option<&[String]> {
    match difference {
        Difference::Files { paths } => Some(paths),
        _ => None,
    }
}

/// Returns true if a session does not continue with a difference unless the user says so.
pub(super) fn is_obstacle(difference: &Difference) -> bool {
    let goes_on = matches!(
        difference,
        Difference::Files { .. } | Difference::Tool { .. } | Difference::Model { .. } | Difference::Prompt { .. }
    );
    !goes_on && !difference.is_open()
}

/// Returns the options with which a session continues despite its differences, and their effect, for a hint.
pub(crate) fn anyway_options(certificate: &Certificate) -> (String, &'static str) {
    if !certificate.differences().iter().any(is_obstacle) {
        return (String::new(), "continues, and tells the model");
    }
    let place = certificate.differences().iter().find_map(|difference| match difference {
        Difference::Place { place, .. } => Some(place),
        _ => None,
    });
    match place {
        Some(place) => {
            let sandbox = in_current_directory(place);
            (format!("--sandbox {sandbox} --anyway"), "continues in this directory (this is recorded)")
        }
        None => ("--anyway".to_owned(), "continues (this is recorded)"),
    }
}

/// Describes what changed since the last turn, one line for each change if there are several.
pub(super) fn describe_changes(certificate: &Certificate) -> String {
    let changes: Vec<_> = certificate.differences().iter().map(|it| one_line(&describe_change(it))).collect();
    match &changes[..] {
        [change] => change.clone(),
        changes => {
            let lines = changes.iter().map(|change| format!("\n- {change}")).collect::<String>();
            format!("{} things changed since the last turn:{lines}", changes.len())
        }
    }
}

pub(crate) fn describe_change(difference: &Difference) -> String {
    match difference {
        Difference::Files { paths } => format!("{} since the last turn", describe_paths(paths)),
        Difference::Unobserved { paths, tools, .. } => {
            let tools: Vec<_> = tools.iter().map(|tool| format!("`{tool}`")).collect();
            format!("{} after {} started, by this call or by others", describe_paths(paths), tools.join(", "))
        }
        Difference::InDoubt { tool, .. } => {
            format!("a call of `{tool}` was interrupted, and may or may not have finished")
        }
        other => other.to_string(),
    }
}

/// Describes changed files: `+a`, `~b` and `-c` become `a added, b changed, c deleted`.
pub(crate) fn describe_paths(paths: &[String]) -> String {
    shorten_list(&paths.iter().map(|path| describe_path(path)).collect::<Vec<_>>())
}

fn describe_path(path: &str) -> String {
    match (path.chars().next(), path.get(1..)) {
        (Some('+'), Some(path)) => format!("{path} added"),
        (Some('~'), Some(path)) => format!("{path} changed"),
        (Some('-'), Some(path)) => format!("{path} deleted"),
        _ => match path.split_once('→') {
            Some((from, to)) => format!("{from} renamed to {to}"),
            None => format!("{path} changed"),
        },
    }
}
