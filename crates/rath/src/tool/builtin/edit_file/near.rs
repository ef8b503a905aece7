//! What comes nearest to a text that is not there.

/// How many lines are shown, and how much of each.
const SHOWN_MOST: usize = 20;
const WIDTH_MOST: usize = 200;
/// How many pairs of lines are compared.
const PAIRS_MOST: usize = 2_000_000;
/// How alike the nearest lines have to be to be worth showing, out of 100.
const ALIKE: usize = 50;

/// Says that a text is not there, and what is.
pub(super) fn miss(text: &str, old: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let wanted: Vec<_> = old.trim_matches('\n').lines().collect();
    let mut said = "`old` is not there".to_owned();
    let same =
        windows(&lines, &wanted).find(|at| lines[*at..].iter().zip(&wanted).all(|(line, wanted)| same(line, wanted)));
    if let Some(at) = same {
        said.push_str(&format!(
            "; {} the same but for white space:\n{}",
            which(at, wanted.len()),
            shown(&lines, at, wanted.len())
        ));
        return said;
    }
    if lines.len().saturating_mul(wanted.len()) > PAIRS_MOST {
        return said;
    }
    let alike = |at: usize| lines[at..].iter().zip(&wanted).map(|(line, wanted)| alike(line, wanted)).sum::<usize>();
    // The first of those that are equally near.
    let best = windows(&lines, &wanted).map(|at| (alike(at), std::cmp::Reverse(at))).max();
    if let Some((score, std::cmp::Reverse(at))) = best
        && score >= ALIKE * wanted.len()
    {
        said.push_str(&format!("; {} nearest:\n{}", which(at, wanted.len()), shown(&lines, at, wanted.len())));
    }
    said
}

/// Where so many lines could begin.
fn windows(lines: &[&str], wanted: &[&str]) -> std::ops::Range<usize> {
    match wanted.len() {
        0 => 0..0,
        many => 0..(lines.len() + 1).saturating_sub(many),
    }
}

fn same(one: &str, other: &str) -> bool {
    let solid = |line: &'_ str| line.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    one == other || solid(one) == solid(other)
}

/// How alike two lines are, out of 100: how much of them is the same from the beginning and from the end.
fn alike(one: &str, other: &str) -> usize {
    let (one, other) = (one.trim().as_bytes(), other.trim().as_bytes());
    let (shorter, longer) = (one.len().min(other.len()), one.len().max(other.len()));
    if longer == 0 {
        return 100;
    }
    let ahead = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let behind = one.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    (ahead + behind).min(shorter) * 100 / longer
}

fn which(at: usize, many: usize) -> String {
    match many {
        1 => format!("line {} is", at + 1),
        many => format!("lines {} to {} are", at + 1, at + many),
    }
}

fn shown(lines: &[&str], at: usize, many: usize) -> String {
    let cut = |line: &&str| match line.len() > WIDTH_MOST {
        true => format!("{}…", &line[..line.floor_char_boundary(WIDTH_MOST)]),
        false => (*line).to_owned(),
    };
    let mut shown: Vec<_> = lines[at..at + many].iter().take(SHOWN_MOST).map(cut).collect();
    if many > SHOWN_MOST {
        shown.push("…".to_owned());
    }
    shown.join("\n")
}
