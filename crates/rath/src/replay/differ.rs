//! Where two JSON values first differ.

use rath_record::draw;
use serde_json::Value;

/// The first place where two values differ.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place<'a> {
    /// The JSON pointer to it.
    pub(super) pointer: String,
    /// What the first has there, if anything.
    pub(super) ours: Option<&'a Value>,
    /// What the second has there.
    pub(super) theirs: Option<&'a Value>,
}

/// Returns the first place where two values differ: members by name, elements in order.
pub(super) fn first<'a>(ours: &'a Value, theirs: &'a Value) -> Option<Place<'a>> {
    // No deeper than JSON is read, which is 128 levels.
    let below = |step: String, ours: Option<&'a Value>, theirs: Option<&'a Value>| match (ours, theirs) {
        (Some(ours), Some(theirs)) => {
            first(ours, theirs).map(|place| Place { pointer: format!("/{step}{}", place.pointer), ..place })
        }
        (None, None) => None,
        (ours, theirs) => Some(Place { pointer: format!("/{step}"), ours, theirs }),
    };
    match (ours, theirs) {
        (Value::Object(mine), Value::Object(other)) => {
            let added = other.keys().filter(|name| !mine.contains_key(*name));
            let mut names: Vec<_> = mine.keys().chain(added).collect();
            names.sort();
            names.into_iter().find_map(|name| {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                below(escaped, mine.get(name), other.get(name))
            })
        }
        (Value::Array(mine), Value::Array(other)) => {
            (0..mine.len().max(other.len())).find_map(|nth| below(nth.to_string(), mine.get(nth), other.get(nth)))
        }
        _ => (ours != theirs).then(|| Place { pointer: String::new(), ours: Some(ours), theirs: Some(theirs) }),
    }
}

/// How much of two long texts is shown before the place where they part.
const BEFORE: usize = 20;

/// Two values on one line each. Of long texts that begin alike, the part where they differ.
pub(super) fn shown(ours: &str, theirs: &str) -> (String, String) {
    let same = ours.char_indices().zip(theirs.chars()).find(|((_, a), b)| a != b).map(|((at, _), _)| at);
    let from = same.unwrap_or(ours.len().min(theirs.len()));
    let from = ours[..from].char_indices().rev().nth(BEFORE).map_or(0, |(at, _)| at);
    let whole = draw::preview(ours) == ours && draw::preview(theirs) == theirs;
    let cut = |text: &str| match (from, whole) {
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
            let told = first(&ours, &theirs).map_or("same".to_owned(), |place| {
                let say = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
                format!("{}: {}, {}", place.pointer, say(place.ours), say(place.theirs))
            });
            assert_eq!(told, wanted);
        }
    }

    #[test]
    fn of_long_texts_the_part_that_differs_is_shown() {
        let (ours, theirs) = shown(&format!("{}Paris", "é ".repeat(90)), &format!("{}Rome", "é ".repeat(90)));
        assert_eq!((ours.contains("Paris"), theirs.contains("Rome")), (true, true), "{ours} {theirs}");
        assert_eq!(shown("\"a\"", "\"b\""), ("\"a\"".to_owned(), "\"b\"".to_owned()));
        assert_eq!(shown("ab", "abc"), ("ab".to_owned(), "abc".to_owned()));
    }
}
