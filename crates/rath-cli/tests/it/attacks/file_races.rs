//! Paths that lead inside when they are looked at, and outside when they are used.
//!
//! Without the guard a program compares the path without its links first, and uses it then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::file_paths::use_tools;
use super::place::{CANARY, EVIL, Place};
use super::{Attack, Guard, HoldsIn, Observation, Plane, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    let rows = SWAPS.iter().map(|(name, one, other, path, prepare)| {
        let attempt = move |trial| try_swap(trial, [one, other], path, *prepare);
        Attack::new(name, Plane::FileTools, HoldsIn::Both, attempt)
    });
    rows.collect()
}

type SwapRow = (&'static str, &'static str, &'static str, &'static str, fn(&Place));

/// Two names that are exchanged all the time, and a path through one of them.
const SWAPS: &[SwapRow] = &[
    ("a directory swapped for a link", "d", "e", "d/secret", |place| {
        place.write("work/d/secret", "harmless");
        place.link("e", "../outside");
    }),
    ("a directory swapped below another", "below/d", "below/e", "below/d/secret", |place| {
        place.write("work/below/d/secret", "harmless");
        place.link("below/e", "{out}");
    }),
    ("a file swapped for a link", "f", "g", "f", |place| {
        place.write("work/f", "harmless");
        place.link("g", "../outside/secret");
    }),
    ("a link swapped for a link", "l", "m", "l/secret", |place| {
        place.write("work/below/secret", "harmless");
        place.link("l", "below");
        place.link("m", "{out}");
    }),
    ("a directory swapped for the store", "d", "e", "d/secret", |place| {
        place.write("work/d/secret", "harmless");
        place.write("work/.rath/secret", CANARY);
        place.link("e", ".rath");
    }),
    ("a directory swapped on the way up", "d", "e", "d/sub/../secret", |place| {
        place.write("work/d/sub/x", "harmless");
        place.write("work/d/secret", "harmless");
        place.link("e", "../outside");
    }),
];

const MAX_TRIES: usize = 200_000;
const GUARDED_TRIES: usize = 40;

fn try_swap(trial: Trial, names: [&str; 2], path: &str, prepare: fn(&Place)) -> Observation {
    let place = Place::new();
    prepare(&place);
    let before = [place.survey("outside"), place.survey("work/.rath/secret")];
    let [one, other] = names.map(|name| place.path("work").join(name));
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let thread = std::thread::spawn(move || {
        while !stopped.load(Relaxed) {
            renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).expect("exchanged");
            std::thread::yield_now();
        }
    });
    let work = place.path("work");
    let mut is_read = String::new();
    for _ in 0..if trial.guard == Guard::On { GUARDED_TRIES } else { MAX_TRIES } {
        is_read = match trial.guard {
            Guard::On => use_tools(&place, trial.sandbox, path).concat(),
            Guard::Off => {
                let allowed = work
                    .join(path)
                    .canonicalize()
                    .is_ok_and(|found| found.starts_with(&work) && !found.starts_with(work.join(".rath")));
                let text =
                    if allowed { std::fs::read_to_string(work.join(path)).unwrap_or_default() } else { String::new() };
                if allowed && text.contains(CANARY) {
                    // It is inside when it is looked at, and outside when it is read and written.
                    let _ = std::fs::write(work.join(path), EVIL);
                }
                text
            }
        };
        if is_read.contains(CANARY) {
            break;
        }
    }
    stop.store(true, Relaxed);
    thread.join().expect("it has ended");
    let is_changed = [place.survey("outside"), place.survey("work/.rath/secret")] != before;
    Observation::new(is_read.contains(CANARY) || is_changed, is_read)
}
