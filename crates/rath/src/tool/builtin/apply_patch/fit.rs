//! Applying hunks to the text of a file.

use super::parse::{HunkLine, PatchHunk};
use crate::tool::builtin::similar::{MissingLines, cut_line};

/// The number of comparisons of lines that one file may cost.
const MAX_COMPARED_LINES: u64 = 1 << 26;
/// The number of lines that an error lists.
const MAX_LISTED_PLACES: usize = 10;

/// Applies hunks to a text, in order, or says which of them does not fit.
///
/// The lines of a hunk are looked for behind those of the hunk before: exactly, then without regard to white space at their ends. Lines
/// that a hunk does not change stay as they are, line endings included. New lines end like those that the hunk names, or else like most
/// of the file.
pub(super) fn apply_hunks(text: &str, hunks: &[PatchHunk]) -> Result<String, String> {
    let lines = FileLines::of(text);
    let mut finder = LineFinder { lines: &lines.texts, compared: 0 };
    let mut edited: Vec<(&str, &str)> = Vec::new();
    let mut done = 0;
    for (nth, hunk) in hunks.iter().enumerate() {
        let number = nth + 1;
        let place =
            finder.find(hunk, done).map_err(|problem| format!("hunk {number} of {}: {problem}", hunks.len()))?;
        edited.extend(lines.range(done..place));
        let length = hunk.old_lines().count();
        let ending = lines.ending_for(place..place + length);
        let mut at = place;
        for line in &hunk.lines {
            match line {
                HunkLine::Context(_) => {
                    edited.extend(lines.range(at..at + 1));
                    at += 1;
                }
                HunkLine::Removed(_) => at += 1,
                HunkLine::Added(text) => edited.push((text, ending)),
            }
        }
        done = at;
    }
    edited.extend(lines.range(done..lines.texts.len()));
    Ok(lines.join(&edited))
}

impl PatchHunk {
    /// Returns the lines that the file has before the change.
    fn old_lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| match line {
            HunkLine::Context(text) | HunkLine::Removed(text) => Some(text.as_str()),
            HunkLine::Added(_) => None,
        })
    }
}

/// The lines of a file, each with its ending.
struct FileLines<'a> {
    texts: Vec<&'a str>,
    endings: Vec<&'a str>,
    /// The ending of most lines.
    usual_ending: &'static str,
    /// True if the last line has no ending.
    lacks_last_ending: bool,
}

impl<'a> FileLines<'a> {
    fn of(text: &'a str) -> Self {
        let (mut texts, mut endings) = (Vec::new(), Vec::new());
        for line in text.split_inclusive('\n') {
            let bare = line.strip_suffix('\n').unwrap_or(line);
            let bare = if bare.len() < line.len() { bare.strip_suffix('\r').unwrap_or(bare) } else { bare };
            texts.push(bare);
            endings.push(&line[bare.len()..]);
        }
        let count = |wanted: &str| endings.iter().filter(|ending| **ending == wanted).count();
        let usual_ending = if count("\r\n") > count("\n") { "\r\n" } else { "\n" };
        FileLines { lacks_last_ending: endings.last() == Some(&""), texts, endings, usual_ending }
    }

    fn range(&self, range: std::ops::Range<usize>) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.texts[range.clone()].iter().copied().zip(self.endings[range].iter().copied())
    }

    /// Returns the ending of lines that take the place of these.
    fn ending_for(&self, range: std::ops::Range<usize>) -> &'static str {
        let endings = &self.endings[range];
        match endings.iter().any(|ending| !ending.is_empty()) {
            true if endings.contains(&"\r\n") => "\r\n",
            true => "\n",
            false => self.usual_ending,
        }
    }

    /// Joins lines to a text that ends as the file does: with a line ending or without.
    fn join(&self, lines: &[(&str, &str)]) -> String {
        let mut text = String::with_capacity(lines.iter().map(|(line, _)| line.len() + 2).sum());
        for (nth, (line, ending)) in lines.iter().enumerate() {
            text.push_str(line);
            let is_last = nth + 1 == lines.len();
            match (is_last && self.lacks_last_ending, ending.is_empty()) {
                (true, _) => {}
                (false, true) => text.push_str(self.usual_ending),
                (false, false) => text.push_str(ending),
            }
        }
        text
    }
}

/// Finds the places of hunks.
struct LineFinder<'a> {
    lines: &'a [&'a str],
    compared: u64,
}

/// The differences between lines that are ignored.
#[derive(Clone, Copy, PartialEq)]
enum Leniency {
    Exact,
    /// White space at the end.
    End,
    /// White space at the beginning and at the end. For headers, which only say where a place is.
    BothEnds,
}

