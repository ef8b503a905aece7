//! Views: projections of a record.
//!
//! Each view is built from the record alone and names the head that it reflects. It reads the reading order, which skips what is
//! kept aside; only [`spending`] counts that too.

mod checks;
mod files;
mod folds;
mod messages;
mod spending;
mod workspace;

pub use checks::{Check, Checks, Freshness, checks, covers};
pub use files::{ChangedFile, ChangedFiles, files};
pub use folds::{Fold, folds};
pub use messages::{CallResult, Continuation, Exchange, Message, Messages, instructions, messages, messages_after};
pub use spending::{CallUsage, Spending, spending};
pub use workspace::{RecordedTree, Trees, Unobserved, conflicts, find_call, tree, trees, unobserved};
