//! Prices of models, and the cost of a record.
//!
//! Prices are applied when the cost is asked for. A cost that the record states, such as that of an imported answer, is taken from
//! there.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use rath_record::chunk::{Chunk, Identity};
use rath_record::{BranchId, Money, Record, StepId, Usage};
use serde::Deserialize;

use super::error::{ProviderError, ProviderErrorKind};

/// The price of a model, in dollars for a million tokens.
///
/// ```
/// use rath::Usage;
/// use rath::provider::{Money, Price};
///
/// let price = Price::new(1.25, 10.0);
/// assert_eq!(price.cost(Usage::new(1_000_000, 100_000)), Money::dollars(2.25));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// The price of input that was not cached.
    pub input: f64,
    /// The price of output, reasoning included.
    pub output: f64,
    /// The price of input that came from the cache; that of other input if it is `None`.
    pub cached_read: Option<f64>,
    /// The price of input that was written to the cache; that of other input if it is `None`.
    pub cache_write: Option<f64>,
}

impl Price {
    /// For input and output, cached or not.
    pub fn new(input: f64, output: f64) -> Self {
        Price { input, output, cached_read: None, cache_write: None }
    }

    /// Returns the cost of these tokens.
    pub fn cost(&self, usage: Usage) -> Money {
        let plain = usage.input.saturating_sub(usage.cached_read).saturating_sub(usage.cache_write);
        let parts = [
            (plain, self.input),
            (usage.cached_read, self.cached_read.unwrap_or(self.input)),
            (usage.cache_write, self.cache_write.unwrap_or(self.input)),
            (usage.output, self.output),
        ];
        // In millionths of a dollar for a million tokens a price is a whole number, so the sum is exact.
        let pico =
            |(tokens, price): (u64, f64)| u128::from(tokens).saturating_mul((price.max(0.0) * 1e6).round() as u128);
        parts.into_iter().map(|part| Money::picodollars(pico(part))).sum()
    }
}

/// Prices, by `provider:model`.
///
/// ```
/// use rath::chunk::Identity;
/// use rath::provider::{Price, Prices};
///
/// let prices = Prices::list().set("house:qwen3", Price::new(0.1, 0.4));
/// let model = Identity { provider: "house".to_owned(), model: "qwen3".to_owned() };
/// assert_eq!(prices.get(&model), Some(&Price::new(0.1, 0.4)));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prices {
    by_model: BTreeMap<String, Price>,
}

impl Prices {
    /// Returns an empty list.
    pub fn none() -> Self {
        Prices::default()
    }

    /// Returns the list prices of well-known models.
    ///
    /// Prices change: check the ones you rely on, and [`set`](Prices::set) your own.
    pub fn list() -> Self {
        Prices::none().read(include_str!("prices.json")).expect("the list is checked by a test")
    }

    /// Returns the list prices, parsed once for all providers.
    pub(crate) fn shared_list() -> Arc<Self> {
        static LIST: LazyLock<Arc<Prices>> = LazyLock::new(|| Arc::new(Prices::list()));
        LIST.clone()
    }

    /// Sets the price of a model, and replaces an earlier one.
    pub fn set(mut self, model: impl Into<String>, price: Price) -> Self {
        self.by_model.insert(model.into(), price);
        self
    }

    /// Sets prices from a JSON object: `{"openai:gpt-5": {"input": 1.25, "output": 10, "cached_read": 0.125}}`.
    pub fn read(mut self, json: &str) -> Result<Self, ProviderError> {
        let format_error = |message: String| ProviderError::new(ProviderErrorKind::Format, message);
        let more: BTreeMap<String, Price> = serde_json::from_str(json).map_err(|error| {
            format_error("wanted prices by model".to_owned())
                .with_hint(r#"a price is dollars for a million tokens: {"openai:NAME": {"input": 1.25, "output": 10}}"#)
                .because(error)
        })?;
        let invalid = more.iter().find(|(_, price)| {
            let parts = [Some(price.input), Some(price.output), price.cached_read, price.cache_write];
            parts.into_iter().flatten().any(|part| !(0.0..=1e9).contains(&part))
        });
        if let Some((model, _)) = invalid {
            return Err(format_error(format!("the price of `{model}` is not an amount of money")));
        }
        if let Some(model) = more.keys().find(|model| !model.contains(':')) {
            return Err(format_error(format!("wanted prices by model, found `{model}`"))
                .with_hint(format!("a model is named with its provider: `openai:{model}`")));
        }
        self.by_model.extend(more);
        Ok(self)
    }

    /// Returns the price of a model. A dated version costs the same as the model: `gpt-5-2025-08-07` as `gpt-5`.
    pub fn get(&self, identity: &Identity) -> Option<&Price> {
        let name = identity.to_string();
        self.by_model.get(&name).or_else(|| self.by_model.get(strip_version(&name)?))
    }
}

/// Returns the name without the date or the `latest` at its end, if there is one.
pub(super) fn strip_version(name: &str) -> Option<&str> {
    let is_date = |text: &str| {
        text.bytes().zip("-2000-00-00".bytes()).all(|(found, form)| match form {
            b'0' => found.is_ascii_digit(),
            form => found == form,
        })
    };
    let split = |length: usize| name.split_at_checked(name.len().checked_sub(length)?);
    let long = split(11).filter(|(_, date)| is_date(date));
    let short = split(9).filter(|(_, date)| date.starts_with("-20") && date[1..].bytes().all(|b| b.is_ascii_digit()));
    name.strip_suffix("-latest").or(long.or(short).map(|(model, _)| model))
}

/// The cost of the model calls of a record in money, each counted once.
///
/// Returned by [`Session::cost`](crate::Session::cost).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cost {
    /// The head of the record.
    pub head: Option<StepId>,
    /// The sum of all calls whose cost is recorded, or whose model has a price.
    pub total: Money,
    /// The cost by the branch that made the call, in order of the first calls.
    pub by_branch: Vec<(BranchId, Money)>,
    /// The usage and the cost by model, in order of the first calls. The cost is `None` for a model without a price, unless the
    /// record states the cost of all its calls.
    pub by_model: Vec<(Option<Identity>, Usage, Option<Money>)>,
}

