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
    if shape == Shape::Responses {
        check_items(&request, text)?;
        return check_tools(&request, shape, text);
    }
    if shape == Shape::Gemini {
        check_contents(&request, text)?;
        return check_tools(&request, shape, text);
    }
    let mut ids = std::collections::HashSet::new();
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
                    _ => {
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
                        _ => (&call["name"], call["input"].clone()),
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
                    _ if calls.is_empty() => vec![],
                    _ => {
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
    check_tools(&request, shape, text)?;
    if shape == Shape::Messages {
        prop_assert!(request["max_tokens"].is_u64());
        prop_assert!(ids.is_empty() || request["tools"].is_array(), "calls, and no tools: {}", text);
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

fn is_name(name: &Value, max: usize) -> bool {
    let name = name.as_str().expect("a name is a text");
    (1..=max).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn check_tools(request: &Value, shape: Shape, text: &str) -> Result<(), TestCaseError> {
    let tools = match shape {
        Shape::Gemini => &request["tools"][0]["functionDeclarations"],
        _ => &request["tools"],
    };
    let tools = tools.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut names = std::collections::HashSet::new();
    for tool in tools {
        let (tool, schema) = match shape {
            Shape::Chat => (&tool["function"]["name"], &tool["function"]["parameters"]),
            Shape::Messages => (&tool["name"], &tool["input_schema"]),
            Shape::Responses => (&tool["name"], &tool["parameters"]),
            Shape::Gemini => (&tool["name"], &tool["parametersJsonSchema"]),
        };
        let is_normal = schema["type"] == "object" && schema["properties"].is_object() && schema.get("anyOf").is_none();
        prop_assert!(is_name(tool, 64) && is_normal && names.insert(tool.clone()), "{}", text);
    }
    let has_choice = request.get("tool_choice").or(request.get("toolConfig")).is_some();
    prop_assert!(!tools.is_empty() || !has_choice);
    Ok(())
}

/// Checks the items of a request of the Responses API.
fn check_items(request: &Value, text: &str) -> Result<(), TestCaseError> {
    prop_assert!(request["store"] == false && request.get("messages").is_none(), "{}", text);
    let instructions = request["instructions"].to_string();
    prop_assert!(!instructions.contains(MEMORY) && !instructions.contains(OUTPUT), "{}", instructions);
    let mut ids = std::collections::HashSet::new();
    let (mut user_spoke, mut open) = (false, std::collections::VecDeque::new());
    let (mut in_answer, mut after_reasoning) = (false, false);
    for item in request["input"].as_array().expect("a list") {
        let kind = item["type"].as_str().expect("a type");
        let is_users = kind == "message" && item["role"] == "user";
        let is_output = kind == "function_call_output";
        prop_assert!(!after_reasoning || !(is_users || is_output), "reasoning that led to nothing: {}", text);
        prop_assert!(open.is_empty() || !is_users, "a call without its output: {}", text);
        if is_users || is_output {
            in_answer = false;
        } else if !in_answer {
            prop_assert!(user_spoke && open.is_empty(), "the model speaks first or twice: {}", text);
            (in_answer, user_spoke) = (true, false);
        }
        after_reasoning = kind == "reasoning";
        match kind {
            "message" => {
                let parts = item["content"].as_array().expect("parts");
                let part_kind = if is_users { "input_" } else { "output_text" };
                let is_good = |part: &Value| {
                    let is_empty = part["text"].as_str().is_some_and(|text| text.trim().is_empty());
                    part["type"].as_str().expect("a type").starts_with(part_kind) && !is_empty
                };
                prop_assert!(!parts.is_empty() && parts.iter().all(is_good), "{}", text);
                prop_assert!(is_users || item["role"] == "assistant", "{}", text);
                user_spoke |= is_users;
            }
            "function_call" => {
                let arguments: Value =
                    serde_json::from_str(item["arguments"].as_str().expect("a text")).expect("arguments are JSON");
                prop_assert!(arguments.is_object() && is_name(&item["name"], 64), "{}", text);
                prop_assert!(is_name(&item["call_id"], 40) && ids.insert(item["call_id"].clone()), "{}", text);
                open.push_back(item["call_id"].clone());
            }
            "function_call_output" => {
                prop_assert_eq!(open.pop_front(), Some(item["call_id"].clone()), "{}", text);
                user_spoke = true;
            }
            "reasoning" => prop_assert!(item["encrypted_content"].is_string(), "{}", text),
            kind => prop_assert!(false, "{} is no item here", kind),
        }
    }
    prop_assert!(user_spoke && open.is_empty(), "the model would speak last: {}", text);
    Ok(())
}

/// Checks the contents of a request of Gemini.
fn check_contents(request: &Value, text: &str) -> Result<(), TestCaseError> {
    let instructions = request["systemInstruction"].to_string();
    prop_assert!(!instructions.contains(MEMORY) && !instructions.contains(OUTPUT), "{}", instructions);
    prop_assert!(["messages", "model", "stream"].iter().all(|name| request.get(name).is_none()), "{}", text);
    let contents = request["contents"].as_array().expect("a list");
    let mut ids = std::collections::HashSet::new();
    for (nth, content) in contents.iter().enumerate() {
        let (role, parts) = (&content["role"], content["parts"].as_array().expect("parts"));
        prop_assert_eq!(role, if nth % 2 == 0 { "user" } else { "model" }, "they take turns: {}", text);
        prop_assert!(!parts.is_empty(), "a content without parts: {}", text);
        for part in parts {
            let kinds = ["text", "inlineData", "functionCall", "functionResponse", "executableCode"];
            prop_assert_eq!(kinds.iter().filter(|kind| part.get(kind).is_some()).count(), 1, "{}", text);
            let is_blank = part["text"].as_str().is_some_and(|text| text.trim().is_empty());
            prop_assert!(!is_blank || part.get("thoughtSignature").is_some(), "{}", text);
        }
        let of_kind = |parts: &[Value], kind: &str| -> Vec<Value> {
            parts.iter().filter_map(|part| part.get(kind)).cloned().collect()
        };
        let is_model = role == "model";
        let calls = of_kind(parts, "functionCall");
        prop_assert!(is_model || calls.is_empty(), "a call of the user: {}", text);
        for call in &calls {
            let is_good_start = |name: &str| name.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic());
            prop_assert!(is_name(&call["name"], 64) && call["name"].as_str().is_some_and(is_good_start), "{}", text);
            prop_assert!(call["args"].is_object(), "{}", text);
            prop_assert!(call.get("id").is_none_or(|id| ids.insert(id.clone())), "an id is used twice: {}", text);
        }
        // Gemini 3 refuses a step whose first call has no signature.
        let first = parts.iter().find(|part| part.get("functionCall").is_some());
        prop_assert!(first.is_none_or(|first| first["thoughtSignature"].is_string()), "{}", text);
        // The results come first, in the order of the calls.
        let before = nth.checked_sub(1).and_then(|before| contents[before]["parts"].as_array());
        let asked = before.filter(|_| !is_model).map(|parts| of_kind(parts, "functionCall")).unwrap_or_default();
        let results: Vec<_> = parts.iter().map_while(|part| part.get("functionResponse").cloned()).collect();
        prop_assert_eq!(&results, &of_kind(parts, "functionResponse"), "{}", text);
        let key = |value: &Value| (value["name"].clone(), value.get("id").cloned());
        let [asked, results] = [&asked, &results].map(|list| list.iter().map(key).collect::<Vec<_>>());
        prop_assert_eq!(asked, results, "{}", text);
    }
    prop_assert!(contents.len() % 2 == 1, "the model would speak last: {}", text);
    Ok(())
}
