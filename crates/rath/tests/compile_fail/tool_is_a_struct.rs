use rath::prelude::*;

/// Writes.
#[tool]
struct Write;

fn main() {}
