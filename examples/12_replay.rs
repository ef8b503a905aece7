//! Replay and what-if: a session is made again without its model, and a fork of an earlier step tries something else.

use rath::prelude::*;

/// Look up a price.
#[tool(read_only)]
async fn price(
    /// The fruit.
    fruit: String,
) -> String {
    format!("{fruit}: 3 euros")
}

fn seller(prompt: &str, answers: &[&str]) -> Result<Agent> {
    Ok(Agent::new(prompt, &Script::of(answers)?.into()).tool(price))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let answers = [
        r#"{"calls": [{"name": "price", "arguments": {"fruit": "apples"}}]}"#,
        r#"{"text": "Apples are 3 euros.", "usage": {"input": 60, "output": 6}}"#,
    ];
    let session = seller("You sell fruit.", &answers)?.run(Session::user("What do apples cost?")).await?;

    // From the record alone: every request is rendered again, and compared byte for byte.
    println!("from the record:      {}", session.rebuild());
    // With the program: no model is asked and no tool runs, and the program has to append the same steps.
    println!("with the program:     {}", session.replay(&seller("You sell fruit.", &answers)?).await?);
    // A changed program is found out at the first step that differs.
    let replayed = session.replay(&seller("You give fruit away.", &answers)?).await?;
    let divergence = replayed.divergence.expect("the prompt is another one");
    let found = divergence.found.unwrap_or_default();
    println!("with another prompt:  {} is {found}", divergence.pointer);
    // With the tools: every recorded call is made again.
    let replayed = session.replay(&seller("You sell fruit.", &answers)?).reexecuting(Sandbox::local(".")).await?;
    println!("with the tools:       {replayed}\n");

    // What if the model had answered at once? The fork has all steps up to the instructions, and the same ids.
    let steps = session.as_record().steps();
    let told = steps.iter().find(|step| matches!(step.chunk(), Chunk::Instructions(_))).expect("instructions");
    let guess = r#"{"text": "About 2 euros.", "usage": {"input": 31, "output": 5}}"#;
    let other = seller("You sell fruit.", &[guess])?.run(session.at(told.id())?).await?;
    println!("{}", session.compare(&other));
    rath_examples::keep(&session).await?;
    rath_examples::keep(&other).await
}
