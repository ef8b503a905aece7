//! Generated histories with two sides: equal for equal seeds.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rath_workspace::TreeId;
use rath_workspace::Workspace;

use super::super::support::Scratch;

/// A small pseudo-random generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % sides
    }
}

/// Returns a base and two edited copies of it.
pub(super) fn history(scratch: &Scratch, seed: u64) -> [TreeId; 3] {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..20 {
        dice.roll(2);
    }
    let root = scratch.folder.path().join("base");
    for nth in 0..6 + dice.roll(10) {
        let at = root.join(place(&mut dice));
        if !at.exists() && parents_are_directories(&root, &at) {
            super::super::put(&at, text(&mut dice, nth));
        }
    }
    let few = 1 + dice.roll(3);
    let sides: Vec<PathBuf> = ["ours", "theirs"]
        .into_iter()
        .map(|side| {
            let to = scratch.folder.path().join(side);
            copy(&root, &to);
            for _ in 0..few + dice.roll(5) {
                edit(&to, &mut dice);
            }
            to
        })
        .collect();
    [&root, &sides[0], &sides[1]].map(|root| {
        let index = root.with_extension("index");
        Workspace::open(root, &scratch.objects, &index).expect("opened").snapshot().expect("a snapshot").tree
    })
}

/// Returns the tree of a directory after a few edits.
pub(super) fn patched(scratch: &Scratch, of: &Path, seed: u64) -> TreeId {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let to = scratch.folder.path().join(format!("patched{seed}"));
    copy(of, &to);
    for _ in 0..2 + dice.roll(8) {
        edit(&to, &mut dice);
    }
    let index = to.with_extension("index");
    Workspace::open(&to, &scratch.objects, &index).expect("opened").snapshot().expect("a snapshot").tree
}

fn place(dice: &mut Dice) -> String {
    let name = |dice: &mut Dice| ["a", "b", "c", "d.py", "e.py", "lib.rs", "a-b", "main"][dice.roll(8)];
    let directory = |dice: &mut Dice| ["src", "doc", "a", "sub", "src"][dice.roll(5)];
    match dice.roll(4) {
        0 => name(dice).to_owned(),
        1 | 2 => format!("{}/{}", directory(dice), name(dice)),
        _ => format!("{}/{}/{}", directory(dice), directory(dice), name(dice)),
    }
}

/// Returns lines of which many occur in other files too, and some are frequent.
fn text(dice: &mut Dice, nth: usize) -> String {
    let lines = 5 + dice.roll(40);
    let line = |at: usize, dice: &mut Dice| match dice.roll(5) {
        0 => "}\n".to_owned(),
        1 => "\n".to_owned(),
        2 => format!("    return {at}\n"),
        _ => format!("line {at} of {nth}\n"),
    };
    (0..lines).map(|at| line(at, dice)).collect()
}

fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut rest = vec![root.to_owned()];
    while let Some(dir) = rest.pop() {
        for entry in fs::read_dir(dir).expect("a list") {
            let path = entry.expect("an entry").path();
            if fs::symlink_metadata(&path).expect("metadata").is_dir() { rest.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

fn parents_are_directories(root: &Path, path: &Path) -> bool {
    path.ancestors()
        .skip(1)
        .take_while(|above| *above != root)
        .all(|above| fs::symlink_metadata(above).map_or(true, |found| found.is_dir()))
}

fn edit(root: &Path, dice: &mut Dice) {
    let files = files(root);
    if files.is_empty() {
        return;
    }
    let one = files[dice.roll(files.len())].clone();
    let to = root.join(place(dice));
    let free = fs::symlink_metadata(&to).is_err() && parents_are_directories(root, &to);
    match dice.roll(14) {
        0..=4 => change(&one, dice),
        5 if free => move_to(&one, &to),
        6 if free => {
            move_to(&one, &to);
            change(&to, dice);
        }
        7 => {
            let dir = one.parent().expect("a parent").to_owned();
            let to = root.join(["moved", "other", "doc", "src/deep", "a"][dice.roll(5)]);
            if dir != root
                && !to.starts_with(&dir)
                && fs::symlink_metadata(&to).is_err()
                && parents_are_directories(root, &to)
            {
                move_to(&dir, &to);
            }
        }
        8 => fs::remove_file(&one).expect("removed"),
        9 | 10 if free => super::super::put(&to, text(dice, 77)),
        11 => {
            if fs::symlink_metadata(&one).expect("metadata").is_file() {
                let mode = fs::metadata(&one).expect("metadata").permissions().mode() ^ 0o111;
                fs::set_permissions(&one, fs::Permissions::from_mode(mode)).expect("set");
            }
        }
        12 => {
            fs::remove_file(&one).expect("removed");
            symlink(["a", "b"][dice.roll(2)], &one).expect("a link");
        }
        _ => {
            if dice.roll(3) == 0 {
                fs::remove_file(&one).expect("removed");
                super::super::put(&one.join("inside"), text(dice, 5));
            } else if dice.roll(3) == 0 {
                fs::remove_file(&one).expect("removed");
                fs::write(&one, [b"\0binary".to_vec(), vec![dice.roll(200) as u8; 50]].concat()).expect("written");
            } else {
                change(&one, dice);
            }
        }
    }
}

fn change(path: &Path, dice: &mut Dice) {
    if !fs::symlink_metadata(path).expect("metadata").is_file() {
        return;
    }
    let bytes = fs::read(path).expect("read");
    let Ok(content) = String::from_utf8(bytes) else { return };
    let mut lines: Vec<String> = content.split_inclusive('\n').map(str::to_owned).collect();
    for _ in 0..1 + dice.roll(3) {
        let at = dice.roll(lines.len() + 1);
        let new = match dice.roll(3) {
            0 => "}\n".to_owned(),
            1 => format!("changed {}\n", dice.roll(4)),
            _ => format!("changed {}\n", dice.roll(1000)),
        };
        match dice.roll(4) {
            0 => lines.insert(at, new),
            1 if at < lines.len() => drop(lines.remove(at)),
            _ if at < lines.len() => lines[at] = new,
            _ => lines.push(new),
        }
    }
    let mut content = lines.concat();
    if dice.roll(6) == 0 {
        content.truncate(content.trim_end().len());
    }
    fs::write(path, content).expect("written");
}

fn move_to(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().expect("a parent")).expect("directories");
    fs::rename(from, to).expect("moved");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for file in files(from) {
        let to = to.join(file.strip_prefix(from).expect("below"));
        fs::create_dir_all(to.parent().expect("a parent")).expect("directories");
        fs::copy(&file, to).expect("copied");
    }
}
