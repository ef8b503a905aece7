use rath::prelude::*;

/// Writes.
#[tool]
async fn write(#[serde(flatten)] file: std::collections::BTreeMap<String, String>) -> usize {
    file.len()
}

fn main() {}
