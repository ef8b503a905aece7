use rath::prelude::*;

struct Shop;

impl Shop {
    /// Sells.
    #[tool]
    async fn sell(&self, what: String) -> String {
        what
    }
}

fn main() {}
