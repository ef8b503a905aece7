use rath::prelude::*;

/// Reads.
#[tool(reads(file))]
async fn read(path: String) -> String {
    path
}

fn main() {}
