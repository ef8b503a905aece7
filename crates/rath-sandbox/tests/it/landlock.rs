//! Landlock as the only wall, for machines without namespaces. Each forbidden action is shown to work without isolation.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use rath_sandbox::{Capabilities, Command, ErrorKind, ExitStatus, HostAccess, Isolated, Isolation, Sandbox};

use super::walls::{CHANGED_SETTINGS, Fixture, named_settings, nested_projects, succeeds};
use super::{block_on, count_marked, mark, printed, run, sh};

/// Returns a sandbox without namespaces; none on a kernel whose Landlock cannot stand alone.
fn landlock(sandbox: Isolated) -> Option<Sandbox> {
    let sandbox = Sandbox::from(sandbox.without_namespaces());
    match block_on(sandbox.capabilities()) {
        Ok(Capabilities { isolation, .. }) => {
            assert_eq!(isolation, Isolation::Landlock(HostAccess::ReadOnly));
            Some(sandbox)
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// Returns a workspace without a `.rath`, in which files can be created at the top.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    std::fs::remove_dir_all(fixture.path("work/.rath")).expect("it is there");
    fixture
}

#[test]
fn nothing_outside_the_workspace_can_be_changed_and_nothing_private_be_read() {
    let mark = mark();
    let mut other = rath_test_support::program("sleep").arg(&mark).env("CANARY", "sings").spawn().expect("it starts");
    let pid = other.id();
    let listening = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listening.local_addr().expect("an address").port();
    let abstract_name = format!("rath-test-{mark}");
    let address = SocketAddr::from_abstract_name(&abstract_name).expect("a name");
    let _abstract = UnixListener::bind_addr(&address).expect("a socket");
    let connect_abstract = format!(
        "perl -MSocket -e 'socket($s, AF_UNIX, SOCK_STREAM, 0) or die; connect($s, pack(\"S a*\", 1, \"\\0{abstract_name}\")) or die'"
    );
    let rows = [
        "echo x > \"$OUT/new\"".to_owned(),
        "echo x >> \"$OUT/file\"".to_owned(),
        "truncate -s 0 \"$OUT/file\"".to_owned(),
        "rm \"$OUT/file\"".to_owned(),
        "mkdir \"$OUT/folder\"".to_owned(),
        "ln -s x \"$OUT/link\"".to_owned(),
        "mkfifo \"$OUT/pipe\"".to_owned(),
        "mv \"$OUT/file\" \"$OUT/moved\"".to_owned(),
        "mv file \"$OUT/moved\"".to_owned(),
        "mv \"$OUT/file\" stolen".to_owned(),
        "ln file \"$OUT/hard\"".to_owned(),
        "ln \"$HIDDEN/secret\" hard && cat hard".to_owned(),
        "chmod 777 \"$OUT\"".to_owned(),
        "chmod 000 \"$OUT/file\"".to_owned(),
        "touch -d yesterday \"$OUT/file\"".to_owned(),
        "perl -e 'utime(1, 1, \"$ENV{OUT}/file\") or die'".to_owned(),
        "chown $(id -u) \"$OUT/file\"".to_owned(),
        "cat ~/.ssh/secret".to_owned(),
        "cat ~/secret".to_owned(),
        "ls ~ | grep secret".to_owned(),
        "cat \"$HIDDEN/secret\"".to_owned(),
        "ln -s \"$HIDDEN\" way && cat way/secret".to_owned(),
        "cat below/secret".to_owned(),
        "cat /proc/self/root/\"$HIDDEN/secret\"".to_owned(),
        "ls /tmp".to_owned(),
        "ls /run".to_owned(),
        "ls /var/lib".to_owned(),
        format!("tr '\\0' '\\n' </proc/{pid}/environ | grep CANARY"),
        format!("readlink /proc/{pid}/fd/0"),
        format!("ls /proc/{pid}/cwd/"),
        format!("kill -0 {pid}"),
        format!("kill -CONT {pid}"),
        format!("renice -n 1 -p {pid}"),
        format!("prlimit --pid {pid} --core=0:0"),
        format!("taskset -p 1 {pid}"),
        "kill -CONT $PPID".to_owned(),
        "tr '\\0' '\\n' </proc/$PPID/environ | grep PATH".to_owned(),
        format!("bash -c 'echo x >/dev/tcp/127.0.0.1/{port}'"),
        "perl -MSocket -e 'socket(S, AF_INET, SOCK_DGRAM, 0) or die'".to_owned(),
        "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_DGRAM, 0) or die'".to_owned(),
        connect_abstract,
        "perl -e 'defined(shmget(0, 4096, 0600 | 01000)) or die'".to_owned(),
    ];
    // Mail, backups, logs: everything that services keep.
    let services = std::fs::read_dir("/var").expect("a directory").flatten();
    let services = services.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let services = services.map(|entry| format!("ls '{}'", entry.path().display()));
    for row in rows.into_iter().chain(services) {
        let fixture = fixture();
        let Some(sandbox) = landlock(fixture.isolated()) else { break };
        assert!(!succeeds(&sandbox, &row, &fixture), "isolated: {row}");
        assert_eq!(std::fs::read_to_string(fixture.path("outside/file")).expect("a file"), "words\n", "{row}");
        assert!(succeeds(&fixture.local(), &row, &fixture), "without isolation it works: {row}");
    }
    other.kill().expect("it runs");
    other.wait().expect("it has ended");
}

#[test]
fn a_command_has_what_it_needs() {
    let fixture = fixture();
    let home = fixture.path("home").display().to_string();
    let Some(sandbox) = landlock(Isolated::new(fixture.path("work")).env("HOME", home)) else { return };
    let rows = [
        "echo x > new && mkdir -p d/e && mv new d/e/ && ln -s e d/link && ln d/e/new d/hard && rm -r d",
        "echo x >> file && truncate -s 0 file && touch file && touch other",
        "echo x > \"$TMPDIR/x\" && mktemp && cat \"$TMPDIR/x\"",
        "echo x > /dev/null && head -c 4 /dev/urandom | wc -c && : < /dev/zero",
        "ls /usr/bin /etc/passwd /proc/self /sys/class >/dev/null",
        "cat /etc/passwd /proc/self/status /proc/cpuinfo >/dev/null",
        "sh -c 'sh -c true' && perl -e 1 && git --version",
        "sleep 1000 & kill $!; wait; true",
        "~/.cargo/bin/tool || test $? = 126",
        "perl -MSocket -e 'socketpair($a, $b, AF_UNIX, SOCK_STREAM, 0) or die'",
    ];
    for row in rows {
        assert!(succeeds(&sandbox, row, &fixture), "{row}");
    }
    // The directory for temporary files is gone with the command.
    let temp = printed(&sh(&sandbox, "printf %s \"$TMPDIR\""));
    assert!(temp.contains("rath-tmp"), "{temp}");
    rath_test_support::wait_until("it is removed", || !std::path::Path::new(&temp).exists());
}

#[test]
fn what_is_protected_in_the_workspace_stays_protected() {
    let rows: [&[&str]; 15] = [
        &["cat sub/.rath/secret"],
        &["cat a/b/c/.rath/secret"],
        &["cat .rath/secret"],
        &["echo evil > sub/.rath/new"],
        &["echo evil > .rath/new"],
        &["mv .rath moved && cat moved/secret"],
        &["rm -r .rath"],
        &["echo evil > sub/.git/hooks/pre-commit"],
        &["echo evil >> a/b/c/.git/config"],
        &["mv sub/.git moved"],
        &["echo 'gitdir: ../evil' > module/.git"],
        &["rm module/.git"],
        &["mv sub other && cat other/.rath/secret"],
        &["mv sub other", "cat other/.rath/secret"],
        &["mv sub other && mkdir -p sub/.rath sub/.git", "echo evil >> other/.git/config"],
    ];
    for row in rows {
        let fixture = nested_projects();
        let Some(sandbox) = landlock(fixture.isolated()) else { return };
        let results: Vec<_> = row.iter().map(|line| succeeds(&sandbox, line, &fixture)).collect();
        assert_eq!(results.last(), Some(&false), "isolated: {row:?}");
        let fixture = nested_projects();
        let local = fixture.local();
        assert!(row.iter().all(|line| succeeds(&local, line, &fixture)), "without isolation it works: {row:?}");
    }
    let fixture = nested_projects();
    let Some(sandbox) = landlock(fixture.isolated()) else { return };
    std::fs::create_dir(fixture.path("work/plain")).expect("a directory");
    for line in
        ["cat sub/.git/config module/.git file", "echo x >> file", "echo x > plain/new && mv plain/new plain/old"]
    {
        assert!(succeeds(&sandbox, line, &fixture), "{line}");
    }
    assert!(!succeeds(&sandbox, "echo x > top", &fixture), "a directory with a `.rath` is taken apart");
}

#[test]
fn what_the_settings_of_git_name_is_not_written() {
    for row in CHANGED_SETTINGS {
        let fixture = named_settings();
        let Some(sandbox) = landlock(fixture.isolated()) else { return };
        assert!(!succeeds(&sandbox, row, &fixture), "isolated: {row}");
        assert!(succeeds(&fixture.local(), row, &fixture), "without isolation it works: {row}");
    }
}

/// The directory of a branch is in the `.rath` of its project.
#[test]
fn the_project_of_a_branch_is_out_of_reach() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.path("work/.rath/work/one")).expect("a directory");
    std::fs::create_dir_all(fixture.path("work/.rath/work/two")).expect("a directory");
    let Some(branch) = landlock(Isolated::new(fixture.path("work/.rath/work/one"))) else { return };
    assert!(succeeds(&branch, "echo x > made && cat made", &fixture));
    for line in ["cat ../../secret", "ls ../..", "ls ../two", "echo x > ../two/made", "echo x > ../../new"] {
        assert!(!succeeds(&branch, line, &fixture), "{line}");
    }
}

