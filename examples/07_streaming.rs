//! Streaming: text, calls and steps are seen while they happen, by a listener or as a stream.

use rath::prelude::*;

/// Count the words in a short text.
#[tool(read_only)]
async fn word_count(
    /// Text to count.
    text: String,
) -> usize {
    text.split_whitespace().count()
}

fn counter() -> Result<Agent> {
    // `chunks` is the number of pieces in which a text arrives.
    let script = Script::of([
        r#"{"text": "Let me count.", "chunks": 3, "calls": [{"name": "word_count", "arguments": {"text": "a b c"}}]}"#,
        r#"{"text": "Three words.", "chunks": 2}"#,
    ])?;
    Ok(Agent::new("You count words.", &script.into()).tool(word_count))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // A listener has a thread of its own, so a slow one does not delay the work. The run returns when all is heard.
    let agent = counter()?;
    let run = agent.run(Session::user("How many words: a b c")).on_event(|event| match &event.kind {
        EventKind::Text(piece) => println!("text     {piece:?}"),
        EventKind::ToolStarted(call) => println!("started  {}", call.tool),
        EventKind::ToolFinished { call, outcome } => println!("finished {}: {outcome:?}", call.tool),
        _ => {}
    });
    let first = run.await?;

    // The same events as a stream. A step is handed out when it is on the record.
    let agent = counter()?;
    let mut events = agent.run(Session::user("How many words: a b c")).events();
    let (mut steps, mut pieces) = (0, 0);
    while let Some(event) = events.next().await {
        match event.kind {
            EventKind::Step(_) => steps += 1,
            EventKind::Text(_) => pieces += 1,
            _ => {}
        }
    }
    let second = events.finish().await?;
    println!("\n{steps} steps and {pieces} pieces of text");

    // Two runs of one program are the same session.
    let heads = [&first, &second].map(|session| session.head().map(|step| step.id()));
    println!("the same head: {}", heads[0] == heads[1]);
    rath_examples::keep(&first).await
}
