//! A sandbox: a directory that tools work in, with limits on what they can reach. `session.to(..)` is on the record.

use rath::prelude::*;
use rath::sandbox::{Command, ExitStatus};

/// Runs a command, and prints its output, or that it failed.
async fn try_out(sandbox: &Sandbox, line: &str) -> Result<()> {
    let output = sandbox.run(&Command::shell(line)).await?;
    let text = if output.status == ExitStatus::Exit(0) { output.stdout.text() } else { "failed".to_owned() };
    println!("{line:42} {}", if text.is_empty() { "-" } else { text.trim_end() });
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let project = rath_examples::new_directory()?;
    std::fs::write(project.join("notes.txt"), "Paris, on Friday\n")?;

    // Commands see the machine read-only and without private files, and can write only in the directory. Where the machine
    // does not allow that, `local:` runs them as you.
    let isolated = Sandbox::isolated(&project);
    let sandbox = match isolated.capabilities().await {
        Ok(_) => isolated,
        Err(_) => Sandbox::local(&project),
    };
    try_out(&sandbox, "cat notes.txt").await?;
    try_out(&sandbox, "echo 'by train' >> notes.txt").await?;
    try_out(&sandbox, "tail -n 1 notes.txt").await?;
    try_out(&sandbox, "touch /usr/bin/notes").await?;
    try_out(&sandbox, "tail -n +2 /proc/net/route | wc -l").await?;

    // A session is placed in a sandbox, and the record says where. Paths of tools are relative to it.
    let session = Session::user("What is in notes.txt?").to(sandbox);
    println!("\nthe session is placed in a sandbox: {}", session.place().is_some());

    // Sandboxes have URIs too, with the same options: memory, processes, network, ..
    let limited = Sandbox::open(&format!("isolated:{}?memory=256m&processes=16", project.display()))?;
    let kind = limited.uri().split(':').next().unwrap_or_default();
    println!("a URI opens one with limits: {kind}");

    rath_examples::keep(&session).await?;
    std::fs::remove_dir_all(project)?;
    Ok(())
}
