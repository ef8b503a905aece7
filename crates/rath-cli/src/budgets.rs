//! The limits of a run, as they are typed or configured: `50000tokens`, `2usd`, `20turns`, `10min`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rath::prelude::*;
use rath::provider::Money;

/// The fewest tokens that are proposed when a limit was too low: a first request with tools takes thousands.
const MIN_RAISED_TOKENS: u64 = 20_000;

/// One limit of a run, and the text that it was read from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BudgetLimit {
    amount: Amount,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Amount {
    Tokens(u64),
    Money(Money),
    Turns(u64),
    Time(Duration),
}

impl BudgetLimit {
    /// Returns the name of the kind of limit in a configuration.
    pub(crate) fn name(&self) -> &'static str {
        match self.amount {
            Amount::Tokens(_) => "tokens",
            Amount::Money(_) => "money",
            Amount::Turns(_) => "turns",
            Amount::Time(_) => "time",
        }
    }

    /// Returns true if both limit the same.
    pub(crate) fn is_same_kind(&self, other: &BudgetLimit) -> bool {
        self.name() == other.name()
    }

    /// Returns true if this limit allows no more than another of its kind.
    pub(crate) fn is_at_most(&self, other: &BudgetLimit) -> bool {
        match (self.amount, other.amount) {
            (Amount::Tokens(this), Amount::Tokens(other)) | (Amount::Turns(this), Amount::Turns(other)) => {
                this <= other
            }
            (Amount::Money(this), Amount::Money(other)) => this <= other,
            (Amount::Time(this), Amount::Time(other)) => this <= other,
            _ => false,
        }
    }

    /// Returns a limit that allows twice as much, and enough for a short request.
    pub(crate) fn doubled(&self) -> Self {
        if let Amount::Tokens(max) = self.amount {
            let text = format!("{}tokens", max.saturating_mul(2).max(MIN_RAISED_TOKENS));
            return text.parse().unwrap_or_else(|_| self.clone());
        }
        let unit = self.text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '_');
        let number = self.text[..self.text.len() - unit.len()].replace('_', "");
        let doubled = match (number.parse::<u64>(), number.parse::<f64>()) {
            (Ok(number), _) => number.saturating_mul(2).to_string(),
            (Err(_), Ok(number)) => (number * 2.0).to_string(),
            (Err(_), Err(_)) => number,
        };
        format!("{doubled}{unit}").parse().unwrap_or_else(|_| self.clone())
    }

    /// Adds the limit to a budget.
    pub(crate) fn limit(&self, budget: Budget) -> Budget {
        match self.amount {
            Amount::Tokens(max) => budget.tokens(max),
            Amount::Money(max) => budget.money(max),
            Amount::Turns(max) => budget.turns(max),
            Amount::Time(max) => budget.time(max),
        }
    }
}

impl fmt::Display for BudgetLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for BudgetLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("wanted a number and tokens, usd, turns, s, min or h, such as `2usd`, found `{text}`");
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').ok_or_else(wrong)?;
        let (number, unit) = (text[..digits].replace('_', ""), text[digits..].trim());
        let whole = || number.parse::<u64>().ok().filter(|number| *number > 0).ok_or_else(wrong);
        let seconds = |factor: u64| -> Result<Amount, String> {
            let seconds = whole()?.checked_mul(factor).ok_or_else(wrong)?;
            Ok(Amount::Time(Duration::from_secs(seconds)))
        };
        let amount = match unit {
            "tokens" | "token" => Amount::Tokens(whole()?),
            "turns" | "turn" => Amount::Turns(whole()?),
            "usd" => match number.parse::<f64>() {
                Ok(amount) if amount.is_finite() && amount > 0.0 => Amount::Money(Money::dollars(amount)),
                _ => return Err(wrong()),
            },
            "s" => seconds(1)?,
            "min" => seconds(60)?,
            "h" => seconds(60 * 60)?,
            _ => return Err(wrong()),
        };
        Ok(BudgetLimit { amount, text: text.to_owned() })
    }
}
