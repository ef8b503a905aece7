//! Projections of a record. Each is rebuilt from the record alone and says which head it reflects.

mod checks;
mod files;
mod folds;
mod messages;
mod spending;
mod workspace;

pub use checks::{Check, Checks, Freshness, checks, covers};
pub use files::{File, Files, files};
pub use folds::{Fold, folds};
pub use messages::{Carry, Closing, Exchange, Message, Messages, instructions, messages, messages_after};
pub use spending::{Spending, Spent, spending};
pub use workspace::{TreeAt, Trees, asked, conflicts, tree, trees};
