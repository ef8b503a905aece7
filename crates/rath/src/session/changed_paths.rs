//! The paths that a call changed: their names through links, and the guards that files gain or lose by a changed link.
//!
//! A rule or a guard is about a file under all of its names, before the call and after it. A link is not a file of its own here: a
//! call that makes, changes or removes a link changes no content, and yet a guarded name may lead to another file then. So a call
//! may change no link by which a file gains or loses a guard.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;

use rath_record::chunk::Effect;

use super::versions::lossy_path;
use crate::links::{LinkGuard, Links};
use crate::sandbox::RATH_DIR;
use crate::workspace::{Presence, Snapshot, Workspace};

/// The largest number of names through changed links that are compared with guards after one call.
const MAX_COMPARED_NAMES: usize = 200_000;

/// The names of changed files through links, and the ignored directories that they are in.
pub(crate) struct ChangedPaths<'a> {
    pub(super) workspace: &'a Workspace,
    /// The state when this process looked first.
    pub(super) first: &'a Snapshot,
    pub(super) before: LinkedFiles<'a>,
    /// The state after the call, and its changes; none if no snapshot could be taken.
    pub(super) after: Option<(LinkedFiles<'a>, &'a [Effect])>,
    /// The number of names that were compared.
    pub(super) compared: Cell<usize>,
    /// The walks in which no file gained or lost a guard, each with the number of its state.
    pub(super) walked: RefCell<HashSet<(usize, LinkWalk)>>,
}

/// A walk through the files that names through a link lead to.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct LinkWalk {
    target: String,
    /// The guards that fit the name which leads there, or may fit names below it.
    fitting: Vec<LinkGuard>,
    is_ignored: bool,
    /// The name itself, if more than its guards counts.
    name: Option<String>,
}

/// The guards that fit a name, for one call.
pub(crate) struct NameGuards<'a> {
    /// Returns the reasons why the call may not change a file with a name.
    pub(crate) all: &'a dyn Fn(&str) -> Vec<String>,
    /// Returns those of them that are rules of the user.
    pub(crate) rules: &'a dyn Fn(&str) -> Vec<String>,
    /// Returns the guards that fit a name, or may fit names below it.
    pub(crate) fitting: &'a dyn Fn(&str) -> Vec<LinkGuard>,
}

impl NameGuards<'_> {
    /// Returns true if a guard may fit a file below a name.
    fn guard_below(&self, name: &str) -> bool {
        !(self.fitting)(name).is_empty() || !(self.all)(&format!("{name}/.envrc")).is_empty()
    }
}

/// A state of a directory with its links.
#[derive(Clone, Copy)]
pub(super) struct LinkedFiles<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) links: &'a Links,
}

