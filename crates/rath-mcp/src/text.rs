//! Cleaning texts of servers.

use rath::Secrets;

/// Returns the text without secrets and without invisible characters, which could hide instructions in it, and not longer than
/// `max_bytes`.
///
/// Secrets are hidden before the text is cut: half of one would not be recognized.
pub(crate) fn cleaned(secrets: &Secrets, text: &str, max_bytes: usize) -> String {
    let visible: String = text.chars().filter(|c| is_visible(*c)).collect();
    let mut cleaned = secrets.hide(&visible).unwrap_or(visible);
    if cleaned.len() > max_bytes {
        cleaned.truncate(cleaned.floor_char_boundary(max_bytes));
        cleaned.push_str(" [..]");
    }
    cleaned
}

/// Returns the text as one line for a message.
pub(crate) fn one_line(secrets: &Secrets, text: &str, max_bytes: usize) -> String {
    let text = cleaned(secrets, text, max_bytes);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_visible(c: char) -> bool {
    match c {
        '\n' | '\t' => true,
        c if c.is_control() => false,
        // Spaces without width, marks of direction, joiners, tags and selectors of variants.
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => false,
        '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' => false,
        '\u{e0000}'..='\u{e0fff}' => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_and_secrets_are_removed_and_long_texts_cut() {
        let mut secrets = Secrets::default();
        let _ = secrets.add("KEY", "correct-horse");
        let rows = [
            ("plain\n\ttext", 100, "plain\n\ttext"),
            ("a\u{202e}b\u{200b}c\u{e0041}d\u{1b}[31me\u{feff}", 100, "abcd[31me"),
            ("ééé", 4, "éé [..]"),
            ("日本", 6, "日本"),
            ("12345678 correct-horse", 16, "12345678 [secret [..]"),
            ("12345678 correct\u{200b}-horse", 21, "12345678 [secret KEY]"),
        ];
        for (text, max, expected) in rows {
            assert_eq!(cleaned(&secrets, text, max), expected);
        }
        assert_eq!(one_line(&secrets, " a\n\n b\tc ", 100), "a b c");
    }
}
