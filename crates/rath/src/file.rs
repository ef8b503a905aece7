//! Session files.

mod bundle;
mod check;
mod sink;

use std::collections::HashSet;
use std::fs::File;
use std::io::{ErrorKind as IoKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

use rath_record::codec::{CodecError, Encoder, ObjectSink, Reader, Report, SkipObjects, Verifier};
use rath_record::graph::{self, GraphReport};
use rath_record::lineage::Lineage;
use rath_record::{Digest, Parent, Step, StepId};

use rath_workspace::open_regular_file;

use crate::blocking::run_blocking;
use crate::error::ErrorKind;
use crate::session::Session;
use crate::session::{Error, Result};
use crate::store::{Signature, Signer};
use sink::FileChecker;

pub use bundle::{Bundle, BundleFiles, BundleReport, FileHold, ImportedFiles, LeftOut, LeftOutReason, StagedFiles};
pub use check::{FileCheck, FileDamage, FileFault};

/// The number of bytes that are read or written at a time.
const BLOCK_BYTES: usize = 256 * 1024;

/// The most bytes of a session file at a path of others.
const MAX_REGULAR_BYTES: u64 = 4 << 30;

/// The contents of a session file.
///
/// ```
/// use rath::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// let path = directory.path().join("hello.rath");
/// Session::user("hello").save(&path).await?;
/// let file = Session::open(&path).await?;
/// assert!(file.report.is_whole());
/// assert_eq!(file.session.chunk_count(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SessionFile {
    /// The session that ends at the newest step, as far as it could be read.
    pub session: Session,
    /// All steps in the file.
    ///
    /// A file can have several heads, for example because a row is lost and the line is split there. Then the lineage holds
    /// more than the session, and more than saving the session would write.
    pub lineage: Lineage,
    /// The result of checking the file. Damage is reported here and is not an error: everything undamaged was read.
    pub report: Report,
}

impl Session {
    /// Writes the session to a file atomically.
    ///
    /// An existing file is replaced and keeps its permissions; if the path is a symlink, its target is replaced. Steps and
    /// payloads that the session refers to and does not have are marked in the file as missing.
    ///
    /// The file is signed with the key of the user, unless the session is a [guest](Session::is_guest): opened from the same
    /// path, it is no guest. A copy elsewhere is.
    pub async fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let (path, session) = (path.as_ref().to_owned(), self.with_opening());
        let report = run_blocking(move || session.save_blocking(path)).await;
        report.map_err(|error| error.with_session(self))
    }

    /// Writes the session to a file atomically, on the current thread. See [`save`](Session::save).
    pub fn save_blocking(&self, path: impl AsRef<Path>) -> Result<()> {
        let session = self.with_opening();
        let target = resolve_link(path.as_ref());
        session.list_file(&target)?;
        let head = session.head().filter(|_| !session.is_guest()).map(Step::id);
        let signed = head.and_then(|head| {
            let signature = Signer::for_file(&target).sign(session.id(), head)?;
            Some(SignedHead { head, signature })
        });
        let report =
            write_atomically(path.as_ref(), |out| write_steps(out, Encoder::new(), &session.lineage(), signed));
        report.map(|_| ()).map_err(|error| error.with_session(self))
    }

    /// Returns the bytes of the file that [`save`](Session::save) writes.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let report = write_steps(&mut bytes, Encoder::new(), &self.with_opening().lineage(), None);
        report.map(|_| bytes).map_err(|error| error.describe(None).with_session(self))
    }

    /// Reads a session from a file. Of a damaged file everything undamaged is read; the report lists the damage.
    ///
    /// The session is a [guest](Session::is_guest), unless this user saved it at this path.
    ///
    /// The session knows only the forks that are in the file. Forks that were made from the same head before it was saved,
    /// or by another program that opened the file, are not counted: if two forks append exactly the same chunks, their steps
    /// have the same ids and count as one.
    pub async fn open(path: impl AsRef<Path>) -> Result<SessionFile> {
        let path = path.as_ref().to_owned();
        run_blocking(move || Session::open_blocking(path)).await
    }

    /// Reads a session from a file, on the current thread. See [`open`](Session::open).
    pub fn open_blocking(path: impl AsRef<Path>) -> Result<SessionFile> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| io_error("open", path, error))?;
        Session::read_file(path, file)
    }

    /// Reads a session from a path of others, on the current thread: from a regular file that is not too long.
    pub(crate) fn open_regular_blocking(path: &Path) -> Result<SessionFile> {
        let open = || {
            let file = open_regular_file(path)?;
            match file.metadata()?.len() {
                length if length > MAX_REGULAR_BYTES => Err(std::io::Error::other("it is too long")),
                // A file that grows all the time is not followed.
                length => Ok(file.take(length)),
            }
        };
        Session::read_file(path, open().map_err(|error| io_error("open", path, error))?)
    }

    fn read_file(path: &Path, file: impl Read) -> Result<SessionFile> {
        Session::read_file_with(path, file, &mut SkipObjects)
    }

    /// Reads a session from a file, and hands the versions of files in it to `sink`.
    fn read_file_with(path: &Path, mut file: impl Read, sink: &mut dyn ObjectSink) -> Result<SessionFile> {
        let mut reader = Reader::new();
        for_each_block(&mut file, |block| reader.feed_with(block, sink))
            .map_err(|error| io_error("read", path, error))?;
        let contents = reader.finish_with(sink).map_err(|error| format_error(path, &error))?;
        let session = Session::resume(contents.record);
        let is_own = session.head().is_some_and(|head| {
            let signature = contents.signatures.get(&(session.id(), head.id())).copied();
            signature.is_some() && Signer::for_file(path).is_own(session.id(), head.id(), signature)
        });
        Ok(SessionFile {
            session: session.owned_if(is_own),
            lineage: Lineage::new(contents.heads),
            report: contents.report,
        })
    }
}

