//! Commands in containers of podman or docker, on the files of a directory of this machine.
//!
//! A [`Container`] is a sandbox: commands run in a container of an image, and see the workspace and the image, and nothing else of the
//! machine. It is built, or opened by URI with the registry that [`with_containers`] extends:
//!
//! ```no_run
//! # #[cfg(target_os = "linux")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> rath_sandbox::Result<()> {
//! use rath_container::with_containers;
//! use rath_sandbox::{Command, Registry};
//!
//! let sandbox = with_containers(Registry::new()).open("container:docker.io/library/rust:1.95?directory=/srv/app")?;
//! println!("{}", sandbox.run(&Command::shell("cargo --version")).await?.text());
//! # Ok(())
//! # }
//! # #[cfg(not(target_os = "linux"))]
//! # fn main() {}
//! ```
//!
//! # How a container is used
//!
//! - **One container for each directory.** It starts with the first command and ends with the last handle of the sandbox. A sandbox
//!   of another directory ([`Sandbox::with_directory`](rath_sandbox::Sandbox::with_directory)) has its own, in which the other directory is at
//!   the same path.
//! - **rath brings the first process** (`init/main.rs`), a program without any library. The engine creates and removes the container;
//!   everything between goes over a socket: commands with their pipes, exit statuses, the order to kill. So the environment of a command is in no
//!   record of the engine, a command costs no request, and nothing runs twice.
//! - **Each command has a supervisor**, which adopts what the command leaves behind, and kills it when the command ends, is dropped or reaches
//!   its timeout. If it does not answer within five seconds, the container ends, and the kernel kills everything in it.
//! - **If rath is killed**, the first process kills all commands at once, and keeps the container for a minute
//!   ([`kept_after_crash`](Container::kept_after_crash)). A session that is opened again in this time finds it, by a label with the digest of
//!   its settings, with the files in `/tmp` and the home directory. Containers that were created and never ran are removed by the
//!   next start of any.
//! - **Images are never fetched.** The error for a missing one says how the user fetches it.

#[cfg(target_os = "linux")]
mod command_text;
#[cfg(target_os = "linux")]
mod container;
#[cfg(target_os = "linux")]
mod control;
#[cfg(target_os = "linux")]
mod engine;
#[cfg(target_os = "linux")]
mod live;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod options;
#[cfg(target_os = "linux")]
mod running;
#[cfg(target_os = "linux")]
mod spec;

use rath_sandbox::Registry;

#[cfg(target_os = "linux")]
pub use self::container::Container;

/// Returns the name and the socket of the engine that containers would run in. Fails if there is none that answers, with a hint about how to
/// start one. Starts nothing.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// match rath_container::find_engine().await {
///     Ok(engine) => println!("containers run in {engine}"),
///     Err(error) => println!("{}", error.message()),
/// }
/// # }
/// ```
pub async fn find_engine() -> rath_sandbox::Result<String> {
    #[cfg(target_os = "linux")]
    return engine::find().await;
    #[cfg(not(target_os = "linux"))]
    Err(rath_sandbox::Error::new(rath_sandbox::ErrorKind::Unavailable, "containers need Linux"))
}

/// Adds the kind `container` to a registry: `container:IMAGE?directory=PATH`.
///
/// Further options are `network=on`, `memory=1g`, `processes=64`, `cpu=1.5`, `file_size=1g`, `cpu_time=30s`, `output=1m`, `hide=PATH`,
/// `git=write` and `at=PATH`. Without `directory` it is the working directory of the process.
///
/// ```
/// use rath_container::with_containers;
/// use rath_sandbox::Registry;
///
/// # #[cfg(target_os = "linux")] {
/// let registry = with_containers(Registry::new());
/// let sandbox = registry.open("container:docker.io/library/rust:1.95?directory=/srv/app&memory=1g").unwrap();
/// assert_eq!(sandbox.directory(), Some("/srv/app".as_ref()));
/// # }
/// ```
pub fn with_containers(registry: Registry) -> Registry {
    #[cfg(target_os = "linux")]
    let open = |rest: &str| Ok(rath_sandbox::Sandbox::new(Container::from_uri_rest(rest)?));
    #[cfg(not(target_os = "linux"))]
    let open = |_: &str| {
        let message = format!("a sandbox `container:` needs Linux; this is {}", std::env::consts::OS);
        Err(rath_sandbox::Error::new(rath_sandbox::ErrorKind::Unavailable, message))
    };
    registry.with("container", open)
}
