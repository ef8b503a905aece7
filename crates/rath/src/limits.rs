//! What can end work early: a budget's time, and whoever holds the switch.

use std::future::Future;
use std::pin::pin;

use futures_util::future::{Either, select};
use rath_record::Text;
use rath_record::chunk::Interrupted;

use crate::budget::BudgetError;
use crate::cancel::Cancel;
use crate::error::ErrorKind;
use crate::session::Error;
use crate::session::Session;

/// What is recorded when somebody else stopped the work.
const CANCELLED: &str = "the run was cancelled";

/// Why work was ended.
pub(crate) enum Stopped {
    Budget(BudgetError),
    Cancelled,
}

impl Stopped {
    /// A stop that a person can lift: it is recorded, and running again goes on from it.
    pub(crate) fn record(self, session: &mut Session) -> Error {
        let (kind, why, hint) = match self {
            Stopped::Budget(stop) => (ErrorKind::Budget, stop.to_string(), stop.hint),
            Stopped::Cancelled => {
                let hint = "run the session that the error carries again, under another switch";
                (ErrorKind::Cancelled, CANCELLED.to_owned(), hint)
            }
        };
        session.push(Interrupted { reason: why.as_str().into() });
        Error::new(kind, why).with_hint(hint).with_session(session)
    }

    /// The kind of error that a recorded stop was told as.
    pub(crate) fn kind_of(reason: &Text) -> ErrorKind {
        if reason.as_str() == Some(CANCELLED) { ErrorKind::Cancelled } else { ErrorKind::Budget }
    }
}

/// Why nothing further may be begun, if so.
pub(crate) fn stopped(session: &Session) -> Option<Stopped> {
    if session.cancel().is_some_and(Cancel::is_cancelled) {
        return Some(Stopped::Cancelled);
    }
    let budget = session.budget()?;
    (budget.time_left()?.is_zero()).then(|| Stopped::Budget(budget.out_of_time()))
}

/// Waits for `work`, but not longer than the session's budget allows, nor after it was cancelled.
pub(crate) async fn within_limits<T>(session: &Session, work: impl Future<Output = T>) -> Result<T, Stopped> {
    let within_time = async {
        match session.budget().and_then(|budget| Some((budget, budget.time_left()?))) {
            None => Ok(work.await),
            Some((budget, left)) => {
                tokio::time::timeout(left, work).await.map_err(|_| Stopped::Budget(budget.out_of_time()))
            }
        }
    };
    match session.cancel() {
        None => within_time.await,
        Some(cancel) if cancel.is_cancelled() => Err(Stopped::Cancelled),
        Some(cancel) => unless(cancel, within_time).await?,
    }
}

/// Work first: what it started may be stopped by the same switch, and has something to say then.
async fn unless<T>(cancel: &Cancel, work: impl Future<Output = T>) -> Result<T, Stopped> {
    match select(pin!(work), pin!(cancel.cancelled())).await {
        Either::Left((done, _)) => Ok(done),
        Either::Right(_) => Err(Stopped::Cancelled),
    }
}
