use rath::prelude::*;

/// Writes.
#[tool]
async fn write(text: impl Into<String>) -> String {
    text.into()
}

fn main() {}
