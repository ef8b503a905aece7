//! The next action of an agent, as a table.

use rath_record::turn::{self, Next, Progress};

use crate::support::record;

fn check(story: &str, expected: &str) {
    let next = match turn::next(&record(story)) {
        Next::AskModel => "ask the model".to_owned(),
        Next::Done => "done".to_owned(),
        Next::RunTools(pending) => {
            let calls = pending.iter().map(|pending| {
                let progress = match &pending.progress {
                    Progress::New => String::new(),
                    Progress::Approved => " approved".to_owned(),
                    Progress::Paused { .. } => " paused".to_owned(),
                    Progress::Denied { reason } => format!(" denied: {reason}"),
                    Progress::Unknown => " unknown".to_owned(),
                    Progress::Superseded => " superseded".to_owned(),
                    Progress::Held => " held".to_owned(),
                    Progress::HeldUnknown => " held, unknown".to_owned(),
                    Progress::Forgotten => " forgotten".to_owned(),
                    Progress::Ambiguous => " ambiguous".to_owned(),
                    other => panic!("unknown progress: {other:?}"),
                };
                format!("{}#{}{progress}", pending.call.tool, pending.call.id)
            });
            format!("run {}", calls.collect::<Vec<_>>().join(", "))
        }
    };
    assert_eq!(next, expected, "{story}");
}

#[test]
fn the_model_answers_a_user_message() {
    check("", "done");
    check("user hi", "ask the model");
    check("user hi; assistant hello", "done");
    check("user hi; assistant hello; user and now?", "ask the model");
    check("user one; user two", "ask the model");
}

#[test]
fn instructions_alone_give_nothing_to_answer() {
    check("instructions be brief", "done");
    check("instructions be brief; user hi", "ask the model");
    check("instructions be brief; user hi; assistant hello", "done");
}

#[test]
fn a_second_agent_takes_over_a_finished_conversation() {
    check("user hi; assistant hello; instructions be harsh", "ask the model");
    check("user hi; assistant hello; instructions be harsh; assistant no", "done");
}

#[test]
fn tools_run_until_every_call_has_its_result() {
    check("user hi; calls ls#1", "run ls#1");
    check("user hi; calls ls#1 cat#2", "run ls#1, cat#2");
    check("user hi; calls ls#1 cat#2; result 2", "run ls#1");
    check("user hi; calls ls#1 cat#2; result 2; result 1", "ask the model");
    check("user hi; calls ls#1; result 1; assistant done", "done");
}

#[test]
fn a_call_that_was_started_and_not_closed_is_unknown() {
    check("user hi; calls ls#1 cat#2; started 1", "run ls#1 unknown, cat#2");
    check("user hi; calls ls#1 cat#2; started 1; result 1", "run cat#2");
}

#[test]
fn a_decision_belongs_to_one_call() {
    check("user hi; calls rm#1 rm#2; approved 1", "run rm#1 approved, rm#2");
    check("user hi; calls rm#1 rm#2; approved 1; denied 2 no", "run rm#1 approved, rm#2 denied: no");
    check("user hi; calls rm#1; approved 1; started 1", "run rm#1 unknown");
}

#[test]
fn of_calls_with_one_id_each_needs_a_decision_of_its_own() {
    check("user hi; calls rm#1 rm#1; approved 1", "run rm#1 approved, rm#1");
    check("user hi; calls rm#1 rm#1; approved 1; approved 1", "run rm#1 approved, rm#1 approved");
    check("user hi; calls rm#1 rm#1; denied 1 no; approved 1", "run rm#1 denied: no, rm#1 approved");
    check("user hi; calls rm#1; approved 1; denied 1 no", "run rm#1 denied: no");
}

#[test]
fn a_call_in_doubt_can_be_decided() {
    check("user hi; calls rm#1; started 1; approved 1", "run rm#1 approved");
    check("user hi; calls rm#1; started 1; denied 1 no", "run rm#1 denied: no");
    check("user hi; calls rm#1; started 1; approved 1; started 1", "run rm#1 unknown");
}

#[test]
fn a_chosen_route_continues_without_a_new_message() {
    check("user hi; assistant hello; selected writer", "ask the model");
    check("user hi; assistant hello; selected writer; assistant more", "done");
    check("user hi; assistant hello; selected done", "done");
    check("user hi; assistant hello; selected writer; selected done", "done");
    check("user hi; assistant hello; selected nothing", "done");
    check("user hi; selected writer; selected done", "ask the model");
}

