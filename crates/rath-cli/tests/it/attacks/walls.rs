//! Lines of shell that try the walls of `isolated:`. Without the guard the same line runs in `local:`.

use std::collections::BTreeMap;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use rath::sandbox::{Command, ExitStatus, Isolated, Local, Sandbox};

use super::place::{CANARY, EVIL, Place};
use super::{Attack, Guard, HoldsIn, Observation, Plane, Trial};

/// The harm that a line of shell does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Effect {
    /// A file in `outside`, `hidden` or the home is new, gone or different.
    OutsideChanges,
    /// The line prints the canary.
    CanaryIsPrinted,
    /// The line prints `HARM`: it reached something that leaves no trace on a disk.
    LineSaysSo,
    /// A server of this machine gets a connection or a datagram.
    ServerIsReached,
    /// Another process of the user has ended or was stopped.
    ProcessIsHarmed,
    /// A file in `.git` or `.rath` of the project, or one that git runs for it, is new, gone or different.
    OwnFilesChange,
    /// A file of the project runs as its owner or group.
    FileRunsAsOwner,
}

/// Returns a row of the table.
pub(super) fn wall(name: &'static str, effect: Effect, line: &'static str) -> Attack {
    Attack::new(name, Plane::Walls, HoldsIn::Isolated, move |trial| run(trial, effect, line))
}

/// Files with the canary.
const PRIVATE: [&str; 15] = [
    "home/.ssh/id_ed25519",
    "home/.aws/credentials",
    "home/.netrc",
    "home/.config/gh/hosts.yml",
    "home/.bash_history",
    "home/.mozilla/firefox/profile/cookies.sqlite",
    "home/.local/share/rath/user.key",
    "home/.gnupg/secring.gpg",
    "home/.cargo/credentials.toml",
    "home/.docker/config.json",
    "home/letter.txt",
    "hidden/secret",
    "work/.rath/secret",
    "work/lib/nested/.rath/secret",
    "other-project/.env",
];

