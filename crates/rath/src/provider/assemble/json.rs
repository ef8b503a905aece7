//! Reading JSON of a server without building it: a value in memory is many times as large as its text.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The most items of a list that are read one by one. They are larger in memory than in JSON, and no server means so many.
const MAX_LIST_ITEMS: usize = 10_000;

/// Passes the name and the value of each member of an object to `each`. Fails if the text is not a JSON object.
pub(crate) fn each_member<'a>(json: &'a str, each: impl FnMut(&str, &'a RawValue)) -> serde_json::Result<()> {
    struct ObjectVisitor<F>(F);

    impl<'de, F: FnMut(&str, &'de RawValue)> Visitor<'de> for ObjectVisitor<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
            let mut name = String::new();
            while members.next_key_seed(NameBuffer(&mut name))?.is_some() {
                (self.0)(&name, members.next_value()?);
            }
            Ok(())
        }
    }

    let mut deserializer = serde_json::Deserializer::from_str(json);
    deserializer.deserialize_map(ObjectVisitor(each))?;
    deserializer.end()
}

/// Returns the members of an object with these names. Those that are missing are `None`; so are all if the text is not an object.
pub(crate) fn json_members<'a, const N: usize>(json: &'a str, names: [&str; N]) -> [Option<&'a RawValue>; N] {
    let mut found = [None; N];
    let read = each_member(json, |name, value| {
        if let Some(nth) = names.iter().position(|wanted| *wanted == name) {
            found[nth] = Some(value);
        }
    });
    if read.is_ok() { found } else { [None; N] }
}

/// Returns the values of a list, or `None` if the value is another, or a very long list.
pub(crate) fn json_list(json: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str::<ShortList<&RawValue>>(json.get()).ok().map(|list| list.0)
}

/// Returns the text of a JSON string, or `None` if the value is another.
pub(crate) fn string(json: &RawValue) -> Option<String> {
    serde_json::from_str(json.get()).ok()
}

/// Returns the text of a JSON string, or a number as it is written.
pub(crate) fn string_or_number(json: &RawValue) -> Option<String> {
    let is_number = json.get().starts_with(|first: char| first == '-' || first.is_ascii_digit());
    if is_number { Some(json.get().to_owned()) } else { string(json) }
}

/// The name of a member, read into a buffer that all names of an object share.
struct NameBuffer<'a>(&'a mut String);

impl<'de> DeserializeSeed<'de> for NameBuffer<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NameBuffer<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<(), E> {
        self.0.clear();
        self.0.push_str(name);
        Ok(())
    }
}

/// A value that is read from the members of an object, one by one.
pub(super) trait FromMembers<'de>: Default {
    /// Reads the value of the member of this name.
    fn read<A: MapAccess<'de>>(&mut self, name: Cow<'de, str>, members: &mut A) -> Result<(), A::Error>;
}

/// An object whose members are read one by one, so that those that are not known can be kept.
pub(super) struct ObjectMembers<T>(pub(super) T);

impl<'de, T: FromMembers<'de>> Deserialize<'de> for ObjectMembers<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor<T>(T);

        impl<'de, T: FromMembers<'de>> Visitor<'de> for MembersVisitor<T> {
            type Value = ObjectMembers<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Self::Value, A::Error> {
                while let Some(MemberName(name)) = members.next_key()? {
                    self.0.read(name, &mut members)?;
                }
                Ok(ObjectMembers(self.0))
            }
        }

        deserializer.deserialize_map(MembersVisitor(T::default()))
    }
}

/// The members of an object that are not known, in their order.
pub(super) type OtherMembers<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

/// Reads a member that is not known. Fails if there are very many: they are larger in memory than in JSON.
pub(super) fn read_other<'de, A: MapAccess<'de>>(
    others: &mut OtherMembers<'de>,
    name: Cow<'de, str>,
    members: &mut A,
) -> Result<(), A::Error> {
    if others.len() == MAX_LIST_ITEMS {
        return Err(A::Error::custom(format_args!("an object has more than {MAX_LIST_ITEMS} members")));
    }
    others.push((name, members.next_value()?));
    Ok(())
}

