//! The best of three: three forks try, a check decides, the winner is merged, and the losers stay on the record aside.

use rath::Origin;
use rath::chunk::Verdict;
use rath::prelude::*;
use rath::tool::builtin::Shell;
use rath::view;

/// The check that decides: the program has to print 42.
const CHECK: &str = "test \"$(sh answer.sh)\" = 42";

/// An agent that writes the program by this command.
fn programmer(command: &str) -> Result<Agent> {
    let call = format!(r#"{{"calls": [{{"name": "shell", "arguments": {{"command": "{command}"}}}}]}}"#);
    let script = Script::of([call, r#"{"text": "Done."}"#.to_owned()])?;
    Ok(Agent::new("You write programs.", &Provider::from(script)).tool(Shell))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let project = rath_examples::new_directory()?;
    std::fs::write(project.join("README"), "answer.sh prints the answer.\n")?;
    let session = Session::user("Write answer.sh.").to(Sandbox::local(&project));

    // Each try works in a directory of its own, and is checked there.
    let tries = ["echo 'echo 41' > answer.sh", "echo 'echo 42' > answer.sh", "echo 'echo 43' > answer.sh; touch junk"];
    let (mut winner, mut losers) = (None, Vec::new());
    for command in tries {
        let mut attempt = programmer(command)?.run(session.fork()).await?;
        let verdict = attempt.check(CHECK, &[]).await?;
        println!("{command:45} {verdict:?}");
        match winner {
            None if verdict == Verdict::Passed => winner = Some(attempt),
            _ => losers.push(attempt),
        }
    }
    let winner = winner.expect("the second try passes");
    let mut session = session.merge(&winner).await?;
    losers.iter().for_each(|loser| session.keep_aside(loser));
    session.update_files().await?;

    // The gate holds: the check passed on the files as they are. That it failed for the others changes nothing.
    session.require_check(CHECK).await?;
    // The directory has the winner's files, and no others.
    assert_eq!(std::fs::read_to_string(project.join("answer.sh"))?, "echo 42\n");
    assert!(!project.join("junk").exists());
    let files: Vec<_> = view::files(session.as_record()).list.into_keys().collect();
    assert_eq!(files, ["answer.sh"]);
    // The line was written by the winner's call, and the check covers it.
    let blame = session.blame("answer.sh").await?.expect("the file is there");
    let line = &blame.lines[0];
    let Origin::Call(author) = &line.origin else { panic!("a call wrote it") };
    assert!(author.call.arguments.to_string().contains("echo 42"));
    assert!(winner.as_record().find(author.answer).is_some());
    assert_eq!((&line.checks[..], &line.failed_checks[..]), (&[CHECK.to_owned()][..], &[][..]));
    println!("\n{}: {} ({})", line.text, author.call.arguments, line.checks.join(", "));

    // The losers are on the record, and they are paid for.
    let lineage = session.lineage();
    for loser in &losers {
        assert!(loser.head().is_some_and(|head| lineage.find(head.id()).is_some()));
    }
    assert_eq!(view::spending(session.as_record()).total.calls, 6);
    println!("{} tokens in 6 model calls, those of the losers included", session.usage().total());

    rath_examples::keep(&session).await?;
    std::fs::remove_dir_all(project)?;
    Ok(())
}
