use super::*;
use crate::tree::{Mode, TreeEntry, TreeId};
use crate::{CollectMode, Collector, Workspace};

/// Opens the objects in a folder of a temporary directory.
fn open(temp: &rath_test_support::TempDir, name: &str) -> Objects {
    Objects::open(&temp.path().join(name)).expect("versions")
}

/// Returns the id and the packed content of an object.
fn packed(kind: ObjectKind, content: &[u8]) -> (ObjectId, Vec<u8>) {
    (hash_object(kind, content).expect("an id"), pack_content(content).expect("packed"))
}

/// Returns the content of a directory with one entry.
fn directory(mode: Mode, name: &[u8], id: ObjectId) -> Vec<u8> {
    tree::encode(&mut [TreeEntry { mode, name, id }])
}

#[test]
fn an_object_is_taken_over_if_it_was_named_and_is_what_its_id_says() {
    let (blob, tree) = (ObjectKind::Blob, ObjectKind::Tree);
    let (id, zlib) = packed(blob, b"one\n");
    let (other, _) = packed(blob, b"two\n");
    let refused = |named: Option<ObjectKind>, kind, size, zlib: &[u8]| {
        let mut import = ObjectImport::default();
        named.map_or(Ok(()), |named| import.expect(id, named)).expect("named");
        import.add(id, kind, size, zlib).err().map(|error| error.to_string())
    };
    let [unnamed, mismatch, too_large] =
        [ImportError::Unnamed, ImportError::Mismatch, ImportError::TooLarge].map(|error| Some(error.to_string()));
    let trailing = [&zlib[..], b"x"].concat();
    let empty = pack_content(b"").expect("packed");
    for (named, kind, size, zlib, wanted) in [
        (Some(blob), blob, 4, &zlib[..], None),
        (None, blob, 4, &zlib, unnamed.clone()),
        (Some(tree), blob, 4, &zlib, unnamed.clone()),
        (Some(blob), tree, 4, &zlib, unnamed),
        (Some(tree), tree, 4, &zlib, mismatch.clone()),
        (Some(blob), blob, 3, &zlib, mismatch.clone()),
        (Some(blob), blob, 5, &zlib, mismatch.clone()),
        (Some(blob), blob, 4, &zlib[..zlib.len() - 1], mismatch.clone()),
        (Some(blob), blob, 4, &trailing, mismatch.clone()),
        (Some(blob), blob, 4, b"", mismatch.clone()),
        (Some(blob), blob, 0, &empty, mismatch),
        (Some(blob), blob, u64::MAX, &zlib, too_large.clone()),
        (Some(tree), tree, MAX_TREE_BYTES + 1, &zlib, too_large),
    ] {
        assert_eq!(refused(named, kind, size, zlib), wanted, "{named:?} {kind:?} {size} {zlib:?}");
    }
    // A directory names its entries, and one with a name that leads outside is refused.
    let mut import = ObjectImport::default();
    for (name, wanted) in [(&b"a.txt"[..], None), (b"..", Some(ImportError::Mismatch.to_string()))] {
        let content = directory(Mode::File, name, other);
        let (dir, zlib) = packed(tree, &content);
        import.expect(dir, tree).expect("named");
        let added = import.add(dir, tree, content.len() as u64, &zlib);
        assert_eq!(added.err().map(|error| error.to_string()), wanted);
    }
    assert!(import.missing().any(|(id, _)| id == other));
}

#[test]
fn nothing_is_stored_before_the_end_and_everything_after_it() {
    let temp = rath_test_support::temp_dir();
    let project = temp.path().join("project");
    std::fs::create_dir_all(project.join("d")).expect("created");
    std::fs::write(project.join("d/a.txt"), "one\n").expect("written");
    std::fs::write(project.join("b.txt"), vec![7; 100_000]).expect("written");
    let objects = open(&temp, "versions");
    let tree = Workspace::open(&project, &objects, &temp.path().join("index")).expect("a workspace");
    let tree = { tree }.snapshot().expect("a snapshot").tree;
    let copy_all = |import: &mut ObjectImport| {
        import.expect(tree.0, ObjectKind::Tree).expect("named");
        for walked in Objects::walk(std::slice::from_ref(&objects), [(tree.0, ObjectKind::Tree)]) {
            let crate::WalkedContent::Intact(content) = walked.content else { panic!("{} is stored", walked.path) };
            let zlib = pack_content(&content).expect("packed");
            import.add(walked.id, walked.kind, content.len() as u64, &zlib).expect("added");
        }
    };
    let copy = open(&temp, "copy");
    let mut dropped = ObjectImport::default();
    dropped.store_in(&copy);
    copy_all(&mut dropped);
    drop(dropped);
    assert!(!copy.has_tree(tree));
    let mut import = ObjectImport::default();
    import.store_in(&copy);
    copy_all(&mut import);
    assert_eq!(import.missing().count(), 0);
    assert_eq!(import.finish().expect("stored"), ImportCounts { objects: 4, ..ImportCounts::default() });
    drop(copy);
    // Another process finds it, and git can read it.
    let copy = open(&temp, "copy");
    assert_eq!(copy.read(tree, "d/a.txt").expect("read").as_deref(), Some(&b"one\n"[..]));
    let mut git = rath_test_support::git();
    let checked = git.arg("--git-dir").arg(copy.folder()).args(["fsck", "--full", "--strict"]).output().expect("git");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let mut again = ObjectImport::default();
    again.store_in(&copy);
    copy_all(&mut again);
    assert_eq!(again.finish().expect("stored"), ImportCounts { known: 4, ..ImportCounts::default() });
}

