//! `--output-schema`: an answer of JSON that fits, alone on stdout, or a clear error.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::permissions::Place;

const SCHEMA: &str = r#"{"type": "object", "properties": {"rivers": {"type": "array", "items": {"type": "string"}}}, "required": ["rivers"], "additionalProperties": false}"#;
const FITS: &str = r#"{"text": "{\"rivers\": [\"Seine\"]}"}"#;
const TALKS: &str = r#"{"text": "Gladly: the Seine."}"#;
const FENCED: &str = r#"{"text": "```json\n{\"rivers\": [\"Seine\"]}\n```"}"#;
const WRONG: &str = r#"{"text": "{\"rivers\": \"Seine\"}"}"#;

/// Runs a script whose answers have to fit a schema.
fn run(answers: &[&str], schema: &str, options: &[&str]) -> (Place, String, String, i32) {
    let place = Place::new(&answers.join("\n"));
    place.write("app/schema.json", schema);
    let output = place.run_in("app", &[&["--sandbox", "none", "--output-schema", "schema.json"], options].concat());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let (out, err, code) = (text(&output.stdout), text(&output.stderr), output.status.code().expect("an exit code"));
    (place, out, err, code)
}

#[test]
fn stdout_has_the_json_alone() {
    for answers in [&[FITS][..], &[FENCED], &[TALKS, FITS], &[WRONG, TALKS, FITS]] {
        let (_, out, err, code) = run(answers, SCHEMA, &[]);
        assert_eq!((out.as_str(), code), ("{\"rivers\": [\"Seine\"]}\n", 0), "{answers:?}: {err}");
        let (_, out, err, code) = run(answers, SCHEMA, &["--json"]);
        let last: Value = serde_json::from_str(out.lines().last().expect("an event")).expect("JSON");
        assert_eq!(
            (&last["event"], &last["answer"], code),
            (&json!("done"), &json!({"rivers": ["Seine"]}), 0),
            "{err}"
        );
    }
}

#[test]
fn an_answer_that_never_fits_is_an_error() {
    for answers in [&[TALKS, TALKS, TALKS][..], &[WRONG, WRONG, WRONG]] {
        let (_, out, err, code) = run(answers, SCHEMA, &[]);
        assert_eq!((out.as_str(), code), ("", 1), "{err}");
        assert!(err.contains("error: the answer does not fit after 3 attempts: "), "{err}");
        let (_, out, _, code) = run(answers, SCHEMA, &["--json"]);
        let last: Value = serde_json::from_str(out.lines().last().expect("an event")).expect("JSON");
        assert_eq!((&last["event"], last.get("answer"), code), (&json!("error"), None, 1));
    }
}

/// A schema is for one command: a resumed session answers as before, and a schema that is given again is there once.
#[test]
fn the_schema_is_not_part_of_the_prompt_of_the_session() {
    let (place, ..) = run(&[FITS], SCHEMA, &[]);
    let resume = |answer: &str, options: &[&str]| {
        place.write("script.jsonl", answer);
        let script = format!("script:{}", place.path("script.jsonl").display());
        let output = place.rath("app", &[&["resume", "@", "And now?", "--model", &script], options].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let request = place.rath("app", &["render", "@", "--to", "openai:gpt-5"]);
        let request = String::from_utf8(request.stdout).expect("UTF-8").matches("fits this JSON schema").count();
        (String::from_utf8(output.stdout).expect("UTF-8"), request)
    };
    assert_eq!(resume(FITS, &["--output-schema", "schema.json"]), ("{\"rivers\": [\"Seine\"]}\n".to_owned(), 1));
    assert_eq!(resume(TALKS, &[]), ("Gladly: the Seine.\n".to_owned(), 0));
}

#[test]
fn a_schema_that_cannot_be_used_is_refused_before_the_model_is_asked() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let rows: [(&str, Expect); 5] = [
        (
            "",
            expect![[r#"
            error: cannot use the schema schema.json: it is not JSON: EOF while parsing a value at line 1 column 0
            hint: a file such as {"type": "object", "required": ["name"]} is one
        "#]],
        ),
        (
            "7",
            expect![[r#"
            error: cannot use the schema schema.json: its schema is not one: the schema: wanted a schema, found 7
            hint: a file such as {"type": "object", "required": ["name"]} is one
        "#]],
        ),
        (
            r#"{"type": "thing"}"#,
            expect![[r#"
            error: cannot use the schema schema.json: its schema is not one: `/type`: wanted null, boolean, integer, number, string, array or object, found a string: "thing"
            hint: a file such as {"type": "object", "required": ["name"]} is one
        "#]],
        ),
        (
            &format!("{{\"description\": \"{}\"}}", "x".repeat(70_000)),
            expect![[r#"
            error: cannot use the schema schema.json: it has more than 64 KiB
            hint: a file such as {"type": "object", "required": ["name"]} is one
        "#]],
        ),
        (
            &deep[..60_000],
            expect![[r#"
            error: cannot use the schema schema.json: it is not JSON: recursion limit exceeded at line 1 column 128
            hint: a file such as {"type": "object", "required": ["name"]} is one
        "#]],
        ),
    ];
    for (schema, expected) in rows {
        let (place, out, err, code) = run(&[FITS], schema, &[]);
        assert_eq!((out.as_str(), code), ("", 2), "{err}");
        expected.assert_eq(&err);
        assert!(!place.path("app/.rath").exists(), "nothing is stored");
    }
    let place = Place::new(FITS);
    let output = place.run_in("app", &["--output-schema", "none.json"]);
    assert_eq!(output.status.code(), Some(2));
    let output = place.run_in("app", &["--output-schema", "/dev/zero"]);
    assert_eq!(output.status.code(), Some(2));
}
