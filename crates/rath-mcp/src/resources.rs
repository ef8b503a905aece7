//! Resources and prompts of servers, for programs, and the tools by which a model reads resources.

use std::sync::{Arc, Weak};
use std::time::Duration;

use rath::chunk::ToolSpec;
use rath::policy::Use;
use rath::tool::{Output, Tool, ToolCx, Tools};
use rmcp::model::{
    ClientRequest, GetPromptRequest, GetPromptRequestParams, ListPromptsRequest, ListResourcesRequest,
    PaginatedRequestParams, ReadResourceRequest, ReadResourceRequestParams, Role, ServerResult,
};
use serde_json::{Map, Value, json};

use crate::content;
use crate::error::{Error, ErrorKind, Result};
use crate::server::{MAX_LISTED_BYTES, MAX_PAGES, Server};
use crate::servers::McpServers;
use crate::text::one_line;
use crate::tool::to_rath;

/// The most bytes of a description in a list.
const MAX_DESCRIPTION_BYTES: usize = 500;
/// The most bytes of an address. A resource with a longer one is left out.
const MAX_URI_BYTES: usize = 4096;

const LIST: &str = "mcp_list_resources";
const READ: &str = "mcp_read_resource";

/// A resource that a server offers.
///
/// Returned by [`McpServers::resources`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The address by which it is read.
    pub uri: String,
    /// Its name.
    pub name: String,
    /// The description that the server gives.
    pub description: Option<String>,
    /// Its media type.
    pub media_type: Option<String>,
}

/// A prompt that a server offers: messages with gaps for arguments.
///
/// Returned by [`McpServers::prompts`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Its name.
    pub name: String,
    /// The description that the server gives.
    pub description: Option<String>,
    /// The arguments.
    pub arguments: Vec<PromptArgument>,
}

/// An argument of a prompt.
///
/// Part of [`Prompt`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// The description that the server gives.
    pub description: Option<String>,
    /// True if the server wants it always.
    pub required: bool,
}

/// A message of a prompt. Its text comes from a server, so it belongs into a message of the user and not into instructions.
///
/// Returned by [`McpServers::get_prompt`].
#[derive(Clone, Debug, PartialEq)]
pub struct PromptMessage {
    /// The side that says it.
    pub speaker: Speaker,
    /// The text and the images.
    pub content: Output,
}

/// A side of a conversation.
///
/// Part of [`PromptMessage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The user.
    User,
    /// The model.
    Assistant,
}

impl McpServers {
    /// Returns the resources of a server.
    pub async fn resources(&self, server: &str) -> Result<Vec<Resource>> {
        list_resources(self.server(server)?).await
    }

    /// Reads a resource of a server.
    pub async fn read_resource(&self, server: &str, uri: &str) -> Result<Output> {
        read_resource(self.server(server)?, uri).await
    }

    /// Returns the prompts of a server.
    pub async fn prompts(&self, server: &str) -> Result<Vec<Prompt>> {
        let server = self.server(server)?;
        let request = |params| ClientRequest::ListPromptsRequest(ListPromptsRequest::with_param(params));
        let prompts = list(server, request, |result| match result {
            ServerResult::ListPromptsResult(page) => Some((page.prompts, page.next_cursor)),
            _ => None,
        });
        let described = |text: String| described(server, &text);
        let argument = |it: rmcp::model::PromptArgument| PromptArgument {
            name: it.name,
            description: it.description.map(described),
            required: it.required == Some(true),
        };
        let prompts = prompts.await?.into_iter().map(|it| Prompt {
            name: it.name,
            description: it.description.map(described),
            arguments: it.arguments.unwrap_or_default().into_iter().map(argument).collect(),
        });
        Ok(prompts.collect())
    }

