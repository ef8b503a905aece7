//! Searching the texts of recorded sessions, without an index.

use std::ops::Range;

use rath::StepId;
use rath::record::draw::one_line;
use rath::record::{BranchId, Step};
use regex::{Regex, RegexBuilder};

use crate::commands::show;
use crate::output::{self, Failure};

/// The words that a search looks for. All of them have to be in the text of one step.
#[derive(Debug)]
pub(crate) struct Query(Vec<Regex>);

/// A step that has the words of a query, with the text around the first of them.
#[derive(serde::Serialize)]
pub(crate) struct Hit {
    session: BranchId,
    step: StepId,
    at: Option<String>,
    kind: String,
    excerpt: String,
}

/// The most bytes of a query.
const MAX_QUERY_BYTES: usize = 500;
/// The most words of a query.
const MAX_WORDS: usize = 16;
/// The number of characters of a text that are shown before a match, and after it.
const EXCERPT_CHARS: usize = 80;

impl Query {
    /// Parses the words of a query. What is between double quotes is one word. Upper and lower case are the same.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let wrong = |what: String| Err(Failure::new(what, "name one or more words that one step has all of"));
        if text.len() > MAX_QUERY_BYTES {
            return wrong(format!("the query has more than {MAX_QUERY_BYTES} bytes"));
        }
        let quoted = text.split('"').enumerate();
        let words: Vec<&str> = quoted
            .flat_map(|(nth, part)| if nth % 2 == 1 { vec![part] } else { part.split_whitespace().collect() })
            .filter(|word| !word.trim().is_empty())
            .collect();
        match words.len() {
            0 => return wrong("the query has no words".to_owned()),
            1..=MAX_WORDS => {}
            _ => return wrong(format!("the query has more than {MAX_WORDS} words")),
        }
        let pattern = |word: &&str| RegexBuilder::new(&regex::escape(word)).case_insensitive(true).build();
        let patterns = words.iter().map(pattern).collect::<Result<_, _>>();
        patterns.map(Query).or_else(|_| wrong("the query is too long".to_owned()))
    }

    /// Returns the place of the first word, if the text has all words.
    fn find(&self, text: &str) -> Option<Range<usize>> {
        let (first, rest) = self.0.split_first()?;
        rest.iter().all(|word| word.is_match(text)).then(|| first.find(text)).flatten().map(|found| found.range())
    }

    /// Searches the text of a step, which is that of `rath show`.
    pub(crate) fn search(&self, session: BranchId, step: &Step) -> Option<Hit> {
        let text = show::body(step);
        self.find(&text)?;
        // A match within a secret is none: otherwise the hits would tell the secret.
        let text = output::hide_secrets(text);
        let found = self.find(&text)?;
        let (at, kind) = (step.stamp().at.map(output::time), one_line(step.chunk().kind()));
        Some(Hit { session, step: step.id(), at, kind, excerpt: excerpt(&text, found) })
    }
}

/// Returns the text around a match, on one line.
fn excerpt(text: &str, found: Range<usize>) -> String {
    let before = text[..found.start].char_indices().rev().take(EXCERPT_CHARS).last();
    let start = before.map_or(found.start, |(at, _)| at);
    let after = text[found.start..].char_indices().nth(EXCERPT_CHARS);
    let end = after.map_or(text.len(), |(at, _)| found.start + at).max(found.end);
    let words: Vec<_> = text[start..end].split_whitespace().collect();
    let (begin, rest) = (if start > 0 { "…" } else { "" }, if end < text.len() { "…" } else { "" });
    format!("{begin}{}{rest}", one_line(&words.join(" ")))
}

impl Hit {
    /// Prints the hit on two lines.
    pub(crate) fn print(&self, out: &mut dyn std::io::Write) -> std::io::Result<()> {
        let at = self.at.as_deref().unwrap_or_default();
        writeln!(out, "session {} step {}  {at}  {}", self.session.short(), output::short(&self.step), self.kind)?;
        writeln!(out, "  {}", self.excerpt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_words_have_to_be_there() {
        for (query, text, expected) in [
            ("seine", "The Seine.", Some("Seine")),
            ("RIVER paris", "paris has a river", Some("river")),
            ("river lyon", "paris has a river", None),
            (r#""a river" has"#, "paris has a river", Some("a river")),
            (r#""river a""#, "paris has a river", None),
            ("a.c", "abc", None),
            ("STRASSE", "straße", None),
            ("ÜBER", "darüber", Some("über")),
            ("河", "塞纳河", Some("河")),
        ] {
            let found = Query::parse(query).expect("a query").find(text);
            assert_eq!(found.map(|found| &text[found]), expected, "{query} in {text}");
        }
        let long = "a".repeat(501);
        let many = "a ".repeat(17);
        for query in ["", "  ", "\"\"", &long, &many] {
            Query::parse(query).expect_err("no query");
        }
    }

    #[test]
    fn an_excerpt_is_around_the_match() {
        let long = format!("{}\n x {}", "é".repeat(100), "ü".repeat(100));
        let at = long.find('x').expect("it is there");
        assert_eq!(excerpt(&long, at..at + 1), format!("…{} x {}…", "é".repeat(78), "ü".repeat(78)));
        assert_eq!(excerpt("a\u{1b}[31m b", 0..1), "a\\u{1b}[31m b");
    }
}
