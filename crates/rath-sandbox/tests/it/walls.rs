//! The isolation of commands. Each forbidden action is shown to work without isolation.

use std::io::ErrorKind::WouldBlock;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;

use rath_sandbox::{Command, ExitStatus, Isolated, Local, Sandbox};

use super::{mark, printed, run, sh};

/// A workspace, and files outside it.
pub(super) struct Fixture {
    directory: rath_test_support::TempDir,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let directory = rath_test_support::temp_dir_in(env!("CARGO_TARGET_TMPDIR").as_ref());
        for path in ["work/.rath", "work/below", "outside", "home/.ssh", "home/.cargo/bin", "hidden"] {
            std::fs::create_dir_all(directory.path().join(path)).expect("a directory");
        }
        let secrets = ["work/.rath/secret", "home/.ssh/secret", "home/secret", "hidden/secret", "work/below/secret"];
        for path in secrets.iter().chain(&["outside/file", "work/file", "home/.cargo/bin/tool"]) {
            std::fs::write(directory.path().join(path), "words\n").expect("a file");
        }
        Fixture { directory }
    }

    pub(super) fn path(&self, below: &str) -> PathBuf {
        self.directory.path().canonicalize().expect("a directory").join(below)
    }

    fn home(&self) -> String {
        self.path("home").display().to_string()
    }

    pub(super) fn isolated(&self) -> Isolated {
        Isolated::new(self.path("work")).env("HOME", self.home()).hide(self.path("hidden")).hide("below")
    }

    /// Returns an isolated sandbox that shows the directory `outside`, even if it is in a hidden one such as `/tmp`.
    fn showing_outside(&self) -> Sandbox {
        self.isolated().show(self.path("outside")).into()
    }

    pub(super) fn local(&self) -> Sandbox {
        Local::new(self.path("work")).env("HOME", self.home()).into()
    }
}

/// Returns true if a line of shell succeeds.
pub(super) fn succeeds(sandbox: &Sandbox, line: &str, fixture: &Fixture) -> bool {
    let mut command = Command::shell(line);
    command.env = vec![
        ("OUT".to_owned(), fixture.path("outside").display().to_string()),
        ("HIDDEN".to_owned(), fixture.path("hidden").display().to_string()),
    ];
    let output = run(sandbox, &command);
    eprintln!("{:?} {line}\n{}", output.status, printed(&output));
    output.status == ExitStatus::Exit(0)
}

/// Writes that the mounts allow, since the file systems are new and gone with the command, and the wall beneath them does not.
#[test]
fn landlock_is_a_second_wall_beneath_the_mounts() {
    let (fixture, probe) = (Fixture::new(), "touch /home/x 2>&1 || touch /root/x 2>&1");
    let sandbox: Sandbox = Isolated::new(fixture.path("work")).env("HOME", "/home/tester/deep").into();
    let output = run(&sandbox, &Command::shell(probe));
    // A kernel without Landlock has the first wall only.
    let is_there = super::block_on(sandbox.capabilities()).expect("it runs").landlock;
    assert_eq!(printed(&output).contains("Permission denied"), is_there, "{}", printed(&output));
    for line in [
        "touch /home/tester/deep/x",
        "touch /tmp/x /var/tmp/x /dev/shm/x x",
        "echo x > /dev/null",
        "mv x y && mkdir d && mv y d/z",
    ] {
        assert!(succeeds(&sandbox, line, &fixture), "{line}");
    }
}

#[test]
fn nothing_outside_the_workspace_can_be_changed_and_nothing_private_be_read() {
    let rows = [
        "echo x > \"$OUT/new\"",
        "echo x >> \"$OUT/file\"",
        "rm \"$OUT/file\"",
        "mkdir \"$OUT/folder\"",
        "chmod 777 \"$OUT\"",
        "touch \"$OUT/file\"",
        "ln file \"$OUT/link\"",
        "mv file \"$OUT/moved\" && mv \"$OUT/moved\" file",
        "cat ~/.ssh/secret",
        "cat ~/secret",
        "ls ~ | grep secret",
        "cat \"$HIDDEN/secret\"",
        "cat below/secret",
        "cat .rath/secret",
        "echo x > .rath/new",
        "mv .rath moved && mv moved .rath",
        // The mark is in a file, so that grep does not find its own command line.
        "grep -aqf mark /proc/[0-9]*/cmdline",
        "kill -0 $(grep -alf mark /proc/[0-9]*/cmdline | head -1 | tr -dc 0-9)",
        "cat /proc/1/cmdline",
        "ls -d /run/* /var/lib/*",
        "ls /var/cache | grep -v fontconfig | grep .",
    ];
    let mark = mark();
    let mut other = rath_test_support::program("sleep").arg(&mark).spawn().expect("it starts");
    let marked = || {
        let fixture = Fixture::new();
        std::fs::write(fixture.path("work/mark"), &mark).expect("a file");
        fixture
    };
    for row in rows {
        let fixture = marked();
        assert!(succeeds(&fixture.local(), row, &fixture), "without isolation it works: {row}");
        let fixture = marked();
        assert!(!succeeds(&fixture.showing_outside(), row, &fixture), "isolated: {row}");
        assert_eq!(std::fs::read_dir(fixture.path("outside")).expect("a directory").count(), 1, "{row}");
    }
    other.kill().expect("it still runs");
    other.wait().expect("it has ended");
}

