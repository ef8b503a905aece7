//! Runs the same command without walls and behind them: `cargo run -p rath-sandbox --example walls`.
//!
//! The command writes a file in the workspace and one next to it. In `local` both succeed. In `isolated` the second fails,
//! since commands can write in the workspace only.

use rath_sandbox::{Command, Result, Sandbox};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let workspace = directory.path().join("workspace");
    std::fs::create_dir(&workspace)?;
    let outside = directory.path().join("outside.txt");

    for sandbox in [Sandbox::local(&workspace), Sandbox::isolated(&workspace)] {
        // Tries the sandbox: a machine without user namespaces, such as some containers, cannot isolate.
        let capabilities = match sandbox.capabilities().await {
            Ok(capabilities) => capabilities,
            Err(error) => {
                println!("{}\n  not available: {error:?}\n", sandbox.uri());
                continue;
            }
        };
        println!("{}\n  {capabilities}", sandbox.uri());

        for (place, path) in [("inside", "inside.txt".to_owned()), ("outside", outside.display().to_string())] {
            let output = sandbox.run(&Command::shell(&format!("echo hello > '{path}'"))).await?;
            println!("  write {place}: {:?} {}", output.status, output.stderr.text().trim_end());
        }
        println!("  outside.txt exists: {}\n", outside.exists());
        std::fs::remove_file(&outside).ok();
    }
    Ok(())
}
