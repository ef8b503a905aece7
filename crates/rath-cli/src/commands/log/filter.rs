//! The parts of a session that a log shows.

use std::str::FromStr;

use rath::chunk::{Change, Chunk, Effect};
use rath::record::draw::{count, one_line};
use rath::record::lineage::Lineage;
use rath::record::{Step, Timestamp};
use rath::{CallId, view};

use crate::output;
use crate::retention::Age;

/// The shape of a moment; `#` stands for a digit.
const SHAPE: &str = "####-##-##T##:##:##";

/// A moment, as a duration before now or as a time in UTC.
#[derive(Clone)]
pub(crate) struct Since {
    /// The moment in the form of RFC 3339, as far as it was given: such texts sort as the moments do.
    from: String,
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(age) = text.parse::<Age>() {
            let micros = i64::try_from(age.duration().as_micros()).unwrap_or(i64::MAX);
            let from = Timestamp(output::now().0.saturating_sub(micros)).to_rfc3339();
            // To the second: `2026-11-19T14:00:00`.
            return Ok(Since { from: from.unwrap_or_default().chars().take(SHAPE.len()).collect() });
        }
        let from = text.trim_end_matches('Z').replacen(' ', "T", 1);
        match is_time(&from) {
            true => Ok(Since { from }),
            false => {
                Err("wanted a duration such as `2h` or `3d`, or a time such as `2026-11-19` or `2026-11-19T14:00`"
                    .into())
            }
        }
    }
}

/// Returns true for a date, or a date with a time to the minute or the second.
fn is_time(text: &str) -> bool {
    let has_shape = text.bytes().zip(SHAPE.bytes()).all(|(byte, shape)| match shape {
        b'#' => byte.is_ascii_digit(),
        shape => byte == shape,
    });
    let number = |start: usize| text.get(start..start + 2).and_then(|digits| digits.parse::<u32>().ok());
    let is_within = |start: usize, numbers: std::ops::RangeInclusive<u32>| {
        number(start).is_none_or(|number| numbers.contains(&number))
    };
    has_shape
        && [10, 16, 19].contains(&text.len())
        && is_within(5, 1..=12)
        && is_within(8, 1..=31)
        && is_within(11, 0..=23)
        && is_within(14, 0..=59)
        && is_within(17, 0..=59)
}

/// The conditions that the lines of a log meet.
pub(super) struct Filter<'a> {
    tool: Option<&'a str>,
    file: Option<&'a str>,
    since: Option<&'a Since>,
}

impl<'a> Filter<'a> {
    /// Returns the filter; none if there is no condition.
    pub(super) fn new(tool: Option<&'a str>, file: Option<&'a str>, since: Option<&'a Since>) -> Option<Self> {
        let is_empty = tool.is_none() && file.is_none() && since.is_none();
        (!is_empty).then_some(Filter { tool, file, since })
    }

    /// Returns true if some steps, together, meet all conditions.
    pub(super) fn fits(&self, steps: &[&Step]) -> bool {
        let is_recent = |since: &Since| {
            let newest = steps.iter().filter_map(|step| step.stamp().at).max().and_then(Timestamp::to_rfc3339);
            newest.is_some_and(|newest| newest >= since.from)
        };
        self.since.is_none_or(is_recent)
            && self.tool.is_none_or(|tool| steps.iter().any(|step| is_about_tool(step, tool)))
            && self.file.is_none_or(|file| steps.iter().any(|step| changes_file(step, file)))
    }

    /// Returns the steps that meet the conditions, oldest first.
    pub(super) fn steps<'s>(&self, lineage: &'s Lineage) -> Vec<&'s Step> {
        lineage.walk().into_iter().filter(|step| self.fits(&[*step])).collect()
    }

    /// Describes the conditions, and how many of all lines meet them.
    pub(super) fn describe(&self, fitting: usize, all: usize, thing: &str) -> String {
        let tool = self.tool.map(|tool| format!("calls of {}", one_line(tool)));
        let file = self.file.map(|file| format!("changes of {}", one_line(file)));
        let since = self.since.map(|since| format!("since {} UTC", since.from.replacen('T', " ", 1)));
        let conditions: Vec<_> = [tool, file, since].into_iter().flatten().collect();
        format!("showing {fitting} of {}: {}", count(all as u64, thing), conditions.join(", "))
    }
}

/// Returns true if a step asks for a call of a tool, or is about such a call.
fn is_about_tool(step: &Step, tool: &str) -> bool {
    match (step.chunk(), step.chunk().call()) {
        (Chunk::Assistant(answer), _) => answer.calls.iter().any(|call| &*call.tool == tool),
        (_, Some(call)) => tool_of(step, call).is_some_and(|found| found == tool),
        _ => false,
    }
}

/// Returns the tool of a call that was asked for before a step. Ids of calls are unique only within a turn.
fn tool_of<'a>(step: &'a Step, call: &CallId) -> Option<&'a str> {
    let before = |step: &'a Step| step.parents().first().and_then(|parent| parent.step());
    std::iter::successors(before(step), |step| before(step)).find_map(|step| match step.chunk() {
        Chunk::Assistant(answer) => answer.calls.iter().find(|asked| asked.id == *call).map(|asked| &*asked.tool),
        _ => None,
    })
}

/// Returns true if a step records the change of a file, or of a file in a directory.
fn changes_file(step: &Step, file: &str) -> bool {
    let is_of_file = |effect: &Effect| match &effect.change {
        Change::Renamed { from } => view::covers(file, from) || view::covers(file, &effect.path),
        _ => view::covers(file, &effect.path),
    };
    step.chunk().effects().iter().any(is_of_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date_or_a_minute_or_a_second() {
        for (text, from) in [
            ("2026-11-19", Some("2026-11-19")),
            ("2026-11-19T14:00", Some("2026-11-19T14:00")),
            ("2026-11-19 14:00", Some("2026-11-19T14:00")),
            ("2026-11-19T14:00:59Z", Some("2026-11-19T14:00:59")),
            ("2026-13-19", None),
            ("2026-11-32", None),
            ("2026-11-19T24:00", None),
            ("2026-11", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<Since>().ok().map(|since| since.from).as_deref(), from, "{text}");
        }
        let since = "2h".parse::<Since>().expect("a duration").from;
        assert!(is_time(&since), "{since}");
    }
}