#[test]
fn an_isolated_command_has_what_it_needs() {
    let rows = [
        "echo x > new && rm new && mkdir directory && mv file directory/",
        "echo x > /tmp/new && cat /tmp/new && echo x > /var/tmp/new",
        "echo x > ~/new && cat ~/new",
        "cat ~/.cargo/bin/tool",
        "cat \"$OUT/file\"",
        "echo x > /dev/null && echo x > /dev/stderr && echo x > /dev/shm/new && head -c 1 /dev/urandom > x",
        "cat /proc/meminfo /proc/self/status && [ \"$(cat /proc/sys/kernel/hostname)\" = rath ]",
        "perl -MIO::Socket::INET -e '$l = IO::Socket::INET->new(Listen => 1, LocalAddr => \"127.0.0.1\") or exit 1; \
         IO::Socket::INET->new(PeerAddr => \"127.0.0.1\", PeerPort => $l->sockport) or exit 2'",
        "sh -c 'kill $$; sleep 10' ; [ $? = 143 ]",
        "cd below/.. && pwd && git --version",
        "script -qc 'echo a terminal' /dev/null || true",
    ];
    for row in rows {
        let fixture = Fixture::new();
        assert!(succeeds(&fixture.showing_outside(), row, &fixture), "{row}");
    }
    // Files outside the workspace are removed with the command.
    let fixture = Fixture::new();
    let sandbox = Sandbox::from(fixture.isolated());
    sh(&sandbox, "echo x > /tmp/new; echo x > ~/new; echo x > /dev/shm/new; echo x > kept");
    assert_eq!(printed(&sh(&sandbox, "ls /tmp ~ /dev/shm | grep new; ls kept")), "kept\n");
}

#[test]
fn a_hidden_host_shows_its_programs_only() {
    let fixture = Fixture::new();
    let sandbox = Sandbox::from(fixture.isolated().hidden_host());
    assert!(succeeds(&sandbox, "echo x > new && ls /usr/bin > /dev/null && cat /etc/passwd > /dev/null", &fixture));
    assert!(!succeeds(&sandbox, "cat \"$OUT/file\"", &fixture));
    let shown = Sandbox::from(fixture.isolated().hidden_host().show(fixture.path("outside")));
    assert!(succeeds(&shown, "cat \"$OUT/file\" && ! echo x > \"$OUT/new\"", &fixture));
}

#[test]
fn another_directory_is_seen_at_the_path_of_the_first() {
    let fixture = Fixture::new();
    let sandbox = Sandbox::from(fixture.isolated());
    let fork = fixture.path("work/.rath/fork");
    std::fs::create_dir_all(fork.join("below")).expect("a directory");
    std::fs::write(fork.join("file"), "forked\n").expect("a file");
    let other = sandbox.with_directory(&fork).expect("it is on this machine");
    let path = fixture.path("work").display().to_string();
    let line = format!("pwd; cat '{path}/file'; echo x > '{path}/new'; ls -A");
    assert_eq!(printed(&sh(&other, &line)), format!("{path}\nforked\nbelow\nfile\nnew\n"));
    assert!(fork.join("new").exists() && !fixture.path("work/new").exists());
    assert_eq!(printed(&sh(&sandbox, "cat file; ls new")).lines().next(), Some("words"));
    let again = Sandbox::open(other.uri()).expect("it was just written");
    assert_eq!(printed(&sh(&again, "pwd; cat file")), format!("{path}\nforked\n"));
}

/// Returns a line of shell that connects, and prints "connected" or the error.
fn connect(to: &str) -> String {
    format!("perl -MSocket -e '{to}; print connect($s, $a) ? \"connected\" : \"$!\"'")
}

