//! What agents can do.
//!
//! A [`Tool`] is written with [`#[tool]`](macro@crate::tool) on an async function, or by hand. Whatever a model asks for is looked
//! up, read, checked against the tool's schema and only then called; whatever comes of it is a result that the model reads.

pub mod builtin;
mod check;
mod context;
mod output;
mod read_output;
mod round;
mod schedule;
mod schema;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rath_record::chunk::ToolSpec;
use serde_json::Value;

pub use context::ToolCx;
pub use output::Output;
pub use schedule::{Access, Touch};

pub(crate) use check::Check;
pub(crate) use output::READ_ON;
pub(crate) use read_output::ReadOutput;
pub(crate) use round::{Shown, Toolbox, run_calls};

use crate::error::ErrorKind;
use crate::session::{Error, Result};

/// Something that an agent can do.
///
/// Written by hand where a function will not do:
///
/// ```
/// use rath::prelude::*;
/// use rath::tool::Touch;
/// use serde_json::{Value, json};
///
/// /// Adds to a counter that everybody shares.
/// struct Count(std::sync::atomic::AtomicU64);
///
/// impl Tool for Count {
///     fn spec(&self) -> ToolSpec {
///         let by = json!({"type": "object", "properties": {"by": {"type": "integer", "minimum": 1}}, "required": ["by"]});
///         ToolSpec::new("count", "Adds to the counter.", by)
///     }
///
///     fn touches(&self, _arguments: &Value) -> Vec<Touch> {
///         vec![Touch::write_name("counter")]
///     }
///
///     async fn call(&self, _cx: &ToolCx, arguments: Value) -> Result<Output> {
///         let by = arguments["by"].as_u64().unwrap_or_default();
///         let before = self.0.fetch_add(by, std::sync::atomic::Ordering::Relaxed);
///         Output::of(&(before + by))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool",
    label = "this is not a tool",
    note = "write `#[tool]` above the function, or implement `Tool` for the type"
)]
pub trait Tool: Send + Sync + 'static {
    /// What the model is told: the name, what it is for, and the JSON schema of its arguments.
    fn spec(&self) -> ToolSpec;

    /// What a call with these arguments does to the world. Asked once the arguments fit the schema.
    fn nature(&self, arguments: &Value) -> Nature {
        let _ = arguments;
        Nature::Effectful
    }

    /// What a call with these arguments touches. Calls that touch the same thing run in the order in which the model asked
    /// for them, unless all of them only read it; all others run side by side.
    fn touches(&self, arguments: &Value) -> Vec<Touch> {
        let _ = arguments;
        Vec::new()
    }

    /// Whether a person has to agree to a call with these arguments.
    fn needs_approval(&self, arguments: &Value) -> bool {
        let _ = arguments;
        false
    }

    /// How long a call may take.
    fn time_limit(&self) -> Duration {
        TIME_LIMIT
    }

    /// How many bytes of its output the model is shown. All of it is kept.
    fn output_limit(&self) -> usize {
        OUTPUT_LIMIT
    }

    /// Whether a call does nothing but run workflows on sessions, so that it can be made in a replay.
    #[doc(hidden)]
    fn only_runs_workflows(&self) -> bool {
        false
    }

    /// Does it. An error is for the model: it reads the message, and the run goes on.
    fn call(&self, cx: &ToolCx, arguments: Value) -> impl Future<Output = Result<Output>> + Send;
}

/// How long a call may take, unless its tool says otherwise.
pub const TIME_LIMIT: Duration = Duration::from_secs(120);

/// How many bytes of a call's output the model is shown, unless its tool says otherwise.
pub const OUTPUT_LIMIT: usize = 32 * 1024;

/// What a call does to the world, as its tool declares it. It decides what happens to a call of which nobody knows how it
/// ended, because the process died on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Nature {
    /// Nothing changes: the call is made again.
    ReadOnly,
    /// Made again under the same key it changes nothing further: the call is made again.
    Idempotent {
        /// The key; none for one that is the call's own, the same whenever this call is made, and no other call's.
        key: Option<String>,
    },
    /// It may change something each time: the call waits for a decision.
    #[default]
    Effectful,
}

