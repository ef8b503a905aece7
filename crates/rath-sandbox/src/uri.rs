//! URIs of sandboxes: a kind, a directory and options, as in `isolated:./?network=on&memory=1g`.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use super::limits::Limits;
use crate::error::{Error, ErrorKind, Result};

/// The directory, or another target, and the options of a URI.
///
/// See [`crate::backend`] for an example.
pub struct UriOptions<'a> {
    kind: &'static str,
    /// The part before the options: a directory, unless the kind says otherwise.
    pub directory: PathBuf,
    options: Vec<(&'a str, OsString)>,
}

impl<'a> UriOptions<'a> {
    /// Parses the part of a URI after the colon. Fails on an option that is not in `known`.
    pub fn parse(kind: &'static str, rest: &'a str, known: &'static [&'static str]) -> Result<Self> {
        let (directory, options) = rest.split_once('?').unwrap_or((rest, ""));
        let directory = PathBuf::from(decode(if directory.is_empty() { "./" } else { directory }));
        let mut parsed = UriOptions { kind, directory, options: Vec::new() };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            if !known.contains(&name) {
                let known = known.join(", ");
                return Err(Error::new(
                    ErrorKind::Config,
                    format_args!("unknown option `{name}` of a sandbox of the kind `{kind}`; known: {known}"),
                ));
            }
            parsed.options.push((name, decode(value)));
        }
        Ok(parsed)
    }

    /// Returns the values of the options with this name, in the order of the URI.
    pub fn all(&self, name: &str) -> impl Iterator<Item = Cow<'_, str>> {
        self.paths(name).map(Path::to_string_lossy)
    }

    /// Returns the values of the options with this name as paths, in the order of the URI.
    pub fn paths(&self, name: &str) -> impl Iterator<Item = &Path> {
        self.options.iter().filter(move |(one, _)| *one == name).map(|(_, value)| Path::new(value))
    }

    /// Parses an option that is one of several words.
    pub fn word<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<Option<T>> {
        self.parse_last(name, &words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" or "), |value| {
            words.iter().find(|(word, _)| *word == value).map(|(_, value)| *value)
        })
    }

    /// Parses an option that is a number of bytes.
    pub fn bytes(&self, name: &str) -> Result<Option<u64>> {
        self.parse_last(name, "a number of bytes such as `512m` or `4g`", parse_bytes)
    }

    /// Parses an option that is a number above zero.
    pub fn number(&self, name: &str) -> Result<Option<u64>> {
        self.parse_last(name, "a number above zero", |value| u64::from_str(value).ok().filter(|number| *number > 0))
    }

    /// Parses the options that are limits.
    pub fn limits(&self) -> Result<Limits> {
        let time = self.parse_last("cpu_time", "a number of seconds such as `30s`", |value| {
            u64::from_str(value.strip_suffix('s')?).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
        })?;
        Ok(Limits {
            memory: self.bytes("memory")?,
            processes: self.number("processes")?,
            file_size: self.bytes("file_size")?,
            cpu_time: time,
        })
    }

    /// Parses the last option with this name. `wanted` describes a valid value in the error message.
    pub fn parse_last<T>(&self, name: &str, wanted: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.all(name).last() else { return Ok(None) };
        parse(&value).map(Some).ok_or_else(|| {
            let kind = self.kind;
            Error::new(
                ErrorKind::Config,
                format_args!("wanted {wanted} as `{name}` of a sandbox of the kind `{kind}`, found `{value}`"),
            )
        })
    }
}

/// Returns a path as a URI names it: absolute, so that the URI opens the same directory from everywhere.
///
/// See [`crate::backend`] for an example.
pub fn absolute(path: impl Into<PathBuf>) -> PathBuf {
    let path = path.into();
    // Without a slash at the end.
    std::path::absolute(&path).map_or(path, |absolute| absolute.components().collect())
}

/// A URI that is being written, and the separator before its next option.
///
/// See [`crate::backend`] for an example.
pub struct UriWriter(String, char);

impl UriWriter {
    /// Begins the URI of a directory, or of another target.
    pub fn new(kind: &str, directory: &Path) -> Self {
        UriWriter(format!("{kind}:{}", encode(directory.as_os_str())), '?')
    }

