//! The tool that commits changes with git.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rath_record::chunk::ToolSpec;
use rath_record::draw::one_line;
use serde_json::{Value, json};

use super::{command, spec, text, texts};
use crate::blocking::run_blocking;
use crate::error::ErrorKind;
use crate::policy::Use;
use crate::sandbox::{Command, ExitStatus, Stream};
use crate::session::{Error, Result};
use crate::tool::hiding::HiddenFiles;
use crate::tool::{Output, Tool, ToolCx, Touch};

/// Commits changes with git, once a person has approved it.
///
/// An isolated sandbox keeps `.git` from being written by all other commands: its hooks and its configuration run programs
/// outside of the sandbox. This tool runs git with access to the history, and to neither of them. Git starts no other program then: no
/// hook, no filter, and no git in a repository below. Neither a file that goes through a filter is committed, nor a repository below that
/// is new: the settings of such a repository run programs too. A file that tools may not read is left out, also if it was deleted: git
/// runs where it is hidden.
///
/// Part of [`all`](super::all).
#[derive(Clone, Copy, Debug)]
pub struct Commit;

impl Tool for Commit {
    fn spec(&self) -> ToolSpec {
        let properties = json!({
            "message": {"type": "string", "minLength": 1, "description": "The message of the commit."},
            "paths": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The files and directories to commit, relative to the workspace; all changes if left out.",
            },
        });
        let description = "Commits changes in the workspace with git, and gives what git prints. The user is asked first. Other \
                           commands can read `.git` and not write it. No hooks and no filters run.";
        spec("commit", description, properties, &["message"])
    }

    fn is_builtin(&self) -> bool {
        true
    }

    fn touches(&self, _: &Value) -> Vec<Touch> {
        vec![Touch::everything()]
    }

    fn uses(&self, arguments: &Value) -> Vec<Use> {
        let words = ["git", "commit", "-m", text(arguments, "message"), "--"].map(str::to_owned);
        vec![Use::Program(words.into_iter().chain(texts(arguments, "paths")).collect())]
    }

    fn needs_approval(&self, _: &Value) -> bool {
        true
    }

    async fn preview(&self, cx: &ToolCx, arguments: &Value) -> Option<String> {
        let paths = texts(arguments, "paths");
        let named = if paths.is_empty() { "all changes".to_owned() } else { paths.join(", ") };
        let listed = async {
            let settings = GitSettings::read(cx, (None, None)).await?;
            Changes::find(cx, &settings, &paths).await
        };
        let unknown = |error: Error| format!("; the files cannot be listed: {}", error.message());
        let listed = listed.await.map_or_else(unknown, |changes| changes.describe());
        Some(format!("{}\n\n{named}{listed}", text(arguments, "message")))
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let paths = texts(&arguments, "paths");
        let identity = run_blocking(|| -> Result<_> { Ok(identity(std::env::home_dir().as_deref())) }).await?;
        let settings = GitSettings::read(cx, identity).await?;
        let is_committing = !cx.session().is_replaying();
        let changes = Changes::find(cx, &settings, &paths).await?;
        if !changes.untracked.is_empty() {
            let mut add = Command::argv(["git", "add", "--pathspec-from-file=-", "--pathspec-file-nul"]);
            add.env = settings.variables();
            add.env.push(("GIT_LITERAL_PATHSPECS".to_owned(), "1".to_owned()));
            (add.stdin, add.extra.git) = (changes.untracked, is_committing);
            command::to_output(&command::run(cx, &add).await?, &add)?;
        }
        if changes.included.is_empty() {
            return Err(Error::new(ErrorKind::Tool, "there is nothing to commit"));
        }
        // Exactly what was listed: git would take further files, such as those that it was told to take for unchanged.
        let words =
            ["git", "commit", "-m", text(&arguments, "message"), "--pathspec-from-file=-", "--pathspec-file-nul"];
        let mut commit = Command::argv(words);
        commit.env = settings.variables();
        commit.env.push(("GIT_LITERAL_PATHSPECS".to_owned(), "1".to_owned()));
        commit.stdin = changes.included;
        commit.extra.git = is_committing;
        command::to_output(&command::run(cx, &commit).await?, &commit)
    }
}

