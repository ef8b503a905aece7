//! Which calls may run side by side.

use std::collections::BTreeMap;
use std::ops::Bound;

use serde_json::Value;

/// Something that a call touches: calls that touch the same thing run in order, unless all of them only read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    what: What,
    access: Access,
}

/// How a call touches something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// It looks at it.
    Read,
    /// It may change it.
    Write,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// A path in the session's place, and everything below it.
    Path(String),
    /// Something that is known by a name.
    Name(String),
    Everything,
}

impl Touch {
    /// A path in the session's place is read, with everything below it.
    pub fn read(path: impl Into<String>) -> Self {
        Touch { what: What::Path(path.into()), access: Access::Read }
    }

    /// A path in the session's place may change, with everything below it.
    pub fn write(path: impl Into<String>) -> Self {
        Touch { what: What::Path(path.into()), access: Access::Write }
    }

    /// Something that is no file is read: a table, an account.
    pub fn read_name(name: impl Into<String>) -> Self {
        Touch { what: What::Name(name.into()), access: Access::Read }
    }

    /// Something that is no file may change.
    pub fn write_name(name: impl Into<String>) -> Self {
        Touch { what: What::Name(name.into()), access: Access::Write }
    }

    /// Anything may change: nothing that touches anything runs beside it.
    pub fn everything() -> Self {
        Touch { what: What::Everything, access: Access::Write }
    }

    /// The paths that an argument names: a text, or a list of texts.
    #[doc(hidden)]
    pub fn paths(access: Access, argument: &Value) -> Vec<Self> {
        let path = |value: &Value| Some(Touch { what: What::Path(value.as_str()?.to_owned()), access });
        match argument {
            Value::Array(list) => list.iter().filter_map(path).collect(),
            one => path(one).into_iter().collect(),
        }
    }

    /// Whether it says that a path may change.
    pub(super) fn covers(&self, path: &[u8]) -> bool {
        let below = |above: &str| {
            path.strip_prefix(above.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        self.access == Access::Write
            && match &self.what {
                What::Path(above) => above.is_empty() || below(above),
                What::Name(_) => false,
                What::Everything => true,
            }
    }

    /// The same with its path, if it has one, made into the one name that it has in its place.
    pub(super) fn resolved(&self, resolve: impl Fn(&str) -> String) -> Self {
        let what = match &self.what {
            What::Path(path) => What::Path(resolve(path)),
            other => other.clone(),
        };
        Touch { what, access: self.access }
    }
}

/// A path with `.` and `..` taken out, for where there are no files to ask.
pub(super) fn plain(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Everything that calls touch which come first.
#[derive(Default)]
pub(super) struct Held {
    /// The strongest access to each path.
    paths: BTreeMap<String, Access>,
    names: BTreeMap<String, Access>,
    everything: bool,
}

impl Held {
    /// Whether a call that touches these has to wait.
    pub(super) fn conflicts(&self, touches: &[Touch]) -> bool {
        !touches.is_empty() && (self.everything || touches.iter().any(|touch| self.conflict(touch)))
    }

    pub(super) fn add(&mut self, touches: &[Touch]) {
        for touch in touches {
            let (map, key) = match &touch.what {
                What::Path(path) => (&mut self.paths, path),
                What::Name(name) => (&mut self.names, name),
                What::Everything => {
                    self.everything = true;
                    continue;
                }
            };
            let held = map.entry(key.clone()).or_insert(touch.access);
            *held = (*held).max(touch.access);
        }
    }

    fn conflict(&self, touch: &Touch) -> bool {
        let clash = |held: &Access| *held == Access::Write || touch.access == Access::Write;
        match &touch.what {
            What::Everything => !self.paths.is_empty() || !self.names.is_empty(),
            What::Name(name) => self.names.get(name).is_some_and(clash),
            What::Path(path) => {
                // The path itself, what it lies in, and what lies in it. The place itself is the empty path.
                let mut above = std::iter::successors(Some(path.as_str()), |path| match path.rsplit_once('/') {
                    Some((above, _)) => Some(above),
                    None => (!path.is_empty()).then_some(""),
                });
                let first = if path.is_empty() { String::new() } else { format!("{path}/") };
                let below = self.paths.range::<str, _>((Bound::Included(first.as_str()), Bound::Unbounded));
                above.any(|above| self.paths.get(above).is_some_and(clash))
                    || below.take_while(|(held, _)| held.starts_with(&first)).any(|(_, held)| clash(held))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call's touches in short: `r:a/b w:c r#name *`.
    fn touches(text: &str) -> Vec<Touch> {
        let touch = |word: &str| match word.split_at(word.len().min(2)) {
            ("r:", path) => Touch::read(plain(path)),
            ("w:", path) => Touch::write(plain(path)),
            ("r#", name) => Touch::read_name(name),
            ("w#", name) => Touch::write_name(name),
            _ => Touch::everything(),
        };
        text.split_whitespace().map(touch).collect()
    }

    fn check(held: &str, then: &str, waits: bool) {
        let mut all = Held::default();
        all.add(&touches(held));
        assert_eq!(all.conflicts(&touches(then)), waits, "{held}, then {then}");
        // Who comes first does not matter.
        let mut all = Held::default();
        all.add(&touches(then));
        assert_eq!(all.conflicts(&touches(held)), waits, "{then}, then {held}");
    }

    #[test]
    fn calls_wait_for_those_that_touch_the_same_and_for_no_others() {
        check("w:a", "r:a", true);
        check("w:a", "w:a", true);
        check("r:a", "r:a", false);
        check("w:a", "r:b", false);
        check("w:a", "r:ab", false);
        check("w:a", "r:./a", true);
        check("w:a", "r:x/../a", true);
        check("w:src", "r:src/main.rs", true);
        check("r:src", "w:src/main.rs", true);
        check("r:src", "r:src/main.rs", false);
        check("r:.", "w:a/b", true);
        check("r:.", "r:a/b", false);
        check("w#db", "r#db", true);
        check("r#db", "r#db", false);
        check("w#a", "w:a", false);
        check("*", "r:a", true);
        check("*", "r#a", true);
        check("*", "*", true);
        check("*", "", false);
        check("w:a", "", false);
        check("r:a w:b", "r:a", false);
        check("r:a w:b", "r:b", true);
        check("w:a-b w:a/c", "r:a", true);
    }
}
