//! A tool of a server as a tool of an agent.

use std::sync::{Arc, Weak};
use std::time::Duration;

use rath::Secrets;
use rath::chunk::ToolSpec;
use rath::policy::Use;
use rath::tool::{Output, Tool, ToolCx};
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, ProgressNotificationParam, ServerResult};
use serde_json::Value;

use crate::content;
use crate::error::{Error, ErrorKind};
use crate::naming::NamedTool;
use crate::server::Server;
use crate::text::one_line;

/// The most reports of progress of one call that listeners get, and the most bytes of each.
const MAX_REPORTS: usize = 256;
const MAX_REPORT_BYTES: usize = 512;
/// The time beyond that of the server in which a call that reached its limit ends by itself, with a reason.
const TIME_TO_CANCEL: Duration = Duration::from_secs(5);

/// A tool of a server. It does not keep the server alive.
pub(crate) struct McpTool {
    server: Weak<Server>,
    server_name: String,
    tool: NamedTool,
    time_limit: Duration,
}

impl McpTool {
    pub(crate) fn new(server: &Arc<Server>, tool: NamedTool) -> Self {
        // A call may have to start the server first.
        let time_limit = server.limits.start + server.limits.call + TIME_TO_CANCEL;
        McpTool { server: Arc::downgrade(server), server_name: server.name().to_owned(), tool, time_limit }
    }
}

impl Tool for McpTool {
    fn spec(&self) -> ToolSpec {
        self.tool.spec.clone()
    }

    fn uses(&self, _arguments: &Value) -> Vec<Use> {
        vec![Use::Server(self.server_name.clone())]
    }

    async fn preview(&self, _cx: &ToolCx, arguments: &Value) -> Option<String> {
        let arguments = serde_json::to_string_pretty(arguments).ok()?;
        (!self.tool.hints.is_empty()).then(|| format!("{}\n{arguments}", self.tool.hints))
    }

    fn time_limit(&self) -> Duration {
        self.time_limit
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> rath::Result<Output> {
        let server = self.server.upgrade().ok_or_else(|| {
            let message = format!("the server `{}`: its handle was dropped", self.server_name);
            rath::Error::new(rath::ErrorKind::Tool, message)
        })?;
        let connection = server.connect().await.map_err(to_rath)?;
        server.take_notes().into_iter().for_each(|note| cx.note(note));
        let mut params = CallToolRequestParams::new(self.tool.original.clone());
        if let Value::Object(arguments) = arguments {
            params = params.with_arguments(arguments);
        }
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let mut reports = 0;
        let answer = connection.request(request, server.limits.call, |progress| {
            reports += 1;
            if reports <= MAX_REPORTS {
                cx.output(describe_progress(&progress, &server.secrets));
            }
        });
        let result = match answer.await {
            Ok(ServerResult::CallToolResult(result)) => result,
            Ok(ServerResult::InputRequiredResult(_)) => {
                let message = "it asks for more input than the arguments, which is not supported";
                return Err(to_rath(server.failed(&connection, Error::new(ErrorKind::Answer, message)).await));
            }
            Ok(_) => {
                let error = Error::new(ErrorKind::Answer, "its answer is not the result of a call");
                return Err(to_rath(server.failed(&connection, error).await));
            }
            Err(error) => {
                if error.kind() == ErrorKind::Closed {
                    cx.note(format!("the server `{}`: {}", server.name(), error.message()));
                }
                return Err(to_rath(server.failed(&connection, error).await));
            }
        };
        let is_failure = result.is_error == Some(true);
        Ok(Output { is_failure, ..content::output(result, &server.secrets) })
    }
}

/// Returns an error for the model.
pub(crate) fn to_rath(error: Error) -> rath::Error {
    let kind = match error.kind() {
        ErrorKind::Timeout => rath::ErrorKind::Timeout,
        _ => rath::ErrorKind::Tool,
    };
    rath::Error::new(kind, error.message())
}

fn describe_progress(report: &ProgressNotificationParam, secrets: &Secrets) -> String {
    let message = report.message.as_deref().map(|text| one_line(secrets, text, MAX_REPORT_BYTES)).unwrap_or_default();
    let total = report.total.map(|total| format!("/{total}")).unwrap_or_default();
    let space = if message.is_empty() { "" } else { " " };
    format!("{}{total}{space}{message}\n", report.progress)
}
