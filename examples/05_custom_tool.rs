//! A tool of your own is a function. The model reads its doc comments, and its arguments are checked before it is called.

use rath::prelude::*;

/// Look up a price in the list of today.
#[tool(read_only)]
async fn price(
    /// The fruit, in the singular.
    fruit: String,
    /// The number of pieces; one if left out.
    pieces: Option<u32>,
) -> Result<String> {
    let cents = match &*fruit {
        "apple" => 45,
        "pear" => 60,
        other => return Err(Error::new(ErrorKind::Other, format!("there are no prices for `{other}`"))),
    };
    Ok(format!("{} cents", cents * pieces.unwrap_or(1)))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // What a model gets wrong is an answer for the model, and no end of the run: first a wrong type, then an unknown fruit.
    let provider = Provider::from(Script::of([
        r#"{"calls": [{"name": "price", "arguments": {"fruit": "apple", "pieces": "three"}}]}"#,
        r#"{"calls": [{"name": "price", "arguments": {"fruit": "apples", "pieces": 3}}]}"#,
        r#"{"calls": [{"name": "price", "arguments": {"fruit": "apple", "pieces": 3}}]}"#,
        r#"{"text": "Three apples are 1.35 euros.", "expect": {"contains": "135 cents"}}"#,
    ])?);
    let parameters = serde_json::to_string_pretty(&price.spec().parameters);
    println!("{}\n", parameters.unwrap_or_default());

    let agent = Agent::new("You sell fruit.", &provider).tool(price);
    let session = agent.run(Session::user("What do three apples cost?")).await?;
    println!("{}", session.lineage());
    rath_examples::keep(&session).await
}
