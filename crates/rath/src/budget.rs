//! Budgets: limits that a session and its forks share.

mod reservation;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rath_record::chunk::{Chunk, Identity};
use rath_record::{Record, StepId, Usage};
use tokio::sync::Notify;

use self::reservation::Reserved;
pub(crate) use self::reservation::{CallEstimate, InputEstimate, OutputRange, Reservation};
use crate::provider::{Money, Prices, identity_of};

/// The limits that a session and everything that forks from it share.
///
/// Before every model call its tokens are set aside for it: the estimated input, and the longest answer that it may get. If
/// less is left than that, the request limits the answer to the rest, and if nothing is left for an answer, the call is not
/// made. While calls under way hold tokens that another call needs, that call waits until they end: those that ask side by
/// side do not exceed a limit together. What a limit may be exceeded by is the error in the estimated input of one call.
///
/// A call with an answer counts what the provider reports, or else an estimate. An attempt without an answer counts nothing
/// if no piece of an answer had arrived. Otherwise it counts what the provider had reported by then, or else an estimate of
/// the input and of the pieces.
///
/// The usage that a session has on record is counted too, so a budget given to a resumed session continues where the last
/// one stopped; only time starts again. Setting a limit again changes it for all sessions that share the budget.
///
/// ```
/// use rath::prelude::*;
///
/// let session = Session::user("hello").within(Budget::new().tokens(50_000).turns(20));
/// let fork = session.fork(); // draws on the same budget
/// # assert!(fork.budget().is_some());
/// ```
#[derive(Clone, Default)]
pub struct Budget(Arc<SharedBudget>);

#[derive(Default)]
struct SharedBudget {
    state: Mutex<BudgetState>,
    /// Notified when a reservation ends.
    released: Notify,
}

#[derive(Default)]
struct BudgetState {
    limits: BudgetLimits,
    spent: Spending,
    /// The answers that are counted, so that each is counted once even if many branches hold it.
    counted: HashSet<StepId>,
    /// The sum of the reservations of calls under way.
    reserved: Reserved,
    /// The time when the budget was first given to a session.
    started: Option<Instant>,
}

/// The limits of a budget. `None` is no limit.
///
/// Returned by [`Budget::limits`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BudgetLimits {
    /// The tokens read and written.
    pub tokens: Option<u64>,
    /// The money, by the provider's prices.
    pub money: Option<Money>,
    /// The model calls that were answered.
    pub turns: Option<u64>,
    /// The number of forks between the session with the budget and a branch that may still call.
    pub depth: Option<u32>,
    /// The time since the budget was given to a session.
    pub time: Option<Duration>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Spending {
    turns: u64,
    tokens: u64,
    /// The cost of the calls for which the record states one.
    recorded: Money,
    /// The usage of all other calls.
    by_model: Vec<(Identity, Usage)>,
}

impl Budget {
    /// Creates a budget without limits.
    pub fn new() -> Self {
        Budget::default()
    }

    /// Limits the tokens read and written.
    pub fn tokens(self, max: u64) -> Self {
        self.state().limits.tokens = Some(max);
        self
    }

    /// Limits the money. A model without a price is then not asked at all.
    pub fn money(self, max: Money) -> Self {
        self.state().limits.money = Some(max);
        self
    }

    /// Limits the number of model calls.
    pub fn turns(self, max: u64) -> Self {
        self.state().limits.turns = Some(max);
        self
    }

    /// Limits the number of forks between the session that was given the budget and a branch that asks.
    pub fn depth(self, max: u32) -> Self {
        self.state().limits.depth = Some(max);
        self
    }

    /// Limits the time. A call under way is cancelled at its end.
    pub fn time(self, max: Duration) -> Self {
        self.state().limits.time = Some(max);
        self
    }

    /// Returns the limits.
    pub fn limits(&self) -> BudgetLimits {
        self.state().limits
    }

    /// Returns the tokens used so far by all sessions that share the budget.
    pub fn spent_tokens(&self) -> u64 {
        self.state().spent.tokens
    }

    /// Returns the model calls answered so far for all sessions that share the budget.
    pub fn spent_turns(&self) -> u64 {
        self.state().spent.turns
    }

    /// Returns the cost so far: the cost on record, and that of the models that have a price.
    pub fn spent_money(&self, prices: &Prices) -> Money {
        self.state().spent.money(prices).0
    }

    /// Starts the time, and counts the usage that is on record.
    pub(crate) fn start(&self, record: &Record) {
        let mut state = self.state();
        state.started.get_or_insert_with(Instant::now);
        for step in record.lineage().walk() {
            let recorded = step.chunk().recorded_cost();
            if let Some(usage) = step.stamp().usage.or(recorded.map(|_| Usage::default()))
                && state.counted.insert(step.id())
            {
                // A cost on record needs no price of the model.
                state.spent.recorded += recorded.unwrap_or_default();
                state.spent.turns += u64::from(!is_attempt(step.chunk()));
                state.spent.add(identity_of(step.chunk()).filter(|_| recorded.is_none()), usage);
            }
        }
    }

    /// Returns the remaining time, if time is limited.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let state = self.state();
        state.limits.time.map(|limit| limit.saturating_sub(state.elapsed()))
    }

    /// Returns the error for a budget whose time is over.
    pub(crate) fn out_of_time(&self) -> BudgetError {
        BudgetError::time(self.limits().time.unwrap_or_default())
    }

    /// Returns true if both are handles on the same budget.
    pub(crate) fn is_same(&self, other: &Budget) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn state(&self) -> MutexGuard<'_, BudgetState> {
        // Each sum and limit is set in one assignment, so a panic elsewhere leaves them valid.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Budget").field("limits", &state.limits).field("spent", &state.spent).finish()
    }
}

/// The reason why a budget allows no further call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct BudgetError {
    message: String,
    /// The advice for the person who can act.
    pub(crate) hint: &'static str,
}

impl BudgetError {
    fn limit(message: String) -> Self {
        let hint =
            "raise the limit of the session's budget, or give it another with `session.within(..)`, and ask again";
        BudgetError { message, hint }
    }

    fn time(limit: Duration) -> Self {
        BudgetError::limit(format!("the time of the budget is over: {limit:?}"))
    }

    fn no_price(message: String) -> Self {
        BudgetError { message, hint: "set the price with `provider.prices(..)`, and ask again" }
    }
}

impl BudgetState {
    fn elapsed(&self) -> Duration {
        self.started.map(|started| started.elapsed()).unwrap_or_default()
    }
}

impl Spending {
    fn add(&mut self, identity: Option<&Identity>, usage: Usage) {
        self.tokens = self.tokens.saturating_add(usage.total());
        let Some(identity) = identity else { return };
        match self.by_model.iter_mut().find(|(known, _)| known == identity) {
            Some((_, sum)) => *sum += usage,
            None => self.by_model.push((identity.clone(), usage)),
        }
    }

    /// Returns the cost, and a model that was used and has no price.
    fn money(&self, prices: &Prices) -> (Money, Option<&Identity>) {
        let priced = |(identity, usage): &(Identity, Usage)| prices.get(identity).map(|price| price.cost(*usage));
        let unpriced = self.by_model.iter().find(|used| priced(used).is_none() && used.1 != Usage::default());
        let by_price: Money = self.by_model.iter().filter_map(priced).sum();
        (self.recorded + by_price, unpriced.map(|(identity, _)| identity))
    }
}

/// Returns true for a chunk that records an attempt without an answer, which is no turn.
fn is_attempt(chunk: &Chunk) -> bool {
    matches!(chunk, Chunk::Retry(_) | Chunk::Failed(_) | Chunk::Interrupted(_))
}
