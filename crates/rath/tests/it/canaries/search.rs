//! Searching for canaries in everything that a session leaves behind.

use std::collections::BTreeSet;
use std::path::Path;

use aho_corasick::AhoCorasick;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use super::plant::Canary;

/// Finds the canaries of a round in any of their forms.
pub(super) struct CanarySearch<'a> {
    canaries: &'a [Canary],
    finder: AhoCorasick,
    /// The canary that each pattern belongs to.
    owners: Vec<usize>,
}

impl<'a> CanarySearch<'a> {
    pub(super) fn new(canaries: &'a [Canary]) -> Self {
        let cores =
            canaries.iter().enumerate().flat_map(|(nth, canary)| canary.cores.iter().map(move |core| (nth, core)));
        let (owners, patterns): (Vec<usize>, Vec<String>) =
            cores.flat_map(|(nth, core)| all_forms(core).into_iter().map(move |form| (nth, form))).unzip();
        let finder = AhoCorasick::new(&patterns).expect("the patterns are short");
        CanarySearch { canaries, finder, owners }
    }

    /// Returns the numbers of the canaries in some bytes, with all that line breaks part and without.
    pub(super) fn find(&self, bytes: &[u8]) -> BTreeSet<usize> {
        let mut found: BTreeSet<usize> = BTreeSet::new();
        let mut add = |bytes: &[u8]| {
            found.extend(self.finder.find_overlapping_iter(bytes).map(|hit| self.owners[hit.pattern().as_usize()]));
        };
        add(bytes);
        // Also after one more level of escapes.
        let text = String::from_utf8_lossy(bytes);
        add(text.replace("\\\\", "\\").replace(['\n', '\r'], "").replace("\\n", "").replace('\\', "").as_bytes());
        add(text.replace("\\\\", "\\").as_bytes());
        found
    }

    /// Describes the canaries in some bytes, each with its channel and its form.
    pub(super) fn leaks(&self, whose: &str, bytes: &[u8]) -> Vec<String> {
        self.find(bytes).into_iter().map(|nth| format!("{}, in {whose}", self.describe(nth))).collect()
    }

    pub(super) fn describe(&self, nth: usize) -> String {
        let Canary { channel, form, value, .. } = &self.canaries[nth];
        format!("{} ({form}): {value}", channel.name)
    }
}

/// Returns the ways in which a part of a value may be written. A part has letters and digits only.
fn all_forms(core: &str) -> Vec<String> {
    let bytes = |escape: fn(u8) -> String| core.bytes().map(escape).collect::<String>();
    let mut forms = BTreeSet::from([
        core.to_owned(),
        bytes(|byte| format!("{byte:02x}")),
        bytes(|byte| format!("{byte:02X}")),
        bytes(|byte| format!("%{byte:02x}")),
        bytes(|byte| format!("%{byte:02X}")),
        bytes(|byte| format!("u{byte:04x}")),
        bytes(|byte| format!("u{byte:04X}")),
        bytes(|byte| if b"aeiouAEIOU".contains(&byte) { format!("%{byte:02x}") } else { char::from(byte).to_string() }),
    ]);
    for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
        for before in 0..3 {
            let padded = [&[0; 2][..before], core.as_bytes()].concat();
            forms.insert(engine.encode(&padded)[(before * 8).div_ceil(6)..padded.len() * 8 / 6].to_owned());
        }
    }
    forms.into_iter().collect()
}

/// Returns the path and the bytes of every file below a directory, without those that are left out.
pub(super) fn all_files(root: &Path, is_left_out: &dyn Fn(&Path) -> bool) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        // The temporary files of a session disappear after it.
        let entries = std::fs::read_dir(&path);
        assert!(entries.is_ok() || path != root);
        for entry in entries.into_iter().flatten().map(|entry| entry.expect("an entry")) {
            let path = entry.path();
            if is_left_out(path.strip_prefix(root).expect("below")) {
                continue;
            }
            if entry.file_type().expect("a type").is_dir() {
                open.push(path);
            } else {
                let below = path.strip_prefix(root).expect("below").to_string_lossy().into_owned();
                files.push((below.clone(), [below.as_bytes(), &std::fs::read(&path).unwrap_or_default()].join(&b'\n')));
            }
        }
    }
    files
}

/// Returns all objects in the stored versions of a directory, unpacked.
pub(super) fn all_objects(directory: &Path) -> Vec<u8> {
    let mut git = rath_test_support::git();
    git.args(["--git-dir", ".rath/workspace", "cat-file", "--batch-all-objects", "--batch"]);
    let output = git.current_dir(directory).output().expect("git runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
