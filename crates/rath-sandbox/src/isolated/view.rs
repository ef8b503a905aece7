//! What isolated commands see of the machine.
//!
//! Everything is read-only but the workspace, `/tmp`, `/var/tmp`, `/dev/shm` and the home directory, of which all but the first
//! are empty at the beginning of each command and gone at its end. Of the rest is hidden:
//!
//! - where people live: `/home`, `/root` and the home directory, but for the folders of tool chains in it and those on `PATH`;
//! - where services live: `/run`, `/var/lib`, `/var/spool`, `/var/log`, and wherever else one of them listens on a socket;
//! - other disks: `/mnt` and `/media`;
//! - keys and passwords of the machine, such as `/etc/shadow`, if they could be read at all;
//! - devices but for `null`, `zero`, `full`, `random`, `urandom`, `tty` and terminals of its own;
//! - the folder `.rath` in the workspace, and whatever the user names.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

use super::world::{Act, Below, NO_DEVICES, NO_SETUID, TAKES_MOST};
use crate::capabilities::Host;
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::process::Stage;

/// What a view is made from.
pub(super) struct Sights<'a> {
    /// The workspace on this machine.
    pub(super) directory: &'a Path,
    /// Where commands see it.
    pub(super) at: &'a Path,
    pub(super) home: Option<PathBuf>,
    pub(super) path: OsString,
    pub(super) host: Host,
    pub(super) hidden: &'a [PathBuf],
    pub(super) shown: &'a [PathBuf],
}

/// Places where people and services keep what is theirs.
const COVERED: [&str; 12] = [
    "/run",
    "/home",
    "/root",
    "/tmp",
    "/var/tmp",
    "/var/lib",
    "/var/spool",
    "/var/log",
    "/var/snap",
    "/mnt",
    "/media",
    "/lost+found",
];

/// What is left of the machine when it is hidden.
const PROGRAMS: [&str; 12] =
    ["bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "nix", "proc", "sys", "dev"];

/// What is shown all the same: programs, libraries and public certificates.
const SHOWN: [&str; 2] = ["/var/lib/ca-certificates", "/var/lib/gems"];

/// Folders in a home directory that hold tool chains, and no credentials.
const TOOLS: [&str; 19] = [
    ".cargo/bin",
    ".cargo/registry",
    ".cargo/git",
    ".rustup",
    ".pyenv",
    ".rbenv",
    ".nvm",
    ".nodenv",
    ".volta",
    ".asdf",
    ".sdkman/candidates",
    ".local/bin",
    ".local/lib",
    ".local/share/uv",
    ".deno/bin",
    ".bun/bin",
    "go/bin",
    "go/pkg",
    ".elan",
];

/// Files of the machine that hold keys and passwords.
const SECRET: [&str; 14] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/ssh",
    "/etc/krb5.keytab",
    "/etc/docker",
    "/etc/kubernetes",
    "/etc/NetworkManager/system-connections",
    "/sys/kernel/debug",
    "/sys/kernel/tracing",
];

/// What people keep in their home directory that is nobody's business, where that is the workspace.
const PRIVATE: [&str; 14] = [
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".config",
    ".docker",
    ".kube",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".cargo/credentials.toml",
    ".local/share/keyrings",
    ".mozilla",
];

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Of these, the first that is there and in nobody's way is empty and stays so, and covers what is hidden.
const NOTHING: [&str; 4] = ["/run", "/mnt", "/media", "/var/log"];

/// How much may be put into the folders that live in memory.
const ROOM: &str = "mode=0755,size=1g,nr_inodes=262144";
const ROOM_FOR_ALL: &str = "mode=1777,size=1g,nr_inodes=262144";

