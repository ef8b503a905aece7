//! Patterns of keys.
//!
//! One pass searches for a few characters that each pattern has. The matcher of the pattern then looks at the text around
//! them, up to the length of a key. A key differs from a word by its length, its alphabet and its randomness: letters and
//! digits alternate as in no word.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::SecretSource;

/// Passes every text with the pattern of a key to `add`.
pub(super) fn find<'a>(bytes: &[u8], add: &mut dyn FnMut(Range<usize>, SecretSource<'a>)) {
    // Most texts of a step are names and ids, for which preparing the search costs more than the search.
    if bytes.len() < MIN_KEY_BYTES && memchr::memmem::find(bytes, b"://").is_none() {
        return;
    }
    let mut last_end = 0;
    for hint in HINTS.find_iter(bytes) {
        if hint.start() < last_end {
            continue;
        }
        let (_, pattern) = PATTERNS[hint.pattern().as_usize()];
        if let Some((name, range)) = pattern.find(bytes, hint.range()) {
            last_end = range.end;
            add(range, SecretSource::Pattern(name));
        }
    }
}

/// Returns the start of the part of the text that may be the beginning of a key, or the length of the text.
pub(super) fn unfinished_from(bytes: &[u8]) -> usize {
    let hints = PATTERNS.iter().map(|(hint, pattern)| (hint.as_bytes(), *pattern)).filter(|(_, it)| it.hides_hint());
    let cut_hints = hints.filter_map(|(hint, _)| cut_from(bytes, hint).filter(|start| is_word_start(bytes, *start)));
    let whole_hints = HINTS.find_iter(bytes).filter_map(|hint| {
        let (_, pattern) = PATTERNS[hint.pattern().as_usize()];
        pattern.unfinished_from(bytes, hint.range())
    });
    let key_blocks = memchr::memmem::find_iter(bytes, BEGIN).filter(|start| is_unfinished_block(bytes, *start));
    let starts = cut_hints.chain(whole_hints).chain(key_blocks).chain(cut_from(bytes, BEGIN));
    starts.min().unwrap_or(bytes.len())
}

/// Returns the start of the longest end of a text that is the beginning of `hint`, and not all of it.
fn cut_from(text: &[u8], hint: &[u8]) -> Option<usize> {
    let lengths = (1..hint.len().min(text.len() + 1)).rev();
    lengths.map(|length| text.len() - length).find(|start| hint.starts_with(&text[*start..]))
}

/// The patterns, each with a text that all its keys contain.
const PATTERNS: &[(&str, KeyPattern)] = &[
    ("sk-", KeyPattern::Custom(find_sk_key, TOKEN)),
    ("AKIA", KeyPattern::Prefix(AWS_ID)),
    ("ASIA", KeyPattern::Prefix(AWS_ID)),
    ("secret_access_key", KeyPattern::Custom(find_aws_secret, Rest::Value { max: 41 })),
    ("SECRET_ACCESS_KEY", KeyPattern::Custom(find_aws_secret, Rest::Value { max: 41 })),
    ("ecretAccessKey", KeyPattern::Custom(find_aws_secret, Rest::Value { max: 41 })),
    ("ghp_", KeyPattern::Prefix(GITHUB)),
    ("gho_", KeyPattern::Prefix(GITHUB)),
    ("ghu_", KeyPattern::Prefix(GITHUB)),
    ("ghs_", KeyPattern::Prefix(GITHUB)),
    ("ghr_", KeyPattern::Prefix(GITHUB)),
    ("github_pat_", KeyPattern::Prefix(PrefixPattern { min: 50, ..GITHUB })),
    (
        "glpat-",
        KeyPattern::Prefix(PrefixPattern {
            name: "gitlab token",
            alphabet: WORD_OR_DASH,
            min: 20,
            max: 300,
            random: 6,
        }),
    ),
    ("xox", KeyPattern::Custom(find_slack_token, TOKEN)),
    (
        "AIza",
        KeyPattern::Prefix(PrefixPattern { name: "google key", alphabet: WORD_OR_DASH, min: 35, max: 35, random: 6 }),
    ),
    ("sk_live_", KeyPattern::Prefix(STRIPE)),
    ("rk_live_", KeyPattern::Prefix(STRIPE)),
    ("npm_", KeyPattern::Prefix(PrefixPattern { name: "npm token", alphabet: WORD, min: 36, max: 36, random: 36 })),
    (
        "pypi-Ag",
        KeyPattern::Prefix(PrefixPattern {
            name: "pypi token",
            alphabet: WORD_OR_DASH,
            min: 50,
            max: 1000,
            random: 16,
        }),
    ),
    (
        "hf_",
        KeyPattern::Prefix(PrefixPattern { name: "hugging face token", alphabet: WORD, min: 30, max: 64, random: 30 }),
    ),
    (
        "eyJ",
        KeyPattern::Custom(
            find_jwt,
            Rest::Key { alphabet: |byte| WORD_OR_DASH(byte) || byte == b'.', max: usize::MAX },
        ),
    ),
    ("PRIVATE KEY", KeyPattern::Custom(find_private_key, Rest::Block)),
    ("uthorization", KeyPattern::Custom(find_authorization, Rest::Credentials)),
    ("UTHORIZATION", KeyPattern::Custom(find_authorization, Rest::Credentials)),
    ("://", KeyPattern::Custom(find_url_password, Rest::Authority)),
];

