//! The settings of an isolated sandbox, and the URI that names them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::hosts::AllowedHosts;
use crate::capabilities::{HostAccess, Network};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::Limits;
use crate::local::DEFAULT_MAX_OUTPUT_BYTES;
use crate::uri::{UriOptions, UriWriter, absolute};
use crate::{ExtraAccess, SharedDirs};

/// The settings of an isolated sandbox.
#[derive(Clone, Debug)]
pub(super) struct IsolatedOptions {
    pub(super) directory: PathBuf,
    pub(super) walls: Walls,
    /// The path at which commands see the directory, if it is not the directory's own.
    pub(super) mount_path: Option<MountPath>,
    pub(super) network: Network,
    /// The hosts that commands can reach, if the network is [`Network::Hosts`].
    pub(super) hosts: AllowedHosts,
    pub(super) host: HostAccess,
    pub(super) git: GitAccess,
    pub(super) limits: Limits,
    pub(super) hidden: Vec<PathBuf>,
    /// Hidden paths that are not part of the URI. Sandboxes in other directories share them.
    pub(super) kept_out: Arc<Mutex<Vec<PathBuf>>>,
    /// The directory for temporary files.
    pub(super) staging: Arc<Mutex<Option<PathBuf>>>,
    pub(super) shown: Vec<PathBuf>,
    /// Paths outside of the workspace that commands can write.
    pub(super) writable: Vec<PathBuf>,
    pub(super) env: Vec<(String, String)>,
    pub(super) max_output_bytes: u64,
    /// The directories of another workspace that are shown.
    pub(super) shared: Option<Arc<SharedDirs>>,
    /// The workspace that this one is a fork or a copy of. Commands do not see it.
    pub(super) original: Option<PathBuf>,
}

/// The mechanism of the kernel that separates commands from the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walls {
    Namespaces,
    Landlock,
}

/// The access of commands to the `.git` of the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GitAccess {
    ReadOnly,
    /// A commit can be made, by a command that starts no other program: see `commit_dir.rs`.
    Commit,
    Writable,
}

/// The path at which commands see a directory.
#[derive(Clone, Debug)]
pub(super) enum MountPath {
    /// This path.
    Given(PathBuf),
    /// The path of this directory, without symlinks.
    SameAs(PathBuf),
}

impl MountPath {
    /// Returns the path as it was given.
    pub(super) fn as_path(&self) -> &Path {
        match self {
            MountPath::Given(path) | MountPath::SameAs(path) => path,
        }
    }
}

/// The options of an `isolated:` URI.
const OPTIONS: &[&str] = &[
    "network",
    "host",
    "git",
    "walls",
    "memory",
    "processes",
    "file_size",
    "cpu_time",
    "output",
    "hide",
    "show",
    "write",
    "at",
];
const HOST_VALUES: [(&str, HostAccess); 2] = [("read-only", HostAccess::ReadOnly), ("hidden", HostAccess::Hidden)];

const WALL_VALUES: [(&str, Walls); 2] = [("namespaces", Walls::Namespaces), ("landlock", Walls::Landlock)];

const GIT_VALUES: [(&str, GitAccess); 2] = [("read-only", GitAccess::ReadOnly), ("write", GitAccess::Writable)];

impl IsolatedOptions {
    pub(super) fn new(directory: PathBuf) -> Self {
        IsolatedOptions {
            directory: absolute(directory),
            walls: Walls::Namespaces,
            mount_path: None,
            network: Network::Off,
            hosts: AllowedHosts::default(),
            host: HostAccess::ReadOnly,
            git: GitAccess::ReadOnly,
            limits: Limits::default(),
            hidden: Vec::new(),
            kept_out: Arc::default(),
            staging: Arc::default(),
            shown: Vec::new(),
            writable: Vec::new(),
            env: Vec::new(),
            max_output_bytes: DEFAULT_MAX_OUTPUT_BYTES,
            shared: None,
            original: None,
        }
    }

    /// Parses the part of a URI after `isolated:`.
    pub(super) fn parse(rest: &str) -> Result<Self> {
        let parsed = UriOptions::parse("isolated", rest, OPTIONS)?;
        let mut options = IsolatedOptions::new(parsed.directory.clone());
        match parsed.all("network").last().as_deref() {
            None | Some("off") => {}
            Some("on") => options.network = Network::On,
            Some(hosts) => hosts.split(',').try_for_each(|host| options.add_host(host)).map_err(|_| {
                let wanted = "wanted off, on or hosts such as `example.com,*.example.com`";
                let message = format!("{wanted} as `network` of a sandbox of the kind `isolated`, found `{hosts}`");
                Error::new(ErrorKind::Config, message)
            })?,
        }
        options.host = parsed.word("host", &HOST_VALUES)?.unwrap_or_default();
        options.walls = parsed.word("walls", &WALL_VALUES)?.unwrap_or(Walls::Namespaces);
        options.git = parsed.word("git", &GIT_VALUES)?.unwrap_or(GitAccess::ReadOnly);
        options.limits = parsed.limits()?;
        options.max_output_bytes = parsed.bytes("output")?.unwrap_or(DEFAULT_MAX_OUTPUT_BYTES);
        options.hidden = parsed.paths("hide").map(PathBuf::from).collect();
        options.shown = parsed.paths("show").map(absolute).collect();
        options.writable = parsed.paths("write").map(absolute).collect();
        options.mount_path = parsed.paths("at").last().map(|path| MountPath::Given(path.into()));
        Ok(options)
    }

    /// Returns the URI of a sandbox with these settings.
    pub(super) fn uri(&self) -> String {
        let mut writer = UriWriter::new("isolated", &self.directory);
        writer.option(
            "network",
            match self.network {
                Network::Off => None,
                Network::Hosts => Some(self.hosts.names().join(",")),
                Network::On => Some("on".to_owned()),
            },
        );
        writer.option("host", (self.host == HostAccess::Hidden).then_some("hidden"));
        writer.option("walls", (self.walls == Walls::Landlock).then_some("landlock"));
        writer.option("git", (self.git == GitAccess::Writable).then_some("write"));
        writer.limits(&self.limits);
        writer.option("output", Some(self.max_output_bytes).filter(|bytes| *bytes != DEFAULT_MAX_OUTPUT_BYTES));
        writer.paths("hide", &self.hidden);
        writer.paths("show", &self.shown);
        writer.paths("write", &self.writable);
        writer.path("at", self.mount_path.as_ref().map(MountPath::as_path));
        writer.finish()
    }

    pub(super) fn add_host(&mut self, host: &str) -> Result<()> {
        self.hosts.add(host)?;
        if self.network == Network::Off {
            self.network = Network::Hosts;
        }
        Ok(())
    }

    pub(super) fn kept_out(&self) -> Vec<PathBuf> {
        self.kept_out.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns these settings with access that one command has beyond them.
    pub(super) fn with_extra(&self, extra: &ExtraAccess) -> Result<Self> {
        let mut options = self.clone();
        extra.hosts.iter().try_for_each(|host| options.add_host(host))?;
        for path in &extra.writable {
            // A link that was changed meanwhile would lead to a place that no decision was about.
            if Path::new(path).canonicalize().ok().as_deref() != Some(Path::new(path)) {
                let message = format!("wanted a path without links and `..` to write, found `{path}`");
                return Err(Error::new(ErrorKind::Config, message));
            }
            options.writable.push(path.into());
        }
        if extra.git && options.git == GitAccess::ReadOnly {
            options.git = GitAccess::Commit;
        }
        Ok(options)
    }
}
