//! The rows of the format, as they are written. The names of the fields are the members of the format.

use std::sync::Arc;

use rath_record::Usage;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::interchange::extras::Extras;

#[derive(Serialize)]
pub(super) struct HeaderRow {
    pub(super) record_type: &'static str,
    pub(super) schema_version: u64,
    pub(super) id: String,
    pub(super) created_at: String,
    pub(super) parent_session_ids: Vec<String>,
    pub(super) lineage_operator: String,
    pub(super) lineage_kind: String,
    pub(super) lineage_extras: Vec<(String, Arc<RawValue>)>,
    pub(super) sandbox_backend: Option<String>,
    pub(super) sandbox_spec: Option<SandboxSpec>,
    pub(super) sandbox_handle_id: Option<String>,
    pub(super) rath: HeaderExtras,
}

#[derive(Serialize)]
pub(super) struct SandboxSpec {
    pub(super) image: Option<String>,
    pub(super) entrypoint: Option<Vec<String>>,
    pub(super) env: Option<()>,
    pub(super) timeout_seconds: Option<f64>,
    pub(super) working_dir: String,
}

/// The member `rath` of a header. Its presence shows that rath wrote the file.
#[derive(Serialize)]
pub(super) struct HeaderExtras {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) place: Option<String>,
}

#[derive(Serialize)]
pub(super) struct ChunkRow<P> {
    pub(super) record_type: &'static str,
    pub(super) index: u64,
    pub(super) kind: &'static str,
    pub(super) payload: P,
}

/// The payload of a `system` or `user` row.
#[derive(Serialize)]
pub(super) struct MessagePayload<'a> {
    pub(super) content: &'a str,
    pub(super) rath: Extras,
}

#[derive(Serialize)]
pub(super) struct AssistantPayload<'a> {
    pub(super) content: Option<&'a str>,
    pub(super) tool_calls: Option<Vec<CallObject<'a>>>,
    pub(super) rath: Extras,
}

#[derive(Serialize)]
pub(super) struct CallObject<'a> {
    pub(super) id: String,
    pub(super) r#type: &'static str,
    pub(super) function: CallFunction<'a>,
}

#[derive(Serialize)]
pub(super) struct CallFunction<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: String,
}

/// The payload of a `tool_result` row.
#[derive(Serialize)]
pub(super) struct ResultPayload<'a> {
    pub(super) tool_call_id: String,
    pub(super) name: &'a str,
    pub(super) content: &'a str,
    pub(super) rath: Extras,
}

#[derive(Serialize)]
pub(super) struct TrailerRow {
    pub(super) record_type: &'static str,
    pub(super) closed_at: Option<String>,
    pub(super) final_chunk_count: u64,
    pub(super) cumulative_usage: Option<TokenCounts>,
    pub(super) rath: TrailerExtras,
}

#[derive(Serialize)]
pub(super) struct TokenCounts {
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
    pub(super) total_tokens: u64,
}

/// The member `rath` of a trailer: all tokens, with the kinds that the format has no members for.
#[derive(Serialize)]
pub(super) struct TrailerExtras {
    pub(super) usage: Usage,
}
