//! The keys of models that the user keeps in a file: `keys.toml`, beside the configuration.

#[cfg(unix)]
mod terminal;
#[cfg(not(unix))]
#[path = "keys/terminal_plain.rs"]
mod terminal;

use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use rath::Secrets;
use toml_edit::{DocumentMut, value};

use crate::configuration;
use crate::output::{self, Exit, Failure};

/// The providers for which a key is kept.
pub(crate) const PROVIDERS: [&str; 3] = ["openai", "anthropic", "gemini"];
const KEYS_FILE: &str = "keys.toml";
const MAX_KEY_BYTES: usize = 4096;

/// Returns the user's key for a provider; none if the file has none.
pub(crate) fn key_of(provider: &str) -> Result<Option<String>, Failure> {
    let Some(path) = file() else { return Ok(None) };
    let Some(text) = read_private(&path)? else { return Ok(None) };
    Ok(parse(&path, &text)?.into_iter().find(|(name, _)| name == provider).map(|(_, key)| key))
}

/// Returns the place of the key for each provider: a variable, or the file; none if there is no key.
pub(crate) fn sources() -> Result<Vec<(&'static str, Option<String>)>, Failure> {
    let source = |provider: &str| -> Result<Option<String>, Failure> {
        let name = format!("{}_API_KEY", provider.to_uppercase());
        if std::env::var(&name).is_ok_and(|key| !key.trim().is_empty()) {
            return Ok(Some(name));
        }
        let path = file().map(|path| output::home_path(&path));
        Ok(key_of(provider)?.and(path))
    };
    PROVIDERS.into_iter().map(|provider| Ok((provider, source(provider)?))).collect()
}

/// Reads a file that no other user can read; none if there is none.
pub(crate) fn read_private(path: &Path) -> Result<Option<String>, Failure> {
    let Some(text) = configuration::read_file(path)? else { return Ok(None) };
    if configuration::is_readable_by_others(path) {
        let (shown, word) = (output::home_path(path), output::quote(&path.display().to_string()));
        let message = format!("other users can read the key in {shown}");
        return Err(Failure::new(message, format!("`chmod 600 {word}` mends it")));
    }
    Ok(Some(text))
}

/// Reads a key from the keyring of the desktop. The program `secret-tool` does it, and asks the person to unlock the keyring.
pub(crate) fn read_from_keyring(name: &str) -> Result<String, Failure> {
    let mut program = std::process::Command::new("secret-tool");
    program.args(["lookup", "rath", name]).stdin(std::process::Stdio::null());
    let output = program.output().map_err(|error| {
        let message = format!("cannot read the keyring: `secret-tool` does not start: {error}");
        Failure::new(
            message,
            "install `secret-tool` (package libsecret-tools or libsecret), or use a variable or a file",
        )
    })?;
    let key = String::from_utf8(output.stdout).ok().map(|key| key.trim().to_owned());
    let is_key = |key: &String| output.status.success() && !key.is_empty() && key.len() <= MAX_KEY_BYTES;
    key.filter(is_key).ok_or_else(|| not_in_keyring(name))
}

/// Returns the failure of a command whose key is not in the keyring.
pub(crate) fn not_in_keyring(name: &str) -> Failure {
    let hint = format!("`secret-tool store --label 'rath {name}' rath {name}` keeps one");
    Failure::new(format!("there is no key `{name}` in the keyring, which the model names"), hint)
}

/// Adds all keys of the file to the texts that are hidden.
pub(crate) fn hide_in(secrets: &mut Secrets) {
    let Some(path) = file() else { return };
    // A file that is wrong is an error where a key of it is needed.
    let Ok(Some(text)) = configuration::read_file(&path) else { return };
    for (name, key) in parse(&path, &text).unwrap_or_default() {
        for key in key.split(',').chain([&*key]) {
            let _ = secrets.add(&format!("the key of {name}"), key.trim());
        }
    }
}

/// Reads a key from the terminal, where it is not shown, or from stdin, and writes it to the file.
pub(crate) fn set(provider: &str) -> Result<PathBuf, Failure> {
    let path = file().ok_or_else(|| Failure::new("your home directory is not known", "set HOME"))?;
    let text = read_private(&path)?.unwrap_or_default();
    parse(&path, &text)?;
    let key = read_key(provider)?;
    let mut document: DocumentMut = text.parse().map_err(|_| wrong(&path, "it changed while it was read"))?;
    document[provider] = value(key);
    configuration::write_private_file(&path, &document.to_string())?;
    Ok(path)
}

fn file() -> Option<PathBuf> {
    configuration::user_file().map(|path| path.with_file_name(KEYS_FILE))
}

fn read_key(provider: &str) -> Result<String, Failure> {
    let cannot = |error: io::Error| Failure::new(format!("cannot read the key: {error}"), "type it, or pipe it in");
    let typed = match io::stdin().is_terminal() {
        true => {
            let ask = || output::prompt(&format!("key for {provider} (it is not shown): "));
            let typed = terminal::read_hidden(ask).map_err(cannot);
            output::message!("");
            typed?.ok_or_else(|| Failure::new("nothing was changed", "").with_exit(Exit::Interrupted))?
        }
        false => {
            let mut text = String::new();
            io::stdin().take(MAX_KEY_BYTES as u64 + 1).read_to_string(&mut text).map_err(cannot)?;
            text
        }
    };
    let key = typed.trim();
    if key.is_empty() || key.len() > MAX_KEY_BYTES || key.chars().any(|c| c.is_whitespace() || c.is_control()) {
        let found = if key.is_empty() { "nothing" } else { "a text of several words, or a very long one" };
        let message = format!("wanted a key, found {found}");
        return Err(
            Failure::new(message, format!("`rath config set-key {provider}` reads one line")).with_exit(Exit::Usage)
        );
    }
    Ok(key.to_owned())
}

/// Reads the keys of the file. Messages do not repeat what is in it.
fn parse(path: &Path, text: &str) -> Result<Vec<(String, String)>, Failure> {
    let document: DocumentMut = text.parse().map_err(|_| wrong(path, "it is not TOML"))?;
    let mut keys = Vec::new();
    for (name, item) in document.iter() {
        if !PROVIDERS.contains(&name) {
            return Err(wrong(path, &format!("unknown name; known: {}", PROVIDERS.join(", "))));
        }
        let key = item.as_str().filter(|key| !key.trim().is_empty());
        keys.push((name.to_owned(), key.ok_or_else(|| wrong(path, &format!("`{name}` is no key")))?.to_owned()));
    }
    Ok(keys)
}

fn wrong(path: &Path, why: &str) -> Failure {
    let message = format!("the file {} is wrong: {why}", output::home_path(path));
    Failure::new(message, "each line of it is such as `openai = \"KEY\"`").with_exit(Exit::Usage)
}
