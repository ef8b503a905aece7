//! Lines back into steps.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::CodecError;
use super::damage::{Fault, Report};
use super::lines::{Found, FoundStep, Lines, Position};
use super::row::Writer;
use crate::id::{BranchId, Digest, StepId};
use crate::lineage::{Order, StepSet};
use crate::payload::Payload;
use crate::record::Record;
use crate::step::{Link, Parents, Step, Stored};
use crate::turn::OpenCalls;

/// Reads a whole file.
pub fn read(bytes: &[u8]) -> Result<Opened, CodecError> {
    let mut reader = Reader::new();
    reader.feed(bytes);
    reader.finish()
}

/// What a file holds.
#[derive(Debug)]
#[non_exhaustive]
pub struct Opened {
    /// The record up to the newest step.
    pub record: Record,
    /// Every step that no other follows, oldest first. More than one where the file holds several branches or a lost
    /// row parts a line.
    pub heads: Vec<Step>,
    /// Every step that stands in the file, in the order of its rows.
    pub steps: Vec<Step>,
    /// What a check of the file found.
    pub report: Report,
    /// Where whoever writes on begins; none if there is no row.
    pub position: Option<Position>,
    /// Who wrote last, if the file was written on.
    pub writer: Option<Writer>,
    /// Every payload that the file has.
    pub payloads: Vec<Digest>,
    /// The steps that were found in the files of other sessions, and those that they rest on.
    pub elsewhere: HashSet<StepId>,
}

/// Turns the bytes of a file back into steps, checking all of them.
#[derive(Default)]
pub struct Reader {
    lines: Lines,
    steps: Steps,
}

impl Reader {
    /// A reader at the beginning of a file.
    pub fn new() -> Self {
        Reader::default()
    }

    /// Takes in the next bytes.
    pub fn feed(&mut self, block: &[u8]) {
        self.lines.feed(block, &mut |_, found| self.steps.take(found));
    }

    /// Asks `find` for the steps that stand in the files of other sessions.
    pub fn elsewhere(mut self, find: impl FnMut(StepId, BranchId) -> Option<Step> + Send + 'static) -> Self {
        self.steps.elsewhere = Some(Box::new(find));
        self
    }

    /// A step that was read already.
    pub fn step(&self, id: StepId) -> Option<&Step> {
        self.steps.known.get(&id).map(|(_, step)| step)
    }

    /// Takes in the end of the file.
    pub fn finish(mut self) -> Result<Opened, CodecError> {
        self.lines.finish(&mut |_, found| self.steps.take(found))?;
        let (position, writer) = (self.lines.position(), self.lines.writer().cloned());
        let mut report = self.lines.report;
        self.steps.settle(&mut report);
        report.damage.sort_by_key(|damage| damage.line);
        let payloads = self.steps.payloads.keys().copied().collect();
        let elsewhere = Order::once(self.steps.others.iter()).collect().into_iter().map(Step::id).collect();
        let steps = self.steps.in_order(&elsewhere);
        let heads = self.steps.heads();
        let record = heads.last().cloned().map(Record::at).unwrap_or_default();
        Ok(Opened { record, heads, steps, report, position, writer, payloads, elsewhere })
    }
}

/// Finds a step in the file of another session.
type Elsewhere = Box<dyn FnMut(StepId, BranchId) -> Option<Step> + Send>;

#[derive(Default)]
struct Steps {
    /// Every step, with the number of its row.
    known: HashMap<StepId, (u64, Step)>,
    /// Steps of other branches that are named alike.
    alike: Vec<(u64, Step)>,
    /// The step read last, and the calls that wait there.
    last: Option<(StepId, OpenCalls)>,
    followed: StepSet,
    /// Every payload, with the number of its row.
    payloads: HashMap<Digest, (u64, Payload)>,
    /// What is known not to be here, with the number of the row that says so.
    gone: HashMap<Digest, u64>,
    elsewhere: Option<Elsewhere>,
    /// What it found.
    others: Vec<Step>,
    /// Steps that came before a parent or a payload of theirs: rows were swapped, or one is lost.
    waiting: Vec<FoundStep<'static>>,
}

