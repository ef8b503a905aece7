//! The header and the trailer of a file.

use std::collections::HashSet;

use rath_record::chunk::Chunk;
use rath_record::{BranchId, Usage, draw};

use super::super::{ORIGIN_PREFIX, SessionOrigin, VERSION};
use super::ParsedChunk;
use crate::error::ErrorKind;
use crate::interchange::builder::RecordBuilder;
use crate::interchange::notes::{NoteCode, Notes};
use crate::interchange::object::ObjectReader;
use crate::interchange::time;
use crate::session::{Error, Result};

/// The values of `lineage_kind` that the Python OpenRath knows.
const LINEAGE_KINDS: [&str; 9] = [
    "unknown",
    "leaf_user",
    "leaf_system",
    "op_create",
    "op_session_loop",
    "op_fork",
    "op_detach",
    "op_merge",
    "op_session_compress",
];

/// A header row.
pub(super) struct ParsedHeader {
    origin: SessionOrigin,
    pub(super) branch: Option<BranchId>,
    /// True if rath wrote the file.
    pub(super) is_from_rath: bool,
    place: Option<String>,
}

impl ParsedHeader {
    pub(super) fn read(mut row: ObjectReader<'_>, notes: &Notes) -> Result<Self> {
        check_version(&mut row)?;
        let id = row.take_string("id").unwrap_or_default();
        let branch = branch_id(&id);
        if branch.is_none() {
            row.note(
                NoteCode::Invalid,
                format_args!("wanted a UUID as `id`, found `{}`: the session gets a new id", draw::preview(&id)),
            );
        }
        let created_at = row.take_string("created_at");
        if created_at.as_deref().and_then(time::parse).is_none() {
            row.note(NoteCode::Invalid, "there is no time as `created_at`");
        }
        let parent_session_ids: Vec<String> = row.take("parent_session_ids", "a list of ids").unwrap_or_default();
        for parent in parent_session_ids.iter().filter(|parent| uuid::Uuid::try_parse(parent).is_err()) {
            row.note(
                NoteCode::Invalid,
                format_args!("wanted UUIDs as `parent_session_ids`, found `{}`", draw::preview(parent)),
            );
        }
        let operator = row.take_string("lineage_operator");
        let kind = row.take_string("lineage_kind");
        if operator.is_none() || !kind.as_deref().is_some_and(|kind| LINEAGE_KINDS.contains(&kind)) {
            let found = kind.as_deref().map_or("none".to_owned(), draw::preview);
            row.note(
                NoteCode::Invalid,
                format_args!("the origin of the session is not known: `lineage_kind` is {found}"),
            );
        }
        let lineage_extras = row.take("lineage_extras", "a list of pairs").unwrap_or_default();
        let backend = row.take_string("sandbox_backend");
        let directory = take_working_dir(&mut row);
        let handle = row.take_string("sandbox_handle_id");
        let rath = row.take_object("rath");
        let is_from_rath = rath.is_some();
        let place = rath.and_then(|mut rath| {
            let place = rath.take_string("place");
            rath.finish();
            place
        });
        if let (Some(backend), None) = (&backend, &place) {
            let directory =
                directory.map(|directory| format!(", in `{}`", draw::preview(&directory))).unwrap_or_default();
            notes.add(
                NoteCode::Changed,
                format!(
                    "its tools ran in a sandbox of kind `{}`{directory}: choose where they run now with `Session::to`",
                    draw::preview(backend)
                ),
            );
        }
        let origin = SessionOrigin {
            id: branch.map_or(id, |branch| branch.to_string()),
            created_at,
            parent_session_ids,
            lineage_operator: operator.unwrap_or_else(|| "implicit".to_owned()),
            lineage_kind: kind.unwrap_or_else(|| "unknown".to_owned()),
            lineage_extras,
            sandbox_backend: backend,
            sandbox_handle_id: handle,
        };
        row.finish();
        Ok(ParsedHeader { origin, branch, is_from_rath, place })
    }

    /// Returns the ids of the parent sessions, as far as they are ids.
    pub(super) fn parents(&self) -> impl Iterator<Item = BranchId> {
        self.origin.parent_session_ids.iter().filter_map(|id| branch_id(id))
    }

    /// Returns the kind of operation that made the session.
    pub(super) fn lineage_kind(&self) -> &str {
        &self.origin.lineage_kind
    }

