use rath::prelude::*;

/// Writes.
#[tool(writes(file))]
async fn write(#[serde(rename = "path")] file: String) -> String {
    file
}

fn main() {}
