//! Runs the fuzz target on its corpus and on small mutations of it. See CONTRIBUTING.md for `cargo fuzz`.

use rath_test_support::{cases, seed};

#[path = "../../fuzz/check.rs"]
mod check;

#[test]
fn the_corpus_and_its_mutations_never_panic() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/codec");
    let mut seeds: Vec<_> = std::fs::read_dir(folder)
        .expect("the corpus")
        .map(|entry| std::fs::read(entry.expect("an entry").path()).expect("a seed"))
        .collect();
    seeds.sort();
    assert!(seeds.len() >= 8, "the corpus is there");
    for input in &seeds {
        check::codec(input);
    }
    // A fixed walk through mutations: the same on every run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_add(seed()).max(1);
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    for _ in 0..cases(3_000) {
        let mut input = seeds[random(seeds.len())].clone();
        for _ in 0..=random(3) {
            let at = random(input.len() + 1);
            match random(4) {
                0 => input.truncate(at),
                1 => input.insert(at, b"\n{}[]\",:\\u0\x80\xff"[random(13)]),
                2 if at < input.len() => input[at] ^= 1 << random(8),
                _ => {
                    let other = &seeds[random(seeds.len())];
                    let from = random(other.len() + 1);
                    let to = (from + random(200)).min(other.len());
                    input.splice(at..at, other[from..to].iter().copied());
                }
            }
        }
        check::codec(&input);
    }
}
