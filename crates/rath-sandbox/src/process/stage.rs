//! What is being done to start a command, so that what goes wrong can be said.

use rustix::io::Errno;

/// What could not be done, and what the system said.
pub(crate) type Failure = (Stage, Errno);

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
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
    Filter,
    Program,
}

const STAGES: [Stage; 18] = [
    Stage::Clone,
    Stage::Descriptors,
    Stage::Users,
    Stage::Mounts,
    Stage::ReadOnly,
    Stage::Cover,
    Stage::Device,
    Stage::Proc,
    Stage::Workspace,
    Stage::Network,
    Stage::ProcessLimit,
    Stage::Start,
    Stage::Group,
    Stage::Limit,
    Stage::Directory,
    Stage::Privileges,
    Stage::Filter,
    Stage::Program,
];

impl Stage {
    /// Its number among all of them, from 1.
    pub(super) fn number(self) -> u8 {
        self as u8 + 1
    }

    pub(super) fn numbered(number: u8) -> Option<Stage> {
        STAGES.into_iter().find(|stage| stage.number() == number)
    }

    /// What this machine cannot do, and what may be done about it.
    pub(super) fn explain(self, errno: Errno) -> (&'static str, Option<&'static str>) {
        let containers = "inside a container this has to be allowed from outside; \
                          `local:` runs commands without isolation";
        let namespaces = "user namespaces may be switched off: see `sysctl kernel.unprivileged_userns_clone`, \
                          `user.max_user_namespaces` and `kernel.apparmor_restrict_unprivileged_userns`; \
                          `local:` runs commands without isolation";
        match self {
            Stage::Clone if errno == Errno::AGAIN => ("the machine has no room for another process", None),
            Stage::Clone if errno == Errno::NOMEM => ("the machine has no memory for another process", None),
            Stage::Clone => ("this machine does not let it have namespaces of its own", Some(namespaces)),
            Stage::Descriptors => ("its descriptors cannot be set up", Some("this needs Linux 5.9 or newer")),
            Stage::Users => ("its users cannot be set up in a namespace of their own", Some(namespaces)),
            Stage::Mounts => ("its mounts cannot be made its own", Some(namespaces)),
            Stage::ReadOnly => {
                ("the machine's files cannot be made read-only", Some("this needs Linux 5.12 or newer, and namespaces"))
            }
            Stage::Cover => ("what is hidden from it cannot be covered", Some(containers)),
            Stage::Device => ("devices of its own cannot be set up", Some(containers)),
            Stage::Proc => ("`/proc` of its own cannot be mounted", Some(containers)),
            Stage::Workspace => ("the workspace cannot be shown to it", Some("the directory has to be there")),
            Stage::Network => ("a network of its own cannot be set up", Some(containers)),
            Stage::ProcessLimit => ("the number of its processes cannot be limited", None),
            Stage::Start => ("a process for it cannot be started", None),
            Stage::Group => ("it cannot be put into its control group", None),
            Stage::Limit => ("its limits cannot be set", Some("a limit may not be above that of the whole program")),
            Stage::Directory => ("its directory cannot be entered", None),
            Stage::Privileges => ("its privileges cannot be taken away", None),
            Stage::Filter => ("its system calls cannot be filtered", Some("this needs a kernel with seccomp filters")),
            Stage::Program => ("the program cannot be started", None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_has_a_number_of_its_own() {
        assert_eq!(Stage::numbered(0), None);
        for stage in STAGES {
            assert_eq!(Stage::numbered(stage.number()), Some(stage));
        }
        assert_eq!(usize::from(Stage::Program.number()), STAGES.len());
    }
}
