//! Amounts of money.

use std::fmt;
use std::ops::{Add, AddAssign};

/// An amount of money, in US dollars, exact to a millionth of a millionth.
///
/// ```
/// use rath_record::Money;
///
/// assert_eq!(Money::dollars(12.5).to_string(), "$12.50");
/// assert_eq!((Money::dollars(0.04) + Money::dollars(0.002)).to_string(), "$0.042");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Money {
    pico: u128,
}

impl Money {
    /// Creates an amount in dollars. Negative numbers and NaN count as 0.
    pub fn dollars(amount: f64) -> Self {
        // The limit is far above any real amount, and keeps the conversion exact.
        Money { pico: (amount.clamp(0.0, 1e18) * 1e12).round() as u128 }
    }

    /// Creates an amount in millionths of a millionth of a dollar.
    pub fn picodollars(amount: u128) -> Self {
        Money { pico: amount }
    }

    /// Returns the amount in dollars.
    pub fn as_dollars(self) -> f64 {
        self.pico as f64 / 1e12
    }

    /// Returns the amount in millionths of a millionth of a dollar.
    pub fn as_picodollars(self) -> u128 {
        self.pico
    }

    /// Returns the difference; nothing if `other` is more.
    pub fn saturating_sub(self, other: Money) -> Self {
        Money { pico: self.pico.saturating_sub(other.pico) }
    }
}

impl Add for Money {
    type Output = Money;

    fn add(self, other: Money) -> Money {
        Money { pico: self.pico.saturating_add(other.pico) }
    }
}

impl AddAssign for Money {
    fn add_assign(&mut self, other: Money) {
        *self = *self + other;
    }
}

impl std::iter::Sum for Money {
    fn sum<I: Iterator<Item = Money>>(amounts: I) -> Money {
        amounts.fold(Money::default(), Add::add)
    }
}

/// Prints `$12.50`, and amounts below a dollar with three significant digits: `$0.042`, `$0.000125`.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dollars = self.as_dollars();
        if self.pico == 0 || dollars >= 1.0 {
            return write!(f, "${dollars:.2}");
        }
        let decimals = 3 + (-dollars.log10()).floor().max(0.0) as usize;
        let shown = format!("{dollars:.decimals$}");
        let (cents, rest) = shown.split_at(shown.len().min(4));
        write!(f, "${cents}{}", rest.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_shown_with_the_digits_that_matter() {
        let amounts = [0.0, 1e-7, 0.000125, 0.001, 0.009_999_9, 0.01, 0.042, 0.6, 0.999_99, 1.0, 12.5, f64::NAN, -1.0];
        let shown: Vec<_> = amounts.iter().map(|amount| Money::dollars(*amount).to_string()).collect();
        let expected = "$0.00 $0.0000001 $0.000125 $0.001 $0.01 $0.01 $0.042 $0.60 $1.00 $1.00 $12.50 $0.00 $0.00";
        assert_eq!(shown.join(" "), expected);
    }
}
