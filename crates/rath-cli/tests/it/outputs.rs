//! The output of every command on one session that has everything: forks, a merge, a conflict, a failed check, a forgotten text.
//!
//! Each text in `outputs/` is what a command shows in a terminal of 80 and of 200 columns, and as JSON. No line of data is wider
//! than the terminal; sentences on stderr (`! `) are wrapped by it.

use std::path::{Path, PathBuf};
use std::process::Command;

use expect_test::expect_file;
use rath_test_support::Terminal;
use regex::{Captures, Regex};

use crate::permissions::Place;

const WIDTHS: [u16; 2] = [80, 200];
/// The most characters of a line that are compared.
const MAX_CHARS: usize = 600;

const TITLE: &str = "Please translate the second line of a.txt into German, and say what you did";
const FIRST: &str = r#"{"text": "I look first.", "calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}], "usage": {"input": 1000, "output": 10}}
{"calls": [{"name": "edit_file", "arguments": {"path": "a.txt", "old_string": "two", "new_string": "zwei"}}], "usage": {"input": 2000, "cached_read": 900, "output": 10}}
{"calls": [{"name": "shell", "arguments": {"command": "echo four >> a.txt; echo the tests fail; exit 3"}}], "usage": {"input": 3000, "output": 10}}
{"text": "I translated the second line, and there is a fourth one now, which was not there before I looked.", "usage": {"input": 4000, "output": 20}}
"#;

/// Returns the answers of a model that changes the first line of a file.
fn edit(new: &str) -> String {
    format!(
        r#"{{"calls": [{{"name": "edit_file", "arguments": {{"path": "a.txt", "old_string": "one", "new_string": "{new}"}}}}], "usage": {{"input": 500, "output": 10}}}}
{{"text": "The first line is {new}.", "usage": {{"input": 600, "output": 10}}}}
"#
    )
}

/// A project in a home directory, so that paths have the same length everywhere.
struct Project {
    place: Place,
}

impl Project {
    fn new() -> Self {
        let project = Project { place: Place::new(FIRST) };
        project.place.write("home/app/a.txt", "one\ntwo\nthree\n");
        project.place.write("home/app/notes/secret.txt", "nothing yet\n");
        project.say(
            &["run", "Write the secret"],
            r#"{"calls": [{"name": "write_file", "arguments": {"path": "notes/secret.txt", "content": "the moon\n"}}]}
{"text": "Written."}"#,
        );
        project.rath(&["forget", "@", &project.step("@", "tool result: ", "wrote ")]);
        std::fs::remove_file(project.place.path("home/app/notes/secret.txt")).expect("it is there");
        project.say(&["run", TITLE], FIRST);
        project.rath(&["check", "grep -q zwei a.txt"]);
        project.rath(&["check", "grep -q drei a.txt"]);
        project.rath(&["fork", "@", "--name", "other"]);
        project.say(&["resume", "other", "Change the first line"], &edit("eins"));
        project.say(&["resume", TITLE, "Change the first line"], &edit("uno"));
        project.rath(&["merge", TITLE, "other"]);
        project.rath(&["memory", "remember", "Deploy on Mondays only."]);
        let notes = project.command(&["memory", "ls", "--json"]).output().expect("rath runs").stdout;
        project.place.write("home/notes.jsonl", &String::from_utf8(notes).expect("UTF-8"));
        project.place.write("home/key.txt", "sk-test-0123456789\n");
        let asked =
            "model = \"fast\"\n\n[models.fast]\nmodel = \"openai:m\"\nbase_url = \"https://models.example/v1\"\n";
        project.place.write("home/asked/rath.toml", &format!("{asked}\n[permissions]\nallow = [\"command make\"]\n"));
        project
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.command("home/app", args);
        command.env("TERM", "xterm").env("NO_COLOR", "1").env("RATH_PAGER", "");
        if args.contains(&"set-key") {
            command.stdin(std::fs::File::open(self.place.path("home/key.txt")).expect("a file"));
        }
        command
    }