/// The name of a member, borrowed where it has no escapes.
#[derive(Deserialize)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);

/// A list with a limit for the number of its items.
pub(super) struct ShortList<T>(pub(super) Vec<T>);

impl<T> Default for ShortList<T> {
    fn default() -> Self {
        ShortList(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ShortList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
            type Value = ShortList<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ShortList<T>, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    if list.len() == MAX_LIST_ITEMS {
                        return Err(A::Error::custom(format_args!("a list has more than {MAX_LIST_ITEMS} items")));
                    }
                    if list.is_empty() {
                        // Nearly always the only one, and large.
                        list.reserve_exact(1);
                    }
                    list.push(item);
                }
                Ok(ShortList(list))
            }
        }

        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

/// Returns the number of values in a JSON text, names of members included, give or take one.
pub(crate) fn count_json_values(text: &str) -> usize {
    let mut scan = JsonScan::default();
    scan.push(text);
    scan.values
}

/// A scan of a JSON text that arrives in pieces.
#[derive(Default)]
pub(super) struct JsonScan {
    depth: usize,
    in_string: bool,
    after_backslash: bool,
    values: usize,
    end: ScanEnd,
}

/// The part of the text that a scan has come to.
#[derive(Clone, Copy, Default, PartialEq)]
enum ScanEnd {
    #[default]
    Start,
    InObject,
    /// The object is closed, and nothing but white space follows it.
    Closed,
    /// The text is something else than one object.
    Other,
}

impl JsonScan {
    /// Scans more of the text.
    pub(super) fn push(&mut self, text: &str) {
        for byte in text.bytes() {
            if self.in_string {
                self.in_string = self.after_backslash || byte != b'"';
                self.after_backslash = byte == b'\\' && !self.after_backslash;
                continue;
            }
            if byte.is_ascii_whitespace() {
                continue;
            }
            self.end = match (self.end, byte) {
                (ScanEnd::Start, b'{') => ScanEnd::InObject,
                (ScanEnd::Start | ScanEnd::Closed, _) => ScanEnd::Other,
                (ScanEnd::InObject, b'}') if self.depth == 1 => ScanEnd::Closed,
                (end, _) => end,
            };
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            self.values += usize::from(matches!(byte, b'{' | b'[' | b',' | b':'));
        }
    }

    /// Returns true if the text is one object whose end has come.
    pub(super) fn is_closed_object(&self) -> bool {
        self.end == ScanEnd::Closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_finds_the_end_of_an_object_however_the_text_is_split() {
        for (text, is_closed, values) in [
            ("", false, 0),
            ("{", false, 1),
            ("{}", true, 1),
            (" {} ", true, 1),
            ("{}{", false, 2),
            ("[{}]", false, 2),
            (r#"{"a":[1,{"b":"}\"}"}]}"#, true, 6),
            (r#"{"a":"}\\"}"#, true, 2),
            (r#"{"a":"{,:["#, false, 2),
            ("\"{}\"", false, 0),
        ] {
            let scan = |pieces: &[&str]| {
                let mut scan = JsonScan::default();
                pieces.iter().for_each(|piece| scan.push(piece));
                (scan.is_closed_object(), scan.values)
            };
            for split in 0..=text.len() {
                let (before, after) = text.split_at(split);
                assert_eq!(scan(&[before, after]), (is_closed, values), "{before}|{after}");
            }
        }
    }

    #[test]
    fn members_are_found_by_name_and_the_last_of_a_name_counts() {
        let check = |json: &str, expected: [Option<&str>; 2]| {
            let found = json_members(json, ["a", "b"]).map(|value| value.map(RawValue::get));
            assert_eq!(found, expected, "{json}");
        };
        check(r#"{"c": 1, "b": [1, 2], "a": {"b": 3}, "\u0062": 4}"#, [Some(r#"{"b": 3}"#), Some("4")]);
        check("{}", [None, None]);
        check(r#"{"a": 1"#, [None, None]);
        check(r#"{"a": 1} x"#, [None, None]);
        check("[1]", [None, None]);
    }
}
