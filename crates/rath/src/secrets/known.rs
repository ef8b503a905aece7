//! Known values, in every form in which they may occur.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret, SecretString};

use super::{MIN_VALUE_BYTES, SecretSource};

/// A set of values that are searched for together.
#[derive(Clone, Default)]
pub(super) struct KnownValues {
    values: Vec<(String, SecretString)>,
    /// Built at the first search.
    finder: OnceLock<FormFinder>,
}

/// The forms of all values of a set.
#[derive(Clone)]
struct FormFinder {
    /// Sorted by their text.
    forms: Vec<ValueForm>,
    /// Finds the first bytes of the forms, some of them in each pass.
    passes: Vec<AhoCorasick>,
    /// The length in bytes of the longest form.
    max_bytes: usize,
    /// True for each byte that a form begins with.
    first_bytes: Box<[bool; 256]>,
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
/// The most passes over a text. With more forms, one automaton without vector instructions is faster.
const MAX_PASSES: usize = 8;
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
        self.finder = OnceLock::new();
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

    /// Passes every occurrence of one of the values to `add`.
    pub(super) fn find<'a>(&'a self, text: &[u8], add: &mut dyn FnMut(Range<usize>, SecretSource<'a>)) {
        let finder = self.finder();
        for pass in &finder.passes {
            let mut from = 0;
            while let Some(prefix) = pass.find(&text[from..]) {
                let start = from + prefix.start();
                // One form may begin within another, so the search continues at the next byte.
                from = start + 1;
                let begin_alike = finder.beginning_with(&text[start..start + MIN_VALUE_BYTES]);
                let occurring = begin_alike.filter(|form| text[start..].starts_with(form.bytes()));
                let Some(form) = occurring.max_by_key(|form| form.bytes().len()) else { continue };
                add(form.range(text, start), SecretSource::Known(&self.values[form.nth].0));
            }
        }
    }

    /// Returns the start of the longest end of the text that is the beginning of a form, or all of one if more may follow that
    /// belongs to the value; or the length of the text.
    pub(super) fn unfinished_from(&self, text: &[u8]) -> usize {
        let finder = self.finder();
        for start in text.len().saturating_sub(finder.max_bytes)..text.len() {
            // This is asked at every piece of a stream, so most positions have to cost one look.
            if !finder.first_bytes[usize::from(text[start])] {
                continue;
            }
            let end = &text[start..];
            let is_unfinished = |form: &&ValueForm| form.bytes().len() > end.len() || form.edges != FormEdges::None;
            let mut unfinished = finder.beginning_with(end).filter(is_unfinished).peekable();
            if unfinished.peek().is_some() {
                let is_edge = unfinished.any(|form| matches!(form.edges, FormEdges::Digits { before: true, .. }));
                return start - usize::from(is_edge && text[..start].last().is_some_and(u8::is_ascii));
            }
        }
        text.len()
    }

    fn finder(&self) -> &FormFinder {
        self.finder.get_or_init(|| FormFinder::new(&self.values))
    }
}

impl FormFinder {
    fn new(values: &[(String, SecretString)]) -> Self {
        let forms = values.iter().enumerate().flat_map(|(nth, (_, value))| all_forms(nth, value));
        let mut forms: Vec<ValueForm> = forms.collect();
        forms.sort_by(|one, other| one.bytes().cmp(other.bytes()));
        let pass = |forms: &[ValueForm]| {
            let prefixes: BTreeSet<&[u8]> =
                forms.iter().map(|form| &form.bytes()[..form.bytes().len().min(MAX_PREFIX_BYTES)]).collect();
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostFirst)
                .kind(Some(AhoCorasickKind::ContiguousNFA))
                .build(prefixes)
                .expect("the prefixes are short")
        };
        let is_many = forms.len() > MAX_PASSES * MAX_FORMS_PER_PASS;
        let passes = forms.chunks(if is_many { forms.len() } else { MAX_FORMS_PER_PASS }).map(pass).collect();
        let max_bytes = forms.iter().map(|form| form.bytes().len()).max().unwrap_or_default();
        let mut first_bytes = Box::new([false; 256]);
        forms.iter().filter_map(|form| form.bytes().first()).for_each(|byte| first_bytes[usize::from(*byte)] = true);
        FormFinder { forms, passes, max_bytes, first_bytes }
    }

    /// Returns the forms that begin with these bytes.
    fn beginning_with<'a>(&'a self, bytes: &[u8]) -> impl Iterator<Item = &'a ValueForm> {
        let first = self.forms.partition_point(|form| form.bytes() < bytes);
        self.forms[first..].iter().take_while(move |form| form.bytes().starts_with(bytes))
    }
}

impl ValueForm {
    fn bytes(&self) -> &[u8] {
        self.text.expose_secret().as_bytes()
    }

    /// Returns the range to hide for an occurrence at `start`.
    fn range(&self, text: &[u8], start: usize) -> Range<usize> {
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
    // A form whose other escapes were undone.
    forms.insert((value.replace(' ', "+"), FormEdges::None));
    for hex in [hex_digits(value), hex_digits(value).to_ascii_uppercase()] {
        forms.insert((hex, FormEdges::None));
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

fn hex_digits(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
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
