//! The steps of starting a command, for error messages.

use rustix::io::Errno;

/// The step that failed, and the error of the system.
pub(crate) type SpawnFailure = (SpawnStep, Errno);

/// A step of starting a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpawnStep {
    Clone,
    Descriptors,
    Users,
    Mounts,
    ReadOnly,
    Cover,
    Device,
    Proc,
    Workspace,
    Network,
    ProcessLimit,
    Start,
    Group,
    Limit,
    Directory,
    Privileges,
    Landlock,
    Filter,
    Program,
}

const STEPS: [SpawnStep; 19] = [
    SpawnStep::Clone,
    SpawnStep::Descriptors,
    SpawnStep::Users,
    SpawnStep::Mounts,
    SpawnStep::ReadOnly,
    SpawnStep::Cover,
    SpawnStep::Device,
    SpawnStep::Proc,
    SpawnStep::Workspace,
    SpawnStep::Network,
    SpawnStep::ProcessLimit,
    SpawnStep::Start,
    SpawnStep::Group,
    SpawnStep::Limit,
    SpawnStep::Directory,
    SpawnStep::Privileges,
    SpawnStep::Landlock,
    SpawnStep::Filter,
    SpawnStep::Program,
];

impl SpawnStep {
    /// Returns the number of the step, from 1. The supervisor reports it through an atomic.
    pub(super) fn number(self) -> u8 {
        self as u8 + 1
    }

    /// Returns the step with a number.
    pub(super) fn from_number(number: u8) -> Option<SpawnStep> {
        STEPS.into_iter().find(|step| step.number() == number)
    }

    /// Returns a message that says what this machine cannot do, and a hint.
    pub(super) fn explain(self, errno: Errno) -> (&'static str, Option<&'static str>) {
        let containers = "inside a container this has to be allowed from outside; \
                          `isolated:.?walls=landlock` does without namespaces, and `local:` without isolation";
        let namespaces = "user namespaces may be switched off: see `sysctl kernel.unprivileged_userns_clone`, \
                          `user.max_user_namespaces` and `kernel.apparmor_restrict_unprivileged_userns`; \
                          `isolated:.?walls=landlock` does without them, and `local:` without isolation";
        match self {
            SpawnStep::Clone if errno == Errno::AGAIN => ("the machine allows no more processes", None),
            SpawnStep::Clone if errno == Errno::NOMEM => ("the machine has no memory for another process", None),
            SpawnStep::Clone => ("this machine does not allow new namespaces", Some(namespaces)),
            SpawnStep::Descriptors => ("its file descriptors cannot be set up", Some("this needs Linux 5.9 or newer")),
            SpawnStep::Users => ("its user namespace cannot be set up", Some(namespaces)),
            SpawnStep::Mounts => ("its mount namespace cannot be set up", Some(namespaces)),
            SpawnStep::ReadOnly => {
                ("the machine's files cannot be made read-only", Some("this needs Linux 5.12 or newer, and namespaces"))
            }
            SpawnStep::Cover => ("private files cannot be hidden from it", Some(containers)),
            SpawnStep::Device => ("its `/dev` cannot be set up", Some(containers)),
            SpawnStep::Proc => ("its `/proc` cannot be mounted", Some(containers)),
            SpawnStep::Workspace => ("the workspace cannot be mounted", Some("the directory has to be there")),
            SpawnStep::Network => ("its network namespace cannot be set up", Some(containers)),
            SpawnStep::ProcessLimit => ("the number of its processes cannot be limited", None),
            SpawnStep::Start => ("its process cannot be started", None),
            SpawnStep::Group => ("it cannot be put into its control group", None),
            SpawnStep::Limit => {
                ("its limits cannot be set", Some("a limit may not be above that of the whole program"))
            }
            SpawnStep::Directory => ("its directory cannot be entered", None),
            SpawnStep::Privileges => ("its privileges cannot be dropped", None),
            SpawnStep::Landlock => ("its writes cannot be restricted by Landlock", Some(containers)),
            SpawnStep::Filter => {
                ("its system calls cannot be filtered", Some("this needs a kernel with seccomp filters"))
            }
            SpawnStep::Program => ("the program cannot be started", None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_has_its_own_number() {
        assert_eq!(SpawnStep::from_number(0), None);
        for step in STEPS {
            assert_eq!(SpawnStep::from_number(step.number()), Some(step));
        }
        assert_eq!(usize::from(SpawnStep::Program.number()), STEPS.len());
    }
}
