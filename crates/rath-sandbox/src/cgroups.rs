//! Control groups, which limit all processes of a sandbox together.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::capabilities::Mechanism;

/// The control groups of one sandbox. They are removed on drop.
pub(crate) struct Cgroups {
    directories: Vec<PathBuf>,
    procs: Vec<OwnedFd>,
    memory: Option<Mechanism>,
    processes: Option<Mechanism>,
}

/// The beginning of the names of our groups. The PID of their creator and a number follow.
const NAME_PREFIX: &str = "rath-";

impl Cgroups {
    /// Creates groups for the limits that groups can enforce on this machine; `None` if there are none.
    pub(super) fn new(memory: Option<u64>, processes: Option<u64>) -> Option<Self> {
        if memory.is_none() && processes.is_none() {
            return None;
        }
        let mut groups = Cgroups { directories: Vec::new(), procs: Vec::new(), memory: None, processes: None };
        let paths = CgroupPaths::read();
        for parent in paths.v2_candidates() {
            if groups.add_v2(&parent, memory, processes).is_some() {
                break;
            }
        }
        let v1 = [("memory", memory, groups.memory), ("pids", processes, groups.processes)];
        for (controller, max, enforced_by) in v1 {
            if let (Some(max), None) = (max, enforced_by)
                && let Some(parent) = paths.v1(controller)
            {
                groups.add_v1(controller, &parent, max);
            }
        }
        (!groups.procs.is_empty()).then_some(groups)
    }

    /// Returns the mechanism that limits memory.
    pub(super) fn memory(&self) -> Option<Mechanism> {
        self.memory
    }

    /// Returns the mechanism that limits the number of processes.
    pub(super) fn processes(&self) -> Option<Mechanism> {
        self.processes
    }

    /// Returns the open `cgroup.procs` files of the groups.
    pub(super) fn procs(&self) -> &[OwnedFd] {
        &self.procs
    }

    /// Creates a group of version 2 for both limits, or none: a process is in one group of version 2 only.
    fn add_v2(&mut self, parent: &Path, memory: Option<u64>, processes: Option<u64>) -> Option<()> {
        // Moving a process needs write access to the common ancestor of both groups.
        rustix::fs::access(parent.join("cgroup.procs"), rustix::fs::Access::WRITE_OK).ok()?;
        let directory = create_below(parent)?;
        let set = || {
            if let Some(max) = memory {
                fs::write(directory.join("memory.max"), max.to_string())?;
                // Not every kernel counts swap.
                let _ = fs::write(directory.join("memory.swap.max"), "0");
                let _ = fs::write(directory.join("memory.oom.group"), "1");
            }
            if let Some(max) = processes {
                fs::write(directory.join("pids.max"), max.to_string())?;
            }
            open_procs(&directory)
        };
        self.add(directory.clone(), set())?;
        self.memory = memory.map(|_| Mechanism::CgroupV2);
        self.processes = processes.map(|_| Mechanism::CgroupV2);
        Some(())
    }

    /// Creates a group of version 1 for one limit.
    fn add_v1(&mut self, controller: &str, parent: &Path, max: u64) -> Option<()> {
        let directory = create_below(parent)?;
        let is_memory = controller == "memory";
        let set = || {
            fs::write(directory.join(if is_memory { "memory.limit_in_bytes" } else { "pids.max" }), max.to_string())?;
            if is_memory {
                let _ = fs::write(directory.join("memory.memsw.limit_in_bytes"), max.to_string());
            }
            open_procs(&directory)
        };
        self.add(directory.clone(), set())?;
        *(if is_memory { &mut self.memory } else { &mut self.processes }) = Some(Mechanism::CgroupV1);
        Some(())
    }

    /// Adds a group whose limits are set, or removes it if that failed.
    fn add(&mut self, directory: PathBuf, procs: std::io::Result<OwnedFd>) -> Option<()> {
        match procs {
            Ok(procs) => {
                self.directories.push(directory);
                self.procs.push(procs);
                Some(())
            }
            Err(_) => {
                let _ = fs::remove_dir(directory);
                None
            }
        }
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        let mut directories = std::mem::take(&mut self.directories);
        directories.retain(|directory| !is_removed(directory));
        if directories.is_empty() {
            return;
        }
        // Processes that have just died may be in the group for another moment. A group that stays is removed by the next
        // program that creates one.
        let _ = std::thread::Builder::new().name("rath-cgroups".to_owned()).spawn(move || {
            for _ in 0..50 {
                std::thread::sleep(std::time::Duration::from_millis(2));
                directories.retain(|directory| !is_removed(directory));
            }
        });
    }
}

