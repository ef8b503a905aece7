//! What every sandbox has to keep.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use rath::sandbox::{ByteRange, Command, ExitStatus, FileKind, Output, Sandbox, Stream};
use rath::sandbox::{ErrorKind, Result};

/// A sandbox with an empty workspace, for one promise. It has to have `sh`, `sleep`, `cat`, `head` and `seq`.
pub struct Case {
    sandbox: Sandbox,
    /// What has to last as long as the sandbox.
    _with: Box<dyn Any>,
}

impl Case {
    /// A sandbox, and what has to last as long: its folder, for one.
    pub fn new(sandbox: impl Into<Sandbox>, with: impl Any) -> Self {
        Case { sandbox: sandbox.into(), _with: Box::new(with) }
    }

    /// Runs a line of shell.
    fn sh(&self, line: &str) -> Output {
        self.run(&Command::shell(line)).expect("it runs")
    }

    fn run(&self, command: &Command) -> Result<Output> {
        wait(self.sandbox.run(command))
    }

    /// Nothing with this mark in its command line is left, as far as that can be seen from here; and it still works.
    fn check_gone(&self, mark: &str) {
        if self.sandbox.directory().is_some() {
            assert_eq!(marked(mark), [""; 0], "something is left");
        }
        assert_eq!(out(&self.sh("echo still here")), "still here\n");
    }
}

/// Goes through every promise, each with a sandbox of its own, and panics at the first that is not kept.
pub fn conforms(case: &mut dyn FnMut() -> Case) {
    for (name, promise) in PROMISES {
        eprintln!("sandbox: {name}");
        promise(&case());
    }
}

