//! Compressing: a summary replaces the older part of a conversation for the model, and nothing is removed from the record.

use rath::prelude::*;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let provider = Provider::from(Script::of([
        r#"{"text": "By train, from Gare de Lyon."}"#,
        r#"{"text": "At eight, to be there at ten."}"#,
        r#"{"text": "The user goes to Lyon by train at eight, from Gare de Lyon."}"#,
        r#"{"text": "Two hours.", "expect": {"contains": "goes to Lyon by train at eight"}}"#,
    ])?);
    let mut session = Session::system("You plan trips.");
    for question in ["How do I get to Lyon?", "When should I leave?"] {
        session.push(Chunk::user(question));
        session = provider.ask(session).await?;
    }

    // By hand; `agent.compress(Compressor::new(&provider).window(128_000))` does it when the window is almost full.
    let before = session.messages().list.len();
    let mut session = Compressor::new(&provider).keep(0).run(session).await?;
    println!("{before} messages before, {} after\n", session.messages().list.len());
    for fold in session.folds() {
        println!("the summary: {}", fold.compressed.summary.as_str().unwrap_or_default());
        println!("stands for {} steps, the first of which is:", fold.hidden.len());
        println!("  {}\n", rath::record::draw::headline(fold.hidden[0]));
    }

    // The next request has the summary. What it stands for is on the record still.
    session.push(Chunk::user("How long does it take?"));
    let session = provider.ask(session).await?;
    println!("{}", session.text().unwrap_or_default());
    println!("{session}");
    rath_examples::keep(&session).await
}