#[test]
fn there_is_no_network_by_default() {
    let fixture = Fixture::new();
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    udp.set_nonblocking(true).expect("a socket");
    // The path of a socket is limited to about 100 bytes, so both sides name it relative to its directory.
    let directory = rath_test_support::temp_dir_in(env!("CARGO_TARGET_TMPDIR").as_ref());
    let open = std::fs::File::open(directory.path()).expect("a directory");
    let path = format!("/proc/self/fd/{}/socket", std::os::fd::AsRawFd::as_raw_fd(&open));
    let _unix = UnixListener::bind(path).expect("a socket");
    let name = format!("rath-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let _abstract = UnixListener::bind_addr(&address).expect("a socket");
    let port = |address: std::net::SocketAddr| address.port();
    let (tcp_port, udp_port) = (port(tcp.local_addr().expect("bound")), port(udp.local_addr().expect("bound")));
    let inet = |kind: &str, port: u16| {
        connect(&format!("socket($s, AF_INET, {kind}, 0); $a = sockaddr_in({port}, inet_aton(\"127.0.0.1\"))"))
    };
    let unix = |name: &str| connect(&format!("socket($s, AF_UNIX, SOCK_STREAM, 0); $a = sockaddr_un(\"{name}\")"));
    let send =
        inet("SOCK_DGRAM", udp_port).replace("print connect($s, $a)", "connect($s, $a); print send($s, \"x\", 0)");
    // True if there is a connection: without isolation, isolated with network, isolated without.
    let rows = [
        ("tcp", inet("SOCK_STREAM", tcp_port), [true, true, false]),
        ("unix", format!("cd '{}' && {}", directory.path().display(), unix("socket")), [true, false, false]),
        ("abstract", unix(&format!("\\0{name}")), [true, true, false]),
    ];
    let sandboxes = [fixture.local(), fixture.isolated().network().into(), fixture.isolated().into()];
    for (what, line, wanted) in rows {
        let found = sandboxes.each_ref().map(|sandbox| {
            let printed = printed(&sh(sandbox, &line));
            eprintln!("{what} in {sandbox:?}: {printed}");
            printed == "connected"
        });
        assert_eq!(found, wanted, "{what}");
    }
    for (sandbox, arrives) in sandboxes.iter().zip([true, true, false]) {
        sh(sandbox, &send);
        let came = udp.recv(&mut [0; 8]);
        assert_eq!(came.is_ok(), arrives, "udp in {sandbox:?}: {came:?}");
        assert!(arrives || came.is_err_and(|error| error.kind() == WouldBlock));
    }
}

#[test]
fn what_git_would_run_later_is_not_written() {
    let fixture = Fixture::new();
    let git = fixture.path("work/.git");
    std::fs::create_dir_all(git.join("hooks")).expect("made");
    std::fs::write(git.join("config"), "[core]\n").expect("written");
    let rows = [
        "echo evil > .git/hooks/pre-commit",
        "echo evil >> .git/config",
        "mkdir .git/new",
        "rm .git/config",
        "rm -rf .git && mkdir .git",
        "mv .git moved",
        "mv .git/hooks hooks",
        "chmod 777 .git/hooks",
        "touch .git/config",
        "ln -s /tmp .git/link",
        "perl -e 'rename(\".git\", \"moved\") or exit 1'",
        "cd .git && echo evil > hooks/post-checkout",
        "ln .git/config hard && echo evil >> hard",
    ];
    let sandbox = Sandbox::from(fixture.isolated());
    for row in rows {
        assert!(!succeeds(&sandbox, row, &fixture), "{row}");
    }
    assert_eq!(printed(&sh(&sandbox, "cat .git/config")), "[core]\n");
    assert_eq!(std::fs::read_to_string(git.join("config")).expect("a file"), "[core]\n");
    assert_eq!(std::fs::read_dir(git.join("hooks")).expect("a directory").count(), 0);
    // File tools do not write there, at any depth and under no name.
    std::os::unix::fs::symlink(".git", fixture.path("work/alias")).expect("a link");
    for path in [".git/hooks/x", "alias/hooks/x", "sub/.git/config", ".GIT/config"] {
        let error = crate::block_on(sandbox.write(path, b"evil")).expect_err(path);
        assert_eq!(error.kind(), rath_sandbox::ErrorKind::OutsideWorkspace, "{path}: {error}");
    }
    let writable = Sandbox::from(fixture.isolated().writable_git());
    assert!(succeeds(&writable, "echo fine > .git/hooks/sample", &fixture));
    let reopened = Sandbox::open(writable.uri()).expect("a sandbox");
    assert!(succeeds(&reopened, "rm .git/hooks/sample", &fixture));
    // A directory that has none is as before.
    std::fs::remove_dir_all(&git).expect("removed");
    assert!(succeeds(&sandbox, "echo x > file", &fixture));
}

/// A workspace with other projects in it, at several depths.
pub(super) fn nested_projects() -> Fixture {
    let fixture = Fixture::new();
    for path in ["sub/.git/hooks", "sub/.rath", "a/b/c/.git", "a/b/c/.rath"] {
        std::fs::create_dir_all(fixture.path("work").join(path)).expect("a directory");
    }
    // Repositories that a `.git` names: by a link, and by a file, below and at the top.
    let work = fixture.path("work");
    for path in ["linked/repository", "named/repository", "repository"] {
        std::fs::create_dir_all(work.join(path)).expect("a directory");
        std::fs::write(work.join(path).join("config"), "words\n").expect("a file");
    }
    std::os::unix::fs::symlink("repository", work.join("linked/.git")).expect("a link");
    std::fs::write(work.join("named/.git"), "gitdir: repository\n").expect("a file");
    std::fs::write(work.join(".git"), "gitdir: ./repository\n").expect("a file");
    for path in ["sub/.git/config", "sub/.rath/secret", "a/b/c/.git/config", "a/b/c/.rath/secret", "module/.git"] {
        let path = fixture.path("work").join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, "words\n").expect("a file");
    }
    fixture
}

