//! The tool that commits changes with git.

use std::path::{Path, PathBuf};

use rath_record::chunk::ToolSpec;
use serde_json::{Value, json};

use super::{command, spec, text, texts};
use crate::blocking::run_blocking;
use crate::policy::Use;
use crate::sandbox::Command;
use crate::session::Result;
use crate::tool::{Output, Tool, ToolCx, Touch};

/// Commits changes with git, once a person has approved it.
///
/// An isolated sandbox keeps `.git` from being written by all other commands: its hooks and its configuration run programs
/// outside of the sandbox. This tool runs one command of its own that can, without hooks.
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
                           commands can read `.git` and not write it.";
        spec("commit", description, properties, &["message"])
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

    async fn preview(&self, _: &ToolCx, arguments: &Value) -> Option<String> {
        let paths = texts(arguments, "paths");
        let paths = if paths.is_empty() { "all changes".to_owned() } else { paths.join("\n") };
        Some(format!("{}\n\n{paths}", text(arguments, "message")))
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let mut paths = texts(&arguments, "paths");
        if paths.is_empty() {
            paths.push(".".to_owned());
        }
        // The words are arguments of the shell, so none of them is read as shell. The name of the user counts where the
        // repository has none.
        let line = "if [ -n \"$RATH_NAME\" ] && ! git config user.name >/dev/null; then \
                    export GIT_AUTHOR_NAME=\"$RATH_NAME\" GIT_COMMITTER_NAME=\"$RATH_NAME\"; fi; \
                    if [ -n \"$RATH_EMAIL\" ] && ! git config user.email >/dev/null; then \
                    export GIT_AUTHOR_EMAIL=\"$RATH_EMAIL\" GIT_COMMITTER_EMAIL=\"$RATH_EMAIL\"; fi; \
                    message=$1; shift; git add -A -- \"$@\" && git commit -m \"$message\" -- \"$@\"";
        let words = ["sh", "-c", line, "sh", text(&arguments, "message")].map(str::to_owned);
        let mut commit = Command::argv(words.into_iter().chain(paths));
        commit.env =
            run_blocking(|| -> Result<_> { Ok(configuration(identity(std::env::home_dir().as_deref()))) }).await?;
        commit.extra.git = !cx.session().is_replaying();
        command::to_output(&command::run(cx, &commit).await?, &commit)
    }
}

/// Returns the settings of git for the command, as environment variables: no hook and no other program runs.
fn configuration((name, email): (Option<String>, Option<String>)) -> Vec<(String, String)> {
    let settings = [
        ("core.hooksPath", "/dev/null"),
        ("core.fsmonitor", "false"),
        ("commit.gpgSign", "false"),
        ("gc.auto", "0"),
        // A workspace may belong to another user than the one of this program.
        ("safe.directory", "*"),
    ];
    let count = settings.len().to_string();
    let person = [("RATH_NAME", name), ("RATH_EMAIL", email)];
    let person = person.into_iter().filter_map(|(variable, value)| Some((variable.to_owned(), value?)));
    let pairs = settings.into_iter().enumerate().flat_map(|(nth, (key, value))| {
        [(format!("GIT_CONFIG_KEY_{nth}"), key.to_owned()), (format!("GIT_CONFIG_VALUE_{nth}"), value.to_owned())]
    });
    [("GIT_CONFIG_COUNT".to_owned(), count)].into_iter().chain(pairs).chain(person).collect()
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
    use super::setting;

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