    /// Returns the messages of a prompt with these arguments.
    pub async fn get_prompt<'a>(
        &self,
        server: &str,
        name: &str,
        arguments: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Vec<PromptMessage>> {
        let server = self.server(server)?;
        let arguments = arguments.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value)));
        let params = GetPromptRequestParams::new(name).with_arguments(arguments.collect::<Map<_, _>>());
        let request = ClientRequest::GetPromptRequest(GetPromptRequest::new(params));
        let ServerResult::GetPromptResult(result) = server.request(request).await? else {
            return Err(other_kind(server));
        };
        let messages = result.messages.into_iter().map(|message| PromptMessage {
            speaker: if message.role == Role::User { Speaker::User } else { Speaker::Assistant },
            content: content::message_output(message, &server.secrets),
        });
        Ok(messages.collect())
    }
}

/// Returns the tools that list and read the resources of servers.
pub(crate) fn tools(servers: &[Arc<Server>]) -> Tools {
    let servers: Vec<_> = servers.iter().map(|server| (server.name().to_owned(), Arc::downgrade(server))).collect();
    Tools::default().tool(ListResources(servers.clone())).tool(ReadResource(servers))
}

/// Returns true for the name of one of these tools.
pub(crate) fn is_tool(name: &str) -> bool {
    [LIST, READ].contains(&name)
}

/// The servers by their names. The tools do not keep them alive.
type NamedServers = Vec<(String, Weak<Server>)>;

/// Lists the resources of a server.
struct ListResources(NamedServers);

/// Reads a resource of a server.
struct ReadResource(NamedServers);

impl Tool for ListResources {
    fn spec(&self) -> ToolSpec {
        let server = json!({"type": "string", "enum": names(&self.0), "description": "The server."});
        let schema = json!({
            "type": "object", "properties": {"server": server}, "required": ["server"], "additionalProperties": false,
        });
        ToolSpec::new(LIST, "List the resources that a server offers, each with its address.", schema)
    }

    fn uses(&self, arguments: &Value) -> Vec<Use> {
        used(arguments)
    }

    fn time_limit(&self) -> Duration {
        time_limit(&self.0)
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> rath::Result<Output> {
        let server = find(&self.0, &arguments)?;
        let resources = list_resources(&server).await;
        server.take_notes().into_iter().for_each(|note| cx.note(note));
        let resources = resources.map_err(to_rath)?;
        let lines = resources.iter().map(|it| {
            let media_type = it.media_type.as_deref().map(|it| format!(", {it}")).unwrap_or_default();
            let about = it.description.as_deref().map(|it| format!(": {it}")).unwrap_or_default();
            format!("{} ({}{media_type}){about}\n", it.uri, it.name)
        });
        let text: String = lines.collect();
        Ok(Output::from(if text.is_empty() { "no resources".to_owned() } else { text }))
    }
}

impl Tool for ReadResource {
    fn spec(&self) -> ToolSpec {
        let server = json!({"type": "string", "enum": names(&self.0), "description": "The server."});
        let uri = json!({"type": "string", "description": "The address of the resource."});
        let schema = json!({
            "type": "object", "properties": {"server": server, "uri": uri}, "required": ["server", "uri"],
            "additionalProperties": false,
        });
        ToolSpec::new(READ, "Read a resource of a server.", schema)
    }

    fn uses(&self, arguments: &Value) -> Vec<Use> {
        used(arguments)
    }

