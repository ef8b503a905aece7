//! An import that a power cut ends: the store opens, each session is there as a whole or not at all, and the import can be
//! repeated.

use std::collections::BTreeMap;
use std::path::Path;

use rath::Store;
use rath::prelude::*;
use rath_test_support::PowerCuts;

use crate::{block_on, program_path};

/// Saves a session with a fork and a long text. Returns the heads of its branches.
fn save(path: &Path) -> BTreeMap<String, String> {
    let mut session = Session::user("begin");
    session.push(Chunk::assistant("long ".repeat(5_000)));
    let mut fork = session.fork();
    (0..20).for_each(|nth| _ = fork.push(Chunk::user(format!("in the fork {nth}").repeat(nth))));
    session.push(Chunk::user("and on"));
    let joined = block_on(session.merge(&fork)).expect("merged");
    joined.save_blocking(path).expect("saved");
    let store = block_on(Store::open("memory:")).expect("a store");
    block_on(joined.record(&store)).expect("recorded");
    heads(&store)
}

fn heads(store: &Store) -> BTreeMap<String, String> {
    let list = block_on(store.list()).expect("a list");
    list.into_iter().map(|listed| (listed.branch.to_string(), listed.head.to_string())).collect()
}

/// Compares a store after a cut with what was imported.
fn check(uri: &str, whole: &BTreeMap<String, String>, import: impl Fn() -> bool) -> Result<(), String> {
    let open = || block_on(Store::open(uri)).map_err(|error| format!("it does not open: {error}"));
    let compare = |what: &str| {
        let store = open()?;
        let damage = block_on(store.check()).map_err(|error| error.to_string())?.damage;
        let found = heads(&store);
        block_on(store.close()).map_err(|error| error.to_string())?;
        match damage.is_empty() {
            true => Ok(found),
            false => Err(format!("{what}, it is called damaged: {damage:?}")),
        }
    };
    let found = compare("after the cut")?;
    if !found.is_empty() && found != *whole {
        return Err(format!("a part is there: {found:?}"));
    }
    if !import() {
        return Err("the import cannot be repeated".to_owned());
    }
    let found = compare("after the second import")?;
    if found == *whole { Ok(()) } else { Err(format!("after the second import there is {found:?}")) }
}

#[test]
fn an_import_that_a_power_cut_ends_leaves_a_session_as_a_whole_or_not_at_all() {
    for kind in ["sqlite", "jsonl"] {
        let folder = rath_test_support::temp_dir_in_memory();
        let [directory, file, notes] = ["disk", "s.rath", "notes"].map(|name| folder.path().join(name));
        std::fs::create_dir(&directory).expect("a directory");
        let whole = save(&file);
        let uri = format!("{kind}:{}", directory.join("store").display());
        let mut import = rath_test_support::program(program_path());
        import.arg("import").arg(&file).args(["--store", &uri]);
        let Some(cuts) = PowerCuts::record(&import, &directory, &notes) else {
            return println!("skipped: this machine has no strace");
        };
        let again = || {
            let mut import = rath_test_support::program(program_path());
            import.arg("import").arg(&file).args(["--store", &uri]).output().is_ok_and(|done| done.status.success())
        };
        let count = rath_test_support::count("RATH_CUTS", 100) as usize / 8;
        cuts.check_states(&format!("import, {kind}"), count, &directory, |_| check(&uri, &whole, again));
    }
}
