//! The values in the configuration of a server that must not be recorded.

use secrecy::{ExposeSecret, SecretString};

use super::{Origin, ServerConfig, Transport};

impl ServerConfig {
    /// Returns the values that must not be recorded, each with the name that stands for it.
    ///
    /// These are the values of variables in headers and in the address, and of variables with such names as `API_KEY` or
    /// `GITHUB_TOKEN`, or that are the value of something with such a name; in a configuration of the user also variables and options
    /// with such names, what is written in the query of the address, and the values of headers, except those that say what a client or
    /// a message is, such as `User-Agent` and `Version`.
    /// A text that a project's file has itself is no secret: it would hide what the project chooses.
    pub fn secrets(&self) -> Vec<(String, SecretString)> {
        let mut secrets = self.looked_up.clone();
        match &self.transport {
            _ if self.origin == Origin::Project => {}
            Transport::Stdio(process) => {
                secrets.extend(process.env.iter().filter(|(name, _)| is_secret_name(name)).cloned());
                let args = secret_args(&process.args);
                secrets.extend(args.into_iter().map(|(_, name, value)| (name, SecretString::from(value))));
            }
            Transport::Http(server) => {
                for (name, value) in server.headers.iter().filter(|(name, _)| is_secret_header(name)) {
                    // A header may name a scheme before the secret, or hold several.
                    let parts = value.expose_secret().split([' ', ';', ',', '=']);
                    let values = parts.chain([value.expose_secret()]);
                    secrets.extend(values.map(|value| (name.clone(), SecretString::from(value))));
                }
                let query = server.url.expose_secret().split_once('?').map_or("", |(_, query)| query);
                let query = query.split('#').next().unwrap_or_default();
                let values = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
                secrets.extend(values.map(|value| ("url".to_owned(), SecretString::from(value))));
            }
        }
        secrets.retain(|(_, value)| !value.expose_secret().is_empty());
        secrets
    }
}

/// Returns true if a variable of this name holds a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    // It is the directory of every shell.
    if name == "PWD" {
        return false;
    }
    let words =
        ["AUTH", "BEARER", "COOKIE", "CRED", "CREDENTIAL", "CREDS", "JWT", "PWD", "SECRET", "SIGNATURE", "TOKEN"];
    // Words that other things begin with, such as `SESSION_MODE`.
    let last_words = ["KEY", "PASS", "PAT", "SESSION", "SIG"];
    // Keys that are no secret: those of tables, and the public one of a pair.
    let of_tables = ["FOREIGN", "PARTITION", "PRIMARY", "PUBLIC", "SORT", "UNIQUE"];
    // Keys that are secret whatever comes after, as in `API_KEY_PROD`.
    let of_access = ["ACCESS", "API", "AUTH", "ENCRYPTION", "PRIVATE", "SIGNING"];
    let parts: Vec<_> = name.split('_').collect();
    let is_secret = |(nth, part): (usize, &&str)| {
        let is_last = parts
            .get(nth + 1)
            .is_none_or(|next| ["ID", "KEY", "TOKEN"].contains(next) || next.bytes().all(|byte| byte.is_ascii_digit()));
        let is_key_of = |words: &[&str]| *part == "KEY" && nth > 0 && words.contains(&parts[nth - 1]);
        words.contains(part) || is_key_of(&of_access) || last_words.contains(part) && is_last && !is_key_of(&of_tables)
    };
    parts.iter().enumerate().any(is_secret)
        || ["APIKEY", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIALS"].iter().any(|word| name.contains(word))
}

/// Returns true if a header of this name may hold a secret: one that does not say what a client or a message is. A service may
/// call the header of its key as it likes.
pub(super) fn is_secret_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_plain = ["accept", "cache-control", "content-type", "origin", "referer", "user-agent"].contains(&&*name);
    !(is_plain || name.starts_with("accept-") || name == "version" || name.ends_with("-version"))
}

/// Returns the arguments that hold a secret by the names before them, as in `--api-key=VALUE`, `--api-key VALUE` and `API_KEY=VALUE`:
/// the number of each, its name, and the value.
pub(super) fn secret_args<T: AsRef<str>>(args: &[T]) -> Vec<(usize, String, &str)> {
    let is_secret = |option: &str| {
        let name = option.trim_start_matches('-');
        let is_switched_off = name.len() < option.len() && name.starts_with("no-");
        !is_switched_off && is_secret_name(&name.replace('-', "_"))
    };
    let mut secrets = Vec::new();
    let mut option: Option<&str> = None;
    for (nth, arg) in args.iter().enumerate() {
        let arg = arg.as_ref();
        // An option before another one has no value.
        let option_before = option.take().filter(|_| !arg.starts_with('-'));
        match (option_before, arg.split_once('=')) {
            (Some(option), _) => secrets.push((nth, option.to_owned(), arg)),
            (None, Some((name, value))) if is_secret(name) => secrets.push((nth, name.to_owned(), value)),
            (None, None) if arg.starts_with('-') && is_secret(arg) => option = Some(arg),
            (None, _) => {}
        }
    }
    secrets
}