static HINTS: LazyLock<AhoCorasick> = LazyLock::new(|| {
    AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostFirst)
        .kind(Some(AhoCorasickKind::DFA))
        .build(PATTERNS.iter().map(|(hint, _)| hint))
        .expect("the hints are few and short")
});

#[derive(Clone, Copy)]
enum KeyPattern {
    Prefix(PrefixPattern),
    Custom(fn(&[u8], Range<usize>) -> Option<KeyMatch>, Rest),
}

/// The text after a hint that belongs to the pattern.
#[derive(Clone, Copy)]
enum Rest {
    /// The rest of a key that begins with the hint.
    Key { alphabet: fn(u8) -> bool, max: usize },
    /// A value after separators.
    Value { max: usize },
    /// A scheme and credentials after separators.
    Credentials,
    /// The user name, the password and the host of a URL.
    Authority,
    /// A block of lines: see [`is_unfinished_block`].
    Block,
}

/// The name of the pattern, and the range of the secret.
type KeyMatch = (&'static str, Range<usize>);

/// The pattern of keys with a prefix of their own.
#[derive(Clone, Copy)]
struct PrefixPattern {
    name: &'static str,
    alphabet: fn(u8) -> bool,
    /// The fewest characters after the prefix.
    min: usize,
    /// The most characters after the prefix.
    max: usize,
    /// The length of the random part that a key must have; 0 for capitals and digits only.
    random: usize,
}

const TOKEN: Rest = Rest::Key { alphabet: WORD_OR_DASH, max: 300 };
const AWS_ID: PrefixPattern = PrefixPattern { name: "aws key id", alphabet: WORD, min: 16, max: 16, random: 0 };
const GITHUB: PrefixPattern = PrefixPattern { name: "github token", alphabet: WORD, min: 36, max: 255, random: 20 };
const STRIPE: PrefixPattern = PrefixPattern { name: "stripe key", alphabet: WORD, min: 16, max: 255, random: 16 };

/// Letters, digits and `_`. Names contain `_`, so including it keeps a part of a name from being taken for a key.
const WORD: fn(u8) -> bool = |byte| byte.is_ascii_alphanumeric() || byte == b'_';
/// Letters, digits, `_` and `-`.
const WORD_OR_DASH: fn(u8) -> bool = |byte| WORD(byte) || byte == b'-';
/// The characters of a token after `Bearer`.
const TOKEN68: fn(u8) -> bool = |byte| WORD_OR_DASH(byte) || b".~+/=".contains(&byte);
/// The characters between a name and its value.
const SEPARATOR: fn(u8) -> bool = |byte| b" \t\"'\\:=,>".contains(&byte);
/// The characters that end the host of a URL.
const ENDS_AUTHORITY: fn(u8) -> bool = |byte| byte.is_ascii_whitespace() || b"/?#\"'`<>\\".contains(&byte);
/// The length in bytes of the shortest text with a key, passwords in URLs aside: the id of a key of Amazon.
const MIN_KEY_BYTES: usize = 20;
/// The most characters between a name and its value.
const MAX_SEPARATORS: usize = 12;
/// The most characters of the credentials in a header.
const MAX_CREDENTIALS: usize = 16 << 10;
/// The most bytes of a user name with its password in a URL.
const MAX_USER_BYTES: usize = 1024;
const BASE64: fn(u8) -> bool = |byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);

impl KeyPattern {
    /// Returns true if the hint is a part of the secret.
    fn hides_hint(self) -> bool {
        match self {
            KeyPattern::Prefix(_) => true,
            KeyPattern::Custom(_, rest) => matches!(rest, Rest::Key { .. }),
        }
    }

