//! One line of a file. The layout is fixed, so a row has exactly one spelling, but for the JSON of its chunk or payload.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::damage::Fault;
use crate::id::{self, BranchId, Digest, Seal, StepId, Timestamp};
use crate::payload::Payload;
use crate::step::{Stamp, Step};
use crate::usage::Usage;

/// How a row begins, up to its seal.
pub(crate) const SEAL_OPEN: &str = r#"{"seal":""#;
/// Where what the seal covers begins.
const SEALED: usize = SEAL_OPEN.len() + Seal::HEX + r#"","#.len();
/// The largest number in a row.
const NUMBER_MAX: u64 = i64::MAX as u64;
/// How the header goes on after its seal.
const FORMAT: &str = r#""format":"rath record","version":"#;

/// A row whose seal is right.
pub(crate) struct Row<'a> {
    pub(crate) seal: Seal,
    pub(crate) body: Body<'a>,
}

impl Row<'_> {
    /// The row's number.
    pub(crate) fn n(&self) -> u64 {
        match self.body {
            Body::Header { .. } => 0,
            Body::Link { n, .. } => n,
        }
    }
}

#[allow(clippy::large_enum_variant, reason = "every row but the first is the large one, and none is kept")]
pub(crate) enum Body<'a> {
    /// The first line.
    Header { version: u64 },
    /// A line of the chain: its number, the seal of the line before, and what it holds.
    Link { n: u64, prev: Seal, holds: Holds<'a> },
}

pub(crate) enum Holds<'a> {
    Step(StepRow<'a>),
    Payload(Digest, PayloadText<'a>),
    /// A name that is known not to be in this file: lost, withheld, or in the file of another session.
    Gone(Digest, Option<BranchId>),
    /// Somebody begins to write, for which time, after so many bytes of a row that was cut.
    Open {
        cut: u64,
        writer: Writer,
    },
    /// The last line: how many steps there are.
    End {
        steps: u64,
    },
}

/// Who writes, and for which time somebody does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// From 1: every time a file is written on, the next number.
    pub epoch: u64,
    /// In words of the writer's own.
    pub by: String,
}

pub(crate) struct StepRow<'a> {
    pub(crate) id: StepId,
    pub(crate) parents: ParentIds,
    pub(crate) stamp: Stamp,
    /// The digest that the id follows from, where the chunk is only what is left of the one that was said.
    pub(crate) withheld: Option<Digest>,
    /// The chunk's JSON: not yet known to be any.
    pub(crate) chunk: &'a str,
}

/// The names of up to two parents.
#[derive(Clone, Copy)]
pub(crate) struct ParentIds {
    ids: [StepId; 2],
    count: usize,
}

impl ParentIds {
    pub(crate) fn as_slice(&self) -> &[StepId] {
        &self.ids[..self.count]
    }
}

/// A payload as it stands in its row.
pub(crate) enum PayloadText<'a> {
    /// The JSON string of a text.
    Text(&'a str),
    /// The JSON string of the base64 of bytes.
    Base64(&'a str),
}

impl PayloadText<'_> {
    pub(crate) fn decode(&self) -> Option<Payload> {
        match self {
            PayloadText::Text(json) => serde_json::from_str::<Arc<str>>(json).ok().map(Payload::Text),
            PayloadText::Base64(json) => {
                let text = json.strip_prefix('"')?.strip_suffix('"')?;
                BASE64.decode(text).ok().map(|bytes| Payload::Bytes(bytes.into()))
            }
        }
    }
}

