//! rath: a session-first agent runtime.
//!
//! A [`Session`] is a value that holds everything that happened: what was said, what was called, where tools ran, what
//! it cost. Fork it, merge it, save it, ask it where any of it came from. A [`Provider`] takes one and gives it back with a
//! model's answer; a [`flow::Workflow`] takes one and gives it back with all that agents and their tools did.
//!
#![doc = concat!("```\n", include_str!("../../../examples/13_workflow.rs"), "```")]
// What only some parts use is there in every build, so that the parts stay free of conditions.
#![cfg_attr(not(all(feature = "http", feature = "sandbox", feature = "sqlite")), allow(dead_code))]

mod blocking;
mod budget;
mod cancel;
mod error;
mod file;
pub mod flow;
pub mod gc;
pub mod interchange;
mod links;
pub mod memory;
mod place;
pub mod policy;
pub mod provider;
pub mod replay;
pub mod secrets;
mod session;
pub mod store;
pub mod tool;

pub use budget::{Budget, BudgetLimits};
pub use cancel::Cancel;
pub use error::ErrorKind;
pub use file::{
    Bundle, BundleFiles, BundleReport, FileCheck, FileDamage, FileFault, FileHold, ImportedFiles, LeftOut,
    LeftOutReason, SalvageReport, SessionFile, StagedFiles, salvage, salvage_blocking, verify, verify_blocking,
    verify_graph, verify_graph_blocking,
};
pub use memory::Memory;
pub use place::Place;
pub use policy::Policy;
pub use provider::Provider;
/// Implements [`flow::Module`] for a struct whose fields are modules.
///
/// ```
/// use rath::prelude::*;
///
/// /// Writes, then corrects.
/// #[derive(Module)]
/// struct Office {
///     writer: Agent,
///     critic: Agent,
///     #[module(skip)]
///     rounds: u32,
/// }
/// ```
#[doc(inline)]
pub use rath_macros::Module;
/// Implements [`Tool`](tool::Tool) for an async function.
///
/// ```
/// use rath::prelude::*;
///
/// /// Count the words in a text.
/// #[tool(read_only)]
/// async fn word_count(
///     /// The text.
///     text: String,
/// ) -> usize {
///     text.split_whitespace().count()
/// }
///
/// assert_eq!(word_count.spec().name, "word_count");
/// assert_eq!(word_count.spec().description, "Count the words in a text.");
/// ```
#[doc(inline)]
pub use rath_macros::tool;
pub use rath_record as record;
pub use rath_record::{BranchId, CallId, Chunk, Digest, StepId, Text, Timestamp, Usage, chunk, turn, view};
pub use rath_sandbox as sandbox;
pub use rath_sandbox::Sandbox;
pub use rath_workspace as workspace;
pub use schemars;
pub use secrets::Secrets;
pub use session::{
    Ask, Author, Bisected, Blame, Certainty, Certificate, CheckoutReport, Difference, Error, Event, EventKind, Line,
    Origin, PlacedFiles, Result, Resumed, Session, StoredSession, ToolChange, UnsharedPath, UnsharedReason,
};
pub use store::Store;

/// The programs in the guide are compiled and run with the tests.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guide/agents.md")]
    struct AgentsPage;
    #[doc = include_str!("../../../docs/guide/files.md")]
    struct FilesPage;
    #[doc = include_str!("../../../docs/guide/memory.md")]
    mod memory {}
    #[doc = include_str!("../../../docs/guide/permissions.md")]
    struct PermissionsPage;
    #[doc = include_str!("../../../docs/guide/providers.md")]
    struct ProvidersPage;
    #[doc = include_str!("../../../docs/guide/replay.md")]
    struct ReplayPage;
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guide/stores.md")]
    struct StoresPage;
}

/// The names that most programs need: build agents, run them on sessions, keep the sessions.
///
/// Types that a program meets less often are in the modules: [`chunk`], [`flow`], [`provider`],
/// [`tool`](mod@tool) and [`view`].
pub mod prelude {
    pub use crate::flow::{Agent, Branch, Compressor, Module, Run, Selector, Sequential, Workflow, fork_join};
    pub use crate::policy::Mode;
    #[cfg(feature = "http")]
    pub use crate::provider::{Anthropic, Gemini, OpenAi};
    pub use crate::provider::{Delta, Provider, Script};
    pub use crate::tool::{Tool, ToolCx};
    pub use crate::{
        Budget, Cancel, Chunk, Error, ErrorKind, EventKind, Memory, Policy, Result, Sandbox, Secrets, Session, Store,
    };
    pub use rath_macros::{Module, tool};
    pub use schemars::JsonSchema;
}
