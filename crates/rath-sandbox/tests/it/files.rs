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
