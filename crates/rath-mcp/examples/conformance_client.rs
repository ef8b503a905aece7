//! A client for the conformance suite of the protocol: it lists the tools of the server at an address and calls each of them.
//!
//! ```text
//! conformance client --command target/debug/examples/conformance_client --suite core
//! ```

use rath::Session;
use rath::chunk::{Call, ToolSpec};
use rath::tool::{ToolCx, ToolSource};
use rath_mcp::{McpServers, Places, ServerConfig};
use serde_json::{Map, Value, json};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().next_back().ok_or("wanted the address of a server")?;
    let servers = McpServers::new([ServerConfig::http("srv", url)?], Places::in_directory("./"))?;
    for status in servers.connect().await {
        eprintln!("protocol {}", status.protocol?);
    }
    let tools = servers.list().await.tools;
    for (name, arguments) in calls(tools.specs()) {
        let cx = ToolCx::new(Session::user("Go."), Call::new("c1", &*name, arguments.to_string()));
        match tools.call(&cx).await {
            Ok(output) => eprintln!("{name}: {}", output.text),
            Err(error) => eprintln!("{name}: {error:?}"),
        }
    }
    servers.close().await;
    Ok(())
}

/// Returns the calls that the scenario asks for, or one for each tool.
fn calls<'a>(tools: impl Iterator<Item = &'a ToolSpec>) -> Vec<(String, Value)> {
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    if let Some(calls) = context["toolCalls"].as_array() {
        let name = |call: &Value| format!("srv__{}", call["name"].as_str().unwrap_or_default());
        return calls.iter().map(|call| (name(call), without_nulls(&call["arguments"]))).collect();
    }
    tools.map(|tool| (tool.name.clone(), arguments(tool))).collect()
}

/// Returns arguments without those that are null: the schemas do not allow it.
fn without_nulls(arguments: &Value) -> Value {
    let given = arguments.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    Value::Object(given.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// Returns arguments that fit a simple schema.
fn arguments(tool: &ToolSpec) -> Value {
    let schema: Value = serde_json::from_str(tool.parameters.as_str()).unwrap_or_default();
    let mut arguments = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let value = match property["type"].as_str() {
            Some("number" | "integer") => json!(5),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            Some("object") => json!({}),
            _ => json!("text"),
        };
        arguments.insert(name.clone(), value);
    }
    Value::Object(arguments)
}
