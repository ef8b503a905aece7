//! Files of every released format version still open.

use rath_record::codec;

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