/// What has to be done to show commands what they may see.
pub(super) fn acts(sights: &Sights<'_>) -> Result<Vec<(Stage, Act)>> {
    let mut view = View { acts: Vec::new(), taken: 0, mine: Vec::new() };
    if [sights.directory, sights.at].contains(&Path::new("/")) {
        return Err(Error::new(ErrorKind::Config, "the whole machine cannot be the workspace of an isolated sandbox"));
    }
    let covers = covers(sights);
    let workspace = view.take(Stage::Workspace, sights.directory, NO_SETUID | NO_DEVICES, Below::Too)?;
    let devices = DEVICES.map(|name| Path::new("/dev").join(name)).map(|device| {
        let is_there = device.exists();
        is_there.then(|| view.take(Stage::Device, &device, 0, Below::Not).map(|nth| (nth, device))).transpose()
    });
    view.act(Stage::ReadOnly, Act::ReadOnly);
    let shown = shown(sights, &covers);
    let shown = shown.into_iter().map(|path| Ok((view.take(Stage::Cover, &path, 0, Below::Too)?, path)));
    let shown = shown.collect::<Result<Vec<_>>>()?;
    let below: Vec<_> =
        shown.iter().map(|(_, path)| &**path).chain([sights.at]).chain(sights.home.as_deref()).collect();
    let in_nobodys_way = |folder: &&&Path| folder.is_dir() && !below.iter().any(|path| path.starts_with(folder));
    let nothing = NOTHING.map(Path::new);
    let Some(nothing) = nothing.iter().find(in_nobodys_way).copied() else {
        return Err(Error::new(
            ErrorKind::Unavailable,
            "this machine has no folder that can be left empty, such as `/run`",
        ));
    };
    view.empty(nothing, "mode=0755,size=4k,nr_inodes=2", MountFlags::RDONLY)?;
    for cover in covers.iter().filter(|cover| *cover != nothing) {
        let for_all = [Path::new("/tmp"), Path::new("/var/tmp")].contains(&&**cover);
        if for_all || below.iter().any(|path| path.starts_with(cover)) {
            view.empty(cover, if for_all { ROOM_FOR_ALL } else { ROOM }, MountFlags::empty())?;
            view.mine.push(cover.clone());
        } else {
            view.cover(nothing, cover)?;
        }
    }
    view.devices(devices)?;
    view.act(Stage::Proc, Act::Proc);
    if let Some(home) = &sights.home {
        view.folders(home)?;
    }
    for (nth, path) in shown {
        view.put(Stage::Cover, nth, &path)?;
    }
    view.put(Stage::Workspace, workspace, sights.at)?;
    let own = sights.at.join(super::super::beneath::OWN);
    let private = sights.home.as_ref().filter(|home| home.starts_with(sights.at)).into_iter();
    let private = private.flat_map(|home| PRIVATE.map(|name| home.join(name)));
    let secret = SECRET.iter().map(PathBuf::from).filter(|path| is_readable(path));
    let sockets = sockets().into_iter().filter(|path| !path.starts_with(sights.at));
    let named = sights.hidden.iter().map(|path| sights.directory.join(path));
    for path in named.chain(secret).chain(private).chain(sockets) {
        let Ok(path) = path.canonicalize() else { continue };
        let with = if path.is_dir() { nothing } else { Path::new("/dev/null") };
        match path.strip_prefix(sights.directory) {
            Ok(inside) => view.cover(with, &sights.at.join(inside))?,
            Err(_) if covers.iter().any(|cover| path.starts_with(cover)) || path.starts_with("/dev") => {}
            Err(_) => view.cover(with, &path)?,
        }
    }
    // Whether it is there may change from one command to the next.
    view.cover(nothing, &own)?;
    Ok(view.acts)
}

/// Directories that are covered, those above before those below.
fn covers(sights: &Sights<'_>) -> Vec<PathBuf> {
    let mut covers: Vec<_> = COVERED.iter().map(PathBuf::from).chain(sights.home.clone()).collect();
    if sights.host == Host::Hidden
        && let Ok(top) = std::fs::read_dir("/")
    {
        let rest = top.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        covers.extend(
            rest.filter(|entry| !PROGRAMS.iter().any(|name| entry.file_name() == *name)).map(|entry| entry.path()),
        );
    }
    let mut found: Vec<PathBuf> = Vec::new();
    covers.sort();
    for cover in covers {
        let Ok(cover) = cover.canonicalize() else { continue };
        // What lies below something that is covered is gone with it.
        if cover.is_dir() && cover != Path::new("/") && !found.iter().any(|above| cover.starts_with(above)) {
            found.push(cover);
        }
    }
    found
}

/// What is shown although it lies in something that is covered.
fn shown(sights: &Sights<'_>, covers: &[PathBuf]) -> Vec<PathBuf> {
    let tools = sights.home.iter().flat_map(|home| TOOLS.map(|name| home.join(name)));
    let path = std::env::split_paths(&sights.path).filter(|path| path.is_absolute());
    let all = SHOWN.iter().map(PathBuf::from).chain(tools).chain(path).chain(sights.shown.iter().cloned());
    let mut found: Vec<PathBuf> = Vec::new();
    for path in all {
        let Ok(path) = path.canonicalize() else { continue };
        let is_covered = covers.iter().any(|cover| path.starts_with(cover) && path != *cover);
        // A home directory on `PATH` would be shown as a whole.
        let is_home = sights.home.as_ref().is_some_and(|home| home.starts_with(&path));
        let is_seen = path.starts_with(sights.at) || found.iter().any(|above| path.starts_with(above));
        if is_covered && !is_home && !is_seen && path.is_dir() {
            found.push(path);
        }
    }
    found
}

