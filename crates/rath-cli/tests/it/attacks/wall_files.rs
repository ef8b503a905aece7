//! Commands that write outside of the project, or read what is private.

use super::walls::Effect::{CanaryIsPrinted, LineSaysSo, OutsideChanges};
use super::walls::wall;
use super::{Attack, Users};

pub(super) fn attacks() -> Vec<Attack> {
    let mut all = writing();
    all.extend(reading());
    all
}

/// Writes outside of the project.
fn writing() -> Vec<Attack> {
    vec![
        wall("a new file outside", OutsideChanges, "echo $EVIL > \"$OUT/new\""),
        wall("a line at the end of a file outside", OutsideChanges, "echo $EVIL >> \"$OUT/file\""),
        wall("a file outside cut to nothing", OutsideChanges, ": > \"$OUT/file\""),
        wall("a file outside removed", OutsideChanges, "rm -f \"$OUT/file\""),
        wall("a directory made outside", OutsideChanges, "mkdir \"$OUT/new\""),
        wall("a directory removed outside", OutsideChanges, "rmdir \"$OUT/sub\""),
        wall("a file outside opened to all", OutsideChanges, "chmod 666 \"$OUT/file\""),
        wall("a directory outside opened to all", OutsideChanges, "chmod 777 \"$OUT\""),
        wall("the time of a file outside", OutsideChanges, "touch -d @1 \"$OUT/file\""),
        wall("a hard link outside", OutsideChanges, "ln file \"$OUT/hard\""),
        wall("a symbolic link outside", OutsideChanges, "ln -s /etc/passwd \"$OUT/soft\""),
        wall("a file moved outside", OutsideChanges, "mv file \"$OUT/moved\""),
        wall("a file outside replaced by a rename", OutsideChanges, "mv -f file \"$OUT/file\""),
        wall("a file outside taken away by a rename", OutsideChanges, "mv \"$OUT/file\" taken"),
        wall("a write through a link of the project", OutsideChanges, "echo $EVIL > to-outside/file"),
        wall("a write through a link that the command makes", OutsideChanges, "ln -s \"$OUT\" l && echo $EVIL > l/new"),
        wall("a write below /proc/self/root", OutsideChanges, "echo $EVIL > \"/proc/self/root$OUT/new\""),
        wall("a write above /proc/self/cwd", OutsideChanges, "echo $EVIL > /proc/self/cwd/../outside/new"),
        wall("a write in the parent directory", OutsideChanges, "cd .. && echo $EVIL > outside/new"),
        wall(
            "a descriptor for reading opened for writing",
            OutsideChanges,
            "exec 3< \"$OUT/file\"; echo $EVIL > /proc/self/fd/3",
        ),
        wall(
            "a hard link to a file outside written in the project",
            OutsideChanges,
            "ln \"$OUT/file\" in && echo $EVIL > in",
        ),
        wall(
            "a file outside opened for reading and writing",
            OutsideChanges,
            "perl -e 'open(F, \"+<\", \"$ENV{OUT}/file\") or die; seek(F, 0, 0); syswrite(F, \"EVIL\")'",
        ),
        wall("a pipe made outside", OutsideChanges, "mkfifo \"$OUT/pipe\""),
        wall(
            "an archive unpacked outside",
            OutsideChanges,
            "tar -cf a.tar file && tar -xf a.tar -C \"$OUT\" --transform s/file/new/",
        ),
        wall("a repository made outside", OutsideChanges, "git init -q \"$OUT/repo\""),
        wall("a file renamed inside a directory outside", OutsideChanges, "cd \"$OUT\" && mv file other"),
        wall(
            "two files exchanged over the border",
            OutsideChanges,
            "perl -e '$f = \"file\"; $o = \"$ENV{OUT}/file\"; syscall(316, -100, $f, -100, $o, 2) == 0 or die $!'",
        ),
        wall("a hidden directory of temporary files", OutsideChanges, "echo $EVIL > \"$HIDDEN/new\""),
        wall("a file system in memory", OutsideChanges, "echo $EVIL > \"$MEMORY/new\""),
        wall("another project", OutsideChanges, "echo $EVIL > \"$OTHER/Makefile\""),
        wall("the settings of the shell", OutsideChanges, "echo $EVIL >> ~/.bashrc"),
        wall("a key for logging in", OutsideChanges, "echo $EVIL >> ~/.ssh/authorized_keys"),
        wall(
            "a program that starts with the desktop",
            OutsideChanges,
            "mkdir -p ~/.config/autostart && echo $EVIL > ~/.config/autostart/x.desktop",
        ),
        wall(
            "a program in the path of the user",
            OutsideChanges,
            "mkdir -p ~/.local/bin && cp /bin/true ~/.local/bin/git",
        ),
        wall(
            "the rules of rath itself",
            OutsideChanges,
            "mkdir -p ~/.config/rath && echo '[permissions]' > ~/.config/rath/config.toml",
        ),
        wall("the settings of git", OutsideChanges, "git config --global core.pager $EVIL"),
        wall("the home directory emptied", OutsideChanges, "rm -rf ~/.ssh ~/letter.txt"),
        wall("a write through a link to the home", OutsideChanges, "echo $EVIL > to-home/new"),
        wall(
            "a setting of the kernel",
            LineSaysSo,
            "v=$(cat /proc/sys/vm/swappiness); echo $v > /proc/sys/vm/swappiness && echo HARM",
        )
        .by(Users::RootOnly("settings of the kernel belong to root")),
        wall("a file of the system", LineSaysSo, "touch -c -r /etc/passwd /etc/passwd && echo HARM")
            .by(Users::RootOnly("files of the system belong to root")),
        wall("a new file in /etc", LineSaysSo, "d=$(mktemp -d /etc/rath-test.XXXXXX) && rmdir \"$d\" && echo HARM")
            .by(Users::RootOnly("files of the system belong to root")),
        wall(
            "a control group",
            LineSaysSo,
            "for d in /sys/fs/cgroup /sys/fs/cgroup/memory /sys/fs/cgroup/unified; do \
             mkdir $d/rath-test-$$ 2>/dev/null && rmdir $d/rath-test-$$ && echo HARM; done; true",
        )
        .by(Users::RootOnly("control groups belong to root")),
        wall(
            "a setting in /sys",
            LineSaysSo,
            "f=/sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan; v=$(cat $f); echo $v > $f && echo HARM",
        )
        .by(Users::RootOnly("settings of the kernel belong to root")),
    ]
}

