//! Texts that have the shape of a key.
//!
//! A few letters that every shape has are looked for in one pass; whoever knows the shape then looks closer, at as much as
//! a key may have. What tells a key from a word is length, letters that are allowed, and noise: letters and digits that
//! change places as they do in no word.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::{Found, What};

/// Adds every place where something has the shape of a key.
pub(super) fn find(text: &str, found: &mut Vec<Found<'_>>) {
    let bytes = text.as_bytes();
    let mut over = 0;
    for hint in HINTS.find_iter(bytes) {
        if hint.start() < over {
            continue;
        }
        let (_, shape) = SHAPES[hint.pattern().as_usize()];
        if let Some((name, at)) = shape.look(bytes, hint.range()) {
            over = at.end;
            found.push(Found { at, what: What::Shape(name) });
        }
    }
}

/// What every shape has, and the shape.
const SHAPES: &[(&str, Shape)] = &[
    ("sk-", Shape::Look(sk)),
    ("AKIA", Shape::Token(AWS_ID)),
    ("ASIA", Shape::Token(AWS_ID)),
    ("secret_access_key", Shape::Look(aws_secret)),
    ("SECRET_ACCESS_KEY", Shape::Look(aws_secret)),
    ("ecretAccessKey", Shape::Look(aws_secret)),
    ("ghp_", Shape::Token(GITHUB)),
    ("gho_", Shape::Token(GITHUB)),
    ("ghu_", Shape::Token(GITHUB)),
    ("ghs_", Shape::Token(GITHUB)),
    ("ghr_", Shape::Token(GITHUB)),
    ("github_pat_", Shape::Token(Token { least: 50, ..GITHUB })),
    ("glpat-", Shape::Token(Token { name: "gitlab token", letters: DASHED, least: 20, most: 300, noise: 6 })),
    ("xox", Shape::Look(slack)),
    ("AIza", Shape::Token(Token { name: "google key", letters: DASHED, least: 35, most: 35, noise: 6 })),
    ("sk_live_", Shape::Token(STRIPE)),
    ("rk_live_", Shape::Token(STRIPE)),
    ("npm_", Shape::Token(Token { name: "npm token", letters: UNBROKEN, least: 36, most: 36, noise: 36 })),
    ("pypi-Ag", Shape::Token(Token { name: "pypi token", letters: DASHED, least: 50, most: 1000, noise: 16 })),
    ("hf_", Shape::Token(Token { name: "hugging face token", letters: UNBROKEN, least: 30, most: 64, noise: 30 })),
    ("eyJ", Shape::Look(jwt)),
    ("PRIVATE KEY", Shape::Look(private_key)),
    ("uthorization", Shape::Look(authorization)),
    ("UTHORIZATION", Shape::Look(authorization)),
    ("://", Shape::Look(url_password)),
];

static HINTS: LazyLock<AhoCorasick> = LazyLock::new(|| {
    AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostFirst)
        .kind(Some(AhoCorasickKind::DFA))
        .build(SHAPES.iter().map(|(hint, _)| hint))
        .expect("the hints are few and short")
});

#[derive(Clone, Copy)]
enum Shape {
    Token(Token),
    Look(fn(&[u8], Range<usize>) -> Option<Named>),
}

type Named = (&'static str, Range<usize>);

/// A key that begins with a prefix of its own.
#[derive(Clone, Copy)]
struct Token {
    name: &'static str,
    letters: fn(u8) -> bool,
    /// How many letters follow the prefix.
    least: usize,
    most: usize,
    /// How long a part there is with no word in it.
    noise: usize,
}

const AWS_ID: Token = Token { name: "aws key id", letters: UNBROKEN, least: 16, most: 16, noise: 0 };
const GITHUB: Token = Token { name: "github token", letters: UNBROKEN, least: 36, most: 255, noise: 20 };
const STRIPE: Token = Token { name: "stripe key", letters: UNBROKEN, least: 16, most: 255, noise: 16 };

/// Letters, digits and `_`: a name goes on over it, so that none is taken for a key with an end.
const UNBROKEN: fn(u8) -> bool = |byte| byte.is_ascii_alphanumeric() || byte == b'_';
/// The same and `-`.
const DASHED: fn(u8) -> bool = |byte| UNBROKEN(byte) || byte == b'-';
/// What stands after `Bearer`.
const TOKEN68: fn(u8) -> bool = |byte| DASHED(byte) || b".~+/=".contains(&byte);
const BASE64: fn(u8) -> bool = |byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);

