//! Conversations in a terminal.

use std::process::Command;

use rath_test_support::Terminal;
use serde_json::Value;

use crate::permissions::Place;

/// A line of what a model answers.
pub(super) const HELLO: &str = r#"{"text": "Hello, **Ann**."}"#;

/// Returns a line that calls a tool to write a file of one line.
pub(super) fn write_call(name: &str, content: &str) -> String {
    format!(r#"{{"calls": [{{"name": "write_file", "arguments": {{"path": "{name}", "content": "{content}\n"}}}}]}}"#)
}

pub(super) fn talk(place: &Place, options: &[&str]) -> Terminal {
    talk_with(place, options, 80, |command| _ = command.env("NO_COLOR", "1"))
}

pub(super) fn talk_with(place: &Place, options: &[&str], columns: u16, change: impl FnOnce(&mut Command)) -> Terminal {
    let script = format!("script:{}", place.path("script.jsonl").display());
    let mut command: Command = place.command("app", &[&["--model", &script], options].concat());
    command.env("TERM", "xterm");
    change(&mut command);
    Terminal::with_columns(command, columns)
}

/// Returns the lines of a screen without escape sequences. What is printed where lines were erased begins a line.
pub(super) fn lines(screen: &str) -> Vec<String> {
    let screen = screen.replace("\u{1b}[J", "\n");
    let parts = screen.split("\u{1b}[").enumerate().map(|(nth, part)| match nth {
        0 => part,
        _ => part.trim_start_matches(|c: char| !c.is_ascii_alphabetic()).get(1..).unwrap_or_default(),
    });
    parts.collect::<String>().lines().map(str::to_owned).collect()
}

pub(super) fn json(place: &Place, args: &[&str]) -> Vec<Value> {
    let output = place.rath("app", args);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Returns what the model would read now.
pub(super) fn request(place: &Place) -> String {
    let output = place.rath("app", &["render", "@", "head", "--to", "openai:gpt-5"]);
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn a_conversation_has_approvals_edits_by_hand_stops_forks_and_steps_back() {
    let place = Place::new(
        &[
            HELLO,
            r#"{"calls": [{"name": "write_file", "arguments": {"path": "b.txt", "content": "from the agent\n"}}]}"#,
            r#"{"text": "Written."}"#,
            r#"{"calls": [{"name": "shell", "arguments": {"command": "echo begun; sleep 1000"}}]}"#,
            r#"{"text": "I stopped, and a.txt is yours."}"#,
            r#"{"calls": [{"name": "write_file", "arguments": {"path": "c.txt", "content": "in the fork\n"}}]}"#,
            r#"{"text": "Forked work."}"#,
            r#"{"text": "Once more."}"#,
        ]
        .join("\n"),
    );
    let mut terminal = talk(&place, &[]);
    terminal.press("a new session", 1, "Good morning\r");
    terminal.press("Hello, Ann.", 1, "write the file\r");
    // An answer that is not understood changes nothing.
    terminal.press("allow it?", 1, "perhaps\r");
    terminal.press("not understood", 1, "y\r");
    rath_test_support::wait_until("the answer", || terminal.screen().contains("Written."));
    assert_eq!(place.read("app/b.txt"), "from the agent\n");
    assert!(terminal.screen().contains("+from the agent"), "the card shows the change: {}", terminal.screen());

    // The person edits a file by hand, and goes on without a question.
    place.write("app/a.txt", "by hand\n");
    terminal.press("Written.", 1, "now run it\r");
    terminal.press("allow it?", 2, "y\r");
    terminal.press("│ begun", 1, "\u{3}");
    terminal.press("stopped; say what to do instead", 1, "leave it\r");
    terminal.press("a.txt is yours", 1, "/fork try\r");
    terminal.press("now in the fork", 1, "go on there\r");
    terminal.press("allow it?", 3, "s\r");
    terminal.press("Forked work.", 1, "/rewind\r");
    terminal.press("5  go on there", 1, "/rewind 5\r");
    // What was taken back is typed again.
    terminal.press("back to before message 5", 1, " differently\r");
    terminal.press("Once more.", 1, "/quit\r");
    let (screen, status) = terminal.finish();
    assert!(status.success(), "{screen}");
    assert!(screen.contains("saved as "), "{screen}");
    assert!(screen.contains("+in the fork"), "the card of a fork shows the change: {screen}");

    assert!(!place.path("app/c.txt").exists(), "the fork has files of its own");
    assert_eq!(place.read("app/a.txt"), "by hand\n");
    let read = request(&place);
    let told = "changed since your last turn, not by you: a.txt changed";
    assert_eq!(read.matches(told).count(), 1, "the model is told in one line: {read}");
    assert!(read.contains("go on there differently") && !read.contains("Forked work."), "{read}");
    let steps = json(&place, &["log", "@", "--json"]);
    let kinds = |kind: &str| steps.iter().filter(|step| step["chunk"]["kind"] == kind).count();
    assert_eq!(kinds("user"), 6, "{steps:#?}");
    assert!(kinds("observed") >= 1 && kinds("compressed") == 1 && kinds("restored") == 1, "{steps:#?}");
    let verify = place.rath("app", &["verify"]);
    assert!(verify.status.success(), "{}", String::from_utf8_lossy(&verify.stderr));
}

#[test]
fn words_that_are_typed_while_the_agent_works_wait_for_their_turn() {
    let slow = r#"{"calls": [{"name": "shell", "arguments": {"command": "echo begun; until [ -e go ]; do sleep 0.01; done"}}]}"#;
    let place = Place::new(&[slow, r#"{"text": "One."}"#, r#"{"text": "Two."}"#, HELLO].join("\n"));
    let mut terminal = talk(&place, &["--mode", "workspace"]);
    terminal.press("a new session", 1, "first\r");
    terminal.press("│ begun", 1, "second\r");
    terminal.press("next: second", 1, "a draft");
    rath_test_support::wait_until("the draft", || terminal.screen().contains("> a draft"));
    place.write("app/go", "");
    terminal.press("Two.", 1, "\r");
    terminal.press("Hello, Ann.", 1, "/quit\r");
    let (screen, status) = terminal.finish();
    assert!(status.success(), "{screen}");
    let said: Vec<_> = json(&place, &["log", "@", "--json"])
        .iter()
        .filter_map(|step| Some(step["chunk"]["text"].as_str().filter(|_| step["chunk"]["kind"] == "user")?.to_owned()))
        .collect();
    assert_eq!(said, ["a draft", "second", "first"]);
}

#[test]
fn a_terminal_that_is_gone_ends_the_conversation_and_keeps_the_session() {
    let slow = r#"{"calls": [{"name": "shell", "arguments": {"command": "echo begun; sleep 1000"}}]}"#;
    let place = Place::new(slow);
    let mut terminal = talk(&place, &["--mode", "workspace"]);
    terminal.press("a new session", 1, "first\r");
    terminal.press("│ begun", 1, "");
    terminal.hang_up();
    let steps = json(&place, &["log", "@", "--json"]);
    assert!(steps.iter().any(|step| step["chunk"]["kind"] == "tool_result"), "the call is closed: {steps:#?}");
    assert!(place.rath("app", &["verify"]).status.success());
}

#[test]
fn a_conversation_goes_on_where_it_was_left_and_begins_anew_when_asked() {
    let place = Place::new(HELLO);
    let mut terminal = talk_with(&place, &[], 200, |command| _ = command.env("NO_COLOR", "1"));
    terminal.press("a new session", 1, "Good morning\r");
    // The last row has the directory once the agent is done.
    terminal.press(" tokens · ", 1, "\u{3}");
    terminal.press("Ctrl-C again leaves", 1, "\u{3}");
    let (first, _) = terminal.finish();
    let id = first.rsplit_once("saved as ").expect("an id").1[..8].to_owned();

    // Another process begins its script anew.
    place.write("script.jsonl", r#"{"text": "Still here."}"#);
    let mut terminal = talk(&place, &["-c"]);
    terminal.press(&format!("session {id}"), 1, "are you there?\r");
    terminal.press("Still here.", 1, "/quit\r");
    let (second, _) = terminal.finish();
    assert!(second.contains("> Good morning") && second.contains("Hello, Ann."), "the end is shown: {second}");

    // A session in which nothing was said is not kept.
    let mut terminal = talk(&place, &["--new"]);
    terminal.press("a new session", 1, "\u{4}");
    let (third, _) = terminal.finish();
    assert!(third.contains("nothing was saved"), "{third}");
    assert_eq!(json(&place, &["ls", "--json"]).len(), 1);
}

#[test]
fn wrong_commands_and_places_are_said_in_two_lines() {
    let place = Place::new(HELLO);
    let mut terminal = talk(&place, &[]);
    terminal.press("a new session", 1, "/nothing\r");
    terminal.press("there is no command /nothing", 1, "/check\r");
    terminal.press("/check wants COMMAND", 1, "/diff\r");
    terminal.press("nothing was said yet", 1, "/open 0123abcd\r");
    terminal.press("hint: `rath ls --all` lists the sessions", 1, "/help\r");
    terminal.press("/compact", 1, "/quit\r");
    terminal.finish();

    let output = place.rath("app", &["--model", "script:none"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("a conversation needs a terminal") && error.contains("rath run"), "{error}");
}

#[test]
fn every_command_of_a_conversation_does_what_its_line_in_the_help_says() {
    let script =
        [&*write_call("b.txt", "one"), r#"{"text": "First."}"#, &*write_call("c.txt", "two"), r#"{"text": "Second."}"#];
    let place = Place::new(&script.join("\n"));
    let mut terminal = talk(&place, &["--mode", "workspace"]);
    terminal.press("a new session", 1, "write b\r");
    terminal.press("First.", 1, "write c\r");
    terminal.press("Second.", 1, "/status\r");
    // The conversation itself is not taken for another process that writes the session.
    terminal.press("nothing changed since the last turn", 1, "/log\r");
    terminal.press("1 file changed]", 2, "/cost\r");
    terminal.press("total", 1, "/diff\r");
    terminal.press("+two", 2, "/check grep -q two c.txt\r");
    terminal.press("passed", 1, "/undo\r");
    terminal.press("-c.txt", 1, "/undo\r");
    terminal.press("-b.txt", 1, "/undo\r");
    terminal.press("nothing to undo", 1, "/approve\r");
    assert!(!place.path("app/b.txt").exists() && !place.path("app/c.txt").exists());
    place.write("other.jsonl", HELLO);
    // The model is opened anew for a summary, and a script begins anew.
    place.write("script.jsonl", r#"{"text": "Files were written."}"#);
    terminal.press("nothing waits for you", 1, "/compact\r");
    terminal.press("Files were written.", 1, "/model\r");
    terminal.press("script.jsonl", 1, "/model script:../other.jsonl\r");
    terminal.press("the next answer is from script:../other.jsonl", 1, "/new\r");
    terminal.press("is kept: /open ", 1, "/sessions\r");
    terminal.press("write b", 2, "/open @\r");
    terminal.press("/new begins another one", 1, "/quit\r");
    let (screen, status) = terminal.finish();
    assert!(status.success(), "{screen}");
    assert!(!screen.contains("running in process"), "{screen}");
    assert!(place.rath("app", &["verify"]).status.success());
}

#[test]
fn files_that_a_person_changed_are_changed_back_only_after_a_question() {
    let place = Place::new(&[&*write_call("b.txt", "from the agent"), r#"{"text": "Written."}"#].join("\n"));
    let mut terminal = talk_with(&place, &["--mode", "workspace"], 120, |command| _ = command.env("NO_COLOR", "1"));
    terminal.press("a new session", 1, "write it\r");
    rath_test_support::wait_until("the answer", || terminal.screen().contains("Written."));
    place.write("app/mine.txt", "mine\n");
    place.write("app/a.txt", "one\nby hand\n");
    terminal.press("Written.", 1, "/undo\r");
    terminal.press("outside the agent: a.txt changed, mine.txt added", 1, "n\r");
    terminal.press("no file was changed", 1, "/rewind 1\r");
    terminal.press("outside the agent: a.txt changed, mine.txt added", 2, "n\r");
    rath_test_support::wait_until("the end", || terminal.screen().matches("no file was changed").count() == 2);
    assert!(place.path("app/b.txt").exists() && place.path("app/mine.txt").exists());
    terminal.press("no file was changed", 2, "/undo\r");
    terminal.press("also changes back", 3, "y\r");
    terminal.press("brings them back", 1, "/quit\r");
    let (screen, _) = terminal.finish();
    assert_eq!(place.read("app/a.txt"), "one\n", "{screen}");
    assert!(!place.path("app/b.txt").exists() && !place.path("app/mine.txt").exists(), "{screen}");

    let (_, command) = screen.split_once("`rath restore ").expect("a command");
    let step = command.split('`').next().expect("a step");
    assert!(place.rath("app", &["restore", step]).status.success(), "{step}");
    assert_eq!(place.read("app/a.txt"), "one\nby hand\n");
    assert!(place.path("app/b.txt").exists() && place.path("app/mine.txt").exists());
}

#[test]
fn every_undo_takes_back_an_older_turn_until_there_is_none() {
    let read = r#"{"calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}]}"#;
    let script = [
        &*write_call("b.txt", "one"),
        r#"{"text": "First."}"#,
        read,
        r#"{"text": "Second."}"#,
        &*write_call("a.txt", "two"),
        r#"{"text": "Third."}"#,
    ];
    let place = Place::new(&script.join("\n"));
    let mut terminal = talk(&place, &["--mode", "workspace"]);
    terminal.press("a new session", 1, "write\r");
    terminal.press("First.", 1, "read\r");
    terminal.press("Second.", 1, "/undo\r");
    terminal.press("-b.txt", 1, "/undo\r");
    terminal.press("there is nothing to undo", 1, "write again\r");
    terminal.press("Third.", 1, "/undo\r");
    terminal.press("~a.txt", 1, "/undo\r");
    terminal.press("there is nothing to undo", 2, "/quit\r");
    let (screen, _) = terminal.finish();
    assert!(!place.path("app/b.txt").exists(), "{screen}");
    assert_eq!(place.read("app/a.txt"), "one\n", "{screen}");
}

#[test]
fn a_pager_has_the_terminal_for_itself() {
    let place = Place::new(HELLO);
    let pager = "stty -a <&1; cat; echo the end of the pager";
    let mut terminal = talk_with(&place, &[], 80, |command| {
        command.env("RATH_PAGER", pager).env("NO_COLOR", "1");
    });
    terminal.press("a new session", 1, "Good morning\r");
    terminal.press("Hello, Ann.", 1, "/log\r");
    terminal.press("the end of the pager", 1, "/quit\r");
    let (screen, _) = terminal.finish();
    let shown = lines(&screen).join("\n");
    assert!(shown.contains(" icanon") && !shown.contains("-icanon"), "keys are the pager's: {shown}");
    assert!(shown.contains("Good morning → Hello"), "the log is shown: {shown}");
    let (before, _) = screen.split_once("speed ").expect("the settings");
    let area = before.rsplit("> /log").next().expect("the end");
    assert!(area.contains("\u{1b}[?2004l"), "the area is left: {area:?}");
}

#[test]
fn answers_are_shown_in_their_styles() {
    let text = r#"{"text": "*slanted* **strong** ~~struck~~ `code` ***both***\n\n# Title"}"#;
    let place = Place::new(text);
    let mut terminal = talk_with(&place, &[], 200, |_| {});
    terminal.press("a new session", 1, "Good morning\r");
    terminal.press("Title", 1, "");
    terminal.press(" tokens · ", 1, "\u{4}");
    let (screen, _) = terminal.finish();
    assert!(screen.contains("\u{1b}[3mslanted") && screen.contains("\u{1b}[9mstruck"), "{screen:?}");
    assert!(!screen.contains("\\u{1b}"), "{screen}");
}

#[test]
fn a_fork_is_stored_at_once_and_its_files_are_those_that_are_attached() {
    let place = Place::new(&[&*write_call("b.txt", "from the agent"), r#"{"text": "Written."}"#, HELLO].join("\n"));
    let mut terminal = talk(&place, &["--mode", "workspace"]);
    terminal.press("a new session", 1, "write it\r");
    terminal.press("Written.", 1, "/fork try\r");
    terminal.press("now in the fork", 1, "/status\r");
    terminal.press("nothing changed since the last turn", 1, "/log\r");
    terminal.press("1 file changed]", 1, "/cost\r");
    terminal.press("total", 1, "/diff\r");
    terminal.press("+from the agent", 2, "");
    place.write("app/b.txt", "in the original\n");
    terminal.press("+from the agent", 2, "look at @b.txt\r");
    terminal.press("Hello, Ann.", 1, "/quit\r");
    let (screen, status) = terminal.finish();
    assert!(status.success() && !screen.contains("no session"), "{screen}");
    let read = request(&place);
    assert!(read.contains("<file path=\\\"b.txt\\\">\\nfrom the agent"), "{read}");
    assert!(place.rath("app", &["verify"]).status.success());
}

#[test]
fn a_conversation_that_cannot_begin_creates_nothing() {
    for options in [&[][..], &["-c"], &["--session", "0123abcd"], &["--model", "nosuch:model"]] {
        let place = Place::new(HELLO);
        std::fs::create_dir(place.path("empty")).expect("a directory");
        let mut command = place.command("empty", options);
        command.env("TERM", "xterm").env("NO_COLOR", "1");
        let (screen, status) = Terminal::with_columns(command, 80).finish();
        assert!(!status.success() && screen.contains("error: "), "{screen}");
        let left: Vec<_> = std::fs::read_dir(place.path("empty")).expect("a directory").collect();
        assert!(left.is_empty(), "{options:?} left {left:?}");
    }
}

#[test]
fn nothing_is_wider_than_the_terminal() {
    let long =
        r#"{"text": "A summary of what was said and done so far, which is much longer than a line of the terminal."}"#;
    let script = [&*write_call("b.txt", "one"), r#"{"text": "First."}"#, r#"{"text": "Second."}"#];
    let place = Place::new(&script.join("\n"));
    for (options, columns) in [(&[][..], 80), (&["-c"], 40)] {
        let mut terminal = talk_with(&place, options, columns, |command| _ = command.env("NO_COLOR", "1"));
        if options.is_empty() {
            terminal.press("a new session", 1, "write it\r");
            terminal.press("allow it?", 1, "perhaps\r");
            terminal.press("not understood", 1, "y\r");
            terminal.press("First.", 1, "and more\r");
            rath_test_support::wait_until("the answer", || terminal.screen().contains("Second."));
            place.write("script.jsonl", long);
            terminal.press("Second.", 1, "/compact\r");
            terminal.press("terminal.", 1, "/fork\r");
            terminal.press("now in the fork", 1, "");
        }
        terminal.press("/help", 1, "/help\r");
        terminal.press("/quit", 1, "/quit\r");
        let (screen, _) = terminal.finish();
        let mut shown = lines(&screen);
        if columns < 80 {
            let help = shown.iter().position(|line| line == "> /help").expect("the help");
            shown = shown[help..].iter().take_while(|line| !line.starts_with("saved as ")).cloned().collect();
        }
        for line in shown {
            assert!(line.chars().count() <= usize::from(columns), "{line}\n{screen}");
        }
    }
}

#[test]
fn a_tab_in_an_answer_is_shown_as_blanks() {
    let place = Place::new(r#"{"text": "one\ttwo"}"#);
    let mut terminal = talk(&place, &[]);
    terminal.press("a new session", 1, "Good morning\r");
    terminal.press("two", 1, "/diff zzz\r");
    // A hint in a conversation names what can be typed there.
    terminal.press("hint: /log lists the steps", 1, "/quit\r");
    let (screen, _) = terminal.finish();
    assert!(screen.contains("one    two"), "{screen}");
}

#[test]
fn a_session_is_named_by_its_number_its_title_or_a_part_of_its_id_and_from_below() {
    let place = Place::new(HELLO);
    let run = |words: &str| {
        let script = format!("script:{}", place.path("script.jsonl").display());
        let output = place.rath("app", &["run", words, "--model", &script]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    std::fs::create_dir(place.path("app/.git")).expect("a directory");
    run("older");
    run("newer");
    let titles = |directory: &str, name: &str| {
        let output = place.rath(directory, &["log", name, "--json"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if text.contains(r#""text":"newer""#) {
            "newer"
        } else if text.contains(r#""text":"older""#) {
            "older"
        } else {
            "none"
        }
    };
    let id = json(&place, &["ls", "--json"])[0]["session"].as_str().expect("an id").to_owned();
    let short = &id[id.len() - 8..];
    for (name, expected) in [
        ("@", "newer"),
        ("@-1", "older"),
        ("@-2", "none"),
        ("older", "older"),
        (short, "older"),
        (&short[..5], "older"),
    ] {
        assert_eq!(titles("app", name), expected, "{name}");
        assert_eq!(titles("app/below", name), expected, "{name}, from below");
    }
    // Not beyond the repository, and no store of a directory beside it.
    assert_eq!(titles("home", "@"), "none");
    let output = place.rath("app", &["show", "head"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("Hello"), "the newest session, without a name");
}