/// Each row is the lines of several commands, one after the other, in one sandbox. The last must fail.
#[test]
fn projects_in_the_workspace_are_protected_at_any_depth() {
    let rows: [&[&str]; 19] = [
        &["cat sub/.rath/secret"],
        &["cat a/b/c/.rath/secret"],
        &["echo evil > sub/.rath/new"],
        &["cd a/b/c && cat .rath/secret"],
        &["mv sub/.rath moved"],
        &["echo evil > sub/.git/hooks/pre-commit"],
        &["echo evil >> a/b/c/.git/config"],
        &["rm -rf a"],
        &["mv sub/.git moved"],
        &["echo 'gitdir: ../evil' > module/.git"],
        &["rm module/.git"],
        &["echo evil >> linked/repository/config"],
        &["echo evil >> named/repository/config"],
        &["echo evil >> repository/config"],
        // Another would take its place.
        &["mv named other"],
        &["mv sub other"],
        &["mv a other"],
        &["mv a/b other"],
        &["mv sub other; cp -r other sub && echo evil >> sub/.git/config"],
    ];
    for row in rows {
        let fixture = nested_projects();
        let run = |sandbox: Sandbox| {
            let (last, first) = row.split_last().expect("a line");
            first.iter().for_each(|line| assert!(succeeds(&sandbox, line, &fixture), "{line}"));
            succeeds(&sandbox, last, &fixture)
        };
        assert!(!run(fixture.isolated().into()), "isolated: {row:?}");
        let fixture = nested_projects();
        let local = fixture.local();
        assert!(row.iter().all(|line| succeeds(&local, line, &fixture)), "without isolation it works: {row:?}");
    }
    let fixture = nested_projects();
    let sandbox = Sandbox::from(fixture.isolated());
    for line in
        ["cat sub/.git/config a/b/c/.git/config module/.git", "echo x > sub/file && mv sub/file a/file", "mv a/file z"]
    {
        assert!(succeeds(&sandbox, line, &fixture), "{line}");
    }
    // A file by such a name keeps no later command from running.
    let odd = ["echo x > .Rath", "mkdir odd && echo x > odd/.rath", "mkfifo sub/.rAth", "mkdir .GIT", "true"];
    odd.iter().for_each(|line| assert!(succeeds(&fixture.isolated().into(), line, &fixture), "{line}"));
    let writable = Sandbox::from(fixture.isolated().writable_git());
    assert!(succeeds(&writable, "echo fine >> a/b/c/.git/config && ! cat a/b/c/.rath/secret", &fixture));
}

