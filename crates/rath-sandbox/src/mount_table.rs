//! The mounts of this process, and the other paths at which they show a file or a directory.
//!
//! A directory can be mounted at several paths. A path that is hidden is hidden at all of them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The mounts that this process sees.
#[derive(Clone, Debug, Default)]
pub(crate) struct MountTable {
    mounts: Vec<Mount>,
}

#[derive(Clone, Debug)]
struct Mount {
    /// The numbers of the file system. Each file system of Btrfs has them once, for all its subvolumes.
    device: Vec<u8>,
    /// The directory of the file system that is mounted.
    root: PathBuf,
    at: PathBuf,
}

/// A path at which a file or a directory may be shown once more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Alias {
    at: PathBuf,
    /// The path that was asked for, or one below it.
    of: PathBuf,
}

impl MountTable {
    /// Reads the mounts of now.
    pub(crate) fn read() -> std::io::Result<Self> {
        Ok(MountTable::parse(&std::fs::read("/proc/self/mountinfo")?))
    }

    fn parse(list: &[u8]) -> Self {
        // 36 35 98:0 /root /mount options - kind source options
        let mount = |line: &[u8]| {
            let mut fields = line.split(|byte| *byte == b' ').skip(2);
            let (device, root, at) = (fields.next()?, fields.next()?, fields.next()?);
            Some(Mount { device: device.to_owned(), root: unescaped(root), at: unescaped(at) })
        };
        MountTable { mounts: list.split(|byte| *byte == b'\n').filter_map(mount).collect() }
    }

    /// Returns a path, which is given without links, and the others at which a mount shows the same file or directory. It need not be
    /// there.
    pub(crate) fn places(&self, path: &Path) -> Vec<PathBuf> {
        let others = self.aliases(path).into_iter().filter(|alias| alias.of == path && alias.is_real());
        [path.to_owned()].into_iter().chain(others.map(|alias| alias.at)).collect()
    }

    /// Returns the places of a path, and those of files and directories below it that are mounted by themselves.
    pub(crate) fn places_with_parts(&self, path: &Path) -> Vec<PathBuf> {
        let others = self.aliases(path).into_iter().filter(Alias::is_real);
        [path.to_owned()].into_iter().chain(others.map(|alias| alias.at)).collect()
    }

    /// Returns the paths at which a path, or a part of it, is shown once more, as far as the list of mounts tells.
    ///
    /// All mounts count, also one that another covers: an alias that is not real leads to another file.
    fn aliases(&self, path: &Path) -> BTreeSet<Alias> {
        let mut found = BTreeSet::new();
        for mount in &self.mounts {
            // The position in the file system of the path, or of a part of it that is another file system.
            let (position, of) = match path.strip_prefix(&mount.at) {
                Ok(inside) => (joined(&mount.root, inside), path),
                Err(_) if mount.at.starts_with(path) => (mount.root.clone(), &*mount.at),
                Err(_) => continue,
            };
            for other in self.mounts.iter().filter(|other| other.device == mount.device) {
                if let Ok(inside) = position.strip_prefix(&other.root) {
                    found.insert(Alias { at: joined(&other.at, inside), of: of.to_owned() });
                } else if let Ok(part) = other.root.strip_prefix(&position) {
                    found.insert(Alias { at: other.at.clone(), of: joined(of, part) });
                }
            }
        }
        found.retain(|alias| alias.at != alias.of && alias.at != path);
        found
    }
}

