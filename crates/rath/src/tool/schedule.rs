//! Deciding which calls may run concurrently.

use std::collections::BTreeMap;
use std::ops::Bound;

use serde_json::Value;

/// A resource that a call reads or changes.
///
/// Calls that touch the same resource run in order, unless all of them only read it.
///
/// ```
/// use rath::tool::{Access, Touch};
///
/// let argument = serde_json::json!(["a.txt", "b.txt"]);
/// assert_eq!(Touch::paths(Access::Read, &argument), [Touch::read("a.txt"), Touch::read("b.txt")]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    resource: Resource,
    access: Access,
}

/// The access of a call to a resource.
///
/// Passed to [`Touch::paths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// The call only reads it.
    Read,
    /// The call may change it.
    Write,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Resource {
    /// A path in the session's place, and everything below it.
    Path(String),
    /// A resource that is no file, by a name.
    Name(String),
    Everything,
}

impl Touch {
    /// Declares that a path in the session's place is read, with everything below it.
    pub fn read(path: impl Into<String>) -> Self {
        Touch { resource: Resource::Path(path.into()), access: Access::Read }
    }

    /// Declares that a path in the session's place may change, with everything below it.
    pub fn write(path: impl Into<String>) -> Self {
        Touch { resource: Resource::Path(path.into()), access: Access::Write }
    }

    /// Declares that a resource which is no file is read, such as a table or an account.
    pub fn read_name(name: impl Into<String>) -> Self {
        Touch { resource: Resource::Name(name.into()), access: Access::Read }
    }

    /// Declares that a resource which is no file may change.
    pub fn write_name(name: impl Into<String>) -> Self {
        Touch { resource: Resource::Name(name.into()), access: Access::Write }
    }

    /// Declares that anything may change: no call that touches anything runs at the same time.
    pub fn everything() -> Self {
        Touch { resource: Resource::Everything, access: Access::Write }
    }

    /// Returns a touch for each path in an argument, which is a string or a list of strings.
    #[doc(hidden)]
    pub fn paths(access: Access, argument: &Value) -> Vec<Self> {
        let path = |value: &Value| Some(Touch { resource: Resource::Path(value.as_str()?.to_owned()), access });
        match argument {
            Value::Array(list) => list.iter().filter_map(path).collect(),
            one => path(one).into_iter().collect(),
        }
    }

    /// Returns true if the touch declares that a path may change.
    pub(super) fn covers(&self, path: &[u8]) -> bool {
        let below = |above: &str| {
            path.strip_prefix(above.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        self.access == Access::Write
            && match &self.resource {
                Resource::Path(above) => above.is_empty() || below(above),
                Resource::Name(_) => false,
                Resource::Everything => true,
            }
    }

    /// Returns true if this declares that a path may change.
    pub(super) fn changes_path(&self) -> bool {
        self.is_of_path() && self.access == Access::Write
    }

    /// Returns the path and the access to it, if this is the touch of a path.
    pub(super) fn path(&self) -> Option<(&str, Access)> {
        match &self.resource {
            Resource::Path(path) => Some((path, self.access)),
            Resource::Name(_) | Resource::Everything => None,
        }
    }

    /// Returns true if this is the touch of a path.
    pub(super) fn is_of_path(&self) -> bool {
        matches!(self.resource, Resource::Path(_))
    }

    /// Replaces the path, if there is one, by its canonical name.
    pub(super) fn resolved(&self, resolve: impl Fn(&str) -> String) -> Self {
        let resource = match &self.resource {
            Resource::Path(path) => Resource::Path(resolve(path)),
            other => other.clone(),
        };
        Touch { resource, access: self.access }
    }
}

/// Removes `.` and `..` from a path without looking at files.
pub(super) fn normalize_path(path: &str) -> String {
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

/// The touches of earlier calls, which a later call must not conflict with.
#[derive(Default)]
pub(super) struct TouchSet {
    /// The strongest access to each path.
    paths: BTreeMap<String, Access>,
    names: BTreeMap<String, Access>,
    everything: bool,
}

impl TouchSet {
    /// Returns true if a call with these touches has to wait.
    pub(super) fn conflicts(&self, touches: &[Touch]) -> bool {
        !touches.is_empty() && (self.everything || touches.iter().any(|touch| self.conflicts_with(touch)))
    }

    pub(super) fn add(&mut self, touches: &[Touch]) {
        for touch in touches {
            let (map, key) = match &touch.resource {
                Resource::Path(path) => (&mut self.paths, path),
                Resource::Name(name) => (&mut self.names, name),
                Resource::Everything => {
                    self.everything = true;
                    continue;
                }
            };
            let held = map.entry(key.clone()).or_insert(touch.access);
            *held = (*held).max(touch.access);
        }
    }

    fn conflicts_with(&self, touch: &Touch) -> bool {
        let clash = |held: &Access| *held == Access::Write || touch.access == Access::Write;
        match &touch.resource {
            Resource::Everything => !self.paths.is_empty() || !self.names.is_empty(),
            Resource::Name(name) => self.names.get(name).is_some_and(clash),
            Resource::Path(path) => {
                // The path itself, the directories above it, and everything below it. The empty path is the place itself.
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

    /// Parses the touches of a call: `r:a/b w:c r#name *`.
    fn touches(text: &str) -> Vec<Touch> {
        let touch = |word: &str| match word.split_at(word.len().min(2)) {
            ("r:", path) => Touch::read(normalize_path(path)),
            ("w:", path) => Touch::write(normalize_path(path)),
            ("r#", name) => Touch::read_name(name),
            ("w#", name) => Touch::write_name(name),
            _ => Touch::everything(),
        };
        text.split_whitespace().map(touch).collect()
    }

    fn check(held: &str, then: &str, waits: bool) {
        let mut all = TouchSet::default();
        all.add(&touches(held));
        assert_eq!(all.conflicts(&touches(then)), waits, "{held}, then {then}");
        // The order does not matter.
        let mut all = TouchSet::default();
        all.add(&touches(then));
        assert_eq!(all.conflicts(&touches(held)), waits, "{then}, then {held}");
    }

    #[test]
    fn calls_wait_only_for_calls_that_touch_the_same_resource() {
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