impl ChangedPaths<'_> {
    /// Returns the names that a file had: its path, and those through links.
    pub(crate) fn names_before(&self, path: &str) -> Vec<String> {
        self.before.links.names(path)
    }

    /// Returns the names of a file: its path, and those through links that were there before the call or are there after it.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let mut names = self.names_before(path);
        if let Some((after, _)) = self.after.filter(|(after, _)| !std::ptr::eq(after.links, self.before.links)) {
            names.extend(after.links.names(path));
        }
        names
    }

    /// Returns the directory of dependencies or build results that contains a path: the rules from when this process looked first
    /// ignore it, so a call cannot choose one, and it was there before the call or got many files at once. None once the path is no
    /// longer ignored.
    pub(crate) fn ignored_above(&self, path: &str) -> Option<String> {
        let ignored_dir = self.first.ignored_above(path)?;
        let is_ignored =
            |after: &Snapshot| after.presence(path) == Presence::Absent || after.ignored_above(path).is_some();
        // A directory with many changes is one effect.
        let has_many = |effects: &[Effect]| effects.iter().any(|effect| effect.path == ignored_dir);
        let was_there = self.before.snapshot.presence(&ignored_dir) != Presence::Absent;
        let is_kept = match self.after {
            Some((after, effects)) => is_ignored(after.snapshot) && (was_there || has_many(effects)),
            None => was_there,
        };
        is_kept.then_some(ignored_dir)
    }

    /// Returns a guard that a file has by a link before the call and not after it, or the other way round, with the name that it
    /// fits.
    pub(crate) fn guard_by_link(&self, link: &str, guards: &NameGuards<'_>) -> Option<String> {
        let after = self.after.map(|(after, _)| after);
        let states = [(Some(self.before), after), (after, Some(self.before))];
        states.into_iter().enumerate().find_map(|(nth, (state, other))| {
            let state = state.filter(|state| state.snapshot.is_link(link))?;
            let link: &str = &lossy_path(link);
            // A link that goes up behind this one (`link/../file`) leads to files that are not below it.
            let mut links = [link].into_iter().chain(state.links.passing(link).iter().map(String::as_str));
            links.find_map(|link| self.guard_only_in((nth, state), other, link, guards))
        })
    }

    /// Returns a guard that a file has by a link in one state and not in the other.
    ///
    /// A directory is walked once for each set of guards that the name fits which leads to it: below equal ones, equal guards fit.
    fn guard_only_in(
        &self,
        (nth, state): (usize, LinkedFiles<'_>),
        other: Option<LinkedFiles<'_>>,
        link: &str,
        guards: &NameGuards<'_>,
    ) -> Option<String> {
        let mut found = None;
        let mut walked = HashSet::new();
        // Names that lead through the link, each with the path that it leads to.
        let mut rest = vec![(link.to_owned(), state.links.target(link)?.to_owned())];
        while let (Some((above, target)), None) = (rest.pop(), &found) {
            let walk = (nth, self.walk(state, &above, &target, guards));
            if self.walked.borrow().contains(&walk) || !walked.insert(walk) {
                continue;
            }
            if is_own(&target) && guards.guard_below(&above) {
                found = Some(format!("it leads into {RATH_DIR}"));
                break;
            }
            let mut visit = |path: &str| {
                let path = lossy_path(path);
                let below = path.strip_prefix(&*target).unwrap_or(&path).trim_start_matches('/');
                let name = if below.is_empty() { above.clone() } else { format!("{above}/{below}") };
                if let Some(next) = state.links.target(&path) {
                    rest.push((name.clone(), next.to_owned()));
                }
                found = self.guard_of_name(state, other, &name, &path, guards);
                if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            if self.workspace.files_below(state.snapshot, &target, &mut visit).is_err() {
                found = Some(format!("the files that it leads to cannot be listed: {target}"));
            }
        }
        if found.is_none() {
            self.walked.borrow_mut().extend(walked);
        }
        found
    }

    /// Returns what decides about the guards of the files below a name.
    fn walk(&self, state: LinkedFiles<'_>, name: &str, target: &str, guards: &NameGuards<'_>) -> LinkWalk {
        let mut fitting: Vec<_> = state.links.names(name).iter().flat_map(|name| (guards.fitting)(name)).collect();
        fitting.sort_unstable();
        fitting.dedup();
        LinkWalk {
            target: target.to_owned(),
            fitting,
            is_ignored: self.ignored_above(&format!("{name}/x")).is_some(),
            // Links may name what is below this very name.
            name: state.links.lead_below(name).then(|| name.to_owned()),
        }
    }

    /// Returns a guard of a name in one state that the file which it leads to does not have in the other.
    fn guard_of_name(
        &self,
        state: LinkedFiles<'_>,
        other: Option<LinkedFiles<'_>>,
        name: &str,
        path: &str,
        guards: &NameGuards<'_>,
    ) -> Option<String> {
        let names = state.links.names(name);
        self.compared.set(self.compared.get() + names.len());
        if self.compared.get() > MAX_COMPARED_NAMES {
            return Some("it leads to more files than can be compared with rules".to_owned());
        }
        // A repository that was there is protected by itself: another name changes nothing.
        let guards_of = if self.is_in_repository(path) { guards.rules } else { guards.all };
        let guarded: Vec<_> =
            names.iter().flat_map(|name| guards_of(name).into_iter().map(move |it| (it, name))).collect();
        if guarded.is_empty() {
            return None;
        }
        let others: BTreeSet<String> =
            other.iter().flat_map(|other| other.links.names(path)).flat_map(|name| guards_of(&name)).collect();
        let (guard, name) = guarded.into_iter().find(|(guard, _)| !others.contains(guard))?;
        Some(format!("{guard}, as {name}"))
    }

    /// Returns true for a path in a `.git` that was there before the call.
    fn is_in_repository(&self, path: &str) -> bool {
        let mut ends = path.match_indices('/').map(|(end, _)| &path[..end]);
        ends.any(|above| {
            let name = above.rsplit('/').next().unwrap_or_default();
            name.eq_ignore_ascii_case(".git") && self.before.snapshot.presence(above) != Presence::Absent
        })
    }
}

/// Returns true for a path in the `.rath` of the directory.
fn is_own(path: &str) -> bool {
    path.split('/').next().is_some_and(|name| name.eq_ignore_ascii_case(RATH_DIR))
}
