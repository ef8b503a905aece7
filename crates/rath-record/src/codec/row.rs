//! Parsing and writing one line of a file.
//!
//! The layout is fixed, so that a row has exactly one spelling, except for the JSON of its chunk or payload.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::damage::Fault;
use super::objects::{Object, ObjectContent, ObjectKind};
use crate::id::{self, BranchId, Digest, ObjectId, Seal, StepId, Timestamp};
use crate::payload::Payload;
use crate::step::{Stamp, Step};
use crate::usage::Usage;

/// The bytes at the start of a row, up to the digits of its seal. Every session file begins with them. See `docs/format.md`.
pub const ROW_START: &str = r#"{"seal":""#;
/// The offset of the first byte that the seal covers.
const SEALED_START: usize = ROW_START.len() + Seal::HEX_DIGITS + r#"","#.len();
/// The largest number in a row.
pub(crate) const MAX_NUMBER: u64 = i64::MAX as u64;
/// The bytes of the header after its seal, up to the version.
const HEADER_START: &str = r#""format":"rath record","version":"#;

/// The member of a row that was written when all rows before it were durable.
const AFTER_SYNC: &str = r#""after_sync":true,"#;

/// A row whose seal matches.
pub(crate) struct Row<'a> {
    pub(crate) seal: Seal,
    pub(crate) body: RowBody<'a>,
}

impl Row<'_> {
    /// The row's number.
    pub(crate) fn n(&self) -> u64 {
        match self.body {
            RowBody::Header { .. } => 0,
            RowBody::Chained { n, .. } => n,
        }
    }
}

/// The layout of a row.
#[allow(clippy::large_enum_variant, reason = "every row but the first is the large one, and none is kept")]
pub(crate) enum RowBody<'a> {
    /// The first line.
    Header { version: u64 },
    /// A line of the chain: its number, the seal of the line before, and its content.
    Chained { n: u64, prev: Seal, after_sync: bool, content: RowContent<'a> },
}

/// The content of a row of the chain.
#[allow(clippy::large_enum_variant, reason = "nearly every row is the large one, and none is kept")]
pub(crate) enum RowContent<'a> {
    Step(StepRow<'a>),
    Payload(Digest, PayloadText<'a>),
    /// An id or digest that is declared as absent: lost, withheld, or in the file of another session.
    Gone(Digest, Option<BranchId>),
    /// A version of a file or of a directory.
    Object(Object),
    /// A writer opened the file, in version 1 perhaps after `cut` bytes of a row that was cut off.
    Open {
        cut: u64,
        writer: WriterInfo,
    },
    /// The last line, with the number of steps.
    End {
        steps: u64,
    },
}

/// The signature of a user under a step. Programs choose how they sign; a file holds the bytes.
///
/// 15 bytes are 20 characters of base64, without padding.
///
/// Part of [`FileContents`](super::FileContents). See [`Encoder::push_signed_step`](super::Encoder::push_signed_step) for an example.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature(pub [u8; Signature::BYTES]);

impl Signature {
    /// The length of a signature, in bytes.
    pub const BYTES: usize = 15;
    const BASE64_DIGITS: usize = 20;
}

/// Shows none of the bytes: a signature is for the user who made it.
impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signature(..)")
    }
}

/// The writer of a file.
///
/// Part of [`FileContents`](super::FileContents).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriterInfo {
    /// The number of times that the file was opened for writing, this time included.
    pub epoch: u64,
    /// A name that the writer gives itself.
    pub by: String,
}

/// A step as its row holds it.
pub(crate) struct StepRow<'a> {
    pub(crate) id: StepId,
    pub(crate) parents: ParentIds,
    pub(crate) stamp: Stamp,
    /// The digest that the id was computed from, if the chunk is a redacted copy.
    pub(crate) withheld: Option<Digest>,
    pub(crate) signature: Option<Signature>,
    /// The chunk's JSON, not validated yet.
    pub(crate) chunk: &'a str,
}

/// The ids of up to two parents.
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