    /// Runs a command and returns its output on both streams.
    fn rath(&self, args: &[&str]) -> String {
        let output = self.command(args).output().expect("rath runs");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Runs an agent with these answers.
    fn say(&self, args: &[&str], answers: &str) {
        self.place.write("home/script.jsonl", answers);
        let model = ["--model", "script:../script.jsonl", "--mode", "full"];
        let sandbox: &[&str] = if args[0] == "run" { &["--sandbox", "local:."] } else { &[] };
        let printed = self.rath(&[args, &model, sandbox].concat());
        assert!(printed.contains("saved as"), "{args:?}: {printed}");
    }

    /// Returns the newest step whose line in the log has both texts.
    fn step(&self, session: &str, begin: &str, text: &str) -> String {
        let log = self.rath(&["log", "-v", session]);
        let line =
            log.lines().find(|line| line.contains(begin) && line.contains(text)).unwrap_or_else(|| panic!("{log}"));
        line.split_whitespace().find(|word| word.len() == 8).expect("an id").to_owned()
    }

    /// Returns what a command shows in a terminal, and what it says on stderr.
    fn shown(&self, args: &[&str], columns: u16) -> (String, String) {
        let path = self.place.path("stderr.txt");
        let mut command = self.command(args);
        command.stderr(std::fs::File::create(&path).expect("a file"));
        let shown = Terminal::of_stdout(command, columns).finish().0;
        (shown, std::fs::read_to_string(path).expect("text"))
    }
}

/// Replaces all that differs from run to run: ids, by numbers in their order, times, durations and paths.
fn masked(project: &Project, text: &str) -> String {
    let text = crate::fixture::without_call_times(text);
    let mut text = masked_paths(project, &text);
    for (pattern, name) in [
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "TIME"),
        (r"\b\d\d:\d\d UTC", "TIME"),
        (r"\b20\d\d-\d\d-\d\d\b", "DATE"),
        (r#""score":[\d.]+"#, "\"score\":0"),
        (r"\b(\d+m ago|now    )", "AGE    "),
        (r"\b\d+(\.\d+)? (s|ms)\b", "SECONDS"),
        (r"\b[\d,]+(\.\d+)? ([KM]i?B|bytes?)\b", "SIZE"),
        (r#""(process|pid|bytes|at|inode|freed|size)":\d+"#, "\"$1\":0"),
        (r#""host":"[^"]*""#, "\"host\":\"HOST\""),
    ] {
        text = Regex::new(pattern).expect("a pattern").replace_all(&text, name).into_owned();
    }
    let id = Regex::new(
        r"\b([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32}|[0-9a-f]{16}|[0-9a-f]{12}|[0-9a-f]{8})\b",
    );
    let mut known: Vec<String> = Vec::new();
    let name = |found: &Captures<'_>| {
        let word = &found[0];
        let key = if word.contains('-') { &word[word.len() - 8..] } else { &word[..8] };
        let nth = known.iter().position(|it| it == key).unwrap_or_else(|| {
            known.push(key.to_owned());
            known.len() - 1
        });
        format!("ID{:0>6}", nth + 1)
    };
    id.expect("a pattern").replace_all(&text, name).into_owned()
}

/// The commands that change nothing: the name of the text, the arguments, and whether there is JSON.
const READING: &[(&str, &[&str], Json)] = &[
    ("ls", &["ls"], Json::Lines),
    ("ls-all", &["ls", "--all"], Json::Lines),
    ("status", &["status"], Json::Lines),
    ("log", &["log"], Json::Lines),
    ("log-v", &["log", "-v"], Json::None),
    ("log-file", &["log", "--file", "a.txt"], Json::Lines),
    ("show", &["show", "head"], Json::Lines),
    ("show-edit", &["show", "@", "EDIT"], Json::Lines),
    ("show-forgotten", &["show", "Write the secret", "FORGOTTEN"], Json::Lines),
    ("explain", &["explain"], Json::Lines),
    ("explain-step", &["explain", "@", "EDIT"], Json::Lines),
    ("render", &["render", "@", "--to", "openai:gpt-5", "--report"], Json::None),
    ("cost", &["cost"], Json::Lines),
    ("cost-tree", &["cost", "--tree"], Json::Lines),
    ("replay", &["replay", "other"], Json::Lines),
    ("diff", &["diff"], Json::Lines),
    ("diff-two", &["diff", "@", "other"], Json::Lines),
    ("blame", &["blame", "a.txt"], Json::Lines),
    ("blame-line", &["blame", "a.txt:2"], Json::Lines),
    ("bisect", &["bisect", "other", "--sandbox", "local:", "--", "grep", "-q", "two", "a.txt"], Json::Lines),
    ("check", &["check"], Json::Lines),
    ("review", &["review"], Json::Lines),
    ("verify", &["verify"], Json::Lines),
    ("gc", &["gc", "--dry-run", "--older-than", "30d"], Json::Lines),
    ("memory-ls", &["memory", "ls"], Json::Lines),
    ("memory-read", &["memory", "read", "NOTE"], Json::Lines),
    ("memory-recall", &["memory", "recall", "When do we deploy?"], Json::Lines),
    ("mcp-ls", &["mcp", "ls"], Json::Lines),
    ("config", &["config", "show"], Json::Lines),
    ("export", &["export", "-o", "../graph.jsonl"], Json::None),
    ("export-bundle", &["export", "other", "--as", "bundle", "-o", "../one.rath"], Json::None),
];

/// The commands that change something, in an order in which each can be run.
const CHANGING: &[(&str, &[&str], Json)] = &[
    ("review-take", &["review", "@", "--take", "ours", "a.txt"], Json::None),
    ("fork", &["fork", "other"], Json::Lines),
    ("checkout", &["checkout", "other", "../files"], Json::Lines),
    ("restore", &["restore", "other@EDIT"], Json::Lines),
    ("check-run", &["check", "grep -q drei a.txt", "--session", "other"], Json::Lines),
    ("salvage", &["salvage", "other", "../copy.rath"], Json::Lines),
    ("import", &["import", "../one.rath", "--store", "sqlite:../other.db"], Json::Lines),
    (
        "run",
        &["run", "Go.", "--model", "script:../script.jsonl", "--mode", "full", "--sandbox", "local:../files"],
        Json::Lines,
    ),
    ("resume", &["resume", "@", "Go on.", "--model", "script:../script.jsonl", "--mode", "full"], Json::Lines),
    ("merge", &["merge", "@", "other"], Json::Lines),
    ("forget", &["forget", "other", "EDIT"], Json::None),
    ("memory-remember", &["memory", "remember", "Never on Fridays."], Json::Lines),
    ("memory-import", &["memory", "import", "../notes.jsonl", "--memory", "local:.rath/other"], Json::Lines),
    ("memory-forget", &["memory", "forget", "NOTE"], Json::Lines),
    ("config-set-key", &["config", "set-key", "openai"], Json::None),
    ("config-trust", &["config", "trust", "../asked/rath.toml"], Json::None),
    ("adopt", &["adopt", "@", "--sandbox", "isolated:.", "--store", "sqlite:../other.db"], Json::None),
    ("gc-delete", &["gc", "--delete", "Write the secret"], Json::None),
];

#[derive(Clone, Copy, PartialEq)]
enum Json {
    None,
    Lines,
}

fn expected(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/outputs").join(format!("{name}.txt"))
}

/// Returns the lines that are wider than a terminal.
fn too_wide(name: &str, shown: &str, columns: u16) -> String {
    // The ids of contents that are not there are shown in full, as git does.
    let wide = shown.lines().filter(|line| line.chars().count() > columns.into() && !line.starts_with("index "));
    wide.map(|line| format!("{name} at {columns}: {line}\n")).collect()
}

/// A form in which a command is shown.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Terminal(u16),
    Json,
}

const FORMS: [Form; 3] = [Form::Terminal(WIDTHS[0]), Form::Terminal(WIDTHS[1]), Form::Json];

/// Runs a command, and returns what is shown of it in a form. Adds lines that are wider than the terminal to `wide`.
fn shown_in(project: &Project, form: Form, (name, args): (&str, &[&str]), words: &[&str], wide: &mut String) -> String {
    match form {
        Form::Terminal(columns) => {
            let (shown, said) = project.shown(words, columns);
            wide.push_str(&too_wide(name, &shown, columns));
            let said: String = said.lines().map(|line| format!("! {line}\n")).collect();
            format!("$ rath {}  ({columns} columns)\n{shown}{said}\n", args.join(" "))
        }
        Form::Json => {
            let mut words = words.to_vec();
            let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
            words.insert(end, "--json");
            format!("$ rath {} --json\n{}", args.join(" "), project.rath(&words))
        }
    }
}

/// Returns the words of a command, with the steps and the note of a project.
fn words_for(project: &Project, args: &[&str]) -> Vec<String> {
    let value = |name: &str| match name {
        "EDIT" => project.step("@", "tool result: ", "replaced it in line 2"),
        "FORGOTTEN" => project.step("Write the secret", "forgotten", ""),
        _ => {
            let note = project.place.read("home/notes.jsonl");
            let note: serde_json::Value = serde_json::from_str(note.lines().next().expect("a note")).expect("JSON");
            note["id"].as_str().expect("an id").to_owned()
        }
    };
    let names = ["EDIT", "FORGOTTEN", "NOTE"];
    let word = |arg: &&str| {
        let name = names.into_iter().find(|name| arg.ends_with(name));
        name.map_or_else(|| (*arg).to_owned(), |name| arg.replace(name, &value(name)))
    };
    args.iter().map(word).collect()
}

#[test]
fn every_command_shows_what_it_did_and_fits_the_terminal() {
    let (mut wide, mut texts) = (String::new(), vec![String::new(); CHANGING.len()]);
    let project = Project::new();
    for &(name, args, json) in READING {
        let words = words_for(&project, args);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let forms = FORMS.into_iter().filter(|form| *form != Form::Json || json == Json::Lines);
        let text: String = forms.map(|form| shown_in(&project, form, (name, args), &words, &mut wide)).collect();
        compare(name, &masked(&project, &text));
    }
    for form in FORMS {
        // A project for each: what a command changed is changed.
        let project = Project::new();
        // The bundle of the session that is imported.
        project.rath(&["export", "other", "--as", "bundle", "-o", "../one.rath"]);
        for (&(name, args, json), text) in CHANGING.iter().zip(&mut texts) {
            let words = words_for(&project, args);
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            // A command without JSON is run all the same: the next ones build on what it did.
            let is_shown = form != Form::Json || json == Json::Lines;
            let form = if is_shown { form } else { FORMS[0] };
            let shown = shown_in(&project, form, (name, args), &words, &mut wide);
            if is_shown {
                text.push_str(&masked_paths(&project, &shown));
            }
        }
    }
    for (&(name, ..), text) in CHANGING.iter().zip(&texts) {
        compare(name, &masked(&project, text));
    }
    assert!(wide.is_empty(), "lines that are wider than the terminal:\n{wide}");
}

/// Compares the text of a command, of which each line is cut.
fn compare(name: &str, text: &str) {
    let cut = text.lines().map(|line| line.chars().take(MAX_CHARS).collect::<String>() + "\n");
    expect_file![expected(name)].assert_eq(&cut.collect::<String>());
}

/// Replaces the directory of a project.
fn masked_paths(project: &Project, text: &str) -> String {
    text.replace(&project.place.path("").display().to_string(), "TMP/")
}
