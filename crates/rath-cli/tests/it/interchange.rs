//! Sessions in the files of other programs, from the command line.

use expect_test::expect;

use super::{check, folder, printed, rath};

/// A trajectory of another program, with the cost of one of its two answers, and of both together.
const TRAJECTORY: &str = r#"{"schema_version": "ATIF-v1.6", "session_id": "s", "agent": {"name": "other", "version": "1"}, "steps": [
    {"step_id": 1, "source": "user", "message": "What time is it?"},
    {"step_id": 2, "source": "agent", "model_name": "house/m", "message": "Let me see.", "reasoning_effort": "high",
     "metrics": {"prompt_tokens": 10, "completion_tokens": 2, "cost_usd": 0.25}},
    {"step_id": 3, "source": "agent", "model_name": "house/m", "message": "It is noon.",
     "metrics": {"prompt_tokens": 12, "completion_tokens": 3}}],
  "final_metrics": {"total_prompt_tokens": 22, "total_completion_tokens": 5, "total_cost_usd": 0.75}}"#;

#[test]
fn the_notes_of_an_import_are_in_its_json_with_their_codes() {
    let folder = rath_test_support::temp_dir();
    std::fs::write(folder.path().join("t.json"), TRAJECTORY).expect("written");
    let imported: serde_json::Value =
        serde_json::from_str(&printed(folder.path(), &["import", "t.json", "--json"])).expect("JSON");
    expect![[r#"
        [
          {
            "code": "changed",
            "note": "the trajectory, `final_metrics`: counts $0.50 more than the steps: this cost is assigned to the last answer"
          },
          {
            "code": "left_out",
            "note": "1 level of reasoning effort left out"
          }
        ]"#]]
    .assert_eq(&serde_json::to_string_pretty(&imported["notes"]).expect("JSON"));
}

#[test]
fn a_cost_that_a_file_states_counts_and_is_written_again() {
    let folder = rath_test_support::temp_dir();
    std::fs::write(folder.path().join("t.json"), TRAJECTORY).expect("written");
    let id = printed(folder.path(), &["import", "t.json"]).trim().to_owned();
    check(
        folder.path(),
        &["cost", &id],
        expect![[r#"
            house:m  22 in, 5 out  $0.75
            total                  $0.75
            exit 0
        "#]],
    );
    let again: serde_json::Value =
        serde_json::from_str(&printed(folder.path(), &["export", &id, "--as", "atif"])).expect("JSON");
    let costs = [1, 2].map(|step: usize| again["steps"][step]["metrics"]["cost_usd"].as_f64());
    assert_eq!(costs, [Some(0.25), Some(0.5)]);
    assert_eq!(again["final_metrics"]["total_cost_usd"].as_f64(), Some(0.75));
}

#[test]
fn json_of_a_step_names_its_lost_parts_with_codes() {
    let folder = folder();
    let path = folder.path().join("s.rath");
    let damaged = std::fs::read_to_string(&path).expect("read").replace("The Seine.", "The Marne.");
    std::fs::write(&path, damaged).expect("written");
    let log = printed(folder.path(), &["log", "s.rath", "--json"]);
    let steps = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let lost: Vec<_> = steps.filter(|step| !step["faults"].is_null()).collect();
    assert!(!lost.is_empty());
    for step in lost {
        let id = step["id"].as_str().expect("an id");
        let shown: serde_json::Value =
            serde_json::from_str(&printed(folder.path(), &["show", "s.rath", id, "--json"])).expect("JSON");
        assert_eq!(shown["faults"], step["faults"]);
        assert_eq!(step["faults"], serde_json::json!([{"code": "missing_parent", "id": step["parents"][0]}]));
    }
    let verified: serde_json::Value =
        serde_json::from_str(&printed(folder.path(), &["verify", "s.rath", "--json"])).expect("JSON");
    assert_eq!(verified["damage"][0]["code"], "seal_mismatch");
}

#[test]
fn a_trajectory_keeps_the_branches_of_a_session() {
    let folder = folder();
    let log = printed(folder.path(), &["log", "-v", "s.rath"]);
    assert!(rath(folder.path(), &["export", "s.rath", "--as", "atif", "-o", "t.json"]).status.success());
    let id = printed(folder.path(), &["import", "t.json"]).trim().to_owned();
    assert_eq!(printed(folder.path(), &["log", "-v", &id]), log);
}

#[test]
fn a_directory_of_sessions_is_exported_and_imported_with_its_lineage() {
    let folder = folder();
    check(
        folder.path(),
        &["export", "s.rath", "--as", "openrath", "-o", "sessions/"],
        expect![[r#"
        ! 4 sessions written to sessions/
        exit 0
    "#]],
    );
    let parents = |text: &str| {
        let rows = text.lines().map(|row| serde_json::from_str::<serde_json::Value>(row).expect("JSON"));
        rows.map(|row| (row["id"].to_string(), row["parent_session_ids"].to_string())).collect::<Vec<_>>()
    };
    let graph = parents(&printed(folder.path(), &["export", "s.rath"]));
    let files = std::fs::read_dir(folder.path().join("sessions")).expect("a directory").count();
    assert_eq!(files, graph.len());
    std::fs::write(folder.path().join("sessions/notes.txt"), "not a session").expect("written");
    let imported: serde_json::Value =
        serde_json::from_str(&printed(folder.path(), &["import", "sessions", "--json"])).expect("JSON");
    assert_eq!(imported["sessions"].as_array().map(Vec::len), Some(files));
    let newest = graph.last().expect("a session").0.trim_matches('"').to_owned();
    let mut again = parents(&printed(folder.path(), &["export", &newest]));
    again.sort();
    let mut graph = graph;
    graph.sort();
    assert_eq!(again, graph);
    // The same directory again changes nothing.
    let again: serde_json::Value =
        serde_json::from_str(&printed(folder.path(), &["import", "sessions", "--json"])).expect("JSON");
    assert_eq!(again["new"], false);
    check(
        folder.path(),
        &["import", "."],
        expect![[r#"
        ! error: there is no session of the Python OpenRath in .
        ! hint: import reads what `rath export --as bundle`, openrath or atif writes
        exit 1
    "#]],
    );
}
