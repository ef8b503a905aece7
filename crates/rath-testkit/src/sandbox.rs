//! The contract of sandbox backends, as tests.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use rath::sandbox::{ByteRange, Command, ErrorKind, ExitStatus, FileKind, Output, Result, Sandbox, Stream};

/// A sandbox with an empty workspace, for one test. It needs `sh`, `sleep`, `cat`, `head` and `seq`.
pub struct SandboxCase {
    sandbox: Sandbox,
    /// A value that has to live as long as the sandbox.
    _guard: Box<dyn Any>,
}

impl SandboxCase {
    /// Creates a case. `guard` is dropped after the sandbox: its temporary directory, for example.
    pub fn new(sandbox: impl Into<Sandbox>, guard: impl Any) -> Self {
        SandboxCase { sandbox: sandbox.into(), _guard: Box::new(guard) }
    }

    /// Runs a line of shell.
    fn sh(&self, line: &str) -> Output {
        self.run(&Command::shell(line)).expect("it runs")
    }

    /// Runs a command.
    fn run(&self, command: &Command) -> Result<Output> {
        wait(self.sandbox.run(command))
    }

    /// Checks that no process with a mark is left, if the sandbox is on this machine, and that the sandbox still works.
    fn check_gone(&self, mark: &str) {
        if self.sandbox.directory().is_some() {
            assert_eq!(marked(mark), [""; 0], "a process is left");
        }
        assert_eq!(stdout(&self.sh("echo still here")), "still here\n");
    }
}

/// Runs every test of the contract, each with a new case, and panics at the first that fails.
pub fn conforms(case: &mut dyn FnMut() -> SandboxCase) {
    for (name, test) in TESTS {
        eprintln!("sandbox: {name}");
        test(&case());
    }
}

