//! One step of every kind, with canaries in every member.

use rath::StepId;
use rath::chunk::{
    Adopted, Approved, Asked, Assistant, Call, Change, Checked, Choice, Compressed, Conflict, Decided, Denied, Effect,
    Failed, FileVersion, Identity, Image, Instructions, Interrupted, Json, Memory, MemoryEvent, Merged, Observed,
    Outcome, Placed, RecalledEntry, Resolution, Restored, Resumed, Retry, Route, Selected, Strategy, ToolResult,
    ToolSpec, ToolStarted, Tree, User, Verdict,
};
use rath::prelude::{Chunk, Secrets, Session};
use serde_json::json;

use super::plant::Round;

/// The length of a text that is stored as a payload.
const LONG: usize = 20_000;

/// Creates a session with a step of every kind.
pub(super) fn record_every_kind(round: &Round, secrets: Secrets) -> Session {
    let text = |channel| round.text(channel);
    let long = |channel| format!("{}{}", "long ".repeat(LONG / 5), round.text(channel));
    let json = |channel| Json::from(json!({ round.text(channel): [round.text(channel)] }));
    let identity = |provider, model| Identity { provider: text(provider), model: text(model) };
    let version = || FileVersion {
        path: text("merged: version in a conflict"),
        object: text("merged: version in a conflict"),
        mode: "100644".to_owned(),
    };
    let image = Image::new(text("user: media type of an image"), [1, 2, 3]);
    let mut session = Session::empty().hiding(secrets).by(text("module of a step"));
    session.push(User::new(text("user: text, which is the title")).with_images([image]));
    session = session.fork_named(text("forked: branch name"));
    let tool = ToolSpec::new(
        text("instructions: tool name"),
        text("instructions: tool description"),
        json("instructions: tool parameters"),
    );
    let call = Call::new(
        text("assistant: call id"),
        text("assistant: tool name"),
        json!({ text("assistant: argument name"): {"in": [{"it": text("assistant: nested argument")}]} }).to_string(),
    );
    let id = call.id.clone();
    let renamed = Change::Renamed { from: text("tool_result: old path") };
    let route = Route::new(text("selected: route name"), text("selected: route description"));
    let memory = |event| Memory::new(text("memory: URI"), event);
    let found = RecalledEntry::new(text("memory: entry"), text("memory: entry text"));
    let mut conflict = Conflict::new(text("merged: path of a conflict"), text("merged: kind of a conflict"));
    (conflict.base, conflict.ours, conflict.theirs) = (Some(version()), Some(version()), Some(version()));
    let other = json!({"kind": "applause", text("kind of a newer version"): [text("kind of a newer version")]});
    // Members in the order in which they are read.
    let other = format!(r#"{{"kind":"applause","rest":{other}}}"#);
    let steps: Vec<Chunk> = vec![
        Instructions::new(text("instructions: text"))
            .with_tools([tool])
            .with_provider(identity("instructions: provider", "instructions: model"))
            .into(),
        Placed::new(text("placed: URI")).with_tree(Tree(text("placed: tree"))).into(),
        Assistant::new(text("assistant: text"))
            .with_reasoning(text("assistant: reasoning"))
            .with_calls([call])
            .with_provider(identity("assistant: provider", "assistant: model"))
            .with_settings(json("assistant: settings"))
            .with_facts(json("assistant: facts"))
            .into(),
        Asked::new(id.clone(), text("asked: reason")).with_rule(text("asked: rule")).into(),
        Approved::new(id.clone()).with_by(text("approved: person")).with_rules([text("approved: rule")]).into(),
        Denied::new(id.clone(), text("denied: words"))
            .with_by(text("denied: person"))
            .with_rule(text("denied: rule"))
            .into(),
        ToolStarted::new(id.clone()).with_key(text("tool_started: key")).with_rule(text("tool_started: rule")).into(),
        ToolResult::new(id.clone(), Outcome::Failed, text("tool_result: output"))
            .with_whole(rath::Text::from(long("tool_result: whole output")))
            .with_effects([Effect::new(text("tool_result: path"), renamed)])
            .with_put_back([text("tool_result: path that is put back")])
            .with_not_put_back([text("tool_result: path that is not put back")])
            .with_images([Image::new(text("tool_result: media type of an image"), [4, 5, 6])])
            .with_structured(json("tool_result: structured value"))
            .into(),
        Chunk::calls([Call::new("c2", "shell", json!({"text": long("assistant: long arguments")}).to_string())]),
        Assistant::new("signed").with_sidecar(json("assistant: sidecar")).into(),
        Observed::new(Tree(text("observed: tree")))
            .with_effects([Effect::new(text("observed: path"), Change::Created)])
            .into(),
        memory(MemoryEvent::Remember { text: text("memory: fact").into(), path: None, steps: vec![] }).into(),
        memory(MemoryEvent::Recall {
            query: text("memory: question").into(),
            found: vec![found],
            position: None,
            notice: Some(text("memory: notice")),
        })
        .into(),
        memory(MemoryEvent::Commit { entries: vec![text("memory: entry that is committed")], position: None }).into(),
        memory(MemoryEvent::Forget { entries: vec![text("memory: entry that is forgotten")] }).into(),
        Compressed::new([], text("compressed: summary")).into(),
        Selected::new([route], text("selected: reply"), Choice::Chosen { route: text("selected: choice") }).into(),
        Checked::new(text("checked: command"), Verdict::Failed)
            .with_output(text("checked: output"))
            .with_inputs([text("checked: input")])
            .into(),
        Merged::new(Strategy::Ancestor)
            .with_effects([Effect::new(text("merged: path"), Change::Deleted)])
            .with_conflicts([conflict])
            .with_call(id)
            .into(),
        Restored::new(StepId([1; 32]), Tree("git:0".to_owned()))
            .with_effects([Effect::new(text("restored: changed path"), Change::Modified)])
            .into(),
        Decided::new(text("decided: path"), Resolution::Ours, Tree("git:0".to_owned()))
            .with_effects([Effect::new(text("decided: changed path"), Change::Modified)])
            .into(),
        Retry::new(1, 2, text("retry: error")).into(),
        Interrupted::new(text("interrupted: reason")).with_partial(Some(text("interrupted: answer").into())).into(),
        Failed::new(text("failed: kind"), text("failed: message"))
            .with_partial(Some(text("failed: answer").into()))
            .into(),
        Resumed::new([text("resumed: difference")]).into(),
        Adopted::new(text("adopted: person")).into(),
        Chunk::note(text("note: text")),
        Chunk::decode(&other).expect("it is a chunk"),
    ];
    for step in steps {
        session.push(step);
    }
    session.detach()
}
