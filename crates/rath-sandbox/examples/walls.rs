//! Runs the same commands without isolation and with it: `cargo run -p rath-sandbox --example walls`.
//!
//! The commands write a file in the workspace, and one in a directory outside. In `local` both succeed. In `isolated` the
//! second fails, since everything outside the workspace is read-only.

use rath_sandbox::{Command, Isolated, Local, Result, Sandbox};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (workspace, outside) = (directory.path().join("workspace"), directory.path().join("outside"));
    std::fs::create_dir(&workspace)?;
    std::fs::create_dir(&outside)?;

    // `/tmp` of an isolated command is empty and its own: without `show`, the command would not see the directory at all.
    let local = Sandbox::new(Local::new(&workspace));
    let isolated = Sandbox::new(Isolated::new(&workspace).show(&outside));
    for sandbox in [local, isolated] {
        println!("{}", sandbox.uri());
        // Tries the sandbox: a machine without user namespaces, such as some containers, cannot isolate.
        match sandbox.capabilities().await {
            Ok(capabilities) => println!("  {capabilities}"),
            Err(error) => {
                println!("  not available: {error:?}");
                continue;
            }
        }
        for (name, path) in [("inside", &workspace), ("outside", &outside)] {
            let line = format!("echo hello > '{}/greeting.txt'", path.display());
            let output = sandbox.run(&Command::shell(&line)).await?;
            println!("  write {name}: {:?} {}", output.status, output.text().trim_end());
        }
    }
    Ok(())
}
