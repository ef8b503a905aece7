//! Limits that end work early: the time of a budget, and cancellation.

use std::future::Future;
use std::pin::pin;

use futures_util::future::{Either, select};
use rath_record::Text;
use rath_record::chunk::Interrupted;

use super::{Error, Session};
use crate::budget::BudgetError;
use crate::cancel::Cancel;
use crate::error::ErrorKind;

/// The reason that is recorded when a run is cancelled.
const CANCELLED: &str = "the run was cancelled";

/// The reason why work ended early.
pub(crate) enum StopReason {
    Budget(BudgetError),
    Cancelled,
}

impl StopReason {
    /// Records the interruption and returns its error. Running the session again continues from here.
    pub(crate) fn record(self, session: &mut Session) -> Error {
        self.record_with(session, |session, interrupted| _ = session.push(interrupted))
    }

    /// Like [`record`](StopReason::record), with a function that records the interruption.
    pub(crate) fn record_with(self, session: &mut Session, push: impl FnOnce(&mut Session, Interrupted)) -> Error {
        let (kind, why, hint) = match self {
            StopReason::Budget(stop) => (ErrorKind::Budget, stop.to_string(), stop.hint),
            StopReason::Cancelled => {
                let hint = "to continue, run the session that the error carries with another `Cancel`";
                (ErrorKind::Cancelled, CANCELLED.to_owned(), hint)
            }
        };
        push(session, Interrupted::new(why.as_str()));
        Error::new(kind, why).with_hint(hint).with_session(session)
    }

    /// Returns the kind of error that a recorded interruption was returned as.
    pub(crate) fn error_kind(reason: &Text) -> ErrorKind {
        if reason.as_str() == Some(CANCELLED) { ErrorKind::Cancelled } else { ErrorKind::Budget }
    }
}

/// Returns the reason why no further work may start, if there is one.
pub(crate) fn stop_reason(session: &Session) -> Option<StopReason> {
    if session.cancel().is_some_and(Cancel::is_cancelled) {
        return Some(StopReason::Cancelled);
    }
    let budget = session.budget()?;
    (budget.time_left()?.is_zero()).then(|| StopReason::Budget(budget.out_of_time()))
}

/// Waits for `work` until the time of the session's budget is over or the session is cancelled.
pub(crate) async fn within_limits<T>(session: &Session, work: impl Future<Output = T>) -> Result<T, StopReason> {
    // Pinned once: a future with `work` in several places is copied with every await around it.
    let work = pin!(work);
    let limit = session.budget().and_then(|budget| Some((budget, budget.time_left()?)));
    let cancel = match session.cancel() {
        Some(cancel) if cancel.is_cancelled() => return Err(StopReason::Cancelled),
        cancel => cancel,
    };
    if limit.is_none() && cancel.is_none() {
        return Ok(work.await);
    }
    let within_time = async {
        match limit {
            None => Ok(work.await),
            Some((budget, remaining)) => {
                tokio::time::timeout(remaining, work).await.map_err(|_| StopReason::Budget(budget.out_of_time()))
            }
        }
    };
    match cancel {
        None => within_time.await,
        Some(cancel) => until_cancelled(cancel, within_time).await?,
    }
}

/// Waits for `work` or for cancellation.
///
/// `work` is polled first: a tool that the same `Cancel` stops may still give its result.
async fn until_cancelled<T>(cancel: &Cancel, work: impl Future<Output = T>) -> Result<T, StopReason> {
    match select(pin!(work), pin!(cancel.cancelled())).await {
        Either::Left((done, _)) => Ok(done),
        Either::Right(_) => Err(StopReason::Cancelled),
    }
}