/// Whether it could be read at all: what the system keeps to itself needs no cover.
fn is_readable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok()
}

/// Where somebody listens: a file system that is read-only does not keep anybody from connecting.
fn sockets() -> Vec<PathBuf> {
    let list = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let mut sockets: Vec<_> = list
        .lines()
        .filter_map(|line| line.split_whitespace().nth(7))
        .filter(|path| path.starts_with('/'))
        .map(PathBuf::from)
        .collect();
    sockets.sort();
    sockets.dedup();
    sockets
}

struct View {
    acts: Vec<(Stage, Act)>,
    taken: usize,
    /// Where folders can be made.
    mine: Vec<PathBuf>,
}

impl View {
    fn act(&mut self, stage: Stage, act: Act) {
        self.acts.push((stage, act));
    }

    fn take(&mut self, stage: Stage, from: &Path, attributes: u64, below: Below) -> Result<usize> {
        let nth = self.taken;
        if nth == TAKES_MOST {
            let why = format_args!("cannot show more than {TAKES_MOST} folders").to_string();
            return Err(Error::new(ErrorKind::Unavailable, why));
        }
        self.taken += 1;
        self.act(stage, Act::Take { nth, from: text(from)?, attributes, below });
        Ok(nth)
    }

    fn empty(&mut self, at: &Path, options: &str, flags: MountFlags) -> Result<()> {
        let options = text(Path::new(options))?;
        self.act(Stage::Cover, Act::Empty { at: text(at)?, options, flags });
        Ok(())
    }

    fn cover(&mut self, with: &Path, at: &Path) -> Result<()> {
        self.act(Stage::Cover, Act::Same { from: text(with)?, at: text(at)? });
        Ok(())
    }

    /// The folders that lead to a path, as far as they lie in a file system of ours.
    fn folders(&mut self, path: &Path) -> Result<()> {
        let Some(mine) = self.mine.iter().find(|mine| path.starts_with(mine)) else { return Ok(()) };
        let mine = mine.clone();
        let mut above: Vec<_> = path.ancestors().take_while(|above| *above != mine).collect();
        above.reverse();
        for folder in above {
            self.act(Stage::Cover, Act::Folder(text(folder)?));
        }
        Ok(())
    }

    fn put(&mut self, stage: Stage, nth: usize, at: &Path) -> Result<()> {
        self.folders(at)?;
        self.act(stage, Act::Put { nth, at: text(at)? });
        Ok(())
    }

    fn devices<const N: usize>(&mut self, devices: [Result<Option<(usize, PathBuf)>>; N]) -> Result<()> {
        self.acts.push((
            Stage::Device,
            Act::Empty { at: c"/dev".into(), options: text(Path::new(ROOM))?, flags: MountFlags::empty() },
        ));
        for device in devices {
            if let Some((nth, device)) = device? {
                self.act(Stage::Device, Act::File(text(&device)?));
                self.act(Stage::Device, Act::Put { nth, at: text(&device)? });
            }
        }
        for (at, to) in [
            (c"/dev/fd", c"/proc/self/fd"),
            (c"/dev/stdin", c"/proc/self/fd/0"),
            (c"/dev/stdout", c"/proc/self/fd/1"),
            (c"/dev/stderr", c"/proc/self/fd/2"),
            (c"/dev/ptmx", c"pts/ptmx"),
        ] {
            self.act(Stage::Device, Act::Link { to: to.into(), at: at.into() });
        }
        self.act(Stage::Device, Act::Folder(c"/dev/shm".into()));
        self.act(Stage::Device, Act::Folder(c"/dev/pts".into()));
        self.act(Stage::Device, Act::Terminals);
        self.mine.push("/dev".into());
        Ok(())
    }
}

pub(super) fn text(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| {
        let shown = path.display().to_string().replace('\0', "\u{fffd}");
        Error::new(ErrorKind::Config, format_args!("wanted a path, found a zero byte in `{shown}`"))
    })
}
