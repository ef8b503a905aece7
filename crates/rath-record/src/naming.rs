//! Making names unique.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;

/// Returns `name` if it is unused, and otherwise the name with a number appended.
///
/// `used` holds every name returned so far, with the number of times it was requested.
pub(crate) fn make_unique<N>(used: &mut HashMap<N, u64>, mut name: N) -> N
where
    N: Clone + Display + Eq + From<String> + Hash,
{
    while let Some(requests) = used.get_mut(&name) {
        *requests += 1;
        name = format!("{name}~{requests}").into();
    }
    used.insert(name.clone(), 1);
    name
}
