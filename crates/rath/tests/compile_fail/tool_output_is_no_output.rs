use rath::prelude::*;

struct Opaque;

/// Writes.
#[tool]
async fn write() -> Opaque {
    Opaque
}

fn main() {}
