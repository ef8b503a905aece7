//! An import that a power cut ends: the store opens, each session is there as a whole or not at all, with its files, and the import
//! can be repeated.

use std::collections::BTreeMap;
use std::path::Path;

use rath::chunk::{Observed, Tree};
use rath::prelude::*;
use rath::workspace::{Objects, Workspace};
use rath::{BundleFiles, Store};
use rath_test_support::PowerCuts;

use crate::{block_on, program_path};

/// The number of versions of files in the bundle.
const FILES: u64 = 4;

/// Exports a session with a fork, a long text and files. Returns the heads of its branches.
fn save(path: &Path) -> BTreeMap<String, String> {
    let source = rath_test_support::temp_dir();
    let objects = Objects::open(&source.path().join(".rath/workspace")).expect("versions");
    (0..FILES).for_each(|nth| {
        std::fs::write(source.path().join(nth.to_string()), vec![nth as u8; 1 << 14]).expect("written");
    });
    let workspace = Workspace::open(source.path(), &objects, &source.path().join(".rath/index"));
    let tree = workspace.expect("a workspace").snapshot().expect("a snapshot").tree;
    let mut session = Session::user("begin").with_files_in(source.path());
    session.push(Observed::new(Tree(tree.to_string())));
    session.push(Chunk::assistant("long ".repeat(5_000)));
    let mut fork = session.fork();
    (0..20).for_each(|nth| _ = fork.push(Chunk::user(format!("in the fork {nth}").repeat(nth))));
    session.push(Chunk::user("and on"));
    let joined = block_on(session.merge(&fork)).expect("merged");
    let report = block_on(joined.export_bundle(path, BundleFiles::Include)).expect("written");
    assert_eq!(report.files, FILES);
    let store = block_on(Store::open("memory:")).expect("a store");
    block_on(joined.record(&store)).expect("recorded");
    heads(&store)
}

fn heads(store: &Store) -> BTreeMap<String, String> {
    let list = block_on(store.list()).expect("a list");
    list.into_iter().map(|listed| (listed.branch.to_string(), listed.head.to_string())).collect()
}

/// Compares a store after a cut with what was imported.
fn check(
    uri: &str,
    directory: &Path,
    whole: &BTreeMap<String, String>,
    import: impl Fn() -> bool,
) -> Result<(), String> {
    let open = || block_on(Store::open(uri)).map_err(|error| format!("it does not open: {error}"));
    let compare = |what: &str| {
        let store = open()?;
        let damage = block_on(store.check()).map_err(|error| error.to_string())?.damage;
        let (found, files) =
            (heads(&store), block_on(store.check_files(directory)).map_err(|error| error.to_string())?);
        // The files are durable before the steps that name them.
        if !found.is_empty() && (files.files, files.absent, files.is_whole()) != (FILES, 0, true) {
            return Err(format!("{what}, files are missing: {files:?}"));
        }
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
        // The recorder starts programs elsewhere.
        let mut import = rath_test_support::program("env");
        import.arg("-C").arg(&directory).arg(program_path()).arg("import").arg(&file).args(["--store", &uri]);
        let Some(cuts) = PowerCuts::record(&import, &directory, &notes) else {
            return println!("skipped: this machine has no strace");
        };
        let again = || {
            let mut import = rath_test_support::program(program_path());
            import.arg("import").arg(&file).args(["--store", &uri]).current_dir(&directory);
            import.output().is_ok_and(|done| done.status.success())
        };
        let count = rath_test_support::count("RATH_CUTS", 100) as usize / 8;
        cuts.check_states(&format!("import, {kind}"), count, &directory, |_| check(&uri, &directory, &whole, again));
    }
}