/// A workspace whose repositories name hooks and settings, and a repository without a working tree.
pub(super) fn named_settings() -> Fixture {
    let fixture = Fixture::new();
    for (path, text) in [
        (".git/config", "[core]\n\thooksPath = .githooks\n[include]\n\tpath = ../.gitinc\n"),
        (".gitinc", "[includeIf \"gitdir:/elsewhere\"]\n\tpath = inc/cond\n"),
        ("inc/cond", "[core]\n\thooksPath = more/hooks\n"),
        ("inc/other", "words\n"),
        (".githooks/pre-commit", "words\n"),
        ("more/hooks/pre-commit", "words\n"),
        ("sub/.git/config", "[core]\n\thooksPath = tools/hooks\n"),
        ("sub/tools/hooks/pre-push", "words\n"),
        ("store.git/config", "[core]\n\tbare = true\n"),
        ("store.git/HEAD", "ref: refs/heads/main\n"),
        ("store.git/objects/x", ""),
        ("store.git/refs/x", ""),
    ] {
        let path = fixture.path("work").join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
    fixture
}

/// Lines that change what git runs later, in the fixture [`named_settings`].
pub(super) const CHANGED_SETTINGS: [&str; 14] = [
    "echo evil > .githooks/pre-commit",
    "echo evil > .githooks/new",
    "mv .githooks x && mkdir .githooks",
    "echo evil >> .gitinc",
    "rm .gitinc",
    "mv inc/other .gitinc",
    "echo evil >> inc/cond",
    "mv inc x && mkdir inc && echo evil > inc/cond",
    "echo evil > more/hooks/new",
    "mv more x",
    "mv sub/tools x && mkdir -p sub/tools/hooks",
    "echo evil >> store.git/config",
    "mkdir store.git/hooks",
    "echo ../x > store.git/commondir",
];

#[test]
fn what_the_settings_of_git_name_is_not_written() {
    for row in CHANGED_SETTINGS {
        let fixture = named_settings();
        assert!(!succeeds(&fixture.isolated().into(), row, &fixture), "isolated: {row}");
        assert!(succeeds(&fixture.local(), row, &fixture), "without isolation it works: {row}");
    }
    let fixture = named_settings();
    let sandbox = Sandbox::from(fixture.isolated());
    for line in ["cat .gitinc .githooks/pre-commit", "echo x > inc/new && rm inc/other", "echo x > sub/tools/new"] {
        assert!(succeeds(&sandbox, line, &fixture), "{line}");
    }
    // An editor of the user's replaces the file.
    std::fs::write(fixture.path("work/.gitinc.new"), "words\n").expect("a file");
    std::fs::rename(fixture.path("work/.gitinc.new"), fixture.path("work/.gitinc")).expect("moved");
    assert!(!succeeds(&sandbox, "echo evil >> .gitinc", &fixture));
    let writable = Sandbox::from(fixture.isolated().writable_git());
    assert!(succeeds(&writable, "echo fine >> .gitinc && echo fine >> store.git/config", &fixture));
}

/// A directory that the user cannot list may hold a project, and a command can make it listable.
#[test]
fn a_directory_that_cannot_be_listed_is_hidden() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = nested_projects();
    std::fs::set_permissions(fixture.path("work/sub"), PermissionsExt::from_mode(0o311)).expect("a mode");
    let line = "chmod 755 sub; cat sub/.rath/secret || echo evil >> sub/.git/config";
    assert!(!succeeds(&fixture.isolated().into(), line, &fixture));
    assert!(succeeds(&fixture.local(), line, &fixture));
}

#[test]
fn no_unix_socket_of_the_machine_can_be_reached_without_network() {
    let fixture = Fixture::new();
    let sandbox = Sandbox::from(fixture.isolated());
    assert!(printed(&sh(&sandbox, "true")).is_empty());
    // Made after the sandbox was opened, in the workspace, with and without a space in its name.
    let listen = |name: &str| UnixListener::bind(fixture.path("work").join(name)).expect("a socket");
    let _listening = ["a b", "s"].map(listen);
    let datagrams = std::os::unix::net::UnixDatagram::bind(fixture.path("work/d")).expect("a socket");
    datagrams.set_nonblocking(true).expect("a socket");
    let connect = |kind: &str, name: &str| {
        format!("perl -MSocket -e 'socket($s, AF_UNIX, {kind}, 0) or die; connect($s, sockaddr_un(\"{name}\")) or die'")
    };
    let pair = |kind: &str| {
        format!(
            "perl -MSocket -e 'socketpair($a, $b, AF_UNIX, {kind}, 0) or die; \
             send($a, \"x\", 0, sockaddr_un(\"d\")) or die; connect($a, sockaddr_un(\"s\")) or die'"
        )
    };
    let rows = [
        connect("SOCK_STREAM", "s"),
        connect("SOCK_STREAM", "a b"),
        connect("SOCK_STREAM", "./../work/s"),
        connect("SOCK_SEQPACKET", "s"),
        connect("SOCK_DGRAM", "d"),
        connect("3", "d"),
        connect("SOCK_STREAM | 0x800", "s"),
        pair("SOCK_DGRAM"),
        pair("3"),
        pair("SOCK_DGRAM | 0x80800"),
        pair("SOCK_STREAM"),
        pair("SOCK_SEQPACKET"),
    ];
    for row in rows {
        assert!(!succeeds(&sandbox, &row, &fixture), "{row}");
        assert!(datagrams.recv(&mut [0; 8]).is_err(), "{row}");
    }
    // Programs talk to their own children through pairs.
    let own = "perl -MSocket -e 'socketpair($a, $b, AF_UNIX, SOCK_STREAM, 0) or die; syswrite($a, \"x\") == 1 or die; \
               sysread($b, $c, 1) == 1 or die'";
    assert_eq!(sh(&sandbox, own).status, rath_sandbox::ExitStatus::Exit(0));
}

