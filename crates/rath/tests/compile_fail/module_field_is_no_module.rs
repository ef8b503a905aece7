use rath::prelude::*;

/// Writes.
#[derive(Module)]
struct Desk {
    writer: Agent,
    copies: usize,
}

fn main() {}