/// Several tools, to give to an agent at once.
///
/// [`builtin::all`] for one. `Tools::default()` has none.
#[derive(Clone, Debug, Default)]
pub struct Tools(Vec<Handle>);

impl Tools {
    /// The same with another tool.
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.0.push(Handle::new(tool));
        self
    }

    /// Those whose names are taken.
    pub fn only(mut self, take: impl Fn(&str) -> bool) -> Self {
        self.0.retain(|tool| take(tool.name()));
        self
    }

    /// What they are called.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(Handle::name)
    }

    pub(crate) fn handles(self) -> Vec<Handle> {
        self.0
    }
}

/// Any tool, with what is known of it before it is called.
#[derive(Clone)]
pub(crate) struct Handle(Arc<Known>);

struct Known {
    spec: ToolSpec,
    check: Result<Check, String>,
    tool: Box<dyn Erased>,
}

impl Handle {
    pub(crate) fn new(tool: impl Tool) -> Self {
        let spec = tool.spec();
        let check = Check::new(&spec);
        Handle(Arc::new(Known { spec, check, tool: Box::new(tool) }))
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.spec.name
    }

    pub(crate) fn spec(&self) -> &ToolSpec {
        &self.0.spec
    }

    /// What is wrong with the tool itself, if anything.
    pub(crate) fn problem(&self) -> Option<Error> {
        let wrong = self.0.check.as_ref().err()?;
        Some(Error::new(ErrorKind::Tool, format_args!("`{}` is no tool: {wrong}", self.name())))
    }

    fn check(&self, arguments: &Value) -> Result<(), String> {
        self.0.check.as_ref().map_or_else(|wrong| Err(wrong.clone()), |check| check.arguments(arguments))
    }

    fn tool(&self) -> &dyn Erased {
        &*self.0.tool
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A tool behind a pointer.
trait Erased: Send + Sync {
    fn nature(&self, arguments: &Value) -> Nature;
    fn touches(&self, arguments: &Value) -> Vec<Touch>;
    fn needs_approval(&self, arguments: &Value) -> bool;
    fn time_limit(&self) -> Duration;
    fn output_limit(&self) -> usize;
    fn only_runs_workflows(&self) -> bool;
    fn call<'a>(&'a self, cx: &'a ToolCx, arguments: Value) -> Calling<'a>;
}

type Calling<'a> = Pin<Box<dyn Future<Output = Result<Output>> + Send + 'a>>;

impl<T: Tool> Erased for T {
    fn nature(&self, arguments: &Value) -> Nature {
        Tool::nature(self, arguments)
    }

    fn touches(&self, arguments: &Value) -> Vec<Touch> {
        Tool::touches(self, arguments)
    }

    fn needs_approval(&self, arguments: &Value) -> bool {
        Tool::needs_approval(self, arguments)
    }

    fn time_limit(&self) -> Duration {
        Tool::time_limit(self)
    }

    fn output_limit(&self) -> usize {
        Tool::output_limit(self)
    }

    fn only_runs_workflows(&self) -> bool {
        Tool::only_runs_workflows(self)
    }

    fn call<'a>(&'a self, cx: &'a ToolCx, arguments: Value) -> Calling<'a> {
        Box::pin(Tool::call(self, cx, arguments))
    }
}

/// What the macro's code calls.
#[doc(hidden)]
pub mod macros;

/// The JSON schema of a type.
pub(crate) fn schema_of<A: schemars::JsonSchema>() -> Value {
    let mut schema = schemars::generate::SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<A>();
    // The name of a type that nobody sees says nothing, and neither does the version of the schema language.
    schema.remove("title");
    schema.remove("$schema");
    schema.to_value()
}
