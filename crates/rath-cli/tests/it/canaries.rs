//! Secrets of the environment on every way into the program and out of it: none is stored or printed.
//!
//! The control is the same program without the values in its environment: every channel has to show its canaries there.

use std::process::Command;

use rath_test_support::{TempDir, Terminal, temp_dir};
use serde_json::{Value, json};

/// The ways by which a text gets into the program.
const CHANNELS: &[&str] = &[
    "prompt",
    "second prompt",
    "system prompt",
    "file of the model",
    "text",
    "reasoning",
    "tool",
    "argument",
    "stdout",
    "stderr",
    "error of the model, tried again",
    "error of the model",
    "new file",
    "content of a file",
    "output of a check",
    "branch",
    "words of a denial",
    "name of the user",
    "session on the command line",
    "model on the command line",
    "store on the command line",
    "sandbox on the command line",
    "unknown option",
    "session of OpenRath",
    "trajectory",
    "session file",
];

/// A random value, and the texts in which it is planted and searched for.
struct Canary {
    channel: &'static str,
    core: String,
    text: String,
}

/// The number of canaries for each channel: one in each form.
const FORMS: usize = 4;

/// The kinds of value that are planted.
#[derive(Clone, Copy, PartialEq)]
enum Species {
    /// Values of the environment.
    Known,
    /// Values that the program is not told of.
    Unknown,
    /// Values that only their pattern shows to be keys.
    Keys,
}

/// The channels in which a key that only its pattern shows stays: files are the user's.
const FILE_CHANNELS: [&str; 2] = ["new file", "content of a file"];

/// The most steps that are shown one by one.
const MAX_SHOWN_STEPS: usize = 12;

/// Makes all canaries, from a fixed seed.
fn all_canaries(species: Species) -> Vec<Canary> {
    let mut state = rath_test_support::seed();
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let letters = b"ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789";
        char::from(letters[(state >> 33) as usize % letters.len()])
    };
    let mut canaries = Vec::new();
    for channel in CHANNELS {
        for form in 0..FORMS {
            let core: String = (0..24).map(|_| random()).collect();
            let bytes = |escape: fn(u8) -> String| core.bytes().map(escape).collect::<String>();
            let text = match form {
                _ if species == Species::Keys => format!("sk-{core}1aB2"),
                0 => core.clone(),
                1 => bytes(|byte| format!("{byte:02x}")),
                2 => bytes(|byte| format!("%{byte:02X}")),
                _ => core
                    .chars()
                    .map(|c| if c.is_ascii_digit() { format!("%{:02x}", c as u8) } else { c.to_string() })
                    .collect(),
            };
            canaries.push(Canary { channel, core, text });
        }
    }
    canaries
}

/// A project with a session in which every text has canaries, and everything that was printed.
struct Project {
    folder: TempDir,
    canaries: Vec<Canary>,
    species: Species,
    printed: String,
}

impl Project {
    fn new(species: Species) -> Self {
        let folder = temp_dir();
        for directory in ["work", "home"] {
            std::fs::create_dir(folder.path().join(directory)).expect("a directory");
        }
        Project { folder, canaries: all_canaries(species), species, printed: String::new() }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
    }

    /// Returns the texts of a channel.
    #[track_caller]
    fn texts(&self, channel: &str) -> Vec<&str> {
        assert!(CHANNELS.contains(&channel), "`{channel}` is not in the table");
        self.canaries.iter().filter(|canary| canary.channel == channel).map(|canary| canary.text.as_str()).collect()
    }

    #[track_caller]
    fn text(&self, channel: &str) -> String {
        self.texts(channel).join("-")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = rath_test_support::program(env!("CARGO_BIN_EXE_rath"));
        command.args(args).current_dir(self.folder.path()).env("HOME", self.path("home")).env_remove("XDG_DATA_HOME");
        command.env("USER", self.text("name of the user"));
        if self.species == Species::Known {
            for (nth, canary) in self.canaries.iter().enumerate() {
                command.env(format!("CANARY_{nth}_TOKEN"), &canary.core);
            }
        }
        command
    }

    /// Runs the program, and returns what it prints on stdout.
    fn run(&mut self, args: &[&str]) -> String {
        let output = self.command(args).output().expect("rath runs");
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        self.printed += &format!("{args:?}:\n{stdout}{}\n", String::from_utf8_lossy(&output.stderr));
        stdout
    }

    fn run_in_terminal(&mut self, args: &[&str]) {
        let (screen, _) = Terminal::start(self.command(args)).finish();
        self.printed += &format!("{args:?} in a terminal:\n{screen}\n");
    }

