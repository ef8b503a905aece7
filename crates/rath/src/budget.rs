//! What a tree of branches may use.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rath_record::chunk::Identity;
use rath_record::draw::count;
use rath_record::{Record, StepId, Usage};

use crate::provider::{Money, Prices, asked};

/// What a session and everything that forks from it may use together.
///
/// It is checked before every model call, for what the call sends: what the model will write is not known then, so the
/// last call may go beyond a limit of tokens or money by its answer.
///
/// What a session had used before is counted too, so a budget given to a resumed session goes on where the last one
/// stopped; only time begins anew. Setting a limit again changes it for everyone who shares it.
///
/// ```
/// use rath::prelude::*;
///
/// let session = Session::user("hello").within(Budget::new().tokens(50_000).turns(20));
/// let fork = session.fork(); // draws on the same budget
/// # assert!(fork.budget().is_some());
/// ```
#[derive(Clone, Default)]
pub struct Budget(Arc<Shared>);

#[derive(Default)]
struct Shared(Mutex<State>);

#[derive(Default)]
struct State {
    limits: Limits,
    spent: Spent,
    /// The answers that are counted, so that each is counted once however many branches hold it.
    counted: HashSet<StepId>,
    /// What calls under way will use, as far as can be told.
    held: Spent,
    /// When it was first given to a session.
    begun: Option<Instant>,
}

/// The limits of a budget; where none is set, there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Tokens read and written.
    pub tokens: Option<u64>,
    /// Money, by the provider's prices.
    pub money: Option<Money>,
    /// Model calls that were answered.
    pub turns: Option<u64>,
    /// How many forks deep a branch may lie and still ask.
    pub depth: Option<u32>,
    /// Time since the budget was given to a session.
    pub time: Option<Duration>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Spent {
    turns: u64,
    tokens: u64,
    by_model: Vec<(Identity, Usage)>,
}

/// A call that is about to be made.
pub(crate) struct Ask<'a> {
    pub(crate) identity: &'a Identity,
    /// About how many tokens it sends.
    pub(crate) tokens: u64,
    pub(crate) depth: u32,
    pub(crate) prices: &'a Prices,
}

impl Budget {
    /// A budget without limits.
    pub fn new() -> Self {
        Budget::default()
    }

    /// Limits tokens, read and written.
    pub fn tokens(self, most: u64) -> Self {
        self.state().limits.tokens = Some(most);
        self
    }

    /// Limits money. A model without a price is then not asked at all.
    pub fn money(self, most: Money) -> Self {
        self.state().limits.money = Some(most);
        self
    }

    /// Limits model calls.
    pub fn turns(self, most: u64) -> Self {
        self.state().limits.turns = Some(most);
        self
    }

    /// Limits how many forks deep a branch may lie, below the session that was given the budget.
    pub fn depth(self, most: u32) -> Self {
        self.state().limits.depth = Some(most);
        self
    }

    /// Limits time. A call under way is broken off when it is over.
    pub fn time(self, most: Duration) -> Self {
        self.state().limits.time = Some(most);
        self
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.state().limits
    }

    /// Tokens used so far, by all who share it.
    pub fn spent_tokens(&self) -> u64 {
        self.state().spent.tokens
    }

    /// Model calls answered so far, for all who share it.
    pub fn spent_turns(&self) -> u64 {
        self.state().spent.turns
    }

    /// What the models that have a price cost so far.
    pub fn spent_money(&self, prices: &Prices) -> Money {
        self.state().spent.money(prices).0
    }

    /// Counts what a session has used before.
    pub(crate) fn begin(&self, record: &Record) {
        let mut state = self.state();
        state.begun.get_or_insert_with(Instant::now);
        for step in record.lineage().walk() {
            if let Some(usage) = step.stamp().usage
                && state.counted.insert(step.id())
            {
                state.spent.add(asked(step.chunk()), usage);
            }
        }
    }

    /// Sets aside what a call will use, if that is left.
    pub(crate) fn hold(&self, ask: &Ask<'_>) -> Result<Hold, Stop> {
        let mut state = self.state();
        state.check(ask)?;
        let held = Usage::new(ask.tokens, 0);
        state.held.add(Some(ask.identity), held);
        Ok(Hold { budget: self.clone(), identity: ask.identity.clone(), held })
    }

    /// How much time is left.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let state = self.state();
        state.limits.time.map(|limit| limit.saturating_sub(state.elapsed()))
    }

    /// That time is over.
    pub(crate) fn out_of_time(&self) -> Stop {
        Stop::time(self.limits().time.unwrap_or_default())
    }

    pub(crate) fn is(&self, other: &Budget) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Sums and limits are set in one go each, so a panic elsewhere leaves them whole.
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Budget").field("limits", &state.limits).field("spent", &state.spent).finish()
    }
}