    /// Returns the start of a key that the end of the text may have cut off.
    fn unfinished_from(self, text: &[u8], hint: Range<usize>) -> Option<usize> {
        let skip = |from: usize, most: usize, alphabet: fn(u8) -> bool| {
            from + text[from..].iter().take(most).take_while(|byte| alphabet(**byte)).count()
        };
        let value = |from: usize| skip(from, MAX_SEPARATORS, SEPARATOR);
        let rest = match self {
            KeyPattern::Prefix(pattern) => Rest::Key { alphabet: pattern.alphabet, max: pattern.max },
            KeyPattern::Custom(_, rest) => rest,
        };
        let (start, end) = match rest {
            Rest::Key { alphabet, max } => (hint.start, skip(hint.end, max, alphabet)),
            Rest::Value { max } => (hint.end, skip(value(hint.end), max, BASE64)),
            Rest::Credentials => {
                let scheme = skip(value(hint.end), 8, |byte| byte.is_ascii_alphabetic());
                (hint.end, skip(skip(scheme, 4, |byte| matches!(byte, b' ' | b'\t')), MAX_CREDENTIALS, TOKEN68))
            }
            Rest::Authority => (hint.end, skip(hint.end, MAX_USER_BYTES, |byte| !ENDS_AUTHORITY(byte))),
            Rest::Block => return None,
        };
        (end == text.len()).then_some(start)
    }

    /// Returns the key around the hint, if there is one.
    fn find(self, text: &[u8], hint: Range<usize>) -> Option<KeyMatch> {
        match self {
            KeyPattern::Custom(find, _) => find(text, hint),
            KeyPattern::Prefix(pattern) => {
                let run = run(text, hint.end, pattern.alphabet, pattern.max)?;
                let key = &text[run.clone()];
                let is_key = key.len() >= pattern.min && is_word_start(text, hint.start) && pattern.matches(key);
                is_key.then_some((pattern.name, hint.start..run.end))
            }
        }
    }
}

impl PrefixPattern {
    fn matches(&self, key: &[u8]) -> bool {
        match self.random {
            // Keys of Amazon have capitals and digits only, and no other mark.
            0 => key.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()),
            // Many random parts of this length have no digit.
            random if random < 12 => parts(key).any(|part| part.len() >= random && class_changes(part) >= 3),
            random => has_random_part(key, random),
        }
    }
}

/// Finds keys of OpenAI, of Anthropic, and of all services that adopted OpenAI's prefix.
fn find_sk_key(text: &[u8], hint: Range<usize>) -> Option<KeyMatch> {
    const MARKED: [&[u8]; 5] = [b"proj-", b"ant-", b"svcacct-", b"admin-", b"or-"];
    if !is_word_start(text, hint.start) {
        return None;
    }
    let run = run(text, hint.end, WORD_OR_DASH, 300)?;
    let key = &text[run.clone()];
    let random = if MARKED.iter().any(|mark| key.starts_with(mark)) { 12 } else { 16 };
    let name = if key.starts_with(b"ant-") { "anthropic key" } else { "openai key" };
    (key.len() >= 20 && has_random_part(key, random)).then_some((name, hint.start..run.end))
}

/// Finds secret keys of Amazon: forty characters that only the name before them marks.
fn find_aws_secret(text: &[u8], hint: Range<usize>) -> Option<KeyMatch> {
    let start = value_start(text, hint.end)?;
    let run = run(text, start, BASE64, 40)?;
    (run.len() == 40).then_some(("aws secret key", run))
}

fn find_slack_token(text: &[u8], hint: Range<usize>) -> Option<KeyMatch> {
    let kind = text.get(hint.end).filter(|kind| b"abcdeoprs".contains(kind));
    if kind.is_none() || text.get(hint.end + 1) != Some(&b'-') || !is_word_start(text, hint.start) {
        return None;
    }
    let run = run(text, hint.end + 2, WORD_OR_DASH, 300)?;
    let key = &text[run.clone()];
    let number = parts(key).any(|part| part.len() >= 8 && part.iter().all(u8::is_ascii_digit));
    (key.len() >= 20 && (number || has_random_part(key, 10))).then_some(("slack token", hint.start..run.end))
}

