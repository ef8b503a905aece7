use rath::prelude::*;

#[derive(Module)]
enum Desk {
    Writer(Agent),
}

fn main() {}
