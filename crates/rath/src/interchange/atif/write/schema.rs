//! The objects of the format, as they are written. The names of the fields are the members of the format.

use rath_record::chunk::{Json, ToolSpec};
use serde::Serialize;
use serde_json::value::RawValue;

use super::super::TrajectoryExtras;
use crate::interchange::extras::Extras;

/// A trajectory: the document, or a sub-agent's part of it.
#[derive(Serialize)]
pub(super) struct Trajectory {
    pub(super) schema_version: &'static str,
    pub(super) session_id: String,
    pub(super) trajectory_id: String,
    pub(super) agent: AgentObject,
    pub(super) steps: Vec<StepObject>,
    pub(super) final_metrics: FinalMetrics,
    pub(super) extra: RathExtra<TrajectoryExtras>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) subagent_trajectories: Vec<Trajectory>,
}

/// An `extra` member, which the format leaves to its writers.
#[derive(Serialize)]
pub(super) struct RathExtra<T> {
    pub(super) rath: T,
}

#[derive(Serialize)]
pub(super) struct AgentObject {
    pub(super) name: String,
    pub(super) version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model_name: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_definitions: Vec<ToolObject>,
}

#[derive(Serialize)]
pub(super) struct ToolObject {
    r#type: &'static str,
    function: FunctionObject,
}

#[derive(Serialize)]
struct FunctionObject {
    name: String,
    description: String,
    parameters: Json,
}

impl ToolObject {
    pub(super) fn new(ToolSpec { name, description, parameters, .. }: ToolSpec) -> Self {
        ToolObject { r#type: "function", function: FunctionObject { name, description, parameters } }
    }
}

#[derive(Serialize)]
pub(super) struct StepObject {
    pub(super) step_id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timestamp: Option<String>,
    pub(super) source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model_name: Option<String>,
    pub(super) message: MessageContent,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<ToolCallObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) observation: Option<Observation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metrics: Option<MetricsObject>,
    pub(super) extra: RathExtra<Extras>,
}

impl StepObject {
    /// Creates a step with an empty message and without a number.
    pub(super) fn new(source: &'static str, rath: Extras) -> Self {
        StepObject {
            step_id: 0,
            timestamp: None,
            source,
            model_name: None,
            message: MessageContent::Text(String::new()),
            reasoning_content: None,
            tool_calls: Vec::new(),
            observation: None,
            metrics: None,
            extra: RathExtra { rath },
        }
    }

    /// Adds a result to the step's observation.
    pub(super) fn push_observation(&mut self, result: ObservationResult) {
        self.observation.get_or_insert(Observation { results: Vec::new() }).results.push(result);
    }
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum MessageContent {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Serialize)]
pub(super) struct ContentPart {
    pub(super) r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<ImageSource>,
}

#[derive(Serialize)]
pub(super) struct ImageSource {
    pub(super) media_type: String,
    pub(super) path: String,
}

#[derive(Serialize)]
pub(super) struct ToolCallObject {
    pub(super) tool_call_id: String,
    pub(super) function_name: String,
    pub(super) arguments: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extra: Option<RathExtra<Extras>>,
}

#[derive(Serialize)]
pub(super) struct Observation {
    pub(super) results: Vec<ObservationResult>,
}

#[derive(Serialize)]
pub(super) struct ObservationResult {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source_call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) subagent_trajectory_ref: Vec<TrajectoryRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extra: Option<RathExtra<Extras>>,
}

#[derive(Serialize)]
pub(super) struct TrajectoryRef {
    pub(super) trajectory_id: String,
    pub(super) extra: RathExtra<Extras>,
}

#[derive(Serialize)]
pub(super) struct MetricsObject {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cached_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost_usd: Option<f64>,
}

#[derive(Serialize)]
pub(super) struct FinalMetrics {
    pub(super) total_prompt_tokens: u64,
    pub(super) total_completion_tokens: u64,
    pub(super) total_cached_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) total_cost_usd: Option<f64>,
    pub(super) total_steps: u64,
}
