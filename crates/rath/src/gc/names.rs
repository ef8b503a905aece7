//! The versions of files that steps name.

use std::collections::{BTreeSet, HashSet};

use rath_record::Chunk;
use rath_workspace::{ObjectId, TreeId};

/// The versions of files, and the places, that steps name.
#[derive(Clone, Debug, Default)]
pub(super) struct VersionNames {
    pub(super) trees: HashSet<TreeId>,
    pub(super) files: HashSet<ObjectId>,
    /// The URIs of the places that sessions were placed in.
    pub(super) places: BTreeSet<String>,
    /// The bytes of the steps.
    pub(super) bytes: u64,
}

const TREE_PREFIX: &[u8] = b"git:";
const OBJECT_PREFIX: &[u8] = b"\"object\":\"";
const ID_DIGITS: usize = 40;

impl VersionNames {
    /// Adds the names in a step. Everything that looks like a name counts, in steps of kinds that are not known too: a name too
    /// many keeps garbage, and one too few would lose a file.
    pub(super) fn add_step(&mut self, json: &str) {
        self.bytes += json.len() as u64;
        self.trees.extend(ids_after(json, TREE_PREFIX).map(TreeId));
        self.files.extend(ids_after(json, OBJECT_PREFIX));
        self.add_place(json);
    }

    /// Adds the place in a step.
    pub(super) fn add_place(&mut self, json: &str) {
        if json.starts_with(r#"{"kind":"placed""#)
            && let Ok(Chunk::Placed(placed)) = Chunk::decode(json)
        {
            self.places.insert(placed.place);
        }
    }

    /// Adds the names of others.
    pub(super) fn add(&mut self, other: VersionNames) {
        self.trees.extend(other.trees);
        self.files.extend(other.files);
        self.places.extend(other.places);
        self.bytes += other.bytes;
    }
}

/// Returns all ids in a text that follow a prefix.
fn ids_after<'a>(json: &'a str, prefix: &'a [u8]) -> impl Iterator<Item = ObjectId> + 'a {
    memchr::memmem::find_iter(json.as_bytes(), prefix).filter_map(move |at| {
        let start = at + prefix.len();
        json.get(start..start + ID_DIGITS).and_then(ObjectId::from_hex)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_steps_of_every_kind() {
        let id = |digit: &str| ObjectId::from_hex(&digit.repeat(ID_DIGITS)).expect("an id");
        let [one, two, three] = ["1", "2", "3"].map(|digit| digit.repeat(ID_DIGITS));
        let mut names = VersionNames::default();
        names.add_step(&format!(r#"{{"kind":"observed","tree":"git:{one}"}}"#));
        names.add_step(&format!(r#"{{"kind":"of a later version","x":[{{"after":"git:{two}"}}]}}"#));
        names.add_step(&format!(r#"{{"kind":"merged","conflicts":[{{"ours":{{"object":"{three}"}}}}]}}"#));
        names.add_step(r#"{"kind":"user","text":"git:4b825, and \"object\":\" too, git:é"}"#);
        names.add_step(r#"{"kind":"placed","place":"local:/work"}"#);
        assert_eq!(names.trees, HashSet::from([TreeId(id("1")), TreeId(id("2"))]));
        assert_eq!(names.files, HashSet::from([id("3")]));
        assert_eq!(names.places, BTreeSet::from(["local:/work".to_owned()]));
    }
}
