//! What several tests use.

use rath::prelude::*;
use rath::record::draw;

/// Runs a test's own runtime.
pub(crate) fn block_on<T>(work: impl IntoFuture<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime starts").block_on(work.into_future())
}

/// A provider that plays these turns.
pub(crate) fn script<T: AsRef<str>>(turns: impl IntoIterator<Item = T>) -> Provider {
    Script::of(turns).expect("a script").into()
}

/// What was said and done, oldest first, one line each.
pub(crate) fn log(session: &Session) -> String {
    let steps = session.as_record().steps();
    let told = steps.iter().filter(|step| !step.chunk().is_marker()).map(|step| format!("{}\n", draw::headline(step)));
    told.collect()
}

/// How many cases a property is tried on.
pub(crate) fn cases(default: u32) -> u32 {
    std::env::var("RATH_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}
