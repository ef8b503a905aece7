//! Random work on files under an outside observer: every change that it saw is on the record, nothing else is, and every
//! line has its author.
//!
//! `RATH_SCRIPTS` sets how many scripts are made up and run, and `RATH_SEED` the seed of the first. A script that fails is
//! printed with its seed.

mod aside;
mod authors;
mod edits;
mod forks;
mod model;
mod observer;
mod outside;
mod plan;
mod rows;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rath::Origin;
use rath::prelude::*;
use rath::record::{Step, StepId};
use rath::turn::Next;
use rath_test_support::seeds;

use self::authors::{Authors, Moved, texts};
use self::model::{Event, Stretch};
use self::observer::{
    State, assert_same, changes, check_renames, kept, lines, recorded, reported_changes, shown, walk,
};
use crate::store::common::Chance;
use crate::support::{block_on, folder, put};

/// A branch, and what is known of it from outside.
#[derive(Clone)]
struct Line {
    session: Session,
    state: State,
    authors: Authors,
}

/// A script as it goes on.
struct Story {
    seed: u64,
    chance: Chance,
    folder: rath_test_support::TempDir,
    /// The number of the newest call.
    next: u64,
    /// The steps that calls, and others, are on the record with.
    steps: HashMap<String, StepId>,
    /// The actions so far, for the message of a failure.
    script: Vec<String>,
    /// Moments to come back to.
    moments: Vec<Line>,
    calls: u64,
}

/// Prints what led to a failure.
impl Drop for Story {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("RATH_SEED={} RATH_SCRIPTS=1 runs this again:\n{}", self.seed, self.script.join("\n"));
        }
    }
}

/// The names of the files that scripts begin with.
const FIRST: [&str; 6] = ["a.txt", "sub/c.txt", "sub/deep/f.txt", "it's.txt", "side/1.txt", "side/6/8.txt"];

impl Story {
    /// A directory with a few files, and a session that has seen them.
    fn begin(seed: u64, open: fn(&Path) -> Sandbox) -> (Self, Line) {
        let (folder, mut chance) = (folder(&[(".gitignore", observer::RULES)]), Chance(seed));
        for name in FIRST {
            put(folder.path(), name, &(plan::written(&mut chance, "before", 6).join("\n") + "\n"));
        }
        let session = Session::user("go").to(open(folder.path()));
        let state = walk(folder.path());
        let authors = authors::begin(&state, "before");
        let (steps, script, moments) = (HashMap::new(), Vec::new(), Vec::new());
        let story = Story { seed, chance, folder, next: 0, steps, script, moments, calls: 0 };
        (story, Line { session, state, authors })
    }

    /// Goes on with a branch for a few rounds, and compares what it says of them with what was seen.
    fn go_on(&mut self, line: Line, rounds: u64) -> Line {
        let Line { mut session, state, authors } = line;
        if session.next() == Next::Done {
            session.push(Chunk::user("go on"));
        }
        let known = session.as_record().steps().len();
        let stretch = Stretch::new(self.folder.path(), self.chance.below(u64::MAX), rounds, self.next);
        let stretch = Arc::new(Mutex::new(stretch));
        let session = block_on(model::agent(&stretch).run(session)).expect("a run");
        let mut stretch = stretch.lock().unwrap_or_else(PoisonError::into_inner);
        self.next = stretch.next;
        let events = std::mem::take(&mut stretch.events);
        let begun = stretch.begun.take().expect("it looked around");
        self.script.push(format!("-- {} in {:?}", session.id().short(), stretch.dir));
        self.script.extend(events.iter().flat_map(described));
        assert_same(&kept(&begun), &kept(&state), "what it begins with");
        self.compare(Line { session, state: begun, authors }, known, events)
    }

    fn compare(&mut self, line: Line, known: usize, events: Vec<Event>) -> Line {
        let Line { session, mut state, mut authors } = line;
        let record = session.as_record().steps();
        let mut steps =
            record[known..].iter().filter(|step| matches!(step.chunk(), Chunk::Observed(_) | Chunk::ToolResult(_)));
        if self.steps.is_empty() {
            let first = steps.next().expect("what was there first");
            assert!(first.chunk().effects().is_empty());
            self.steps.insert("before".to_owned(), first.id());
        }
        // Where it works is asked first, and changes nothing.
        let asked = steps.next().expect("where it works");
        assert_eq!(asked.chunk().effects(), [], "asking where it works");
        let mut at = asked.id();
        for event in events {
            match event {
                Event::Outside { before, after, .. } if changes(&before, &after).is_empty() => {}
                Event::Outside { who, before, after } => {
                    let step = steps.next().expect("a step");
                    assert_eq!(step.chunk().kind(), "observed", "{who}");
                    authors = authors::after(&authors, &after, &who, &Moved::default());
                    self.check(&session, step, &who, &before, &after);
                    at = step.id();
                    state = after;
                }
                Event::Round { calls, before, after } => {
                    let mut now = before.clone();
                    let count = calls.len();
                    for call in calls {
                        let next = if count == 1 { after.clone() } else { aside::left(&now, &call.leaves) };
                        let step = steps.next().expect("a step");
                        let Chunk::ToolResult(result) = step.chunk() else { panic!("{}: {step:?}", call.who) };
                        assert_eq!(result.call.to_string(), call.who);
                        authors = authors::after(&authors, &next, &call.who, &call.moved);
                        self.check(&session, step, &call.who, &now, &next);
                        at = step.id();
                        now = next;
                        self.calls += 1;
                    }
                    assert_same(&kept(&now), &kept(&after), "all that was done");
                    state = after;
                }
            }
            if self.chance.below(12) == 0 {
                let session = session.at(at).expect("a step");
                self.moments.push(Line { session, state: state.clone(), authors: authors.clone() });
            }
        }
        assert_eq!(steps.next(), None, "nothing else is on the record");
        Line { session, state, authors }
    }

