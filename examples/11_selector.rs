//! A selector: a model says which agent goes on. Every choice is on the record, with its menu and the reply.

use rath::chunk::Choice;
use rath::prelude::*;

/// Routes questions to the agent that can answer them.
#[derive(Module)]
struct Support {
    selector: Selector,
    billing: Agent,
    tech: Agent,
}

impl Workflow for Support {
    async fn forward(&self, mut session: Session) -> Result<Session> {
        while let Some(next) = self.selector.pick(&mut session, &[&self.billing, &self.tech]).await? {
            session = next.run(session).await?;
        }
        Ok(session)
    }
}

/// Sets up the team. A line of a script can be for one module, by its path.
fn team(script: &[&str]) -> Result<Support> {
    let provider = Provider::from(Script::of(script)?);
    Ok(Support {
        selector: Selector::new(&provider),
        billing: Agent::new("You know bills.", &provider).describe("Knows what was paid."),
        tech: Agent::new("You know machines.", &provider).describe("Knows why it does not start."),
    })
}

/// Prints who was chosen, and what they said.
fn print_choices(session: &Session) {
    for chunk in session.chunks() {
        match chunk {
            Chunk::Selected(selected) => match &selected.choice {
                Choice::Chosen { route } => println!("selector: {route} goes on"),
                other => println!("selector: {other:?}"),
            },
            Chunk::Assistant(answer) => println!("  {}", answer.text.as_str().unwrap_or_default()),
            _ => {}
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let support = team(&[
        r#"{"agent": "support.selector", "text": "2", "expect": {"contains": "1. billing: Knows what was paid."}}"#,
        r#"{"agent": "support.tech", "text": "Press the other button."}"#,
        r#"{"agent": "support.selector", "text": "1"}"#,
        r#"{"agent": "support.billing", "text": "It is paid."}"#,
        r#"{"agent": "support.selector", "text": "0"}"#,
    ])?;
    println!("{}\n", support.tree());
    let session = support.run(Session::user("It does not start. Is it paid?")).await?;

    print_choices(&session);

    // The same choices again, without asking: `follow` takes them from a session, `force(["tech"])` from a list.
    let mut again = team(&[
        r#"{"agent": "support.tech", "text": "Press the red button."}"#,
        r#"{"agent": "support.billing", "text": "It is paid."}"#,
    ])?;
    again.selector = again.selector.follow(&session);
    let followed = again.run(Session::user("It does not start. Is it paid?")).await?;
    println!("\nfollowed:");
    print_choices(&followed);
    rath_examples::keep(&session).await
}
