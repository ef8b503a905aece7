//! The versions of files that a chunk names.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::id::ObjectId;

/// The versions of files and directories that a chunk names: its tree, and the files of its conflicts.
///
/// Only the members that say so count, in chunks of every kind. An id in a text is no name.
///
/// ```
/// use rath_record::chunk::NamedObjects;
///
/// let named = NamedObjects::of(r#"{"kind":"observed","tree":"git:4b825dc642cb6eb9a060e54bf8d69288fbee4904"}"#);
/// assert_eq!(named.tree.map(|tree| tree.to_string()).as_deref(), Some("4b825dc642cb6eb9a060e54bf8d69288fbee4904"));
/// assert!(named.files.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedObjects {
    /// The directory after the step.
    pub tree: Option<ObjectId>,
    /// The versions of files in conflicts.
    pub files: Vec<ObjectId>,
}

impl NamedObjects {
    /// Returns the names in the JSON of a chunk. Of a member that stands there twice, the last counts.
    pub fn of(json: &str) -> Self {
        let mut named = NamedObjects::default();
        // Most steps name nothing, and are not parsed. A name may be spelled with escapes.
        let has = |text: &str| memchr::memmem::find(json.as_bytes(), text.as_bytes()).is_some();
        if !["git:", "\"object\"", "\\u"].into_iter().any(has) {
            return named;
        }
        let Ok(members) = serde_json::from_str::<HashMap<Cow<'_, str>, &RawValue>>(json) else { return named };
        let member = |name: &str| members.get(name).and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
        if let Some(Value::String(tree)) = member("tree") {
            named.tree = tree.strip_prefix("git:").and_then(|id| ObjectId::from_hex(id.as_bytes()));
        }
        let Some(Value::Array(conflicts)) = member("conflicts") else { return named };
        for side in conflicts.iter().flat_map(|conflict| ["base", "ours", "theirs"].map(|side| conflict.get(side))) {
            let object = side.and_then(|version| version.get("object")).and_then(Value::as_str);
            named.files.extend(object.and_then(|id| ObjectId::from_hex(id.as_bytes())));
        }
        named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_members_and_not_from_texts() {
        let [one, two, three] = ["1", "2", "3"].map(|digit| digit.repeat(40));
        let check = |json: String, tree: Option<&str>, files: &[&str]| {
            let id = |hex: &&str| ObjectId::from_hex(hex.as_bytes()).expect("an id");
            let wanted = NamedObjects { tree: tree.as_ref().map(id), files: files.iter().map(id).collect() };
            assert_eq!(NamedObjects::of(&json), wanted, "{json}");
        };
        check(format!(r#"{{"kind":"observed","tree":"git:{one}"}}"#), Some(&one), &[]);
        check(format!(r#"{{"kind":"of a later version","tr\u0065e":"x","tree":"git:{one}"}}"#), Some(&one), &[]);
        check(format!(r#"{{"kind":"user","text":"\"tree\":\"git:{one}\" \"conflicts\""}}"#), None, &[]);
        check(format!(r#"{{"kind":"x","y":{{"tree":"git:{one}"}}}}"#), None, &[]);
        check(format!(r#"{{"kind":"x","tree":["git:{one}"]}}"#), None, &[]);
        let conflict = format!(r#"{{"ours":{{"object":"{two}"}},"theirs":{{"object":"{three}"}},"base":7}}"#);
        check(
            format!(r#"{{"kind":"merged","conflicts":[{conflict},5],"tree":"git:{one}"}}"#),
            Some(&one),
            &[&two, &three],
        );
        check(format!(r#"{{"kind":"x","tree":"git:{one}","tree":"git:{two}"}}"#), Some(&two), &[]);
    }
}