    fn script(&self, name: &str, turns: &[Value]) -> String {
        self.write(name, &turns.iter().map(|turn| format!("{turn}\n")).collect::<String>());
        format!("script:{name}")
    }

    /// Returns everything that was printed and stored, without the arguments of the commands.
    fn evidence(&self) -> String {
        let lines = || self.printed.lines().filter(|line| !line.starts_with("[\""));
        let mut evidence: String = lines().map(|line| format!("{line}\n")).collect();
        // The pieces of a text, joined.
        let events = lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let pieces = events.filter(|event| event["event"] == "text");
        evidence.extend(pieces.filter_map(|event| Some(event["text"].as_str()?.to_owned())));
        let mut open = ["exports", ".rath", "work/.rath/workspace"].map(|name| self.path(name)).to_vec();
        while let Some(path) = open.pop() {
            for entry in std::fs::read_dir(&path).into_iter().flatten().map(|entry| entry.expect("an entry")) {
                match entry.file_type().expect("a type").is_dir() {
                    true => open.push(entry.path()),
                    false => {
                        evidence += &format!("{}\n", entry.path().display());
                        evidence += &String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap_or_default());
                    }
                }
            }
        }
        let mut git = rath_test_support::git();
        git.args(["--git-dir", "work/.rath/workspace", "cat-file", "--batch-all-objects", "--batch"]);
        let objects = git.current_dir(self.folder.path()).output().expect("git runs");
        evidence + &String::from_utf8_lossy(&objects.stdout)
    }

    fn is_seen(canary: &Canary, evidence: &str) -> bool {
        let json = canary.text.replace('%', "\\u0025");
        [&canary.core[..12], &canary.core[12..], &canary.text[..], &json].iter().any(|part| evidence.contains(part))
    }
}

/// Does with the program all that it can do with a session.
fn use_everything(project: &mut Project) {
    let names = |project: &Project, channel: &str| project.texts(channel).join("\n") + "\n";
    project.write("names", &names(project, "new file"));
    for name in ["stdout", "stderr", "content of a file", "output of a check"] {
        project.write(&name.replace(' ', "-"), &project.text(name));
    }
    std::fs::create_dir(project.path("exports")).expect("a directory");
    let shell = |command: &str| json!({"name": "shell", "arguments": {"command": command}});
    let make =
        "while read -r n; do echo x > \"$n\"; done < ../names; cp ../content-of-a-file c.txt; echo plain > p.txt";
    let text = project.text("text");
    let turns = [
        json!({"error": {"status": 503, "message": project.text("error of the model, tried again")}}),
        json!({"text": text, "reasoning": project.text("reasoning"), "chunks": text.len(), "calls": [
            {"name": project.text("tool"), "arguments": {project.text("argument"): [project.text("argument")]}},
            shell("cat ../stdout; cat ../stderr >&2; false"), shell(make),
        ]}),
        json!({"text": "Done."}),
    ];
    let model = project.script(&format!("{}.jsonl", project.text("file of the model")), &turns);
    let (prompt, system) = (project.text("prompt"), project.text("system prompt"));
    let run = ["run", &prompt, "--system", &system, "--model", &model, "--sandbox", "local:work", "--mode", "full"];
    project.run(&run);
    project.run(&[&run[..], &["--json"]].concat());
    project.run_in_terminal(&run);
    let id = project.run(&["ls"]).split_whitespace().next().unwrap_or_default().to_owned();
    let refused = project.text("error of the model");
    let refused = project.script("refused.jsonl", &[json!({"error": {"status": 400, "message": refused}})]);
    let second = project.text("second prompt");
    project.run(&["resume", &id, &second, "--model", &refused]);
    project.run(&["resume", &id, &second, "--model", &refused, "--anyway"]);
    project.run_in_terminal(&["resume", &id, "--model", &refused, "--json", "--anyway"]);
    project.run(&["check", "cat ../output-of-a-check; false", "--session", &id]);
    let branch = project.text("branch");
    let fork = project.run(&["fork", &id, "--name", &branch]).trim().to_owned();
    let asking = project.script("asking.jsonl", &[json!({"calls": [shell("rm p.txt")]}), json!({"text": "Done."})]);
    project.run(&["resume", &fork, "Go on.", "--model", &asking, "--mode", "ask", "--anyway"]);
    let words = project.text("words of a denial");
    let waiting = project.run(&["review", &fork, "--json"]);
    let waiting = serde_json::from_str::<Value>(waiting.trim());
    let waiting = waiting.unwrap_or_else(|error| panic!("no call waits: {error}\n{}", project.printed));
    let call = waiting["call"].as_str().expect("an id").to_owned();
    project.run(&["review", &fork, "--deny", &call, "--reason", &words]);
    project.run(&["merge", &id, &fork]);

    for args in [
        &["ls", "--all"][..],
        &["log", "-v", &id],
        &["log", "-v", &fork],
        &["cost", &id],
        &["verify", &id],
        &["review", &id],
        &["render", &id],
        &["replay", &id],
        &["diff", &id],
        &["blame", &id, "p.txt"],
    ] {
        project.run(args);
        project.run(&[args, &["--json"]].concat());
        project.run_in_terminal(args);
    }
    let log = project.run(&["log", &id, "--json"]);
    let steps = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let steps: Vec<String> = steps.map(|step| step["id"].as_str().expect("an id").to_owned()).collect();
    for step in steps.iter().take(MAX_SHOWN_STEPS) {
        project.run(&["show", &id, step]);
        project.run_in_terminal(&["show", &id, step, "--json"]);
    }
    for format in ["bundle", "openrath", "atif"] {
        let path = format!("exports/{format}");
        project.run(&["export", &id, "--as", format, "--output", &path]);
        project.run_in_terminal(&["export", &id, "--as", format]);
    }
    import_all(project);
    use_wrongly(project);
}

