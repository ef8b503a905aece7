//! Timestamps as ISO 8601 text, which both formats use.

use rath_record::Timestamp;

const DAY_MICROS: i64 = 86_400_000_000;

/// Formats a timestamp as `2026-01-31T12:00:00.000000+00:00`; none outside the years 1 to 9999, the range of Python's dates.
pub(super) fn format(at: Timestamp) -> Option<String> {
    let (year, month, day) = date(at.0.div_euclid(DAY_MICROS));
    let (seconds, micros) = (at.0.rem_euclid(DAY_MICROS) / 1_000_000, at.0.rem_euclid(1_000_000));
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    (1..=9999)
        .contains(&year)
        .then(|| format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}+00:00"))
}

/// Parses a date or a date with a time, as ISO 8601 and RFC 3339 have them. A text without an offset is taken as UTC.
///
/// ```
/// use rath::interchange::parse_time;
///
/// let noon = parse_time("2026-01-31T12:00:00Z");
/// assert_eq!(parse_time("2026-01-31 13:00+01:00"), noon);
/// assert_eq!(parse_time("2026-02-30"), None);
/// ```
pub fn parse(text: &str) -> Option<Timestamp> {
    let (day, rest) = text.trim().split_at_checked(10)?;
    let mut parts = day.split('-').map(number);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let micros = match rest.strip_prefix(['T', ' ']) {
        Some(time) => time_of_day(time)?,
        None if rest.is_empty() => 0,
        None => return None,
    };
    let days = days_since_epoch(year, month, day);
    // February 30 would otherwise be read as a day in March.
    (date(days) == (year, month, day)).then_some(Timestamp(days * DAY_MICROS + micros))
}

/// Parses a time with an optional offset. Returns the microseconds since midnight in UTC.
fn time_of_day(text: &str) -> Option<i64> {
    let (clock, offset) = match text.find(['Z', 'z', '+', '-']) {
        Some(at) => (&text[..at], offset(&text[at..])?),
        None => (text, 0),
    };
    let (clock, fraction) = clock.split_once(['.', ',']).unwrap_or((clock, "0"));
    let mut parts = clock.split(':').map(number);
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    // 60 is a leap second and read as the first second of the next minute.
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 60 || fraction.len() > 18 {
        return None;
    }
    let micros = number(&format!("{fraction:0<6}")[..6])?;
    number(fraction)?;
    Some(((hour * 60 + minute) * 60 + second - offset) * 1_000_000 + micros)
}

/// Parses an offset. Returns the seconds east of UTC.
fn offset(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, rest) = text.split_at_checked(1)?;
    let digits = rest.replace(':', "");
    let (hours, minutes) = digits.split_at_checked(2)?;
    let minutes = if minutes.is_empty() { 0 } else { number(minutes).filter(|_| minutes.len() == 2)? };
    let seconds = number(hours)? * 3600 + minutes * 60;
    (seconds < 86_400).then_some(if sign == "-" { -seconds } else { seconds })
}

/// Parses a number that consists of digits only.
fn number(text: &str) -> Option<i64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Returns the days from 1970-01-01 to a date.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    // Years are counted from March, so that a leap day is the last day of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468
}

/// Returns the year, month and day that lie `days` after 1970-01-01.
fn date(days: i64) -> (i64, i64, i64) {
    // The average year has 365.2425 days: the estimate is off by at most one year.
    let mut year = (days + 719_468).div_euclid(146_097) * 400 + (days + 719_468).rem_euclid(146_097) * 400 / 146_097;
    let first_day = |year| days_since_epoch(year, 3, 1);
    while first_day(year) > days {
        year -= 1;
    }
    while first_day(year + 1) <= days {
        year += 1;
    }
    let day_of_year = days - first_day(year);
    let month = (day_of_year * 5 + 2) / 153;
    let day = day_of_year - (month * 153 + 2) / 5 + 1;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_is_read_back_as_it_was_written() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000+00:00"),
            (-1, "1969-12-31T23:59:59.999999+00:00"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000+00:00"),
            (4_107_542_399_000_001, "2100-02-28T23:59:59.000001+00:00"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000000+00:00"),
            (1_767_225_600_000_000, "2026-01-01T00:00:00.000000+00:00"),
            (253_402_300_799_999_999, "9999-12-31T23:59:59.999999+00:00"),
        ] {
            assert_eq!(format(Timestamp(micros)).as_deref(), Some(text));
            assert_eq!(parse(text), Some(Timestamp(micros)), "{text}");
        }
        for day in -800_000..3_000_000 {
            let (year, month, day_of_month) = date(day);
            assert_eq!(days_since_epoch(year, month, day_of_month), day);
        }
        assert_eq!([format(Timestamp(i64::MAX)), format(Timestamp(i64::MIN))], [None, None]);
    }

    #[test]
    fn other_forms_of_a_timestamp_are_read() {
        for text in [
            "2026-01-01T00:00:00Z",
            "2026-01-01",
            "2026-01-01 00:00",
            "2026-01-01T02:00:00+02:00",
            "2025-12-31T19:30:00.000-0430",
            "2025-12-31T23:00:00-01",
        ] {
            assert_eq!(parse(text), Some(Timestamp(1_767_225_600_000_000)), "{text}");
        }
        for text in [
            "",
            "now",
            "2026-02-30",
            "2026-13-01T00:00:00Z",
            "2026-01-01T25:00",
            "2026-01-01T00:00:00+",
            "é".repeat(9).as_str(),
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