    /// Appends an option, if it has a value.
    pub fn option(&mut self, name: &str, value: Option<impl ToString>) {
        self.path(name, value.map(|value| value.to_string()));
    }

    /// Appends an option that is a path, if it has a value.
    pub fn path(&mut self, name: &str, value: Option<impl AsRef<OsStr>>) {
        if let Some(value) = value {
            let separator = std::mem::replace(&mut self.1, '&');
            self.0.push_str(&format!("{separator}{name}={}", encode(value.as_ref())));
        }
    }

    /// Appends one option for each path.
    pub fn paths(&mut self, name: &str, paths: &[PathBuf]) {
        for path in paths {
            self.path(name, Some(path));
        }
    }

    /// Appends the limits that are set.
    pub fn limits(&mut self, limits: &Limits) {
        self.option("memory", limits.memory.map(format_bytes));
        self.option("processes", limits.processes);
        self.option("file_size", limits.file_size.map(format_bytes));
        self.option("cpu_time", limits.cpu_time.map(|time| format!("{}s", time.as_secs().max(1))));
    }

    /// Returns the URI.
    pub fn finish(self) -> String {
        self.0
    }
}

const UNITS: [(char, u64); 4] = [('t', 1 << 40), ('g', 1 << 30), ('m', 1 << 20), ('k', 1 << 10)];

/// Parses a number of bytes, such as `512m`.
fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let unit = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(*unit)?, *bytes)));
    let (number, unit) = unit.unwrap_or((&text, 1));
    u64::from_str(number).ok()?.checked_mul(unit).filter(|bytes| *bytes > 0)
}

/// Formats a number of bytes in the largest unit that divides it.
fn format_bytes(bytes: u64) -> String {
    match UNITS.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// The characters with a meaning in these URIs. They are escaped, and bytes that are not UTF-8. All others of a path stay as they are.
const ESCAPED: [char; 3] = ['%', '?', '&'];

fn encode(path: &OsStr) -> String {
    let mut encoded = String::new();
    for chunk in path.as_encoded_bytes().utf8_chunks() {
        for char in chunk.valid().chars() {
            match ESCAPED.contains(&char) {
                true => encoded.push_str(&format!("%{:02X}", u32::from(char))),
                false => encoded.push(char),
            }
        }
        chunk.invalid().iter().for_each(|byte| encoded.push_str(&format!("%{byte:02X}")));
    }
    encoded
}

/// Decodes escapes of the kinds that are written. A percent sign before anything else stands for itself.
fn decode(text: &str) -> OsString {
    let mut decoded = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.get(..2).filter(|_| *first == b'%').and_then(decode_byte);
        decoded.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    os_string(decoded)
}

fn decode_byte(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.contains(|char| "+abcdef".contains(char)))?;
    let byte = u8::from_str_radix(digits, 16).ok()?;
    (!byte.is_ascii() || ESCAPED.contains(&char::from(byte))).then_some(byte)
}

#[cfg(unix)]
fn os_string(bytes: Vec<u8>) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}

#[cfg(not(unix))]
fn os_string(bytes: Vec<u8>) -> OsString {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_survive_formatting_and_parsing() {
        for (text, number) in
            [("1", 1), ("1k", 1024), ("512m", 512 << 20), ("4g", 4 << 30), ("3t", 3 << 40), ("1025", 1025)]
        {
            assert_eq!(parse_bytes(text), Some(number), "{text}");
            assert_eq!(format_bytes(number), text);
        }
        for text in ["", "0", "g", "1gg", "-1", "1.5g", "99999999999999999999", "20000000t", "1 g"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn any_path_survives_a_uri() {
        for path in ["./", "/a b", "what?", "100%", "%3F", "a&b=c", "/ü/%25"] {
            let mut writer = UriWriter::new("local", Path::new(path));
            writer.option("hide", Some(path));
            let uri = writer.finish();
            let rest = uri.strip_prefix("local:").expect("the kind");
            let parsed = UriOptions::parse("local", rest, &["hide"]).expect("it was just written");
            let hidden = parsed.all("hide").collect::<Vec<_>>();
            assert_eq!((&*parsed.directory, &*hidden.concat()), (Path::new(path), path), "{uri}");
        }
    }
}
