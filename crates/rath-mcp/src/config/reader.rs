//! Reading one server of a configuration.

use std::path::{Component, Path};

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use super::check::{check_header, check_name, check_url};
use super::expand::expand;
use super::secrets::{is_secret_name, secret_args};
use super::{
    HttpServer, MAX_LIST_ITEMS, MAX_TEXT_BYTES, Origin, ServerConfig, StdioServer, Transport, Walls, shortened,
};

/// Reads one server.
pub(super) struct ServerReader<'a> {
    name: String,
    origin: Origin,
    variable: &'a dyn Fn(&str) -> Option<String>,
    /// True if texts stay as they are written.
    is_outline: bool,
    /// The names of the variables that were looked up.
    variables: Vec<String>,
    looked_up: Vec<(String, SecretString)>,
    notices: Vec<String>,
}

/// A result whose error is the reason why the server is left out.
type Result<T> = std::result::Result<T, String>;

impl<'a> ServerReader<'a> {
    pub(super) fn new(name: String, origin: Origin, variable: &'a dyn Fn(&str) -> Option<String>) -> Self {
        let (variables, looked_up, notices) = Default::default();
        ServerReader { name, origin, variable, is_outline: false, variables, looked_up, notices }
    }

    /// Creates a reader of a server whose texts stay as they are written.
    pub(super) fn for_outline(name: String, origin: Origin) -> Self {
        ServerReader { is_outline: true, ..ServerReader::new(name, origin, &|_: &str| Some(String::new())) }
    }

    /// Returns the server; none if it is disabled.
    pub(super) fn read(mut self, server: Value, notices: &mut Vec<String>) -> Result<Option<ServerConfig>> {
        check_name(&self.name)?;
        let Value::Object(mut members) = server else {
            return Err(format!("wanted an object, found {}", kind_of(&server)));
        };
        if members.remove("disabled") == Some(Value::Bool(true)) {
            return Ok(None);
        }
        let transport = self.transport(&mut members)?;
        let ServerReader { name, origin, mut variables, looked_up, .. } = self;
        notices.append(&mut self.notices);
        variables.sort();
        variables.dedup();
        Ok(Some(ServerConfig { name, transport, variables, looked_up, origin }))
    }

    /// Returns the way to the server.
    fn transport(&mut self, members: &mut Map<String, Value>) -> Result<Transport> {
        let is_http = match members.remove("type") {
            None => members.contains_key("url") && !members.contains_key("command"),
            Some(Value::String(kind)) if kind == "stdio" => false,
            Some(Value::String(kind)) if matches!(&*kind, "http" | "streamable-http" | "streamableHttp") => true,
            Some(Value::String(kind)) if kind == "sse" => {
                return Err(
                    "the type `sse` belongs to a version of the protocol that is not supported; most such servers \
                            also have an endpoint for the type `http`"
                        .to_owned(),
                );
            }
            Some(kind) => {
                let shown = shortened(&kind.to_string());
                return Err(format!("unknown type {shown}; known: \"stdio\", \"http\""));
            }
        };
        let transport = match is_http {
            true => Transport::Http(self.http(members)?),
            false => Transport::Stdio(self.stdio(members)?),
        };
        for member in members.keys() {
            let shown = shortened(member);
            self.notices.push(format!("the server `{}`: `{shown}` means nothing here and was ignored", self.name));
        }
        Ok(transport)
    }

    fn stdio(&mut self, members: &mut Map<String, Value>) -> Result<StdioServer> {
        let Some(command) = members.remove("command") else {
            return Err("it has neither a `command` nor a `url`".to_owned());
        };
        let command = self.text("command", command, false)?;
        if command.is_empty() {
            return Err("its `command` is empty".to_owned());
        }
        let args = match members.remove("args") {
            None => Vec::new(),
            Some(Value::Array(args)) if args.len() <= MAX_LIST_ITEMS => {
                let written: Vec<_> = args.iter().map(|arg| arg.as_str().unwrap_or_default()).collect();
                let secret: Vec<_> = secret_args(&written).into_iter().map(|(nth, ..)| nth).collect();
                let texts = args.into_iter().enumerate();
                texts
                    .map(|(nth, arg)| self.text(&format!("args[{nth}]"), arg, secret.contains(&nth)))
                    .collect::<Result<_>>()?
            }
            Some(Value::Array(_)) => return Err(too_many("args")),
            Some(other) => return Err(format!("`args`: wanted an array, found {}", kind_of(&other))),
        };
        let env = self.pairs("env", members.remove("env"))?;
        if let Some((name, _)) = env.iter().find(|(name, _)| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(format!("`env`: {name:?} is no name of a variable"));
        }
        let cwd = members.remove("cwd").map_or_else(|| Ok(String::new()), |cwd| self.text("cwd", cwd, false))?;
        // A full path is compared with the directory when the server is needed.
        if self.origin == Origin::Project && !self.is_open(&cwd) && leaves_directory(&cwd) {
            return Err("its `cwd` is outside of the project".to_owned());
        }
        let walls = match (members.remove("walls"), self.origin) {
            (None, _) => Walls::default(),
            (Some(_), Origin::Project) => {
                let remark = "a file of the project cannot choose `walls`, so it stays isolated";
                self.notices.push(format!("the server `{}`: {remark}", self.name));
                Walls::default()
            }
            (Some(walls), Origin::User) => match walls.as_str() {
                Some("isolated") => Walls::Isolated,
                Some("network") => Walls::Network,
                Some("none") => Walls::Outside,
                _ => {
                    let known = "known: \"isolated\", \"network\", \"none\"";
                    return Err(format!("unknown `walls`; {known}"));
                }
            },
        };
        Ok(StdioServer { command, args, env, cwd, walls })
    }

