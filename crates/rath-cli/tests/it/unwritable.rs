//! A store can be read where nothing can be written: on a full disk, on one that is read-only, and without permission.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rath::Store;
use rath::prelude::*;

use crate::{block_on, program_path};

/// The kinds of store, and the files of SQLite that an earlier process left beside the database.
const STORES: [(&str, &str); 4] =
    [("sqlite:store.db", ""), ("sqlite:store.db", "-wal"), ("sqlite:store.db", "-wal -shm"), ("jsonl:store", "")];

/// The ways in which nothing can be written.
const MODES: [&str; 3] = ["full", "read-only", "no permission"];

/// Copies a directory to a file system of its own, on which nothing can be written.
const MOUNT: &str = r#"
mode=$1 rath=$2 source=$3 mount=$4 store=$5 session=$6
mount -t tmpfs -o size=2m none "$mount" || exit 77
mkdir "$mount/p" && cp -r "$source/." "$mount/p" && cd "$mount/p" || exit 1
as_user=
case $mode in
    full) dd if=/dev/zero of="$mount/fill" bs=4096 2>/dev/null ;;
    read-only) mount -o remount,ro "$mount" || exit 77 ;;
    *)
        chown -R 65534:65534 "$mount/p" && chmod -R a-w "$mount/p"
        as_user="setpriv --reuid 65534 --regid 65534 --clear-groups"
        $as_user "$rath" --version >/dev/null 2>&1 || exit 77 ;;
esac
"#;

/// Runs commands on the copy of a memory. Prints the exit code of each, and errors.
const MEMORY: &str = r#"
run() {
    echo "$2 $($as_user "$rath" "$@" 2>&1 >/dev/null | grep -E '^(error|hint)'; echo "exit ${PIPESTATUS[0]}")"
}
run memory ls
run memory recall plant
run memory remember flower
run memory forget --query plant --yes
"#;

/// Runs commands on the copy of a store. Prints the exit code of each, and errors.
const STORE: &str = r#"
run() {
    echo "$1 $($as_user "$rath" "$@" --store "$store" 2>&1 >/dev/null | grep -E '^(error|hint)'; echo "exit ${PIPESTATUS[0]}")"
}
run ls
run log $session
run show $session head
run verify
run verify $session
run export $session
run export $session --as bundle -o "$source/../out/$mode.rath"
run replay $session
run import "$source/../long.rath"
run fork $session
run verify $session
run ls
"#;

/// Creates a store with a session, and with what a process leaves that is killed.
fn store(folder: &Path, uri: &str, leftovers: &str) -> String {
    let (kind, name) = uri.split_once(':').expect("a URI");
    let from = rath_test_support::temp_dir();
    let session = block_on(async {
        let store = Store::open(&format!("{kind}:{}", from.path().join(name).display())).await?;
        let mut session = Session::user("hello").record(&store).await?;
        session.push(Chunk::assistant("hi"));
        session.durable().await?;
        if leftovers.is_empty() {
            let id = session.id();
            drop(session);
            store.close().await?;
            copy(from.path(), folder);
            return Ok(id);
        }
        // Until the store is idle, its newest steps are in the WAL alone.
        loop {
            session.push(Chunk::user("more"));
            session.durable().await?;
            copy(from.path(), folder);
            if folder.join("store.db-wal").metadata().is_ok_and(|wal| wal.len() > 0) {
                break;
            }
        }
        for name in ["-wal", "-shm"].into_iter().filter(|name| !leftovers.contains(name)) {
            std::fs::remove_file(folder.join(format!("store.db{name}"))).expect("removed");
        }
        Ok::<_, Error>(session.id())
    });
    let mut long = Session::user("long");
    (0..200).for_each(|_| _ = long.push(Chunk::assistant("a long answer ".repeat(1_000))));
    long.save_blocking(folder.with_file_name("long.rath")).expect("saved");
    session.expect("a session").to_string()
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("a directory").map(|entry| entry.expect("an entry")) {
        let path = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir_all(&path).expect("a directory");
            copy(&entry.path(), &path);
        } else {
            std::fs::copy(entry.path(), path).expect("copied");
        }
    }
}