/// Returns the paths to commit: the whole workspace if none is named.
fn or_all(paths: &[String]) -> Vec<String> {
    if paths.is_empty() { vec![".".to_owned()] } else { paths.to_vec() }
}

/// The changes that a commit includes.
#[derive(Debug, Default)]
struct Changes {
    /// The names of all files.
    files: BTreeSet<String>,
    /// Their names as bytes, each with a NUL byte behind it, as git wants them.
    included: Vec<u8>,
    /// Those of new files.
    untracked: Vec<u8>,
    /// The changed paths that are left out, because tools do not read them.
    hidden: BTreeSet<String>,
}

/// The number of files that a question lists.
const MAX_LISTED_FILES: usize = 20;

impl Changes {
    /// Looks for changed files, and fails if one is a repository of its own.
    async fn find(cx: &ToolCx, settings: &GitSettings, paths: &[String]) -> Result<Self> {
        let list = async |words: &[&str]| {
            let words = words.iter().map(|&word| word.to_owned()).chain(or_all(paths));
            settings.collect(cx, words).await
        };
        // Git starts another git in each repository below to add all changes, and not to add files by their names. Those that git
        // knows are added by the commit.
        let untracked = list(&["git", "ls-files", "-z", "--others", "--exclude-standard", "--"]).await?;
        let replaced =
            list(&["git", "diff-files", "-z", "--raw", "--diff-filter=T", "--ignore-submodules=all", "--"]).await?;
        // Git sees no file in a directory that is hidden from it.
        let missing = list(&["git", "ls-files", "-z", "--deleted", "--"]).await?;
        let head = ["git", "rev-parse", "-q", "--verify", "HEAD^{commit}"];
        let empty_tree = ["git", "hash-object", "-t", "tree", "--stdin"];
        let mut base = settings.collect(cx, head.map(str::to_owned).into_iter()).await?;
        if base.is_empty() {
            base = settings.collect(cx, empty_tree.map(str::to_owned).into_iter()).await?;
        }
        let base = String::from_utf8_lossy(&base).trim().to_owned();
        let compare = ["git", "diff", "-z", "--name-only", "--relative", "--no-renames", "--no-ext-diff"];
        let changed = list(&[&compare[..], &["--ignore-submodules=dirty", &base, "--"]].concat()).await?;
        let sandbox = cx.sandbox().await?.clone();
        let policy = cx.session().policy().cloned();
        let changes = run_blocking(move || -> Result<_> {
            let hidden = HiddenFiles::find(&sandbox, policy)?;
            let may_be_there =
                |name: &&[u8]| sandbox.directory().is_some_and(|top| may_exist(&top.join(path_of(name))));
            let missing: BTreeSet<_> = missing.split(|byte| *byte == 0).filter(may_be_there).collect();
            let mut changes = Changes::default();
            let split = |list: &[u8], is_new: bool| -> Vec<_> {
                let each = list.split_inclusive(|byte| *byte == 0);
                each.filter_map(|bytes| Some((names(bytes).next()?, bytes.to_vec(), is_new))).collect()
            };
            for (name, bytes, is_new) in split(&changed, false).into_iter().chain(split(&untracked, true)) {
                let is_unseen = missing.contains(bytes.strip_suffix(&[0]).unwrap_or(&bytes));
                match hidden.outermost(&name).or(is_unseen.then_some(&name)).map(str::to_owned) {
                    Some(path) => _ = changes.hidden.insert(path),
                    None => {
                        changes.untracked.extend(bytes.iter().filter(|_| is_new));
                        changes.included.extend(bytes);
                        changes.files.insert(name);
                    }
                }
            }
            Ok(changes)
        });
        let changes = changes.await?;
        refuse_repositories(&changes.untracked, &replaced)?;
        Ok(changes)
    }

