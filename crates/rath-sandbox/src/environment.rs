//! What commands find in their environment.

use std::ffi::{OsStr, OsString};

/// What is passed on from the program's own environment, beside everything that begins with `LC_`.
///
/// It is a list of what may pass rather than of what may not: nobody knows what secrets are called.
pub(crate) const PASSED_ON: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ"];

/// Where programs are looked for when the environment does not say.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// The environment of a command: what is passed on, then what the sandbox adds, then the command.
pub(crate) fn environment<'a>(
    own: impl IntoIterator<Item = (OsString, OsString)>,
    added: impl IntoIterator<Item = &'a (String, String)>,
) -> Vec<(OsString, OsString)> {
    let mut env = vec![(OsString::from("PATH"), OsString::from(PATH))];
    let own = own.into_iter().filter(|(name, _)| is_passed_on(name));
    let added = added.into_iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    for (name, value) in own.chain(added) {
        match env.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => env.push((name, value)),
        }
    }
    env
}

fn is_passed_on(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| PASSED_ON.contains(&name) || name.starts_with("LC_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_to_be_harmless_passes() {
        let own =
            ["HOME=/home/ann", "LC_ALL=C", "OPENAI_API_KEY=sk-1", "AWS_SECRET_ACCESS_KEY=x", "LD_PRELOAD=y", "TZ=UTC"];
        let own = own.map(|pair| pair.split_once('=').expect("a pair")).map(|(n, v)| (n.into(), v.into()));
        let added = [("TZ", "CET"), ("MODE", "test")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let found = environment(own, &added);
        let found: Vec<_> = found
            .iter()
            .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()))
            .collect();
        assert_eq!(found, [&format!("PATH={PATH}"), "HOME=/home/ann", "LC_ALL=C", "TZ=CET", "MODE=test"]);
    }
}
