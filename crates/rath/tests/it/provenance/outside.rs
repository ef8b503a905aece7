//! Changes from outside, between two calls.

use std::fs;
use std::path::Path;

use super::authors::texts;
use super::observer::{State, path};
use super::plan::written;
use crate::store::common::Chance;

/// Changes something in a directory. Nothing is moved: whose lines those are is for calls to say.
pub(crate) fn change(dir: &Path, chance: &mut Chance, state: &State, who: &str) {
    let files: Vec<_> = texts(state).filter(|(path, _)| *path != b".gitignore").collect();
    let line = written(chance, who, 1).remove(0) + "\n";
    let new = dir.join(format!("{who} of mine.txt"));
    let Some((name, content)) = files.get(chance.below(files.len() as u64) as usize) else {
        return fs::write(new, line).expect("written");
    };
    let file = dir.join(path(name));
    match chance.below(7) {
        0 => fs::write(new, line).expect("written"),
        1 => fs::remove_file(file).expect("removed"),
        2 => fs::write(file, [line.as_bytes(), content].concat()).expect("written"),
        3 => fs::write(file, [content, line.as_bytes()].concat()).expect("written"),
        // Of what is not kept, it is told that it changed.
        4 => fs::write(dir.join("mine.log"), line).expect("written"),
        // Nothing at all.
        5 => {
            fs::write(&new, line).expect("written");
            fs::remove_file(new).expect("removed");
        }
        // Other bytes, of the same number, under the same time.
        _ if content.len() >= line.len() => {
            let found = fs::metadata(&file).expect("metadata");
            fs::write(&file, [line.as_bytes(), &content[line.len()..]].concat()).expect("written");
            let file = fs::File::options().append(true).open(file).expect("open");
            file.set_modified(found.modified().expect("a time")).expect("set");
        }
        _ => {}
    }
}
