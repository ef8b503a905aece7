//! A session is a value: fork it, continue in two directions, and merge the two.

use rath::Usage;
use rath::prelude::*;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut session = Session::user("Which river runs through Paris?").to(Sandbox::local("/srv/paris"));
    session.push_with_usage(Chunk::assistant("The Seine."), Usage::new(14, 4));

    let mut poet = session.fork_named("poet");
    poet.push(Chunk::user("Say it in verse."));
    poet.push_with_usage(Chunk::assistant("Grey Seine, slow silver under stone."), Usage::new(26, 9));

    let mut critic = session.fork_named("critic");
    critic.push(Chunk::user("Is that right?"));
    critic.push_with_usage(Chunk::assistant("It is, since Roman times."), Usage::new(25, 7));

    let merged = poet.merge(&critic).await?;
    println!("{}\n", merged.lineage());
    println!("before: {session}");
    println!("after:  {merged}");
    rath_examples::keep(&merged).await
}
