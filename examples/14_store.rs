//! A session in a store: recorded step by step, opened again, and replayed without asking a model.

use rath::prelude::*;

/// Looks up a price.
#[tool(read_only)]
async fn price(
    /// What is to be bought.
    item: String,
) -> String {
    format!("{item}: 3 euros")
}

fn agent() -> Result<Agent> {
    let script = Script::of([
        r#"{"calls": [{"name": "price", "arguments": {"item": "apples"}}]}"#,
        r#"{"text": "Apples are 3 euros."}"#,
    ])?;
    Ok(Agent::new("You know prices.", &Provider::from(script)).tool(price))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let folder = rath_examples::new_directory()?;
    let uri = format!("sqlite:{}", folder.join("rath.db").display());

    let store = Store::open(&uri).await?;
    let session = Session::user("What do apples cost?").record(&store).await?;
    let session = agent()?.run(session).await?;
    let id = session.id();
    // From here on, the program does what a second process would do.
    drop(session);
    store.close().await?;

    let store = Store::open(&uri).await?;
    let resumed = store.resume(id).await?.against(&agent()?);
    println!("{}", resumed.certificate());
    let session = resumed.complete()?;
    println!("{}", session.lineage());
    println!("{}", session.replay(&agent()?).await?);

    rath_examples::keep(&session).await?;
    drop(session);
    store.close().await?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