/// Reads one line, without its line break.
pub(crate) fn parse(line: &[u8]) -> Result<Row<'_>, Fault> {
    let rest = line.strip_prefix(SEAL_OPEN.as_bytes()).ok_or(Fault::NotARow)?;
    let (seal, rest) = rest.split_at_checked(Seal::HEX).ok_or(Fault::NotARow)?;
    let seal = Seal::from_hex(seal).ok_or(Fault::NotARow)?;
    let sealed = rest.strip_prefix(b"\",").ok_or(Fault::NotARow)?;
    if Seal::of(sealed) != seal {
        return Err(Fault::Seal);
    }
    // From here on the bytes are as they were written; what does not fit was written so.
    let mut rest = Rest(std::str::from_utf8(sealed).map_err(|_| Fault::NotARow)?);
    if rest.skip(FORMAT).is_ok() {
        let version = rest.number()?;
        if version == 0 {
            return Err(Fault::NotARow);
        }
        // What else a newer header holds is not for this version to say.
        if version <= super::VERSION {
            rest.last("}")?;
        }
        return Ok(Row { seal, body: Body::Header { version } });
    }
    rest.skip(r#""prev":""#)?;
    let prev = Seal::from_hex(rest.take(Seal::HEX)?.as_bytes()).ok_or(Fault::NotARow)?;
    rest.skip(r#"","n":"#)?;
    let n = rest.number()?;
    rest.skip(",")?;
    let holds = if rest.skip(r#""id":""#).is_ok() {
        Holds::Step(step(rest)?)
    } else if rest.skip(r#""payload":""#).is_ok() {
        payload(rest)?
    } else if rest.skip(r#""gone":""#).is_ok() {
        gone(rest)?
    } else if rest.skip(r#""open":"#).is_ok() {
        open(rest)?
    } else {
        rest.skip(r#""end":"#)?;
        let steps = rest.number()?;
        rest.last("}")?;
        Holds::End { steps }
    };
    Ok(Row { seal, body: Body::Link { n, prev, holds } })
}

fn step(mut rest: Rest<'_>) -> Result<StepRow<'_>, Fault> {
    let id = rest.step_id()?;
    rest.skip(r#"","parents":["#)?;
    let mut parents = ParentIds { ids: [id; 2], count: 0 };
    if rest.skip("]").is_err() {
        loop {
            rest.skip("\"")?;
            *parents.ids.get_mut(parents.count).ok_or(Fault::NotARow)? = rest.step_id()?;
            parents.count += 1;
            rest.skip("\"")?;
            if rest.skip("]").is_ok() {
                break;
            }
            rest.skip(",")?;
        }
    }
    rest.skip(r#","branch":""#)?;
    let mut stamp = Stamp::on(rest.take(36)?.parse::<BranchId>().map_err(|_| Fault::NotARow)?);
    rest.skip("\"")?;
    if rest.skip(r#","by":"#).is_ok() {
        stamp.by = Some(rest.json()?);
    }
    if rest.skip(r#","usage":"#).is_ok() {
        stamp.usage = Some(rest.json::<Usage>()?).filter(|usage| *usage == usage.within(NUMBER_MAX));
        stamp.usage.ok_or(Fault::NotARow)?;
    }
    if rest.skip(r#","at":"#).is_ok() {
        stamp.at = Some(rest.json()?);
    }
    let mut withheld = None;
    if rest.skip(r#","withheld":""#).is_ok() {
        withheld = Some(rest.digest()?);
        rest.skip("\"")?;
    }
    rest.skip(r#","chunk":"#)?;
    Ok(StepRow { id, parents, stamp, withheld, chunk: rest.to_brace()? })
}

fn gone(mut rest: Rest<'_>) -> Result<Holds<'_>, Fault> {
    let name = rest.digest()?;
    rest.skip("\"")?;
    let mut elsewhere = None;
    if rest.skip(r#","in":""#).is_ok() {
        elsewhere = Some(rest.take(36)?.parse().map_err(|_| Fault::NotARow)?);
        rest.skip("\"")?;
    }
    rest.last("}")?;
    Ok(Holds::Gone(name, elsewhere))
}

fn open(mut rest: Rest<'_>) -> Result<Holds<'_>, Fault> {
    let above_zero = |number: u64| if number > 0 { Ok(number) } else { Err(Fault::NotARow) };
    let epoch = rest.number().and_then(above_zero)?;
    let cut = if rest.skip(r#","cut":"#).is_ok() { rest.number().and_then(above_zero)? } else { 0 };
    rest.skip(r#","by":"#)?;
    let by = rest.json()?;
    rest.last("}")?;
    Ok(Holds::Open { cut, writer: Writer { epoch, by } })
}

fn payload(mut rest: Rest<'_>) -> Result<Holds<'_>, Fault> {
    let digest = rest.digest()?;
    let text = if rest.skip(r#"","text":"#).is_ok() {
        PayloadText::Text(rest.to_brace()?)
    } else {
        rest.skip(r#"","base64":"#)?;
        PayloadText::Base64(rest.to_brace()?)
    };
    Ok(Holds::Payload(digest, text))
}

/// What is left of a line.
#[derive(Clone, Copy)]
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn skip(&mut self, expected: &str) -> Result<(), Fault> {
        self.0 = self.0.strip_prefix(expected).ok_or(Fault::NotARow)?;
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Result<&'a str, Fault> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(Fault::NotARow)?;
        self.0 = rest;
        Ok(taken)
    }

    /// All that is left, but for the brace that closes the row.
    fn to_brace(self) -> Result<&'a str, Fault> {
        self.0.strip_suffix('}').ok_or(Fault::NotARow)
    }

    fn last(&self, expected: &str) -> Result<(), Fault> {
        if self.0 == expected { Ok(()) } else { Err(Fault::NotARow) }
    }

    fn digest(&mut self) -> Result<Digest, Fault> {
        Digest::from_hex(self.take(64)?.as_bytes()).ok_or(Fault::NotARow)
    }

    fn step_id(&mut self) -> Result<StepId, Fault> {
        StepId::from_hex(self.take(64)?.as_bytes()).ok_or(Fault::NotARow)
    }

    /// A number without sign or leading zeros. Below 2^63, so that counting on from it cannot overflow.
    fn number(&mut self) -> Result<u64, Fault> {
        let digits = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let text = self.take(digits)?;
        if text.len() > 1 && text.starts_with('0') {
            return Err(Fault::NotARow);
        }
        text.parse().ok().filter(|number| *number <= NUMBER_MAX).ok_or(Fault::NotARow)
    }

    /// A JSON value that has a type of its own here, in the one spelling that it is written in.
    fn json<T: serde::de::DeserializeOwned + serde::Serialize>(&mut self) -> Result<T, Fault> {
        let mut values = serde_json::Deserializer::from_str(self.0).into_iter::<T>();
        let value = values.next().and_then(Result::ok).ok_or(Fault::NotARow)?;
        let mut spelling = Vec::new();
        push_json(&mut spelling, &value);
        self.0 = self.0.as_bytes().starts_with(&spelling).then(|| &self.0[spelling.len()..]).ok_or(Fault::NotARow)?;
        Ok(value)
    }
}

/// Appends rows to a buffer, each sealed and chained to the one before.
#[derive(Clone, Copy)]
pub(crate) struct RowWriter {
    prev: Seal,
    n: u64,
}

impl RowWriter {
    /// Goes on after row `n`, whose seal is `prev`.
    pub(crate) fn after(n: u64, prev: Seal) -> Self {
        RowWriter { prev, n }
    }

    /// Writes the header.
    pub(crate) fn start(out: &mut Vec<u8>) -> Self {
        let mut writer = RowWriter { prev: Seal([0; 16]), n: 0 };
        writer.sealed(out, |out| {
            push(out, FORMAT);
            push_number(out, super::VERSION);
        });
        writer
    }

    pub(crate) fn step(&mut self, out: &mut Vec<u8>, step: &Step) {
        self.link(out, |out| {
            push(out, r#""id":""#);
            push_hex(out, &step.id().0);
            push(out, r#"","parents":["#);
            for (nth, parent) in step.parents().iter().enumerate() {
                push(out, if nth == 0 { "\"" } else { ",\"" });
                push_hex(out, &parent.id().0);
                out.push(b'"');
            }
            push(out, "],");
            push_stamp(out, step.stamp());
            if let Some(digest) = step.withheld() {
                push(out, r#","withheld":""#);
                push_hex(out, &digest.0);
                out.push(b'"');
            }
            push(out, r#","chunk":"#);
            step.encode_chunk(out);
        });
    }

    pub(crate) fn payload(&mut self, out: &mut Vec<u8>, digest: Digest, payload: &Payload) {
        self.link(out, |out| {
            push(out, r#""payload":""#);
            push_hex(out, &digest.0);
            match payload {
                Payload::Text(text) => {
                    push(out, r#"","text":"#);
                    push_json(out, text);
                }
                Payload::Bytes(bytes) => {
                    push(out, r#"","base64":""#);
                    push(out, &BASE64.encode(bytes));
                    out.push(b'"');
                }
            }
        });
    }

    pub(crate) fn gone(&mut self, out: &mut Vec<u8>, name: [u8; 32], elsewhere: Option<BranchId>) {
        self.link(out, |out| {
            push(out, r#""gone":""#);
            push_hex(out, &name);
            out.push(b'"');
            if let Some(file) = elsewhere {
                push(out, r#","in":""#);
                push(out, &file.to_string());
                out.push(b'"');
            }
        });
    }

    pub(crate) fn open(&mut self, out: &mut Vec<u8>, cut: u64, writer: &Writer) {
        self.link(out, |out| {
            push(out, r#""open":"#);
            push_number(out, writer.epoch);
            if cut > 0 {
                push(out, r#","cut":"#);
                push_number(out, cut);
            }
            push(out, r#","by":"#);
            push_json(out, &writer.by);
        });
    }

    pub(crate) fn end(&mut self, out: &mut Vec<u8>, steps: u64) {
        self.link(out, |out| {
            push(out, r#""end":"#);
            push_number(out, steps);
        });
    }

    fn link(&mut self, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
        self.n += 1;
        let (prev, n) = (self.prev, self.n);
        self.sealed(out, |out| {
            push(out, r#""prev":""#);
            push_hex(out, &prev.0);
            push(out, r#"","n":"#);
            push_number(out, n);
            out.push(b',');
            body(out);
        });
    }

    fn sealed(&mut self, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        push(out, SEAL_OPEN);
        out.extend_from_slice(&[0; Seal::HEX]);
        push(out, r#"","#);
        body(out);
        out.push(b'}');
        self.prev = Seal::of(&out[start + SEALED..]);
        id::write_hex(&self.prev.0, &mut out[start + SEAL_OPEN.len()..][..Seal::HEX]);
        out.push(b'\n');
    }
}

fn push_stamp(out: &mut Vec<u8>, stamp: &Stamp) {
    push(out, r#""branch":""#);
    push(out, &stamp.branch.to_string());
    out.push(b'"');
    if let Some(by) = &stamp.by {
        push(out, r#","by":"#);
        push_json(out, by);
    }
    if let Some(usage) = &stamp.usage {
        push(out, r#","usage":"#);
        push_json(out, &usage.within(NUMBER_MAX));
    }
    if let Some(Timestamp(at)) = &stamp.at {
        push(out, r#","at":"#);
        push_json(out, at);
    }
}

fn push(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + 2 * bytes.len(), 0);
    id::write_hex(bytes, &mut out[start..]);
}

fn push_number(out: &mut Vec<u8>, number: u64) {
    push_json(out, &number);
}

fn push_json(out: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    serde_json::to_writer(out, value).expect("strings, numbers and usage always serialise into a Vec");
}
