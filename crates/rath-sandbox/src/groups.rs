//! Control groups: what all processes of a sandbox may use together.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::capabilities::Mechanism;

/// The groups of one sandbox. They are removed with this.
pub(crate) struct Groups {
    folders: Vec<PathBuf>,
    procs: Vec<OwnedFd>,
    memory: Option<Mechanism>,
    processes: Option<Mechanism>,
}

/// What our groups are called, before the process that made them and a number.
const NAME: &str = "rath-";

impl Groups {
    /// Groups for the limits that groups can see to here, if there are any.
    pub(super) fn new(memory: Option<u64>, processes: Option<u64>) -> Option<Self> {
        if memory.is_none() && processes.is_none() {
            return None;
        }
        let mut groups = Groups { folders: Vec::new(), procs: Vec::new(), memory: None, processes: None };
        let places = Places::read();
        for above in places.v2() {
            if groups.add_v2(&above, memory, processes).is_some() {
                break;
            }
        }
        let v1 = [("memory", memory, groups.memory), ("pids", processes, groups.processes)];
        for (controller, most, seen_to) in v1 {
            if let (Some(most), None) = (most, seen_to)
                && let Some(above) = places.v1(controller)
            {
                groups.add_v1(controller, &above, most);
            }
        }
        (!groups.procs.is_empty()).then_some(groups)
    }

    pub(super) fn memory(&self) -> Option<Mechanism> {
        self.memory
    }

    pub(super) fn processes(&self) -> Option<Mechanism> {
        self.processes
    }

    pub(super) fn procs(&self) -> &[OwnedFd] {
        &self.procs
    }

    /// All or nothing: a process is in one group of version 2 only.
    fn add_v2(&mut self, above: &Path, memory: Option<u64>, processes: Option<u64>) -> Option<()> {
        // Whoever moves a process has to be allowed to write where both groups meet.
        rustix::fs::access(above.join("cgroup.procs"), rustix::fs::Access::WRITE_OK).ok()?;
        let folder = make_below(above)?;
        let set = || {
            if let Some(most) = memory {
                fs::write(folder.join("memory.max"), most.to_string())?;
                // Not every kernel counts what is swapped.
                let _ = fs::write(folder.join("memory.swap.max"), "0");
                let _ = fs::write(folder.join("memory.oom.group"), "1");
            }
            if let Some(most) = processes {
                fs::write(folder.join("pids.max"), most.to_string())?;
            }
            joins(&folder)
        };
        self.keep(folder.clone(), set())?;
        self.memory = memory.map(|_| Mechanism::CgroupV2);
        self.processes = processes.map(|_| Mechanism::CgroupV2);
        Some(())
    }

    fn add_v1(&mut self, controller: &str, above: &Path, most: u64) -> Option<()> {
        let folder = make_below(above)?;
        let is_memory = controller == "memory";
        let set = || {
            fs::write(folder.join(if is_memory { "memory.limit_in_bytes" } else { "pids.max" }), most.to_string())?;
            if is_memory {
                let _ = fs::write(folder.join("memory.memsw.limit_in_bytes"), most.to_string());
            }
            joins(&folder)
        };
        self.keep(folder.clone(), set())?;
        *(if is_memory { &mut self.memory } else { &mut self.processes }) = Some(Mechanism::CgroupV1);
        Some(())
    }

    fn keep(&mut self, folder: PathBuf, procs: std::io::Result<OwnedFd>) -> Option<()> {
        match procs {
            Ok(procs) => {
                self.folders.push(folder);
                self.procs.push(procs);
                Some(())
            }
            Err(_) => {
                let _ = fs::remove_dir(folder);
                None
            }
        }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for folder in &self.folders {
            // Those who have just died may still be in it for a moment.
            for _ in 0..50 {
                if fs::remove_dir(folder).is_ok() || !folder.exists() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
    }
}

/// The way into a group.
fn joins(folder: &Path) -> std::io::Result<OwnedFd> {
    Ok(fs::File::options().write(true).open(folder.join("cgroup.procs"))?.into())
}

/// Makes a group of our own, and removes those that programs which have died left there.
fn make_below(above: &Path) -> Option<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    for entry in fs::read_dir(above).ok()?.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(NAME)?.split('-').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
    let folder = above.join(format!("{NAME}{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed)));
    fs::create_dir(&folder).ok()?;
    Some(folder)
}

/// Where this process is among the machine's control groups.
struct Places {
    mounts: String,
    own: String,
}

impl Places {
    fn read() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Places { mounts: read("/proc/self/mountinfo"), own: read("/proc/self/cgroup") }
    }

    /// Where a group of version 2 might be made: below our own, or beside it, since one that holds processes may pass no
    /// controllers on.
    fn v2(&self) -> Vec<PathBuf> {
        let Some(own) = self.find("cgroup2", "", |controllers| controllers.is_empty()) else { return Vec::new() };
        let beside = own.parent().filter(|above| above.join("cgroup.procs").exists()).map(Path::to_owned);
        [Some(own), beside].into_iter().flatten().collect()
    }

    fn v1(&self, controller: &str) -> Option<PathBuf> {
        self.find("cgroup", controller, |controllers| controllers.split(',').any(|one| one == controller))
    }

    /// The folder of this process in the hierarchy of that kind.
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
        let hybrid = Places {
            mounts: "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                     32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
                     41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"
                .to_owned(),
            own: "8:pids:/\n4:memory:/jobs/7\n1:cpu,cpuacct:/\n0::/".to_owned(),
        };
        let unified = Places {
            mounts: "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate".to_owned(),
            own: "0::/user.slice/app.scope".to_owned(),
        };
        let contained = Places {
            mounts: "30 23 0:26 /docker/1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory".to_owned(),
            own: "4:memory:/docker/1/job".to_owned(),
        };
        let rows: [(&Places, &str, Option<&str>); 6] = [
            (&hybrid, "memory", Some("/sys/fs/cgroup/memory/jobs/7")),
            (&hybrid, "pids", None),
            (&hybrid, "", Some("/sys/fs/cgroup/unified")),
            (&unified, "memory", None),
            (&unified, "", Some("/sys/fs/cgroup/user.slice/app.scope")),
            (&contained, "memory", Some("/sys/fs/cgroup/memory/job")),
        ];
        for (places, controller, wanted) in rows {
            let found = if controller.is_empty() { places.v2().into_iter().next() } else { places.v1(controller) };
            assert_eq!(found.as_deref(), wanted.map(Path::new), "{controller}");
        }
    }
}
