//! Names that are told apart.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;

/// The name itself if it is free, and with a number if not.
///
/// `used` holds every name given out, with how often it was asked for.
pub(crate) fn unique<N>(used: &mut HashMap<N, u64>, mut name: N) -> N
where
    N: Clone + Display + Eq + From<String> + Hash,
{
    while let Some(asked) = used.get_mut(&name) {
        *asked += 1;
        name = format!("{name}~{asked}").into();
    }
    used.insert(name.clone(), 1);
    name
}
