//! Hello: a session goes to a model, and comes back with the answer.
//!
//! `cargo run --example 01_hello` plays a script; `cargo run --example 01_hello -- openai:MODEL` asks a real model.

use rath::prelude::*;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // A script has one line of JSON for each answer. No example needs a key.
    let script = Script::of([r#"{"text": "Hello! I am a script.", "usage": {"input": 9, "output": 7}}"#])?;
    let provider = match std::env::args().nth(1) {
        Some(uri) => Provider::open(&uri).await?,
        None => script.into(),
    };

    // A session is a value: `ask` takes it, and returns it with a step more.
    let session = Session::user("Say hello.");
    let session = provider.ask(session).await?;

    println!("{}", session.text().unwrap_or_default());
    println!("{session}");
    rath_examples::keep(&session).await
}