#[test]
fn what_is_not_here_is_listed_until_it_is_stored() {
    let temp = rath_test_support::temp_dir();
    let [(kept, kept_zlib), (lost, lost_zlib), (gone, _)] =
        [&b"kept"[..], b"lost", b"gone"].map(|content| packed(ObjectKind::Blob, content));
    let mut entries =
        [(b"a", kept), (b"b", lost), (b"c", gone)].map(|(name, id)| TreeEntry { mode: Mode::File, name, id });
    let content = tree::encode(&mut entries);
    let (root, zlib) = packed(ObjectKind::Tree, &content);
    let objects = open(&temp, "versions");
    let begin = || {
        let mut import = ObjectImport::default();
        import.store_in(&objects);
        import.expect(root, ObjectKind::Tree).expect("named");
        import.add(root, ObjectKind::Tree, content.len() as u64, &zlib).expect("added");
        import
    };
    let states = || {
        let walk = Objects::walk(std::slice::from_ref(&objects), [(root, ObjectKind::Tree)]);
        let state = |content| match content {
            crate::WalkedContent::Intact(_) => "intact",
            crate::WalkedContent::Missing => "missing",
            crate::WalkedContent::Absent => "absent",
            crate::WalkedContent::Forgotten { .. } => "forgotten",
            crate::WalkedContent::Damaged(_) => "damaged",
            crate::WalkedContent::Hidden => "hidden",
        };
        walk.map(|walked| format!("{}={}", walked.path, state(walked.content))).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(states(), "=missing");
    let mut import = begin();
    import.add(kept, ObjectKind::Blob, 4, &kept_zlib).expect("added");
    import.add_gone(lost, None).expect("named");
    import.add_gone(gone, Some((4, Digest::compute(b"gone")))).expect("named");
    assert_eq!(import.finish().expect("stored"), ImportCounts { objects: 2, absent: 1, ..ImportCounts::default() });
    assert_eq!(states(), "=intact a=intact b=absent c=forgotten");
    // A checkout writes the rest, and says what is not there.
    let out = objects.checkout(TreeId(root), &temp.path().join("out")).expect("checked out");
    let left_out: Vec<_> = out.left_out.iter().map(|file| (&*file.path, file.is_forgotten)).collect();
    assert_eq!((out.files, left_out), (1, vec![("b", false), ("c", true)]));
    // It comes with another copy. From then on its loss is damage.
    let mut import = begin();
    import.add(lost, ObjectKind::Blob, 4, &lost_zlib).expect("added");
    assert_eq!(import.finish().expect("stored"), ImportCounts { objects: 1, known: 1, ..ImportCounts::default() });
    assert_eq!(states(), "=intact a=intact b=intact c=forgotten");
    // So it is with content that was forgotten where the copy was made.
    let other = open(&temp, "versions");
    let batch = crate::batch::Batch::new(&other);
    assert_eq!(batch.put(ObjectKind::Blob, b"gone").expect("added"), Some(gone));
    batch.finish().expect("stored");
    drop(other);
    assert_eq!(states(), "=intact a=intact b=intact c=intact");
    let hex = gone.to_string();
    let path = objects.folder().join("objects").join(&hex[..2]).join(&hex[2..]);
    std::fs::remove_file(path).expect("removed");
    assert_eq!(states(), "=intact a=intact b=intact c=missing");
    let out = objects.checkout(TreeId(root), &temp.path().join("again")).expect("checked out");
    let left_out: Vec<_> = out.left_out.iter().map(|file| (&*file.path, file.is_forgotten)).collect();
    assert_eq!(left_out, [("c", false)]);
    // Nothing that a copy says makes the loss of what is named here less than damage.
    for (forgotten, roots, wanted) in [
        (None, vec![(root, ObjectKind::Tree)], "missing"),
        (Some((4, Digest::compute(b"gone"))), vec![(gone, ObjectKind::Blob)], "missing"),
        (Some((4, Digest::compute(b"gone"))), vec![(kept, ObjectKind::Blob)], "forgotten"),
    ] {
        let mut import = begin();
        assert!(import.is_incomplete());
        import.add(kept, ObjectKind::Blob, 4, &kept_zlib).expect("added");
        import.add(lost, ObjectKind::Blob, 4, &lost_zlib).expect("added");
        assert_eq!(import.missing().map(|(id, _)| id).collect::<Vec<_>>(), [gone]);
        import.add_gone(gone, forgotten).expect("named");
        assert!(import.is_incomplete());
        import.note_named_here(roots);
        import.finish().expect("stored");
        assert_eq!(states(), format!("=intact a=intact b=intact c={wanted}"));
    }
    // What was forgotten here does not come back with a copy.
    drop(objects);
    let mut collector =
        Collector::open(&temp.path().join("versions"), CollectMode::Remove).expect("opened").expect("free");
    collector.forget([kept]).expect("listed");
    collector.keep_tree(TreeId(root)).expect("kept");
    collector.collect().expect("collected");
    drop(collector);
    let objects = open(&temp, "versions");
    let mut import = ObjectImport::default();
    import.store_in(&objects);
    import.expect(kept, ObjectKind::Blob).expect("named");
    import.add(kept, ObjectKind::Blob, 4, &kept_zlib).expect("added");
    let counts = ImportCounts { forgotten_here: 1, ..ImportCounts::default() };
    assert_eq!((import.finish().expect("stored"), objects.has_content(kept)), (counts, false));
}
