//! A session as one file.

use std::collections::HashSet;
use std::fs::File;
use std::io::{ErrorKind as IoKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

use rath_record::codec::{CodecError, Encoder, Reader, Report, Verifier};
use rath_record::graph::{self, GraphReport};
use rath_record::lineage::Lineage;
use rath_record::{Digest, Parent, Step, StepId};

use crate::error::ErrorKind;
use crate::session::Session;
use crate::session::{Error, Result};

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
    /// A file that is there is replaced and keeps its permissions; where the path is a link, what it links to is. Steps and
    /// payloads that the session names and has not got are marked in the file as missing.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let written = write_whole(path.as_ref(), &self.begun().lineage());
        written.map(|_| ()).map_err(|error| error.with_session(self))
    }

    /// The file that [`save`](Session::save) writes, as bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let written = write_to(&mut bytes, &self.begun().lineage());
        let told = |failure| match failure {
            Failure::Io(error) => error.into(),
            Failure::Codec(error) => Error::wrap(ErrorKind::Format, error),
        };
        written.map(|_| bytes).map_err(|failure| told(failure).with_session(self))
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
            lineage: Lineage::new(opened.heads),
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

/// What was copied, and what is named in the copy and not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// How many steps were copied.
    pub steps: u64,
    /// The steps that others go on from, and that are lost.
    pub lost_steps: Vec<StepId>,
    /// The payloads that steps name, and that are lost. What was to be forgotten is not among them.
    pub lost_payloads: Vec<Digest>,
}

impl Salvaged {
    /// What there is to copy, and what there is not.
    pub fn of(lineage: &Lineage) -> Self {
        let (mut found, mut marked) = (Salvaged::default(), HashSet::new());
        lineage.walk().into_iter().for_each(|step| _ = found.add(step, &mut marked));
        found
    }

    /// Counts a step. Gives the names in it that stand nowhere and were not marked before.
    fn add(&mut self, step: &Step, marked: &mut HashSet<Digest>) -> Vec<Digest> {
        self.steps += 1;
        let mut gone = Vec::new();
        for id in step.parents().iter().filter(|link| link.step().is_none()).map(Parent::id) {
            if marked.insert(Digest(id.0)) {
                gone.push(Digest(id.0));
                self.lost_steps.push(id);
            }
        }
        let named = step.chunk().payload_digests();
        if !named.is_empty() {
            let here: HashSet<Digest> = step.chunk().payloads().into_iter().map(|(digest, _)| digest).collect();
            for digest in named.into_iter().filter(|digest| !here.contains(digest)) {
                if marked.insert(digest) {
                    gone.push(digest);
                    self.lost_payloads.extend(step.withheld().is_none().then_some(digest));
                }
            }
        }
        gone
    }

    /// Whether everything that is named is there.
    pub fn is_whole(&self) -> bool {
        self.lost_steps.is_empty() && self.lost_payloads.is_empty()
    }
}

/// Copies every step that there is to a new file, and marks in it what is lost: the copy is whole, and says what it lacks.
///
/// The lineage is that of a damaged file, [`Opened::lineage`], or of a damaged session in a store,
/// [`Store::pieces`](crate::Store::pieces). A file that is there already is left as it is.
pub fn salvage(lineage: &Lineage, path: impl AsRef<Path>) -> Result<Salvaged> {
    let path = path.as_ref();
    if path.symlink_metadata().is_ok() {
        let message = format!("cannot write {}: there is a file of that name", path.display());
        return Err(Error::new(ErrorKind::Io, message).with_hint("name a new one"));
    }
    write_whole(path, lineage)
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

/// Writes a file, whole or not at all.
fn write_whole(path: &Path, lineage: &Lineage) -> Result<Salvaged> {
    let target = linked_to(path);
    let beside = beside(&target);
    replace(&target, &beside, lineage).map_err(|failure| {
        // The error that matters is the first one.
        let _ = std::fs::remove_file(&beside);
        match failure {
            Failure::Io(error) => io_error("write", path, error),
            Failure::Codec(error) => format_error(path, &error),
        }
    })
}

fn replace(path: &Path, beside: &Path, lineage: &Lineage) -> Result<Salvaged, Failure> {
    let mut file = File::create_new(beside)?;
    if let Ok(old) = std::fs::metadata(path) {
        file.set_permissions(old.permissions())?;
    }
    let written = write_to(&mut file, lineage)?;
    file.sync_all()?;
    std::fs::rename(beside, path)?;
    // The name is durable when its folder is. Where folders cannot be opened, the system sees to it.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(folder) = File::open(folder) {
        folder.sync_all()?;
    }
    Ok(written)
}

/// Writes every step, and before it which of the names in it stand nowhere.
fn write_to(out: &mut impl Write, lineage: &Lineage) -> Result<Salvaged, Failure> {
    let mut encoder = Encoder::new();
    let (mut written, mut marked) = (Salvaged::default(), HashSet::new());
    for step in lineage.walk() {
        written.add(step, &mut marked).into_iter().for_each(|name| encoder.push_gone(name, None));
        encoder.push_step(step).map_err(Failure::Codec)?;
        if encoder.buffered_bytes() > BLOCK {
            out.write_all(&encoder.take_bytes())?;
        }
    }
    out.write_all(&encoder.finish())?;
    Ok(written)
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
    Error::new(ErrorKind::Io, format_args!("cannot {action} {}", path.display())).because(error)
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
