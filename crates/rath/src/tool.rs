//! Tools, which agents call.
//!
//! A [`Tool`] is written with [`#[tool]`](macro@crate::tool) on an async function, or by hand. A call of a model is looked up,
//! parsed and checked against the tool's schema before the tool runs. Every call gets a result that the model reads.

pub mod builtin;
mod check;
mod context;
mod hiding;
mod output;
mod read_output;
mod round;
mod schedule;
mod schema;
mod source;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rath_record::chunk::ToolSpec;
use serde_json::Value;

pub use context::ToolCx;
pub use hiding::hidden_files_blocking;
pub use output::Output;
pub use schedule::{Access, Touch};
pub use source::{ToolListing, ToolSource};

pub(crate) use builtin::{is_added_by_update, is_update, written_paths};
pub(crate) use check::ArgumentChecker;
pub(crate) use output::READ_OUTPUT;
pub(crate) use read_output::ReadOutput;
pub(crate) use round::{OutputVisibility, Toolbox, never_made, repeat_call, run_calls};
pub(crate) use source::{ErasedSource, RecordedTool, TOOLS_NOTE, add_listed, describe_changes};

use self::builtin::AcceptedForms;
use crate::error::ErrorKind;
use crate::policy::Use;
use crate::session::{Error, Result};

/// A function that a model can call.
///
/// [`#[tool]`](macro@crate::tool) implements it for an async function. A tool with state is written by hand:
///
/// ```
/// use rath::prelude::*;
/// use rath::chunk::ToolSpec;
/// use rath::tool::Output;
/// use rath::tool::Touch;
/// use serde_json::{Value, json};
///
/// /// Adds to a counter that all calls share.
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
///         Output::from_value(&(before + by))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool",
    label = "this is not a tool",
    note = "write `#[tool]` above the function, or implement `Tool` for the type"
)]
pub trait Tool: Send + Sync + 'static {
    /// Returns what the model reads about the tool: its name, its description, and the JSON schema of its arguments.
    fn spec(&self) -> ToolSpec;

    /// Returns the effect of a call with these arguments, which fit the schema.
    fn nature(&self, arguments: &Value) -> Nature {
        let _ = arguments;
        Nature::Effectful
    }

    /// Returns the resources that a call with these arguments reads or changes.
    ///
    /// Calls that touch the same resource run in the order in which the model asked for them, unless all of them only read
    /// it. All other calls run concurrently.
    ///
    /// A call that declares paths which it changes changes no others: what else changes while it runs is recorded as made by others.
    fn touches(&self, arguments: &Value) -> Vec<Touch> {
        let _ = arguments;
        Vec::new()
    }

    /// Returns what a call with these arguments uses besides the paths that it touches: commands, hosts, servers.
    ///
    /// A [`Policy`](crate::Policy) decides about the call by this.
    fn uses(&self, arguments: &Value) -> Vec<Use> {
        let _ = arguments;
        Vec::new()
    }

    /// Returns the change that a call with these arguments would make, as a diff for a person who is asked about it.
    fn preview(&self, cx: &ToolCx, arguments: &Value) -> impl Future<Output = Option<String>> + Send {
        let _ = (cx, arguments);
        async { None }
    }

    /// Returns true if a person has to approve a call with these arguments.
    fn needs_approval(&self, arguments: &Value) -> bool {
        let _ = arguments;
        false
    }

    /// Returns the time that a call may take.
    fn time_limit(&self) -> Duration {
        TIME_LIMIT
    }

    /// Returns the number of bytes of the output that the model is shown. The record has all of it.
    fn output_limit(&self) -> usize {
        OUTPUT_LIMIT
    }

    /// Returns true if a call only runs workflows on sessions, so that it can be made in a replay.
    #[doc(hidden)]
    fn only_runs_workflows(&self) -> bool {
        false
    }

    /// Returns true if calls may give arguments under the other names that are listed for the built-in tool of this name.
    #[doc(hidden)]
    fn is_builtin(&self) -> bool {
        false
    }

    /// Returns the reason why a call with these arguments, which fit the schema, cannot be made, for the model.
    #[doc(hidden)]
    fn refuses(&self, arguments: &Value) -> Option<String> {
        let _ = arguments;
        None
    }

    /// Makes a call. The message of an error is for the model, and the run continues.
    fn call(&self, cx: &ToolCx, arguments: Value) -> impl Future<Output = Result<Output>> + Send;
}

