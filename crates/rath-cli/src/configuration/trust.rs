//! The files of projects that the user trusts, each with its content.

use std::path::{Path, PathBuf};

use rath::Digest;

use super::{canonical, config_directory, read_file, write_file};
use crate::output::Failure;

/// The list of what the user trusts: a digest and a path on each line.
pub(super) struct TrustedFiles(String);

impl TrustedFiles {
    pub(super) fn read() -> Result<Self, Failure> {
        let text = trusted_file().map(|file| read_file(&file)).transpose()?.flatten();
        Ok(TrustedFiles(text.unwrap_or_default()))
    }

    /// Returns true if the user accepted this file with this content.
    pub(super) fn has(&self, path: &Path, text: &str) -> bool {
        let line = trust_line(path, text);
        self.0.lines().any(|known| known == line)
    }

    /// Returns true if the user accepted this file with some content.
    pub(super) fn has_path(&self, path: &Path) -> bool {
        let line = trust_line(path, "");
        self.0.lines().any(|known| path_in(known) == path_in(&line))
    }
}

/// Accepts the content of a file. An earlier content of the file is not accepted any longer.
pub(super) fn accept(path: &Path, text: &str) -> Result<(), Failure> {
    let file = trusted_file().ok_or_else(|| Failure::new("your home directory is not known", "set HOME"))?;
    let known = TrustedFiles::read()?.0;
    let line = trust_line(path, text);
    let mut lines: Vec<&str> = known.lines().filter(|known| path_in(known) != path_in(&line)).collect();
    lines.push(&line);
    write_file(&file, &(lines.join("\n") + "\n"))
}

fn trusted_file() -> Option<PathBuf> {
    config_directory().map(|directory| directory.join("trusted"))
}

fn trust_line(path: &Path, text: &str) -> String {
    let path = canonical(path);
    format!("{} {:?}", Digest::compute(text.as_bytes()), path)
}

fn path_in(line: &str) -> Option<&str> {
    line.split_once(' ').map(|(_, path)| path)
}
