//! The request that creates a container, decided from the settings and the facts about the engine.

use std::collections::HashMap;
use std::path::Path;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, ImageInspect, Mount, MountType,
    ResourcesUlimits,
};
use rath_sandbox::{Error, ErrorKind, Limit, Mechanism, Network, Result};
use rustix::process::{Resource, getegid, geteuid, getrlimit};

use crate::control::{INIT_NAME, SOCKET_NAME};
use crate::engine::EngineFacts;
use crate::mounts::{BindMount, CONTROL_PATH, HOME, MountSource};
use crate::options::Options;

/// The label that all containers of a user have, with the number of the user.
pub(crate) const OWNER_LABEL: &str = "rath.owner";
/// The label with the id of the control directory.
pub(crate) const ID_LABEL: &str = "rath.id";
/// The label with the digest of everything that a container was created from: a session that is opened again finds its own by it.
pub(crate) const SPEC_LABEL: &str = "rath.spec";

/// The limit on processes and threads if none is set.
const DEFAULT_MAX_PROCESSES: u64 = 1024;
/// The directories in memory, which last as long as the container.
const MEMORY_DIRS: [&str; 3] = ["/tmp", "/var/tmp", HOME];
const MEMORY_DIR_OPTIONS: &str = "rw,exec,nosuid,nodev,size=1g,mode=1777";
/// A further option for podman, which otherwise copies what the image has there.
const PODMAN_MEMORY_DIR_OPTION: &str = ",notmpcopyup";
/// The search path of an image that has none.
const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Everything that a container is created from, except its control directory.
#[derive(Debug)]
pub(crate) struct ContainerSpec {
    body: ContainerCreateBody,
    mounts: Vec<BindMount>,
    /// The digest of the settings.
    pub(crate) digest: String,
    /// The environment that the image gives commands.
    pub(crate) env: Vec<String>,
    pub(crate) limits: SpecLimits,
}

/// The limits that a container has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpecLimits {
    pub(crate) memory: Option<Limit>,
    pub(crate) processes: Option<Limit>,
    pub(crate) file_size: Option<Limit>,
    pub(crate) cpu_time: Option<Limit>,
}

/// The facts about this machine that decide how a container is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// The user and the group that commands run as.
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) has_cgroup_v2: bool,
}

impl Machine {
    /// Looks at this machine. Blocks.
    pub(crate) fn look() -> Self {
        Machine {
            user: geteuid().as_raw(),
            group: getegid().as_raw(),
            has_cgroup_v2: Path::new("/sys/fs/cgroup/cgroup.controllers").exists(),
        }
    }
}

