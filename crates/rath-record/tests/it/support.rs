//! A small language for records, so that a test can describe one in a line.
//!
//! Statements are separated by `;` or line breaks. `user hi` pushes a step to the current branch (`main` at first);
//! `on NAME` switches to another branch, `fork NAME` makes one and switches to it, `merge NAME` merges it into the
//! current one, which is then called `merge 1`. Steps can be labelled, `x= user hi`, and named in
//! `compress x y: summary`. A statement in brackets, `[note x] user hi`, pushes `note x`, and withholds its
//! content afterwards: what is left claims to be `user hi`, and the id stays.

use std::collections::HashMap;

use rath_record::chunk::{
    Adopted, Approved, Asked, Assistant, Call, CallOrigin, Change, Checked, Choice, Chunk, Compressed, Conflict,
    Decided, Denied, Effect, Failed, FileVersion, Finish, Forked, Interrupted, Memory, MemoryEvent, Merged, Observed,
    Outcome, Placed, RecalledEntry, Resolution, Retry, Selected, Strategy, ToolResult, ToolStarted, Tree, Verdict,
};
use rath_record::turn::{self, Next};
use rath_record::{BranchId, Digest, MergeError, Parent, Parents, Record, Stamp, Step, StepId, StoredChunk, Usage};

/// Runs a script and returns the record of the current branch at its end.
pub(crate) fn record(script: &str) -> Record {
    let mut scenario = scenario(script);
    let record = scenario.current_record().clone();
    match &scenario.withheld[..] {
        [] => record,
        withheld => withhold(&record, withheld),
    }
}

/// Runs a script and returns all its branches.
pub(crate) fn scenario(script: &str) -> Scenario {
    let mut scenario = Scenario::default();
    for statement in script.split([';', '\n']).map(str::trim).filter(|statement| !statement.is_empty()) {
        scenario.run(statement);
    }
    scenario
}

#[derive(Default)]
pub(crate) struct Scenario {
    pub(crate) branches: Vec<(String, Record)>,
    merges: u64,
    pub(crate) labels: HashMap<String, StepId>,
    current: usize,
    forks: u64,
    withheld: Vec<(StepId, Chunk)>,
}

/// Returns a record without branches in which the content of some steps was replaced by claims. All ids stay.
fn withhold(record: &Record, withheld: &[(StepId, Chunk)]) -> Record {
    let mut rebuilt = Record::new();
    for step in record.steps() {
        let stamp = step.stamp().clone();
        let Some((_, claimed)) = withheld.iter().find(|(id, _)| *id == step.id()) else {
            rebuilt.push(step.chunk().clone(), stamp);
            continue;
        };
        let parents = rebuilt.head().map_or(Parents::None, |head| Parents::One(Parent::Loaded(head.clone())));
        let totals = rebuilt.push(claimed.clone(), stamp.clone()).encode_totals();
        let mut json = Vec::new();
        claimed.encode(&mut json);
        let json = std::str::from_utf8(&json).expect("JSON");
        let stored =
            StoredChunk { chunk: claimed.clone(), json, withheld: Some(Digest::compute(step.json().as_bytes())) };
        rebuilt = Record::at(Step::from_store(step.id(), parents, stored, stamp, &totals).expect("totals"));
    }
    assert_eq!(rebuilt.head().map(Step::id), record.head().map(Step::id));
    rebuilt
}

/// Returns a change of each path.
fn effects_on(paths: &str) -> Vec<Effect> {
    let effect =
        |path: &str| Effect::new(path.to_owned(), Change::Modified).with_after(Digest::compute(path.as_bytes()));
    paths.split_whitespace().map(effect).collect()
}

fn conflict(path: &str) -> Conflict {
    let version = |object: &str| {
        Some(FileVersion { path: path.to_owned(), object: object.to_owned(), mode: "100644".to_owned() })
    };
    let (ours, theirs) = (version("ours"), version("theirs"));
    Conflict::new(path.to_owned(), "content").with_ours(ours).with_theirs(theirs)
}

impl Scenario {
    pub(crate) fn current_record(&mut self) -> &mut Record {
        if self.branches.is_empty() {
            self.branches.push(("main".to_owned(), Record::new()));
        }
        &mut self.branches[self.current].1
    }