#[test]
fn privileges_are_dropped_for_good() {
    let fixture = Fixture::new();
    let sandbox = Sandbox::from(fixture.isolated());
    let status = "grep -E '^(NoNewPrivs|Seccomp|Cap[A-Z][a-z]+):' /proc/self/status | tr -d '\\t'";
    let none = "0000000000000000";
    let wanted =
        format!("CapInh:{none}\nCapPrm:{none}\nCapEff:{none}\nCapBnd:{none}\nCapAmb:{none}\nNoNewPrivs:1\nSeccomp:2\n");
    assert_eq!(printed(&sh(&sandbox, status)), wanted);
    let rows = [
        "mkdir m && mount -t tmpfs none m",
        "mkdir m; mount --bind /usr m",
        "mount -o remount,rw /",
        "umount /proc",
        "umount .rath",
        "unshare --user true",
        "unshare --map-root-user --mount true",
        "unshare --net true",
        "chroot / true",
        "nsenter --target 1 --mount true",
        "mknod disk b 254 0",
        "cat /dev/vda || cat /dev/sda || cat /dev/mem",
        "chown 12345 file",
        "perl -e '$> = 12345; exit($> == 12345 ? 0 : 1)'",
        "chmod u+s file",
        "chmod g+s file",
        "perl -e 'umask 0; chmod(04755, \"file\") or exit 1'",
        "perl -MFcntl -e 'umask 0; sysopen(F, \"suid\", O_CREAT | O_WRONLY, 04755) or exit 1; exit((stat F)[2] & 06000 ? 0 : 1)'",
        "perl -e 'umask 0; syscall(85, \"suid\", 06755) >= 0 or exit 1'",
        "perl -e 'umask 0; syscall(133, \"suid\", 0106755, 0) == 0 or exit 1'",
        "cp /bin/true suid && chmod 4755 suid",
        "install -m 4755 /bin/true suid",
        "hostname other",
        "cat /proc/sys/vm/swappiness > x; cat x > /proc/sys/vm/swappiness",
        "echo h > /proc/sysrq-trigger",
        "echo 1 > /sys/kernel/mm/ksm/run",
        "mkdir /sys/fs/cgroup/other || mkdir /sys/fs/cgroup/memory/other || mkdir /sys/fs/cgroup/unified/other",
        "cat /proc/1/environ || cat /proc/1/mem || ls /proc/1/root || ls /proc/1/fd",
        "cat /etc/shadow | grep .",
        "ls /etc/ssh | grep .",
        "dmesg",
    ];
    for row in rows {
        assert!(!succeeds(&sandbox, row, &fixture), "{row}");
    }
    // The first process cannot be killed from inside.
    assert_eq!(printed(&sh(&sandbox, "kill -9 1; kill -TERM 1; echo alive")), "alive\n");
}

/// Makes system calls by number, and checks the error.
#[cfg(target_arch = "x86_64")]
#[test]
fn dangerous_system_calls_are_refused() {
    const REFUSED: i32 = 1;
    const MISSING: i32 = 38;
    let rows = [
        ("mount", "165, 0, 0, 0, 0, 0", REFUSED),
        ("unshare", "272, 0", REFUSED),
        ("setns", "308, 0, 0", REFUSED),
        ("clone with a user namespace", "56, 0x10000011, 0, 0, 0, 0", REFUSED),
        ("clone3", "435, 0, 0", MISSING),
        ("keyctl", "250, 0, 0", REFUSED),
        ("add_key", "248, 0, 0, 0, 0, 0", REFUSED),
        ("bpf", "321, 0, 0, 0", REFUSED),
        ("userfaultfd", "323, 1", REFUSED),
        ("perf_event_open", "298, 0, 0, 0, 0, 0", REFUSED),
        ("io_uring_setup", "425, 0, 0", MISSING),
        ("open_by_handle_at", "304, 0, 0, 0", REFUSED),
        ("init_module", "175, 0, 0, 0", REFUSED),
        ("a socket to the machine below", "41, 40, 1, 0", REFUSED),
        ("a socket to the kernel's ciphers", "41, 38, 5, 0", REFUSED),
        ("typing into a terminal", "16, 0, 0x5412, 0", REFUSED),
        ("typing into a terminal, with more bits", "16, 0, 0x100005412, 0", REFUSED),
        ("getpid by its other number", "0x40000027", MISSING),
        ("attaching to the first process", "101, 16, 1, 0, 0", 3),
        ("getpid", "39", 0),
    ];
    let fixture = Fixture::new();
    let sandbox = Sandbox::from(fixture.isolated());
    for (what, call, errno) in rows {
        let line = format!("perl -e '$! = 0; syscall({call}); print $! + 0'");
        let output = sh(&sandbox, &line);
        let found = printed(&output);
        // Kernels differ in the error for a process that exists but is hidden.
        let wanted = if errno == 3 { vec!["1".to_owned(), "3".to_owned()] } else { vec![errno.to_string()] };
        assert!(wanted.contains(&found), "{what}: wanted {wanted:?}, found {found} ({:?})", output.status);
    }
}

