use rath::prelude::*;

#[derive(Module)]
struct Desk {
    writer: Agent,
    #[module(ignore)]
    copies: usize,
}

fn main() {}