    /// Returns the end of a question: the number of files, their names, and what is left out.
    fn describe(&self) -> String {
        let count = self.files.len();
        let mut text = format!(": {count} {}", if count == 1 { "file" } else { "files" });
        // A name with a line break must not look like two.
        let listed = |names: &BTreeSet<String>| -> Vec<String> {
            let more = names.len().checked_sub(MAX_LISTED_FILES).filter(|more| *more > 0);
            let names = names.iter().take(MAX_LISTED_FILES).map(|name| one_line(name));
            names.chain(more.map(|more| format!("and {more} more"))).collect()
        };
        listed(&self.files).iter().for_each(|file| text.extend(["\n", file]));
        if !self.hidden.is_empty() {
            text += &format!("\nleft out, because tools may not read it: {}", listed(&self.hidden).join(", "));
        }
        text
    }
}

/// Returns the names in a list of git, each of which ends with a NUL byte.
fn names(list: &[u8]) -> impl Iterator<Item = String> {
    list.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(|name| String::from_utf8_lossy(name).into_owned())
}

/// Returns the path that git prints. It need not be text on Unix.
fn path_of(name: &[u8]) -> PathBuf {
    #[cfg(unix)]
    let path = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name).into();
    #[cfg(not(unix))]
    let path = String::from_utf8_lossy(name).into_owned().into();
    path
}

/// Returns false for a path that is not there. One in a directory that this user cannot search may be.
fn may_exist(path: &Path) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    path.symlink_metadata().map_or_else(|error| ![NotFound, NotADirectory].contains(&error.kind()), |_| true)
}

