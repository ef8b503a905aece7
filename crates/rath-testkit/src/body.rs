//! Checking the JSON of requests against the description of an interface.

use serde_json::{Map, Value};

/// The type of a member of an object.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Text,
    /// Text that is not empty.
    Name,
    Bool,
    /// A whole number of at least this.
    Number(i64),
    Texts,
    /// An object whose values are texts.
    TextMap,
    Object(&'static [Member]),
    Objects(&'static [Member]),
    Any,
}

/// A member of an object: its name, its type, and true if it is required.
pub(crate) type Member = (&'static str, Kind, bool);

/// Returns what is wrong with a value; none if it has exactly these members.
pub(crate) fn wrong_member(value: &Value, members: &[Member]) -> Option<String> {
    let Value::Object(object) = value else { return Some(format!("wanted an object, found {value}")) };
    let unknown = object.keys().find(|name| !members.iter().any(|(known, ..)| known == name));
    if let Some(name) = unknown {
        return Some(format!("unknown member `{name}`"));
    }
    members.iter().find_map(|member| wrong(object, member))
}

fn wrong(object: &Map<String, Value>, (name, kind, is_required): &Member) -> Option<String> {
    let Some(value) = object.get(*name).filter(|value| *is_required || !value.is_null()) else {
        return is_required.then(|| format!("`{name}` is missing"));
    };
    let is_text_map = |value: &Value| value.as_object().is_some_and(|map| map.values().all(Value::is_string));
    let is_right = match kind {
        Kind::Text => value.is_string(),
        Kind::Name => value.as_str().is_some_and(|text| !text.is_empty()),
        Kind::Bool => value.is_boolean(),
        Kind::Number(least) => value.as_i64().is_some_and(|number| number >= *least),
        Kind::Texts => value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
        Kind::TextMap => is_text_map(value),
        Kind::Object(members) => return wrong_member(value, members).map(|wrong| format!("`{name}`: {wrong}")),
        Kind::Objects(members) => match value.as_array() {
            Some(list) => {
                let wrong = list.iter().find_map(|value| wrong_member(value, members));
                return wrong.map(|wrong| format!("`{name}`: {wrong}"));
            }
            None => false,
        },
        Kind::Any => true,
    };
    (!is_right).then(|| format!("`{name}` is {value}"))
}
