//! The terms of a text: the units by which notes are found.
//!
//! A term is a stemmed word, a whole identifier, a part of an identifier, or one or two characters of a script that puts no
//! space between words. Notes and questions are cut in the same way, so a term is found if it is in both. Words of questions and of
//! grammar are no terms: `words.rs` lists them by language.

mod words;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;
use unicode_segmentation::UnicodeSegmentation;

/// The version of these rules. An index that was made by other rules is made anew.
pub(crate) const ANALYSIS_VERSION: i64 = 3;

/// The length from which a term is left out, in bytes: an encoded picture is no word.
const MAX_TERM_BYTES: usize = 64;

/// The number of words whose terms are remembered. Most words of a text are among the most common few thousand.
const MAX_REMEMBERED_WORDS: usize = 8_192;

/// The side of a search that a text is on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// A text that is found. Each character of an unspaced script is a term too, for questions of one character.
    Note,
    /// A text that is searched for.
    Query,
}

/// Cuts texts into terms.
pub(crate) struct Analyzer {
    stemmer: Stemmer,
    /// The terms of the last words; none for a word that is left out. Finding a stem costs more than all the rest.
    remembered: RefCell<HashMap<String, Option<String>>>,
}

impl Analyzer {
    pub(crate) fn new() -> Self {
        Analyzer { stemmer: Stemmer::create(Algorithm::English), remembered: RefCell::default() }
    }

    /// Returns the terms of a text in their order, as often as they occur.
    pub(crate) fn terms(&self, text: &str, side: Side) -> Vec<String> {
        let mut terms = Vec::new();
        let question = if side == Side::Query { words_of(text) } else { Vec::new() };
        let left_out = words::foreign_stop_words(&question);
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let is_run = is_unspaced(first);
            let end = rest.find(|c| is_unspaced(c) != is_run).unwrap_or(rest.len());
            let (run, after) = rest.split_at(end);
            if is_run {
                unspaced_terms(run, side, &mut terms);
            } else {
                self.spaced_terms(run, &left_out, &mut terms);
            }
            rest = after;
        }
        terms
    }

    /// Adds the terms of a text in a script that puts spaces between words.
    fn spaced_terms(&self, text: &str, left_out: &HashSet<&str>, terms: &mut Vec<String>) {
        for (start, word) in text.unicode_word_indices() {
            // `C++` and `C#` are names, and their signs are no part of a word.
            let sign = ["++", "#"].into_iter().find(|sign| text[start + word.len()..].starts_with(sign));
            if let (1, Some(sign)) = (word.len(), sign) {
                terms.push(word.to_lowercase() + sign);
                continue;
            }
            // Most words are like this, and the rest of the work is for others.
            if word.bytes().all(|byte| byte.is_ascii_lowercase()) {
                // In capitals it is a country.
                if word != "us" && !left_out.contains(word) {
                    self.add(word, terms);
                }
                continue;
            }
            let word = fold(stem_of_contraction(word));
            if !left_out.is_empty() && left_out.contains(&*word.to_lowercase()) {
                continue;
            }
            let parts = parts(&word);
            match parts.as_slice() {
                [] => {}
                [part] => self.add(part, terms),
                parts => {
                    parts.iter().for_each(|part| self.add(part, terms));
                    // The whole too, without its separators: `parse_config`, `parseConfig` and `parseconfig` are one name.
                    push_term(parts.concat().to_lowercase(), terms);
                }
            }
        }
    }

    /// Adds the term of a word that is no identifier.
    fn add(&self, word: &str, terms: &mut Vec<String>) {
        let is_lowercase = word.bytes().all(|byte| byte.is_ascii_lowercase());
        let word = if is_lowercase { Cow::Borrowed(word) } else { word.to_lowercase().into() };
        let mut remembered = self.remembered.borrow_mut();
        if let Some(term) = remembered.get(&*word) {
            terms.extend(term.clone());
            return;
        }
        let term = self.term(&word).filter(|term| term.len() <= MAX_TERM_BYTES);
        terms.extend(term.clone());
        if word.len() <= MAX_TERM_BYTES {
            if remembered.len() == MAX_REMEMBERED_WORDS {
                remembered.clear();
            }
            remembered.insert(word.into_owned(), term);
        }
    }

    /// Returns the term of a word in lower case; none if the word is too common.
    fn term(&self, word: &str) -> Option<String> {
        if words::is_stop_word(word) {
            return None;
        }
        let word = words::base_form(word).unwrap_or(word);
        Some(match word.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            true => self.stemmer.stem(word).into_owned(),
            false => word.to_owned(),
        })
    }
}

fn push_term(term: String, terms: &mut Vec<String>) {
    if term.len() <= MAX_TERM_BYTES {
        terms.push(term);
    }
}

/// Adds pairs of characters. A single character is a term of its own, and in a note each character is.
fn unspaced_terms(run: &str, side: Side, terms: &mut Vec<String>) {
    let characters: Vec<char> = run.nfkc().collect();
    if side == Side::Query && words::is_unspaced_grammar(&characters) {
        return;
    }
    if side == Side::Note || characters.len() == 1 {
        terms.extend(characters.iter().map(char::to_string));
    }
    let pairs = characters.windows(2).map(|pair| pair.iter().collect::<String>());
    terms.extend(pairs.filter(|pair| !words::is_stop_pair(pair)));
}