/// Checks a session file, with the versions of files that are in it. The memory needed grows with the number of these versions, and
/// otherwise not with the length of the file.
///
/// ```
/// # use rath::prelude::*;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("hello.rath");
/// # Session::user("hello").save(&path).await?;
/// let report = rath::verify(&path).await?;
/// assert!(report.is_whole());
/// assert_eq!(report.steps, 1);
/// # Ok(())
/// # }
/// ```
pub async fn verify(path: impl AsRef<Path>) -> Result<Report> {
    let path = path.as_ref().to_owned();
    run_blocking(move || verify_blocking(path)).await
}

/// Checks a session file, on the current thread. See [`verify`].
///
/// See [`verify`] for an example.
pub fn verify_blocking(path: impl AsRef<Path>) -> Result<Report> {
    let path = path.as_ref();
    let mut file = File::open(path).map_err(|error| io_error("open", path, error))?;
    let (mut verifier, mut sink) = (Verifier::new(), FileChecker::default());
    loop {
        for_each_block(&mut file, |block| verifier.feed_with(block, &mut sink))
            .map_err(|error| io_error("read", path, error))?;
        if let Some(report) = verifier.end_with(&mut sink).map_err(|error| format_error(path, &error))? {
            return Ok(report);
        }
        file.rewind().map_err(|error| {
            io_error("read", path, error).with_hint("the check reads it more than once; save it to a file first")
        })?;
    }
}

/// The result of a salvage: the number of copied steps, and the steps and payloads that are lost.
///
/// Returned by [`salvage`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SalvageReport {
    /// The number of steps that were copied.
    pub steps: u64,
    /// The lost steps that other steps have as their parents.
    pub lost_steps: Vec<StepId>,
    /// The lost payloads that steps refer to, without those that were forgotten on request.
    pub lost_payloads: Vec<Digest>,
}

impl SalvageReport {
    /// Returns what copying a lineage would report, without copying it.
    pub fn new(lineage: &Lineage) -> Self {
        let (mut report, mut marked) = (SalvageReport::default(), HashSet::new());
        lineage.walk().into_iter().for_each(|step| _ = report.add(step, &mut marked));
        report
    }

    /// Counts a step. Returns the ids and digests that it refers to, that are missing, and that are not in `marked` yet.
    fn add(&mut self, step: &Step, marked: &mut HashSet<Digest>) -> Vec<Digest> {
        self.steps += 1;
        let mut missing = Vec::new();
        for id in step.parents().iter().filter(|link| link.step().is_none()).map(Parent::id) {
            if marked.insert(Digest(id.0)) {
                missing.push(Digest(id.0));
                self.lost_steps.push(id);
            }
        }
        let referenced = step.chunk().payload_digests();
        if !referenced.is_empty() {
            let present: HashSet<Digest> = step.chunk().payloads().into_iter().map(|(digest, _)| digest).collect();
            for digest in referenced.into_iter().filter(|digest| !present.contains(digest)) {
                if marked.insert(digest) {
                    missing.push(digest);
                    self.lost_payloads.extend(step.withheld().is_none().then_some(digest));
                }
            }
        }
        missing
    }

