//! Tools of a server of the Model Context Protocol. The server is this program itself, started again with `serve`; any other
//! one works in the same way: `ServerConfig::stdio("files", "mcp-files", ["."])`.

use rath::prelude::*;
use rath_mcp::{McpServers, Places, ServerConfig, Transport, Walls};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, Tool as McpTool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};

/// A server with one tool.
struct Clock;

impl ServerHandler for Clock {
    fn get_info(&self) -> rmcp::model::ServerConfig {
        rmcp::model::ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema =
            serde_json::json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
        let schema = schema.as_object().cloned().unwrap_or_default();
        Ok(ListToolsResult::with_all_items(vec![McpTool::new("time_in", "The time in a city.", schema)]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let city = arguments.get("city").and_then(|city| city.as_str()).unwrap_or("nowhere");
        Ok(CallToolResult::success(vec![ContentBlock::text(format!("noon in {city}"))]).into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).as_deref() == Some("serve") {
        Clock.serve(rmcp::transport::stdio()).await?.waiting().await?;
        return Ok(());
    }
    let project = rath_examples::new_directory()?;
    let mut config = ServerConfig::stdio("clock", std::env::current_exe()?.display().to_string(), ["serve"])?;
    if let Transport::Stdio(process) = &mut config.transport {
        // Behind walls, which are the default, a program in your home directory is not seen.
        process.walls = Walls::Outside;
    }
    let servers = McpServers::new([config], Places::in_directory(&project))?;

    // The server is started when the agent runs. Its tools have its name in front.
    let provider = Provider::from(Script::of([
        r#"{"calls": [{"name": "clock__time_in", "arguments": {"city": "Paris"}}]}"#,
        r#"{"text": "It is noon.", "expect": {"contains": "noon in Paris"}}"#,
    ])?);
    let agent = Agent::new("You tell the time.", &provider).tools_from(servers.clone());
    let session = agent.run(Session::user("How late is it in Paris?").to(Sandbox::local(&project))).await?;
    for step in session.as_record().steps().into_iter().skip(2) {
        println!("{}", rath::record::draw::headline(step));
    }
    servers.close().await;
    rath_examples::keep(&session).await?;
    std::fs::remove_dir_all(project)?;
    Ok(())
}
