//! Commands that use interfaces of the kernel which a project does not need.
//!
//! `reaches` makes a system call with arguments that do no harm to the machine: the kernel looks at them, or the filter does.

use super::walls::Effect::LineSaysSo;
use super::walls::wall;
use super::{Attack, Users};

const ADMINISTRATION: Users = Users::RootOnly("the kernel asks for a capability before it looks at the arguments");

/// Returns a row for a system call by its number.
macro_rules! reaches {
    ($name:literal, $call:literal) => {
        wall(
            $name,
            LineSaysSo,
            concat!(
                "perl -e '($none, $here, $zeros) = (\"/none\", \".\", \"\\0\" x 208); $! = 0; syscall(",
                $call,
                "); print(($! == 1 || $! == 38) ? \"refused\" : \"HARM\")'"
            ),
        )
    };
}

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        wall("a user namespace", LineSaysSo, "unshare --user true && echo HARM"),
        wall(
            "root in a namespace of its own",
            LineSaysSo,
            "[ \"$(unshare --map-root-user --mount sh -c 'mkdir m && mount -t tmpfs none m && echo HARM')\" ] && echo HARM",
        ),
        wall(
            "a directory mounted over another",
            LineSaysSo,
            "unshare --map-root-user --mount mount --bind /usr below && echo HARM",
        ),
        wall("a network namespace", LineSaysSo, "unshare --map-root-user --net true && echo HARM"),
        wall("a process namespace", LineSaysSo, "unshare --map-root-user --pid --fork true && echo HARM"),
        wall("another root directory", LineSaysSo, "unshare --map-root-user chroot / true && echo HARM"),
        wall("another name of the machine", LineSaysSo, "unshare --map-root-user --uts hostname other && echo HARM"),
        wall(
            "a namespace by clone",
            LineSaysSo,
            "perl -e '$p = syscall(56, 0x10000011, 0, 0, 0, 0); exit 0 if $p == 0; print \"HARM\" if $p > 0'",
        ),
        reaches!("a process by the newest clone", "435, 0, 0"),
        reaches!("a namespace by the system call", "272, 0"),
        reaches!("the keys of the session", "250, 0, -3, 1"),
        wall(
            "a key that outlives the command",
            LineSaysSo,
            "perl -e '($t, $n, $x) = (\"user\", \"rath-test\", \"x\"); syscall(248, $t, $n, $x, 1, -2) > 0 and print \"HARM\"'",
        ),
        reaches!("a key asked for", "249, 0, 0, 0, 0"),
        reaches!("page faults in user space", "323, 1"),
        wall(
            "system calls in a ring",
            LineSaysSo,
            "perl -e '$p = \"\\0\" x 120; $! = 0; syscall(425, 8, $p); print(($! == 38) ? \"refused\" : \"HARM\")'",
        ),
        reaches!("a ring entered", "426, 999, 0, 0, 0, 0"),
        reaches!("a ring registered", "427, 999, 0, 0, 0"),
        reaches!("typing into a terminal", "16, 0, 0x5412, 0"),
        reaches!("typing into a terminal with more bits", "16, 0, 0x100005412, 0"),
        reaches!("pasting into a console", "16, 0, 0x541c, 0"),
        reaches!("a path with its own rules of resolution", "437, -100, 0, 0, 0"),
        reaches!("segments of the processor", "154, 0, 0, 0"),
        reaches!("a tree of mounts", "428, -100, $here, 0"),
        reaches!("the clock adjusted", "159, $zeros"),
        reaches!("a mount", "165, 0, 0, 0, 0, 0").by(ADMINISTRATION),
        reaches!("a mount removed", "166, $none, 0").by(ADMINISTRATION),
        reaches!("the root directory exchanged", "155, $none, $none").by(ADMINISTRATION),
        reaches!("the root directory of a process", "161, $none").by(ADMINISTRATION),
        reaches!("a file system opened", "430, 0, 0").by(ADMINISTRATION),
        reaches!("a file system configured", "431, -1, 0, 0, 0, 0").by(ADMINISTRATION),
        reaches!("a mount changed", "442, -1, 0, 0, 0, 0").by(ADMINISTRATION),
        reaches!("a namespace entered", "308, -1, 0").by(ADMINISTRATION),
        reaches!("programs in the kernel", "321, 0, 0, 0").by(ADMINISTRATION),
        reaches!("counters of the processor", "298, 0, 0, 0, 0, 0").by(ADMINISTRATION),
        reaches!("a file by its handle", "304, -1, 0, 0").by(ADMINISTRATION),
        reaches!("accounting of processes", "163, $none").by(ADMINISTRATION),
        reaches!("swap space", "167, $none, 0").by(ADMINISTRATION),
        reaches!("a restart of the machine", "169, 0, 0, 0, 0").by(ADMINISTRATION),
        reaches!("all file events of the machine", "300, 0x8000, 0").by(ADMINISTRATION),
        wall("a device made", LineSaysSo, "mknod disk b 254 0 && echo HARM")
            .by(Users::RootOnly("only root may make devices")),
        wall("a file given to another user", LineSaysSo, "chown 12345 file && echo HARM")
            .by(Users::RootOnly("only root may give files away")),
        wall("the identity of another user", LineSaysSo, "perl -e '$> = 12345; print \"HARM\" if $> == 12345'")
            .by(Users::RootOnly("only root may become another user")),
        wall("capabilities of root", LineSaysSo, "grep -q 'CapEff:.*[1-9a-f]' /proc/self/status && echo HARM")
            .by(Users::RootOnly("others have none")),
        wall("capabilities within reach", LineSaysSo, "grep -q 'CapBnd:.*[1-9a-f]' /proc/self/status && echo HARM"),
        wall("privileges from programs of root", LineSaysSo, "grep -q 'NoNewPrivs:.0' /proc/self/status && echo HARM"),
        wall("all system calls", LineSaysSo, "grep -q 'Seccomp:.0' /proc/self/status && echo HARM"),
    ]
}
