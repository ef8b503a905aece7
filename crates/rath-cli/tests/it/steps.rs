//! The steps that arguments name: `SESSION@STEP` and `@STEP` for all commands, and a lone step for those that show one.

use crate::permissions::Place;

const SCRIPT: &str = r#"{"calls": [{"name": "shell", "arguments": {"command": "echo two >> a.txt"}}], "text": "I add a line."}
{"text": "Done."}
"#;

/// Makes a project with a session that changed a file.
fn project() -> Place {
    let place = Place::new(SCRIPT);
    let output = place.run_in("app", &["--sandbox", "local:."]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    place
}

/// Runs a command, and returns both streams and the exit code.
fn run(place: &Place, words: &[&str]) -> (String, String, i32) {
    let output = place.rath("app", words);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (text(output.stdout), text(output.stderr), output.status.code().expect("an exit code"))
}

/// Returns the id of the session and of the step whose line in the log has a text.
fn ids(place: &Place, step: &str) -> (String, String) {
    let id = |line: &str| line.split_whitespace().find(|word| word.len() == 8).expect("an id").to_owned();
    let (log, ..) = run(place, &["log", "-v"]);
    let step = id(log.lines().find(|line| line.contains(step)).expect("a step"));
    let (list, ..) = run(place, &["ls", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(list.lines().next().expect("a session")).expect("JSON");
    let session = listed["session"].as_str().expect("an id");
    (session[session.len() - 8..].to_owned(), step)
}

/// The commands that take a step, and the exit code of each on the step of a call. `STEP` stands for a way to name the step.
const COMMANDS: [(&str, i32); 15] = [
    ("show STEP", 0),
    ("show STEP --json", 0),
    ("explain STEP", 0),
    ("render STEP --to openai:gpt-5", 0),
    ("log STEP", 0),
    ("log STEP -v", 0),
    ("cost STEP", 0),
    ("export STEP --canonical", 0),
    ("replay STEP", 0),
    ("blame a.txt STEP", 0),
    ("diff STEP", 0),
    ("diff STEP STEP", 0),
    ("bisect STEP -- grep -q one a.txt", 1),
    ("checkout STEP files", 0),
    ("fork STEP", 0),
];

/// The commands that show one step, for which a step alone is enough.
const OF_ONE_STEP: [&str; 4] = ["show STEP", "show STEP --json", "explain STEP", "render STEP --to openai:gpt-5"];

#[test]
fn all_commands_read_the_same_forms_of_a_step() {
    let mut wrong = String::new();
    for (command, code) in COMMANDS {
        let mut first = None;
        let forms = ["SESSION@HERE", "@HERE", "@@HERE", "SESSION HERE", "@ HERE", "HERE"];
        let forms = if OF_ONE_STEP.contains(&command) { &forms[..] } else { &forms[..3] };
        for form in forms {
            // A project for each: some commands make a session.
            let place = project();
            let (session, step) = ids(&place, "tool result");
            let named = form.replace("SESSION", &session).replace("HERE", &step);
            let line = command.replace("STEP", &named);
            let (out, err, found) = run(&place, &line.split(' ').collect::<Vec<_>>());
            // Ids and times differ from one project to the next.
            let shape = out.lines().count();
            let expected = *first.get_or_insert(shape);
            if found != code || shape != expected {
                wrong.push_str(&format!("$ rath {line}\n{out}{err}exit {found}, wanted {code}\n\n"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_step_is_found_by_each_of_its_names() {
    let place = project();
    let (session, step) = ids(&place, "tool result");
    let shown = |words: &[&str]| {
        let (out, err, code) = run(&place, words);
        assert_eq!(code, 0, "{words:?}: {err}");
        out.lines().next().expect("a line").to_owned()
    };
    let head = shown(&["show", "head"]);
    for words in [&["show"][..], &["show", "@"], &["show", "@head"], &["show", &session], &["show", &session, "head"]] {
        assert_eq!(shown(words), head, "{words:?}");
    }
    assert_ne!(shown(&["show", &step]), head);
    assert_eq!(shown(&["explain", &session]), shown(&["explain"]), "the newest turn");
    assert_eq!(
        run(&place, &["log", &format!("@{step}"), "-v"]).0.lines().next().map(|line| line.contains(&step)),
        Some(true)
    );
    for (words, expected) in [
        (&["show", "@head", "head"][..], "wanted one step, found `head` and `head`"),
        (&["forget", &session], "wanted a step, found the session"),
        (&["show", "nothing"], "there is no session, no file and no step of the newest session `nothing`"),
        (&["show", "@nothing"], "wanted the first digits of a step's id, a branch, or `head`, found `nothing`"),
    ] {
        let (_, err, code) = run(&place, words);
        assert!(code != 0 && err.contains(expected), "{words:?}: {err}");
    }
    // The text of a step is removed by each form too.
    for name in [format!("@{step}"), format!("{session}@{step}"), step] {
        let (_, err, code) = run(&place, &["forget", &name]);
        assert_eq!(code, 0, "{name}: {err}");
    }
}

/// Words that name no session are the prompt of the newest session.
#[test]
fn a_prompt_alone_is_for_the_newest_session() {
    let place = project();
    let script = format!("script:{}", place.path("script.jsonl").display());
    let (session, _) = ids(&place, "tool result");
    place.write("script.jsonl", "{\"text\": \"Gladly.\"}\n");
    let (out, err, code) = run(&place, &["resume", "And more, please", "--model", &script]);
    assert_eq!((out.as_str(), code), ("Gladly.\n", 0), "{err}");
    assert!(err.contains(&format!("note: using the newest session, {session}\n")), "{err}");
    let (_, err, code) = run(&place, &["resume", "Go.", "--model", &script]);
    assert!(code == 1 && err.contains("nothing to do: there is no prompt"), "{err}");
    let empty = Place::new("");
    let (_, err, code) = run(&empty, &["resume", "And more, please"]);
    assert!(code == 1 && err.contains("error: "), "{err}");
}

#[test]
fn a_session_merged_with_itself_is_that_session() {
    let place = project();
    let (session, step) = ids(&place, "tool result");
    for theirs in ["@", &session] {
        let (out, err, code) = run(&place, &["merge", "@", theirs]);
        assert_eq!((out, code), (format!("{session}\n"), 0), "{err}");
    }
    let (out, ..) = run(&place, &["merge", "@", "@", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert!(json["session"].as_str().is_some_and(|id| id.ends_with(&session)), "{out}");
    assert_eq!(run(&place, &["ls", "--all", "--json"]).0.lines().count(), 1);
    let (_, err, code) = run(&place, &["merge", "@", &format!("@{step}"), "--json"]);
    assert_eq!(code, 0, "{err}");
}
