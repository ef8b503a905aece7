//! Files of every released format version still open.

use rath_record::codec::{self, Encoder, Fault, Object, ObjectSink, Reader};
use rath_record::{ObjectId, StepId};

use crate::support::reachable;

#[test]
fn files_of_every_version_open_whole() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compat");
    let released = vec![("v1", 28, "21f55ef25d5fe28c9aff52a3ab9d571173c920d2d9de388057bb782d39769f43")];
    for (version, steps, head) in released {
        let file = std::fs::read(format!("{folder}/{version}.rath")).expect("the file");
        let opened = codec::read(&file).expect("a file that can be read");
        assert!(opened.report.is_whole(), "{version}: {:?}", opened.report.damage);
        assert_eq!(opened.record.head().map(|head| head.id().to_string()).as_deref(), Some(head), "{version}");
        assert_eq!(reachable(&opened.record).len(), steps, "{version}");
        let written = codec::Encoder::encode_record(&opened.record).expect("short rows");
        assert!(written == file, "{version} is written again byte for byte");
    }
}

/// Keeps the objects of a file.
#[derive(Default)]
struct ObjectList(Vec<Object>);

impl ObjectSink for ObjectList {
    fn step(&mut self, _: StepId, _: &str) {}

    fn object(&mut self, object: Object) -> Result<(), Fault> {
        self.0.push(object);
        Ok(())
    }

    fn missing(&mut self) -> Vec<(StepId, ObjectId)> {
        Vec::new()
    }
}

#[test]
fn a_file_with_objects_is_read_and_written_again_byte_for_byte() {
    let file = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compat/v3.rath")).expect("the file");
    let (mut reader, mut objects) = (Reader::new(), ObjectList::default());
    file.chunks(1000).for_each(|block| reader.feed_with(block, &mut objects));
    let contents = reader.finish_with(&mut objects).expect("a file that can be read");
    assert!(contents.report.is_whole(), "{:?}", contents.report.damage);
    assert_eq!((contents.steps.len(), contents.report.files, contents.report.directories), (21, 8, 6));
    let mut encoder = Encoder::with_files();
    contents.steps.iter().for_each(|step| encoder.push_step(step).expect("a short row"));
    objects.0.iter().for_each(|object| encoder.push_object(object).expect("a short row"));
    assert!(encoder.finish() == file);
    // A reader of steps passes over the objects.
    assert_eq!(codec::read(&file).expect("a file").record.head(), contents.record.head());
}
