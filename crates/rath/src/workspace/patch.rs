//! What differs between two trees, line by line.

use std::fmt::Write;

use imara_diff::{Algorithm, BasicLineDiffPrinter, Diff, InternedInput, UnifiedDiffConfig};
use rath_record::chunk::{Change, Effect, Tree};

use super::Objects;
use crate::error::Result;

/// A patch from one tree to another, in the shape that `git apply` and `patch` read.
pub(crate) fn patch(objects: &Objects, before: &Tree, after: &Tree) -> Result<String> {
    let mut text = String::new();
    for effect in objects.diff(Some(before), after)? {
        let Effect { path, change, .. } = &effect;
        let from = match change {
            Change::Renamed { from } => from,
            _ => path,
        };
        let old = objects.read(before, from)?.unwrap_or_default();
        let new = objects.read(after, path)?.unwrap_or_default();
        let _ = writeln!(text, "diff --git a/{from} b/{path}");
        if from != path {
            let _ = writeln!(text, "rename from {from}\nrename to {path}");
        }
        if old == new {
            continue;
        }
        let (Ok(old), Ok(new)) = (std::str::from_utf8(&old), std::str::from_utf8(&new)) else {
            let _ = writeln!(text, "binary files differ");
            continue;
        };
        let name =
            |side: &str, path: &str, gone: bool| if gone { "/dev/null".to_owned() } else { format!("{side}/{path}") };
        let _ = writeln!(text, "--- {}", name("a", from, *change == Change::Created));
        let _ = writeln!(text, "+++ {}", name("b", path, *change == Change::Deleted));
        let input = InternedInput::new(old, new);
        let mut diff = Diff::compute(Algorithm::Histogram, &input);
        diff.postprocess_lines(&input);
        let printer = BasicLineDiffPrinter(&input.interner);
        let _ = write!(text, "{}", diff.unified_diff(&printer, UnifiedDiffConfig::default(), &input));
    }
    Ok(text)
}
