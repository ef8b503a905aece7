//! The cost of forking a session: `cargo xtask bench`.

use std::hint::black_box;

use rath::prelude::*;
use rath_bench::{self as table, Counting, Table};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let mut table = Table::default();
    let (long, short) = (notes(1_000_000), notes(10));

    let fork = |session: &Session| (0..1_000).for_each(|_| _ = black_box(session.fork()));
    let (at_long, at_short) = table::medians(51, || fork(&long), || fork(&short));
    table.at_most("fork of 1,000,000 steps against 10", at_long.as_secs_f64() / at_short.as_secs_f64(), 2.0);
    table.bytes("allocated by a fork of 1,000,000 steps", table::allocated(|| long.fork()), 1024);
    let fork_and_push = || {
        let mut fork = long.fork();
        fork.push(Chunk::note("first words"));
        fork
    };
    // The first text in which a secret is looked for fills caches of the process.
    drop(fork_and_push());
    table.bytes("allocated by that fork with its first step", table::allocated(fork_and_push), 4096);
    table.print();
}

fn notes(count: usize) -> Session {
    let mut session = Session::empty();
    (0..count).for_each(|nth| _ = session.push(Chunk::note(nth.to_string())));
    session
}
