//! The URI of a sandbox: where, then what it is asked for, as in `isolated:./?network=on&memory=1g`.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use super::limits::Limits;
use crate::error::{Error, ErrorKind, Result};

/// A URI being read: what stands after the colon.
pub(super) struct Reading<'a> {
    kind: &'static str,
    known: &'static [&'static str],
    pub(super) directory: String,
    options: Vec<(&'a str, String)>,
}

impl<'a> Reading<'a> {
    /// Takes it apart. Options that are not known are refused here.
    pub(super) fn new(kind: &'static str, rest: &'a str, known: &'static [&'static str]) -> Result<Self> {
        let (directory, options) = rest.split_once('?').unwrap_or((rest, ""));
        let directory = Some(decoded(directory)).filter(|directory| !directory.is_empty()).unwrap_or("./".to_owned());
        let mut reading = Reading { kind, known, directory, options: Vec::new() };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            if !known.contains(&name) {
                let known = reading.known.join(", ");
                return Err(Error::new(
                    ErrorKind::Config,
                    format_args!("unknown option `{name}` of a sandbox of the kind `{kind}`; known: {known}"),
                ));
            }
            reading.options.push((name, decoded(value)));
        }
        Ok(reading)
    }

    /// The options with this name, in their order.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.options.iter().filter(move |(one, _)| *one == name).map(|(_, value)| &**value)
    }

    /// One of several words.
    pub(super) fn word<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<Option<T>> {
        self.read(name, &words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" or "), |value| {
            words.iter().find(|(word, _)| *word == value).map(|(_, meant)| *meant)
        })
    }

    pub(super) fn bytes(&self, name: &str) -> Result<Option<u64>> {
        self.read(name, "a number of bytes such as `512m` or `4g`", bytes)
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>> {
        self.read(name, "a number above zero", |value| u64::from_str(value).ok().filter(|number| *number > 0))
    }

    pub(super) fn limits(&self) -> Result<Limits> {
        let time = self.read("cpu_time", "a number of seconds such as `30s`", |value| {
            u64::from_str(value.strip_suffix('s')?).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
        })?;
        Ok(Limits {
            memory: self.bytes("memory")?,
            processes: self.number("processes")?,
            file_size: self.bytes("file_size")?,
            cpu_time: time,
        })
    }

    fn read<T>(&self, name: &str, wanted: &str, read: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.all(name).last() else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| {
            let kind = self.kind;
            Error::new(
                ErrorKind::Config,
                format_args!("wanted {wanted} as `{name}` of a sandbox of the kind `{kind}`, found `{value}`"),
            )
        })
    }
}

/// A URI being written.
pub(super) struct Writing(String, char);

impl Writing {
    pub(super) fn new(kind: &str, directory: &Path) -> Self {
        let directory = directory.to_string_lossy();
        Writing(format!("{kind}:{}", encoded(&directory)), '?')
    }

    pub(super) fn option(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            let between = std::mem::replace(&mut self.1, '&');
            self.0.push_str(&format!("{between}{name}={}", encoded(&value.to_string())));
        }
    }

    pub(super) fn paths(&mut self, name: &str, paths: &[PathBuf]) {
        for path in paths {
            self.option(name, Some(path.display()));
        }
    }

    pub(super) fn limits(&mut self, limits: &Limits) {
        self.option("memory", limits.memory.map(amount));
        self.option("processes", limits.processes);
        self.option("file_size", limits.file_size.map(amount));
        self.option("cpu_time", limits.cpu_time.map(|time| format!("{}s", time.as_secs().max(1))));
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

const UNITS: [(char, u64); 4] = [('t', 1 << 40), ('g', 1 << 30), ('m', 1 << 20), ('k', 1 << 10)];

fn bytes(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let unit = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(*unit)?, *bytes)));
    let (number, unit) = unit.unwrap_or((&text, 1));
    u64::from_str(number).ok()?.checked_mul(unit).filter(|bytes| *bytes > 0)
}

/// A number of bytes, in the largest unit that it is a multiple of.
fn amount(bytes: u64) -> String {
    match UNITS.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// What has a meaning in a URI of ours, and how it is written where it has none. The rest of a path stays as it is.
const ESCAPED: [(&str, &str); 3] = [("%25", "%"), ("%3F", "?"), ("%26", "&")];

fn encoded(text: &str) -> String {
    ESCAPED.iter().fold(text.to_owned(), |text, (code, char)| text.replace(char, code))
}

fn decoded(text: &str) -> String {
    ESCAPED.iter().rev().fold(text.to_owned(), |text, (code, char)| text.replace(code, char))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_they_are_written() {
        for (text, number) in
            [("1", 1), ("1k", 1024), ("512m", 512 << 20), ("4g", 4 << 30), ("3t", 3 << 40), ("1025", 1025)]
        {
            assert_eq!(bytes(text), Some(number), "{text}");
            assert_eq!(amount(number), text);
        }
        for text in ["", "0", "g", "1gg", "-1", "1.5g", "99999999999999999999", "20000000t", "1 g"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn any_path_survives_a_uri() {
        for path in ["./", "/a b", "what?", "100%", "%3F", "a&b=c", "/ü/%25"] {
            let mut writing = Writing::new("local", Path::new(path));
            writing.option("hide", Some(path));
            let uri = writing.finish();
            let rest = uri.strip_prefix("local:").expect("the kind");
            let reading = Reading::new("local", rest, &["hide"]).expect("it was just written");
            assert_eq!((&*reading.directory, reading.all("hide").collect::<Vec<_>>()), (path, vec![path]), "{uri}");
        }
    }
}
