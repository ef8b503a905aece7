//! Parts of the built-in sandboxes for authors of others: URIs, captured output, protected files, work that blocks.
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use rath_sandbox::backend::{CancelOnDrop, ProtectedPaths, Spool, StreamCapture, UriOptions, UriWriter};
//! use rath_sandbox::backend::{absolute, drop_on_pool, run_blocking};
//! use rath_sandbox::{Root, backend};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> rath_sandbox::Result<()> {
//! // A URI has a target and options.
//! let options = UriOptions::parse("jail", "/srv/app?memory=1g", &["memory"])?;
//! let mut writer = UriWriter::new("jail", &absolute(&options.directory));
//! writer.limits(&options.limits()?);
//! assert_eq!(writer.finish(), "jail:/srv/app?memory=1g");
//!
//! // Output stays in memory up to a bound, and goes to a file beyond it.
//! let spool = Arc::new(Spool::new(None));
//! let mut capture = StreamCapture::default();
//! capture.push(b"hello\n", &spool);
//! assert_eq!(capture.finish().await?.text(), "hello\n");
//!
//! // Files in a workspace that commands may not see or change.
//! # let folder = tempfile::tempdir()?;
//! # let directory = folder.path().to_owned();
//! std::fs::create_dir_all(directory.join(".git"))?;
//! let protected = run_blocking({
//!     let directory = directory.clone();
//!     move || ProtectedPaths::find(&directory)
//! });
//! assert_eq!(protected.await?.read_only, [Path::new(".git")]);
//! assert_eq!(backend::with_files_beside(&directory), [&*directory]);
//! # #[cfg(target_os = "linux")]
//! run_blocking({
//!     let directory = directory.clone();
//!     move || backend::PrivatePlaceholders::default().hold(&directory)
//! })
//! .await?;
//!
//! // A write that does not take effect after its future was dropped.
//! let cancel = CancelOnDrop::default();
//! let is_cancelled = cancel.flag();
//! run_blocking(move || Root::open(&directory)?.write_unless("a.txt", b"a", &is_cancelled, None)).await?;
//! drop_on_pool(folder);
//! # Ok(())
//! # }
//! ```

pub use crate::blocking::{CancelOnDrop, drop_on_pool, run_blocking};
#[cfg(target_os = "linux")]
pub use crate::isolated::PrivatePlaceholders;
pub use crate::isolated::{ProtectedPaths, with_files_beside};
pub use crate::limits::Limits;
pub use crate::local::DEFAULT_MAX_OUTPUT_BYTES;
pub use crate::process::{Spool, StreamCapture};
pub use crate::uri::{UriOptions, UriWriter, absolute};
