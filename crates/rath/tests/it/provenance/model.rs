//! A model that looks at the files itself whenever it is asked: between two rounds of calls nothing else runs.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rath::Usage;
use rath::chunk::ToolSpec;
use rath::chunk::{Call, Finish, Identity};
use rath::prelude::*;
use rath::provider::{Answer, DeltaSink, ProviderBackend, ProviderError, Request, Settings, Shape};
use rath::tool::builtin::{EditFile, RunCode, Shell, WriteFile};
use rath::tool::{Output, Touch};
use serde_json::{Value, json};

use super::observer::{State, path, walk};
use super::plan::{Planned, Planner};
use super::{aside, outside};
use crate::store::common::Chance;

/// The events of a run, as an outside witness saw them.
#[derive(Debug)]
pub(crate) enum Event {
    /// Calls were made.
    Round { calls: Vec<Planned>, before: State, after: State },
    /// The test changed files itself.
    Outside { who: String, before: State, after: State },
}

/// A stretch of work of one branch.
pub(crate) struct Stretch {
    /// The directory that was given.
    root: PathBuf,
    /// Its directory, once that is known.
    pub(crate) dir: Option<PathBuf>,
    pub(crate) chance: Chance,
    /// The number of rounds that are left.
    pub(crate) left: u64,
    /// The number of the next call.
    pub(crate) next: u64,
    pub(crate) events: Vec<Event>,
    /// The files at its start.
    pub(crate) begun: Option<State>,
    open: Option<(Vec<Planned>, State)>,
}

impl Stretch {
    pub(crate) fn new(root: &Path, seed: u64, left: u64, next: u64) -> Self {
        let root = root.to_owned();
        Stretch { root, dir: None, chance: Chance(seed), left, next, events: Vec::new(), begun: None, open: None }
    }

    fn name(&mut self, kind: char) -> String {
        self.next += 1;
        format!("{kind}{}", self.next)
    }

    /// Looks around, and says what to do next.
    fn answer(&mut self, request: &Value) -> Vec<Call> {
        let Some(dir) = self.dir.clone() else {
            let Some(said) = last_result(request) else {
                return vec![Call::new(self.name('w'), "shell", r#"{"command":"stat -c %i ."}"#)];
            };
            let dir = find(&self.root, said.trim_end().parse().expect("a number"));
            self.begun = Some(walk(&dir));
            self.dir = Some(dir);
            return self.answer(request);
        };
        let mut now = walk(&dir);
        if let Some((calls, before)) = self.open.take() {
            self.events.push(Event::Round { calls, before, after: now.clone() });
        }
        if self.left == 0 {
            return Vec::new();
        }
        self.left -= 1;
        if self.chance.below(6) == 0 {
            let who = self.name('o');
            outside::change(&dir, &mut self.chance, &now, &who);
            let after = walk(&dir);
            self.events.push(Event::Outside { who, before: now, after: after.clone() });
            now = after;
        }
        let calls = if self.chance.below(6) == 0 {
            let names = [(); 4].map(|()| self.name('c'));
            aside::plan(&mut self.chance, &now, names)
        } else {
            let who = self.name('c');
            vec![Planner { chance: &mut self.chance, state: &now, who }.plan()]
        };
        let made =
            calls.iter().map(|call| Call::new(call.who.clone(), call.tool, call.arguments.to_string())).collect();
        self.open = Some((calls, now));
        made
    }
}

/// The directory of this number: the one that was given, or that of a fork. A sandbox may show it under another path.
fn find(root: &Path, inode: u64) -> PathBuf {
    let forks =
        std::fs::read_dir(root.join(".rath/work")).into_iter().flatten().map(|entry| entry.expect("an entry").path());
    let mut all = std::iter::once(root.to_owned()).chain(forks);
    all.find(|dir| std::fs::metadata(dir).expect("metadata").ino() == inode).expect("a directory of this session")
}

/// The output of the last call, if it is newer than the last message.
fn last_result(request: &Value) -> Option<&str> {
    let last = request["messages"].as_array()?.last()?;
    (last["role"] == "tool").then(|| last["content"].as_str())?
}

struct Model {
    identity: Identity,
    settings: Arc<Settings>,
    stretch: Arc<Mutex<Stretch>>,
}

impl ProviderBackend for Model {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    async fn send(&self, request: &Request, _: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
        let request = serde_json::from_slice(request.body()).expect("JSON");
        let calls = self.stretch.lock().unwrap_or_else(PoisonError::into_inner).answer(&request);
        let usage = Some(Usage::new(10, 1));
        Ok(match calls.is_empty() {
            true => Answer { text: "done".to_owned(), usage, ..Answer::default() },
            false => Answer { calls, finish: Finish::Calls, usage, ..Answer::default() },
        })
    }
}

/// An agent that does what a stretch of work says.
pub(crate) fn agent(stretch: &Arc<Mutex<Stretch>>) -> Agent {
    let identity = Identity { provider: "model".to_owned(), model: "observer".to_owned() };
    let settings = Arc::new(Settings::new(Shape::Chat));
    agent_of(&Provider::new(Model { identity, settings, stretch: stretch.clone() }))
}

/// An agent with all that scripts use.
pub(crate) fn agent_of(provider: &Provider) -> Agent {
    Agent::new("Work.", provider).tool(Shell).tool(WriteFile).tool(EditFile).tool(RunCode).tool(Stages)
}

/// Does one thing after the other to files, and lets others run in between.
struct Stages;

impl Tool for Stages {
    fn spec(&self) -> ToolSpec {
        let stages = json!({"type": "object", "properties": {"stages": {"type": "array"}}, "required": ["stages"]});
        ToolSpec::new("stages", "Changes files, stage by stage.", stages)
    }

    fn touches(&self, arguments: &Value) -> Vec<Touch> {
        let stages = arguments["stages"].as_array().into_iter().flatten();
        let paths = stages.flat_map(|stage| [&stage["write"], &stage["remove"], &stage["rename"], &stage["to"]]);
        paths.filter_map(Value::as_str).map(Touch::write).collect()
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let sandbox = cx.sandbox().await?;
        let dir = sandbox.directory().expect("a directory");
        let at = |value: &Value| value.as_str().map(|text| dir.join(path(text.as_bytes())));
        for stage in arguments["stages"].as_array().into_iter().flatten() {
            for _ in 0..stage["wait"].as_u64().unwrap_or(0) {
                tokio::task::yield_now().await;
            }
            let done = if let Some(path) = at(&stage["write"]) {
                make_room(&path);
                std::fs::write(path, stage["text"].as_str().unwrap_or_default())
            } else if let Some(path) = at(&stage["remove"]) {
                std::fs::remove_file(path)
            } else if let (Some(from), Some(to)) = (at(&stage["rename"]), at(&stage["to"])) {
                make_room(&to);
                std::fs::rename(from, to)
            } else {
                Ok(())
            };
            done.expect("it can be done");
        }
        Ok("done".into())
    }
}

fn make_room(path: &Path) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
}