/// The default of [`Tool::time_limit`].
pub const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The default of [`Tool::output_limit`], in bytes.
pub const OUTPUT_LIMIT: usize = 32 * 1024;

/// The effect of a call, as its tool declares it.
///
/// It decides about a call whose end is unknown because the process died: such a call is made again, or waits for a
/// decision.
///
/// Returned by [`Tool::nature`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Nature {
    /// The call changes nothing, so it is made again.
    ReadOnly,
    /// A second call under the same key changes nothing further, so it is made again.
    Idempotent {
        /// The key. `None` stands for a key of the call itself, which stays the same when the call is made again.
        key: Option<String>,
    },
    /// The call may change something each time, so it waits for a decision.
    #[default]
    Effectful,
}

/// A list of tools for an agent, such as [`builtin::all`]. `Tools::default()` is empty.
///
/// ```
/// use rath::tool::builtin::{self, Shell};
///
/// let tools = builtin::files().only(|name| name != "edit_file").tool(Shell);
/// assert!(tools.names().any(|name| name == "shell"));
/// assert!(!tools.names().any(|name| name == "edit_file"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Tools(Vec<ToolHandle>);

impl Tools {
    /// Adds a tool.
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.0.push(ToolHandle::new(tool));
        self
    }

    /// Adds the tools of another list.
    pub fn and(mut self, others: Tools) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Keeps the tools whose name the predicate accepts.
    pub fn only(mut self, predicate: impl Fn(&str) -> bool) -> Self {
        self.0.retain(|tool| predicate(tool.name()));
        self
    }

    /// Returns the names of the tools.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(ToolHandle::name)
    }

    /// Returns what models read about the tools.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.0.iter().map(ToolHandle::spec)
    }

    /// Makes the call of a context with the tool that it names, to test tools with: agents record the calls that they make.
    ///
    /// ```
    /// use rath::chunk::Call;
    /// use rath::prelude::*;
    /// use rath::tool::Tools;
    ///
    /// /// Double a number.
    /// #[tool]
    /// async fn double(number: u32) -> u32 {
    ///     2 * number
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> rath::Result<()> {
    /// let cx = ToolCx::new(Session::user("Double it."), Call::new("c1", "double", r#"{"number": 4}"#));
    /// assert_eq!(Tools::default().tool(double).call(&cx).await?.text, "8");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn call(&self, cx: &ToolCx) -> Result<Output> {
        let call = cx.call();
        let unknown = || Error::new(ErrorKind::Tool, format_args!("unknown tool `{}`", call.tool));
        let tool = self.0.iter().find(|tool| tool.name() == &*call.tool).ok_or_else(unknown)?;
        let invalid = |problem: String| Error::new(ErrorKind::Arguments, problem);
        let text = call.arguments.as_str().unwrap_or_default();
        let arguments = serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
        let arguments = tool.read_arguments(arguments).map_err(invalid)?;
        tool.tool().refuses(&arguments).map_or(Ok(()), |problem| Err(invalid(problem)))?;
        tool.tool().call(cx, arguments).await
    }

    pub(crate) fn into_handles(self) -> Vec<ToolHandle> {
        self.0
    }
}

/// A tool of any type, with its specification and the check of its arguments.
#[derive(Clone)]
pub(crate) struct ToolHandle(Arc<ToolEntry>);

struct ToolEntry {
    spec: ToolSpec,
    /// An error if the specification is not valid.
    check: Result<ArgumentChecker, String>,
    /// The other names and forms of arguments that calls may have.
    forms: Option<AcceptedForms>,
    tool: Box<dyn ErasedTool>,
}

