//! The members of a configuration, before any of them is understood.

use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::{MAX_CONFIG_BYTES, MAX_SERVERS, shortened};
use crate::error::{Error, ErrorKind, Result};

/// A server of a configuration, before it is understood.
pub(super) struct WrittenServer {
    pub(super) name: String,
    /// The server. An array of all, if there are several of one name; the text, if it cannot be read.
    pub(super) value: Value,
    /// The reason why it cannot be understood.
    pub(super) problem: Option<String>,
}

/// Returns the servers of a configuration in the order of their text.
pub(super) fn servers(text: &str, notices: &mut Vec<String>) -> Result<Vec<WrittenServer>> {
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
    let mut written: Vec<WrittenServer> = Vec::new();
    for (name, server) in servers {
        let (value, problem) = match serde_json::from_str(server.get()) {
            Ok(value) => (value, None),
            Err(error) => (Value::from(server.get()), Some(format!("it cannot be read: {error}"))),
        };
        match written.iter_mut().find(|known| known.name == name) {
            // Other programs may read the other one.
            Some(known) => {
                known.value = Value::from(vec![known.value.take(), value]);
                known.problem = Some("there are two of this name".to_owned());
            }
            None => written.push(WrittenServer { name, value, problem }),
        }
    }
    Ok(written)
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