#[test]
fn a_branch_kept_aside_does_not_change_whose_turn_it_is() {
    check("user hi; fork b1; assistant hello; on main; aside b1", "ask the model");
    check("user hi; fork b1; calls ls#1; on main; aside b1", "ask the model");
    check("user hi; assistant hello; fork b1; user more; on main; aside b1", "done");
    check("user hi; calls ls#1; fork b1; result 1; on main; aside b1", "run ls#1");
    check("user hi; calls ls#1; fork b1; result 1; on main; aside b1; result 1", "ask the model");
}

#[test]
fn a_result_closes_the_newest_call_with_its_id_once() {
    check("user hi; calls ls#1; result 1; calls ls#1", "run ls#1");
    check("user hi; calls ls#1; user wait; calls ls#1; result 1", "run ls#1 superseded");
    check("user hi; calls ls#1 ls#1; started 1; started 1", "run ls#1 unknown, ls#1 unknown");
    check("user hi; calls ls#1 ls#1; result 1", "run ls#1");
    check("user hi; calls ls#1; result 1; result 1", "ask the model");
    check("user hi; assistant hello; result 9", "done");
}

#[test]
fn a_call_does_not_start_once_the_user_has_said_something_else() {
    check("user hi; calls ls#1; user stop", "run ls#1 superseded");
    check("user hi; calls ls#1 ls#2; started 1; user stop", "run ls#1 unknown, ls#2 superseded");
    check("user hi; calls ls#1; approved 1; user please", "run ls#1 approved");
    check("user hi; calls ls#1; user stop; approved 1", "run ls#1 approved");
    check("user hi; calls ls#1; user stop; calls ls#2", "run ls#1 superseded, ls#2");
    check("user hi; calls ls#1; user stop; result 1", "ask the model");
}

#[test]
fn a_call_does_not_start_by_itself_on_a_second_branch() {
    check("user hi; calls ls#1; fork b1", "run ls#1 held");
    check("user hi; calls ls#1; fork b1; on main; note x", "run ls#1");
    check("user hi; calls ls#1; approved 1; fork b1", "run ls#1 held");
    check("user hi; calls ls#1; fork b1; approved 1", "run ls#1 approved");
    check("user hi; calls ls#1; started 1; fork b1", "run ls#1 unknown");
    check("user hi; calls ls#1; denied 1 no; fork b1", "run ls#1 denied: no");
}

#[test]
fn no_decision_from_before_an_adoption_counts() {
    for before in ["note x", "approved 1", "approve 1", "denied 1 no", "deny 1 no"] {
        check(&format!("user hi; calls ls#1; {before}; adopted Ann"), "run ls#1 held");
    }
    check("user hi; calls ls#1; adopted Ann; approve 1", "run ls#1 approved");
    // A person decides on a call by its id.
    for calls in ["calls ls#1 rm#1", "calls ls#1; calls rm#1", "calls ls#1; user go; calls rm#1"] {
        for after in ["note x", "approve 1", "deny 1 no; approve 1", "approved 1", "user more", "started 1"] {
            check(&format!("user hi; {calls}; adopted Ann; {after}"), "run ls#1 ambiguous, rm#1 ambiguous");
        }
    }
    check("user hi; calls ls#1; adopted Ann; calls ls#2", "run ls#1 held, ls#2");
    check("user hi; calls ls#1; result 1; adopted Ann", "ask the model");
    check("user hi; calls ls#1; adopted Ann; user stop", "run ls#1 superseded");
}

#[test]
fn a_call_that_its_author_started_is_in_doubt_after_an_adoption() {
    for before in ["started 1", "approved 1; started 1", "started 1; user stop"] {
        check(&format!("user hi; calls ls#1; {before}; adopted Ann"), "run ls#1 held, unknown");
    }
    check("user hi; calls ls#1; started 1; adopted Ann; adopted Ann", "run ls#1 held, unknown");
    check("user hi; calls ls#1; started 1; adopted Ann; user stop", "run ls#1 held, unknown");
    check("user hi; calls ls#1; started 1; adopted Ann; approve 1", "run ls#1 approved");
    check("user hi; calls ls#1; started 1; adopted Ann; deny 1 no", "run ls#1 denied: no");
    check("user hi; calls ls#1; started 1; adopted Ann; approve 1; started 1", "run ls#1 unknown");
}

