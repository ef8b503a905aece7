//! Built-in tools: an agent reads, edits and checks files in the session's sandbox.

use rath::prelude::*;
use rath::tool::builtin;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let project = rath_examples::new_directory()?;
    std::fs::write(project.join("greet.sh"), "echo \"Hello, $2\"\n")?;

    // The model reads the file, repairs it and checks the repair. A check stays on the record with its verdict.
    let provider = Provider::from(Script::of([
        r#"{"calls": [{"name": "read_file", "arguments": {"path": "greet.sh"}}]}"#,
        r#"{"calls": [{"name": "edit_file", "arguments": {"path": "greet.sh", "old_string": "$2", "new_string": "$1"}}]}"#,
        r#"{"calls": [{"name": "check", "arguments": {"command": "test \"$(sh greet.sh Ada)\" = 'Hello, Ada'"}}]}"#,
        r#"{"text": "greet.sh took the second word; it takes the first now."}"#,
    ])?);

    // `read_only()`, `files()` and `all()` are sets of tools; an agent has only those that it is given.
    let agent = Agent::new("You repair programs.", &provider).tools(builtin::all());
    let session = Session::user("greet.sh does not greet Ada.").to(Sandbox::local(&project));
    let session = agent.run(session).await?;

    println!("{}", session.text().unwrap_or_default());
    println!("greet.sh: {}", std::fs::read_to_string(project.join("greet.sh"))?.trim_end());
    for path in session.files().list.keys() {
        println!("changed on the record: {path}");
    }
    for (command, check) in &session.checks().list {
        println!("check {command}: {:?}", check.checked.verdict);
    }

    rath_examples::keep(&session).await?;
    std::fs::remove_dir_all(project)?;
    Ok(())
}