impl Shape {
    fn look(self, text: &[u8], hint: Range<usize>) -> Option<Named> {
        match self {
            Shape::Look(look) => look(text, hint),
            Shape::Token(token) => {
                let run = run(text, hint.end, token.letters, token.most)?;
                let key = &text[run.clone()];
                let fits = key.len() >= token.least && begins(text, hint.start) && token.fits(key);
                fits.then_some((token.name, hint.start..run.end))
            }
        }
    }
}

impl Token {
    fn fits(&self, key: &[u8]) -> bool {
        match self.noise {
            // Amazon's have capitals and digits, and nothing else to tell them by.
            0 => key.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()),
            // Of parts so short many have no digit.
            noise if noise < 12 => parts(key).any(|part| part.len() >= noise && changes(part) >= 3),
            noise => has_noise(key, noise),
        }
    }
}

/// OpenAI, Anthropic, and all those who took over OpenAI's prefix.
fn sk(text: &[u8], hint: Range<usize>) -> Option<Named> {
    const MARKED: [&[u8]; 5] = [b"proj-", b"ant-", b"svcacct-", b"admin-", b"or-"];
    if !begins(text, hint.start) {
        return None;
    }
    let run = run(text, hint.end, DASHED, 300)?;
    let key = &text[run.clone()];
    let noise = if MARKED.iter().any(|mark| key.starts_with(mark)) { 12 } else { 16 };
    let name = if key.starts_with(b"ant-") { "anthropic key" } else { "openai key" };
    (key.len() >= 20 && has_noise(key, noise)).then_some((name, hint.start..run.end))
}

/// Forty letters that nothing but the name before them gives away.
fn aws_secret(text: &[u8], hint: Range<usize>) -> Option<Named> {
    let start = after_name(text, hint.end)?;
    let run = run(text, start, BASE64, 40)?;
    (run.len() == 40).then_some(("aws secret key", run))
}

fn slack(text: &[u8], hint: Range<usize>) -> Option<Named> {
    let kind = text.get(hint.end).filter(|kind| b"abcdeoprs".contains(kind));
    if kind.is_none() || text.get(hint.end + 1) != Some(&b'-') || !begins(text, hint.start) {
        return None;
    }
    let run = run(text, hint.end + 2, DASHED, 300)?;
    let key = &text[run.clone()];
    let number = parts(key).any(|part| part.len() >= 8 && part.iter().all(u8::is_ascii_digit));
    (key.len() >= 20 && (number || has_noise(key, 10))).then_some(("slack token", hint.start..run.end))
}

/// Three parts of Base64, of which the first two are JSON objects.
fn jwt(text: &[u8], hint: Range<usize>) -> Option<Named> {
    // In the middle of Base64 there are such letters by the thousand, and each would be looked at to the end.
    if !begins(text, hint.start) || text[..hint.start].ends_with(b"-") {
        return None;
    }
    let part = |from: usize| from..from + text[from..].iter().take_while(|byte| DASHED(**byte)).count();
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

/// A block between `-----BEGIN .. PRIVATE KEY-----` and its end, or as much of one as there is.
fn private_key(text: &[u8], hint: Range<usize>) -> Option<Named> {
    const BEGIN: &[u8] = b"-----BEGIN ";
    /// What kind of key it is, with the word before it.
    const LABEL: usize = 40;
    /// A line of a key has 64 letters or 76, but for the last.
    const LINE: usize = 40;
    /// How much may stand before a line: two headers, or a number and an indent.
    const BETWEEN: usize = 160;
    let label = text[..hint.start].iter().rev().take(LABEL).take_while(|byte| UPPER_LABEL(**byte)).count();
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
        return lines().any(|line| line.len() >= LINE).then_some(("private key", start..end));
    }
    let mut end = body;
    for line in lines().filter(|line| line.len() >= LINE) {
        if line.start - end > BETWEEN {
            break;
        }
        end = line.end;
    }
    // The last line is shorter.
    let last = lines().find(|line| line.start >= end && end > body).filter(|line| line.start - end <= 4);
    let end = last.map_or(end, |last| last.end);
    (end > body).then_some(("private key", start..end))
}

