//! Files as part of the session: two forks edit one project, a merge joins them, and blame names the call of each line.

use rath::Origin;
use rath::prelude::*;
use rath::tool::builtin::Shell;
use rath::view;

/// An agent that runs these commands, one after the other.
fn worker(commands: &[&str]) -> Result<Agent> {
    let call =
        |command: &&str| format!(r#"{{"calls": [{{"name": "shell", "arguments": {{"command": "{command}"}}}}]}}"#);
    let turns = commands.iter().map(call).chain([r#"{"text": "Done."}"#.to_owned()]);
    Ok(Agent::new("You edit files.", &Provider::from(Script::of(turns)?)).tool(Shell))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let project = rath_examples::new_directory()?;
    std::fs::write(project.join("trip.txt"), "to: Paris\nby: train\nday: Friday\nfor: two\n")?;

    // In `Sandbox::isolated`, commands would see the machine read-only and have no network.
    let session = Session::user("Plan the trip.").to(Sandbox::local(&project));
    let session = worker(&["echo 'hotel: none yet' >> trip.txt"])?.run(session).await?;

    let fork = |words: &str| {
        let mut fork = session.fork();
        fork.push(Chunk::user(words));
        fork
    };
    // Each fork works in its own directory.
    let ours = worker(&["sed -i s/Paris/Lyon/ trip.txt", "echo '- book a table' > todo.txt"])?;
    let theirs = worker(&["sed -i s/two/three/ trip.txt", "mv trip.txt journey.txt"])?;
    let (ours, theirs) = tokio::try_join!(ours.run(fork("Go to Lyon.")), theirs.run(fork("Three will go.")))?;
    let merged = ours.merge(&theirs).await?;
    merged.update_files().await?;
    println!("{}", std::fs::read_to_string(project.join("journey.txt"))?);

    for line in merged.blame("journey.txt").await?.iter().flat_map(|blame| &blame.lines) {
        let by = match &line.origin {
            Origin::Call(author) => author.call.arguments.to_string(),
            _ => "it was there before".to_owned(),
        };
        println!("{:18} {by}", line.text);
    }

    // Finds the call that removed Paris. No model is asked.
    let argv = ["grep", "-rq", "Paris", "."].map(str::to_owned);
    let found = merged.bisect(&argv).await?;
    let step = found.step.and_then(|step| merged.as_record().find(step));
    if let Some((call, _)) = step.and_then(view::find_call) {
        println!("\n{} runs found what took Paris away: {}", found.runs, call.arguments);
    }

    rath_examples::keep(&merged).await?;
    std::fs::remove_dir_all(project)?;
    Ok(())
}