/// Removes a group. Returns false if it still has processes.
fn is_removed(directory: &Path) -> bool {
    fs::remove_dir(directory).is_ok() || !directory.exists()
}

/// Opens the file that takes the PIDs of new members.
fn open_procs(directory: &Path) -> std::io::Result<OwnedFd> {
    Ok(fs::File::options().write(true).open(directory.join("cgroup.procs"))?.into())
}

/// Creates a group, and removes groups of programs that have died.
fn create_below(parent: &Path) -> Option<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    for entry in fs::read_dir(parent).ok()?.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(NAME_PREFIX)?.split('-').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
    let directory = parent.join(format!("{NAME_PREFIX}{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed)));
    fs::create_dir(&directory).ok()?;
    Some(directory)
}

/// The position of this process in the control group hierarchies.
struct CgroupPaths {
    mounts: String,
    own: String,
}

impl CgroupPaths {
    fn read() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        CgroupPaths { mounts: read("/proc/self/mountinfo"), own: read("/proc/self/cgroup") }
    }

    /// Returns the directories in which a group of version 2 might be created: our own group, and its parent, since a group
    /// with processes may not pass controllers on.
    fn v2_candidates(&self) -> Vec<PathBuf> {
        let Some(own) = self.find("cgroup2", "", |controllers| controllers.is_empty()) else { return Vec::new() };
        let parent = own.parent().filter(|parent| parent.join("cgroup.procs").exists()).map(Path::to_owned);
        [Some(own), parent].into_iter().flatten().collect()
    }

    /// Returns our group of version 1 for a controller.
    fn v1(&self, controller: &str) -> Option<PathBuf> {
        self.find("cgroup", controller, |controllers| controllers.split(',').any(|one| one == controller))
    }

    /// Returns the directory of this process in a hierarchy.
    fn find(&self, kind: &str, option: &str, is_wanted: impl Fn(&str) -> bool) -> Option<PathBuf> {
        // 36 35 98:0 /root /mount options - kind source options
        let (root, mount) = self.mounts.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let (mut before, mut after) = (before.split(' ').skip(3), after.split(' '));
            let (root, mount) = (before.next()?, before.next()?);
            let fits =
                after.next()? == kind && (option.is_empty() || after.nth(1)?.split(',').any(|one| one == option));
            fits.then_some((root, mount))
        })?;
        // 4:memory:/path
        let own = self.own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let controllers = parts.next()?;
            is_wanted(controllers).then(|| parts.next())?
        })?;
        let below = own.strip_prefix(root).unwrap_or(own).trim_start_matches('/');
        Some(Path::new(mount).join(below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_finds_its_groups_however_they_are_mounted() {
        let hybrid = CgroupPaths {
            mounts: "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                     32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
                     41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"
                .to_owned(),
            own: "8:pids:/\n4:memory:/jobs/7\n1:cpu,cpuacct:/\n0::/".to_owned(),
        };
        let unified = CgroupPaths {
            mounts: "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate".to_owned(),
            own: "0::/user.slice/app.scope".to_owned(),
        };
        let contained = CgroupPaths {
            mounts: "30 23 0:26 /docker/1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory".to_owned(),
            own: "4:memory:/docker/1/job".to_owned(),
        };
        let rows: [(&CgroupPaths, &str, Option<&str>); 6] = [
            (&hybrid, "memory", Some("/sys/fs/cgroup/memory/jobs/7")),
            (&hybrid, "pids", None),
            (&hybrid, "", Some("/sys/fs/cgroup/unified")),
            (&unified, "memory", None),
            (&unified, "", Some("/sys/fs/cgroup/user.slice/app.scope")),
            (&contained, "memory", Some("/sys/fs/cgroup/memory/job")),
        ];
        for (paths, controller, wanted) in rows {
            let found =
                if controller.is_empty() { paths.v2_candidates().into_iter().next() } else { paths.v1(controller) };
            assert_eq!(found.as_deref(), wanted.map(Path::new), "{controller}");
        }
    }
}