impl ContainerSpec {
    /// Decides how a container is created.
    pub(crate) fn new(
        options: &Options,
        facts: EngineFacts,
        image: &ImageInspect,
        mounts: Vec<BindMount>,
        machine: Machine,
    ) -> Result<Self> {
        let limits = limits(options, machine.has_cgroup_v2);
        let max = |limit: Option<Limit>| limit.and_then(|limit| i64::try_from(limit.max).ok());
        let ulimits = ulimits(&limits);
        let user = match facts.is_rootless && !facts.is_podman {
            // The engine of a user maps this user to root.
            true => "0:0".to_owned(),
            false => format!("{}:{}", machine.user, machine.group),
        };
        let userns_mode = match (facts.is_rootless, facts.is_podman) {
            (true, true) => Some("keep-id".to_owned()),
            // Docker may map the users of containers to others, which do not own the files.
            (false, false) => Some("host".to_owned()),
            _ => None,
        };
        let memory_dir_options = match facts.is_podman {
            true => format!("{MEMORY_DIR_OPTIONS}{PODMAN_MEMORY_DIR_OPTION}"),
            false => MEMORY_DIR_OPTIONS.to_owned(),
        };
        let host_config = HostConfig {
            auto_remove: Some(true),
            // The engine's own default, if commands have a network.
            network_mode: Some("none".to_owned()).filter(|_| options.network != Network::On),
            readonly_rootfs: Some(true),
            cap_drop: Some(vec!["ALL".to_owned()]),
            // Files of the user are not labelled anew: SELinux would keep other programs from them.
            security_opt: Some(vec!["no-new-privileges".to_owned(), "label=disable".to_owned()]),
            privileged: Some(false),
            pids_limit: max(limits.processes),
            memory: max(limits.memory),
            // The same as memory: no swap beside it.
            memory_swap: max(limits.memory),
            nano_cpus: options.milli_cpus.and_then(|milli| i64::try_from(milli.saturating_mul(1_000_000)).ok()),
            ulimits: Some(ulimits),
            log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
            ipc_mode: Some("private".to_owned()),
            userns_mode,
            init: Some(false),
            tmpfs: Some(MEMORY_DIRS.map(|path| (path.to_owned(), memory_dir_options.clone())).into()),
            ..HostConfig::default()
        };
        let grace = options.kept_after_crash.as_secs().to_string();
        let body = ContainerCreateBody {
            // The name may lead to another image by the time of the request.
            image: image.id.clone().or_else(|| Some(options.image.clone())),
            entrypoint: Some(vec![format!("{CONTROL_PATH}/{INIT_NAME}")]),
            cmd: Some(vec![format!("{CONTROL_PATH}/{SOCKET_NAME}"), grace]),
            user: Some(user),
            working_dir: Some("/".to_owned()),
            // Those of an image would be commands that no session knows of.
            healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }),
            labels: Some(HashMap::from([(OWNER_LABEL.to_owned(), machine.user.to_string())])),
            host_config: Some(host_config),
            ..ContainerCreateBody::default()
        };
        let env = image.config.as_ref().and_then(|config| config.env.clone()).unwrap_or_default();
        let env = [DEFAULT_PATH.to_owned()].into_iter().chain(env).collect();
        let mut spec = ContainerSpec { body, mounts, digest: String::new(), env, limits };
        // The mounts with a place in the control directory that is the same for all.
        let body = serde_json::to_value(spec.body_in(Path::new("/"), ""))
            .map_err(|error| Error::new(ErrorKind::Io, "cannot write the request for a container").because(error))?;
        spec.digest = blake3::hash(body.to_string().as_bytes()).to_hex().to_string();
        Ok(spec)
    }

    /// Returns the request for a container with a control directory.
    pub(crate) fn body_in(&self, control: &Path, id: &str) -> ContainerCreateBody {
        let own = BindMount {
            source: MountSource::Host(control.to_owned()),
            target: CONTROL_PATH.into(),
            is_read_only: true,
        };
        let mount = |mount: &BindMount| Mount {
            typ: Some(MountType::BIND),
            source: Some(match &mount.source {
                MountSource::Host(path) => path.display().to_string(),
                MountSource::Control(name) => control.join(name).display().to_string(),
            }),
            target: Some(mount.target.display().to_string()),
            read_only: Some(mount.is_read_only),
            ..Mount::default()
        };
        let mut body = self.body.clone();
        if let Some(host) = &mut body.host_config {
            host.mounts = Some([&own].into_iter().chain(&self.mounts).map(mount).collect());
        }
        let labels = [(ID_LABEL.to_owned(), id.to_owned()), (SPEC_LABEL.to_owned(), self.digest.clone())];
        body.labels.get_or_insert_default().extend(labels);
        body
    }
}

/// Returns the limits that a container has. An engine that cannot enforce one does not create it.
fn limits(options: &Options, has_cgroup_v2: bool) -> SpecLimits {
    let mechanism = if has_cgroup_v2 { Mechanism::CgroupV2 } else { Mechanism::CgroupV1 };
    let by_group = |max: u64| Limit { max, mechanism };
    let by_rlimit = |max: u64| Limit { max, mechanism: Mechanism::Rlimit };
    let asked = &options.limits;
    SpecLimits {
        memory: asked.memory.map(by_group),
        processes: Some(by_group(asked.processes.unwrap_or(DEFAULT_MAX_PROCESSES))),
        file_size: asked.file_size.map(by_rlimit),
        cpu_time: asked.cpu_time.map(|time| by_rlimit(time.as_secs().max(1))),
    }
}

