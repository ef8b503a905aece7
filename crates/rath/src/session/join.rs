//! Merging sessions, and work that is recorded aside.

use std::sync::Arc;

use rath_record::chunk::{Chunk, Forked, Merged, Placed, Strategy, Tree};
use rath_record::{CallId, MergeError, Record, Step};

use super::{Session, SessionBranch};
use crate::error::ErrorKind;
use crate::provider::RequestCache;
use crate::session::{Error, Result};

impl Session {
    /// Merges two sessions: the shared steps once, then ours, then theirs.
    ///
    /// The result is a branch of its own; if one session contains the other, it is an untouched fork of that one. Fails while
    /// either has a call without a result. [`merge_all`](Session::merge_all) merges many.
    ///
    /// Files are merged as git merges them. Conflicts are recorded with both versions, and block the session until each is
    /// [decided](Session::decide). Sessions without files are merged at once, on the current thread.
    pub async fn merge(&self, theirs: &Session) -> Result<Self> {
        self.merge_by(theirs, Strategy::Ancestor).await
    }

    /// Merges two sessions by a given strategy.
    pub async fn merge_by(&self, theirs: &Session, strategy: Strategy) -> Result<Self> {
        if let Some(place) = self.place_after_merge(theirs) {
            // The result stays in the place of this session.
            let here = |tree: Option<Tree>| Placed::new(place.to_string()).with_tree(tree);
            let ours = self.fork().with(here(self.tree()));
            let mut merged = ours.merge_records(theirs, strategy).await?;
            let tree = merged.tree();
            merged.push(here(tree));
            merged.live.place = self.live.place.merged(self, theirs);
            return Ok(merged);
        }
        self.merge_records(theirs, strategy).await
    }

    async fn merge_records(&self, theirs: &Session, strategy: Strategy) -> Result<Self> {
        let branch = SessionBranch::new();
        let Forked { nth, counter, from, .. } = self.fork_chunk(None);
        let step = self.merge_files(theirs, strategy).await?.with_nth(nth).with_counter(counter).with_from(from);
        let step = self.secrets().clone().with(theirs.secrets()).hide_in_merge(step);
        self.recognise(theirs);
        let record = self.record.merge(&theirs.record, step, self.stamp(&branch, None)).map_err(|error| {
            let hint = match error {
                MergeError::OpenCall { .. } => {
                    "record the call's result, or merge an earlier step of it: `session.at(step)`"
                }
                _ => "merge by `Strategy::Ancestor`, which keeps what is shared once",
            };
            Error::new(ErrorKind::Merge, "cannot merge").with_hint(hint).because(error).with_session(self)
        })?;
        let mut merged = if record.head() == self.record.head() {
            self.fork_merging(theirs)
        } else if record.head() == theirs.record.head() {
            theirs.fork_merging(self).recorded_by(self.live.recorder.clone())
        } else {
            let step = record.head().cloned();
            let mut merged = Session { record, branch, placed: Arc::default(), ..self.clone() };
            merged.live.ownership = self.ownership_with(theirs);
            step.into_iter().for_each(|step| merged.publish(step));
            merged
        };
        // The result has the budget, the author and the directory of ours.
        merged.budget = self.budget.clone().or(theirs.budget.clone());
        merged.by = self.by.clone();
        let mut recorder = merged.live.recorder.take();
        recorder.iter_mut().zip(&theirs.live.recorder).for_each(|(ours, theirs)| ours.wait_for(theirs));
        merged.live = self.live.clone();
        merged.live.policy = self.live.policy.clone().or(theirs.live.policy.clone());
        merged.live.recorder = recorder;
        merged.live.place = self.live.place.merged(self, theirs);
        merged.live.ownership = self.ownership_with(theirs);
        merged.hide_also(theirs.secrets());
        // Theirs stands for both, and was never written to this store.
        if merged.is_head_unrecorded() {
            merged.begin();
        }
        Ok(merged)
    }

    /// Returns the fork that stands for a merge with a session that this one contains. If it has files, its first step says so: they are
    /// to be written to the directory that the two share.
    fn fork_merging(&self, contained: &Session) -> Self {
        let mut fork = self.fork();
        let other = contained.head().map(Step::id).filter(|_| self.place().is_some() && self.tree().is_some());
        fork.branch.opening = fork.branch.opening.map(|opening| opening.with_merges(other));
        fork
    }

    /// Merges many sessions, in order. Views are the same as after merging one by one, at a far lower cost.
    pub async fn merge_all(sessions: impl IntoIterator<Item = Session>) -> Result<Self> {
        // By pairs: each step is compared log2(n) times instead of n times.
        let mut sessions: Vec<_> = sessions.into_iter().collect();
        while sessions.len() > 1 {
            let mut merged = Vec::with_capacity(sessions.len().div_ceil(2));
            for pair in sessions.chunks(2) {
                merged.push(match pair {
                    [ours, theirs] => ours.merge(theirs).await?,
                    rest => rest[0].clone(),
                });
            }
            sessions = merged;
        }
        Ok(sessions.pop().unwrap_or_else(Session::empty))
    }

    /// Creates an empty session for work aside from this one: in the same place and budget, one fork deeper.
    ///
    /// [`keep_aside`](Session::keep_aside) puts its steps on this record.
    pub fn aside(&self, name: impl Into<String>) -> Self {
        let mut opening = self.fork_chunk(Some(name.into()));
        opening.from = opening.from.or(self.head().map(Step::id));
        let branch = SessionBranch { opening: Some(opening), ..SessionBranch::new() };
        let mut aside = Session {
            record: Record::new(),
            branch,
            rendered: RequestCache::default(),
            placed: Arc::default(),
            ..self.clone()
        }
        .deeper();
        if let Some(place) = self.place() {
            aside.push(Placed::new(place.to_string()));
        }
        aside.live.place = self.live.place.within(self);
        aside
    }

    /// Records the work of another session aside: its cost counts and the log shows it, but no model reads it, and no view of
    /// this session has its files or checks. Either session may have calls without a result.
    pub fn keep_aside(&mut self, work: &Session) {
        self.keep_aside_of(work, None);
    }

    /// Records the work of another session aside, as the work of one of the calls of this session.
    pub(crate) fn keep_aside_of(&mut self, work: &Session, call: Option<CallId>) {
        // A record needs a first step before anything can be aside from it.
        if self.head().is_none() {
            self.push(Chunk::note("begins with work that is kept aside"));
        }
        self.begin();
        self.hide_also(work.secrets());
        self.live.ownership = self.ownership_with(work);
        self.recognise(work);
        let counter = self.branch.forks.id;
        self.branch.count_forks_anew();
        let Forked { nth, from, .. } = self.fork_chunk(None);
        let stamp = self.stamp(&self.branch, None);
        let merge = Merged::new(Strategy::Aside).with_nth(nth).with_counter(counter).with_from(from).with_call(call);
        let merge = self.secrets().hide_in_merge(merge);
        let merged = self.record.merge(&work.record, merge, stamp);
        let merged = merged.expect("open calls and length do not matter for work aside");
        let step = merged.head().filter(|head| Some(*head) != self.head()).cloned();
        self.record = merged;
        step.into_iter().for_each(|step| self.publish(step));
    }
}