impl ToolHandle {
    pub(crate) fn new(tool: impl Tool) -> Self {
        let spec = tool.spec();
        let check = ArgumentChecker::new(&spec);
        let forms = Tool::is_builtin(&tool).then(|| AcceptedForms::new(&spec));
        ToolHandle(Arc::new(ToolEntry { spec, check, forms, tool: Box::new(tool) }))
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.spec.name
    }

    pub(crate) fn spec(&self) -> &ToolSpec {
        &self.0.spec
    }

    /// Returns the error in the specification of the tool, if there is one.
    pub(crate) fn definition_error(&self) -> Option<Error> {
        let problem = self.0.check.as_ref().err()?;
        Some(Error::new(ErrorKind::Tool, format_args!("the tool `{}` is not valid: {problem}", self.name())))
    }

    /// Returns the arguments of a call as the schema names them, or says why they do not fit.
    fn read_arguments(&self, arguments: Value) -> Result<Value, String> {
        let check = self.0.check.as_ref().map_err(Clone::clone)?;
        let (arguments, renamed) = match &self.0.forms {
            Some(forms) => {
                let read = forms.read(arguments)?;
                (read.values, read.renamed)
            }
            None => (arguments, Vec::new()),
        };
        // A model mends what it wrote, under the name that it gave.
        let as_given = |parameter: &str| {
            let renamed = renamed.iter().find(|(known, _)| *known == parameter);
            renamed.map(|(_, given)| (*given).to_owned())
        };
        check.renamed_arguments(&arguments, &as_given)?;
        Ok(arguments)
    }

    fn tool(&self) -> &dyn ErasedTool {
        &*self.0.tool
    }
}

impl fmt::Debug for ToolHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A tool of any type, behind a pointer.
trait ErasedTool: Send + Sync {
    fn nature(&self, arguments: &Value) -> Nature;
    fn touches(&self, arguments: &Value) -> Vec<Touch>;
    fn uses(&self, arguments: &Value) -> Vec<Use>;
    fn preview<'a>(&'a self, cx: &'a ToolCx, arguments: &'a Value) -> PreviewFuture<'a>;
    fn needs_approval(&self, arguments: &Value) -> bool;
    fn time_limit(&self) -> Duration;
    fn output_limit(&self) -> usize;
    fn only_runs_workflows(&self) -> bool;
    fn refuses(&self, arguments: &Value) -> Option<String>;
    fn call<'a>(&'a self, cx: &'a ToolCx, arguments: Value) -> ToolFuture<'a>;
}

type PreviewFuture<'a> = Pin<Box<dyn Future<Output = Option<String>> + Send + 'a>>;
type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<Output>> + Send + 'a>>;

impl<T: Tool> ErasedTool for T {
    fn nature(&self, arguments: &Value) -> Nature {
        Tool::nature(self, arguments)
    }

    fn touches(&self, arguments: &Value) -> Vec<Touch> {
        Tool::touches(self, arguments)
    }

    fn uses(&self, arguments: &Value) -> Vec<Use> {
        Tool::uses(self, arguments)
    }

    fn preview<'a>(&'a self, cx: &'a ToolCx, arguments: &'a Value) -> PreviewFuture<'a> {
        Box::pin(Tool::preview(self, cx, arguments))
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

    fn refuses(&self, arguments: &Value) -> Option<String> {
        Tool::refuses(self, arguments)
    }

    fn call<'a>(&'a self, cx: &'a ToolCx, arguments: Value) -> ToolFuture<'a> {
        Box::pin(Tool::call(self, cx, arguments))
    }
}

/// Functions for the code that `#[tool]` generates.
#[doc(hidden)]
pub mod macros;

/// Returns the JSON schema of a type, without its title and version.
pub(crate) fn schema_of<A: schemars::JsonSchema>() -> Value {
    let mut schema = schemars::generate::SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<A>();
    // Neither the name of an internal type nor the version of the schema language helps the model.
    schema.remove("title");
    schema.remove("$schema");
    schema.to_value()
}