/// Imports sessions that others made.
fn import_all(project: &mut Project) {
    let others = |channel: &str| {
        let mut session = rath::Session::user(project.text(channel));
        session.push(rath::Chunk::assistant(project.text(channel)));
        session
    };
    let openrath = rath::interchange::openrath::write(&others("session of OpenRath")).bytes;
    let atif = rath::interchange::atif::write(&others("trajectory")).bytes;
    project.write("openrath.jsonl", &String::from_utf8(openrath).expect("UTF-8"));
    project.write("atif.json", &String::from_utf8(atif).expect("UTF-8"));
    others("session file").save_blocking(project.path("s.rath")).expect("written");
    for file in ["openrath.jsonl", "atif.json", "s.rath"] {
        project.run(&["import", file]);
        project.run(&["log", "-v", file]);
    }
    project.run(&["ls", "--json", "--all"]);
}

/// Gives the program words that it repeats in its errors.
fn use_wrongly(project: &mut Project) {
    let session = project.text("session on the command line");
    let model = project.text("model on the command line");
    let store = project.text("store on the command line");
    let sandbox = project.text("sandbox on the command line");
    let option = format!("--{}", project.text("unknown option"));
    for args in [
        &["log", "-v", &session][..],
        &["run", "x", "--model", &model],
        &["ls", "--store", &store],
        &["run", "x", "--sandbox", &sandbox, "--model", "script:refused.jsonl"],
        &["ls", &option],
    ] {
        project.run(args);
        project.run_in_terminal(args);
    }
}

/// Fails if a canary is seen anywhere.
fn check_hidden(species: Species) {
    let mut project = Project::new(species);
    use_everything(&mut project);
    let evidence = project.evidence();
    let lines = |canary: &Canary| {
        let is_here = |line: &&str| Project::is_seen(canary, line);
        evidence
            .lines()
            .filter(is_here)
            .map(|line| line.chars().take(300).collect::<String>())
            .take(3)
            .collect::<Vec<_>>()
    };
    let is_hidden = |canary: &&Canary| species == Species::Known || !FILE_CHANNELS.contains(&canary.channel);
    let leaks = project.canaries.iter().filter(is_hidden).filter(|canary| Project::is_seen(canary, &evidence));
    let leaks: Vec<_> = leaks.map(|canary| (canary.channel, &canary.text, lines(canary))).collect();
    assert!(leaks.is_empty(), "{} canaries are seen: {leaks:#?}", leaks.len());
}

#[test]
fn no_secret_of_the_environment_is_stored_or_printed() {
    check_hidden(Species::Known);
}

#[test]
fn nothing_that_looks_like_a_key_is_stored_or_printed() {
    check_hidden(Species::Keys);
}

#[test]
fn every_channel_shows_values_that_are_not_in_the_environment() {
    let mut project = Project::new(Species::Unknown);
    use_everything(&mut project);
    let evidence = project.evidence();
    let missing = project.canaries.iter().filter(|canary| !Project::is_seen(canary, &evidence));
    let missing: Vec<_> = missing.map(|canary| (canary.channel, &canary.text)).collect();
    assert!(missing.is_empty(), "{} canaries are not seen: {missing:#?}\n{}", missing.len(), project.printed);
}
