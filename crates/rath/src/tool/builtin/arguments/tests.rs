use serde_json::json;

use super::*;
use crate::tool::builtin;

fn forms(tool: &str) -> AcceptedForms {
    let spec = builtin::all().specs().find(|spec| spec.name == tool).expect("a built-in tool").clone();
    AcceptedForms::new(&spec)
}

#[test]
fn every_name_of_an_earlier_version_is_accepted() {
    // A row is never removed: sessions with these calls are on record.
    let rows = [
        ("read_file", "from_line", json!(2), "offset"),
        ("read_file", "lines", json!(3), "limit"),
        ("write_file", "text", json!("x"), "content"),
        ("edit_file", "old", json!("x"), "old_string"),
        ("edit_file", "new", json!("x"), "new_string"),
        ("edit_file", "all", json!(true), "replace_all"),
    ];
    for (tool, old, value, now) in &rows {
        let read = forms(tool).read(json!({ *old: value })).expect("it is understood");
        assert_eq!(read.values, json!({ *now: value }), "{tool} {old}");
    }
    let released = RELEASED.iter().flat_map(|(tool, aliases)| aliases.iter().map(move |alias| (*tool, alias.name)));
    assert!(released.eq(rows.iter().map(|(tool, old, ..)| (*tool, *old))), "each name has a row");
}

#[test]
fn every_alias_means_one_parameter_of_its_tool() {
    let all = builtin::all();
    let known = |name: &str| all.names().any(|known| known == name);
    assert!(RELEASED.iter().map(|(tool, _)| tool).chain(HABITUAL.iter().map(|(tool, _)| tool)).all(|tool| known(tool)));
    for tool in all.names() {
        let forms = forms(tool);
        for (nth, alias) in forms.aliases.iter().enumerate() {
            assert!(!forms.parameters.contains_key(alias.name), "{tool}: `{}` is a parameter", alias.name);
            let is_new = forms.aliases[..nth].iter().all(|earlier| earlier.name != alias.name);
            assert!(is_new, "{tool}: `{}` is there twice", alias.name);
            match alias.meaning {
                AliasMeaning::Parameter(name) | AliasMeaning::Milliseconds(name) => {
                    assert!(forms.parameters.contains_key(name), "{tool} has no `{name}`");
                }
                AliasMeaning::Remark => {}
            }
        }
    }
}

#[test]
fn what_can_mean_one_thing_only_is_understood() {
    for (tool, given, expected) in [
        ("read_file", json!({"file_path": "a", "offset": "3"}), json!({"path": "a", "offset": 3})),
        ("read_file", json!({"path": "a", "file_path": "a", "limit": null}), json!({"path": "a"})),
        ("read_file", json!(r#"{"path": "a"}"#), json!({"path": "a"})),
        ("edit_file", json!({"replace_all": "true"}), json!({"replace_all": true})),
        ("shell", json!({"cmd": "ls", "timeout_ms": 1500}), json!({"command": "ls", "timeout": 2})),
        (
            "shell",
            json!({"command": ["bash", "-lc", "echo 'a b'"]}),
            json!({"command": r"bash -lc 'echo '\''a b'\'''"}),
        ),
        ("shell", json!({"command": "ls", "description": "Lists."}), json!({"command": "ls"})),
        ("shell", json!({"command": "ls", "hosts": r#"["a.org"]"#}), json!({"command": "ls", "hosts": ["a.org"]})),
        ("search_files", json!({"regex": "x", "include": "*.rs"}), json!({"pattern": "x", "glob": "*.rs"})),
        ("commit", json!({"message": "m", "files": r#"["a"]"#}), json!({"message": "m", "paths": ["a"]})),
        // What can mean several things, or nothing, stays as it is: the schema refuses it.
        ("read_file", json!({"path": "a", "offset": "three"}), json!({"path": "a", "offset": "three"})),
        ("read_file", json!({"path": null}), json!({"path": null})),
        ("shell", json!({"command": "ls", "hosts": "a.org"}), json!({"command": "ls", "hosts": "a.org"})),
        ("shell", json!({"command": []}), json!({"command": []})),
        ("write_file", json!({"path": "a", "content": ["b"]}), json!({"path": "a", "content": ["b"]})),
        ("write_file", json!({"path": "a", "unknown": 1}), json!({"path": "a", "unknown": 1})),
        ("write_file", json!(["a"]), json!(["a"])),
    ] {
        assert_eq!(forms(tool).read(given).expect("no contradiction").values, expected, "{tool}");
    }
}

#[test]
fn two_values_for_one_parameter_are_refused() {
    for (given, first) in
        [(json!({"path": "a", "file_path": "b"}), "path"), (json!({"file": "a", "file_path": "b"}), "file")]
    {
        let expected = format!("`{first}` and `file_path` mean the same, and their values differ; give `path` only");
        assert_eq!(forms("read_file").read(given).expect_err("a contradiction"), expected);
    }
}

#[test]
fn a_tool_is_an_update_if_calls_in_the_form_of_before_are_accepted() {
    let now = |name: &str| builtin::all().specs().find(|spec| spec.name == name).expect("a built-in tool").clone();
    let schema = |names: &[&str]| {
        let properties: Map<_, _> = names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
        json!({"type": "object", "properties": properties})
    };
    let told = |name: &str, names: &[&str]| ToolSpec::new(name, "As it was.", schema(names));
    for (name, names, expected) in [
        ("read_file", &["path", "from_line", "lines"][..], true),
        ("write_file", &["path", "text"], true),
        ("edit_file", &["path", "old", "new", "all"], true),
        // A tool of another program that has the name of a built-in one.
        ("edit_file", &["path", "line", "text"], false),
        ("write_file", &["path"], false),
    ] {
        assert_eq!(is_update(&told(name, names), &now(name)), expected, "{name} {names:?}");
    }
    let other = ToolSpec::new("shell", "A tool of another program.", schema(&["command"]));
    assert!(!is_update(&told("shell", &["command"]), &other));
    assert!(is_added_by_update(&now("apply_patch"), &[told("edit_file", &["path", "old", "new", "all"])]));
    assert!(!is_added_by_update(&now("apply_patch"), &[told("read_file", &["path"])]));
    assert!(!is_added_by_update(&now("shell"), &[told("edit_file", &["path", "old", "new", "all"])]));
}