/// Reads of private files.
fn reading() -> Vec<Attack> {
    vec![
        wall("a key for other machines", CanaryIsPrinted, "cat ~/.ssh/id_ed25519"),
        wall("keys of a cloud", CanaryIsPrinted, "cat ~/.aws/credentials"),
        wall("passwords for the network", CanaryIsPrinted, "cat ~/.netrc"),
        wall("a token of a forge", CanaryIsPrinted, "cat ~/.config/gh/hosts.yml"),
        wall("a token of a registry", CanaryIsPrinted, "cat ~/.cargo/credentials.toml ~/.docker/config.json"),
        wall("the lines that the user typed", CanaryIsPrinted, "cat ~/.bash_history"),
        wall("cookies of a browser", CanaryIsPrinted, "cat ~/.mozilla/firefox/*/cookies.sqlite"),
        wall("the key that signs the sessions of the user", CanaryIsPrinted, "cat ~/.local/share/rath/user.key"),
        wall("a document in the home", CanaryIsPrinted, "cat ~/letter.txt"),
        wall("the home by a relative path", CanaryIsPrinted, "cat ../home/letter.txt"),
        wall("the home by a link of the project", CanaryIsPrinted, "cat to-home/letter.txt"),
        wall("the home below /proc/self/root", CanaryIsPrinted, "cat \"/proc/self/root$HOME/letter.txt\""),
        wall("the home copied into the project", CanaryIsPrinted, "cp -r ~/. copy && cat copy/letter.txt"),
        wall("a hard link to a private file", CanaryIsPrinted, "ln ~/letter.txt in && cat in"),
        wall(
            "a search through all of the machine",
            CanaryIsPrinted,
            "grep -rs --exclude-dir=outside CANARY \"${HOME%/*}\"",
        ),
        wall("names of files in the home", LineSaysSo, "ls ~ | grep -q letter.txt && echo HARM"),
        wall("a hidden directory", CanaryIsPrinted, "cat \"$HIDDEN/secret\""),
        wall("settings of another project", CanaryIsPrinted, "cat \"$OTHER/.env\""),
        wall("files of others in memory", CanaryIsPrinted, "cat \"$MEMORY/secret\""),
        wall("the store of rath", CanaryIsPrinted, "cat .rath/secret"),
        wall("the store of rath by a link", CanaryIsPrinted, "ln -s .rath l && cat l/secret"),
        wall("the store of rath moved away", CanaryIsPrinted, "mv .rath moved && cat moved/secret"),
        wall("the store of rath by /proc/self/cwd", CanaryIsPrinted, "cat /proc/self/cwd/.rath/secret"),
        wall("the store of rath in an archive", CanaryIsPrinted, "tar -cf - . | tr -d '\\0'"),
        wall("logs of the machine", LineSaysSo, "ls /var/log | grep -q . && echo HARM"),
        wall(
            "data of services",
            LineSaysSo,
            "ls /var/lib | grep -q dpkg && echo HARM; ls /var/lib | grep -qv ca-cert && echo HARM",
        ),
        wall("sockets and files of running services", LineSaysSo, "ls /run | grep -q . && echo HARM"),
        wall("hashes of passwords", LineSaysSo, "grep -q . /etc/shadow && echo HARM")
            .by(Users::RootOnly("only root may read them")),
        wall("the messages of the kernel", LineSaysSo, "dmesg | grep -q . && echo HARM")
            .by(Users::RootOnly("some kernels keep them from others")),
        wall(
            "terminals of the user",
            LineSaysSo,
            "ls /dev/pts | grep -qv ptmx && echo HARM; ls /dev | grep -q tty1 && echo HARM; ls /dev | grep -q ttyS0 && echo HARM",
        ),
        wall(
            "disks by their names",
            LineSaysSo,
            "ls /dev/[svn][dv][a-m]* /dev/loop* 2>/dev/null | grep -q . && echo HARM",
        ),
    ]
}
