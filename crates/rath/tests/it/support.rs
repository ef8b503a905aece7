//! What several tests use.

/// Runs a test's own runtime.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime starts").block_on(work)
}

/// How many cases a property is tried on.
pub(crate) fn cases(default: u32) -> u32 {
    std::env::var("RATH_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}
