//! The members of a configuration, before any of them is understood.

use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::{MAX_CONFIG_BYTES, MAX_SERVERS, shortened};
use crate::error::{Error, ErrorKind, Result};

/// Returns the servers of a configuration in the order of their text, each by its name, or the reason why it cannot be read.
pub(super) fn servers(text: &str, notices: &mut Vec<String>) -> Result<Vec<(String, Result<Value, String>)>> {
    let invalid = |problem: &dyn fmt::Display| Error::new(ErrorKind::Config, problem);
    if text.len() > MAX_CONFIG_BYTES {
        return Err(invalid(&format_args!("the configuration has more than {MAX_CONFIG_BYTES} bytes")));
    }
    let Members(members) = serde_json::from_str(text).map_err(|error| {
        let failed = Error::new(ErrorKind::Config, "the configuration cannot be read");
        match error.classify() {
            Category::Syntax => {
                failed.with_hint("JSON has no comments, and no comma after the last member").because(error)
            }
            _ => failed.because(error),
        }
    })?;
    let mut servers = None;
    for (name, value) in members {
        match &*name {
            "mcpServers" if servers.is_some() => {
                return Err(invalid(&"the configuration has two members `mcpServers`"));
            }
            "mcpServers" => servers = Some(value),
            _ => notices.push(format!("`{}` means nothing here and was ignored", shortened(&name))),
        }
    }
    let Some(servers) = servers else {
        return Err(invalid(&"the configuration has no member `mcpServers`")
            .with_hint("it has to look like {\"mcpServers\": {\"name\": {\"command\": \"program\"}}}"));
    };
    let Members(servers) = serde_json::from_str(servers.get())
        .map_err(|error| Error::new(ErrorKind::Config, "`mcpServers` cannot be read").because(error))?;
    if servers.len() > MAX_SERVERS {
        return Err(invalid(&format_args!("the configuration names more than {MAX_SERVERS} servers")));
    }
    let mut parsed: Vec<(String, Result<Value, String>)> = Vec::new();
    for (name, server) in servers {
        let server = serde_json::from_str(server.get()).map_err(|error| format!("it cannot be read: {error}"));
        match parsed.iter_mut().find(|(known, _)| *known == name) {
            // Other programs may read the other one.
            Some((_, known)) => *known = Err("there are two of this name".to_owned()),
            None => parsed.push((name, server)),
        }
    }
    Ok(parsed)
}

/// The members of an object in their order. A name can occur twice.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}
