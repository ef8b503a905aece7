//! The rows of payloads: texts and bytes that are too long for a step.

use std::collections::HashSet;

use rath_record::chunk::Chunk;
use rath_record::{Digest, Payload, Seal};
use rusqlite::{Connection, OptionalExtension, params};

use super::scan::is_damage;
use super::step_row::SEAL_BYTES;

const BYTES: u8 = 0;
const TEXT: u8 = 1;
const ERASED: u8 = 2;
/// It was lost before its step was stored here.
const LOST: u8 = 3;

/// The state of a payload in the table.
pub(super) enum StoredPayload {
    Good(Payload),
    Erased,
    Lost,
    Missing,
    Changed,
    Unreadable(rusqlite::Error),
}

/// Inserts a payload, unless it is there. An erased or lost payload is restored.
pub(super) fn insert(connection: &Connection, digest: Digest, payload: &Payload) -> rusqlite::Result<()> {
    let kind = if matches!(payload, Payload::Text(_)) { TEXT } else { BYTES };
    let sql = "INSERT INTO payloads(digest, state, data) VALUES (?1, ?2, ?3)
               ON CONFLICT(digest) DO UPDATE SET state = excluded.state, data = excluded.data WHERE state IN (?4, ?5)";
    let [state, erased, lost] = [kind, ERASED, LOST].map(|kind| state(digest, kind));
    let values = params![&digest.0[..], &state[..], payload.bytes(), &erased[..], &lost[..]];
    connection.prepare_cached(sql)?.execute(values).map(|_| ())
}

/// Notes that a payload was lost before its step was stored here, unless it is there: then its loss is no damage of this store.
pub(super) fn insert_lost(connection: &Connection, digest: Digest) -> rusqlite::Result<()> {
    let sql = "INSERT INTO payloads(digest, state, data) VALUES (?, ?, x'') ON CONFLICT(digest) DO NOTHING";
    connection.prepare_cached(sql)?.execute(params![&digest.0[..], &state(digest, LOST)[..]]).map(|_| ())
}

/// Stores a payload again that was lost or changed. Returns false if it is there, or was erased.
pub(super) fn restore(connection: &Connection, digest: Digest, payload: &Payload) -> rusqlite::Result<bool> {
    if matches!(read(connection, &digest)?, StoredPayload::Good(_) | StoredPayload::Erased) {
        return Ok(false);
    }
    connection.prepare_cached("DELETE FROM payloads WHERE digest = ?")?.execute([&digest.0[..]])?;
    insert(connection, digest, payload)?;
    Ok(true)
}

/// Erases the content of a payload. Its row stays, so that it counts as erased and not as lost.
pub(super) fn erase(connection: &Connection, digest: Digest) -> rusqlite::Result<()> {
    let mut update = connection.prepare_cached("UPDATE payloads SET state = ?, data = x'' WHERE digest = ?")?;
    update.execute(params![&state(digest, ERASED)[..], &digest.0[..]]).map(|_| ())
}

/// Reads a payload and checks it. Fails only if the system does.
pub(super) fn read(connection: &Connection, digest: &Digest) -> rusqlite::Result<StoredPayload> {
    let mut select = connection.prepare_cached("SELECT state, data FROM payloads WHERE digest = ?")?;
    let found = select.query_row([&digest.0[..]], |row| {
        let (stored, data) = (row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
        let kind = stored.first().copied().filter(|kind| state(*digest, *kind) == *stored);
        let is_same = || Digest::compute(data) == *digest;
        Ok(match (kind, std::str::from_utf8(data)) {
            (Some(ERASED), _) => StoredPayload::Erased,
            (Some(LOST), _) => StoredPayload::Lost,
            (Some(TEXT), Ok(text)) if is_same() => StoredPayload::Good(Payload::Text(text.into())),
            (Some(BYTES), _) if is_same() => StoredPayload::Good(Payload::Bytes(data.into())),
            _ => StoredPayload::Changed,
        })
    });
    match found.optional() {
        Ok(found) => Ok(found.unwrap_or(StoredPayload::Missing)),
        Err(error) if is_damage(&error) => Ok(StoredPayload::Unreadable(error)),
        Err(error) => Err(error),
    }
}

/// Returns the digests of all payloads that a chunk refers to.
pub(super) fn digests(json: &str) -> Vec<Digest> {
    // Only a chunk with a payload has a digest.
    if memchr::memmem::find(json.as_bytes(), b"\"digest\":").is_none() {
        return Vec::new();
    }
    match Chunk::decode(json) {
        Ok(Chunk::Other(other)) => other.json().split('"').filter_map(|it| Digest::from_hex(it.as_bytes())).collect(),
        Ok(chunk) => chunk.payload_digests(),
        Err(_) => Vec::new(),
    }
}

/// Deletes all payloads but these.
pub(super) fn sweep(connection: &Connection, referenced: &HashSet<Digest>) -> rusqlite::Result<()> {
    let digests: Vec<(i64, Option<Digest>)> = connection
        .prepare("SELECT p, digest FROM payloads")?
        .query_map([], |row| Ok((row.get(0)?, row.get_ref(1)?.as_blob()?.try_into().ok().map(Digest))))?
        .collect::<rusqlite::Result<_>>()?;
    for (p, _) in digests.iter().filter(|(_, digest)| !digest.is_some_and(|digest| referenced.contains(&digest))) {
        connection.prepare_cached("DELETE FROM payloads WHERE p = ?")?.execute([p])?;
    }
    Ok(())
}

/// Packs the state of a payload, with a seal.
fn state(digest: Digest, kind: u8) -> [u8; 1 + SEAL_BYTES] {
    let (mut sealed, mut state) = ([kind; 33], [kind; 1 + SEAL_BYTES]);
    sealed[1..].copy_from_slice(&digest.0);
    state[1..].copy_from_slice(&Seal::compute(&sealed).0);
    state
}
