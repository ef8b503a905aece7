//! Numbered example programs that build on one another. `cargo run --example 01_hello` runs the first.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use rath::prelude::*;

/// The variable that names a directory for the sessions of examples.
pub const KEEP_IN: &str = "RATH_EXAMPLE_SESSIONS";

/// Saves a session where the tests of the examples look for it, and replay it. Does nothing unless [`KEEP_IN`] is set.
pub async fn keep(session: &Session) -> Result<()> {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let Some(directory) = std::env::var_os(KEEP_IN) else { return Ok(()) };
    let nth = COUNT.fetch_add(1, Ordering::Relaxed);
    session.save(PathBuf::from(directory).join(format!("{nth}.rath"))).await
}

/// Makes a directory for the files of an example, which removes it at the end.
pub fn new_directory() -> Result<PathBuf> {
    let directory = std::env::temp_dir().join(format!("rath-example-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}
