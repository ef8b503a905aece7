//! The tools of the server and their arguments. Pure.

use rath::Digest;
use rmcp::handler::server::common::schema_for_type;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::page::{self, DEFAULT_BYTES, MAX_BYTES, MIN_BYTES, PageBuilder};

/// A call of one of the tools.
#[derive(Debug)]
pub(super) enum ToolCall {
    ListSessions(ListRequest),
    SearchSessions(SearchRequest),
    ReadSession(SessionRequest),
    ReadStep(StepRequest),
    ExplainStep(SessionRequest),
    Blame(BlameRequest),
    Diff(DiffRequest),
    RequestAsSent(SessionRequest),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListRequest {
    /// List every branch, also those that another branch continues. Default: false.
    #[serde(default)]
    pub(super) all: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchRequest {
    /// Words that one step has to have all of, in upper or lower case. Words between double quotes are looked for as they
    /// are.
    pub(super) query: String,
    /// The id of a session, to search no other.
    pub(super) session: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionRequest {
    /// The id of a session, or digits from its beginning or end. Default: the newest session.
    pub(super) session: Option<String>,
    /// The first digits of a step's id. Default: the newest step; for request_as_sent the newest answer.
    pub(super) step: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StepRequest {
    /// The id of a session, or digits from its beginning or end. Default: the newest session.
    pub(super) session: Option<String>,
    /// The first digits of the step's id, or `head` for the newest step.
    pub(super) step: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BlameRequest {
    /// The path of the file, relative to the session's directory.
    pub(super) path: String,
    /// The number of one line, from 1: shows the call, its agent and the checks of that line. Default: all lines, in short.
    #[schemars(range(min = 1))]
    pub(super) line: Option<u32>,
    /// The id of a session, or digits from its beginning or end. Default: the newest session.
    pub(super) session: Option<String>,
    /// The first digits of a step's id: the file is taken as it was then. Default: the newest step.
    pub(super) step: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DiffRequest {
    /// The id of a session, or digits from its beginning or end. Default: the newest session.
    pub(super) session: Option<String>,
    /// The first digits of the step with the old files. Default: the first step with files on the record.
    pub(super) from: Option<String>,
    /// The first digits of the step with the new files. Default: the newest step.
    pub(super) to: Option<String>,
    /// The id of another session, which has the new files. Default: the same session.
    pub(super) to_session: Option<String>,
    /// List the names of the changed files only. Default: false, a patch.
    #[serde(default)]
    pub(super) names_only: bool,
}

/// The arguments that every tool has.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PageRequest {
    /// The most bytes of the answer. Default: 2000.
    #[schemars(range(min = 600, max = 100000))]
    max_bytes: Option<u64>,
    /// The `next_cursor` of an earlier answer, to continue it. The other arguments have to be the same as then.
    cursor: Option<String>,
    /// `text` for reading, or `json` for one JSON object in each line. Default: text.
    format: Option<Format>,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum Format {
    #[default]
    Text,
    Json,
}

/// A call that was read: the tool with its arguments, and the page that is wanted of its answer.
#[derive(Debug)]
pub(super) struct ReadCall {
    pub(super) call: ToolCall,
    pub(super) format: Format,
    pub(super) page: PageBuilder,
    /// Names the request in cursors.
    pub(super) request: Digest,
}

type Parser = fn(JsonObject) -> Result<ToolCall, String>;
type Schema = fn() -> std::sync::Arc<JsonObject>;

/// The tools: name, title, description, schema of the arguments, and their parser.
const TOOLS: [(&str, &str, &str, Schema, Parser); 8] = [
    (
        "list_sessions",
        "List sessions",
        "Lists the recorded sessions, newest first: id, time, tokens, state, first prompt, directory.",
        schema_for_type::<ListRequest>,
        |arguments| parse(arguments).map(ToolCall::ListSessions),
    ),
    (
        "search_sessions",
        "Search sessions",
        "Searches prompts, answers, tool calls and their outputs of all sessions for words, newest session first.",
        schema_for_type::<SearchRequest>,
        |arguments| parse(arguments).map(ToolCall::SearchSessions),
    ),
    (
        "read_session",
        "Read a session",
        "Shows the steps of a session, one line for each, from a step (default: the newest) back to the first.",
        schema_for_type::<SessionRequest>,
        |arguments| parse(arguments).map(ToolCall::ReadSession),
    ),
    (
        "read_step",
        "Read a step",
        "Shows one step in full: a prompt, an answer, a tool call, the whole output of a tool, or another event.",
        schema_for_type::<StepRequest>,
        |arguments| parse(arguments).map(ToolCall::ReadStep),
    ),
    (
        "explain_step",
        "Explain a step",
        "Answers from the record what the model saw, which model answered, where tools ran, which files changed and by which \
         call, which notes of a memory were used, what summaries replaced, which route was chosen, which checks cover the \
         files, and the cost.",
        schema_for_type::<SessionRequest>,
        |arguments| parse(arguments).map(ToolCall::ExplainStep),
    ),
    (
        "blame",
        "Blame a file",
        "Shows which tool call wrote each line of a file.",
        schema_for_type::<BlameRequest>,
        |arguments| parse(arguments).map(ToolCall::Blame),
    ),
    (
        "diff",
        "Compare files",
        "Shows how files differ between two steps, or over a whole session, as a patch.",
        schema_for_type::<DiffRequest>,
        |arguments| parse(arguments).map(ToolCall::Diff),
    ),
    (
        "request_as_sent",
        "Read a request as it was sent",
        "Returns the request that a model's answer came from, as it was sent.",
        schema_for_type::<SessionRequest>,
        |arguments| parse(arguments).map(ToolCall::RequestAsSent),
    ),
];

/// Returns the descriptions of the tools.
pub(super) fn tools() -> Vec<Tool> {
    let describe = |(name, title, description, schema, _): (&'static str, &str, &'static str, Schema, Parser)| {
        let hints = ToolAnnotations::with_title(title).read_only(true).destructive(false).idempotent(true);
        Tool::new(name, description, with_page_args(&schema()))
            .with_title(title)
            .with_annotations(hints.open_world(false))
    };
    TOOLS.into_iter().map(describe).collect()
}

/// Returns the schema of a tool's arguments, with those that every tool has.
///
/// Clients give it to their model as it is. So it is short: `null` and the sizes of numbers are left out.
fn with_page_args(schema: &JsonObject) -> JsonObject {
    let mut schema = schema.clone();
    ["$schema", "title"].into_iter().for_each(|member| _ = schema.remove(member));
    let page = schema_for_type::<PageRequest>();
    if let (Some(Value::Object(own)), Some(Value::Object(of_page))) =
        (schema.get_mut("properties"), page.get("properties"))
    {
        own.extend(of_page.clone());
        own.values_mut().filter_map(Value::as_object_mut).for_each(shorten);
    }
    schema
}

/// Shortens the schema of one argument.
fn shorten(property: &mut JsonObject) {
    ["default", "format"].into_iter().for_each(|member| _ = property.remove(member));
    if let Some(Value::Array(values)) = property.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(Value::Array(types)) = property.get("type")
        && let Some(only) = types.iter().find(|of| *of != "null")
    {
        property.insert("type".to_owned(), only.clone());
    }
}

/// Reads a call. None if there is no such tool.
pub(super) fn read_call(tool: &str, arguments: JsonObject) -> Option<Result<ReadCall, String>> {
    let (.., parser) = TOOLS.into_iter().find(|(name, ..)| *name == tool)?;
    Some(read_arguments(tool, arguments, parser))
}

fn read_arguments(tool: &str, mut arguments: JsonObject, parser: Parser) -> Result<ReadCall, String> {
    let page_args = ["max_bytes", "cursor", "format"].into_iter();
    let page_args = page_args.filter_map(|name| Some((name.to_owned(), arguments.remove(name)?))).collect();
    let PageRequest { max_bytes, cursor, format } = parse(page_args)?;
    let max_bytes = max_bytes.unwrap_or(DEFAULT_BYTES);
    if !(MIN_BYTES..=MAX_BYTES).contains(&max_bytes) {
        return Err(format!("wanted `max_bytes` from {MIN_BYTES} to {MAX_BYTES}, found {max_bytes}"));
    }
    let format = format.unwrap_or_default();
    let request = Digest::compute(format!("{tool} {format:?} {}", Value::Object(arguments.clone())).as_bytes());
    let start = cursor.map(|cursor| page::parse_cursor(&cursor, &request)).transpose()?;
    Ok(ReadCall { call: parser(arguments)?, format, page: PageBuilder::new(start, max_bytes), request })
}

fn parse<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, String> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| format!("wrong arguments: {error}"))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    fn read(tool: &str, arguments: Value) -> Result<ReadCall, String> {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        read_call(tool, arguments).expect("a tool")
    }

    #[test]
    fn schemas_are_short() {
        let schema = |name: &str| {
            let tool = tools().into_iter().find(|tool| tool.name == name).expect("a tool");
            serde_json::to_string_pretty(&tool.input_schema).expect("JSON")
        };
        expect![[r#"
            {
              "additionalProperties": false,
              "properties": {
                "cursor": {
                  "description": "The `next_cursor` of an earlier answer, to continue it. The other arguments have to be the same as then.",
                  "type": "string"
                },
                "format": {
                  "description": "`text` for reading, or `json` for one JSON object in each line. Default: text.",
                  "enum": [
                    "text",
                    "json"
                  ],
                  "type": "string"
                },
                "line": {
                  "description": "The number of one line, from 1: shows the call, its agent and the checks of that line. Default: all lines, in short.",
                  "minimum": 1,
                  "type": "integer"
                },
                "max_bytes": {
                  "description": "The most bytes of the answer. Default: 2000.",
                  "maximum": 100000,
                  "minimum": 600,
                  "type": "integer"
                },
                "path": {
                  "description": "The path of the file, relative to the session's directory.",
                  "type": "string"
                },
                "session": {
                  "description": "The id of a session, or digits from its beginning or end. Default: the newest session.",
                  "type": "string"
                },
                "step": {
                  "description": "The first digits of a step's id: the file is taken as it was then. Default: the newest step.",
                  "type": "string"
                }
              },
              "required": [
                "path"
              ],
              "type": "object"
            }"#]].assert_eq(&schema("blame"));
        let bytes: usize = tools().iter().map(|tool| schema(&tool.name).len()).sum();
        assert!(bytes < 10_000, "{bytes} bytes");
    }

    #[test]
    fn wrong_arguments_are_refused() {
        let blame = json!({"path": "a"});
        assert!(read("blame", blame).is_ok());
        for (tool, arguments) in [
            ("list_sessions", json!({"all": "yes"})),
            ("list_sessions", json!({"store": "sqlite:/etc/other.db"})),
            ("search_sessions", json!({})),
            ("search_sessions", json!({"query": 1})),
            ("read_step", json!({})),
            ("blame", json!({"path": ["a"]})),
            ("blame", json!({"path": "a", "line": -1})),
            ("blame", json!({"path": "a", "line": 4294967296_u64})),
            ("list_sessions", json!({"max_bytes": 0})),
            ("list_sessions", json!({"max_bytes": 599})),
            ("list_sessions", json!({"max_bytes": 100_001})),
            ("list_sessions", json!({"max_bytes": 9_223_372_036_854_775_808_u64})),
            ("list_sessions", json!({"max_bytes": -1})),
            ("list_sessions", json!({"max_bytes": 1e30})),
            ("list_sessions", json!({"format": "xml"})),
            ("list_sessions", json!({"cursor": 7})),
            ("list_sessions", json!({"cursor": "../.."})),
        ] {
            let text = arguments.to_string();
            assert!(read(tool, arguments).is_err(), "{tool} {text}");
        }
        assert!(read_call("unknown", JsonObject::new()).is_none());
    }

    #[test]
    fn a_cursor_fits_the_same_arguments_in_any_size() {
        let first = read("blame", json!({"path": "a"})).expect("a call");
        let at = page::Position::new("p", "text", 3);
        let cursor = page::Cursor::new(&first.request, &at).as_str().to_owned();
        let again = read("blame", json!({"cursor": cursor, "path": "a", "max_bytes": 4000})).expect("a call");
        assert_eq!(again.page.awaited_part(), Some("p"));
        for other in [json!({"path": "b"}), json!({"path": "a", "line": 1}), json!({"path": "a", "format": "json"})] {
            let mut other = other;
            other["cursor"] = json!(cursor);
            assert!(read("blame", other).is_err());
        }
    }
}
