use std::collections::HashSet;

use rath_record::Chunk;

use super::*;
use crate::Session;

fn open(folder: &Path) -> Jsonl {
    Jsonl::open(&folder.display().to_string(), Create::Never).expect("a store")
}

/// Returns the write that begins a session with all its steps from the nth on.
fn begin(session: &Session, nth: usize) -> Write {
    let steps: Vec<Step> = session.lineage().walk().into_iter().skip(nth).cloned().collect();
    Write {
        family: session.id(),
        branch: session.id(),
        right: WriteRight::New(Holder::this_process().into()),
        after: None,
        steps,
        title: None,
        newest_json: None,
        signer: None,
        unsigned: HashSet::new(),
    }
}

#[cfg(target_os = "linux")]
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    entries.map(|entry| entry.file_name().into_string().expect("UTF-8")).collect()
}

#[test]
fn a_compaction_removes_what_a_killed_process_left() {
    let folder = rath_test_support::temp_dir();
    let store = open(folder.path());
    let id = uuid::Uuid::now_v7();
    let [left, other] =
        [format!("{id}.{}.tmp", id.simple()), "notes.tmp".to_owned()].map(|name| folder.path().join(name));
    [&left, &other].into_iter().for_each(|path| std::fs::write(path, "x").expect("written"));
    store.compact().expect("compacted");
    assert!(!left.exists() && other.exists());
}

/// Two processes begin one session, and both have looked whether its file is there before either has created it.
#[cfg(target_os = "linux")]
#[test]
fn of_two_that_create_the_file_of_a_session_the_second_is_refused_and_goes_on() {
    let folder = rath_test_support::temp_dir();
    let (own, other, rows) = (open(folder.path()), open(folder.path()), StepPlaces::new());
    let (session, unrelated) = (Session::user("one"), Session::user("two"));
    let mut continued = session.detach();
    continued.push(Chunk::user("continued"));
    // The other process has taken the session one step further.
    let mut longer = session.clone();
    longer.push(Chunk::assistant("more"));

    // Looking for the file of the second session waits until this pipe is opened.
    let (pipe, same_pipe) = (own.path(unrelated.id()), folder.path().join("pipe"));
    assert!(rath_test_support::program("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
    std::fs::hard_link(&pipe, &same_pipe).expect("linked");
    let group = [begin(&session, 0), begin(&unrelated, 0), begin(&continued, 1)];
    let (answers, theirs) = std::thread::scope(|scope| {
        let writing = scope.spawn(|| own.write(&group, &rows).expect("the store can be written"));
        rath_test_support::wait_until("the file of the first session was looked for", || {
            names(folder.path()).iter().any(|name| name.starts_with(&session.id().to_string()))
        });
        let mut answers = other.write(&[begin(&longer, 0)], &StepPlaces::new()).expect("written");
        answers.remove(0).expect("it is the first");
        let theirs = std::fs::read(own.path(session.id())).expect("a file");
        std::fs::remove_file(&pipe).expect("removed");
        let _open = File::options().read(true).write(true).open(&same_pipe).expect("opened");
        (writing.join().expect("no panic"), theirs)
    });
    std::fs::remove_file(&same_pipe).expect("removed");
    let messages: Vec<Option<String>> =
        answers.iter().map(|answer| answer.as_ref().err().map(StoreError::message)).collect();
    let first = session.head().expect("a step");
    let expected = [Some(branch_moved(session.id()).message()), None, Some(parent_not_stored(first.id()).message())];
    assert_eq!(messages, expected);

    // Nothing of the other process is lost, and nothing of what was refused is left.
    assert_eq!(std::fs::read(own.path(session.id())).expect("a file"), theirs);
    assert!(matches!(rows.lookup(&continued.head().expect("a step").parents()[0]), StorageState::NotStored));
    let mut left = names(folder.path());
    left.sort();
    let mut expected = [&session, &unrelated].map(|it| format!("{}.jsonl", it.id()));
    expected.sort();
    assert_eq!(left, expected);
    let third = Session::user("three");
    own.write(&[begin(&third, 0)], &rows).expect("written").remove(0).expect("the store is usable");
    let check = own.check().expect("checked");
    assert_eq!((check.damage, check.branches, check.steps), (vec![], 3, 4));
}
