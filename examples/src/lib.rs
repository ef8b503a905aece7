//! The ladder.