    /// Appends the origin of the session to the record, and returns the place of the session. `first` is the first row of the
    /// session, and `known` has the sessions that are read together with it.
    pub(super) fn push_to(
        self,
        record: &mut RecordBuilder,
        first: Option<&ParsedChunk>,
        known: &HashSet<BranchId>,
        notes: &Notes,
    ) -> Option<String> {
        let origin = &self.origin;
        let began = origin.created_at.as_deref().and_then(time::parse).filter(|_| !self.is_from_rath);
        // The first step of a session without parents shows how and when the session began.
        let kind = |parsed: &ParsedChunk| match parsed.chunk {
            Chunk::Instructions(_) => "leaf_system",
            Chunk::User(_) => "leaf_user",
            _ => "op_create",
        };
        let is_shown = first.is_some_and(|first| {
            let at = first.extras.at.and_then(time::format);
            origin.lineage_kind == kind(first) && (at == origin.created_at || first.extras.at.is_none())
        });
        if !self.is_from_rath || !is_shown || !origin.parent_session_ids.is_empty() {
            let json = serde_json::to_string(origin).expect("an origin has string keys and no numbers of its own");
            record.push_note(format!("{ORIGIN_PREFIX}{json}"), began, None);
        }
        let is_elsewhere = |id: &&String| branch_id(id).is_none_or(|id| !known.contains(&id));
        let parents: Vec<_> =
            origin.parent_session_ids.iter().filter(is_elsewhere).map(|id| draw::preview(id)).collect();
        if !parents.is_empty() {
            let operator = draw::preview(&origin.lineage_operator);
            notes.add(
                NoteCode::Elsewhere,
                format!(
                    "derived by {operator} from other sessions, which are not in this file: {}",
                    parents.join(", ")
                ),
            );
        }
        self.place
    }
}

fn branch_id(id: &str) -> Option<BranchId> {
    uuid::Uuid::try_parse(id).ok().map(|id| BranchId(id.into_bytes()))
}

/// Fails if the header has another version than the one that is known.
fn check_version(row: &mut ObjectReader<'_>) -> Result<()> {
    match row.take_number("schema_version") {
        Some(VERSION) => {}
        Some(version) => {
            return Err(Error::new(
                ErrorKind::Format,
                format_args!("wanted a session file of version {VERSION}, found version {version}"),
            )
            .with_hint(if version > VERSION {
                "read it with a newer rath"
            } else {
                "save it again with the Python OpenRath that wrote it"
            }));
        }
        None => row.note(NoteCode::Invalid, format_args!("wanted {VERSION} as `schema_version`, found none")),
    }
    Ok(())
}

/// Takes the sandbox of a header and returns its working directory.
fn take_working_dir(row: &mut ObjectReader<'_>) -> Option<String> {
    let mut spec = row.take_object("sandbox_spec")?;
    // The environment may hold keys: it is not read.
    let is_set = ["image", "entrypoint", "env", "timeout_seconds"].map(|name| spec.take_raw(name).is_some());
    if is_set.contains(&true) {
        spec.note(
            NoteCode::LeftOut,
            "the settings of the sandbox (image, entry point, environment, time limit) are left out",
        );
    }
    let directory = spec.take_string("working_dir");
    spec.finish();
    directory
}

/// A trailer row.
pub(super) struct ParsedTrailer {
    pub(super) usage: Option<Usage>,
    /// The total that rath counted, if rath wrote the file.
    pub(super) rath_usage: Option<Usage>,
}

impl ParsedTrailer {
    /// Reads a trailer. `chunk_count` is the number of chunk rows that could be read.
    pub(super) fn read(mut row: ObjectReader<'_>, chunk_count: u64, notes: &Notes) -> Self {
        match row.take_number("final_chunk_count") {
            Some(count) if count == chunk_count => {}
            Some(count) => {
                row.note(
                    NoteCode::Mismatch,
                    format_args!("counts {}, and {chunk_count} could be read", draw::count(count, "chunk")),
                );
            }
            None => row.note(NoteCode::Invalid, "does not count the chunks"),
        }
        if let Some(at) = row.take_string("closed_at").filter(|at| time::parse(at).is_none()) {
            row.note(NoteCode::Invalid, format_args!("wanted a time as `closed_at`, found `{}`", draw::preview(&at)));
        }
        let usage = row.take_object("cumulative_usage").map(|mut tokens| {
            let [input, output, total] =
                ["prompt_tokens", "completion_tokens", "total_tokens"].map(|name| tokens.take_number(name));
            let usage = Usage::new(input.unwrap_or_default(), output.unwrap_or_default());
            if [input, output, total].contains(&None) || total != Some(usage.total()) {
                tokens.note(NoteCode::Mismatch, "the tokens do not add up");
            }
            tokens.finish();
            usage
        });
        let rath_usage = row.take_object("rath").and_then(|mut rath| {
            let usage: Option<Usage> = rath.take("usage", "tokens");
            rath.finish();
            usage
        });
        if let Some((total, usage)) = rath_usage.zip(usage)
            && (total.input, total.output) != (usage.input, usage.output)
        {
            notes.add(
                NoteCode::Mismatch,
                format!("the trailer holds two counts of tokens that differ: {usage}, and {total}"),
            );
        }
        row.finish();
        ParsedTrailer { usage, rath_usage }
    }
}
