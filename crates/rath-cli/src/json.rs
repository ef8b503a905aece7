//! Steps as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use rath::record::draw::BranchNames;
use rath::record::{BranchId, Digest, Parent, Payload, Step, StepId, Usage};
use serde_json::value::RawValue;

use crate::output;

/// A step as JSON: the fields of its row, and the name of its branch.
#[derive(serde::Serialize)]
pub(crate) struct StepJson<'a> {
    id: StepId,
    parents: Vec<StepId>,
    branch: BranchId,
    #[serde(skip_serializing_if = "Option::is_none")]
    branch_name: Option<&'a str>,
    by: Option<&'a str>,
    usage: Option<Usage>,
    at: Option<String>,
    chunk: Box<RawValue>,
    /// Texts that are too long for the row, by digest.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    payloads: BTreeMap<String, String>,
}

impl<'a> StepJson<'a> {
    pub(crate) fn new(step: &'a Step, names: Option<&'a BranchNames>) -> Self {
        let stamp = step.stamp();
        StepJson {
            id: step.id(),
            parents: step.parents().iter().map(Parent::id).collect(),
            branch: stamp.branch,
            branch_name: names.map(|names| names.name_of_step(step)),
            by: stamp.by.as_deref(),
            usage: stamp.usage,
            at: stamp.at.map(output::time),
            chunk: RawValue::from_string(step.json().into_owned()).expect("a chunk is JSON"),
            payloads: text_payloads(step).map(|(digest, text)| (digest.to_string(), text.to_string())).collect(),
        }
    }
}

/// Returns the texts of a step that are stored beside its row.
pub(crate) fn text_payloads(step: &Step) -> impl Iterator<Item = (Digest, Arc<str>)> {
    step.chunk().payloads().into_iter().filter_map(|(digest, payload)| match payload {
        Payload::Text(text) => Some((digest, text)),
        Payload::Bytes(_) => None,
    })
}
