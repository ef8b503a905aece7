//! The rules for requests that every provider enforces.

use proptest::prelude::*;
use rath::provider::{Request, Shape};
use serde_json::Value;

/// The texts of memories and of tool results in tests: neither may be sent as instructions.
pub(crate) const MEMORY: &str = "from the memory";
pub(crate) const OUTPUT: &str = "from a tool";

/// Checks that no provider would refuse a request.
pub(crate) fn check_shape(sent: &Request, shape: Shape) -> Result<(), TestCaseError> {
    let text = std::str::from_utf8(sent.body()).expect("JSON is UTF-8");
    let request: Value = serde_json::from_str(text).expect("a request is JSON");
    let mut ids = std::collections::HashSet::new();
    let is_name = |name: &Value, max: usize| {
        let name = name.as_str().expect("a name is a text");
        (1..=max).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    };
    let mut user_spoke = false;
    let mut system = request["system"].to_string();
    let messages = request["messages"].as_array().expect("a list");
    let mut nth = 0;
    while nth < messages.len() {
        let message = &messages[nth];
        let role = message["role"].as_str().expect("a role");
        nth += 1;
        match role {
            "system" => {
                prop_assert_eq!(nth, 1);
                system = message.to_string();
            }
            "assistant" => {
                prop_assert!(user_spoke, "the model speaks first or twice: {}", text);
                let calls: Vec<&Value> = match shape {
                    Shape::Chat => message["tool_calls"].as_array().into_iter().flatten().collect(),
                    Shape::Messages => {
                        let blocks = message["content"].as_array().expect("blocks");
                        prop_assert!(!blocks.is_empty());
                        blocks.iter().filter(|block| block["type"] == "tool_use").collect()
                    }
                };
                let has_text = message["content"].as_str().is_some_and(|words| !words.trim().is_empty());
                prop_assert!(shape == Shape::Messages || has_text || !calls.is_empty(), "an empty message: {}", text);
                for call in &calls {
                    let (tool, arguments) = match shape {
                        Shape::Chat => {
                            let arguments = call["function"]["arguments"].as_str().expect("a text");
                            (&call["function"]["name"], serde_json::from_str(arguments).expect("arguments are JSON"))
                        }
                        Shape::Messages => (&call["name"], call["input"].clone()),
                    };
                    prop_assert!(arguments.is_object() && is_name(tool, 64) && is_name(&call["id"], 40), "{}", text);
                    prop_assert!(ids.insert(call["id"].clone()), "an id is used twice: {}", text);
                }
                let results: Vec<&Value> = match shape {
                    Shape::Chat => {
                        let results = &messages[nth..(nth + calls.len()).min(messages.len())];
                        nth += calls.len();
                        results.iter().map(|result| &result["tool_call_id"]).collect()
                    }
                    Shape::Messages if calls.is_empty() => vec![],
                    Shape::Messages => {
                        nth += 1;
                        let blocks = messages[nth - 1]["content"].as_array().expect("blocks");
                        blocks.iter().map(|result| &result["tool_use_id"]).collect()
                    }
                };
                prop_assert_eq!(results, calls.iter().map(|call| &call["id"]).collect::<Vec<_>>());
                user_spoke = !calls.is_empty();
            }
            "user" => {
                user_spoke = true;
                let is_empty = |text: &Value| text.as_str().is_some_and(|text| text.trim().is_empty());
                let content = &message["content"];
                let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
                prop_assert!(!is_empty(content) && !blocks.iter().any(|block| is_empty(&block["text"])), "{}", text);
                prop_assert!(content.is_string() || !blocks.is_empty());
            }
            role => prop_assert!(false, "{} is no role here", role),
        }
    }
    prop_assert!(user_spoke, "the model would speak last: {}", text);
    prop_assert!(!system.contains(MEMORY) && !system.contains(OUTPUT), "{}", system);
    let tools = request["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut names = std::collections::HashSet::new();
    for tool in tools {
        let (tool, schema) = match shape {
            Shape::Chat => (&tool["function"]["name"], &tool["function"]["parameters"]),
            Shape::Messages => (&tool["name"], &tool["input_schema"]),
        };
        let is_normal = schema["type"] == "object" && schema["properties"].is_object() && schema.get("anyOf").is_none();
        prop_assert!(is_name(tool, 64) && is_normal && names.insert(tool.clone()), "{}", text);
    }
    prop_assert!(!tools.is_empty() || request.get("tool_choice").is_none());
    if shape == Shape::Messages {
        prop_assert!(request["max_tokens"].is_u64());
        prop_assert!(ids.is_empty() || !tools.is_empty(), "calls, and no tools: {}", text);
        prop_assert!(text.matches("cache_control").count() <= 4);
        // Reasoning is requested only if the current turn began with it.
        let is_user_message =
            |message: &Value| message["role"] == "user" && message["content"][0]["type"] != "tool_result";
        let turn = messages.iter().rposition(is_user_message).map_or(0, |spoke| spoke + 1);
        let in_turn = messages.last().expect("there is one")["content"][0]["type"] == "tool_result";
        let has_reasoning = messages.get(turn).is_some_and(|first| first["content"][0]["type"] == "thinking");
        prop_assert!(!in_turn || has_reasoning || request.get("thinking").is_none(), "{}", text);
    }
    Ok(())
}
