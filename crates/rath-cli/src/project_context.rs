//! The context of a new session: the project's own words for agents, and where the agent works.
//!
//! It is one step at the beginning of the record, so that later requests begin with the same bytes, and a replay needs neither the
//! files nor the clock.

mod git;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rath::chunk::{Memory, MemoryEvent, PROJECT_CONTEXT, RecalledEntry};
use rath::prelude::*;
use rath::record::draw::one_line;

use self::git::{git_state, repository_root};
use crate::agent::describe_paths;
use crate::configuration::is_of_others;
use crate::output;

/// The files with a project's words for agents. In each directory the first that is there counts.
const CONTEXT_FILES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];
/// The most bytes of these files that an agent is told.
const MAX_CONTEXT_BYTES: usize = 64 << 10;

/// Appends the context to a session that begins in `sandbox`.
pub(crate) fn push_context(session: &mut Session, sandbox: &Sandbox) {
    let directory = sandbox.directory().and_then(|directory| directory.canonicalize().ok());
    let mut found = vec![RecalledEntry::new("environment", environment(sandbox, directory.as_deref()))];
    for file in directory.as_deref().map(context_files).unwrap_or_default() {
        found.push(RecalledEntry::new(file.name, file.text));
    }
    let names = found.iter().map(|entry| entry.entry.as_str()).collect::<Vec<_>>().join(", ");
    let event = MemoryEvent::Recall { query: names.into(), found, position: None, notice: None };
    session.push(Memory::new(PROJECT_CONTEXT, event));
}

/// Tells the model which files changed since its last turn. Another step records what changed in them.
pub(crate) fn push_changed_files(session: &mut Session, paths: &[String]) {
    let text = format!("changed since your last turn, not by you: {}", describe_paths(paths));
    push_found(session, "changed files", vec![RecalledEntry::new("changed files", text)]);
}

/// Tells the model the texts that the user attached to a message.
pub(crate) fn push_attached_files(session: &mut Session, texts: Vec<RecalledEntry>) {
    if !texts.is_empty() {
        push_found(session, "attached files", texts);
    }
}

fn push_found(session: &mut Session, query: &str, found: Vec<RecalledEntry>) {
    let event = MemoryEvent::Recall { query: query.into(), found, position: None, notice: None };
    session.push(Memory::new(PROJECT_CONTEXT, event));
}

/// Describes where the agent works. A path is the one that its tools see.
fn environment(sandbox: &Sandbox, directory: Option<&Path>) -> String {
    let mut lines = Vec::new();
    // Without `..`, unless the tools see the directory at another path.
    let own = directory.filter(|_| sandbox.seen_at() == sandbox.directory());
    lines.extend(own.or(sandbox.seen_at()).map(|path| format!("directory: {}", one_line(&path.display().to_string()))));
    let is_this_machine = sandbox.uri().starts_with("isolated:") || sandbox.uri().starts_with("local:");
    lines.extend(is_this_machine.then(|| format!("operating system: {}", std::env::consts::OS)));
    lines.push(format!("date: {}", output::day(output::now())));
    lines.extend(directory.map(git_state).unwrap_or_default());
    lines.join("\n")
}

/// A file with words for agents, and the text that is told.
struct ContextFile {
    name: String,
    text: String,
}

/// Reads the files from the repository's root down to a directory. Without a repository only the directory itself counts.
fn context_files(directory: &Path) -> Vec<ContextFile> {
    let root = repository_root(directory).unwrap_or_else(|| directory.to_owned());
    let mut directories: Vec<&Path> = directory.ancestors().take_while(|above| above.starts_with(&root)).collect();
    directories.reverse();
    let mut left = MAX_CONTEXT_BYTES;
    let files = directories.into_iter().filter_map(|directory| {
        let path =
            CONTEXT_FILES.iter().map(|name| directory.join(name)).find(|path| path.symlink_metadata().is_ok())?;
        let name = one_line(&path.strip_prefix(&root).unwrap_or(&path).display().to_string());
        match read_context(&path, &root, directory, left) {
            Ok((text, size)) => {
                left = left.saturating_sub(text.len());
                let rest = size.saturating_sub(text.len() as u64);
                let cut =
                    if rest > 0 { format!("\n[{rest} more bytes of {name} are not shown]") } else { String::new() };
                if rest > 0 {
                    let rest = output::grouped(rest);
                    output::note(&format!("the agent is not told the last {rest} bytes of {name}: 64 KiB is the most"));
                }
                Some(ContextFile { text: format!("{name} of the project:\n{text}{cut}"), name })
            }
            Err(why) => {
                output::warning(&format!("{} is not read: {why}", output::path(&path)));
                None
            }
        }
    });
    files.collect()
}

/// Reads the beginning of a file of the project, and returns its size too.
fn read_context(path: &Path, root: &Path, directory: &Path, max: usize) -> Result<(String, u64), String> {
    let file = path.canonicalize().map_err(|error| error.to_string())?;
    // A link could lead to a private file of the user, and to one of the project that tools may not read.
    let is_context = file.file_name().is_some_and(|name| CONTEXT_FILES.iter().any(|known| name == *known));
    if !is_context || !file.starts_with(root) {
        return Err("it is a link to another file than those of the project for agents".to_owned());
    }
    if is_of_others(path, directory) {
        return Err("another user owns it".to_owned());
    }
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a file".to_owned());
    }
    let bytes = read_beginning(&file, max).map_err(|error| error.to_string())?;
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text.to_owned(),
        // A character that is cut at the end.
        Err(error) if error.error_len().is_none() => {
            String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned()
        }
        Err(_) => return Err("it is not UTF-8".to_owned()),
    };
    Ok((text, metadata.len()))
}

/// Reads up to `max` bytes. A pipe would wait for a writer, so only files are opened.
fn read_beginning(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(max as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_told_as_tools_see_it() {
        let folder = rath_test_support::temp_dir_without_blanks();
        let directory = folder.path().canonicalize().expect("a directory");
        let kinds = rath_container::with_containers(rath::sandbox::Registry::new());
        let told = |uri: &str| {
            let sandbox = kinds.open(&uri.replace("DIR", &directory.display().to_string())).expect("a sandbox");
            let text = environment(&sandbox, Some(&directory)).replace(&directory.display().to_string(), "DIR");
            text.lines().filter(|line| !line.starts_with("date: ")).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(told("isolated:DIR"), "directory: DIR; operating system: linux");
        assert_eq!(told("container:debian?directory=DIR&at=/work"), "directory: /work");
    }
}
