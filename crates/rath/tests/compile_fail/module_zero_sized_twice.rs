use rath::prelude::*;

/// Leaves a note.
#[derive(Module)]
struct Note;

#[derive(Module)]
struct Notes {
    first: Note,
    second: Note,
}

fn main() {}