/// A rule of the contract, and its test.
type ContractTest = (&'static str, fn(&SandboxCase));

const TESTS: [ContractTest; 16] = [
    ("arguments, input, directory and environment arrive as given", input_arrives),
    ("the exit status is reported", exit_status),
    ("a command that cannot be run is an error", cannot_run),
    ("stdout and stderr are separate, byte for byte", streams),
    ("output is streamed while the command runs", output_is_streamed),
    ("long output is held as head and tail, and stored whole", long_output),
    ("input that is not read blocks nothing", unread_input),
    ("a command ends at its timeout, and its output is returned", timeout),
    ("all processes of a command end with it", daemons),
    ("a call that is dropped leaves no process behind", dropped),
    ("no process can ignore its end", ignored_signals),
    ("many commands run at once", concurrent_commands),
    ("secrets of the program do not reach a command", secrets),
    ("files and commands share the workspace, and no file outside is reachable", files),
    ("a mark stays while the content does, and changes with it", marks),
    ("a file that is removed is gone, with the directories that are empty then", removal),
];

fn input_arrives(case: &SandboxCase) {
    case.sh("mkdir -p some/where");
    let mut command =
        Command::argv(["sh", "-c", "printf '%s|' \"$@\" \"$WORD\"; cat; pwd", "sh", "a b", "", "$x'\"\\", "ü"]);
    command.stdin = b"in\0put\n".to_vec();
    command.cwd = "some/where".to_owned();
    command.env = vec![("WORD".to_owned(), "first".to_owned()), ("WORD".to_owned(), "value = 1".to_owned())];
    let output = case.run(&command).expect("it runs");
    let printed = String::from_utf8(output.stdout.head).expect("text");
    let (words, directory) = printed.split_once('\n').expect("two lines");
    assert_eq!(words, "a b||$x'\"\\|ü|value = 1|in\0put");
    assert!(directory.ends_with("/some/where\n"), "{directory}");
    // Without input, stdin is empty.
    assert_eq!(stdout(&case.sh("cat; echo end")), "end\n");
}

fn exit_status(case: &SandboxCase) {
    let rows = [
        ("true", ExitStatus::Exit(0)),
        ("exit 3", ExitStatus::Exit(3)),
        ("exit 255", ExitStatus::Exit(255)),
        ("kill -9 $$", ExitStatus::Signal(9)),
        ("kill -15 $$", ExitStatus::Signal(15)),
        ("no-such-program-anywhere", ExitStatus::Exit(127)),
        // A command starts without the signal handlers and the signal mask of this program.
        ("kill -PIPE $$", ExitStatus::Signal(13)),
    ];
    for (line, ended) in rows {
        assert_eq!(case.sh(line).status, ended, "{line}");
    }
}

fn cannot_run(case: &SandboxCase) {
    case.sh("echo no program > plain; echo words > script; chmod +x script; mkdir directory");
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
    assert_eq!(stdout(&case.sh("echo still here")), "still here\n");
}

fn streams(case: &SandboxCase) {
    let output = case.sh("printf 'a\\0\\377'; printf 'x\\n' >&2; printf b");
    assert_eq!((&*output.stdout.head, output.stdout.total_bytes), (&b"a\0\xffb"[..], 4));
    assert_eq!((&*output.stderr.head, output.stderr.total_bytes), (&b"x\n"[..], 2));
    // A closed or unused stream does not disturb the other.
    let output = case.sh("exec >&-; echo only this >&2");
    assert_eq!((stdout(&output), &*output.stderr.head), ("", &b"only this\n"[..]));
}

fn output_is_streamed(case: &SandboxCase) {
    let Some(directory) = case.sandbox.directory() else { return };
    let (mut streamed, mut order) = (Vec::new(), Vec::new());
    let command = Command::shell("echo one; until [ -e go ]; do sleep 0.01; done; echo two >&2");
    let output = wait(case.sandbox.run_streaming(&command, &mut |stream, bytes| {
        streamed.extend_from_slice(bytes);
        order.push(stream);
        // The command continues only after its first output has arrived here.
        std::fs::write(directory.join("go"), "").expect("written");
    }));
    assert_eq!(output.expect("it runs").status, ExitStatus::Exit(0));
    assert_eq!((&*streamed, &*order), (&b"one\ntwo\n"[..], &[Stream::Stdout, Stream::Stderr][..]));
}

fn long_output(case: &SandboxCase) {
    let mut streamed_bytes = 0;
    let command = Command::shell("seq 1 1000000; seq 1 1000000 >&2");
    let output =
        wait(case.sandbox.run_streaming(&command, &mut |_, bytes| streamed_bytes += bytes.len())).expect("it runs");
    let all: String = (1..=1_000_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(streamed_bytes, 2 * all.len());
    for printed in [&output.stdout, &output.stderr] {
        assert_eq!(printed.total_bytes, all.len() as u64);
        assert!(all.as_bytes().starts_with(&printed.head) && all.as_bytes().ends_with(&printed.tail));
        assert!(!printed.tail.is_empty() && printed.head.len() + printed.tail.len() < all.len());
        assert_eq!(printed.spool_digest, Some(rath::sandbox::Digest::from_content(all.as_bytes())));
    }
    let digest = output.stdout.spool_digest.expect("it is not all in memory");
    if let Some(file) = wait(case.sandbox.spool_path(digest)).expect("it can be looked for") {
        assert_eq!(std::fs::read(file).expect("it is stored"), all.as_bytes());
    }
}

fn unread_input(case: &SandboxCase) {
    let mut command = Command::shell("exit 0");
    command.stdin = vec![b'x'; 4 << 20];
    assert_eq!(case.run(&command).expect("it runs").status, ExitStatus::Exit(0));
    // The same holds for a command that closes stdin, or prints as much as it reads.
    command.argv = ["sh", "-c", "exec <&-; echo closed"].map(str::to_owned).to_vec();
    assert_eq!(stdout(&case.run(&command).expect("it runs")), "closed\n");
    command.argv = vec!["cat".to_owned()];
    assert_eq!(case.run(&command).expect("it runs").stdout.total_bytes, 4 << 20);
}

fn timeout(case: &SandboxCase) {
    // A loaded machine may need longer than the first timeout to start the command.
    for limit in [300, 3_000, 30_000] {
        let mark = mark();
        let mut command = Command::shell(&format!("echo begun; sleep {mark}; echo never"));
        command.timeout = Duration::from_millis(limit);
        let output = case.run(&command).expect("it runs");
        case.check_gone(&mark);
        assert_eq!(output.status, ExitStatus::TimedOut);
        if !stdout(&output).is_empty() {
            assert_eq!(stdout(&output), "begun\n");
            return;
        }
    }
    panic!("it printed nothing in 30 s");
}

fn daemons(case: &SandboxCase) {
    // Each leaves a process behind in another way, and ends at once.
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
        let output = case.sh(&row.replace("MARK", &mark));
        assert_eq!((output.status, stdout(&output)), (ExitStatus::Exit(0), "begun\n"), "{row}");
        case.check_gone(&mark);
    }
}

fn dropped(case: &SandboxCase) {
    for row in ["echo begun; sleep MARK", "setsid sleep MARK & echo begun; sleep MARK", "sleep MARK & cat; sleep MARK"]
    {
        let mark = mark();
        let mut command = Command::shell(&row.replace("MARK", &mark));
        command.stdin = vec![b'x'; 1 << 20];
        wait(async {
            let chunks = AtomicU32::new(0);
            let mut sink = |_: Stream, _: &[u8]| _ = chunks.fetch_add(1, Relaxed);
            let mut run = pin!(case.sandbox.run_streaming(&command, &mut sink));
            // Dropped at its first output.
            poll_fn(|cx| match run.as_mut().poll(cx) {
                Poll::Ready(_) => panic!("it must not end"),
                Poll::Pending if chunks.load(Relaxed) > 0 => Poll::Ready(()),
                Poll::Pending => Poll::Pending,
            })
            .await;
            Ok(())
        })
        .expect("it is dropped");
        case.check_gone(&mark);
    }
}

fn ignored_signals(case: &SandboxCase) {
    let mark = mark();
    let line = "trap '' TERM HUP INT QUIT PIPE; setsid sh -c \"trap '' TERM HUP; sleep MARK; sleep MARK\" & \
                while :; do sleep MARK; done";
    let mut command = Command::shell(&line.replace("MARK", &mark));
    command.timeout = Duration::from_millis(300);
    assert_eq!(case.run(&command).expect("it runs").status, ExitStatus::TimedOut);
    case.check_gone(&mark);
}

fn concurrent_commands(case: &SandboxCase) {
    let mark = mark();
    let commands: Vec<_> = (0..50)
        .map(|nth| Command::shell(&format!("sleep {mark} & head -c 100000 /dev/zero; echo {nth} >&2; exit {nth}")))
        .collect();
    let runs = commands.iter().map(|command| case.sandbox.run(command));
    let mut runs: Vec<_> = runs.map(Box::pin).collect();
    let mut outputs: Vec<Option<Output>> = commands.iter().map(|_| None).collect();
    wait(poll_fn(|cx| {
        for (run, output) in runs.iter_mut().zip(&mut outputs).filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(result) = run.as_mut().poll(cx) {
                *output = Some(result?);
            }
        }
        if outputs.iter().all(Option::is_some) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }))
    .expect("all of them run");
    for (nth, output) in outputs.iter().enumerate() {
        let output = output.as_ref().expect("it has ended");
        assert_eq!(
            (output.status, output.stdout.total_bytes),
            (ExitStatus::Exit(i32::try_from(nth).expect("small")), 100_000)
        );
        assert_eq!(output.stderr.head, format!("{nth}\n").as_bytes());
    }
    drop(runs);
    case.check_gone(&mark);
}