    pub(crate) fn branch(&self, name: &str) -> &Record {
        &self.branches.iter().find(|(known, _)| known == name).expect("an existing branch").1
    }

    fn run(&mut self, statement: &str) {
        if let Some((said, claim)) = statement.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
            self.run(said);
            let (verb, rest) = claim.split_once(' ').unwrap_or((claim, ""));
            let (claimed, id) = (self.chunk(verb, rest), self.current_record().head().expect("a step").id());
            self.withheld.push((id, claimed));
            return;
        }
        let (label, statement) = match statement.split_once('=') {
            Some((label, rest)) if label.chars().all(char::is_alphanumeric) => (Some(label), rest.trim()),
            _ => (None, statement),
        };
        let (verb, rest) = statement.split_once(' ').unwrap_or((statement, ""));
        match verb {
            "on" => self.current = self.branches.iter().position(|(name, _)| name == rest).expect("a branch"),
            "fork" => {
                let mut record = self.current_record().clone();
                self.forks += 1;
                let name = (!rest.starts_with('b')).then(|| rest.to_owned());
                record.push(Chunk::Forked(Forked::new(self.forks).with_name(name)), Stamp::on(branch(rest)));
                self.current = self.branches.len();
                self.branches.push((rest.to_owned(), record));
            }
            "merge" => {
                self.merges += 1;
                let name = format!("merge {}", self.merges);
                let stamp = Stamp::on(branch(&name));
                let (theirs, tree) = rest.split_once(' ').map_or((rest, None), |(theirs, tree)| (theirs, Some(tree)));
                let merge = Merged::new(Strategy::Ancestor).with_tree(tree.map(|tree| Tree(tree.to_owned())));
                let merged = self.current_record().clone().merge(self.branch(theirs), merge, stamp);
                self.branches[self.current] = (name, merged.expect("nothing is open"));
            }
            "aside" => {
                let name = self.branches[self.current].0.clone();
                let kept =
                    self.current_record().clone().merge(self.branch(rest), Strategy::Aside, Stamp::on(branch(&name)));
                self.branches[self.current].1 = kept.expect("aside merges never fail");
            }
            _ => {
                let chunk = self.chunk(verb, rest);
                let name = self.branches.get(self.current).map_or("main", |(name, _)| name).to_owned();
                let mut stamp = Stamp::on(branch(&name));
                if let Chunk::Assistant(_) = chunk {
                    stamp = stamp.usage(Usage::new(10, 1)).by(format!("agent.{name}"));
                }
                let id = self.current_record().push(chunk, stamp).id();
                self.labels.extend(label.map(|label| (label.to_owned(), id)));
            }
        }
    }

    /// Returns the origin of the open call that a decision is about.
    fn origin(&self, id: &str) -> Option<CallOrigin> {
        let Next::RunTools(calls) = turn::next(&self.branches[self.current].1) else { return None };
        Some(turn::call_to_decide(&calls, &id.into())?.origin)
    }

    fn chunk(&self, verb: &str, rest: &str) -> Chunk {
        let (word, more) = rest.split_once(' ').unwrap_or((rest, ""));
        match verb {
            "user" => Chunk::user(rest),
            "instructions" => Chunk::instructions(rest),
            "assistant" => Chunk::assistant(rest),
            "calls" => calls(rest),
            "started" => ToolStarted::new(word).into(),
            "result" => result(word, more, vec![]),
            "wrote" => {
                let (path, content) = more.split_once(' ').expect("wrote CALL PATH CONTENT [WAS]");
                let (content, was) = content.split_once(' ').unwrap_or((content, ""));
                let before = (!was.is_empty()).then(|| Digest::compute(was.as_bytes()));
                result(
                    word,
                    "",
                    vec![
                        Effect::new(path.to_owned(), if before.is_some() { Change::Modified } else { Change::Created })
                            .with_before(before)
                            .with_after(Digest::compute(content.as_bytes())),
                    ],
                )
            }
            "renamed" => {
                let [from, to, content] = more.split(' ').collect::<Vec<_>>()[..] else {
                    panic!("renamed CALL FROM TO CONTENT")
                };
                let digest = Some(Digest::compute(content.as_bytes()));
                result(
                    word,
                    "",
                    vec![
                        Effect::new(to.to_owned(), Change::Renamed { from: from.to_owned() })
                            .with_before(digest)
                            .with_after(digest),
                    ],
                )
            }
            "removed" => result(word, "", vec![Effect::new(more.to_owned(), Change::Deleted)]),
            "unknown" => ToolResult::new(word, Outcome::Unknown, "").into(),
            "adopted" => Adopted::new(word).into(),
            "asked" => Asked::new(word, more).into(),
            "approved" => Approved::new(word).into(),
            "denied" => Denied::new(word, more).into(),
            "approve" => Approved::new(word).with_origin(self.origin(word)).into(),
            "deny" => Denied::new(word, more).with_origin(self.origin(word)).into(),
            "placed" => Placed::new(rest.to_owned()).into(),
            "remember" => memory(MemoryEvent::Remember { text: rest.into(), path: None, steps: vec![] }),
            "recall" => memory(MemoryEvent::Recall {
                query: word.into(),
                found: more
                    .split(',')
                    .filter(|found| !found.is_empty())
                    .map(|found| RecalledEntry::new(format!("entry {found}"), found))
                    .collect(),
                position: None,
                notice: None,
            }),
            "observed" => Observed::new(Tree(word.to_owned())).with_effects(effects_on(more)).into(),
            "clash" => Merged::new(Strategy::Ancestor).with_conflicts(vec![conflict(word)]).into(),
            "decided" => {
                let (tree, effects) = (Tree(more.to_owned()), effects_on(word));
                Decided::new(word.to_owned(), Resolution::Ours, tree).with_effects(effects).into()
            }
            "saw" => {
                let (tree, inputs) = more.split_once(' ').unwrap_or((more, ""));
                Checked::new(word.to_owned(), Verdict::Passed)
                    .with_tree(Tree(tree.to_owned()))
                    .with_inputs(inputs.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
                    .into()
            }
            "checked" => {
                Checked::new(word.to_owned(), if more == "passed" { Verdict::Passed } else { Verdict::Failed }).into()
            }
            "compress" => {
                let (hidden, summary) = rest.split_once(':').expect("compress LABELS: SUMMARY");
                let hidden: Vec<_> = hidden.split_whitespace().map(|label| self.labels[label]).collect();
                Compressed::new(hidden, summary.trim()).into()
            }
            "retry" => Retry::new(1, 3, rest).into(),
            "interrupted" => Interrupted::new(rest).into(),
            "failed" => Failed::new("provider", rest).into(),
            "selected" => {
                let choice = match rest {
                    "done" => Choice::Done,
                    "nothing" => Choice::Unparseable,
                    route => Choice::Chosen { route: route.to_owned() },
                };
                Selected::new(vec![], rest, choice).into()
            }
            "note" => Chunk::note(rest),
            _ => panic!("no such statement: {verb}"),
        }
    }
}