    /// Returns whether nothing is lost.
    pub fn is_whole(&self) -> bool {
        self.lost_steps.is_empty() && self.lost_payloads.is_empty()
    }
}

/// Copies all steps of a lineage to a new file. The copy is undamaged and marks the steps and payloads that are lost.
///
/// The lineage is that of a damaged file, [`SessionFile::lineage`], or of a damaged session in a store,
/// [`Store::pieces`](crate::Store::pieces). An existing file is not replaced.
///
/// ```
/// # use rath::prelude::*;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let (path, copy) = (directory.path().join("hello.rath"), directory.path().join("copy.rath"));
/// # let mut session = Session::user("hello");
/// # session.push(Chunk::assistant("hi"));
/// # session.save(&path).await?;
/// // Change a letter in a session file.
/// let changed = std::fs::read_to_string(&path)?.replace("hello", "hullo");
/// std::fs::write(&path, changed)?;
/// let damaged = Session::open(&path).await?;
/// assert!(!damaged.report.is_whole());
///
/// let report = rath::salvage(&damaged.lineage, &copy).await?;
/// assert_eq!((report.steps, report.lost_steps.len()), (1, 1));
/// assert!(rath::verify(&copy).await?.is_whole());
/// # Ok(())
/// # }
/// ```
pub async fn salvage(lineage: &Lineage, path: impl AsRef<Path>) -> Result<SalvageReport> {
    let (lineage, path) = (lineage.clone(), path.as_ref().to_owned());
    run_blocking(move || salvage_blocking(&lineage, path)).await
}

/// Copies all steps of a lineage to a new file, on the current thread. See [`salvage`].
///
/// See [`salvage`] for an example.
pub fn salvage_blocking(lineage: &Lineage, path: impl AsRef<Path>) -> Result<SalvageReport> {
    let path = path.as_ref();
    if path.symlink_metadata().is_ok() {
        let message = format!("cannot write {}: there is a file of that name", path.display());
        return Err(Error::new(ErrorKind::Io, message).with_hint("choose another file name"));
    }
    write_atomically(path, |out| write_steps(out, Encoder::new(), lineage, None))
}

/// Checks an exported graph of sessions.
///
/// ```
/// use rath::record::graph::Ids;
/// # use rath::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("graph.jsonl");
/// std::fs::write(&path, Session::user("hello").export(Ids::Original))?;
/// assert!(rath::verify_graph(&path).await?.problems.is_empty());
/// # Ok(())
/// # }
/// ```
pub async fn verify_graph(path: impl AsRef<Path>) -> Result<GraphReport> {
    let path = path.as_ref().to_owned();
    run_blocking(move || verify_graph_blocking(path)).await
}

/// Checks an exported graph of sessions, on the current thread. See [`verify_graph`].
///
/// See [`verify_graph`] for an example.
pub fn verify_graph_blocking(path: impl AsRef<Path>) -> Result<GraphReport> {
    let path = path.as_ref();
    let export = std::fs::read(path).map_err(|error| io_error("read", path, error))?;
    Ok(graph::verify(&export))
}

/// The newest step of a session that is saved, with the signature of its user.
#[derive(Clone, Copy)]
struct SignedHead {
    head: StepId,
    signature: Signature,
}

/// The reason why a file was not written.
enum WriteError {
    Io(std::io::Error),
    Codec(CodecError),
}

impl WriteError {
    /// Returns the error for the user.
    fn describe(self, path: Option<&Path>) -> Error {
        match (self, path) {
            (WriteError::Io(error), Some(path)) => io_error("write", path, error),
            (WriteError::Io(error), None) => error.into(),
            (WriteError::Codec(error), Some(path)) => format_error(path, &error),
            (WriteError::Codec(error), None) => Error::wrap(ErrorKind::Format, error),
        }
    }
}

impl From<std::io::Error> for WriteError {
    fn from(error: std::io::Error) -> Self {
        WriteError::Io(error)
    }
}

