use std::ops::Range;

use proptest::test_runner::{Config, RngSeed};

/// Returns the seed of all random tests: `RATH_SEED`, or 0.
///
/// A test that derives its seed from anything else, such as the time, cannot be run again.
pub fn seed() -> u64 {
    number("RATH_SEED").unwrap_or(0)
}

/// Returns the number of cases that a property is tried with: `RATH_CASES`, or the default.
pub fn cases(default: u32) -> u32 {
    number("RATH_CASES").and_then(|cases| cases.try_into().ok()).unwrap_or(default)
}

/// Returns a number from an environment variable such as `RATH_KILLS`, or the default.
pub fn count(variable: &str, default: u64) -> u64 {
    number(variable).unwrap_or(default)
}

/// Returns true if `RATH_EXHAUSTIVE` asks for every case instead of a sample.
pub fn exhaustive() -> bool {
    std::env::var_os("RATH_EXHAUSTIVE").is_some()
}

/// Returns the seeds of a test that makes up one script for each seed: `RATH_SCRIPTS` of them, from [`seed`] on.
pub fn seeds(default: u64) -> Range<u64> {
    let first = seed();
    first..first.saturating_add(count("RATH_SCRIPTS", default))
}

/// Returns the configuration of a property test: a fixed seed, and no file of regressions.
///
/// The `PROPTEST_*` variables are applied by `proptest!` afterwards, and cannot be ignored from here: with one of them set,
/// other cases are run.
pub fn property(default_cases: u32) -> Config {
    let cases = cases(default_cases);
    Config {
        cases,
        rng_seed: RngSeed::Fixed(seed()),
        failure_persistence: None,
        max_local_rejects: 65_536,
        max_global_rejects: cases.saturating_mul(4).max(1024),
        max_shrink_iters: 4_096,
        verbose: 0,
        ..Config::default()
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, found `{text}`")))
}

/// Numbers that look random and are the same every time.
pub struct Chance(pub u64);

impl Chance {
    /// Returns a number below `most`, or 0 if that is 0.
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ bits >> 31) % most.max(1)
    }
}
