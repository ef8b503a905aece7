//! The promises that every memory keeps.

use rath::Memory;
use rath::memory::{Forget, Lookup, MemoryErrorKind, Note, NoteId, NotePath, Position, Query, Source};

/// An empty memory for one promise, which can be opened again and again.
pub struct MemoryCase(Box<dyn FnMut() -> Memory>);

impl MemoryCase {
    /// A memory that outlives its handles: `open` opens the same one each time.
    pub fn new(open: impl FnMut() -> Memory + 'static) -> Self {
        MemoryCase(Box::new(open))
    }

    /// A memory that lasts as long as a handle on it.
    pub fn lasting(memory: Memory) -> Self {
        MemoryCase::new(move || memory.clone())
    }

    fn open(&mut self) -> Memory {
        (self.0)()
    }
}

/// Goes through every promise, each with an empty memory of its own, and panics at the first that is not kept.
pub fn conforms(case: &mut dyn FnMut() -> MemoryCase) {
    for (name, promise) in PROMISES {
        eprintln!("memory: {name}");
        promise(&mut case());
    }
}

/// A promise, and the test that shows it.
type Promise = (&'static str, fn(&mut MemoryCase));

const PROMISES: [Promise; 10] = [
    ("an empty memory finds and lists nothing", empty),
    ("what was remembered is found and read when it is opened again", is_there_again),
    ("a question without a match finds nothing", no_match),
    ("a note that is remembered twice is one", twice),
    ("notes of one text from two sources stay two", duplicates),
    ("a new version is found instead of the old one", versions),
    ("what is forgotten is neither found nor listed, and says so when it is read", forgets),
    ("what is forgotten does not come back", stays_forgotten),
    ("a path limits a question and a list", paths),
    ("a question at a position sees what was known then, and the notes of its own", positions),
];

fn empty(case: &mut MemoryCase) {
    let memory = case.open();
    assert!(found(&memory, "anything").is_empty());
    assert!(listed(&memory).is_empty());
    assert_eq!(wait(memory.read(&id("never"))).expect("read"), Lookup::Unknown);
    if can_forget(&memory) {
        assert!(wait(memory.forget(&[id("never")])).expect("forgotten").is_empty());
    }
    assert!(!memory.uri().is_empty());
}

fn is_there_again(case: &mut MemoryCase) {
    let source = Source::new("a session", vec!["1a2b".to_owned()]);
    let path: NotePath = "memory://shared/gates".parse().expect("a path");
    let note = Note::with_id(id("gate"), path, "The gate opens at nine.").said_by("Ann").at(7_000_000).source(source);
    wait(case.open().remember(note.clone())).expect("durable");
    let memory = case.open();
    assert_eq!(wait(memory.read(&note.id)).expect("read"), Lookup::Note(Box::new(note.clone())));
    let hits = wait(memory.recall("When does the gate open?")).expect("an answer");
    assert_eq!(hits.len(), 1);
    assert!(hits[0].note == note && hits[0].score > 0.0);
}

fn no_match(case: &mut MemoryCase) {
    let memory = case.open();
    remember(&memory, "gate", "The gate opens at nine.");
    for question in ["", " ", "the", "zeppelin", "?!"] {
        assert!(found(&memory, question).is_empty(), "{question}");
    }
    assert!(wait(memory.remember(Note::new(" "))).is_err(), "a note has a text");
}

fn twice(case: &mut MemoryCase) {
    let memory = case.open();
    remember(&memory, "gate", "The gate opens at nine.");
    remember(&memory, "gate", "The gate opens at nine.");
    assert_eq!(listed(&memory), ["gate"]);
}

fn duplicates(case: &mut MemoryCase) {
    let memory = case.open();
    remember(&memory, "one", "The gate opens at nine.");
    remember(&memory, "two", "The gate opens at nine.");
    assert_eq!(listed(&memory), ["one", "two"]);
    // They may be shown as one, which names the other.
    let hits = wait(memory.recall("gate")).expect("an answer");
    let shown = hits.iter().flat_map(|hit| hit.duplicates.iter().chain([&hit.note.id]));
    let mut shown: Vec<String> = shown.map(ToString::to_string).collect();
    shown.sort();
    assert_eq!(shown, ["one", "two"]);
}

fn versions(case: &mut MemoryCase) {
    let memory = case.open();
    remember(&memory, "gate", "The gate opens at nine.");
    let new = wait(memory.update(&id("gate"), "The gate opens at ten.")).expect("a new version");
    assert_eq!(found(&memory, "gate"), [new.to_string()]);
    let Lookup::Note(note) = wait(memory.read(&new)).expect("read") else { panic!("the new version is there") };
    assert_eq!(note.replaces, Some(id("gate")));
    assert!(matches!(wait(memory.read(&id("gate"))).expect("read"), Lookup::Note(_)), "the old version is kept");
    if !can_forget(&memory) {
        return;
    }
    wait(memory.forget(&[new])).expect("forgotten");
    assert!(found(&memory, "gate").is_empty(), "the old version does not come back");
}

fn forgets(case: &mut MemoryCase) {
    let memory = case.open();
    remember(&memory, "gate", "The gate opens at nine.");
    remember(&memory, "door", "The door opens at eight.");
    if !can_forget(&memory) {
        assert_eq!(listed(&memory), ["gate", "door"], "what cannot be forgotten stays");
        return;
    }
    let of_session = Note::with_id(id("said"), scope("session"), "The gate is red.");
    wait(memory.remember(of_session.at(50).source(Source::new("s", Vec::new())))).expect("durable");
    assert_eq!(wait(memory.forget(&[id("gate")])).expect("forgotten"), [id("gate")]);
    assert_eq!(wait(memory.forget_where(&Forget::OfSession("s".to_owned()))).expect("forgotten"), [id("said")]);
    for memory in [memory, case.open()] {
        assert!(found(&memory, "gate").is_empty());
        assert_eq!(found(&memory, "door"), ["door"]);
        assert_eq!(listed(&memory), ["door"]);
        assert!(matches!(wait(memory.read(&id("gate"))).expect("read"), Lookup::Forgotten(_)));
    }
    let memory = case.open();
    wait(memory.remember(Note::with_id(id("new"), scope("user"), "The door is blue.").at(100))).expect("durable");
    wait(memory.forget_where(&Forget::SaidBefore(100))).expect("forgotten");
    assert_eq!(listed(&memory), ["new"]);
    wait(memory.remember(Note::with_id(id("brief"), scope("user"), "The door is open.").at(100).expires(200)))
        .expect("durable");
    wait(memory.forget_where(&Forget::Expired(200))).expect("forgotten");
    assert_eq!(listed(&memory), ["new"]);
}

fn stays_forgotten(case: &mut MemoryCase) {
    let memory = case.open();
    remember(&memory, "gate", "The gate opens at nine.");
    if !can_forget(&memory) {
        return;
    }
    wait(memory.forget(&[id("gate")])).expect("forgotten");
    remember(&memory, "gate", "The gate opens at nine.");
    assert!(found(&memory, "gate").is_empty() && listed(&memory).is_empty());
}

fn paths(case: &mut MemoryCase) {
    let memory = case.open();
    for (name, path) in
        [("a", "memory://user/doors"), ("b", "memory://user/doorsteps"), ("c", "memory://shared/doors/front")]
    {
        let path = path.parse().expect("a path");
        wait(memory.remember(Note::with_id(id(name), path, format!("The gate of {name} is open.")))).expect("durable");
    }
    let under = |path: &str| -> NotePath { path.parse().expect("a path") };
    let mut found =
        ids(wait(memory.recall(Query::new("gate").under(under("memory://user/doors")))).expect("an answer"));
    assert_eq!(found, ["a"]);
    let both = Query::new("gate").under(under("memory://user")).under(under("memory://shared/doors"));
    found = ids(wait(memory.recall(both)).expect("an answer"));
    found.sort();
    assert_eq!(found, ["a", "b", "c"]);
    let shared = wait(memory.list(&[under("memory://shared")], Position::default(), 9)).expect("a list");
    assert_eq!(shared.into_iter().map(|(_, note)| note.id.to_string()).collect::<Vec<_>>(), ["c"]);
}

fn positions(case: &mut MemoryCase) {
    let memory = case.open();
    remember(&memory, "before", "The gate opens at nine.");
    // A memory without positions cannot be asked about an earlier time.
    let Some(position) = wait(memory.position()).expect("a position") else { return };
    let own = |name: &str| {
        let note = Note::with_id(id(name), scope("session"), format!("The gate of {name} is red."));
        note.source(Source::new("s", Vec::new()))
    };
    wait(memory.remember_all(&[own("mine"), own("of-another-branch")])).expect("durable");
    remember(&memory, "after", "The gate opens at ten.");
    let ask = |query: Query| {
        let mut found = ids(wait(memory.recall(query)).expect("an answer"));
        found.sort();
        found
    };
    assert_eq!(ask(Query::new("gate")), ["after", "before", "mine", "of-another-branch"]);
    assert_eq!(ask(Query::new("gate").as_of(position)), ["before"]);
    assert_eq!(ask(Query::new("gate").session("s", vec![id("mine")])), ["after", "before", "mine"]);
    assert_eq!(ask(Query::new("gate").session("s", vec![id("mine")]).as_of(position)), ["before", "mine"]);
}

/// Returns true if a memory can forget. One that cannot has to say so whenever it is asked to, and why.
fn can_forget(memory: &Memory) -> bool {
    if !memory.capabilities().forgets {
        for what in [
            Forget::Notes(vec![id("gate")]),
            Forget::OfSession("s".to_owned()),
            Forget::SaidBefore(9),
            Forget::Expired(9),
        ] {
            let error = wait(memory.forget_where(&what)).expect_err("it cannot forget");
            assert_eq!(error.kind(), MemoryErrorKind::Unsupported, "{error}");
            assert!(error.message().contains("cannot forget"), "{error}");
        }
    }
    memory.capabilities().forgets
}

fn remember(memory: &Memory, name: &str, text: &str) {
    wait(memory.remember(Note::with_id(id(name), scope("user"), text).at(10))).expect("durable");
}

fn found(memory: &Memory, question: &str) -> Vec<String> {
    ids(wait(memory.recall(question)).expect("an answer"))
}

fn ids(hits: rath::memory::Hits) -> Vec<String> {
    hits.into_iter().map(|hit| hit.note.id.to_string()).collect()
}

fn listed(memory: &Memory) -> Vec<String> {
    let notes = wait(memory.list(&[], Position::default(), 100)).expect("a list");
    notes.into_iter().map(|(_, note)| note.id.to_string()).collect()
}

fn id(name: &str) -> NoteId {
    name.parse().expect("an id")
}

fn scope(name: &str) -> NotePath {
    name.parse().expect("a scope")
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}