fn secrets(case: &SandboxCase) {
    // Only these variables may be in the environment, and none of the others of this program. By the last one, the processes of a
    // command are found elsewhere.
    let known = [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TERM",
        "TZ",
        "PWD",
        "SHLVL",
        "OLDPWD",
        "_",
        "RATH_COMMAND",
    ];
    let output = case.sh("env -0 2>/dev/null || env");
    for variable in stdout(&output).split(['\0', '\n']).filter_map(|line| Some(line.split_once('=')?.0)) {
        assert!(known.contains(&variable) || variable.starts_with("LC_"), "`{variable}` was inherited");
    }
}

fn files(case: &SandboxCase) {
    let sandbox = &case.sandbox;
    let everything = ByteRange { offset: 0, max_len: u64::MAX };
    wait(sandbox.write("src/main.rs", b"fn main() {}\n")).expect("written");
    assert_eq!(stdout(&case.sh("cat src/main.rs")), "fn main() {}\n");
    case.sh("printf 0123456789 > digits; ln -s digits link; ln -s /etc/passwd outside");
    assert_eq!(wait(sandbox.read("digits", everything)).expect("read"), b"0123456789");
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
    assert_eq!(wait(sandbox.stat("nothing")).expect("stat"), None);
    assert_eq!(wait(sandbox.stat("digits")).expect("stat").map(|entry| entry.bytes), Some(10));
    for path in ["../x", "/etc/passwd", "outside", "src/../../x"] {
        let error = wait(sandbox.read(path, everything)).expect_err("the path leads out");
        assert_eq!(error.kind(), ErrorKind::OutsideWorkspace, "{error}");
        assert!(wait(sandbox.write(path, b"x")).is_err(), "{path}");
    }
    assert_eq!(wait(sandbox.read("nothing", everything)).expect_err("it is not there").kind(), ErrorKind::Io);
}

