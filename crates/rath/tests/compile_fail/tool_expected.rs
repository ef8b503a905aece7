use rath::prelude::*;

async fn add(a: u32, b: u32) -> u32 {
    a + b
}

fn agent(provider: &Provider) -> Agent {
    Agent::new("Add.", provider).tool(add)
}

fn main() {}
