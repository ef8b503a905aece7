//! Rows that hold versions of files: the objects of git, compressed.
//!
//! This crate knows neither their compression nor their ids: a [`ObjectSink`] checks them, and stores them.

use super::damage::{Damage, Fault, Report};
use super::scanner::{IntactRow, IntactStep};
use crate::id::{Digest, ObjectId, StepId};

/// The kind of a version: that of a file or of a directory.
///
/// Part of [`ObjectContent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// The content of a file, or the target of a link.
    Blob,
    /// The entries of a directory.
    Tree,
}

impl ObjectKind {
    /// Returns git's name for this kind.
    pub fn name(self) -> &'static str {
        match self {
            ObjectKind::Blob => "blob",
            ObjectKind::Tree => "tree",
        }
    }
}

/// A version of a file or of a directory, as a row of a file holds it.
///
/// Passed to [`ObjectSink::object`], and to [`Encoder::push_object`](super::Encoder::push_object).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The id.
    pub id: ObjectId,
    /// The content, or the reason why there is none.
    pub content: ObjectContent,
}

/// The content of a version.
///
/// Part of [`Object`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectContent {
    /// The content is here.
    Here {
        /// The kind.
        kind: ObjectKind,
        /// The length of the content, in bytes.
        bytes: u64,
        /// The content, as one zlib stream.
        zlib: Vec<u8>,
    },
    /// The writer of the file did not have the content.
    Missing,
    /// The content of a file was removed on purpose.
    Forgotten {
        /// The length of the content, in bytes.
        bytes: u64,
        /// The digest of the content.
        digest: Digest,
    },
}

/// Checks the versions of files in a file, and may store them.
///
/// Passed to [`Reader::feed_with`](super::Reader::feed_with) and [`Verifier::feed_with`](super::Verifier::feed_with).
pub trait ObjectSink {
    /// Processes the JSON of a step, which may [name](crate::chunk::NamedObjects) versions. Steps come before the versions that they
    /// name.
    fn step(&mut self, step: StepId, json: &str);

    /// Processes a version. Returns the fault if it is not what its id stands for, or nothing before it names it.
    fn object(&mut self, object: Object) -> Result<(), Fault>;

    /// Returns the ids that were named and did not come, each with the step that needs it.
    fn missing(&mut self) -> Vec<(StepId, ObjectId)>;
}

/// Reads steps only: the versions of files are passed over, and not checked.
///
/// ```
/// use rath_record::codec::{Encoder, Reader, SkipObjects};
///
/// let mut reader = Reader::new();
/// reader.feed_with(&Encoder::new().finish(), &mut SkipObjects);
/// assert!(reader.finish_with(&mut SkipObjects)?.report.is_whole());
/// # Ok::<(), rath_record::codec::CodecError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SkipObjects;

impl ObjectSink for SkipObjects {
    fn step(&mut self, _: StepId, _: &str) {}

    fn object(&mut self, _: Object) -> Result<(), Fault> {
        Ok(())
    }

    fn missing(&mut self) -> Vec<(StepId, ObjectId)> {
        Vec::new()
    }
}

/// Hands the version in a row, or the names in a step, to a sink. Returns the row unless it was a version.
pub(crate) fn hand_over<'a>(
    report: &mut Report,
    row: IntactRow<'a>,
    sink: &mut dyn ObjectSink,
) -> Option<IntactRow<'a>> {
    match row {
        IntactRow::Object(location, object) => {
            if let Err(fault) = sink.object(object) {
                report.add(location.damage(None, fault));
            }
            None
        }
        IntactRow::Step(IntactStep { id, ref json, .. }) => {
            sink.step(id, json);
            Some(row)
        }
        row => Some(row),
    }
}

/// Adds the versions that are not there to the report: they are damage of a file that is of a kind to have them all.
pub(crate) fn add_missing(report: &mut Report, sink: &mut dyn ObjectSink) {
    let missing = sink.missing();
    if !report.has_files {
        report.absent_objects = missing.len() as u64;
        return;
    }
    for (step, id) in missing {
        let (line, offset, fault) = (report.lines, report.bytes, Fault::MissingObject(id));
        report.add(Damage { line, offset, row: None, step: Some(step), fault });
    }
}
