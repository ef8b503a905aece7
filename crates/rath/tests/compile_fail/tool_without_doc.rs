use rath::prelude::*;

#[tool]
async fn add(a: u32, b: u32) -> u32 {
    a + b
}

fn main() {}
