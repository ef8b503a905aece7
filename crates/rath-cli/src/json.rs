//! Steps, damage and notes as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use rath::interchange::Note;
use rath::record::codec::{Fault, Report};
use rath::record::draw::BranchNames;
use rath::record::{BranchId, Digest, Parent, Payload, Step, StepId, Usage};
use rath::store::Damage;
use serde_json::value::RawValue;
use serde_json::{Value, json};

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
    /// The parts of the step that cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    faults: Vec<StepFault>,
}

/// A part of a step that cannot be read.
#[derive(serde::Serialize)]
struct StepFault {
    /// The code of the fault, as `rath verify --json` prints it; `forgotten` for content that was removed on request.
    code: &'static str,
    /// The id of the parent or the digest of the text.
    id: String,
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
            faults: faults(step),
        }
    }
}

/// Returns the parts of a step that cannot be read.
fn faults(step: &Step) -> Vec<StepFault> {
    let fault = |fault: Fault, id: String| StepFault { code: fault.code(), id };
    let parents = step.parents().iter().filter(|parent| parent.step().is_none());
    let parents = parents.map(|parent| fault(Fault::MissingParent(parent.id()), parent.id().to_string()));
    let present: Vec<Digest> = step.chunk().payloads().into_iter().map(|(digest, _)| digest).collect();
    let absent = step.chunk().payload_digests().into_iter().filter(|digest| !present.contains(digest));
    let absent = absent.map(|digest| match step.withheld() {
        None => fault(Fault::MissingPayload(digest), digest.to_string()),
        Some(_) => StepFault { code: "forgotten", id: digest.to_string() },
    });
    parents.chain(absent).collect()
}

/// Returns the damage of a session file.
pub(crate) fn file_damage(report: &Report) -> Vec<Value> {
    let json = |it: &rath::record::codec::Damage| {
        let (line, offset, row, step) = (it.line, it.offset, it.row, it.step);
        json!({"line": line, "offset": offset, "row": row, "step": step, "code": it.fault.code(), "fault": it.fault.to_string()})
    };
    report.damage.iter().map(json).collect()
}

/// Returns the damage of a store.
pub(crate) fn store_damage(damage: &[Damage]) -> Vec<Value> {
    let json = |it: &Damage| json!({"place": it.place, "step": it.step, "fault": it.what});
    damage.iter().map(json).collect()
}

/// Returns the notes of an import or an export.
pub(crate) fn notes(notes: &[Note]) -> Vec<Value> {
    notes.iter().map(|note| json!({"code": note.code.as_str(), "note": note.text})).collect()
}

/// Returns the texts of a step that are stored beside its row.
pub(crate) fn text_payloads(step: &Step) -> impl Iterator<Item = (Digest, Arc<str>)> {
    step.chunk().payloads().into_iter().filter_map(|(digest, payload)| match payload {
        Payload::Text(text) => Some((digest, text)),
        Payload::Bytes(_) => None,
    })
}
