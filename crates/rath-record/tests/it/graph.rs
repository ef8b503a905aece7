//! The graph of branches as data.

use expect_test::{Expect, expect};
use rath_record::graph::{self, Ids};

use crate::support::scenario;

const STORY: &str = "user hi; assistant hello; fork poet; user verse; on main; fork b2; user prose; on poet; merge b2";

fn check(export: &str, expected: Expect) {
    let report = graph::verify(export.as_bytes());
    let problems: Vec<_> = report.problems.iter().map(ToString::to_string).collect();
    expected.assert_eq(&problems.join("\n"));
}

fn export(story: &str, ids: Ids) -> String {
    graph::export(&scenario(story).current_record().lineage(), ids)
}

#[test]
fn every_branch_is_a_line_with_the_member_names_of_openrath() {
    expect![[r#"
        {"id":"bc8e3744-3b8e-86cd-992f-3b04085eb2a2","parent_session_ids":[],"lineage_operator":"Session.user","lineage_kind":"leaf_user","lineage_extras":[],"chunk_count":2,"cumulative_usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11},"head":"f14b3364ea4f5edab34a85bec3960ecf3ebded3f3824af22a5e08bf2520b98b5","seal":"33c388e7f0118e6b715f03e5f4f119c9"}
        {"id":"b2b7198c-cfe9-8d78-a2dc-183744aa47ac","parent_session_ids":["bc8e3744-3b8e-86cd-992f-3b04085eb2a2"],"lineage_operator":"Session.fork","lineage_kind":"op_fork","lineage_extras":[["at","f14b3364ea4f5edab34a85bec3960ecf3ebded3f3824af22a5e08bf2520b98b5"],["name","poet"]],"chunk_count":3,"cumulative_usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11},"head":"401361b7d6766f4de1911cc875398667a20c4c66a57c243f4cad846ca5831e5f","seal":"baba38ad3dcdc4cba363d0cb4da08095"}
        {"id":"52d3a36c-1bac-8471-80bd-b64b62628b6e","parent_session_ids":["bc8e3744-3b8e-86cd-992f-3b04085eb2a2"],"lineage_operator":"Session.fork","lineage_kind":"op_fork","lineage_extras":[["at","f14b3364ea4f5edab34a85bec3960ecf3ebded3f3824af22a5e08bf2520b98b5"]],"chunk_count":3,"cumulative_usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11},"head":"41f224cd7db46a92ff8901d22655281bd16a0457de397fd71dbcbbeea4201d4b","seal":"e08e7e7aeb87199672b7809f73fdf328"}
        {"id":"ca441cbe-4c72-81f5-bcea-e90df9b06e84","parent_session_ids":["b2b7198c-cfe9-8d78-a2dc-183744aa47ac","52d3a36c-1bac-8471-80bd-b64b62628b6e"],"lineage_operator":"Session.merge","lineage_kind":"op_merge","lineage_extras":[["strategy","ancestor"]],"chunk_count":4,"cumulative_usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11},"head":"ca441cbe4c72f1f53ceae90df9b06e8485a8d13aaed970392303d3b19043e007","seal":"2ca639c25bd5efed7ece9534474851c6"}
    "#]].assert_eq(&export(STORY, Ids::Canonical));
    check(&export(STORY, Ids::Canonical), expect![[""]]);
    check(&export(STORY, Ids::Original), expect![[""]]);
}

#[test]
fn any_changed_byte_of_an_export_is_reported() {
    let whole = export(STORY, Ids::Canonical);
    for at in 0..whole.len() - 1 {
        let mut damaged = whole.clone().into_bytes();
        damaged[at] ^= 1;
        let report = graph::verify(&damaged);
        let line = whole[..at].matches('\n').count() as u64 + 1;
        assert!(report.problems.iter().any(|problem| problem.line == line), "byte {at}: {report:?}");
    }
}

#[test]
fn missing_parents_and_duplicate_rows_are_reported_by_id() {
    let whole = export(STORY, Ids::Canonical);
    let lines: Vec<_> = whole.lines().collect();
    check(
        &[lines[0], lines[2], lines[3]].join("\n"),
        expect![
            "line 3, session ca441cbe-4c72-81f5-bcea-e90df9b06e84: parent b2b7198c-cfe9-8d78-a2dc-183744aa47ac is missing"
        ],
    );
    check(
        &[lines[0], lines[1], lines[1], lines[2], lines[3]].join("\n"),
        expect!["line 3, session b2b7198c-cfe9-8d78-a2dc-183744aa47ac: the session appears twice"],
    );
}

#[test]
fn cycles_are_reported_by_id_however_long() {
    let row = |id: &str, parents: &[&str]| {
        format!(r#"{{"id":"{id}","parent_session_ids":{}}}"#, serde_json::to_string(parents).expect("strings"))
    };
    let cycles = |rows: Vec<String>| {
        let report = graph::verify(rows.join("\n").as_bytes());
        let faults = report.problems.into_iter().filter_map(|problem| match problem.fault {
            graph::GraphFault::Cycle(through) => Some(through.join(" ")),
            _ => None,
        });
        faults.collect::<Vec<_>>()
    };
    assert_eq!(cycles(vec![row("a", &[]), row("b", &["a"])]), Vec::<String>::new());
    assert_eq!(cycles(vec![row("a", &["a"])]), ["a"]);
    assert_eq!(cycles(vec![row("a", &["b"]), row("b", &["a"]), row("c", &["b"])]), ["a b"]);
    assert_eq!(cycles(vec![row("x", &[]), row("a", &["x", "b"]), row("b", &["a"]), row("d", &["d"])]), ["a b", "d"]);

    let long = (0..100_000).map(|nth| row(&nth.to_string(), &[&((nth + 1) % 100_000).to_string()]));
    assert_eq!(cycles(long.collect())[0].split(' ').count(), 100_000);
}
