//! Asks a provider, prints the answer as it arrives, and rebuilds the request from the record.
//!
//! `cargo run --example 10_providers` uses a script; `cargo run --example 10_providers -- openai:MODEL` asks a real model.

use std::io::Write;

use rath::prelude::*;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let uri = std::env::args().nth(1);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/seine.jsonl");
    let provider = Provider::open(&uri.unwrap_or_else(|| format!("script:{script}"))).await?;

    let mut session = Session::system("You are a guide. Be brief.").within(Budget::new().tokens(50_000).turns(10));
    for question in ["Which river runs through Paris?", "And through Rome?"] {
        println!("> {question}");
        session.push(Chunk::user(question));
        let print = |delta: Delta<'_>| match delta {
            Delta::Text(text) => {
                print!("{text}");
                let _ = std::io::stdout().flush();
            }
            Delta::Retry { attempt, of, error, .. } => println!("(attempt {attempt} of {of} failed: {error})"),
            _ => {}
        };
        session = provider.ask(session).each(print).await?;
        println!();
    }

    let answer = session.head().expect("there is an answer").id();
    println!("\n{}\n", session.lineage());
    println!("sent: {}", String::from_utf8_lossy(session.request(answer)?.body()));
    rath_examples::keep(&session).await
}
