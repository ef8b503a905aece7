use rath::prelude::*;

/// Counts.
#[tool]
async fn count(text: &str) -> usize {
    text.len()
}

fn main() {}
