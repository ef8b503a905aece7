//! Tools that may change while an agent runs.

use std::future::Future;
use std::pin::Pin;

use rath_record::chunk::ToolSpec;
use serde_json::Value;

use super::{Output, Tool, ToolCx, ToolHandle, Tools};
use crate::error::ErrorKind;
use crate::secrets::Secrets;
use crate::session::{Error, Result};

/// A source of tools that may change while an agent runs, such as servers.
///
/// An agent with sources ([`Agent::tools_from`](crate::flow::Agent::tools_from)) asks each of them before it asks its model. What has
/// changed since is recorded, and the model is told of the tools as they are then.
///
/// ```
/// use std::sync::Mutex;
///
/// use rath::prelude::*;
/// use rath::tool::{ToolListing, ToolSource, Tools};
///
/// /// Tools that a program adds while its agents run.
/// struct Growing(Mutex<Tools>);
///
/// impl ToolSource for Growing {
///     fn describe(&self) -> String {
///         "growing".to_owned()
///     }
///
///     fn owns(&self, name: &str) -> bool {
///         name.starts_with("growing_")
///     }
///
///     async fn list(&self) -> ToolListing {
///         ToolListing { tools: self.last_listed(), notes: Vec::new() }
///     }
///
///     fn last_listed(&self) -> Tools {
///         self.0.lock().unwrap().clone()
///     }
/// }
/// ```
pub trait ToolSource: Send + Sync + 'static {
    /// Returns the name of the source for people.
    fn describe(&self) -> String;

    /// Returns true if a tool of this name comes from this source.
    fn owns(&self, name: &str) -> bool;

    /// Returns the tools that are in force now, in an order that changes only when they do.
    ///
    /// Called before every request to a model, so it should cost next to nothing if nothing has changed.
    fn list(&self) -> impl Future<Output = ToolListing> + Send;

    /// Returns the tools of the last listing, at once; none before the first.
    ///
    /// A stored session is compared with them when it is opened: see [`Resumed::against`](crate::Resumed::against).
    fn last_listed(&self) -> Tools;

    /// Returns the values that must never be recorded.
    fn secrets(&self) -> Secrets {
        Secrets::default()
    }
}

/// The tools of a source at one time.
///
/// Returned by [`ToolSource::list`], which has an example.
#[derive(Clone, Debug, Default)]
pub struct ToolListing {
    /// The tools. Those that are not valid are left out by the agent, and so is a second tool of one name.
    pub tools: Tools,
    /// Remarks for the record: why tools are missing, or that a server was started again.
    pub notes: Vec<String>,
}

/// The beginning of the notes that are recorded about tools.
pub(crate) const TOOLS_NOTE: &str = "tools: ";

type ListFuture<'a> = Pin<Box<dyn Future<Output = ToolListing> + Send + 'a>>;

/// A source of any type, behind a pointer.
pub(crate) trait ErasedSource: Send + Sync {
    fn describe(&self) -> String;
    fn owns(&self, name: &str) -> bool;
    fn list(&self) -> ListFuture<'_>;
    fn last_listed(&self) -> Tools;
    fn secrets(&self) -> Secrets;
}

impl<S: ToolSource> ErasedSource for S {
    fn describe(&self) -> String {
        ToolSource::describe(self)
    }

    fn owns(&self, name: &str) -> bool {
        ToolSource::owns(self, name)
    }

    fn list(&self) -> ListFuture<'_> {
        Box::pin(ToolSource::list(self))
    }

    fn last_listed(&self) -> Tools {
        ToolSource::last_listed(self)
    }

    fn secrets(&self) -> Secrets {
        ToolSource::secrets(self)
    }
}

/// Adds the tools of a source to others. Returns the reasons why some are left out.
pub(crate) fn add_listed(tools: &mut Vec<ToolHandle>, listed: Tools) -> Vec<String> {
    let mut notes = Vec::new();
    for tool in listed.into_handles() {
        if let Some(error) = tool.definition_error() {
            notes.push(error.message());
        } else if tools.iter().any(|known| known.name() == tool.name()) || tool.name() == super::READ_OUTPUT {
            notes.push(format!("there is another tool `{}`", tool.name()));
        } else {
            tools.push(tool);
        }
    }
    notes
}

/// Describes the differences between two lists of tools; none if they are equal.
pub(crate) fn describe_changes(before: &[ToolHandle], now: &[ToolHandle]) -> Option<String> {
    let find =
        |list: &[ToolHandle], name: &str| list.iter().find(|tool| tool.name() == name).map(|tool| tool.spec().clone());
    let (mut new, mut changed) = (Vec::new(), Vec::new());
    for tool in now {
        match find(before, tool.name()) {
            None => new.push(tool.name()),
            Some(spec) if spec != *tool.spec() => changed.push(tool.name()),
            Some(_) => {}
        }
    }
    let gone: Vec<_> = before.iter().map(ToolHandle::name).filter(|name| find(now, name).is_none()).collect();
    let parts = [("new", new), ("changed", changed), ("no longer there", gone)];
    let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<_> = parts.map(|(what, names)| format!("{what}: {}", names.join(", "))).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// A tool of a source in a replay: the recording has the results of its calls.
pub(crate) struct RecordedTool(pub(crate) ToolSpec);

impl Tool for RecordedTool {
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    async fn call(&self, _cx: &ToolCx, _arguments: Value) -> Result<Output> {
        Err(Error::new(ErrorKind::Tool, "a tool of another program is not called in a replay"))
    }
}
