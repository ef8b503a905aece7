use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The variables that a program gets from the environment of the tests. All others are the developer's own.
const PASSED_ON: [&str; 5] = ["PATH", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "LLVM_PROFILE_FILE"];

/// Returns a command with a clean environment: no keys, proxies, colours, locale, time zone or home of the developer.
///
/// `HOME` names a directory that does not exist, stdin is empty. The user's data directory is that of the tests, so that a
/// program recognises the sessions that a test recorded.
pub fn program(path: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(path);
    command.env_clear().stdin(Stdio::null());
    command.envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    command.envs(data.or_else(|| Some(std::env::home_dir()?.join(".local/share"))).map(|data| ("XDG_DATA_HOME", data)));
    // A session would begin with the date and the operating system.
    command.env("RATH_CONTEXT", "off");
    command.env("HOME", "/nonexistent").env("LANG", "C.UTF-8").env("TZ", "UTC0");
    command
}

/// Returns git with a clean environment and a configuration of its own.
///
/// Neither the system's nor the user's configuration counts, and no repository above the current directory is found by
/// accident: `safe.directory` allows any owner.
pub fn git() -> Command {
    let mut command = program("git");
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_TERMINAL_PROMPT", "0");
    let settings = [("user.name", "Tester"), ("user.email", "tester@example.invalid"), ("safe.directory", "*")];
    command.env("GIT_CONFIG_COUNT", settings.len().to_string());
    for (nth, (key, value)) in settings.into_iter().enumerate() {
        command.env(format!("GIT_CONFIG_KEY_{nth}"), key).env(format!("GIT_CONFIG_VALUE_{nth}"), value);
    }
    command
}

/// Returns this test program again, to run one of its ignored tests in a process of its own with a clean environment.
///
/// The name is the full one: `store::kill::child`. The settings are environment variables for the test.
pub fn this_test(name: &str, settings: &[(&str, &str)]) -> Command {
    let mut command = program(std::env::current_exe().expect("this program has a path"));
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]);
    for inherited in ["RATH_SEED", "RUST_BACKTRACE"] {
        command.envs(std::env::var_os(inherited).map(|value| (inherited, value)));
    }
    command.envs(settings.iter().copied()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}
