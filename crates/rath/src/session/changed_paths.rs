//! The paths that a call changed: their names through links, and the guards that files gain or lose by a changed link.
//!
//! A rule or a guard is about a file under all of its names, before the call and after it. A link is not a file of its own here: a
//! call that makes, changes or removes a link changes no content, and yet a guarded name may lead to another file then. So a call
//! may change no link by which a file gains or loses a guard.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

use rath_record::chunk::Effect;

use super::versions::lossy_path;
use crate::links::Links;
use crate::workspace::{Presence, Snapshot, Workspace};

/// The largest number of names through changed links that are compared with guards after one call.
const MAX_COMPARED_NAMES: usize = 200_000;
/// The largest number of links that one path goes through.
const MAX_LINKS_ON_WAY: usize = 8;

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
    /// fits. `guards_of` returns the guards that fit a name.
    pub(crate) fn guard_by_link(&self, link: &str, guards_of: &dyn Fn(&str) -> Vec<String>) -> Option<String> {
        let after = self.after.map(|(after, _)| after);
        let states = [(Some(self.before), after), (after, Some(self.before))];
        states.into_iter().find_map(|(state, other)| {
            let state = state.filter(|state| state.snapshot.is_link(link))?;
            let link: &str = &lossy_path(link);
            // A link that goes up behind this one (`link/../file`) leads to files that are not below it.
            let mut links = [link].into_iter().chain(state.links.passing(link).iter().map(String::as_str));
            links.find_map(|link| self.guard_only_in(state, other, link, guards_of))
        })
    }

    /// Returns a guard that a file has by a link in one state and not in the other.
    fn guard_only_in(
        &self,
        state: LinkedFiles<'_>,
        other: Option<LinkedFiles<'_>>,
        link: &str,
        guards_of: &dyn Fn(&str) -> Vec<String>,
    ) -> Option<String> {
        let mut found = None;
        // Names that lead through the link, each with the path that it leads to and the directories that it has passed.
        let mut rest = vec![(link.to_owned(), state.links.target(link)?.to_owned(), Vec::new())];
        while let (Some((above, target, mut passed)), None) = (rest.pop(), &found) {
            passed.push(target.clone());
            let mut visit = |path: &str| {
                let path = lossy_path(path);
                let below = path.strip_prefix(&*target).unwrap_or(&path).trim_start_matches('/');
                let name = if below.is_empty() { above.clone() } else { format!("{above}/{below}") };
                if let Some(next) = state.links.target(&path)
                    && passed.len() < MAX_LINKS_ON_WAY
                    && !passed.iter().any(|known| known == next)
                {
                    rest.push((name.clone(), next.to_owned(), passed.clone()));
                }
                found = self.guard_of_name(state, other, &name, &path, guards_of);
                if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            if self.workspace.files_below(state.snapshot, &target, &mut visit).is_err() {
                found = Some(format!("the files that it leads to cannot be listed: {target}"));
            }
        }
        found
    }

    /// Returns a guard of a name in one state that the file which it leads to does not have in the other.
    fn guard_of_name(
        &self,
        state: LinkedFiles<'_>,
        other: Option<LinkedFiles<'_>>,
        name: &str,
        path: &str,
        guards_of: &dyn Fn(&str) -> Vec<String>,
    ) -> Option<String> {
        let names = state.links.names(name);
        self.compared.set(self.compared.get() + names.len());
        if self.compared.get() > MAX_COMPARED_NAMES {
            return Some("it leads to more files than can be compared with rules".to_owned());
        }
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
}
