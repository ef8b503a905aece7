//! File operations that are dropped before they are done.

use std::sync::mpsc;

use rath_sandbox::{ByteRange, Sandbox};

#[test]
fn a_write_that_is_dropped_before_it_begins_never_happens() {
    let directory = rath_test_support::temp_dir();
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().expect("a runtime");
    runtime.block_on(async {
        let sandbox = Sandbox::local(directory.path());
        sandbox.write("there.txt", b"old").await.expect("it is written");
        // The only thread that may block is busy meanwhile.
        let (go, wait) = mpsc::channel();
        let busy = tokio::task::spawn_blocking(move || wait.recv());
        let mut write = Box::pin(sandbox.write("there.txt", b"new"));
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(write.as_mut().poll(cx).is_pending())).await;
        assert!(polled, "the thread is busy");
        drop(write);
        go.send(()).expect("it waits");
        busy.await.expect("it ends").expect("it was told");
        let all = ByteRange { offset: 0, max_len: u64::MAX };
        assert_eq!(sandbox.read("there.txt", all).await.expect("it is read"), b"old");
    });
}

#[test]
fn only_the_file_itself_is_removed() {
    let folder = rath_test_support::temp_dir();
    let top = folder.path().join("top");
    for path in ["a/b/one", "a/two", ".git/config", ".rath/db", "dir/file"] {
        let path = top.join(path);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, "x").expect("a file");
    }
    std::fs::write(folder.path().join("outside"), "x").expect("a file");
    for (target, link) in [("a/two", "link"), ("../outside", "out"), ("a", "dirlink"), ("../dir/file", "a/file")] {
        std::os::unix::fs::symlink(target, top.join(link)).expect("a link");
    }
    let root = rath_sandbox::Root::open(&top).expect("a root");
    let rows = [
        ("a/b/one", "removed"),
        ("link", "cannot remove `link`: it is not an ordinary file"),
        ("a/file", "cannot remove `a/file`: it is not an ordinary file"),
        ("out", "`out` is outside the workspace"),
        ("../outside", "`../outside` is outside the workspace"),
        (".git/config", "`.git/config` is in the directory `.git`"),
        (".rath/db", "`.rath/db` is in the reserved directory `.rath`"),
        ("a", "cannot remove `a`: it is a directory"),
        ("none", "cannot remove `none`: there is no such file"),
        ("dirlink/two", "removed"),
        ("dir/../dir/file", "removed"),
    ];
    for (path, expected) in rows {
        let removed = root.remove(path).map_or_else(|error| error.to_string(), |()| "removed".to_owned());
        assert_eq!(removed, expected);
    }
    let left = |path: &str| top.join(path).symlink_metadata().is_ok();
    assert!(!left("a/b") && left("a/file") && left("link") && left("dirlink") && !left("dir") && left(".git/config"));
    assert!(folder.path().join("outside").exists());
}