/// Fails if one of the files to commit is a repository of its own: a directory in the list of new files, or one in the place of a file.
///
/// From the commit on, git would run the programs that the settings of that repository name whenever it is used above.
fn refuse_repositories(untracked: &[u8], changed: &[u8]) -> Result<()> {
    let untracked = String::from_utf8_lossy(untracked);
    let changed = String::from_utf8_lossy(changed);
    let mut found: Vec<_> = untracked.split_terminator('\0').filter(|name| name.ends_with('/')).collect();
    let mut fields = changed.split_terminator('\0');
    while let (Some(modes), Some(name)) = (fields.next(), fields.next()) {
        if modes.split(' ').nth(1) == Some(SUBMODULE_MODE) {
            found.push(name);
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    let names = found.join("`, `");
    let message = format!("nothing was committed: each of these is a repository of its own: `{names}`");
    Err(Error::new(ErrorKind::Tool, message).with_hint("name other `paths`, or add it to `.gitignore`"))
}

/// The mode that git records for a repository below.
const SUBMODULE_MODE: &str = "160000";

/// The settings of git for the commands, which come before those of the repository.
struct GitSettings(Vec<(String, String)>);

/// Settings with which git runs no hook and no other program.
const NO_PROGRAMS: [(&str, &str); 9] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("commit.gpgSign", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("diff.ignoreSubmodules", "all"),
    ("advice.addEmbeddedRepo", "false"),
    // The command has a copy of the index, which has to be complete.
    ("core.splitIndex", "false"),
    // A workspace may belong to another user than the one of this program.
    ("safe.directory", "*"),
];

/// The most bytes of names of files that are added.
const MAX_NAMES_BYTES: usize = 64 << 20;

impl GitSettings {
    /// Reads the settings of the repository that a commit depends on. The name of the user counts where the repository has none.
    async fn read(cx: &ToolCx, (name, email): (Option<String>, Option<String>)) -> Result<Self> {
        let mut settings = GitSettings(NO_PROGRAMS.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec());
        let wanted = r"^(user\.(name|email)|filter\..*\.(clean|process))$";
        let words = ["git", "config", "-z", "--name-only", "--get-regexp", wanted].map(str::to_owned);
        let names = settings.collect(cx, words.into_iter()).await?;
        let names: Vec<_> = String::from_utf8_lossy(&names).split_terminator('\0').map(str::to_owned).collect();
        for (key, value) in [("user.name", name), ("user.email", email)] {
            if let Some(value) = value.filter(|_| !names.iter().any(|name| name == key)) {
                settings.0.push((key.to_owned(), value));
            }
        }
        // A file whose filter cannot run would be committed as it is, unless the filter is required.
        let filters = names.iter().filter(|name| name.starts_with("filter.")).filter_map(|name| name.rsplit_once('.'));
        settings.0.extend(filters.map(|(filter, _)| (format!("{filter}.required"), "true".to_owned())));
        Ok(settings)
    }

    /// Returns the settings as environment variables.
    fn variables(&self) -> Vec<(String, String)> {
        let pairs = self.0.iter().enumerate().flat_map(|(nth, (key, value))| {
            [(format!("GIT_CONFIG_KEY_{nth}"), key.clone()), (format!("GIT_CONFIG_VALUE_{nth}"), value.clone())]
        });
        [("GIT_CONFIG_COUNT".to_owned(), self.0.len().to_string())].into_iter().chain(pairs).collect()
    }

    /// Runs a command of git that changes nothing, and returns all that it prints on stdout. Git tells by its exit code that there is
    /// nothing to print. As one that commits, the command starts no other program.
    async fn collect(&self, cx: &ToolCx, words: impl Iterator<Item = String>) -> Result<Vec<u8>> {
        let mut command = Command::argv(words);
        command.env = self.variables();
        command.env.push(("GIT_OPTIONAL_LOCKS".to_owned(), "0".to_owned()));
        command.extra.git = !cx.session().is_replaying();
        let mut printed = Vec::new();
        let mut sink = |stream: Stream, bytes: &[u8]| {
            if stream == Stream::Stdout && printed.len() <= MAX_NAMES_BYTES {
                printed.extend_from_slice(bytes);
            }
        };
        let output = cx.sandbox().await?.run_streaming(&command, &mut sink).await?;
        let is_empty = output.status == ExitStatus::Exit(1) && output.stderr.total_bytes == 0;
        if !is_empty {
            command::to_output(&output, &command)?;
        }
        if printed.len() > MAX_NAMES_BYTES {
            return Err(Error::new(ErrorKind::Tool, "there are too many new files: name some of them in `paths`"));
        }
        Ok(printed)
    }
}

/// Returns the name and the e-mail address of the user, as git's configuration says: a sandbox hides it from commands.
fn identity(home: Option<&Path>) -> (Option<String>, Option<String>) {
    const MAX_BYTES: u64 = 1 << 20;
    let files = home.map(|home| [home.join(".config/git/config"), home.join(".gitconfig")]);
    let read = |path: PathBuf| {
        let is_small = std::fs::metadata(&path).is_ok_and(|file| file.is_file() && file.len() <= MAX_BYTES);
        is_small.then(|| std::fs::read_to_string(path).ok()).flatten()
    };
    let texts: Vec<String> = files.into_iter().flatten().filter_map(read).collect();
    (setting(&texts, "name"), setting(&texts, "email"))
}

/// Returns a value of the section `user`. The last one counts, as in git.
fn setting(texts: &[String], wanted: &str) -> Option<String> {
    let mut found = None;
    for text in texts {
        let mut is_in_section = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with('[') {
                is_in_section = line.eq_ignore_ascii_case("[user]");
            } else if let Some((name, value)) = line.split_once('=').filter(|_| is_in_section)
                && name.trim().eq_ignore_ascii_case(wanted)
            {
                found = Some(value.trim().trim_matches('"').to_owned());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{refuse_repositories, setting};

    #[test]
    fn a_repository_below_is_not_committed() {
        for (untracked, changed, expected) in [
            ("", "", None),
            ("a\0b/c\0", ":100644 120000 1 0 T\0link\0", None),
            ("a\0sub/\0", "", Some("`sub/`")),
            ("", ":100644 120000 1 0 T\0link\0:100644 160000 1 0 T\0was a file\0", Some("`was a file`")),
        ] {
            let refused = refuse_repositories(untracked.as_bytes(), changed.as_bytes()).err();
            let names = refused.map(|error| error.message().rsplit_once(": ").expect("names").1.to_owned());
            assert_eq!(names.as_deref(), expected, "{untracked:?} {changed:?}");
        }
    }

    #[test]
    fn the_last_name_in_the_user_section_counts() {
        let texts =
            ["[core]\nname = no\n[user]\n\tName = \"Ann B\"\n", "[user]\nemail=a@example.com\n[other]\nname = x\n"];
        let texts = texts.map(str::to_owned);
        assert_eq!(setting(&texts, "name").as_deref(), Some("Ann B"));
        assert_eq!(setting(&texts, "email").as_deref(), Some("a@example.com"));
        assert_eq!(setting(&[], "name"), None);
    }
}
