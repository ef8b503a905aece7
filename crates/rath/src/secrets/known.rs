//! Known values, in every form in which they may occur.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret, SecretString};

use super::{SecretMatch, SecretSource};

/// A set of values that are searched for together.
#[derive(Clone, Default)]
pub(super) struct KnownValues {
    values: Vec<(String, SecretString)>,
    /// Built at the first search.
    finders: OnceLock<Vec<FormFinder>>,
}

/// A group of forms that are searched for in one pass.
#[derive(Clone)]
struct FormFinder {
    /// Finds the first bytes of the forms.
    prefixes: AhoCorasick,
    forms: Vec<ValueForm>,
}

/// One way to write a value.
#[derive(Clone)]
struct ValueForm {
    text: SecretString,
    /// The index of the value.
    nth: usize,
    edges: FormEdges,
}

/// The characters next to a form that hold a part of the value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FormEdges {
    None,
    /// In Base64, the digit before or after the form.
    Digits {
        before: bool,
        after: bool,
    },
}

/// The most forms in one pass: more are not searched for with vector instructions.
const MAX_FORMS_PER_PASS: usize = 60;
/// The length in bytes of the prefixes that are searched for: long values would make large automata.
const MAX_PREFIX_BYTES: usize = 24;
/// The most characters of a name that are shown.
const MAX_NAME_CHARS: usize = 64;

impl KnownValues {
    pub(super) fn new(name: &str, value: SecretString) -> Self {
        let mut values = KnownValues::default();
        values.add(name, value);
        values
    }

    pub(super) fn add(&mut self, name: &str, value: SecretString) {
        // A name must not break JSON that it is inserted into, nor contain the bracket that ends it.
        let plain = |c: char| if c.is_alphanumeric() || "_-. ".contains(c) { c } else { '_' };
        self.values.push((name.chars().map(plain).take(MAX_NAME_CHARS).collect(), value));
        self.finders = OnceLock::new();
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|(name, _)| name.as_str())
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &SecretString> {
        self.values.iter().map(|(_, value)| value)
    }

    pub(super) fn contains(&self, value: &SecretString) -> bool {
        self.values().any(|known| known.expose_secret() == value.expose_secret())
    }

    /// Adds every occurrence of one of the values.
    pub(super) fn find<'a>(&'a self, text: &str, matches: &mut Vec<SecretMatch<'a>>) {
        for finder in self.finders.get_or_init(|| self.build_finders()) {
            let mut from = 0;
            while let Some(prefix) = finder.prefixes.find(&text.as_bytes()[from..]) {
                let start = from + prefix.start();
                // One form may begin within another, so the search continues at the next byte.
                from = start + 1;
                let occurring = finder.forms.iter().filter(|form| text.as_bytes()[start..].starts_with(form.bytes()));
                let Some(form) = occurring.max_by_key(|form| form.bytes().len()) else { continue };
                let range = form.range(text.as_bytes(), start);
                let source = SecretSource::Known(&self.values[form.nth].0);
                match matches.last_mut().filter(|last| last.source == source && range.start <= last.range.end) {
                    Some(last) => last.range = last.range.start.min(range.start)..last.range.end.max(range.end),
                    None => matches.push(SecretMatch { range, source }),
                }
            }
        }
    }

    /// Returns the start of the longest end of the text that may be the beginning of a value, or the length of the text.
    pub(super) fn unfinished_from(&self, text: &str) -> usize {
        let finders = self.finders.get_or_init(|| self.build_finders());
        let starts =
            finders.iter().flat_map(|finder| &finder.forms).filter_map(|form| form.unfinished_from(text.as_bytes()));
        starts.min().unwrap_or(text.len())
    }

    fn build_finders(&self) -> Vec<FormFinder> {
        let forms: Vec<ValueForm> =
            self.values.iter().enumerate().flat_map(|(nth, (_, value))| all_forms(nth, value)).collect();
        let finder = |forms: &[ValueForm]| {
            let prefixes: BTreeSet<&[u8]> =
                forms.iter().map(|form| &form.bytes()[..form.bytes().len().min(MAX_PREFIX_BYTES)]).collect();
            let prefixes = AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostFirst)
                .kind(Some(AhoCorasickKind::ContiguousNFA))
                .build(prefixes)
                .expect("there are few prefixes, and they are short");
            FormFinder { prefixes, forms: forms.to_vec() }
        };
        forms.chunks(MAX_FORMS_PER_PASS).map(finder).collect()
    }
}