/// Returns the cost of the model calls up to the head of `record`.
pub(crate) fn cost(record: &Record, prices: &Prices) -> Cost {
    let mut cost = Cost { head: record.head().map(|head| head.id()), ..Cost::default() };
    for step in record.lineage().walk() {
        let recorded = step.chunk().recorded_cost();
        let Some(usage) = step.stamp().usage.or(recorded.map(|_| Usage::default())) else { continue };
        let identity = identity_of(step.chunk());
        let price = identity.and_then(|identity| prices.get(identity));
        let money = recorded.or_else(|| price.map(|price| price.cost(usage)));
        cost.total += money.unwrap_or_default();
        let branch = step.stamp().branch;
        match cost.by_branch.iter_mut().find(|(id, _)| *id == branch) {
            Some((_, sum)) => *sum += money.unwrap_or_default(),
            None => cost.by_branch.push((branch, money.unwrap_or_default())),
        }
        match cost.by_model.iter_mut().find(|(model, ..)| model.as_ref() == identity) {
            Some((_, used, sum)) => {
                *used += usage;
                *sum = sum.zip(money).map(|(sum, money)| sum + money);
            }
            None => cost.by_model.push((identity.cloned(), usage, money)),
        }
    }
    cost
}

/// Returns the model that gave the answer in a chunk, or that began one.
pub(crate) fn identity_of(chunk: &Chunk) -> Option<&Identity> {
    match chunk {
        Chunk::Assistant(answer) => answer.provider.as_ref(),
        Chunk::Retry(retry) => retry.provider.as_ref(),
        Chunk::Failed(failed) => failed.provider.as_ref(),
        Chunk::Interrupted(interrupted) => interrupted.provider.as_ref(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(provider: &str, model: &str) -> Identity {
        Identity { provider: provider.to_owned(), model: model.to_owned() }
    }

    #[test]
    fn the_list_can_be_read_and_overridden() {
        let prices = Prices::list();
        assert_eq!(prices.get(&identity("openai", "gpt-5")).map(|price| price.output), Some(10.0));
        let prices = prices.read(r#"{"openai:gpt-5": {"input": 1, "output": 2}}"#).expect("these are prices");
        assert_eq!(prices.get(&identity("openai", "gpt-5")), Some(&Price::new(1.0, 2.0)));
    }

    #[test]
    fn a_dated_version_costs_what_its_model_costs_and_another_model_does_not() {
        let prices = Prices::list();
        let price = |model| prices.get(&identity("openai", model)).map(|price| price.input);
        assert_eq!(price("gpt-5-2025-08-07"), Some(1.25));
        assert_eq!(price("gpt-4o-latest"), Some(2.5));
        assert_eq!(price("gpt-5-mini"), Some(0.25));
        assert_eq!(price("gpt-5-codex"), None);
        assert_eq!(price("gpt-5.2"), None);
        assert_eq!(price("gpt-5-2"), None);
        let anthropic = prices.get(&identity("anthropic", "claude-sonnet-4-20250514"));
        assert_eq!(anthropic.map(|price| price.output), Some(15.0));
    }

    #[test]
    fn every_kind_of_token_has_its_price_and_sums_are_exact() {
        let price = Price { cached_read: Some(0.1), cache_write: Some(1.25), ..Price::new(1.0, 5.0) };
        let usage = Usage { input: 1_000_000, output: 10, cached_read: 700_000, cache_write: 200_000, reasoning: 5 };
        assert_eq!(price.cost(usage), Money::dollars(0.42005));
        let many: Money = (0..1_000_000).map(|_| price.cost(Usage::new(1, 0))).sum();
        assert_eq!(many, Money::dollars(1.0));
    }

    #[test]
    fn bad_prices_are_refused() {
        for (json, expected) in [
            ("[]", "wanted prices by model: invalid type: sequence"),
            (r#"{"gpt-5": {"input": 1, "output": 1}}"#, "found `gpt-5`"),
            (r#"{"a": {"input": 1}}"#, "missing field `output`"),
            (r#"{"a:b": {"input": 1, "output": -1}}"#, "the price of `a:b` is not an amount of money"),
            (r#"{"a": {"input": 1, "output": 1, "inptu": 3}}"#, "unknown field `inptu`"),
        ] {
            let error = Prices::none().read(json).expect_err("these are no prices").message();
            assert!(error.contains(expected), "{error}");
        }
    }
}