impl From<CodecError> for WriteError {
    fn from(error: CodecError) -> Self {
        WriteError::Codec(error)
    }
}

/// Writes a temporary file, and renames it to `path` when it is complete. A device or a pipe is written to, and not replaced.
fn write_atomically<T>(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<T, WriteError>) -> Result<T> {
    let target = resolve_link(path);
    if std::fs::metadata(&target).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        let opened = File::options().write(true).open(&target).map_err(WriteError::Io);
        return opened.and_then(|mut file| write(&mut file)).map_err(|error| error.describe(Some(path)));
    }
    let temporary = sibling_path(&target);
    replace(&target, &temporary, write).map_err(|error| {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&temporary);
        error.describe(Some(path))
    })
}

/// Calls `write` with the file `temporary`, and renames it to `path`.
fn replace<T>(
    path: &Path,
    temporary: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<T, WriteError>,
) -> Result<T, WriteError> {
    let mut file = File::create_new(temporary)?;
    if let Ok(old) = std::fs::metadata(path) {
        file.set_permissions(old.permissions())?;
    }
    let written = write(&mut file)?;
    file.sync_all()?;
    std::fs::rename(temporary, path)?;
    // The rename is durable once the directory is synced. Systems that cannot open directories do not need it.
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(directory) = File::open(directory) {
        directory.sync_all()?;
    }
    Ok(written)
}

/// Writes every step, and the end of the file.
fn write_steps(
    out: &mut dyn Write,
    mut encoder: Encoder,
    lineage: &Lineage,
    signed: Option<SignedHead>,
) -> Result<SalvageReport, WriteError> {
    let report = push_steps(out, &mut encoder, lineage, signed)?;
    out.write_all(&encoder.finish())?;
    Ok(report)
}

/// Writes every step, and before it the marks of missing steps and payloads that it refers to. The last rows stay in the encoder.
fn push_steps(
    out: &mut dyn Write,
    encoder: &mut Encoder,
    lineage: &Lineage,
    signed: Option<SignedHead>,
) -> Result<SalvageReport, WriteError> {
    let (mut report, mut marked) = (SalvageReport::default(), HashSet::new());
    for step in lineage.walk() {
        report.add(step, &mut marked).into_iter().for_each(|name| encoder.push_gone(name, None));
        let signature = signed.filter(|signed| signed.head == step.id()).map(|signed| signed.signature);
        encoder.push_signed_step(step, signature)?;
        flush(out, encoder)?;
    }
    Ok(report)
}

/// Writes the rows of an encoder, once there are enough.
fn flush(out: &mut dyn Write, encoder: &mut Encoder) -> std::io::Result<()> {
    match encoder.buffered_bytes() > BLOCK_BYTES {
        true => out.write_all(&encoder.take_bytes()),
        false => Ok(()),
    }
}

/// Reads a file to its end, block by block.
fn for_each_block(file: &mut impl Read, mut consume: impl FnMut(&[u8])) -> std::io::Result<()> {
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        match file.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(count) => consume(&block[..count]),
            Err(error) if error.kind() == IoKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the target of a symlink, which need not exist; any other path is returned unchanged or canonical.
fn resolve_link(path: &Path) -> PathBuf {
    if let Ok(target) = std::fs::canonicalize(path) {
        return target;
    }
    match std::fs::read_link(path) {
        Ok(target) => path.parent().unwrap_or(Path::new("")).join(target),
        Err(_) => path.to_owned(),
    }
}

/// Returns a unique path in the directory of `path`.
///
/// The rename stays on one file system, and concurrent saves use different files.
fn sibling_path(path: &Path) -> PathBuf {
    path.with_file_name(format!(".{}.tmp", uuid::Uuid::now_v7().simple()))
}

fn io_error(action: &str, path: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format_args!("cannot {action} {}", path.display())).because(error)
}

fn format_error(path: &Path, error: &CodecError) -> Error {
    let wrapped = Error::new(ErrorKind::Format, format_args!("{}: {error}", path.display()));
    match error {
        CodecError::NewerVersion { .. } => wrapped.with_hint("open it with a newer rath"),
        CodecError::NotARecord => {
            wrapped.with_hint("`rath export --as bundle` and `Session::save` write files that can be read")
        }
        _ => wrapped,
    }
}