impl Leniency {
    fn normalize(self, line: &str) -> &str {
        match self {
            Leniency::Exact => line,
            Leniency::End => line.trim_end(),
            Leniency::BothEnds => line.trim(),
        }
    }
}

impl LineFinder<'_> {
    /// Returns the position of a hunk, not before `done`, or the reason why it fits nowhere.
    fn find(&mut self, hunk: &PatchHunk, done: usize) -> Result<usize, String> {
        let mut from = done;
        for header in &hunk.headers {
            from = self.find_header(header, from)?;
        }
        let old: Vec<_> = hunk.old_lines().collect();
        if old.is_empty() {
            // New lines only: behind the header, or at the end of the file.
            return Ok(if hunk.headers.is_empty() || hunk.is_at_end { self.lines.len() } else { from });
        }
        let last = self.lines.len().checked_sub(old.len());
        for leniency in [Leniency::Exact, Leniency::End] {
            let from = if hunk.is_at_end { last.map_or(from, |last| last.max(from)) } else { from };
            if let Some(at) = self.position(&old, from, leniency)? {
                return Ok(at);
            }
        }
        Err(self.explain(hunk, &old, (from, done)))
    }

    /// Returns the position behind a header. One that an earlier hunk is below already is not looked for again.
    fn find_header(&mut self, header: &str, from: usize) -> Result<usize, String> {
        for leniency in [Leniency::Exact, Leniency::End, Leniency::BothEnds] {
            if let Some(at) = self.position(&[header], from, leniency)? {
                return Ok(at + 1);
            }
        }
        for leniency in [Leniency::Exact, Leniency::BothEnds] {
            if self.position(&[header], 0, leniency)?.is_some() {
                return Ok(from);
            }
        }
        let nearest = MissingLines { wanted: &[header], argument: "the patch" }.describe_nearest(self.lines);
        Err(format!("the line behind `@@` is not in the file: `{}`{nearest}", cut_line(header)))
    }

    /// Returns the first position from which on these lines stand in the file.
    fn position(&mut self, wanted: &[&str], from: usize, leniency: Leniency) -> Result<Option<usize>, String> {
        let wanted: Vec<_> = wanted.iter().map(|line| leniency.normalize(line)).collect();
        let Some(last) = self.lines.len().checked_sub(wanted.len()) else { return Ok(None) };
        for at in from..=last {
            let pairs = || self.lines[at..].iter().zip(&wanted);
            let same = pairs().take_while(|(line, wanted)| leniency.normalize(line) == **wanted).count();
            if same == wanted.len() {
                return Ok(Some(at));
            }
            // The lines that were compared, long ones for more than one.
            let bytes: usize = pairs().take(same + 1).map(|(line, wanted)| line.len().min(wanted.len())).sum();
            self.compared += (same + 1 + bytes / 64) as u64;
            if self.compared > MAX_COMPARED_LINES {
                return Err(
                    "its lines occur too often to be looked for; give fewer hunks, or write the file".to_owned()
                );
            }
        }
        Ok(None)
    }

    /// Says why a hunk does not fit: its lines stand elsewhere, or they are not there.
    fn explain(&mut self, hunk: &PatchHunk, old: &[&str], (from, done): (usize, usize)) -> String {
        let mut places = Vec::new();
        let mut start = 0;
        while let Ok(Some(at)) = self.position(old, start, Leniency::End) {
            places.push((at + 1).to_string());
            start = at + 1;
            if places.len() == MAX_LISTED_PLACES {
                break;
            }
        }
        if !places.is_empty() {
            let lines = format!("line{} {}", if places.len() == 1 { "" } else { "s" }, places.join(", "));
            return match (hunk.is_at_end, from > done) {
                (true, _) => {
                    format!("its lines begin in {lines}, and not at the end of the file; leave out `*** End of File`")
                }
                (false, true) => format!(
                    "its lines begin in {lines}, and not below the line behind `@@`; change that line or leave it out"
                ),
                (false, false) => {
                    format!(
                        "its lines begin in {lines}, above the hunk before; give the hunks in the order of the file"
                    )
                }
            };
        }
        let nearest = MissingLines { wanted: old, argument: "the patch" }.describe_nearest(self.lines);
        let advice = "read the file again, and give the lines as they are there";
        match nearest.is_empty() {
            true => format!("its lines are not in the file; the first is `{}`; {advice}", cut_line(old[0])),
            false => format!("its lines are not in the file{nearest}\n{advice}"),
        }
    }
}