impl Steps {
    fn take(&mut self, found: Found<'_>) {
        match found {
            Found::Payload(place, digest, payload) => _ = self.payloads.entry(digest).or_insert((place.n, payload)),
            Found::Gone(place, name, elsewhere) => {
                let id = StepId(name.0);
                let step = elsewhere.and_then(|file| self.elsewhere.as_mut()?(id, file));
                match step {
                    Some(step) => {
                        self.others.push(step.clone());
                        self.known.entry(id).or_insert((place.n, step));
                    }
                    None => _ = self.gone.entry(name).or_insert(place.n),
                }
            }
            Found::Step(step) if self.missing(&step).is_empty() => self.link(step),
            Found::Step(step) => {
                self.waiting.push(FoundStep { json: Cow::Owned(step.json.into_owned()), ..step });
            }
        }
    }

    /// Links what waited, in the order in which it was written.
    fn settle(&mut self, report: &mut Report) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by_key(|step| step.place.n);
        for step in waiting {
            for fault in self.missing(&step) {
                report.add(step.place.damage(Some(step.id), fault));
            }
            self.link(step);
        }
    }

    /// The parents and payloads that should stand before a step and do not.
    fn missing(&self, step: &FoundStep<'_>) -> Vec<Fault> {
        let before = |n: Option<u64>, name: Digest| {
            n.or_else(|| self.gone.get(&name).copied()).is_some_and(|n| n < step.place.n)
        };
        let parents =
            step.parents.as_slice().iter().filter(|id| !before(self.known.get(id).map(|(n, _)| *n), Digest(id.0)));
        let payloads = step.chunk.references().into_iter();
        let payloads = payloads.filter(|digest| !before(self.payloads.get(digest).map(|(n, _)| *n), *digest));
        parents.copied().map(Fault::MissingParent).chain(payloads.map(Fault::MissingPayload)).collect()
    }

    fn link(&mut self, found: FoundStep<'_>) {
        let FoundStep { place, id, parents, stamp, mut chunk, json, withheld } = found;
        // Two branches may begin alike; a row that says the same of the same branch is a copy.
        let is_known = match self.known.get(&id) {
            Some((_, known)) if known.stamp().branch == stamp.branch => return,
            known => known.is_some(),
        };
        chunk.fill(|digest| self.payloads.get(digest).map(|(_, payload)| payload.clone()));
        let link = |id: &StepId| match self.known.get(id) {
            Some((_, step)) => Link::Step(step.clone()),
            None => Link::Gone(Box::new(*id)),
        };
        let links = match parents.as_slice() {
            [] => Parents::None,
            [parent] => Parents::One(link(parent)),
            [ours, theirs, ..] => Parents::Two([link(ours), link(theirs)]),
        };
        // Nearly every step goes on from the one just read; only then is what it knows of open calls at hand.
        let goes_on = matches!((&links, &self.last), (Parents::One(parent), Some((last, _))) if parent.id() == *last);
        let mut open = match self.last.take() {
            Some((_, open)) if goes_on => open,
            _ => OpenCalls::before(&links),
        };
        self.followed.extend(links.as_slice().iter().filter_map(Link::step).map(Step::id));
        let step = Step::stored(links, Stored { chunk, json: &json, withheld }, stamp, &mut open);
        self.last = Some((id, open));
        match is_known {
            true => self.alike.push((place.n, step)),
            false => _ = self.known.insert(id, (place.n, step)),
        }
    }

    fn in_order(&self, elsewhere: &HashSet<StepId>) -> Vec<Step> {
        let own = self.known.values().filter(|(_, step)| !elsewhere.contains(&step.id()));
        let mut steps: Vec<_> = own.chain(&self.alike).collect();
        steps.sort_by_key(|(n, _)| *n);
        steps.into_iter().map(|(_, step)| step.clone()).collect()
    }

    fn heads(self) -> Vec<Step> {
        let mut heads: Vec<_> =
            self.known.into_values().filter(|(_, step)| !self.followed.contains(&step.id())).collect();
        heads.sort_by_key(|(n, _)| *n);
        heads.into_iter().map(|(_, step)| step).collect()
    }
}
