//! The first difference between two JSON values.

use rath_record::draw;
use serde_json::Value;

/// A place where two values differ.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonDifference<'a> {
    /// The JSON pointer to the place.
    pub(crate) pointer: String,
    /// The first value at that place; none if it has nothing there.
    pub(crate) ours: Option<&'a Value>,
    /// The second value at that place; none if it has nothing there.
    pub(crate) theirs: Option<&'a Value>,
}

/// Returns the first place where two values differ: members are compared by name, elements in order.
pub(crate) fn first_difference<'a>(ours: &'a Value, theirs: &'a Value) -> Option<JsonDifference<'a>> {
    // The recursion is bounded by the parser, which reads at most 128 levels.
    let child_difference = |token: String, ours: Option<&'a Value>, theirs: Option<&'a Value>| match (ours, theirs) {
        (Some(ours), Some(theirs)) => first_difference(ours, theirs)
            .map(|difference| JsonDifference { pointer: format!("/{token}{}", difference.pointer), ..difference }),
        (None, None) => None,
        (ours, theirs) => Some(JsonDifference { pointer: format!("/{token}"), ours, theirs }),
    };
    match (ours, theirs) {
        (Value::Object(mine), Value::Object(other)) => {
            let added = other.keys().filter(|name| !mine.contains_key(*name));
            let mut names: Vec<_> = mine.keys().chain(added).collect();
            names.sort();
            names.into_iter().find_map(|name| {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                child_difference(escaped, mine.get(name), other.get(name))
            })
        }
        (Value::Array(mine), Value::Array(other)) => (0..mine.len().max(other.len()))
            .find_map(|nth| child_difference(nth.to_string(), mine.get(nth), other.get(nth))),
        _ => {
            (ours != theirs).then(|| JsonDifference { pointer: String::new(), ours: Some(ours), theirs: Some(theirs) })
        }
    }
}

/// The number of characters that a preview shows before the first difference of two long texts.
const CONTEXT_CHARS: usize = 20;

/// Returns two values on one line each. Long texts with a common beginning are cut to the part that differs.
pub(crate) fn preview_pair(ours: &str, theirs: &str) -> (String, String) {
    let difference = ours.char_indices().zip(theirs.chars()).find(|((_, a), b)| a != b).map(|((at, _), _)| at);
    let from = difference.unwrap_or(ours.len().min(theirs.len()));
    let from = ours[..from].char_indices().rev().nth(CONTEXT_CHARS).map_or(0, |(at, _)| at);
    let is_short = draw::preview(ours) == ours && draw::preview(theirs) == theirs;
    let cut = |text: &str| match (from, is_short) {
        (0, _) | (_, true) => draw::preview(text),
        _ => format!("…{}", draw::preview(&text[from..])),
    };
    (cut(ours), cut(theirs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named_by_its_pointer() {
        let rows = [
            (r#"{"a": 1}"#, r#"{"a": 1}"#, "same"),
            (r#"{"a": 1}"#, r#"{"a": 2}"#, "/a: 1, 2"),
            (r#"{"a": 1, "b": 2}"#, r#"{"b": 3, "a": 1}"#, "/b: 2, 3"),
            (r#"{"a": 1}"#, r#"{"a": 1, "b": 2}"#, "/b: nothing, 2"),
            (r#"{"a": [1, {"x/y": "u"}]}"#, r#"{"a": [1, {"x/y": "v"}]}"#, r#"/a/1/x~1y: "u", "v""#),
            (r#"[1, 2]"#, r#"[1]"#, "/1: 2, nothing"),
            (r#"{"a": {}}"#, r#"{"a": []}"#, "/a: {}, []"),
            (r#"1"#, r#"2"#, ": 1, 2"),
        ];
        for (ours, theirs, wanted) in rows {
            let (ours, theirs) =
                (serde_json::from_str(ours).expect("JSON"), serde_json::from_str(theirs).expect("JSON"));
            let printed = first_difference(&ours, &theirs).map_or("same".to_owned(), |difference| {
                let text = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
                format!("{}: {}, {}", difference.pointer, text(difference.ours), text(difference.theirs))
            });
            assert_eq!(printed, wanted);
        }
    }

    #[test]
    fn long_texts_are_cut_to_the_part_that_differs() {
        let (ours, theirs) = preview_pair(&format!("{}Paris", "é ".repeat(90)), &format!("{}Rome", "é ".repeat(90)));
        assert_eq!((ours.contains("Paris"), theirs.contains("Rome")), (true, true), "{ours} {theirs}");
        assert_eq!(preview_pair("\"a\"", "\"b\""), ("\"a\"".to_owned(), "\"b\"".to_owned()));
        assert_eq!(preview_pair("ab", "abc"), ("ab".to_owned(), "abc".to_owned()));
    }
}
