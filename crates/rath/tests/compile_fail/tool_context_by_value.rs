use rath::prelude::*;

/// Writes.
#[tool]
async fn write(cx: ToolCx) -> String {
    cx.key().to_owned()
}

fn main() {}
