use std::time::{Duration, Instant};

/// The time after which a test gives up waiting. It is reached only if what was waited for never happens, so it is far
/// longer than a loaded machine needs.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Blocks until the condition holds.
///
/// # Panics
/// If it does not hold within [`LIMIT`].
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "waited {} s in vain: {what}", LIMIT.as_secs());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Tries a test of a time limit with more and more time, and returns the first result.
///
/// Such a test needs something to happen before the limit, and a loaded machine may be too slow for that: the attempt
/// then returns `None`. The time begins with `first` and is doubled as long as it is less than half a minute.
///
/// # Panics
/// If no time was enough.
#[track_caller]
pub fn with_enough_time<T>(first: Duration, mut attempt: impl FnMut(Duration) -> Option<T>) -> T {
    let mut time = first;
    loop {
        if let Some(result) = attempt(time) {
            return result;
        }
        time *= 2;
        assert!(time < Duration::from_secs(30), "{:?} was not enough", time / 2);
    }
}