#[test]
fn a_forgotten_step_may_have_started_every_open_call() {
    check("user hi; calls ls#1; [note x] note y", "run ls#1 held, unknown");
    check("user hi; calls ls#1; approve 1; [note x] note y", "run ls#1 held, unknown");
    check("user hi; calls ls#1; [note x] note y; approved 1", "run ls#1 held, unknown");
    check("user hi; calls ls#1; [note x] note y; approve 1", "run ls#1 approved");
    check("user hi; [note x] note y; calls ls#1", "run ls#1");
}

#[test]
fn a_call_of_a_forgotten_answer_is_never_made() {
    for after in ["note x", "approve 1", "deny 1 no", "started 1", "user more", "adopted Ann", "adopted Ann; approve 1"]
    {
        check(&format!("user hi; [calls ls#1] calls rm#1; {after}"), "run rm#1 forgotten");
    }
    check("user hi; [calls ls#1] calls rm#1; result 1", "ask the model");
}

/// A decision is about one call. Steps that are withheld, and claim to be something else, do not move it to another.
#[test]
fn no_withheld_step_moves_an_approval_to_another_call() {
    // `rm` was refused, and `ls` was approved: by calls with one id, of two answers or of one.
    let stories = [
        "calls rm#1; deny 1 no; result 1; user then; calls ls#1; note x; approve 1; note y",
        "calls rm#1 ls#1; note x; deny 1 no; note y; approve 1; note z",
    ];
    let claims = ["note z", "user z", "result 1", "started 1", "approved 1", "calls cat#1", "adopted Ann"];
    let (mut forged, mut approved) = (0, 0);
    for story in stories {
        let statements: Vec<_> = story.split("; ").collect();
        let pairs =
            (0..statements.len()).flat_map(|first| (first..statements.len()).map(move |second| (first, second)));
        for ((first, second), claim) in pairs.flat_map(|pair| claims.map(|claim| (pair, claim))) {
            let statements =
                statements.iter().enumerate().map(|(nth, statement)| match nth == first || nth == second {
                    true => format!("[{statement}] {claim}"),
                    false => (*statement).to_owned(),
                });
            let story = format!("user hi; {}", statements.collect::<Vec<_>>().join("; "));
            let Next::RunTools(calls) = turn::next(&record(&story)) else { continue };
            let is_approved =
                |tool: &str| calls.iter().any(|it| *it.call.tool == *tool && it.progress == Progress::Approved);
            assert!(!is_approved("rm") && !is_approved("cat"), "{story}: {calls:?}");
            forged += 1;
            approved += u32::from(is_approved("ls"));
        }
    }
    assert!(forged > 250 && approved > 50, "{forged} forged, {approved} approved");
}

#[test]
fn chunks_that_no_model_sees_do_not_change_whose_turn_it_is() {
    for aside in [
        "note x",
        "placed local:./",
        "remember x",
        "recall x y",
        "checked t passed",
        "retry x",
        "failed x",
        "interrupted x",
    ] {
        check(&format!("user hi; {aside}"), "ask the model");
        check(&format!("user hi; assistant hello; {aside}"), "done");
        check(&format!("user hi; calls ls#1; {aside}"), "run ls#1");
    }
}

#[test]
fn after_a_merge_the_last_message_decides() {
    check("user hi; fork b1; assistant ours; on main; fork b2; user theirs; on b1; merge b2", "ask the model");
    check("user hi; fork b1; user ours; on main; fork b2; assistant theirs; on b1; merge b2", "done");
}

#[test]
fn a_result_without_an_open_call_does_not_change_whose_turn_it_is() {
    check("user hi; assistant hello; result 9", "done");
    check("user hi; calls ls#1; note x; note x; note x; assistant x; result 1; assistant y", "done");
    check("user hi; calls ls#1; note x; note x; note x; assistant x; result 1; assistant y; result 9", "done");
    let story = "user hi; fork b1; note x; on main; fork b2; calls ls#1; result 1; assistant done; result 1; on b1";
    check(&format!("{story}; merge b2"), "done");
}

#[test]
fn after_a_concatenation_the_last_message_decides_too() {
    let concat = |ours: &str, theirs: &str| {
        let stamp = rath_record::Stamp::on(crate::support::branch("merged"));
        let merged = record(ours).merge(&record(theirs), rath_record::chunk::Strategy::Concat, stamp);
        turn::next(&merged.expect("short"))
    };
    assert_eq!(concat("user a; assistant b", "user a"), Next::AskModel);
    assert_eq!(concat("user a", "user a; assistant b"), Next::Done);
    assert_eq!(concat("user a", "note x"), Next::AskModel);
}