/// Runs a script on a copy of a directory on which nothing can be written; none if this user may not do that.
fn run(script: &str, mode: &str, folders: [&Path; 2], names: [&str; 2]) -> Option<String> {
    let is_root = rath_test_support::program("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    let mut command = rath_test_support::program("unshare");
    command.args(if is_root { &["--mount"][..] } else { &["--map-root-user", "--mount"] });
    command.args(["bash", "-c", &format!("{MOUNT}{script}"), "bash", mode]).arg(program_path()).args(folders);
    let output = command.args(names).output().expect("unshare runs");
    if output.status.code() == Some(77) {
        println!("skipped: {mode}: this user may not mount a file system, or run as another user");
        return None;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).expect("UTF-8"))
}

#[test]
fn a_memory_can_be_read_where_nothing_can_be_written() {
    // The index may be one that an older version of rath made.
    for (mode, is_older) in MODES.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        let folder = rath_test_support::temp_dir();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("a mode");
        let [source, mount] = ["source", "mount"].map(|name| folder.path().join(name));
        [&source, &mount].iter().for_each(|path| std::fs::create_dir(path).expect("a directory"));
        assert!(crate::rath(&source, &["memory", "remember", "A plant."]).status.success());
        if is_older {
            let file = rusqlite::Connection::open(source.join(".rath/memory/notes.db")).expect("a database");
            file.execute_batch("UPDATE counts SET value = 1 WHERE name = 'analysis'").expect("it is a statement");
        }
        let Some(printed) = run(MEMORY, mode, [&source, &mount], ["", ""]) else { continue };
        println!("{mode}\n{printed}");
        assert!(printed.starts_with("ls exit 0\nrecall exit 0\nremember error: "), "{mode}: {printed}");
        assert_eq!(printed.matches("notes.db: the memory cannot be written to: ").count(), 2, "{mode}: {printed}");
    }
}

#[test]
fn a_store_can_be_read_where_nothing_can_be_written() {
    for (uri, leftovers) in STORES {
        for mode in MODES {
            let folder = rath_test_support::temp_dir();
            std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("a mode");
            let [source, mount, out] = ["source", "mount", "out"].map(|name| folder.path().join(name));
            [&source, &mount, &out].iter().for_each(|path| std::fs::create_dir(path).expect("a directory"));
            std::fs::set_permissions(&out, PermissionsExt::from_mode(0o777)).expect("a mode");
            let session = store(&source, uri, leftovers);
            let Some(printed) = run(STORE, mode, [&source, &mount], [uri, &session]) else { continue };
            let reason = match mode {
                "full" => "No space left on device (os error 28)",
                "read-only" => "Read-only file system (os error 30)",
                _ => "Permission denied (os error 13)",
            };
            check(&format!("{uri}, {leftovers}, {mode}"), &printed, uri, reason);
        }
    }
}

fn check(name: &str, printed: &str, uri: &str, reason: &str) {
    let (mut lines, mut is_fork) = (Vec::new(), false);
    for line in printed.lines() {
        is_fork = if line.starts_with("hint") || line.starts_with("exit") { is_fork } else { line.starts_with("fork") };
        // A short step may fit on the last page of a file of lines.
        if !is_fork {
            lines.push(line);
        }
    }
    // No model has answered in the session, so there is nothing that a replay could compare.
    let reads = "ls exit 0\nlog exit 0\nshow exit 0\nverify exit 0\nverify exit 0\nexport exit 0\nexport exit 0\n\
                 replay exit 1\n";
    let error = format!("import error: cannot write to {uri}: {reason}\nhint: ");
    // Where the store could be opened for writing, SQLite finds that the disk is full.
    let text = lines.join("\n").replace("database or disk is full", reason);
    assert!(text.starts_with(&format!("{reads}{error}")), "{name}:\n{printed}");
    assert!(text.ends_with("exit 1\nverify exit 0\nls exit 0"), "{name}:\n{printed}");
}
