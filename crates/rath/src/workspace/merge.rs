//! Two trees that come from one, joined.
use super::Objects;
use crate::error::Result;
use rath_record::chunk::{Conflict, Tree};
/// What came of joining two trees.
pub struct Joined {
    pub tree: Tree,
    pub conflicts: Vec<Conflict>,
}
impl Objects {
    pub(crate) fn merge(&self, _b: &Tree, _o: &Tree, _t: &Tree) -> Result<Joined> {
        unimplemented!()
    }
}
