//! Finding the lines of a file that are most similar to a text that it does not contain.

/// The number of lines that are shown.
const MAX_SHOWN_LINES: usize = 20;
/// The number of bytes of a line that are shown.
const MAX_LINE_BYTES: usize = 200;
/// The number of bytes that are compared.
const MAX_COMPARED_BYTES: usize = 1 << 26;
/// The similarity from which on the nearest lines are shown, out of 100.
const MIN_SIMILARITY: usize = 50;

/// Says that a text is not in a file, and shows the most similar lines.
pub(super) fn describe_missing(text: &str, old: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let wanted: Vec<_> = old.trim_matches('\n').lines().collect();
    let mut message = "`old` is not there".to_owned();
    // Each line may be compared with each of those that are wanted, and costs the length of both.
    let compared = text.len().saturating_mul(wanted.len()).saturating_add(lines.len().saturating_mul(old.len()));
    if compared > MAX_COMPARED_BYTES {
        return message;
    }
    let same_text = windows(&lines, &wanted)
        .find(|at| lines[*at..].iter().zip(&wanted).all(|(line, wanted)| is_same_but_whitespace(line, wanted)));
    if let Some(at) = same_text {
        message.push_str(&format!(
            "; {} the same but for white space:\n{}",
            name_lines(at, wanted.len()),
            quote_lines(&lines, at, wanted.len())
        ));
        return message;
    }
    let score =
        |at: usize| lines[at..].iter().zip(&wanted).map(|(line, wanted)| similarity(line, wanted)).sum::<usize>();
    // The first of those with the highest score.
    let best = windows(&lines, &wanted).map(|at| (score(at), std::cmp::Reverse(at))).max();
    if let Some((score, std::cmp::Reverse(at))) = best
        && score >= MIN_SIMILARITY * wanted.len()
    {
        message.push_str(&format!(
            "; {} nearest:\n{}",
            name_lines(at, wanted.len()),
            quote_lines(&lines, at, wanted.len())
        ));
    }
    message
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

fn quote_lines(lines: &[&str], at: usize, count: usize) -> String {
    let cut = |line: &&str| match line.len() > MAX_LINE_BYTES {
        true => format!("{}…", &line[..line.floor_char_boundary(MAX_LINE_BYTES)]),
        false => (*line).to_owned(),
    };
    let mut shown: Vec<_> = lines[at..at + count].iter().take(MAX_SHOWN_LINES).map(cut).collect();
    if count > MAX_SHOWN_LINES {
        shown.push("…".to_owned());
    }
    shown.join("\n")
}