/// Why a budget allows no further call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub(crate) struct Stop {
    why: String,
    /// What the person who can act may do.
    pub(crate) hint: &'static str,
}

impl Stop {
    fn limit(why: String) -> Self {
        let hint = "raise the limit of the session's budget, or give it another with `within`, and ask again";
        Stop { why, hint }
    }

    fn time(limit: Duration) -> Self {
        Stop::limit(format!("the budget allows {limit:?}, and they are over"))
    }

    fn no_price(why: String) -> Self {
        Stop { why, hint: "set the price with `provider.prices(..)`, and ask again" }
    }
}

impl State {
    fn check(&self, ask: &Ask<'_>) -> Result<(), Stop> {
        let Limits { tokens, money, turns, depth, time } = self.limits;
        let stop = |why: String| Err(Stop::limit(why));
        if let Some(limit) = depth
            && ask.depth > limit
        {
            let limit = count(limit.into(), "fork");
            return stop(format!("the budget allows branches {limit} deep, and this one is {}", ask.depth));
        }
        if let Some(limit) = time
            && self.elapsed() >= limit
        {
            return Err(Stop::time(limit));
        }
        let turn = self.spent.turns.saturating_add(self.held.turns);
        if let Some(limit) = turns
            && turn >= limit
        {
            let under_way = if self.held.turns > 0 { " or under way" } else { "" };
            let limit = count(limit, "turn");
            return stop(format!("the budget allows {limit}: used{under_way}: {turn}"));
        }
        let used = self.spent.tokens.saturating_add(self.held.tokens);
        if let Some(limit) = tokens
            && used.saturating_add(ask.tokens) > limit
        {
            let wanted = ask.tokens;
            return stop(format!("the budget allows {limit} tokens: used: {used}, and this call sends about {wanted}"));
        }
        if let Some(limit) = money {
            let Some(price) = ask.prices.get(ask.identity) else {
                return Err(Stop::no_price(format!("the budget limits money, and `{}` has no price", ask.identity)));
            };
            let (spent, unpriced) = self.spent.money(ask.prices);
            if let Some(model) = unpriced {
                let why = format!("the budget limits money, and `{model}`, which was used, has no price");
                return Err(Stop::no_price(why));
            }
            let used = spent + self.held.money(ask.prices).0;
            let wanted = price.of(Usage::new(ask.tokens, 0));
            if used + wanted > limit {
                return stop(format!("the budget allows {limit}: used: {used}, and this call sends for {wanted}"));
            }
        }
        Ok(())
    }

    fn elapsed(&self) -> Duration {
        self.begun.map(|begun| begun.elapsed()).unwrap_or_default()
    }
}

impl Spent {
    fn add(&mut self, identity: Option<&Identity>, usage: Usage) {
        self.turns = self.turns.saturating_add(1);
        self.tokens = self.tokens.saturating_add(usage.total());
        let Some(identity) = identity else { return };
        match self.by_model.iter_mut().find(|(known, _)| known == identity) {
            Some((_, sum)) => *sum += usage,
            None => self.by_model.push((identity.clone(), usage)),
        }
    }

    /// Takes back what was set aside.
    fn release(&mut self, identity: &Identity, usage: Usage) {
        self.turns = self.turns.saturating_sub(1);
        self.tokens = self.tokens.saturating_sub(usage.total());
        if let Some((_, sum)) = self.by_model.iter_mut().find(|(known, _)| known == identity) {
            sum.input = sum.input.saturating_sub(usage.input);
        }
    }

    /// What it costs, and a model that has no price.
    fn money(&self, prices: &Prices) -> (Money, Option<&Identity>) {
        let priced = |(identity, usage): &(Identity, Usage)| prices.get(identity).map(|price| price.of(*usage));
        let unpriced = self.by_model.iter().find(|used| priced(used).is_none() && used.1 != Usage::default());
        (self.by_model.iter().filter_map(priced).sum(), unpriced.map(|(identity, _)| identity))
    }
}

/// What is set aside for one call. Given back when dropped, however the call ended.
pub(crate) struct Hold {
    budget: Budget,
    identity: Identity,
    held: Usage,
}

impl Hold {
    /// Counts what the call used that gave this answer.
    pub(crate) fn settle(self, answer: StepId, usage: Usage) {
        let mut state = self.budget.state();
        // It was paid for, even if the same was answered before.
        state.spent.add(Some(&self.identity), usage);
        state.counted.insert(answer);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.budget.state().held.release(&self.identity, self.held);
    }
}