/// SQLite rolls back what a journal beside a database says, and a missing journal cannot be covered.
/// For an ordinary user the permissions of the files are enough.
#[test]
fn commands_of_root_read_no_configuration_that_users_cannot_read() {
    let fixture = Fixture::new();
    // By namespaces the files are covered, by Landlock they cannot be opened.
    let line = "find /etc -type f ! -perm -o=r ! -empty -exec head -c 1 {} ';' 2>/dev/null | head -c 1 | grep -q .";
    for sandbox in [fixture.isolated(), fixture.isolated().without_namespaces()] {
        let sandbox = Sandbox::from(sandbox);
        match super::block_on(sandbox.run(&Command::shell("cat /etc/passwd"))) {
            Err(error) if error.kind() == rath_sandbox::ErrorKind::Unavailable => eprintln!("skipped: {error}"),
            output => {
                assert!(printed(&output.expect("it runs")).contains("root:"), "what users can read is there");
                assert!(!succeeds(&sandbox, line, &fixture), "{}", sandbox.uri());
            }
        }
    }
    // What the user shows is there, if this machine has such a file and this user is root.
    let line = "find /etc/*/ -type f -user root ! -perm -o=r ! -empty ! -path '/etc/ss*' ! -path '/etc/sudoers.d/*'";
    let found = rath_test_support::program("sh").args(["-c", line]).output().expect("sh runs");
    let found = String::from_utf8_lossy(&found.stdout).lines().next().map(PathBuf::from);
    if let Some(file) = found.filter(|_| rustix::process::geteuid().is_root()) {
        let directory = file.parent().expect("a directory");
        let line = format!("head -c 1 '{}' | grep -q .", file.display());
        assert!(!succeeds(&fixture.isolated().into(), &line, &fixture), "{}", file.display());
        assert!(succeeds(&fixture.isolated().show(directory).into(), &line, &fixture), "{}", file.display());
    }
}

#[test]
fn what_the_settings_hide_is_hidden_from_file_operations_too() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.path("work/open/deep")).expect("a directory");
    std::fs::write(fixture.path("work/open/deep/secret"), "words\n").expect("a file");
    std::os::unix::fs::symlink("below", fixture.path("work/link")).expect("a link");
    std::os::unix::fs::symlink("below", fixture.path("work/hidden-link")).expect("a link");
    std::fs::create_dir_all(fixture.path("fork/open/deep")).expect("a directory");
    std::fs::write(fixture.path("fork/open/deep/secret"), "words\n").expect("a file");
    // By a path in the workspace, through a link, absolute, and missing until later.
    let rows: [&[&str]; 4] = [
        &["below", "open/deep/secret", "later"],
        &["hidden-link", "{work}/open/deep", "{work}/later"],
        &["below", "../work/open/deep", "later"],
        &["below", "{work}/../other-name/open/deep/secret", "{work}/../other-name/later"],
    ];
    std::os::unix::fs::symlink("work", fixture.path("other-name")).expect("a link");
    for (hidden, name) in rows.iter().flat_map(|hidden| [(hidden, "work"), (hidden, "other-name")]) {
        let work = fixture.path("work").display().to_string();
        let sandbox = Isolated::new(fixture.path(name));
        let sandbox = hidden.iter().fold(sandbox, |sandbox, path| sandbox.hide(path.replace("{work}", &work)));
        let sandbox = Sandbox::from(sandbox);
        let check = |sandbox: &Sandbox, path: &str| {
            let range = rath_sandbox::ByteRange { offset: 0, max_len: 10 };
            let errors = [
                super::block_on(sandbox.read(path, range)).err(),
                super::block_on(sandbox.write(path, b"mine")).err(),
                super::block_on(sandbox.stat(path)).err(),
            ];
            for error in errors {
                let error = error.unwrap_or_else(|| panic!("{path} is not hidden by {hidden:?}"));
                assert_eq!(error.to_string(), format!("the sandbox hides `{path}`"));
            }
        };
        for path in ["below/secret", "link/secret", "./open/../open/deep/secret", "later/new"] {
            check(&sandbox, path);
        }
        let names = |path: &str| {
            let entries = super::block_on(sandbox.list(path)).expect("listed");
            entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>()
        };
        assert_eq!(names("."), ["file", "hidden-link", "link", "open"]);
        assert!(super::block_on(sandbox.list("below")).is_err());
        let fork = sandbox.with_directory(&fixture.path("fork")).expect("a fork");
        check(&fork, "open/deep/secret");
    }
}