impl ValueForm {
    fn bytes(&self) -> &[u8] {
        self.text.expose_secret().as_bytes()
    }

    /// Returns the start of the longest end of the text that is the beginning of this form, or all of it if more may follow that
    /// belongs to the value.
    fn unfinished_from(&self, text: &[u8]) -> Option<usize> {
        let last = text.last()?;
        let longest = self.bytes().len() - usize::from(self.edges == FormEdges::None);
        let ends = (1..=longest.min(text.len())).rev().filter(|end| self.bytes()[end - 1] == *last);
        let mut starts = ends.filter(|end| text.ends_with(&self.bytes()[..*end])).map(|end| text.len() - end);
        let start = starts.next()?;
        let is_edge = matches!(self.edges, FormEdges::Digits { before: true, .. });
        Some(start - usize::from(is_edge && text[..start].last().is_some_and(u8::is_ascii)))
    }

    /// Returns the range to hide for an occurrence at `start`.
    fn range(&self, text: &[u8], start: usize) -> std::ops::Range<usize> {
        let end = start + self.bytes().len();
        let FormEdges::Digits { before, after } = self.edges else { return start..end };
        let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
        let start = start - usize::from(before && text[..start].last().is_some_and(is_digit));
        let end = end + usize::from(after && text.get(end).is_some_and(is_digit));
        start..end + text[end..].iter().take(2).take_while(|byte| **byte == b'=').count()
    }
}

/// Returns all ways to write a value, each once.
fn all_forms(nth: usize, value: &SecretString) -> Vec<ValueForm> {
    let value = value.expose_secret();
    let mut forms = BTreeSet::from([(value.to_owned(), FormEdges::None)]);
    // JSON, and JSON within JSON, such as a tool's arguments in a request.
    for escaped in ["", "/", "<>&", "/<>&"] {
        for ascii in [false, true] {
            let once = json_escape(value, escaped, ascii);
            forms.insert((json_escape(&once, escaped, ascii), FormEdges::None));
            forms.insert((once, FormEdges::None));
        }
    }
    // The escapes of most URL writers, of HTML forms, and of `encodeURIComponent` and `encodeURI` in browsers.
    for unescaped in ["~", "*", "~!*'()", "~!*'();:@&=+$,/?#"] {
        for space in ["%20", "+"] {
            let form = url_escape(value, unescaped, space);
            forms.insert((lower_escapes(&form), FormEdges::None));
            forms.insert((form, FormEdges::None));
        }
    }
    for before in 0..3 {
        let bytes = [&[0; 2][..before], value.as_bytes()].concat();
        // A digit is six bits. Digits with bits of the value only do not depend on the bytes around the value.
        let (first, last) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
        let edges = FormEdges::Digits { before: before > 0, after: bytes.len() % 3 > 0 };
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            forms.insert((engine.encode(&bytes)[first..last].to_owned(), edges));
        }
    }
    forms.into_iter().map(|(text, edges)| ValueForm { text: text.into(), nth, edges }).collect()
}

/// Returns the text as JSON writes it between quotes. Some writers also escape the characters in `escaped`, or all that
/// are not ASCII.
fn json_escape(text: &str, escaped: &str, ascii: bool) -> String {
    let quoted = serde_json::to_string(text).expect("a string is JSON");
    let mut output = String::with_capacity(quoted.len());
    for c in quoted[1..quoted.len() - 1].chars() {
        match c {
            '/' if escaped.contains('/') => output.push_str("\\/"),
            c if escaped.contains(c) || (ascii && !c.is_ascii()) => {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| output.push_str(&format!("\\u{unit:04x}")));
            }
            c => output.push(c),
        }
    }
    output
}

/// Returns the text as a URL writes it. Writers differ in the characters that they do not escape.
fn url_escape(text: &str, unescaped: &str, space: &str) -> String {
    let encode = |byte: u8| match byte {
        b' ' => space.to_owned(),
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        byte if unescaped.as_bytes().contains(&byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// Returns a URL with its escapes in lower case.
fn lower_escapes(url: &str) -> String {
    let mut parts = url.split('%');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |url, part| {
        let (byte, rest) = part.split_at(2);
        format!("{url}%{}{rest}", byte.to_ascii_lowercase())
    })
}