/// A payload as its row holds it.
pub(crate) enum PayloadText<'a> {
    /// The JSON string of a text.
    Text(&'a str),
    /// The JSON string of base64-encoded bytes.
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

/// Parses one line, without its line break.
pub(crate) fn parse(line: &[u8]) -> Result<Row<'_>, Fault> {
    let rest = line.strip_prefix(ROW_START.as_bytes()).ok_or(Fault::NotARow)?;
    let (seal, rest) = rest.split_at_checked(Seal::HEX_DIGITS).ok_or(Fault::NotARow)?;
    let seal = Seal::from_hex(seal).ok_or(Fault::NotARow)?;
    let sealed = rest.strip_prefix(b"\",").ok_or(Fault::NotARow)?;
    if Seal::compute(sealed) != seal {
        return Err(Fault::SealMismatch);
    }
    // The seal matches, so the bytes are as they were written: a row that cannot be parsed was written so.
    let mut row = RowCursor(std::str::from_utf8(sealed).map_err(|_| Fault::NotARow)?);
    if row.skip(HEADER_START).is_ok() {
        let version = row.parse_number()?;
        if version == 0 {
            return Err(Fault::NotARow);
        }
        // The other members of a newer header are unknown to this version.
        if version <= super::FORMAT_VERSION {
            row.expect_end("}")?;
        }
        return Ok(Row { seal, body: RowBody::Header { version } });
    }
    row.skip(r#""prev":""#)?;
    let prev = Seal::from_hex(row.take(Seal::HEX_DIGITS)?.as_bytes()).ok_or(Fault::NotARow)?;
    row.skip(r#"","n":"#)?;
    let n = row.parse_number()?;
    row.skip(",")?;
    let after_sync = row.skip(AFTER_SYNC).is_ok();
    let content = if row.skip(r#""id":""#).is_ok() {
        RowContent::Step(parse_step(row)?)
    } else if row.skip(r#""payload":""#).is_ok() {
        parse_payload(row)?
    } else if row.skip(r#""gone":""#).is_ok() {
        parse_gone(row)?
    } else if row.skip(r#""object":""#).is_ok() {
        parse_object(row)?
    } else if row.skip(r#""open":"#).is_ok() {
        parse_open(row)?
    } else {
        row.skip(r#""end":"#)?;
        let steps = row.parse_number()?;
        row.expect_end("}")?;
        RowContent::End { steps }
    };
    Ok(Row { seal, body: RowBody::Chained { n, prev, after_sync, content } })
}

fn parse_step(mut row: RowCursor<'_>) -> Result<StepRow<'_>, Fault> {
    let id = row.parse_step_id()?;
    row.skip(r#"","parents":["#)?;
    let mut parents = ParentIds { ids: [id; 2], count: 0 };
    if row.skip("]").is_err() {
        loop {
            row.skip("\"")?;
            *parents.ids.get_mut(parents.count).ok_or(Fault::NotARow)? = row.parse_step_id()?;
            parents.count += 1;
            row.skip("\"")?;
            if row.skip("]").is_ok() {
                break;
            }
            row.skip(",")?;
        }
    }
    row.skip(r#","branch":""#)?;
    let mut stamp = Stamp::on(row.take(36)?.parse::<BranchId>().map_err(|_| Fault::NotARow)?);
    row.skip("\"")?;
    if row.skip(r#","by":"#).is_ok() {
        stamp.by = Some(row.parse_json()?);
    }
    if row.skip(r#","usage":"#).is_ok() {
        stamp.usage = Some(row.parse_json::<Usage>()?).filter(|usage| *usage == usage.capped_at(MAX_NUMBER));
        stamp.usage.ok_or(Fault::NotARow)?;
    }
    if row.skip(r#","at":"#).is_ok() {
        stamp.at = Some(row.parse_json()?);
    }
    let mut withheld = None;
    if row.skip(r#","withheld":""#).is_ok() {
        withheld = Some(row.parse_digest()?);
        row.skip("\"")?;
    }
    let mut signature = None;
    if row.skip(r#","signed":""#).is_ok() {
        signature = Some(row.parse_signature()?);
        row.skip("\"")?;
    }
    row.skip(r#","chunk":"#)?;
    Ok(StepRow { id, parents, stamp, withheld, signature, chunk: row.up_to_brace()? })
}

fn parse_gone(mut row: RowCursor<'_>) -> Result<RowContent<'_>, Fault> {
    let name = row.parse_digest()?;
    row.skip("\"")?;
    let mut elsewhere = None;
    if row.skip(r#","in":""#).is_ok() {
        elsewhere = Some(row.take(36)?.parse().map_err(|_| Fault::NotARow)?);
        row.skip("\"")?;
    }
    row.expect_end("}")?;
    Ok(RowContent::Gone(name, elsewhere))
}

fn parse_object(mut row: RowCursor<'_>) -> Result<RowContent<'_>, Fault> {
    let id = ObjectId::from_hex(row.take(ObjectId::HEX_DIGITS)?.as_bytes()).ok_or(Fault::NotARow)?;
    row.skip("\",")?;
    let kinds = [ObjectKind::Blob, ObjectKind::Tree];
    let kind = kinds.into_iter().find(|kind| row.skip(&format!(r#""{}":"#, kind.name())).is_ok());
    let content = if let Some(kind) = kind {
        let bytes = row.parse_number()?;
        row.skip(r#","zlib":""#)?;
        let text = row.0.strip_suffix("\"}").ok_or(Fault::NotARow)?;
        let zlib = BASE64.decode(text).map_err(|_| Fault::NotARow)?;
        ObjectContent::Here { kind, bytes, zlib }
    } else if row.skip(r#""missing":true"#).is_ok() {
        row.expect_end("}")?;
        ObjectContent::Missing
    } else {
        row.skip(r#""forgotten":"#)?;
        let bytes = row.parse_number()?;
        row.skip(r#","digest":""#)?;
        let digest = row.parse_digest()?;
        row.expect_end("\"}")?;
        ObjectContent::Forgotten { bytes, digest }
    };
    Ok(RowContent::Object(Object { id, content }))
}

fn parse_open(mut row: RowCursor<'_>) -> Result<RowContent<'_>, Fault> {
    let above_zero = |number: u64| if number > 0 { Ok(number) } else { Err(Fault::NotARow) };
    let epoch = row.parse_number().and_then(above_zero)?;
    let cut = if row.skip(r#","cut":"#).is_ok() { row.parse_number().and_then(above_zero)? } else { 0 };
    row.skip(r#","by":"#)?;
    let by = row.parse_json()?;
    row.expect_end("}")?;
    Ok(RowContent::Open { cut, writer: WriterInfo { epoch, by } })
}

fn parse_payload(mut row: RowCursor<'_>) -> Result<RowContent<'_>, Fault> {
    let digest = row.parse_digest()?;
    let text = if row.skip(r#"","text":"#).is_ok() {
        PayloadText::Text(row.up_to_brace()?)
    } else {
        row.skip(r#"","base64":"#)?;
        PayloadText::Base64(row.up_to_brace()?)
    };
    Ok(RowContent::Payload(digest, text))
}

/// A cursor over the part of a line that is not parsed yet.
#[derive(Clone, Copy)]
struct RowCursor<'a>(&'a str);

impl<'a> RowCursor<'a> {
    fn skip(&mut self, expected: &str) -> Result<(), Fault> {
        self.0 = self.0.strip_prefix(expected).ok_or(Fault::NotARow)?;
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Result<&'a str, Fault> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(Fault::NotARow)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Returns everything up to the brace that closes the row.
    fn up_to_brace(self) -> Result<&'a str, Fault> {
        self.0.strip_suffix('}').ok_or(Fault::NotARow)
    }

    fn expect_end(&self, expected: &str) -> Result<(), Fault> {
        if self.0 == expected { Ok(()) } else { Err(Fault::NotARow) }
    }

    fn parse_digest(&mut self) -> Result<Digest, Fault> {
        Digest::from_hex(self.take(64)?.as_bytes()).ok_or(Fault::NotARow)
    }

    fn parse_signature(&mut self) -> Result<Signature, Fault> {
        let bytes = BASE64.decode(self.take(Signature::BASE64_DIGITS)?).ok();
        bytes.and_then(|bytes| bytes.try_into().ok()).map(Signature).ok_or(Fault::NotARow)
    }

    fn parse_step_id(&mut self) -> Result<StepId, Fault> {
        StepId::from_hex(self.take(64)?.as_bytes()).ok_or(Fault::NotARow)
    }

    /// Parses a number without sign or leading zeros.
    ///
    /// It must be below 2^63, so that counting on from it cannot overflow.
    fn parse_number(&mut self) -> Result<u64, Fault> {
        let digits = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let text = self.take(digits)?;
        if text.len() > 1 && text.starts_with('0') {
            return Err(Fault::NotARow);
        }
        text.parse().ok().filter(|number| *number <= MAX_NUMBER).ok_or(Fault::NotARow)
    }

    /// Parses a JSON value of a known type, and accepts only the spelling that this program writes.
    fn parse_json<T: serde::de::DeserializeOwned + serde::Serialize>(&mut self) -> Result<T, Fault> {
        let mut values = serde_json::Deserializer::from_str(self.0).into_iter::<T>();
        let value = values.next().and_then(Result::ok).ok_or(Fault::NotARow)?;
        let mut spelling = Vec::new();
        push_json(&mut spelling, &value);
        self.0 = self.0.as_bytes().starts_with(&spelling).then(|| &self.0[spelling.len()..]).ok_or(Fault::NotARow)?;
        Ok(value)
    }
}

/// Appends rows to a buffer, each sealed and chained to the row before.
#[derive(Clone, Copy)]
pub(crate) struct RowWriter {
    prev: Seal,
    n: u64,
    /// True if all rows so far are durable, which the next row says.
    is_synced: bool,
}

impl RowWriter {
    /// Continues after row `n`, whose seal is `prev`.
    pub(crate) fn after(n: u64, prev: Seal) -> Self {
        RowWriter { prev, n, is_synced: false }
    }

    /// Makes the next row say that all rows so far are durable.
    pub(crate) fn mark_synced(&mut self) {
        self.is_synced = true;
    }

    /// Writes the header.
    pub(crate) fn start(out: &mut Vec<u8>, version: u64) -> Self {
        let mut writer = RowWriter { prev: Seal([0; 16]), n: 0, is_synced: false };
        writer.push_sealed(out, |out| {
            push(out, HEADER_START);
            push_number(out, version);
        });
        writer
    }

    pub(crate) fn step(&mut self, out: &mut Vec<u8>, step: &Step, signature: Option<Signature>) {
        self.push_chained(out, |out| {
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
            if let Some(signature) = signature {
                push(out, r#","signed":""#);
                push(out, &BASE64.encode(signature.0));
                out.push(b'"');
            }
            push(out, r#","chunk":"#);
            step.encode_chunk(out);
        });
    }

    pub(crate) fn payload(&mut self, out: &mut Vec<u8>, digest: Digest, payload: &Payload) {
        self.push_chained(out, |out| {
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
        self.push_chained(out, |out| {
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

    pub(crate) fn object(&mut self, out: &mut Vec<u8>, object: &Object) {
        self.push_chained(out, |out| {
            push(out, r#""object":""#);
            push_hex(out, &object.id.0);
            push(out, "\",");
            match &object.content {
                ObjectContent::Here { kind, bytes, zlib } => {
                    push(out, &format!(r#""{}":{bytes},"zlib":""#, kind.name()));
                    let start = out.len();
                    out.resize(start + zlib.len().div_ceil(3) * 4, 0);
                    BASE64.encode_slice(zlib, &mut out[start..]).expect("the buffer has the length of the text");
                    out.push(b'"');
                }
                ObjectContent::Missing => push(out, r#""missing":true"#),
                ObjectContent::Forgotten { bytes, digest } => {
                    push(out, &format!(r#""forgotten":{bytes},"digest":"{digest}""#));
                }
            }
        });
    }

    pub(crate) fn open(&mut self, out: &mut Vec<u8>, writer: &WriterInfo) {
        self.push_chained(out, |out| {
            push(out, r#""open":"#);
            push_number(out, writer.epoch);
            push(out, r#","by":"#);
            push_json(out, &writer.by);
        });
    }

    pub(crate) fn end(&mut self, out: &mut Vec<u8>, steps: u64) {
        self.push_chained(out, |out| {
            push(out, r#""end":"#);
            push_number(out, steps);
        });
    }

    fn push_chained(&mut self, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
        self.n += 1;
        let (prev, n, is_synced) = (self.prev, self.n, std::mem::take(&mut self.is_synced));
        self.push_sealed(out, |out| {
            push(out, r#""prev":""#);
            push_hex(out, &prev.0);
            push(out, r#"","n":"#);
            push_number(out, n);
            out.push(b',');
            if is_synced {
                push(out, AFTER_SYNC);
            }
            body(out);
        });
    }

    fn push_sealed(&mut self, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        push(out, ROW_START);
        out.extend_from_slice(&[0; Seal::HEX_DIGITS]);
        push(out, r#"","#);
        body(out);
        out.push(b'}');
        self.prev = Seal::compute(&out[start + SEALED_START..]);
        id::write_hex(&self.prev.0, &mut out[start + ROW_START.len()..][..Seal::HEX_DIGITS]);
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
        push_json(out, &usage.capped_at(MAX_NUMBER));
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