#[test]
fn a_hidden_path_that_appears_or_changes_later_is_hidden_from_the_next_command() {
    let fixture = Fixture::new();
    let [file, absolute, fork] = ["work/later", "work/deep/later", "fork/deep/later"].map(|path| fixture.path(path));
    let sandbox = Isolated::new(fixture.path("work")).hide("later").hide(&absolute).hide("link").hide("below/deep");
    let sandbox = Sandbox::from(sandbox);
    let store = fixture.path("work/store.db");
    std::fs::write(&store, "rows").expect("a file");
    sandbox.keep_out(&store);
    assert!(succeeds(&sandbox, "cat file", &fixture));
    for path in [&file, &absolute, &fixture.path("work/below/deep"), &fixture.path("work/store.db-wal")] {
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, "words\n").expect("a file");
    }
    for path in ["later", "deep/later", "below/deep", "store.db-wal"] {
        assert!(!succeeds(&sandbox, &format!("grep . {path}"), &fixture), "{path}");
    }
    // A file becomes a directory, and a path leads to another file.
    std::fs::remove_file(&file).expect("removed");
    std::fs::create_dir(&file).expect("a directory");
    std::fs::write(file.join("secret"), "words\n").expect("a file");
    std::fs::write(fixture.path("work/behind"), "words\n").expect("a file");
    std::os::unix::fs::symlink("behind", fixture.path("work/link")).expect("a link");
    for path in ["later/secret", "link", "behind"] {
        assert!(!succeeds(&sandbox, &format!("grep . {path}"), &fixture), "{path}");
        let range = rath_sandbox::ByteRange { offset: 0, max_len: 10 };
        assert!(super::block_on(sandbox.read(path, range)).is_err(), "{path}");
    }
    // The original of a fork need not have what is hidden in the fork.
    std::fs::remove_file(&absolute).expect("removed");
    std::fs::create_dir_all(fork.parent().expect("a parent")).expect("a directory");
    std::fs::write(&fork, "words\n").expect("a file");
    let fork = sandbox.with_directory(&fixture.path("fork")).expect("a fork");
    assert!(!succeeds(&fork, "grep . deep/later", &fixture));
}

#[test]
fn a_store_in_a_directory_that_commands_write_is_refused() {
    let fixture = Fixture::new();
    for path in ["outside/.rath", "outside/hidden", "outside/logs"] {
        std::fs::create_dir_all(fixture.path(path)).expect("a directory");
    }
    for path in ["outside/store.db", "outside/.rath/store.db", "outside/hidden/store.db"] {
        std::fs::write(fixture.path(path), "rows").expect("a file");
    }
    // The path that is kept out, and true if the directory above it can be written all the same.
    let rows = [
        ("outside/store.db", false),
        ("outside/file", false),
        ("outside/missing.db", false),
        ("outside/.rath/store.db", true),
        ("outside/hidden/store.db", true),
        ("outside/logs", true),
        ("home/store.db", true),
    ];
    let error_of = |sandbox: Isolated, kept_out: &str, extra: bool| {
        let sandbox = Sandbox::from(sandbox.hide(fixture.path("outside/hidden")));
        sandbox.keep_out(&fixture.path(kept_out));
        let mut command = Command::shell("true");
        if extra {
            command.extra.writable = vec![fixture.path("outside").display().to_string()];
        }
        crate::block_on(sandbox.run(&command)).err()
    };
    for (kept_out, is_allowed) in rows {
        let written = fixture.isolated().writable(fixture.path("outside"));
        let alone = fixture.isolated().writable(fixture.path("outside")).without_namespaces();
        for (sandbox, extra) in [(written, false), (fixture.isolated(), true), (alone, false)] {
            let error = error_of(sandbox, kept_out, extra);
            match &error {
                Some(error) if error.kind() == rath_sandbox::ErrorKind::Unavailable => eprintln!("skipped: {error}"),
                Some(error) => assert!(error.to_string().contains("commands can write"), "{kept_out}: {error}"),
                None => {}
            }
            let is_refused = error.is_some_and(|error| error.kind() == rath_sandbox::ErrorKind::Config);
            assert_eq!(is_refused, !is_allowed, "{kept_out}, {extra}");
        }
    }
}

#[test]
fn the_root_directory_cannot_be_the_workspace() {
    let error = crate::block_on(Sandbox::isolated("/").run(&Command::shell("true")));
    assert_eq!(error.expect_err("it would show everything").kind(), rath_sandbox::ErrorKind::Config);
}
