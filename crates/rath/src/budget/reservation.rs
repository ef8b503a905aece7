//! Reservations: the tokens and the money that are set aside for calls under way.
//!
//! A reservation is held only while an attempt is under way, and an attempt waits for nothing but its provider. So a call that
//! waits for reservations of others waits for servers, never for a call that waits itself.

use std::pin::pin;
use std::time::Duration;

use rath_record::chunk::Identity;
use rath_record::draw::count;
use rath_record::{StepId, Usage};

use super::{Budget, BudgetError, BudgetLimits, BudgetState};
use crate::provider::{Money, Price, Prices};

/// The time after which a call no longer waits for others if none of them ended. No attempt takes as long, but a program may
/// have stopped polling one.
const MAX_WAIT_FOR_OTHERS: Duration = Duration::from_secs(2 * 3600);

/// The estimate for a call that is about to be made.
pub(crate) struct CallEstimate<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) input: InputEstimate,
    pub(crate) output: OutputRange,
    pub(crate) depth: u32,
    pub(crate) prices: &'a Prices,
}

/// The number of tokens that a call sends.
#[derive(Clone, Copy)]
pub(crate) struct InputEstimate {
    /// The expected number.
    pub(crate) expected: u64,
    /// A number that is not exceeded.
    pub(crate) at_most: u64,
}

/// The length of an answer, in tokens.
#[derive(Clone, Copy)]
pub(crate) struct OutputRange {
    /// The shortest answer that is worth a call.
    pub(crate) least: u64,
    /// The longest answer that the request allows.
    pub(crate) most: u64,
}

/// The sum of all reservations.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    calls: u64,
    tokens: u64,
    money: Money,
}

/// The decision about a call that no limit forbids.
enum Admission {
    /// The call may be made, for an answer of at most this many tokens. `None` if neither tokens nor money are limited.
    Granted(Option<u64>),
    /// Calls under way hold what this one needs.
    Later,
}

/// The part of a limit that a call may have.
struct Share {
    /// The most output tokens for which enough is left, apart from what calls under way hold.
    max_output: u64,
    /// True if enough is left for the largest input and the longest answer, beside what calls under way hold.
    fits_beside_others: bool,
}

impl Budget {
    /// Sets aside what a call may use. Waits while calls under way hold what it needs, and fails if a limit is reached.
    pub(crate) async fn reserve(&self, call: &CallEstimate<'_>) -> Result<Reservation, BudgetError> {
        loop {
            let mut released = pin!(self.0.released.notified());
            // Before the look at the state: a reservation that ends in between is not missed.
            released.as_mut().enable();
            match self.try_reserve(call) {
                Ok(Some(reservation)) => return Ok(reservation),
                Ok(None) => {}
                Err(error) => return Err(error),
            }
            if tokio::time::timeout(MAX_WAIT_FOR_OTHERS, released).await.is_err() {
                let message = "calls under way hold the rest of the budget, and none of them ends";
                return Err(BudgetError::limit(message.to_owned()));
            }
        }
    }

    /// Sets aside what a call may use. Returns `None` if calls under way hold what it needs.
    fn try_reserve(&self, call: &CallEstimate<'_>) -> Result<Option<Reservation>, BudgetError> {
        let mut state = self.state();
        let Admission::Granted(max_output) = state.admit(call)? else { return Ok(None) };
        let usage = Usage::new(call.input.at_most, max_output.unwrap_or(call.output.most));
        let money = call.prices.get(call.identity).map(|price| cost(price, usage)).unwrap_or_default();
        let reserved = &mut state.reserved;
        reserved.calls += 1;
        reserved.tokens = reserved.tokens.saturating_add(usage.total());
        reserved.money += money;
        let (budget, identity) = (self.clone(), call.identity.clone());
        Ok(Some(Reservation { budget, identity, tokens: usage.total(), money, max_output, used: None }))
    }
}

impl BudgetState {
    /// Decides about a call, or fails if a limit forbids it.
    ///
    /// A call that is alone may be given what is left, by the expected input. Beside others it is given the longest answer
    /// or nothing, by the most input: so no answer is cut short because of calls that may use less than they hold.
    fn admit(&self, call: &CallEstimate<'_>) -> Result<Admission, BudgetError> {
        let BudgetLimits { tokens, money, turns, depth, time } = self.limits;
        if let Some(limit) = depth
            && call.depth > limit
        {
            let limit = count(limit.into(), "fork");
            let message = format!("the budget allows branches {limit} deep, and this one is {}", call.depth);
            return Err(BudgetError::limit(message));
        }
        if let Some(limit) = time
            && self.elapsed() >= limit
        {
            return Err(BudgetError::time(limit));
        }
        if let Some(limit) = turns
            && self.spent.turns >= limit
        {
            return Err(BudgetError::limit(format!("the budget of {} is used up", count(limit, "turn"))));
        }
        let tokens = tokens.map(|limit| self.share_of_tokens(limit, call)).transpose()?;
        let money = money.map(|limit| self.share_of_money(limit, call)).transpose()?;
        let shares = || tokens.iter().chain(&money);
        let turns_under_way = self.spent.turns.saturating_add(self.reserved.calls);
        let fits_beside_others =
            turns.is_none_or(|limit| turns_under_way < limit) && shares().all(|share| share.fits_beside_others);
        Ok(match fits_beside_others || self.reserved.calls == 0 {
            true => Admission::Granted(shares().map(|share| share.max_output).min()),
            false => Admission::Later,
        })
    }

