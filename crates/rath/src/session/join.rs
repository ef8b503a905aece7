//! Two sessions made into one, and work that is kept beside a session.

use std::sync::Arc;

use rath_record::chunk::{Chunk, Forked, Merged, Placed, Strategy};
use rath_record::{MergeError, Record, Step};

use super::{Branch, Session};
use crate::error::ErrorKind;
use crate::provider::RequestCache;
use crate::session::{Error, Result};

impl Session {
    /// Joins two sessions: what they share once, then ours, then theirs.
    ///
    /// The result is a branch of its own: an untouched fork of ours or theirs where that one holds both already.
    /// Refused while either has a call without a result. To join many, [`merge_all`](Session::merge_all).
    ///
    /// Files are joined as git joins them. What both changed in ways that do not fit together is on the record with both
    /// versions, and nothing goes on before somebody [decides](Session::decide).
    pub fn merge(&self, theirs: &Session) -> Result<Self> {
        self.merge_by(theirs, Strategy::Ancestor)
    }

    /// Joins two sessions by a strategy of your choice.
    pub fn merge_by(&self, theirs: &Session, strategy: Strategy) -> Result<Self> {
        if let Some(place) = self.place_to_come_back_to(theirs) {
            // What comes of it is here, whatever theirs did elsewhere last.
            let here = |tree| Placed { place: place.to_string(), tree };
            let ours = self.fork().and(here(self.tree()));
            let mut merged = ours.join(theirs, strategy)?;
            let tree = merged.tree();
            merged.push(here(tree));
            merged.live.place = self.live.place.merged(self, theirs);
            return Ok(merged);
        }
        self.join(theirs, strategy)
    }

    fn join(&self, theirs: &Session, strategy: Strategy) -> Result<Self> {
        let branch = Branch::new();
        let Forked { nth, from, .. } = self.parting(None);
        let how = Merged { nth, from, ..self.join_files(theirs, strategy)? };
        self.recognise(theirs);
        let record = self.record.merge(&theirs.record, how, self.stamp(&branch, None)).map_err(|error| {
            let hint = match error {
                MergeError::OpenCall { .. } => "record the call's result, or merge from an earlier step with `at`",
                MergeError::TooLong { .. } => "merge by `Strategy::Ancestor`, which keeps what is shared once",
            };
            Error::new(ErrorKind::Merge, "cannot merge").with_hint(hint).because(error).with_session(self)
        })?;
        let mut merged = if record.head() == self.record.head() {
            self.fork()
        } else if record.head() == theirs.record.head() {
            theirs.fork().recorded_by(self.live.recorder.clone())
        } else {
            let step = record.head().cloned();
            let mut merged = Session { record, branch, placed: Arc::default(), ..self.clone() };
            step.into_iter().for_each(|step| merged.tell(step));
            merged
        };
        // However they are joined, what comes of it lies where ours lay.
        merged.budget = self.budget.clone().or(theirs.budget.clone());
        merged.by = self.by.clone();
        let mut recorder = merged.live.recorder.take();
        recorder.iter_mut().zip(&theirs.live.recorder).for_each(|(ours, theirs)| ours.wait_for(theirs));
        merged.live = self.live.clone();
        merged.live.recorder = recorder;
        merged.live.place = self.live.place.merged(self, theirs);
        merged.hide_also(theirs.secrets());
        // Theirs stands for both, and the store has never seen it.
        if merged.is_unkept() {
            merged.begin();
        }
        Ok(merged)
    }

    /// Joins many sessions, in order. Shows what merging them one after the other shows, and costs far less.
    pub fn merge_all(sessions: impl IntoIterator<Item = Session>) -> Result<Self> {
        // By pairs: each step is then compared as often as the sessions can be halved, and not once for each of them.
        let mut sessions: Vec<_> = sessions.into_iter().collect();
        while sessions.len() > 1 {
            let pairs = sessions.chunks(2).map(|pair| match pair {
                [ours, theirs] => ours.merge(theirs),
                rest => Ok(rest[0].clone()),
            });
            sessions = pairs.collect::<Result<_>>()?;
        }
        Ok(sessions.pop().unwrap_or_else(Session::empty))
    }

    /// A session in which nothing was said, for work beside this one: the same place, the same budget, one fork deeper.
    ///
    /// What comes of it is put on this record with [`keep_aside`](Session::keep_aside).
    pub fn aside(&self, name: impl Into<String>) -> Self {
        let mut opening = self.parting(Some(name.into()));
        opening.from = opening.from.or(self.head().map(Step::id));
        let branch = Branch { opening: Some(opening), ..Branch::new() };
        let mut aside = Session {
            record: Record::new(),
            branch,
            rendered: RequestCache::default(),
            placed: Arc::default(),
            ..self.clone()
        }
        .deeper();
        if let Some(place) = self.place() {
            aside.push(Placed { place: place.to_string(), tree: None });
        }
        aside.live.place = self.live.place.within(self);
        aside
    }

    /// Keeps the work of another session on this record, aside: what it cost and what it changed counts, the log shows
    /// it, and no model that is asked from here reads it. It may have calls without a result, and so may this one.
    pub fn keep_aside(&mut self, work: &Session) {
        // There has to be a line that it can stand beside.
        if self.head().is_none() {
            self.push(Chunk::note("begins with work that is kept aside"));
        }
        self.begin();
        self.hide_also(work.secrets());
        self.recognise(work);
        let Forked { nth, from, .. } = self.parting(None);
        let stamp = self.stamp(&self.branch, None);
        let kept = self.record.merge(&work.record, Merged { nth, from, ..Strategy::Aside.into() }, stamp);
        let kept = kept.expect("neither calls nor length are in the way of keeping something aside");
        let step = kept.head().filter(|head| Some(*head) != self.head()).cloned();
        self.record = kept;
        step.into_iter().for_each(|step| self.tell(step));
    }
}
