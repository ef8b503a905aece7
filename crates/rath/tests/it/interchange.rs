//! Sessions in the formats of other programs.

mod atif;
mod laws;
mod lineage;
mod openrath;

use rath::Session;
use rath::chunk::Json;
use rath::chunk::{
    Assistant, Call, Chunk, Denied, Finish, Identity, Instructions, Outcome, ToolResult, ToolSpec, ToolStarted,
};
use rath::interchange::Note;
use rath::record::draw;
use rath::turn::Next;
use rath::view::{CallResult, Message};
use rath::{Text, Usage};

use crate::support::now;

/// Prints the messages that a model sees, with author, time and usage, one line each. No format may lose any of it.
pub(crate) fn visible_state(session: &Session) -> String {
    let view = session.messages();
    let mut lines = Vec::new();
    if let Some((_, instructions)) = view.instructions {
        lines.push(format!("{instructions:?}"));
    }
    for message in &view.list {
        let stamp = message.step().stamp();
        let text = match message {
            Message::User(_, user) => format!("{user:?}"),
            Message::Recalled(_, found) => format!("{found:?}"),
            Message::Summary(_, summary) => format!("summary {summary}"),
            Message::Assistant(_, answer, exchanges) => {
                let closed = exchanges.iter().map(|exchange| match exchange.result {
                    CallResult::Recorded(result) => format!("\n    {result:?}"),
                    CallResult::Missing => format!("\n    {}: nothing", exchange.id),
                });
                format!("{answer:?}{}", closed.collect::<String>())
            }
        };
        lines.push(format!("{text} by {:?} at {:?} for {:?}", stamp.by, stamp.at, stamp.usage));
    }
    lines.push(format!("all for {:?}", session.usage()));
    lines.push(format!("next {}", next(session)));
    lines.join("\n")
}

/// Prints the next action, without ids of steps.
pub(crate) fn next(session: &Session) -> String {
    match session.next() {
        Next::AskModel => "ask".to_owned(),
        Next::Done => "done".to_owned(),
        Next::RunTools(open) => {
            let open = open.iter().map(|pending| format!("{} {:?}", pending.call.id, pending.progress));
            format!("run {}", open.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Prints the steps, one line each, for a person to read.
pub(crate) fn log(session: &Session) -> String {
    session.as_record().steps().iter().map(|step| format!("{}\n", draw::headline(step))).collect()
}

/// Prints notes with their codes, one line each.
pub(crate) fn notes(list: &[Note]) -> String {
    list.iter().map(|note| format!("- {}: {note}\n", note.code)).collect()
}

/// Returns sessions of all kinds, each with a name.
pub(crate) fn sessions() -> Vec<(&'static str, Session)> {
    let mut list = vec![("nothing", Session::empty()), ("a question", Session::user("hello"))];

    let mut chat = Session::system("You are terse.").by("chat.agent");
    chat.push(Chunk::user("one\u{2028}two\u{2029}three\u{85}four\nfive \"six\" \\ \u{1f600} \0"));
    chat.push_with_usage(Chunk::assistant("hi"), Usage { cached_read: 3, reasoning: 2, ..Usage::new(10, 5) });
    list.push(("a chat", chat.clone()));

    let mut tools = Session::empty();
    let spec = serde_json::json!({"type": "object", "properties": {"z": {}, "a": {}}});
    let identity = Identity { provider: "openai".to_owned(), model: "gpt-5".to_owned() };
    tools.push(
        Instructions::new("You work.")
            .with_tools(vec![ToolSpec::new("ls", "List.", spec)])
            .with_provider(identity.clone()),
    );
    tools.push(Chunk::user("look around"));
    let answer = Assistant::new("Looking.")
        .with_reasoning("They want to know.")
        .with_calls(vec![
            Call::new("a", "ls", r#"{"z": 1, "a": [1.50, "x"]}"#),
            Call::new("b", "pwd", ""),
            Call::new("a", "ls", "not json"),
        ])
        .with_finish(Finish::Calls)
        .with_provider(identity)
        .with_facts(Json::parse(r#"{"id":"r1","cost_usd":0.25}"#).expect("JSON"))
        .with_sidecar(Json::parse(r#"{"signature":"x"}"#).expect("JSON"));
    tools.push_with_usage(answer, Usage::new(100, 20));
    for call in ["a", "b", "a"] {
        tools.push(ToolStarted::new(call));
    }
    tools.push(Chunk::result("a", "x.txt"));
    tools.push(ToolResult::new("b", Outcome::Failed, "no").with_whole(Text::from("all of it")));
    tools.push(Chunk::result("a", ""));
    let mut answered = tools.clone();
    answered.push_with_usage(Assistant::new("There is").with_finish(Finish::Length), Usage::new(200, 2));
    list.push(("results to answer", tools.clone()));
    list.push(("a tool loop", answered.clone()));

    let mut open = tools.clone();
    open.push(Chunk::calls(["new", "begun", "refused", "allowed"].map(|id| Call::new(id, "rm", "{}"))));
    open.push(ToolStarted::new("begun").with_key("k".to_owned()));
    open.push(Denied::new("refused", "no"));
    open.approve("allowed").expect("it is open");
    list.push(("open calls", open));

    let long = "word ".repeat(20_000);
    let mut large = Session::user(&*long);
    large.push(Chunk::assistant(&*long));
    list.push(("long texts", large));

    let mut fork = chat.fork_named("other");
    fork.push(Chunk::user("and now?"));
    list.push(("a fork", fork.clone()));
    list.push(("an untouched fork", chat.fork()));
    chat.push(Chunk::user("meanwhile"));
    list.push(("a merge", now(chat.merge(&fork)).expect("merged")));
    list
}
