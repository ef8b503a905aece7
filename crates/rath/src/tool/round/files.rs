//! What the calls of a round do to files: looked at before the first that may write, and after each of them.

use std::ffi::OsStr;
use std::sync::Arc;

use rath_record::Step;
use rath_record::chunk::{Change, Effect, ToolResult, Tree};

use super::{Round, State};
use crate::sandbox::{self, Root};
use crate::session::BranchDir;
use crate::session::Result;
use crate::session::Session;
use crate::tool::Nature;
use crate::workspace;

/// What is known of the files that a round works on.
#[derive(Default)]
pub(super) struct Files {
    /// Where the calls are made.
    dir: Option<Arc<BranchDir>>,
    root: Option<Root>,
    /// As the results that are appended tell it.
    told: Option<Tree>,
    /// As they were seen last.
    seen: Option<Tree>,
    /// Whether nothing was waited for since they were seen.
    looked: bool,
    /// Whether calls ran side by side that may write: what each changed is told apart by what it touches.
    side_by_side: bool,
}

impl Files {
    /// The directory whose links say which paths are the same.
    pub(super) fn root(&self) -> Option<&Root> {
        self.root.as_ref()
    }

    /// Notes how far the branch is that works there.
    pub(super) fn reached(&self, session: &Session) {
        self.dir.iter().for_each(|dir| dir.set_head(session.head().map(Step::id)));
    }

    /// What a call changed that ends now, with the files as it leaves them.
    pub(super) fn left(&self, effects: Vec<Effect>) -> Option<Left> {
        self.seen.clone().map(|tree| Left { effects, tree })
    }

    /// The result with what the call changed.
    pub(super) fn tell(&mut self, session: &Session, result: ToolResult, left: Option<Left>) -> ToolResult {
        let Some(Left { mut effects, tree }) = left else { return result };
        let mut tree = Some(tree);
        if let (Some(told), Some(left), true) = (&self.told, &tree, self.side_by_side) {
            // The others that ran meanwhile have their own results.
            let apart = session.changes_of_call(told, left, &effects).ok();
            (tree, effects) = apart.map_or((None, effects), |(tree, effects)| (Some(tree), effects));
        }
        self.told = tree.clone();
        ToolResult { effects, tree, ..result }
    }
}

/// What a call left.
pub(super) struct Left {
    /// What changed while it ran and is its work, look by look.
    effects: Vec<Effect>,
    /// The files as they were when it ended.
    tree: Tree,
}

impl Round {
    /// Finds out where the calls are made, if that may matter. A fork's directory is made now.
    pub(super) async fn prepare(&mut self, session: &Session) {
        let needed = self.slots.iter().any(|slot| match &slot.state {
            State::Waiting { ready, .. } => ready.nature != Nature::ReadOnly || !ready.touches.is_empty(),
            _ => false,
        });
        if needed && session.place().is_some() {
            // Tools that need no place run without one; the others say what is wrong with it.
            self.files.dir = session.prepare_dir().await.ok();
            let directory = self.files.dir.as_ref().and_then(|dir| dir.sandbox().directory());
            self.files.root = directory.and_then(|directory| Root::open(directory).ok());
        }
    }

    /// Looks at the files if a call is about to be begun that may write and no other runs.
    pub(super) async fn look_before(&mut self, session: &mut Session) -> Result<()> {
        let may_write =
            |state: &State| matches!(state, State::Waiting { ready, .. } if ready.nature != Nature::ReadOnly);
        let about_to = self.slots.iter().any(|slot| may_write(&slot.state)) && self.first_writer().is_none();
        if about_to && !self.files.looked && self.files.dir.is_some() {
            session.observe().await?;
            self.files.looked = true;
            self.files.told = session.tree();
        }
        Ok(())
    }

    /// Looks at the files when a call has ended.
    ///
    /// What changed is its work, unless another that runs said that it touches it.
    pub(super) async fn look_after(&mut self, session: &Session, nth: usize) -> Result<()> {
        self.files.looked = false;
        if !self.may_write(nth) {
            return Ok(());
        }
        let Some((tree, effects)) = session.changes_since_last_look().await? else { return Ok(()) };
        self.files.seen = Some(tree);
        self.files.looked = true;
        let others: Vec<usize> =
            (0..self.slots.len()).filter(|other| *other != nth && self.may_write(*other)).collect();
        self.files.side_by_side |= !others.is_empty();
        for effect in effects {
            // What others that run are about to write is not there yet; that it went is no news.
            if is_temporary(&effect.path) && (effect.change == Change::Deleted || !others.is_empty()) {
                continue;
            }
            let owner = |path: &str| {
                let path = workspace::path_bytes(path);
                let covers = |slot: &usize| match &self.slots[*slot].state {
                    State::Running { touches, .. } => touches.iter().any(|touch| touch.covers(&path)),
                    _ => false,
                };
                if covers(&nth) { nth } else { others.iter().copied().find(covers).unwrap_or(nth) }
            };
            for (owner, effect) in shared(effect, owner) {
                if let State::Running { effects, .. } = &mut self.slots[owner].state {
                    effects.push(effect);
                }
            }
        }
        Ok(())
    }

    /// The first call that runs and may write.
    pub(super) fn first_writer(&self) -> Option<usize> {
        (0..self.slots.len()).find(|nth| self.may_write(*nth))
    }

    fn may_write(&self, nth: usize) -> bool {
        let runs = matches!(&self.slots[nth].state, State::Running { nature, .. } if *nature != Nature::ReadOnly);
        runs && self.files.dir.is_some()
    }
}

/// Whether a path is that of a file which a tool is about to put in the place of another.
fn is_temporary(path: &str) -> bool {
    sandbox::is_temporary_name(OsStr::new(path.rsplit('/').next().unwrap_or(path)))
}

/// An effect with whose work it is. What one call removed and another made was not renamed by either.
fn shared(effect: Effect, owner: impl Fn(&str) -> usize) -> Vec<(usize, Effect)> {
    let to = owner(&effect.path);
    match &effect.change {
        Change::Renamed { from } if owner(from) != to => {
            let gone = Effect { path: from.clone(), change: Change::Deleted, after: None, ..effect.clone() };
            vec![(owner(from), gone), (to, Effect { change: Change::Created, before: None, ..effect })]
        }
        _ => vec![(to, effect)],
    }
}
