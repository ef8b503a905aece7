use rath::prelude::*;

/// Says it again.
#[tool]
async fn again<T>(it: T) -> T {
    it
}

fn main() {}
