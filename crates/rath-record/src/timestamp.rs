//! Moments as text.

use crate::Timestamp;

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

impl Timestamp {
    /// Returns the moment as RFC 3339 has it, in UTC: `2026-01-31T12:00:00.5Z`.
    ///
    /// None outside the years 0 to 9999, which are those that RFC 3339 has.
    ///
    /// ```
    /// # use rath_record::Timestamp;
    /// assert_eq!(Timestamp(951_782_400_500_000).to_rfc3339().as_deref(), Some("2000-02-29T00:00:00.5Z"));
    /// ```
    pub fn to_rfc3339(self) -> Option<String> {
        let (seconds, micros) = (self.0.div_euclid(MICROS_PER_SECOND), self.0.rem_euclid(MICROS_PER_SECOND));
        let (year, month, day) = date(seconds.div_euclid(SECONDS_PER_DAY));
        if !(0..=9999).contains(&year) {
            return None;
        }
        let time = seconds.rem_euclid(SECONDS_PER_DAY);
        let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
        let fraction = format!(".{micros:06}");
        let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
        Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z"))
    }
}

/// Returns the year, month and day that lie so many days after 1970-01-01.
fn date(days: i64) -> (i64, i64, i64) {
    // Eras of 400 years, which begin in March, so that the day that leap years add is the last one.
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let year = year + era * 400;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_in_utc() {
        for (micros, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00Z"),
            (951_868_800_000_000, "2000-03-01T00:00:00Z"),
            (4_107_542_399_000_010, "2100-02-28T23:59:59.00001Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00Z"),
            (-62_167_219_200_000_000, "0000-01-01T00:00:00Z"),
            (253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(Timestamp(micros).to_rfc3339().as_deref(), Some(expected));
        }
        for micros in [-62_167_219_200_000_001, 253_402_300_800_000_000, i64::MIN, i64::MAX] {
            assert_eq!(Timestamp(micros).to_rfc3339(), None);
        }
    }

    #[test]
    fn each_day_follows_the_one_before() {
        let mut before = date(-800_000);
        for days in -799_999..3_000_000 {
            let (year, month, day) = date(days);
            let next = (before.0, before.1, before.2 + 1);
            let first = if before.1 == 12 { (before.0 + 1, 1, 1) } else { (before.0, before.1 + 1, 1) };
            assert!([next, first].contains(&(year, month, day)) && day <= 31, "{before:?}");
            before = (year, month, day);
        }
    }
}
