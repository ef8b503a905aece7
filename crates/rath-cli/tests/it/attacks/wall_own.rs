//! Commands that write in `.git` and `.rath` of the project, or leave files that run as their owner.

use super::walls::Effect::{CanaryIsPrinted, FileRunsAsOwner, OwnFilesChange};
use super::walls::wall;
use super::{Attack, Users};

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        wall("a hook of git", OwnFilesChange, "echo $EVIL > .git/hooks/pre-commit"),
        wall(
            "a program in the settings of git",
            OwnFilesChange,
            "git config core.fsmonitor $EVIL || echo x >> .git/config",
        ),
        wall(
            "a filter in the attributes of git",
            OwnFilesChange,
            "mkdir -p .git/info && echo '* filter=x' > .git/info/attributes",
        ),
        wall("an excluded file of git", OwnFilesChange, "mkdir -p .git/info && echo '*' > .git/info/exclude"),
        wall("the settings of git removed", OwnFilesChange, "rm .git/config"),
        wall("another repository in the place of the first", OwnFilesChange, "rm -rf .git && git init -q ."),
        wall("the repository moved away", OwnFilesChange, "mv .git moved"),
        wall("the repository moved by a system call", OwnFilesChange, "perl -e 'rename(\".git\", \"moved\") or die'"),
        wall("a directory of hooks moved out", OwnFilesChange, "mv .git/hooks hooks"),
        wall("a directory of hooks opened to all", OwnFilesChange, "chmod 777 .git/hooks"),
        wall("a link in the repository", OwnFilesChange, "ln -s / .git/link"),
        wall(
            "a hook written from inside the repository",
            OwnFilesChange,
            "cd .git/hooks && echo $EVIL > post-checkout",
        ),
        wall("a hard link to the settings of git", OwnFilesChange, "ln .git/config hard && echo $EVIL >> hard"),
        wall(
            "the settings of git by a descriptor",
            OwnFilesChange,
            "exec 3< .git/config; echo $EVIL > /proc/self/fd/3",
        ),
        wall("the repository by a link", OwnFilesChange, "ln -s .git g && echo $EVIL > g/hooks/pre-push"),
        wall("the repository by /proc/self/cwd", OwnFilesChange, "echo $EVIL > /proc/self/cwd/.git/hooks/pre-push"),
        wall(
            "a commit that runs what it likes",
            OwnFilesChange,
            "git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x; echo x > .git/HEAD",
        ),
        wall(
            "a hook of a project below",
            OwnFilesChange,
            "mkdir -p lib/nested/.git/hooks && echo $EVIL > lib/nested/.git/hooks/x",
        ),
        wall("the settings of a project below", OwnFilesChange, "echo $EVIL >> lib/nested/.git/config"),
        wall("the repository of a module exchanged", OwnFilesChange, "echo 'gitdir: ../evil' > lib/module/.git"),
        wall("the repository of a module removed", OwnFilesChange, "rm lib/module/.git"),
        wall("the repository of a project below removed", OwnFilesChange, "rm -rf lib/nested/.git"),
        wall("a hook in a directory that the settings of git name", OwnFilesChange, "echo $EVIL > .githooks/pre-push"),
        wall("another directory for the hooks that git names", OwnFilesChange, "mv .githooks x && mkdir .githooks"),
        wall("settings that those of git include", OwnFilesChange, "echo $EVIL >> lib/gitinc"),
        wall(
            "another file for the settings that git includes",
            OwnFilesChange,
            "rm lib/gitinc; echo $EVIL > lib/gitinc",
        ),
        wall("the store of a project below overwritten", OwnFilesChange, "echo $EVIL > lib/nested/.rath/secret"),
        wall("the store of a project below read", CanaryIsPrinted, "cat lib/nested/.rath/secret"),
        wall(
            "the store of a project below moved away and read",
            CanaryIsPrinted,
            "mv lib/nested b && cat b/.rath/secret",
        ),
        wall("the store of rath overwritten", OwnFilesChange, "echo $EVIL > .rath/secret"),
        wall("a session planted in the store", OwnFilesChange, "echo $EVIL > .rath/rath.db"),
        wall("the store of rath removed", OwnFilesChange, "rm -rf .rath/secret"),
        wall("the store of rath exchanged for a link", OwnFilesChange, "mv .rath moved && ln -s /etc .rath"),
        wall("the store of rath by a link to it", OwnFilesChange, "ln -s .rath r && echo $EVIL > r/new"),
        wall("a program that runs as its owner, by chmod", FileRunsAsOwner, "chmod u+s file"),
        wall("a program that runs as its group, by chmod", FileRunsAsOwner, "chmod g+s file"),
        wall("a copy of a shell that runs as its owner", FileRunsAsOwner, "cp /bin/sh copy && chmod 4755 copy"),
        wall("a program installed to run as its owner", FileRunsAsOwner, "install -m 4755 /bin/true suid"),
        wall(
            "a file created to run as its owner",
            FileRunsAsOwner,
            "perl -MFcntl -e 'umask 0; sysopen(F, \"suid\", O_CREAT | O_WRONLY, 04755) or die'",
        ),
        wall(
            "a file created by creat to run as its owner",
            FileRunsAsOwner,
            "perl -e 'umask 0; $f = \"suid\"; syscall(85, $f, 06755) >= 0 or die'",
        ),
        wall(
            "a node that runs as its owner",
            FileRunsAsOwner,
            "perl -e 'umask 0; $f = \"suid\"; syscall(133, $f, 0106755, 0) == 0 or die'",
        ),
        wall(
            "the mode of an open file",
            FileRunsAsOwner,
            "perl -e 'open F, \"<\", \"file\"; syscall(91, fileno(F), 04755) == 0 or die'",
        ),
        wall(
            "the mode by a directory and a name",
            FileRunsAsOwner,
            "perl -e '$f = \"file\"; syscall(268, -100, $f, 04755) == 0 or die'",
        ),
        wall(
            "the mode by the newest call",
            FileRunsAsOwner,
            "perl -e '$f = \"file\"; syscall(452, -100, $f, 04755, 0) == 0 or syscall(268, -100, $f, 04755) == 0 or die'",
        ),
        wall(
            "a file without a name that gets one and runs as its owner",
            FileRunsAsOwner,
            "perl -e 'umask 0; ($d, $f) = (\".\", \"suid\"); $fd = syscall(257, -100, $d, 020200000 | 2, 04755); $fd >= 0 or die $!; \
             $p = \"/proc/self/fd/$fd\"; syscall(265, -100, $p, -100, $f, 0x400) == 0 or die $!'",
        ),
        wall(
            "an archive with a program that runs as its owner",
            FileRunsAsOwner,
            "perl -e 'print pack(\"a100 a8 a8 a8 a12 a12 a8 a1 a100 a6 a2\", \"suid\", \"0004755\\0\", \"0000000\\0\", \"0000000\\0\", \
             \"00000000000\\0\", \"00000000000\\0\", \"        \", \"0\", \"\", \"ustar\", \"00\")' > h; \
             perl -e 'open F, \"<\", \"h\"; read F, $h, 512; $h .= \"\\0\" x (512 - length $h); \
             substr($h, 148, 8) = sprintf(\"%06o\\0 \", unpack(\"%32C*\", $h)); print $h, \"\\0\" x 1024' > a.tar; \
             tar -xpf a.tar --no-same-owner",
        ),
        wall(
            "a program that runs as root for all",
            FileRunsAsOwner,
            "cp /bin/true suid && chown 0:0 suid && chmod 6755 suid",
        )
        .by(Users::RootOnly("only root may give files to root")),
    ]
}