    fn share_of_tokens(&self, limit: u64, call: &CallEstimate<'_>) -> Result<Share, BudgetError> {
        let (InputEstimate { expected, at_most }, OutputRange { least, most }) = (call.input, call.output);
        let used = self.spent.tokens;
        let left = limit.saturating_sub(used);
        if expected.saturating_add(least) > left {
            let rest = if expected <= left { ", which leaves none for an answer" } else { "" };
            return Err(BudgetError::limit(format!(
                "{used} of the budget's {limit} tokens are used, and the next request has about {expected}{rest}"
            )));
        }
        Ok(Share {
            max_output: most.min(left - expected),
            fits_beside_others: at_most.saturating_add(most).saturating_add(self.reserved.tokens) <= left,
        })
    }

    fn share_of_money(&self, limit: Money, call: &CallEstimate<'_>) -> Result<Share, BudgetError> {
        let Some(price) = call.prices.get(call.identity) else {
            let message = format!("the budget limits money, and `{}` has no price", call.identity);
            return Err(BudgetError::no_price(message));
        };
        let (used, unpriced) = self.spent.money(call.prices);
        if let Some(model) = unpriced {
            let message = format!("the budget limits money, and `{model}`, which was used, has no price");
            return Err(BudgetError::no_price(message));
        }
        let (InputEstimate { expected, at_most }, OutputRange { least, most }) = (call.input, call.output);
        let input = cost(price, Usage::new(expected, 0));
        if used + cost(price, Usage::new(expected, least)) > limit {
            let rest = if used + input <= limit { ", which leaves nothing for an answer" } else { "" };
            return Err(BudgetError::limit(format!(
                "{used} of the budget of {limit} is used, and the next request costs {input}{rest}"
            )));
        }
        Ok(Share {
            max_output: most.min(affordable_output(price, limit.saturating_sub(used + input))),
            fits_beside_others: used + self.reserved.money + cost(price, Usage::new(at_most, most)) <= limit,
        })
    }
}

/// Returns the cost of tokens of which none is read from a cache, and all may be written to one.
fn cost(price: &Price, usage: Usage) -> Money {
    price.cost(usage).max(price.cost(Usage { cache_write: usage.input, ..usage }))
}

/// Returns the number of output tokens that cost at most this much.
fn affordable_output(price: &Price, money: Money) -> u64 {
    let one = price.cost(Usage::new(0, 1)).as_picodollars();
    money.as_picodollars().checked_div(one).map_or(u64::MAX, |tokens| tokens.try_into().unwrap_or(u64::MAX))
}

/// The tokens and the money that are set aside for one attempt. Dropping it releases them; only the noted usage counts then.
pub(crate) struct Reservation {
    budget: Budget,
    identity: Identity,
    tokens: u64,
    money: Money,
    /// The most tokens that the answer may have. `None` if neither tokens nor money are limited.
    pub(crate) max_output: Option<u64>,
    /// The usage of the attempt so far, once a piece of an answer has arrived.
    used: Option<Usage>,
}

impl Reservation {
    /// Notes the usage of an attempt that has no answer yet.
    pub(crate) fn note(&mut self, usage: Usage) {
        self.used = Some(usage);
    }

    /// Replaces the reservation by the usage of the answer that is recorded in this step.
    pub(crate) fn commit(mut self, answer: StepId, usage: Usage) {
        self.used = None;
        let mut state = self.budget.state();
        // The call was paid for, even if an equal answer was counted before.
        state.spent.turns = state.spent.turns.saturating_add(1);
        state.spent.add(Some(&self.identity), usage);
        state.counted.insert(answer);
    }

    /// Replaces the reservation by the noted usage, with which this step records the end of the attempt.
    pub(crate) fn commit_attempt(self, step: StepId) {
        self.budget.state().counted.insert(step);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.budget.state();
        if let Some(used) = self.used {
            state.spent.add(Some(&self.identity), used);
        }
        let reserved = &mut state.reserved;
        reserved.calls -= 1;
        reserved.tokens = reserved.tokens.saturating_sub(self.tokens);
        reserved.money = reserved.money.saturating_sub(self.money);
        drop(state);
        self.budget.0.released.notify_waiters();
    }
}