#[test]
fn processes_end_with_their_command_and_privileges_are_dropped() {
    let fixture = fixture();
    let Some(sandbox) = landlock(fixture.isolated()) else { return };
    let mark = mark();
    let line = format!(
        "setsid sleep {mark} & (setsid sh -c 'sleep {mark} & wait' &); kill -9 $PPID; kill -STOP $PPID; echo end"
    );
    let output = sh(&sandbox, &line);
    assert_eq!((output.status, count_marked(&mark)), (ExitStatus::Exit(0), 0), "{}", printed(&output));
    let status = "grep -E '^(NoNewPrivs|Seccomp|Cap(Inh|Prm|Eff|Amb)):' /proc/self/status | tr -d '\\t'";
    let none = "0000000000000000";
    let wanted = format!("CapInh:{none}\nCapPrm:{none}\nCapEff:{none}\nCapAmb:{none}\nNoNewPrivs:1\nSeccomp:2\n");
    assert_eq!(printed(&sh(&sandbox, status)), wanted);
    for row in
        ["cat /etc/shadow", "mount -t tmpfs none /mnt", "unshare --user true", "echo h > /proc/sysrq-trigger", "dmesg"]
    {
        assert!(!succeeds(&sandbox, row, &fixture), "{row}");
    }
}

#[test]
fn access_can_be_given_as_far_as_landlock_knows_it() {
    let fixture = fixture();
    let Some(sandbox) = landlock(fixture.isolated()) else { return };
    let mut command = Command::shell("echo x > \"$OUT/new\"");
    let outside = fixture.path("outside").display().to_string();
    command.env = vec![("OUT".to_owned(), outside.clone())];
    command.extra.writable = vec![outside];
    assert_eq!(run(&sandbox, &command).status, ExitStatus::Exit(0));
    let mut command = Command::shell("cat file");
    command.hidden = vec!["file".into()];
    assert_ne!(run(&sandbox, &command).status, ExitStatus::Exit(0));
    for line in ["network=example.com", "at=/elsewhere"] {
        let uri = format!("isolated:{}?walls=landlock&{line}", fixture.path("work").display());
        let error = block_on(Sandbox::open(&uri).expect("a sandbox").run(&Command::shell("true")));
        assert_eq!(error.expect_err(line).kind(), ErrorKind::Unavailable, "{line}");
    }
    let listening = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listening.local_addr().expect("an address").port();
    let Some(network) = landlock(fixture.isolated().network()) else { return };
    assert!(succeeds(&network, &format!("bash -c 'echo x >/dev/tcp/127.0.0.1/{port}'"), &fixture));
    assert!(!succeeds(&network, "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) or die'", &fixture));
}
