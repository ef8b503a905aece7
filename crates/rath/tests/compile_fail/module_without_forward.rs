use rath::prelude::*;

/// Writes.
#[derive(Module)]
struct Desk {
    writer: Agent,
}

fn start(desk: Desk) -> Sequential {
    Sequential::new().then("desk", desk)
}

fn main() {}