/// The most open files of a process, and the most processes of a user: engines may not be allowed more themselves.
const MAX_OPEN_FILES: i64 = 1 << 20;
const MAX_USER_PROCESSES: i64 = 1 << 15;

/// Returns the limits of each process. A command cannot be allowed more open files and processes than this program: engines would ask
/// for more, which a machine may refuse.
fn ulimits(limits: &SpecLimits) -> Vec<ResourcesUlimits> {
    let ulimit = |name: &str, soft: i64, hard: i64| ResourcesUlimits {
        name: Some(name.to_owned()),
        soft: Some(soft),
        hard: Some(hard),
    };
    let own =
        |resource, most| getrlimit(resource).maximum.and_then(|max| i64::try_from(max).ok()).unwrap_or(most).min(most);
    let (files, processes) = (own(Resource::Nofile, MAX_OPEN_FILES), own(Resource::Nproc, MAX_USER_PROCESSES));
    let mut ulimits = vec![ulimit("core", 0, 0), ulimit("nofile", files, files), ulimit("nproc", processes, processes)];
    let number = |limit: Limit| i64::try_from(limit.max).unwrap_or(i64::MAX);
    ulimits.extend(limits.file_size.map(number).map(|max| ulimit("fsize", max, max)));
    // SIGXCPU at the soft limit, SIGKILL a second later.
    ulimits.extend(limits.cpu_time.map(number).map(|max| ulimit("cpu", max, max.saturating_add(1))));
    ulimits
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine = Machine { user: 1000, group: 100, has_cgroup_v2: true };
    const PODMAN: EngineFacts = EngineFacts { is_podman: true, is_rootless: false };

    fn spec(rest: &str, facts: EngineFacts) -> ContainerSpec {
        let options = Options::parse(rest).expect("valid");
        ContainerSpec::new(&options, facts, &ImageInspect::default(), Vec::new(), MACHINE).expect("decided")
    }

    #[test]
    fn the_user_keeps_its_files_with_every_kind_of_engine() {
        let rows = [
            (true, false, "1000:100", None),
            (true, true, "1000:100", Some("keep-id")),
            (false, false, "1000:100", Some("host")),
            (false, true, "0:0", None),
        ];
        for (is_podman, is_rootless, user, userns) in rows {
            let body = spec("a", EngineFacts { is_podman, is_rootless }).body_in(Path::new("/control"), "id");
            let host = body.host_config.expect("settings");
            assert_eq!((body.user.as_deref(), host.userns_mode.as_deref()), (Some(user), userns));
        }
    }

    #[test]
    fn a_container_has_no_privileges_and_no_network() {
        let host = |rest| spec(rest, PODMAN).body_in(Path::new("/control"), "id").host_config.expect("settings");
        let usual = host("a");
        assert_eq!(usual.network_mode.as_deref(), Some("none"));
        assert_eq!(usual.cap_drop, Some(vec!["ALL".to_owned()]));
        assert_eq!((usual.readonly_rootfs, usual.pids_limit), (Some(true), Some(1024)));
        assert!(usual.security_opt.expect("options").contains(&"no-new-privileges".to_owned()));
        assert_eq!(host("a?network=on").network_mode, None);
    }

    #[test]
    fn the_digest_names_the_settings_and_not_the_control_directory() {
        let [one, two, other] =
            ["a?directory=/x", "a?directory=/x", "a?directory=/x&memory=1g"].map(|rest| spec(rest, PODMAN).digest);
        assert_eq!(one, two);
        assert_ne!(one, other);
    }
}