    fn http(&mut self, members: &mut Map<String, Value>) -> Result<HttpServer> {
        let Some(url) = members.remove("url") else {
            return Err("it is of the type `http` and has no `url`".to_owned());
        };
        let url = self.text("url", url, true)?;
        if !self.is_open(&url) {
            check_url(&url)?;
        }
        let headers = self.pairs("headers", members.remove("headers"))?;
        for (name, value) in &headers {
            let value = value.expose_secret();
            check_header(name, if self.is_open(value) { "" } else { value })?;
        }
        Ok(HttpServer { url: url.into(), headers })
    }

    /// Reads an object of texts.
    fn pairs(&mut self, member: &str, value: Option<Value>) -> Result<Vec<(String, SecretString)>> {
        match value {
            None => Ok(Vec::new()),
            Some(Value::Object(pairs)) if pairs.len() <= MAX_LIST_ITEMS => {
                let pairs = pairs.into_iter();
                pairs
                    .map(|(name, value)| {
                        let is_secret = member == "headers" || is_secret_name(&name);
                        let value = self.text(&format!("{member}.{}", shortened(&name)), value, is_secret)?;
                        Ok((name, value.into()))
                    })
                    .collect()
            }
            Some(Value::Object(_)) => Err(too_many(member)),
            Some(other) => Err(format!("`{member}`: wanted an object, found {}", kind_of(&other))),
        }
    }

    /// Returns true if the value of a text is not known, so that it cannot be checked: an outline leaves out no server that is used
    /// with some values of variables.
    fn is_open(&self, text: &str) -> bool {
        self.is_outline && text.contains("${")
    }

    /// Reads a text and replaces the variables in it, unless texts stay as they are written. If the text is secret, so are their values.
    fn text(&mut self, member: &str, value: Value, is_secret: bool) -> Result<String> {
        let Value::String(text) = value else {
            return Err(format!("`{member}`: wanted a string, found {}", kind_of(&value)));
        };
        let mut is_unset = false;
        let is_open = self.is_open(&text);
        let max_bytes = if is_open { usize::MAX } else { MAX_TEXT_BYTES };
        let expanded = expand(&text, max_bytes, |name, default| {
            self.variables.push(name.to_owned());
            let value = (self.variable)(name);
            is_unset |= value.is_none() && default.is_none();
            let secret = value.as_deref().filter(|_| is_secret || is_secret_name(name)).map(SecretString::from);
            self.looked_up.extend(secret.map(|secret| (name.to_owned(), secret)));
            value
        });
        let expanded = expanded.map_err(|problem| {
            let default = if is_unset { " and has no default" } else { "" };
            format!("{problem} (in `{member}`){default}")
        })?;
        match expanded.contains('\0') {
            _ if is_open => Ok(text),
            true => Err(format!("`{member}` contains a NUL byte")),
            false => Ok(expanded),
        }
    }
}

fn too_many(member: &str) -> String {
    format!("`{member}` has more than {MAX_LIST_ITEMS} entries")
}

/// Returns true if a relative path leads out of the directory where it begins.
fn leaves_directory(path: &str) -> bool {
    let mut depth = 0_usize;
    Path::new(path).components().any(|part| match part {
        Component::Normal(_) => {
            depth += 1;
            false
        }
        Component::ParentDir => {
            let is_outside = depth == 0;
            depth = depth.saturating_sub(1);
            is_outside
        }
        _ => false,
    })
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
