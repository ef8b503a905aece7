//! The ids of stores.

use std::path::Path;

use rath::store::{Create, Jsonl, Sqlite, StoreBackend, StoreId};

use super::common::{KINDS, uri};

fn open(kind: &str, folder: &Path) -> Box<dyn StoreBackend> {
    let uri = uri(kind, folder);
    match uri.split_once(':').expect("a scheme") {
        ("jsonl", path) => Box::new(Jsonl::open(path, Create::IfMissing).expect("a store")),
        (_, path) => Box::new(Sqlite::open(path, Create::IfMissing).expect("a store")),
    }
}

fn made_id(kind: &str, folder: &Path) -> StoreId {
    open(kind, folder).id(Create::IfMissing).expect("an id").expect("a store that lasts has an id")
}

/// Takes the id from a store, or leaves a part of it.
fn damage(kind: &str, folder: &Path) {
    let uri = uri(kind, folder);
    let path = Path::new(uri.split_once(':').expect("a scheme").1);
    match path.is_dir() {
        true => std::fs::write(path.join("rath-store-id"), "01980a5e").expect("written"),
        false => {
            let store = rusqlite::Connection::open(path).expect("a database");
            assert_eq!(store.execute("DELETE FROM counts WHERE name GLOB 'store *'", []).expect("removed"), 1);
        }
    }
}

#[test]
fn a_store_keeps_its_id_and_no_other_store_has_it() {
    for kind in KINDS {
        let [one, other] = [(); 2].map(|()| rath_test_support::temp_dir());
        let id = made_id(kind, one.path());
        assert_eq!(made_id(kind, one.path()), id, "{kind}");
        assert_eq!(open(kind, one.path()).id(Create::Never).expect("read"), Some(id.clone()), "{kind}");
        assert_ne!(made_id(kind, other.path()), id, "{kind}");
        damage(kind, one.path());
        assert_eq!(open(kind, one.path()).id(Create::Never).expect("read"), None, "{kind}");
        let new = made_id(kind, one.path());
        assert_ne!(new, id, "{kind}");
        assert_eq!(made_id(kind, one.path()), new, "{kind}");
        assert!(open(kind, one.path()).check().expect("checked").damage.is_empty(), "{kind}");
    }
}

#[test]
fn all_who_give_a_store_its_id_at_once_agree() {
    for (kind, is_damaged) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        for _ in 0..10 {
            let folder = rath_test_support::temp_dir();
            drop(open(kind, folder.path()));
            if is_damaged {
                made_id(kind, folder.path());
                damage(kind, folder.path());
            }
            let ids = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| made_id(kind, folder.path()))).collect();
                threads.into_iter().map(|thread| thread.join().expect("ended")).collect::<Vec<_>>()
            });
            assert!(ids.iter().all(|id| *id == ids[0]), "{kind}: {ids:?}");
            if kind == "jsonl" {
                let left: Vec<_> = std::fs::read_dir(folder.path().join("store")).expect("listed").flatten().collect();
                assert_eq!(left.len(), 1, "{left:?}");
            }
        }
    }
}

#[test]
fn a_file_of_the_user_is_not_taken_for_an_id() {
    for name in ["id", "rath-store-id"] {
        let folder = rath_test_support::temp_dir();
        let store = open("jsonl", folder.path());
        let file = folder.path().join("store").join(name);
        std::fs::write(&file, "my passport\n").expect("written");
        let made = store.id(Create::IfMissing);
        assert_eq!(std::fs::read_to_string(&file).expect("read"), "my passport\n");
        assert_eq!(made.is_ok(), name == "id", "{made:?}");
        assert_eq!(store.id(Create::Never).is_ok(), name == "id");
    }
}