/// Returns the words of a text in lower case, without marks above or below their letters.
fn words_of(text: &str) -> Vec<String> {
    text.unicode_words().map(|word| fold(stem_of_contraction(word)).to_lowercase()).collect()
}

/// Returns a word without what an apostrophe joins to it: an ending of English, or the rest of a word before it in French and Italian.
fn stem_of_contraction(word: &str) -> &str {
    const JOINED: [&str; 22] = [
        "all", "c", "com", "cos", "d", "dall", "dell", "dov", "j", "jusqu", "l", "lorsqu", "m", "n", "nell", "puisqu",
        "qu", "quelqu", "s", "sull", "t", "un",
    ];
    let Some(at) = word.find(['\'', '’']) else { return word };
    let (before, after) = (&word[..at], word[at..].trim_start_matches(['\'', '’']));
    match after.to_lowercase().as_str() {
        "s" | "re" | "ve" | "ll" | "d" | "m" => before,
        "t" => match before.to_lowercase().as_str() {
            "can" => "can",
            "won" => "will",
            "shan" => "shall",
            "ain" => "is",
            _ => before.strip_suffix(['n', 'N']).unwrap_or(before),
        },
        _ if JOINED.contains(&before.to_lowercase().as_str()) => after,
        _ => word,
    }
}

/// Returns a word with compatible forms made equal and without marks above or below its letters.
fn fold(word: &str) -> Cow<'_, str> {
    match word.is_ascii() {
        true => word.into(),
        false => word.nfkd().filter(|c| !is_combining_mark(*c)).collect::<String>().into(),
    }
}

/// Cuts an identifier at its separators, at changes from lower to upper case and between letters and digits.
fn parts(word: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for piece in word.split(|c: char| !c.is_alphanumeric()).filter(|piece| !piece.is_empty()) {
        let mut start = 0;
        let characters: Vec<(usize, char)> = piece.char_indices().collect();
        for at in 1..characters.len() {
            let (before, here) = (characters[at - 1].1, characters[at].1);
            let after = characters.get(at + 1).map(|(_, c)| *c);
            let is_hump = before.is_lowercase() && here.is_uppercase();
            // `HTTPServer` is cut before its S.
            let is_last_capital = before.is_uppercase() && here.is_uppercase() && after.is_some_and(char::is_lowercase);
            if is_hump || is_last_capital || before.is_numeric() != here.is_numeric() {
                parts.push(&piece[start..characters[at].0]);
                start = characters[at].0;
            }
        }
        parts.push(&piece[start..]);
    }
    parts
}

/// Returns true for characters of Chinese, Japanese and Korean, in which a search cannot rely on spaces.
fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{1100}'..='\u{11ff}' | '\u{3005}'..='\u{3007}' | '\u{3040}'..='\u{30ff}' | '\u{3130}'..='\u{318f}'
        | '\u{31f0}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}' | '\u{ff66}'..='\u{ff9f}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(text: &str, note: Expect) {
        note.assert_eq(&Analyzer::new().terms(text, Side::Note).join(" "));
    }

    #[test]
    fn words_are_stemmed_and_common_ones_left_out() {
        check("The user prefers tabs; she's been using them.", expect!["user prefer tab use"]);
        check("We went to the children's museum and bought souvenirs", expect!["go child museum buy souvenir"]);
        check("Don't deploy on Fridays", expect!["deploy friday"]);
        check("Café, naïve, Ｆｕｌｌ", expect!["cafe naiv full"]);
        check("", expect![""]);
        check("the of and", expect![""]);
    }

    #[test]
    fn identifiers_are_found_whole_and_by_their_parts() {
        check("parseConfig", expect!["pars config parseconfig"]);
        check("parse_config_file", expect!["pars config file parseconfigfile"]);
        check("HTTPServer2", expect!["http server 2 httpserver2"]);
        check("src/main.rs", expect!["src main rs mainrs"]);
        check("std::collections::HashMap", expect!["std collect hash map hashmap"]);
        check("C++ and C#, not C", expect!["c++ c# c"]);
        check("error E0382 in v1.95", expect!["error e 0382 e0382 v 1 95 v195"]);
    }

    #[test]
    fn unspaced_scripts_give_pairs() {
        check("我喜欢猫", expect!["我 喜 欢 猫 我喜 喜欢 欢猫"]);
        check("東京タワー", expect!["東 京 タ ワ ー 東京 京タ タワ ワー"]);
        check("파이썬을 좋아", expect!["파 이 썬 을 파이 이썬 썬을 좋 아 좋아"]);
        check("用Rust写代码", expect!["用 rust 写 代 码 写代 代码"]);
        check("ﾊﾝｶｸ", expect!["ハ ン カ ク ハン ンカ カク"]);
    }

    #[test]
    fn a_question_of_one_character_is_a_term_and_others_are_pairs() {
        let terms = |text| Analyzer::new().terms(text, Side::Query).join(" ");
        assert_eq!(terms("猫"), "猫");
        assert_eq!(terms("我的猫叫什么"), "我的 的猫 猫叫 叫什");
    }
}