const UPPER_LABEL: fn(u8) -> bool = |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' ';

/// What a header says after its scheme.
fn authorization(text: &[u8], hint: Range<usize>) -> Option<Named> {
    let start = after_name(text, hint.end)?;
    let scheme = start..start + text[start..].iter().take(8).take_while(|byte| byte.is_ascii_alphabetic()).count();
    let space = text[scheme.end..].iter().take(4).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    if space == 0 {
        return None;
    }
    let run = run(text, scheme.end + space, TOKEN68, 16 * 1024)?;
    let said = &text[run.clone()];
    let fits = match &text[scheme].to_ascii_lowercase()[..] {
        b"bearer" | b"token" | b"apikey" => said.len() >= 8 && has_noise(said, 8),
        b"basic" => {
            let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
            let pair = GeneralPurpose::new(&STANDARD, config).decode(said);
            pair.is_ok_and(|pair| pair.contains(&b':'))
        }
        _ => false,
    };
    fits.then_some(("authorization", run))
}

/// What stands between a name and an `@` before the host.
fn url_password(text: &[u8], hint: Range<usize>) -> Option<Named> {
    /// How long a name with its password may be.
    const MOST: usize = 1024;
    if !text[..hint.start].last().is_some_and(u8::is_ascii_alphanumeric) {
        return None;
    }
    let is_over = |byte: &u8| byte.is_ascii_whitespace() || b"/?#\"'`<>\\".contains(byte);
    let rest = &text[hint.end..text.len().min(hint.end + MOST)];
    let authority = &rest[..rest.iter().position(is_over).unwrap_or(rest.len())];
    let user = &authority[..authority.iter().rposition(|byte| *byte == b'@')?];
    let password = user.iter().position(|byte| *byte == b':')? + 1..user.len();
    let said = &user[password.clone()];
    // `$PASSWORD`, `${PASSWORD}`, `{password}` and `***` are what people write instead of one.
    let stands_in = said.starts_with(b"{")
        || said.starts_with(b"${")
        || (said.starts_with(b"$") && said[1..].iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'_'))
        || said.iter().all(|byte| *byte == b'*');
    (!stands_in).then_some(("url password", hint.end + password.start..hint.end + password.end))
}

/// Where a value begins after the name it is given: `name = value`, `"name": "value"`, `<name>value`.
fn after_name(text: &[u8], from: usize) -> Option<usize> {
    let between = text[from..].iter().take(12).take_while(|byte| b" \t\"'\\:=,>".contains(byte)).count();
    (between > 0).then_some(from + between)
}

/// The letters from here on, unless there are too many.
fn run(text: &[u8], from: usize, letters: fn(u8) -> bool, most: usize) -> Option<Range<usize>> {
    let count = text[from..].iter().take(most + 1).take_while(|byte| letters(**byte)).count();
    (count <= most).then_some(from..from + count)
}

/// Whether something can begin here: no word goes on from before.
fn begins(text: &[u8], at: usize) -> bool {
    let before = &text[..at];
    match before {
        [] => true,
        [.., byte] if !byte.is_ascii_alphanumeric() && *byte != b'_' => true,
        // What looks like the end of a word may be that of an escape: in JSON, in a URL, for a terminal.
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

/// Whether there is a part of so many letters and digits that is no word, and no name that programmers write.
fn has_noise(key: &[u8], least: usize) -> bool {
    parts(key).any(|part| {
        let digits = part.iter().any(u8::is_ascii_digit);
        part.len() >= least && changes(part) >= 3 && (digits || part.len() >= 32)
    })
}

fn parts(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    key.split(|byte| !byte.is_ascii_alphanumeric())
}

/// How often capitals, small letters and digits follow upon each other.
fn changes(part: &[u8]) -> usize {
    let kind = |byte: u8| (byte.is_ascii_digit(), byte.is_ascii_uppercase());
    part.windows(2).filter(|pair| kind(pair[0]) != kind(pair[1])).count()
}