/// Finds JSON Web Tokens: three parts of Base64, of which the first two are JSON objects.
fn find_jwt(text: &[u8], hint: Range<usize>) -> Option<KeyMatch> {
    // These letters occur often within Base64, where each occurrence would be searched to the end.
    if !is_word_start(text, hint.start) || text[..hint.start].ends_with(b"-") {
        return None;
    }
    let part = |from: usize| from..from + text[from..].iter().take_while(|byte| WORD_OR_DASH(**byte)).count();
    let header = part(hint.start);
    let payload = part(header.end + usize::from(text.get(header.end) == Some(&b'.')));
    let signature = part(payload.end + usize::from(text.get(payload.end) == Some(&b'.')));
    let fits = header.len() >= 12
        && payload.start > header.end
        && payload.len() >= 8
        && text[payload.clone()].starts_with(b"eyJ")
        && signature.start > payload.end
        && signature.len() >= 16;
    fits.then_some(("jwt", hint.start..signature.end))
}

/// Finds a block between `-----BEGIN .. PRIVATE KEY-----` and its end, or as much of it as there is.
fn find_private_key(text: &[u8], hint: Range<usize>) -> Option<KeyMatch> {
    let label = text[..hint.start].iter().rev().take(MAX_LABEL).take_while(|byte| UPPER_LABEL(**byte)).count();
    let start = (hint.start - label).checked_sub(5).filter(|start| text[*start..].starts_with(BEGIN))?;
    let body = hint.end + if text[hint.end..].starts_with(b" BLOCK") { 6 } else { 0 };
    let body = body + text[body..].starts_with(b"-----").then_some(5)?;
    let stop = body + memchr::memmem::find(&text[body..], b"-----").unwrap_or(text.len() - body);
    let lines = || {
        let mut from = body;
        std::iter::from_fn(move || {
            from += text[from..stop].iter().position(|byte| BASE64(*byte))?;
            let line = from..from + text[from..stop].iter().take_while(|byte| BASE64(**byte)).count();
            from = line.end;
            Some(line)
        })
    };
    if text[stop..].starts_with(b"-----END ") {
        let end = stop + 9 + text[stop + 9..].iter().take_while(|byte| UPPER_LABEL(**byte)).count();
        let end = end + text[end..].iter().take(5).take_while(|byte| **byte == b'-').count();
        return lines().any(|line| line.len() >= MIN_LINE).then_some(("private key", start..end));
    }
    let mut end = body;
    for line in lines().filter(|line| line.len() >= MIN_LINE) {
        if line.start - end > MAX_GAP {
            break;
        }
        end = line.end;
    }
    // The last line is shorter.
    let last = lines().find(|line| line.start >= end && end > body).filter(|line| line.start - end <= 4);
    let end = last.map_or(end, |last| last.end);
    (end > body).then_some(("private key", start..end))
}

/// Returns true if the end of the text may be in the middle of the private key that begins at `start`.
fn is_unfinished_block(text: &[u8], start: usize) -> bool {
    let label = start + BEGIN.len();
    let label_end = label + text[label..].iter().take(2 * MAX_LABEL).take_while(|byte| UPPER_LABEL(**byte)).count();
    let header_end = label_end + text[label_end..].iter().take(5).take_while(|byte| **byte == b'-').count();
    if header_end == text.len() {
        return true;
    }
    if memchr::memmem::find(&text[label..label_end], b"PRIVATE KEY").is_none() {
        return false;
    }
    if let Some(end) = memchr::memmem::find(&text[header_end..], b"-----") {
        // The line at the end, up to its last dashes.
        let rest = &text[header_end + end + 5..];
        let rest = rest.iter().take(3 * MAX_LABEL).take_while(|byte| UPPER_LABEL(**byte)).count();
        let dashes = text[header_end + end + 5 + rest..].iter().take(5).take_while(|byte| **byte == b'-').count();
        return header_end + end + 5 + rest + dashes == text.len() && dashes < 5;
    }
    let mut from = header_end;
    let mut last_line = header_end;
    while let Some(at) = text[from..].iter().position(|byte| BASE64(*byte)) {
        let line = from + at..from + at + text[from + at..].iter().take_while(|byte| BASE64(**byte)).count();
        from = line.end;
        if line.len() >= MIN_LINE {
            last_line = line.end;
        }
    }
    text.len() - last_line <= MAX_GAP + MIN_LINE
}

/// The beginning of the first line of a key block.
const BEGIN: &[u8] = b"-----BEGIN ";
/// The most characters of the label between `BEGIN` and `PRIVATE KEY`.
const MAX_LABEL: usize = 40;
/// The fewest characters in a line of a key: all lines but the last have 64 or 76.
const MIN_LINE: usize = 40;
/// The most bytes between two lines: two headers, or a number and an indent.
const MAX_GAP: usize = 160;

const UPPER_LABEL: fn(u8) -> bool = |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' ';