impl Alias {
    /// Returns true if both paths lead to one file, or would if it were there.
    fn is_real(&self) -> bool {
        let (mut at, mut of) = (&*self.at, &*self.of);
        loop {
            match (identity(at), identity(of)) {
                (Some(one), Some(other)) => return one == other,
                (None, None) if at.file_name() == of.file_name() => {}
                _ => return false,
            }
            match (at.parent(), of.parent()) {
                (Some(above_at), Some(above_of)) => (at, of) = (above_at, above_of),
                _ => return false,
            }
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|found| (found.dev(), found.ino()))
}

/// Joins two paths. The second may be empty, which leaves the first as it is.
fn joined(above: &Path, inside: &Path) -> PathBuf {
    above.join(inside).components().collect()
}

/// Returns a path of the list, in which four characters are octal numbers behind a backslash.
fn unescaped(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let number = match (first, after) {
            (b'\\', [high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', ..]) => {
                Some((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0'))
            }
            _ => None,
        };
        bytes.push(number.unwrap_or(*first));
        rest = if number.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the aliases of a path, as `AT` or, for a part of it, `AT = PART`. Each mount is `DEVICE ROOT AT`.
    fn check(mounts: &[&str], path: &str, expected: &[&str]) {
        let list: String = mounts.iter().map(|mount| format!("1 2 {mount} rw - ext4 /dev/x rw\n")).collect();
        let aliases = MountTable::parse(list.as_bytes()).aliases(Path::new(path));
        let shown = aliases.iter().map(|alias| match alias.of == Path::new(path) {
            true => alias.at.display().to_string(),
            false => format!("{} = {}", alias.at.display(), alias.of.display()),
        });
        assert_eq!(shown.collect::<Vec<_>>(), expected, "{path} of {mounts:?}");
    }

    #[test]
    fn a_path_is_found_at_every_mount_of_its_file_system() {
        let home = "/home/u";
        check(&["8:1 / /"], home, &[]);
        check(&["8:1 / /", "8:2 / /home"], home, &[]);
        check(&["8:1 / /", "8:1 /home/u /work/sub/home"], home, &["/work/sub/home"]);
        check(&["8:1 / /", "8:1 /home/u /work/sub/home"], "/work/sub/home/.ssh", &["/home/u/.ssh"]);
        check(&["8:1 / /", "8:1 /home /work/all"], home, &["/work/all/u"]);
        check(&["8:1 / /", "8:1 / /host"], home, &["/host/home/u"]);
        check(&["8:1 / /", "8:2 / /home", "8:2 / /disk", "8:2 /u /srv/u"], home, &["/disk/u", "/srv/u"]);
        check(&["8:1 / /", "8:1 /home/user /work"], home, &[]);
        check(&["8:1 / /", "8:3 /home/u /work"], home, &[]);
    }

    #[test]
    fn a_part_of_a_path_is_found_where_it_is_mounted_by_itself() {
        check(&["8:1 / /", "8:1 /home/u/.ssh/a /work/a"], "/home/u/.ssh", &["/work/a = /home/u/.ssh/a"]);
        check(&["8:1 / /", "8:1 /home/u/.ssh /work/a"], "/home/u/.ssh", &["/work/a"]);
        // Another file system that is mounted in a directory is a part of it.
        check(&["8:1 / /", "8:2 / /home/u/disk"], "/home/u", &[]);
        check(&["8:1 / /", "8:2 / /home/u/disk", "8:2 /a /work"], "/home/u", &["/work = /home/u/disk/a"]);
    }

    #[test]
    fn names_are_read_as_the_list_escapes_them() {
        check(&["8:1 / /", r"8:1 /home/u /work/a\040b\011\012\134c"], "/home/u", &["/work/a b\t\n\\c"]);
        check(&["8:1 / /", r"8:1 /home/a\040b /work"], "/home/a b", &["/work"]);
        check(&["8:1 / /", r"8:1 /home/u /work\9"], "/home/u", &[r"/work\9"]);
    }

    #[test]
    fn subvolumes_have_one_device_and_roots_of_their_own() {
        let mounts = ["0:30 /@ /", "0:30 /@home /home", "0:30 / /pool"];
        check(&mounts, "/home/u", &["/pool/@/home/u", "/pool/@home/u"]);
        // Two overlays are two file systems, whatever they have in common.
        check(&["0:40 / /", "0:41 / /fork"], "/home/u", &[]);
    }

    #[test]
    fn a_mount_that_another_covers_shows_another_file() {
        let folder = tempfile::tempdir().expect("a directory");
        let top = folder.path().canonicalize().expect("it is there");
        for path in ["home/u/.ssh", "other/.ssh"] {
            std::fs::create_dir_all(top.join(path)).expect("made");
        }
        let at = |name: &str| top.join(name);
        let is_real = |of: &str, other: &str| Alias { of: at(of), at: at(other) }.is_real();
        assert!(is_real("home/u", "home/../home/u"));
        assert!(is_real("home/u/missing/a", "home/../home/u/missing/a"), "it would be there");
        assert!(!is_real("home/u", "other"));
        assert!(!is_real("home/u/.ssh", "other/.ssh"));
        assert!(!is_real("home/u/.ssh", "other/missing"));
        assert!(!is_real("home/u/missing", "other/missing"));
    }

    #[test]
    fn the_mounts_of_this_process_are_read() {
        let mounts = MountTable::read().expect("there is a list").mounts;
        assert!(mounts.iter().any(|mount| mount.at == Path::new("/proc")), "{mounts:?}");
    }
}
