//! Numbered example programs that build on one another. `cargo run --example 01_session` runs the first.
