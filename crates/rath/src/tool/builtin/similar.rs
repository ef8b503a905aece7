//! Finding the lines of a file that are most similar to lines that it does not contain.

/// The number of lines that are shown.
const MAX_SHOWN_LINES: usize = 20;
/// The number of bytes of a line that are shown.
const MAX_LINE_BYTES: usize = 200;
/// The number of bytes that are compared.
const MAX_COMPARED_BYTES: usize = 1 << 26;
/// The similarity from which on the nearest lines are shown, out of 100.
const MIN_SIMILARITY: usize = 50;

/// Lines that are not in a file, as a call gave them.
pub(super) struct MissingLines<'a> {
    pub(super) wanted: &'a [&'a str],
    /// The name of the argument that has them, for the model.
    pub(super) argument: &'a str,
}

impl MissingLines<'_> {
    /// Shows the most similar lines of a file and says what differs, after a semicolon; empty if none is similar.
    pub(super) fn describe_nearest(&self, lines: &[&str]) -> String {
        let wanted = self.wanted;
        // Each line may be compared with each of those that are wanted, and costs the length of both.
        let bytes = |lines: &[&str]| lines.iter().map(|line| line.len() + 1).sum::<usize>();
        let compared =
            bytes(lines).saturating_mul(wanted.len()).saturating_add(lines.len().saturating_mul(bytes(wanted)));
        if compared > MAX_COMPARED_BYTES {
            return String::new();
        }
        if let Some(at) = position_but_whitespace(lines, wanted) {
            let which = name_lines(at, wanted.len());
            let differs = self.whitespace_difference(lines, at);
            let shown = quote_lines(lines, at, wanted.len());
            return format!("; {which} the same but for white space: {differs}:\n{shown}");
        }
        let bare: Vec<_> = wanted.iter().map(|line| without_number(line)).collect();
        if bare.iter().zip(wanted).all(|(bare, line)| bare != line || line.trim().is_empty())
            && let Some(at) = position_but_whitespace(lines, &bare)
        {
            let which = name_lines(at, wanted.len());
            return format!("; {which} the same without the line numbers: leave the numbers out");
        }
        let score =
            |at: usize| lines[at..].iter().zip(wanted).map(|(line, wanted)| similarity(line, wanted)).sum::<usize>();
        // The first of those with the highest score.
        let best = windows(lines, wanted).map(|at| (score(at), std::cmp::Reverse(at))).max();
        match best {
            Some((score, std::cmp::Reverse(at))) if score >= MIN_SIMILARITY * wanted.len() => {
                let which = name_lines(at, wanted.len());
                let shown = quote_lines(lines, at, wanted.len());
                let first =
                    lines[at..].iter().zip(wanted).position(|(line, wanted)| line != wanted).unwrap_or_default();
                let differs = match wanted.len() {
                    1 => String::new(),
                    _ => format!(
                        ", and the first that differs is line {}: `{}` in {}",
                        at + first + 1,
                        cut_line(wanted[first]),
                        self.argument
                    ),
                };
                format!("; {which} nearest{differs}:\n{shown}")
            }
            _ => String::new(),
        }
    }

    /// Says which white space differs in the first line that is not the same.
    fn whitespace_difference(&self, lines: &[&str], at: usize) -> String {
        let mut pairs = lines[at..].iter().zip(self.wanted).enumerate();
        let Some((nth, (line, wanted))) = pairs.find(|(_, (line, wanted))| line != wanted) else {
            return "line breaks at the ends".to_owned();
        };
        let (number, argument) = (at + nth + 1, self.argument);
        let start = |line: &str| line[..line.len() - line.trim_start().len()].to_owned();
        let end = |line: &str| line[line.trim_end().len()..].to_owned();
        if start(line) != start(wanted) {
            let (is, was) = (name_whitespace(&start(line)), name_whitespace(&start(wanted)));
            return format!("line {number} begins with {is}, and with {was} in {argument}");
        }
        if end(line) != end(wanted) {
            let (is, was) = (name_whitespace(&end(line)), name_whitespace(&end(wanted)));
            return format!("line {number} ends with {is}, and with {was} in {argument}");
        }
        format!("line {number} is `{}` in {argument}", cut_line(wanted))
    }
}

/// Returns the first position at which all lines are the same but for white space.
fn position_but_whitespace(lines: &[&str], wanted: &[&str]) -> Option<usize> {
    let is_same = |(line, wanted): (&&str, &&str)| is_same_but_whitespace(line, wanted);
    windows(lines, wanted).find(|at| lines[*at..].iter().zip(wanted).all(is_same))
}

/// Returns the positions at which as many lines as wanted can begin.
fn windows(lines: &[&str], wanted: &[&str]) -> std::ops::Range<usize> {
    match wanted.len() {
        0 => 0..0,
        count => 0..(lines.len() + 1).saturating_sub(count),
    }
}

fn is_same_but_whitespace(one: &str, other: &str) -> bool {
    let solid = |line: &'_ str| line.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    one == other || solid(one) == solid(other)
}

/// Returns a line without the number that a listing puts in front: `12: text`, `12|text`, or the number and a tab or an arrow.
fn without_number(line: &str) -> &str {
    let text = line.trim_start();
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    match rest.len() < text.len() {
        true => rest.strip_prefix(": ").or_else(|| rest.strip_prefix(['\t', '→', '|', ':'])).unwrap_or(line),
        false => line,
    }
}

/// Names white space at an end of a line: `4 spaces`, `1 tab and 2 spaces`.
fn name_whitespace(text: &str) -> String {
    let count = |wanted: char, noun: &str| match text.chars().filter(|c| *c == wanted).count() {
        0 => None,
        number => Some(super::count(number, noun)),
    };
    match (count('\t', "tab"), count(' ', "space")) {
        (Some(tabs), Some(spaces)) => format!("{tabs} and {spaces}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) if text.is_empty() => "no white space".to_owned(),
        (None, None) => "other white space".to_owned(),
    }
}

/// Returns the similarity of two lines, out of 100: the share of them that is equal from the beginning and from the end.
fn similarity(one: &str, other: &str) -> usize {
    let (one, other) = (one.trim().as_bytes(), other.trim().as_bytes());
    let (shorter, longer) = (one.len().min(other.len()), one.len().max(other.len()));
    if longer == 0 {
        return 100;
    }
    let prefix = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let suffix = one.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    (prefix + suffix).min(shorter) * 100 / longer
}

fn name_lines(at: usize, count: usize) -> String {
    match count {
        1 => format!("line {} is", at + 1),
        count => format!("lines {} to {} are", at + 1, at + count),
    }
}

/// Returns the beginning of a line.
pub(super) fn cut_line(line: &str) -> String {
    match line.len() > MAX_LINE_BYTES {
        true => format!("{}…", &line[..line.floor_char_boundary(MAX_LINE_BYTES)]),
        false => line.to_owned(),
    }
}

fn quote_lines(lines: &[&str], at: usize, count: usize) -> String {
    let mut shown: Vec<_> = lines[at..at + count].iter().take(MAX_SHOWN_LINES).map(|line| cut_line(line)).collect();
    if count > MAX_SHOWN_LINES {
        shown.push("…".to_owned());
    }
    shown.join("\n")
}