pub(crate) fn calls(list: &str) -> Chunk {
    let calls = list.split_whitespace().map(|call| {
        let (tool, id) = call.split_once('#').expect("calls TOOL#ID ..");
        Call::new(id, tool, "{}")
    });
    Assistant::default().with_calls(calls.collect::<Vec<_>>()).with_finish(Finish::Calls).into()
}

pub(crate) fn result(call: &str, output: &str, effects: Vec<Effect>) -> Chunk {
    ToolResult::new(call, Outcome::Ok, output).with_effects(effects).into()
}

fn memory(event: MemoryEvent) -> Chunk {
    Memory::new("m", event).into()
}

/// Derives a branch id from a name.
pub(crate) fn branch(name: &str) -> BranchId {
    let mut id = [0; 16];
    id.copy_from_slice(&Digest::compute(name.as_bytes()).0[..16]);
    BranchId(id)
}

pub(crate) fn merge(ours: &Record, theirs: &Record) -> Result<Record, MergeError> {
    ours.merge(theirs, Strategy::Ancestor, Stamp::on(branch("merged")))
}

/// Returns every step once, found without the code under test.
pub(crate) fn reachable(record: &Record) -> HashMap<StepId, rath_record::Step> {
    let mut reached = HashMap::new();
    let mut queue: Vec<_> = record.head().cloned().into_iter().collect();
    while let Some(step) = queue.pop() {
        if reached.insert(step.id(), step.clone()).is_none() {
            queue.extend(step.parents().iter().filter_map(|parent| parent.step().cloned()));
        }
    }
    reached
}