    /// Compares one step with what was seen before and after it.
    fn check(&mut self, session: &Session, step: &Step, who: &str, before: &State, after: &State) {
        let effects = step.chunk().effects();
        assert_eq!(reported_changes(effects), changes(before, after), "what {who} changed");
        check_renames(effects, before, after);
        let then = checked_out(&session.at(step.id()).expect("a step"));
        assert_same(&then, &kept(after), &format!("what {who} left"));
        self.steps.insert(who.to_owned(), step.id());
    }

    /// That every line of every file has the author that it names.
    fn check_authors(&self, line: &Line) {
        for (path, content) in texts(&line.state) {
            let blame = block_on(line.session.blame(&recorded(path))).expect("versions").expect("a file");
            let texts: Vec<_> = blame.lines.iter().map(|line| line.text.as_bytes()).collect();
            assert_eq!(texts, lines(content).collect::<Vec<_>>(), "the lines of {}", shown(path));
            for found in &blame.lines {
                let allowed = &line.authors[path][found.text.as_bytes()];
                let told = match &found.origin {
                    Origin::Before => "before".to_owned(),
                    Origin::Call(author) => author.call.id.to_string(),
                    Origin::Outside | Origin::InDoubt(_) => {
                        let known = self.steps.iter().find(|(_, step)| **step == found.step);
                        known.expect("a step").0.clone()
                    }
                    Origin::Merge => "a merge".to_owned(),
                    Origin::Forgotten => "a forgotten step".to_owned(),
                };
                assert!(allowed.contains(&told), "`{}` in {}: {told}, not {allowed:?}", found.text, shown(path));
                assert_eq!(self.steps.get(&told), Some(&found.step), "the step of {told}");
            }
        }
    }

    /// Two forks that go on by themselves, and what comes of them.
    fn part_and_meet(&mut self, line: Line) -> Line {
        let fork = |line: &Line| Line { session: line.session.fork(), ..line.clone() };
        let (ours, theirs) = (fork(&line), fork(&line));
        let (some, more) = (1 + self.chance.below(3), 1 + self.chance.below(3));
        let ours = self.go_on(ours, some);
        let theirs = self.go_on(theirs, more);
        let session = block_on(ours.session.merge(&theirs.session)).expect("merged");
        if !session.conflicts().is_empty() {
            self.script.push("-- in conflict".to_owned());
            return if self.chance.below(2) == 0 { ours } else { line };
        }
        self.script.push("-- merged".to_owned());
        let state = checked_out(&session);
        let sides = [&ours, &theirs].map(|side| (&side.state, &side.authors));
        let authors = authors::joined(sides, &state);
        let line = Line { session, state, authors };
        self.check_authors(&line);
        line
    }
}

/// The files of a session, as they are elsewhere.
fn checked_out(session: &Session) -> State {
    let out = rath_test_support::temp_dir();
    block_on(session.checkout(out.path().join("out"))).expect("checked out");
    kept(&walk(&out.path().join("out")))
}

/// Lists the actions, one a line.
fn described(event: &Event) -> Vec<String> {
    match event {
        Event::Outside { who, before, after } => {
            let changes: BTreeSet<_> = changes(before, after).into_keys().collect();
            vec![format!("{who}: outside, {changes:?}")]
        }
        Event::Round { calls, .. } => {
            calls.iter().map(|call| format!("{}: {} {}", call.who, call.tool, call.arguments)).collect()
        }
    }
}

/// One script from beginning to end; how many calls it made.
fn tell(seed: u64, open: fn(&Path) -> Sandbox) -> u64 {
    let (mut story, mut line) = Story::begin(seed, open);
    for _ in 0..2 {
        let rounds = 2 + story.chance.below(4);
        line = story.go_on(line, rounds);
        line = story.part_and_meet(line);
    }
    line = story.go_on(line, 2);
    story.moments.push(line);
    let moments = std::mem::take(&mut story.moments);
    moments.iter().for_each(|line| story.check_authors(line));
    story.calls
}

#[test]
fn what_an_observer_saw_is_on_the_record_and_nothing_else_and_every_line_has_its_author() {
    let calls: u64 = seeds(6).map(|seed| tell(seed, |path| Sandbox::local(path))).sum();
    eprintln!("{calls} calls were made");
}

#[test]
fn the_same_holds_in_isolation() {
    let folder = rath_test_support::temp_dir();
    if let Err(error) = block_on(Sandbox::isolated(folder.path()).capabilities()) {
        return eprintln!("nothing is isolated here: {error}");
    }
    let calls: u64 = seeds(2).map(|seed| tell(seed, |path| Sandbox::isolated(path))).sum();
    eprintln!("{calls} calls were made");
}
