//! Environment variables of commands.

use std::ffi::{OsStr, OsString};

/// The variables of this program that commands inherit, in addition to those that begin with `LC_`.
///
/// It is an allow list, since the names of secrets cannot be known.
const INHERITED: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ"];

/// The `PATH` of commands if this program has none.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// Returns the environment of a command: inherited variables, then added ones. The last value of a name wins.
pub(crate) fn environment<'a>(
    own: impl IntoIterator<Item = (OsString, OsString)>,
    added: impl IntoIterator<Item = &'a (String, String)>,
) -> Vec<(OsString, OsString)> {
    let mut env = vec![(OsString::from("PATH"), OsString::from(DEFAULT_PATH))];
    let own = own.into_iter().filter(|(name, _)| is_inherited(name));
    let added = added.into_iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    for (name, value) in own.chain(added) {
        match env.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => env.push((name, value)),
        }
    }
    env
}

fn is_inherited(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| INHERITED.contains(&name) || name.starts_with("LC_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_variables_are_inherited() {
        let own =
            ["HOME=/home/ann", "LC_ALL=C", "OPENAI_API_KEY=sk-1", "AWS_SECRET_ACCESS_KEY=x", "LD_PRELOAD=y", "TZ=UTC"];
        let own = own.map(|pair| pair.split_once('=').expect("a pair")).map(|(n, v)| (n.into(), v.into()));
        let added = [("TZ", "CET"), ("MODE", "test")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let found = environment(own, &added);
        let found: Vec<_> = found
            .iter()
            .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()))
            .collect();
        assert_eq!(found, [&format!("PATH={DEFAULT_PATH}"), "HOME=/home/ann", "LC_ALL=C", "TZ=CET", "MODE=test"]);
    }
}