fn run(trial: Trial, effect: Effect, line: &str) -> Observation {
    let place = Place::new();
    PRIVATE.iter().for_each(|name| place.write(name, CANARY));
    std::fs::create_dir_all(place.path("work/.git/hooks")).expect("made");
    place.write("work/.git/config", "[core]\n\thooksPath = .githooks\n[include]\n\tpath = ../lib/gitinc\n");
    place.write("work/.githooks/pre-commit", "# mine\n");
    place.write("work/lib/gitinc", "[user]\n");
    place.write("work/lib/nested/.git/config", "[core]\n");
    place.write("work/lib/module/.git", "gitdir: ../../.git/modules/module\n");
    place.write("home/.bashrc", "# mine\n");
    place.link("to-outside", "{out}");
    place.link("to-home", "../home");
    let memory = rath_test_support::temp_dir_in_memory();
    std::fs::write(memory.path().join("secret"), CANARY).expect("written");
    let servers = (effect == Effect::ServerIsReached).then(|| Servers::start(&place));
    let victim = Victim::start(effect, &place);
    let mut command = Command::shell(line);
    command.timeout = Duration::from_secs(20);
    command.env = [
        ("OUT", place.text("outside")),
        ("HIDDEN", place.text("hidden")),
        ("OTHER", place.text("other-project")),
        ("MEMORY", memory.path().display().to_string()),
        ("EVIL", EVIL.to_owned()),
        ("VICTIM", victim.as_ref().map_or(String::new(), |victim| victim.child.id().to_string())),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .chain(servers.iter().flat_map(Servers::variables))
    .collect();
    let sandbox: Sandbox = match trial.guard {
        Guard::On => {
            Isolated::new(place.path("work")).env("HOME", place.text("home")).show(place.path("outside")).into()
        }
        Guard::Off => Local::new(place.path("work")).env("HOME", place.text("home")).into(),
    };
    let around = |place: &Place| -> BTreeMap<PathBuf, String> {
        ["outside", "hidden", "home", "other-project"].iter().flat_map(|name| place.survey(name)).collect()
    };
    let own = |place: &Place| ["work/.git", "work/.githooks", "work/.rath", "work/lib"].map(|name| place.survey(name));
    let (around_before, own_before) = (around(&place), own(&place));
    let output = super::super::block_on(sandbox.run(&command));
    let text = match &output {
        Ok(output) => format!("{:?} {}{}", output.status, output.stdout.text(), output.stderr.text()),
        Err(error) => error.to_string(),
    };
    let has_run = output.is_ok_and(|output| !matches!(output.status, ExitStatus::TimedOut));
    assert!(has_run, "{line}: {text}");
    let harm = match effect {
        Effect::OutsideChanges => {
            around(&place) != around_before
                || std::fs::read_dir(memory.path()).expect("a directory").count() != 1
                || std::fs::read(memory.path().join("secret")).expect("a file") != CANARY.as_bytes()
        }
        Effect::CanaryIsPrinted => text.contains(CANARY),
        Effect::LineSaysSo => text.lines().any(|line| line.ends_with("HARM")),
        Effect::ServerIsReached => servers.is_some_and(|servers| servers.were_reached()),
        Effect::ProcessIsHarmed => {
            let victim = victim.as_ref().expect("a process");
            happens(trial.guard, || victim.is_harmed())
        }
        Effect::OwnFilesChange => own(&place) != own_before,
        Effect::FileRunsAsOwner => runs_as_owner(&place),
    };
    Observation::new(harm, text)
}

/// Returns true if something is so. Without the guard it may take a moment until it is.
pub(super) fn happens(guard: Guard, mut condition: impl FnMut() -> bool) -> bool {
    const MAX_WAIT: Duration = Duration::from_secs(5);
    let start = std::time::Instant::now();
    loop {
        if condition() {
            return true;
        }
        if guard == Guard::On || start.elapsed() > MAX_WAIT {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns a text that no other process of this machine has in its command line.
pub(super) fn mark() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("86402.{:08}{:05}", std::process::id(), COUNT.fetch_add(1, Relaxed))
}

/// Looks for processes with a mark in their command line, and ends them: without the guard they are left.
pub(super) fn is_marked_left(mark: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let mut is_left = false;
    for process in processes {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(mark) {
            is_left = true;
            let id = process.file_name().to_string_lossy().parse::<i32>().ok();
            if let Some(id) = id.and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
            }
        }
    }
    is_left
}

fn runs_as_owner(place: &Place) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let entries = std::fs::read_dir(place.path("work")).expect("a directory").flatten();
    let files = entries.filter_map(|entry| entry.metadata().ok()).filter(std::fs::Metadata::is_file);
    files.into_iter().any(|about| about.permissions().mode() & 0o6000 != 0)
}

/// Another process of the user, with the canary in its environment, in its memory and in an open file.
struct Victim {
    child: Child,
}

impl Victim {
    fn start(effect: Effect, place: &Place) -> Option<Self> {
        if !matches!(effect, Effect::ProcessIsHarmed | Effect::CanaryIsPrinted | Effect::LineSaysSo) {
            return None;
        }
        // Some kernels let a process be traced by its parents only, unless it says otherwise.
        let code = format!(
            "open F, '<', 'secret'; syscall(157, 0x59616d61, -1, 0, 0, 0); $| = 1; print 'x'; sleep 600; # {CANARY}"
        );
        let mut command = rath_test_support::program("perl");
        command.args(["-e", &code]).env("VICTIM_CANARY", CANARY).current_dir(place.path("hidden"));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("perl starts");
        let mut out = child.stdout.take().expect("its output");
        std::io::Read::read_exact(&mut out, &mut [0]).expect("it has begun");
        Some(Victim { child })
    }

    fn is_harmed(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let (state, fields) = match status.rsplit_once(") ") {
            Some((_, rest)) => (rest.chars().next(), rest.split(' ').map(str::to_owned).collect::<Vec<_>>()),
            None => (None, Vec::new()),
        };
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", self.child.id())).unwrap_or_default();
        let has_limit = limits.lines().any(|line| line.starts_with("Max file size") && line.contains(" 4711 "));
        // The nice value is the nineteenth field, and the state the third.
        !matches!(state, Some('S' | 'R')) || fields.get(16).is_none_or(|nice| nice != "0") || has_limit
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Servers of this machine, of every kind.
struct Servers {
    tcp: [TcpListener; 2],
    udp: UdpSocket,
    unix: Vec<UnixListener>,
    datagrams: UnixDatagram,
    name: String,
    sockets: rath_test_support::TempDir,
}

impl Servers {
    fn start(place: &Place) -> Self {
        let name = format!("rath-attack-{}", mark());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let sockets = rath_test_support::temp_dir();
        // The path of a socket is limited to about 100 bytes.
        let bind = |path: PathBuf| {
            let folder = std::fs::File::open(path.parent().expect("a directory")).expect("a directory");
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            UnixListener::bind(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd())).expect("a socket")
        };
        let paths = ["socket", "a b"].map(|name| sockets.path().join(name));
        let unix = paths.into_iter().chain([place.path("work/inside.sock"), place.path("outside/o.sock")]).map(bind);
        let unix: Vec<_> = unix.chain([UnixListener::bind_addr(&address).expect("a socket")]).collect();
        unix.iter().for_each(|listener| listener.set_nonblocking(true).expect("a socket"));
        let datagrams = UnixDatagram::bind(place.path("work/datagrams")).expect("a socket");
        datagrams.set_nonblocking(true).expect("a socket");
        let tcp = ["127.0.0.1:0", "[::1]:0"].map(|address| {
            let listener = TcpListener::bind(address).or_else(|_| TcpListener::bind("127.0.0.1:0")).expect("a port");
            listener.set_nonblocking(true).expect("a socket");
            listener
        });
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
        udp.set_nonblocking(true).expect("a socket");
        Servers { tcp, udp, unix, datagrams, name, sockets }
    }

    fn variables(&self) -> Vec<(String, String)> {
        let port = |listener: &TcpListener| listener.local_addr().expect("bound").port().to_string();
        let is_ipv6 = self.tcp[1].local_addr().expect("bound").is_ipv6();
        [
            ("PORT", port(&self.tcp[0])),
            ("PORT6", port(&self.tcp[1])),
            ("HOST6", if is_ipv6 { "::1" } else { "::ffff:127.0.0.1" }.to_owned()),
            ("UDP", self.udp.local_addr().expect("bound").port().to_string()),
            ("SOCKETS", self.sockets.path().display().to_string()),
            ("ABSTRACT", self.name.clone()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }

    fn were_reached(&self) -> bool {
        let is_connected = self.tcp.iter().any(|listener| listener.accept().is_ok())
            || self.unix.iter().any(|listener| listener.accept().is_ok());
        is_connected || self.udp.recv(&mut [0; 8]).is_ok() || self.datagrams.recv(&mut [0; 8]).is_ok()
    }
}