/// Finds the credentials in an `Authorization` header.
fn find_authorization(text: &[u8], hint: Range<usize>) -> Option<KeyMatch> {
    let start = value_start(text, hint.end)?;
    let scheme = start..start + text[start..].iter().take(8).take_while(|byte| byte.is_ascii_alphabetic()).count();
    let space = text[scheme.end..].iter().take(4).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    if space == 0 {
        return None;
    }
    let run = run(text, scheme.end + space, TOKEN68, MAX_CREDENTIALS)?;
    let credentials = &text[run.clone()];
    let is_secret = match &text[scheme].to_ascii_lowercase()[..] {
        b"bearer" | b"token" | b"apikey" => credentials.len() >= 8 && has_random_part(credentials, 8),
        b"basic" => {
            let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
            let pair = GeneralPurpose::new(&STANDARD, config).decode(credentials);
            pair.is_ok_and(|pair| pair.contains(&b':'))
        }
        _ => false,
    };
    is_secret.then_some(("authorization", run))
}

/// Finds the password in a URL, between the user name and the `@` before the host.
fn find_url_password(text: &[u8], hint: Range<usize>) -> Option<KeyMatch> {
    if !text[..hint.start].last().is_some_and(u8::is_ascii_alphanumeric) {
        return None;
    }
    let rest = &text[hint.end..text.len().min(hint.end + MAX_USER_BYTES)];
    let authority = &rest[..rest.iter().position(|byte| ENDS_AUTHORITY(*byte)).unwrap_or(rest.len())];
    let user = &authority[..authority.iter().rposition(|byte| *byte == b'@')?];
    let password = user.iter().position(|byte| *byte == b':')? + 1..user.len();
    let value = &user[password.clone()];
    // `$PASSWORD`, `${PASSWORD}`, `{password}` and `***` stand for a password in documentation and scripts.
    let is_placeholder = value.starts_with(b"{")
        || value.starts_with(b"${")
        || (value.starts_with(b"$") && value[1..].iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'_'))
        || value.iter().all(|byte| *byte == b'*');
    (!is_placeholder).then_some(("url password", hint.end + password.start..hint.end + password.end))
}

/// Returns the start of the value after a name: `name = value`, `"name": "value"`, `<name>value`.
fn value_start(text: &[u8], from: usize) -> Option<usize> {
    let between = text[from..].iter().take(MAX_SEPARATORS).take_while(|byte| SEPARATOR(**byte)).count();
    (between > 0).then_some(from + between)
}

/// Returns the range of characters of an alphabet at `from`, or `None` if there are more than `max`.
fn run(text: &[u8], from: usize, alphabet: fn(u8) -> bool, max: usize) -> Option<Range<usize>> {
    let count = text[from..].iter().take(max + 1).take_while(|byte| alphabet(**byte)).count();
    (count <= max).then_some(from..from + count)
}

/// Returns true if a word can begin here: the character before does not belong to it.
fn is_word_start(text: &[u8], at: usize) -> bool {
    let before = &text[..at];
    match before {
        [] => true,
        [.., byte] if !byte.is_ascii_alphanumeric() && *byte != b'_' => true,
        // A letter before the word may be the end of an escape: in JSON, in a URL, for a terminal.
        [.., b'\\', b'n' | b'r' | b't' | b'b' | b'f'] => true,
        [.., b'\\', b'u', a, b, c, d] if [a, b, c, d].iter().all(|byte| byte.is_ascii_hexdigit()) => true,
        [.., b'%', a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => true,
        [rest @ .., b'm'] => {
            let codes = rest.iter().rev().take(16).take_while(|byte| byte.is_ascii_digit() || **byte == b';').count();
            rest[..rest.len() - codes].ends_with(b"[")
        }
        _ => false,
    }
}

/// Returns true if a part of at least `min` letters and digits is neither a word nor a name in a program.
fn has_random_part(key: &[u8], min: usize) -> bool {
    parts(key).any(|part| {
        let digits = part.iter().any(u8::is_ascii_digit);
        part.len() >= min && class_changes(part) >= 3 && (digits || part.len() >= 32)
    })
}

fn parts(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    key.split(|byte| !byte.is_ascii_alphanumeric())
}

/// Counts the changes between capitals, small letters and digits.
fn class_changes(part: &[u8]) -> usize {
    let class = |byte: u8| (byte.is_ascii_digit(), byte.is_ascii_uppercase());
    part.windows(2).filter(|pair| class(pair[0]) != class(pair[1])).count()
}
