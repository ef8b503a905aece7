//! A path is used while another thread swaps one of its directories for a link, as fast as it can.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rath::sandbox::{ByteRange, Root};

use super::*;

/// Swaps two names in the workspace until it is dropped.
pub(super) struct Swapping {
    stop: Arc<AtomicBool>,
    swaps: Arc<AtomicUsize>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Swapping {
    pub(super) fn start(yard: &Yard, one: &str, other: &str) -> Self {
        let (one, other) = (yard.inside().join(one), yard.inside().join(other));
        let (stop, swaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (told, count) = (stop.clone(), swaps.clone());
        let thread = std::thread::spawn(move || {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            while !told.load(Ordering::Relaxed) {
                if renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).is_ok() {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Swapping { stop, swaps, thread: Some(thread) }
    }

    pub(super) fn swaps(&self) -> usize {
        self.swaps.load(Ordering::Relaxed)
    }
}

impl Drop for Swapping {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it swaps");
        }
    }
}

/// The entry that is swapped, and a path through it.
pub(super) const SWAPS: &[(&str, &str, &str, Prepare)] = &[
    // A directory and a link out.
    ("d", "e", "d/file", |yard| {
        fs::create_dir(yard.inside().join("d")).expect("a directory");
        yard.set("inside/d/file", "harmless");
        yard.link("e", "../outside");
    }),
    // The same deeper down, and back up.
    ("a/d", "a/e", "a/d/sub/../file", |yard| {
        fs::create_dir_all(yard.inside().join("a/d/sub")).expect("a directory");
        yard.set("inside/a/d/file", "harmless");
        yard.link("a/e", "{out}");
    }),
    // A file and a link out.
    ("a/file", "a/l", "a/file", |yard| yard.link("a/l", "../../outside/secret")),
    // A link that stays inside and one that does not.
    ("l", "m", "l/file", |yard| {
        yard.link("l", "a");
        yard.link("m", "{out}");
    }),
    // A file, and a pipe without a writer.
    ("a/file", "a/pipe", "a/file", |yard| pipe(&yard.inside().join("a/pipe"))),
    // A directory and rath's own, by a link.
    ("d", "e", "d/secret", |yard| {
        fs::create_dir(yard.inside().join("d")).expect("a directory");
        yard.set("inside/d/secret", "harmless");
        yard.link("e", ".rath");
    }),
];

#[test]
fn nothing_that_is_swapped_meanwhile_leads_out_of_a_root() {
    let times = rath_test_support::cases(300);
    for walking in [false, true] {
        for (one, other, path, prepare) in SWAPS {
            let yard = Yard::new();
            prepare(&yard);
            let root = Root::open(&yard.inside()).expect("a root");
            let root = if walking { root.without_openat2() } else { root };
            let around = yard.around();
            let swapping = Swapping::start(&yard, one, other);
            let (mut read, mut refused) = (0, 0);
            // On a busy machine it takes a while until both had their turn.
            for nth in 0..times * 1_000 {
                if nth >= times && swapping.swaps() > 0 && read > 0 {
                    break;
                }
                match root.read(path, ByteRange { offset: 0, max_len: 1_000 }) {
                    Ok(bytes) => {
                        assert!(
                            matches!(&*bytes, b"harmless" | b"written"),
                            "{path}: {}",
                            String::from_utf8_lossy(&bytes)
                        );
                        read += 1;
                    }
                    Err(_) => refused += 1,
                }
                let _ = root.write(path, b"written");
                if let Ok(entries) = root.list(path.split_once('/').map_or("", |(above, _)| above)) {
                    assert!(entries.iter().all(|entry| !matches!(&*entry.name, "plain")), "{path}: {entries:?}");
                }
            }
            assert!(
                swapping.swaps() > 0 && read > 0,
                "{path}: {} swaps, {read} read, {refused} refused",
                swapping.swaps()
            );
            drop(swapping);
            assert_eq!(yard.around(), around, "{path}");
        }
    }
}