fn marks(case: &SandboxCase) {
    let sandbox = &case.sandbox;
    wait(sandbox.write("marked", b"one")).expect("written");
    let mark = || {
        let listed = wait(sandbox.list("")).expect("listed");
        listed.into_iter().find(|entry| entry.name == "marked").expect("it is listed").mark
    };
    let Some(first) = mark() else { return };
    assert_eq!(mark().as_ref(), Some(&first), "the content is the same");
    let mut seen = vec![first];
    let mut check_changed = |how: &str| {
        let next = mark().expect("a file that had a mark has one");
        assert!(!seen.contains(&next), "the mark `{next}` stayed, and the content changed: {how}");
        seen.push(next);
    };
    wait(sandbox.write("marked", b"two")).expect("written");
    check_changed("another content of the same length was written");
    // One after the other, with nothing in between.
    for line in
        ["printf six > marked", "printf ten > marked", "printf new > other && mv other marked", "printf more >> marked"]
    {
        case.sh(line);
        check_changed(line);
    }
}

fn removal(case: &SandboxCase) {
    let sandbox = &case.sandbox;
    for path in ["a/b/one", "a/two", "three"] {
        wait(sandbox.write(path, b"x")).expect("written");
    }
    match wait(sandbox.remove("a/b/one")) {
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            assert!(
                wait(sandbox.stat("a/b/one")).expect("stat").is_some(),
                "a sandbox that removes no files keeps them"
            );
            return;
        }
        removed => removed.expect("removed"),
    }
    assert_eq!(stdout(&case.sh("ls a; cat a/two three")), "two\nxx");
    wait(sandbox.remove("three")).expect("removed");
    assert_eq!(wait(sandbox.stat("three")).expect("stat"), None);
    // Nothing is at these paths: a backend that lets them lead out removes nothing.
    for path in ["../nonexistent-file", "/nonexistent-file", "nothing"] {
        assert!(wait(sandbox.remove(path)).is_err(), "{path}");
    }
}

/// Returns a number of seconds that no other process of this machine sleeps for.
fn mark() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("86400.{:010}{:04}", std::process::id(), COUNT.fetch_add(1, Relaxed))
}

/// Returns the command lines of this machine that contain a mark.
fn marked(mark: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(Path::new(&entry.path()).join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).into_owned()).filter(|line| line.contains(mark)).collect()
}

/// Returns stdout as text.
fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout.head).expect("text")
}

/// Runs a future on a new runtime.
fn wait<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}
