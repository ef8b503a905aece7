//! Values that are known, in every form in which they may turn up.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret, SecretString};

use super::{Found, What};

/// A set of values, searched for together.
#[derive(Clone, Default)]
pub(super) struct Known {
    values: Vec<(String, SecretString)>,
    /// Made when something is searched for the first time.
    finders: OnceLock<Vec<Finder>>,
}

/// As many forms as are searched for in one pass.
#[derive(Clone)]
struct Finder {
    /// Finds how the forms begin.
    beginnings: AhoCorasick,
    forms: Vec<Form>,
}

/// One way to write a value.
#[derive(Clone)]
struct Form {
    text: SecretString,
    /// Which value.
    nth: usize,
    edges: Edges,
}

/// What beside a form still holds a part of the value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Edges {
    None,
    /// In Base64, the digit before it or after it.
    Digits {
        before: bool,
        after: bool,
    },
}

/// More patterns than this are not searched for with vector instructions.
const AT_ONCE: usize = 60;
/// How much of a form is looked for before the whole is compared: long values would make large automata.
const BEGINNING: usize = 24;
/// How much of a name is shown.
const NAME_MOST: usize = 64;

impl Known {
    pub(super) fn of(name: &str, value: SecretString) -> Self {
        let mut known = Known::default();
        known.add(name, value);
        known
    }

    pub(super) fn add(&mut self, name: &str, value: SecretString) {
        // A name must not break the JSON that it may come to stand in, nor look like the end of itself.
        let plain = |c: char| if c.is_alphanumeric() || "_-. ".contains(c) { c } else { '_' };
        self.values.push((name.chars().map(plain).take(NAME_MOST).collect(), value));
        self.finders = OnceLock::new();
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|(name, _)| name.as_str())
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &SecretString> {
        self.values.iter().map(|(_, value)| value)
    }

    pub(super) fn has(&self, value: &SecretString) -> bool {
        self.values().any(|known| known.expose_secret() == value.expose_secret())
    }

    /// Adds every place where one of the values stands.
    pub(super) fn find<'a>(&'a self, text: &str, found: &mut Vec<Found<'a>>) {
        for finder in self.finders.get_or_init(|| self.finders()) {
            let mut from = 0;
            while let Some(begins) = finder.beginnings.find(&text.as_bytes()[from..]) {
                let start = from + begins.start();
                // One may begin within another, so nothing but a single byte is passed over.
                from = start + 1;
                let here = finder.forms.iter().filter(|form| text.as_bytes()[start..].starts_with(form.bytes()));
                let Some(form) = here.max_by_key(|form| form.bytes().len()) else { continue };
                let (at, what) = (form.at(text.as_bytes(), start), What::Known(&self.values[form.nth].0));
                match found.last_mut().filter(|last| last.what == what && at.start <= last.at.end) {
                    Some(last) => last.at = last.at.start.min(at.start)..last.at.end.max(at.end),
                    None => found.push(Found { at, what }),
                }
            }
        }
    }

    fn finders(&self) -> Vec<Finder> {
        let forms: Vec<Form> = self.values.iter().enumerate().flat_map(|(nth, (_, value))| forms(nth, value)).collect();
        let finder = |forms: &[Form]| {
            let beginnings: BTreeSet<&[u8]> =
                forms.iter().map(|form| &form.bytes()[..form.bytes().len().min(BEGINNING)]).collect();
            let beginnings = AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostFirst)
                .kind(Some(AhoCorasickKind::ContiguousNFA))
                .build(beginnings)
                .expect("there are few beginnings, and they are short");
            Finder { beginnings, forms: forms.to_vec() }
        };
        forms.chunks(AT_ONCE).map(finder).collect()
    }
}

impl Form {
    fn bytes(&self) -> &[u8] {
        self.text.expose_secret().as_bytes()
    }

    /// What is to be hidden where it stands.
    fn at(&self, text: &[u8], start: usize) -> std::ops::Range<usize> {
        let end = start + self.bytes().len();
        let Edges::Digits { before, after } = self.edges else { return start..end };
        let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
        let start = start - usize::from(before && text[..start].last().is_some_and(is_digit));
        let end = end + usize::from(after && text.get(end).is_some_and(is_digit));
        start..end + text[end..].iter().take(2).take_while(|byte| **byte == b'=').count()
    }
}

/// Every way to write a value, each once.
fn forms(nth: usize, value: &SecretString) -> Vec<Form> {
    let value = value.expose_secret();
    let mut forms = BTreeSet::from([(value.to_owned(), Edges::None)]);
    // JSON, and JSON in JSON, as a tool's arguments are in a request.
    for also in ["", "/", "<>&", "/<>&"] {
        for ascii in [false, true] {
            let once = json(value, also, ascii);
            forms.insert((json(&once, also, ascii), Edges::None));
            forms.insert((once, Edges::None));
        }
    }
    // As most write a URL, as forms are sent, as scripts in a browser write a part of one and the whole.
    for kept in ["~", "*", "~!*'()", "~!*'();:@&=+$,/?#"] {
        for space in ["%20", "+"] {
            let form = url(value, kept, space);
            forms.insert((lower_escapes(&form), Edges::None));
            forms.insert((form, Edges::None));
        }
    }
    for before in 0..3 {
        let bytes = [&[0; 2][..before], value.as_bytes()].concat();
        // A digit is six bits. Those that are the value's alone stay the same whatever stands around it.
        let (first, last) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
        let edges = Edges::Digits { before: before > 0, after: bytes.len() % 3 > 0 };
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            forms.insert((engine.encode(&bytes)[first..last].to_owned(), edges));
        }
    }
    forms.into_iter().map(|(text, edges)| Form { text: text.into(), nth, edges }).collect()
}

/// As JSON writes it between quotes. Some writers escape more than they must.
fn json(text: &str, also: &str, ascii: bool) -> String {
    let quoted = serde_json::to_string(text).expect("a string is JSON");
    let mut escaped = String::with_capacity(quoted.len());
    for c in quoted[1..quoted.len() - 1].chars() {
        match c {
            '/' if also.contains('/') => escaped.push_str("\\/"),
            c if also.contains(c) || (ascii && !c.is_ascii()) => {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| escaped.push_str(&format!("\\u{unit:04x}")));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// As a URL writes it. Writers differ in what they leave as it is.
fn url(text: &str, kept: &str, space: &str) -> String {
    let encode = |byte: u8| match byte {
        b' ' => space.to_owned(),
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        byte if kept.as_bytes().contains(&byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// The same with small letters where a byte is escaped.
fn lower_escapes(url: &str) -> String {
    let mut parts = url.split('%');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |url, part| {
        let (byte, rest) = part.split_at(2);
        format!("{url}%{}{rest}", byte.to_ascii_lowercase())
    })
}