/// What is promised, and what shows it.
type Promise = (&'static str, fn(&Case));

const PROMISES: [Promise; 14] = [
    ("words, input, directory and environment arrive as they were given", arrives),
    ("how a command ended is told", ends),
    ("what cannot be run is an error that says so", cannot_run),
    ("the two streams are kept apart, byte by byte", streams),
    ("what is printed is told while the command runs", told_as_it_comes),
    ("what is long is held as beginning and end, and kept whole", long),
    ("input that nobody reads holds nobody up", input),
    ("a command whose time is over ends, and what it printed is kept", time_is_over),
    ("a command ends with everything that it started", daemons),
    ("a call that is given up leaves nothing behind", given_up),
    ("nothing can refuse to end", refuses_to_end),
    ("many commands run at once", many),
    ("secrets of the program do not reach a command", secrets),
    ("files are where commands find them, and none outside", files),
];

fn arrives(case: &Case) {
    case.sh("mkdir -p some/where");
    let mut command =
        Command::argv(["sh", "-c", "printf '%s|' \"$@\" \"$WORD\"; cat; pwd", "sh", "a b", "", "$x'\"\\", "ü"]);
    command.stdin = b"in\0put\n".to_vec();
    command.cwd = "some/where".to_owned();
    command.env = vec![("WORD".to_owned(), "first".to_owned()), ("WORD".to_owned(), "value = 1".to_owned())];
    let ran = case.run(&command).expect("it runs");
    let printed = String::from_utf8(ran.stdout.head).expect("text");
    let (words, directory) = printed.split_once('\n').expect("two lines");
    assert_eq!(words, "a b||$x'\"\\|ü|value = 1|in\0put");
    assert!(directory.ends_with("/some/where\n"), "{directory}");
    // Without input there is nothing to read.
    assert_eq!(out(&case.sh("cat; echo end")), "end\n");
}

fn ends(case: &Case) {
    let rows = [
        ("true", ExitStatus::Exit(0)),
        ("exit 3", ExitStatus::Exit(3)),
        ("exit 255", ExitStatus::Exit(255)),
        ("kill -9 $$", ExitStatus::Signal(9)),
        ("kill -15 $$", ExitStatus::Signal(15)),
        ("no-such-program-anywhere", ExitStatus::Exit(127)),
        // Whatever handlers and masks the program around it has, a command starts without.
        ("kill -PIPE $$", ExitStatus::Signal(13)),
    ];
    for (line, ended) in rows {
        assert_eq!(case.sh(line).status, ended, "{line}");
    }
}

fn cannot_run(case: &Case) {
    case.sh("echo no program > plain; echo words > script; chmod +x script; mkdir folder");
    let command = |words: &[&str], cwd: &str| {
        let mut command = Command::argv(words.iter().copied());
        command.cwd = cwd.to_owned();
        command
    };
    let rows = [
        (command(&["no-such-program-anywhere"], ""), "there is no such program"),
        (command(&["./nothing"], ""), "there is no such program"),
        (command(&["./plain"], ""), "permission denied"),
        (command(&["./script"], ""), "not a program"),
        (command(&[], ""), "empty command"),
        (command(&[""], ""), "empty command"),
        (command(&["a\0b"], ""), "NUL byte"),
        (command(&["true"], "nowhere"), "nowhere"),
        (command(&["true"], "plain"), "plain"),
        (command(&["true"], "../.."), ".."),
        (command(&["true"], "/etc"), "/etc"),
    ];
    for (command, wanted) in rows {
        let error = case.run(&command).expect_err("it cannot be run");
        assert!(error.message().contains(wanted), "wanted `{wanted}`, found `{error}` for {command:?}");
    }
    assert_eq!(out(&case.sh("echo still here")), "still here\n");
}

fn streams(case: &Case) {
    let ran = case.sh("printf 'a\\0\\377'; printf 'x\\n' >&2; printf b");
    assert_eq!((&*ran.stdout.head, ran.stdout.total_bytes), (&b"a\0\xffb"[..], 4));
    assert_eq!((&*ran.stderr.head, ran.stderr.total_bytes), (&b"x\n"[..], 2));
    // One that is closed, or never used, changes nothing.
    let ran = case.sh("exec >&-; echo only this >&2");
    assert_eq!((out(&ran), &*ran.stderr.head), ("", &b"only this\n"[..]));
}

fn told_as_it_comes(case: &Case) {
    let Some(directory) = case.sandbox.directory() else { return };
    let (mut told, mut order) = (Vec::new(), Vec::new());
    let command = Command::shell("echo one; until [ -e go ]; do sleep 0.01; done; echo two >&2");
    let ran = wait(case.sandbox.run_streaming(&command, &mut |stream, bytes| {
        told.extend_from_slice(bytes);
        order.push(stream);
        // It goes on only because it was heard.
        std::fs::write(directory.join("go"), "").expect("written");
    }));
    assert_eq!(ran.expect("it runs").status, ExitStatus::Exit(0));
    assert_eq!((&*told, &*order), (&b"one\ntwo\n"[..], &[Stream::Stdout, Stream::Stderr][..]));
}

fn long(case: &Case) {
    let mut told = 0;
    let command = Command::shell("seq 1 1000000; seq 1 1000000 >&2");
    let ran = wait(case.sandbox.run_streaming(&command, &mut |_, bytes| told += bytes.len())).expect("it runs");
    let all: String = (1..=1_000_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(told, 2 * all.len());
    for printed in [&ran.stdout, &ran.stderr] {
        assert_eq!(printed.total_bytes, all.len() as u64);
        assert!(all.as_bytes().starts_with(&printed.head) && all.as_bytes().ends_with(&printed.tail));
        assert!(!printed.tail.is_empty() && printed.head.len() + printed.tail.len() < all.len());
        assert_eq!(printed.spool_digest, Some(rath::sandbox::Digest::from_content(all.as_bytes())));
    }
    if let Some(file) = ran.stdout.spool_digest.and_then(|digest| case.sandbox.spool_path(digest)) {
        assert_eq!(std::fs::read(file).expect("it is kept"), all.as_bytes());
    }
}

fn input(case: &Case) {
    let mut command = Command::shell("exit 0");
    command.stdin = vec![b'x'; 4 << 20];
    assert_eq!(case.run(&command).expect("it runs").status, ExitStatus::Exit(0));
    // Nor does one that closes its end, or prints as much as it reads.
    command.argv = ["sh", "-c", "exec <&-; echo closed"].map(str::to_owned).to_vec();
    assert_eq!(out(&case.run(&command).expect("it runs")), "closed\n");
    command.argv = vec!["cat".to_owned()];
    assert_eq!(case.run(&command).expect("it runs").stdout.total_bytes, 4 << 20);
}

fn time_is_over(case: &Case) {
    // A loaded machine may need longer than the first limit to begin at all.
    for limit in [300, 3_000, 30_000] {
        let mark = mark();
        let mut command = Command::shell(&format!("echo begun; sleep {mark}; echo never"));
        command.timeout = Duration::from_millis(limit);
        let ran = case.run(&command).expect("it runs");
        case.check_gone(&mark);
        assert_eq!(ran.status, ExitStatus::TimedOut);
        if !out(&ran).is_empty() {
            assert_eq!(out(&ran), "begun\n");
            return;
        }
    }
    panic!("it printed nothing in 30 s");
}

fn daemons(case: &Case) {
    // Each leaves something behind in its own way, and ends at once.
    let rows = [
        "sleep MARK & echo begun",
        "setsid sleep MARK & echo begun",
        "nohup sleep MARK >/dev/null 2>&1 </dev/null & echo begun",
        "(setsid sh -c 'sleep MARK & setsid sleep MARK & exit' & ) ; sleep 0.2; echo begun",
        "setsid sh -c 'exec >&- 2>&- <&-; sleep MARK' & sleep 0.1; echo begun",
        "(trap '' HUP TERM INT; sleep MARK) & echo begun",
    ];
    for row in rows {
        let mark = mark();
        let ran = case.sh(&row.replace("MARK", &mark));
        assert_eq!((ran.status, out(&ran)), (ExitStatus::Exit(0), "begun\n"), "{row}");
        case.check_gone(&mark);
    }
}

fn given_up(case: &Case) {
    for row in ["echo begun; sleep MARK", "setsid sleep MARK & echo begun; sleep MARK", "sleep MARK & cat; sleep MARK"]
    {
        let mark = mark();
        let mut command = Command::shell(&row.replace("MARK", &mark));
        command.stdin = vec![b'x'; 1 << 20];
        wait(async {
            let begun = AtomicU32::new(0);
            let mut sink = |_: Stream, _: &[u8]| _ = begun.fetch_add(1, Relaxed);
            let mut run = pin!(case.sandbox.run_streaming(&command, &mut sink));
            // Dropped as soon as it has said something.
            poll_fn(|cx| match run.as_mut().poll(cx) {
                Poll::Ready(_) => panic!("it was to go on"),
                Poll::Pending if begun.load(Relaxed) > 0 => Poll::Ready(()),
                Poll::Pending => Poll::Pending,
            })
            .await;
            Ok(())
        })
        .expect("it is given up");
        case.check_gone(&mark);
    }
}

fn refuses_to_end(case: &Case) {
    let mark = mark();
    let line = "trap '' TERM HUP INT QUIT PIPE; setsid sh -c \"trap '' TERM HUP; sleep MARK; sleep MARK\" & \
                while :; do sleep MARK; done";
    let mut command = Command::shell(&line.replace("MARK", &mark));
    command.timeout = Duration::from_millis(300);
    assert_eq!(case.run(&command).expect("it runs").status, ExitStatus::TimedOut);
    case.check_gone(&mark);
}

fn many(case: &Case) {
    let mark = mark();
    let commands: Vec<_> = (0..50)
        .map(|nth| Command::shell(&format!("sleep {mark} & head -c 100000 /dev/zero; echo {nth} >&2; exit {nth}")))
        .collect();
    let runs = commands.iter().map(|command| case.sandbox.run(command));
    let mut runs: Vec<_> = runs.map(Box::pin).collect();
    let mut ended: Vec<Option<Output>> = commands.iter().map(|_| None).collect();
    wait(poll_fn(|cx| {
        for (run, ended) in runs.iter_mut().zip(&mut ended).filter(|(_, ended)| ended.is_none()) {
            if let Poll::Ready(ran) = run.as_mut().poll(cx) {
                *ended = Some(ran?);
            }
        }
        if ended.iter().all(Option::is_some) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }))
    .expect("all of them run");
    for (nth, ran) in ended.iter().enumerate() {
        let ran = ran.as_ref().expect("it has ended");
        assert_eq!(
            (ran.status, ran.stdout.total_bytes),
            (ExitStatus::Exit(i32::try_from(nth).expect("small")), 100_000)
        );
        assert_eq!(ran.stderr.head, format!("{nth}\n").as_bytes());
    }
    drop(runs);
    case.check_gone(&mark);
}

fn secrets(case: &Case) {
    // Whatever this program has in its environment, of all that only this may be there.
    let known =
        ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ", "PWD", "SHLVL", "OLDPWD", "_"];
    let ran = case.sh("env -0 2>/dev/null || env");
    for variable in out(&ran).split(['\0', '\n']).filter_map(|line| Some(line.split_once('=')?.0)) {
        assert!(known.contains(&variable) || variable.starts_with("LC_"), "`{variable}` was passed on");
    }
}

fn files(case: &Case) {
    let sandbox = &case.sandbox;
    let whole = ByteRange { offset: 0, max_len: u64::MAX };
    wait(sandbox.write("src/main.rs", b"fn main() {}\n")).expect("written");
    assert_eq!(out(&case.sh("cat src/main.rs")), "fn main() {}\n");
    case.sh("printf 0123456789 > digits; ln -s digits link; ln -s /etc/passwd outside");
    assert_eq!(wait(sandbox.read("digits", whole)).expect("read"), b"0123456789");
    assert_eq!(wait(sandbox.read("link", ByteRange { offset: 3, max_len: 4 })).expect("read"), b"3456");
    let listed = wait(sandbox.list("")).expect("listed");
    let listed: Vec<_> = listed.iter().map(|entry| (&*entry.name, entry.kind)).collect();
    let wanted = [
        ("digits", FileKind::File),
        ("link", FileKind::Symlink),
        ("outside", FileKind::Symlink),
        ("src", FileKind::Directory),
    ];
    assert_eq!(listed, wanted);
    assert_eq!(wait(sandbox.stat("nothing")).expect("looked"), None);
    assert_eq!(wait(sandbox.stat("digits")).expect("looked").map(|entry| entry.bytes), Some(10));
    for path in ["../x", "/etc/passwd", "outside", "src/../../x"] {
        let error = wait(sandbox.read(path, whole)).expect_err("it leads out");
        assert_eq!(error.kind(), ErrorKind::OutsideWorkspace, "{error}");
        assert!(wait(sandbox.write(path, b"x")).is_err(), "{path}");
    }
    assert_eq!(wait(sandbox.read("nothing", whole)).expect_err("it is not there").kind(), ErrorKind::Io);
}

/// A number of seconds that nothing else on this machine sleeps for.
fn mark() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("86400.{:010}{:04}", std::process::id(), COUNT.fetch_add(1, Relaxed))
}

/// The command lines of this machine that hold a mark.
fn marked(mark: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(Path::new(&entry.path()).join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).into_owned()).filter(|line| line.contains(mark)).collect()
}

fn out(ran: &Output) -> &str {
    std::str::from_utf8(&ran.stdout.head).expect("text")
}

fn wait<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}
