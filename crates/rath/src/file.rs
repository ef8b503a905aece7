//! A session as one file.

use std::fs::File;
use std::io::{ErrorKind as IoKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

use rath_record::codec::{CodecError, Encoder, Reader, Report, Verifier};
use rath_record::graph::{self, GraphReport};
use rath_record::lineage::Lineage;

use crate::error::{Error, ErrorKind, Result};
use crate::session::Session;

/// How much is read or written at a time.
const BLOCK: usize = 256 * 1024;

/// A session from a file, and what the file was like.
#[derive(Debug)]
pub struct Opened {
    /// The session, as far as it could be read: what the newest step descends from.
    pub session: Session,
    /// Everything the file holds. Where it has other heads, as where a lost row parts a line, that is more than the
    /// session, and more than saving the session would write.
    pub lineage: Lineage,
    /// What a check of the file found. Damage is here, not an error: what is undamaged was read.
    pub report: Report,
}

impl Session {
    /// Writes the session to a file, whole or not at all.
    ///
    /// A file that is there is replaced and keeps its permissions; where the path is a link, what it links to is.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let target = linked_to(path);
        let beside = beside(&target);
        replace(&target, &beside, self).map_err(|failure| {
            // The error that matters is the first one.
            let _ = std::fs::remove_file(&beside);
            match failure {
                Failure::Io(error) => io_error("write", path, error),
                Failure::Codec(error) => format_error(path, &error),
            }
            .with_session(self)
        })
    }

    /// Reads a session from a file. Of a damaged file, all that is undamaged: look at the report.
    ///
    /// What is not in the file is not known: forks made from the same head before it was saved, or by others who opened
    /// it too, are not counted. Should two of them do exactly the same, to the last word, it is taken for one thing.
    pub fn open(path: impl AsRef<Path>) -> Result<Opened> {
        let path = path.as_ref();
        let mut reader = Reader::new();
        let mut file = File::open(path).map_err(|error| io_error("open", path, error))?;
        blocks(&mut file, |block| reader.feed(block)).map_err(|error| io_error("read", path, error))?;
        let opened = reader.finish().map_err(|error| format_error(path, &error))?;
        Ok(Opened {
            session: Session::resume(opened.record),
            lineage: Lineage::of(opened.heads),
            report: opened.report,
        })
    }
}

/// Checks a session file of any length, in memory that does not grow with it.
pub fn verify(path: impl AsRef<Path>) -> Result<Report> {
    let path = path.as_ref();
    let mut file = File::open(path).map_err(|error| io_error("open", path, error))?;
    let mut verifier = Verifier::new();
    loop {
        blocks(&mut file, |block| verifier.feed(block)).map_err(|error| io_error("read", path, error))?;
        if let Some(report) = verifier.end().map_err(|error| format_error(path, &error))? {
            return Ok(report);
        }
        file.rewind().map_err(|error| {
            io_error("read", path, error).with_hint("this has to be read more than once; save it to a file first")
        })?;
    }
}

/// Checks an exported graph of sessions.
pub fn verify_graph(path: impl AsRef<Path>) -> Result<GraphReport> {
    let path = path.as_ref();
    let export = std::fs::read(path).map_err(|error| io_error("read", path, error))?;
    Ok(graph::verify(&export))
}

enum Failure {
    Io(std::io::Error),
    Codec(CodecError),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::Io(error)
    }
}

fn replace(path: &Path, beside: &Path, session: &Session) -> Result<(), Failure> {
    let mut file = File::create_new(beside)?;
    if let Ok(old) = std::fs::metadata(path) {
        file.set_permissions(old.permissions())?;
    }
    write_to(&mut file, session)?;
    file.sync_all()?;
    std::fs::rename(beside, path)?;
    // The name is durable when its folder is. Where folders cannot be opened, the system sees to it.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(folder) = File::open(folder) {
        folder.sync_all()?;
    }
    Ok(())
}

fn write_to(file: &mut File, session: &Session) -> Result<(), Failure> {
    let mut encoder = Encoder::new();
    let lineage = session.begun().lineage();
    for step in lineage.walk() {
        encoder.step(step).map_err(Failure::Codec)?;
        if encoder.waiting() > BLOCK {
            file.write_all(&encoder.take())?;
        }
    }
    Ok(file.write_all(&encoder.finish())?)
}

fn blocks(file: &mut File, mut take: impl FnMut(&[u8])) -> std::io::Result<()> {
    let mut block = vec![0; BLOCK];
    loop {
        match file.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(count) => take(&block[..count]),
            Err(error) if error.kind() == IoKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// What a path stands for, be it a link, even one to nothing yet.
fn linked_to(path: &Path) -> PathBuf {
    if let Ok(target) = std::fs::canonicalize(path) {
        return target;
    }
    match std::fs::read_link(path) {
        Ok(target) => path.parent().unwrap_or(Path::new("")).join(target),
        Err(_) => path.to_owned(),
    }
}

/// A name next to `path` that nobody else has, so that the rename stays on one file system and savers do not meet.
fn beside(path: &Path) -> PathBuf {
    path.with_file_name(format!(".{}.tmp", uuid::Uuid::now_v7().simple()))
}

fn io_error(action: &str, path: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format_args!("cannot {action} {}: {error}", path.display())).because(error)
}

fn format_error(path: &Path, error: &CodecError) -> Error {
    let told = Error::new(ErrorKind::Format, format_args!("{}: {error}", path.display()));
    match error {
        CodecError::NewerVersion { .. } => told.with_hint("open it with a newer rath"),
        CodecError::NotARecord => {
            told.with_hint("a session file begins with `{\"seal\":` and is written by `Session::save`")
        }
        CodecError::RowTooLong { .. } => told,
    }
}