    fn time_limit(&self) -> Duration {
        time_limit(&self.0)
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> rath::Result<Output> {
        let server = find(&self.0, &arguments)?;
        let output = read_resource(&server, arguments["uri"].as_str().unwrap_or_default()).await;
        server.take_notes().into_iter().for_each(|note| cx.note(note));
        output.map_err(to_rath)
    }
}

fn names(servers: &NamedServers) -> Vec<&str> {
    servers.iter().map(|(name, _)| &**name).collect()
}

fn used(arguments: &Value) -> Vec<Use> {
    arguments["server"].as_str().map(|server| Use::Server(server.to_owned())).into_iter().collect()
}

fn time_limit(servers: &NamedServers) -> Duration {
    let limits = servers.iter().find_map(|(_, server)| Some(server.upgrade()?.limits)).unwrap_or_default();
    limits.start + limits.request
}

fn find(servers: &NamedServers, arguments: &Value) -> rath::Result<Arc<Server>> {
    let name = arguments["server"].as_str().unwrap_or_default();
    let server = servers.iter().find(|(known, _)| known == name).and_then(|(_, server)| server.upgrade());
    server.ok_or_else(|| rath::Error::new(rath::ErrorKind::Arguments, format!("there is no server `{name}`")))
}

async fn list_resources(server: &Arc<Server>) -> Result<Vec<Resource>> {
    let request = |params| ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(params));
    let resources = list(server, request, |result| match result {
        ServerResult::ListResourcesResult(page) => Some((page.resources, page.next_cursor)),
        _ => None,
    });
    let described = |text: String| described(server, &text);
    let resources = resources.await?;
    let count = resources.len();
    // An address that was cut or cleaned would be another one.
    let resources = resources.into_iter().filter(|it| one_line(&server.secrets, &it.uri, MAX_URI_BYTES) == it.uri);
    let resources: Vec<_> = resources
        .map(|it| Resource {
            uri: it.uri,
            name: described(it.name),
            description: it.description.map(described),
            media_type: it.mime_type.map(described),
        })
        .collect();
    let left_out = count - resources.len();
    if left_out > 0 {
        server.note(format!(
            "the server `{}` lists resources with addresses that hold a secret value, cannot be shown or have more than \
             {MAX_URI_BYTES} bytes, which are left out: {left_out}",
            server.name()
        ));
    }
    Ok(resources)
}

async fn read_resource(server: &Arc<Server>, uri: &str) -> Result<Output> {
    let request = ClientRequest::ReadResourceRequest(ReadResourceRequest::new(ReadResourceRequestParams::new(uri)));
    match server.request(request).await? {
        ServerResult::ReadResourceResult(result) => Ok(content::resource_output(result.contents, &server.secrets)),
        _ => Err(other_kind(server)),
    }
}

/// Asks for a list page by page, up to the limits on its items, its bytes and the time for all of it.
async fn list<T: serde::Serialize>(
    server: &Arc<Server>,
    request: impl Fn(PaginatedRequestParams) -> ClientRequest,
    page: impl Fn(ServerResult) -> Option<(Vec<T>, Option<String>)>,
) -> Result<Vec<T>> {
    let (mut items, mut cursor, mut bytes) = (Vec::new(), None, 0);
    // One time limit for all pages: a server can always name another one.
    let end = tokio::time::Instant::now() + server.limits.request;
    for _ in 0..MAX_PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor.take());
        let time_left = end.saturating_duration_since(tokio::time::Instant::now());
        let result = server.request_within(request(params), time_left).await?;
        let (more, next) = page(result).ok_or_else(|| other_kind(server))?;
        for item in more {
            bytes += serde_json::to_vec(&item).map_or(usize::MAX / 2, |json| json.len());
            if bytes > MAX_LISTED_BYTES {
                let name = server.name();
                server.note(format!(
                    "the server `{name}` lists more than {MAX_LISTED_BYTES} bytes of resources or prompts; further ones are left out"
                ));
                return Ok(items);
            }
            items.push(item);
        }
        cursor = next.filter(|cursor| !cursor.is_empty());
        if cursor.is_none() || items.len() >= server.limits.list_items {
            break;
        }
    }
    items.truncate(server.limits.list_items);
    Ok(items)
}

fn other_kind(server: &Server) -> Error {
    Error::new(ErrorKind::Answer, format!("the server `{}`: its answer is of another kind", server.name()))
}

fn described(server: &Server, text: &str) -> String {
    one_line(&server.secrets, text, MAX_DESCRIPTION_BYTES)
}
