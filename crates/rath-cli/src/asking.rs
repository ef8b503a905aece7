//! Asking the person at the terminal about calls.

#[cfg(unix)]
#[path = "asking/keyboard.rs"]
mod keyboard;
#[cfg(not(unix))]
#[path = "asking/keyboard_plain.rs"]
mod keyboard;

use std::path::Path;

use rath::Cancel;
use rath::policy::{Policy, Question, Reply, Rule};
use rath::record::draw::one_line;
use rath::tool::builtin;
use tokio::sync::{mpsc, oneshot};

use crate::configuration;
use crate::output::{self, BRANCH};
use crate::styled::Line;

/// A question, and the channel for its answer.
pub(crate) type PendingQuestion = (Question, oneshot::Sender<Reply>);

/// The answer to the model for a call that cannot be shown as it is.
const UNSHOWABLE: &str = "it holds a text that looks like a secret, so the user cannot be shown what it does";

/// Returns the name under which decisions of the user are recorded.
pub(crate) fn user_name() -> String {
    known_user_name().unwrap_or_else(|| "the user".to_owned())
}

/// Returns the name of the user, as the system says.
pub(crate) fn known_user_name() -> Option<String> {
    ["USER", "LOGNAME", "USERNAME"].iter().find_map(|name| std::env::var(name).ok()).filter(|name| !name.is_empty())
}

/// Lets a policy hand its questions to the receiver.
pub(crate) fn asking(policy: Policy) -> (Policy, Option<mpsc::UnboundedReceiver<PendingQuestion>>) {
    let (questions, receiver) = mpsc::unbounded_channel();
    let policy = policy.ask_with(move |question| {
        let (answer, answered) = oneshot::channel();
        let is_sent = questions.send((question, answer)).is_ok();
        async move { if is_sent { answered.await.unwrap_or(Reply::Wait) } else { Reply::Wait } }
    });
    (policy, Some(receiver))
}

/// Asks the person at the terminal. Without an answer the call waits.
///
/// A rule that holds always is written to the user's configuration, for the project in `directory`.
pub(crate) async fn ask(question: &Question, directory: &Path, cancel: &Cancel) -> Reply {
    keyboard::discard_typed();
    if let Some(refusal) = show_question(question) {
        return refusal;
    }
    loop {
        output::prompt("> ");
        let Some(line) = read_line(cancel).await else {
            output::message!("");
            return Reply::Wait;
        };
        if let Some(reply) = reply(question, &line, directory) {
            return reply;
        }
    }
}

/// Shows a question. Returns the refusal of a call that cannot be shown as it is.
pub(crate) fn show_question(question: &Question) -> Option<Reply> {
    let text = shown_text(question);
    // The person would decide about something else than what runs.
    if output::has_secrets(&text) {
        output::message!("refused: a call of {} holds a secret, and cannot be shown", one_line(&question.call.tool));
        return Some(Reply::Deny { by: "rath".to_owned(), reason: UNSHOWABLE.to_owned() });
    }
    show(question, &text);
    None
}

/// Returns the reply that a line gives to a question. A line that is not understood gives none, and that is said.
pub(crate) fn reply(question: &Question, line: &str, directory: &Path) -> Option<Reply> {
    let by = user_name();
    let (word, words) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
    let has_rules = !question.rules.is_empty();
    match word.to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(Reply::Allow { by, rules: Vec::new() }),
        "s" | "session" if has_rules => Some(Reply::Allow { by, rules: question.rules.clone() }),
        "a" | "always" if has_rules => {
            match configuration::add_rules(directory, &question.rules) {
                Ok(path) => output::message!("added to {}", output::home_path(&path)),
                Err(failure) => output::error(&failure),
            }
            Some(Reply::Allow { by, rules: question.rules.clone() })
        }
        "n" | "no" => {
            let reason = if words.trim().is_empty() { "the user refused it" } else { words.trim() };
            output::message!("refused");
            Some(Reply::Deny { by, reason: reason.to_owned() })
        }
        "s" | "session" | "a" | "always" => {
            output::message!("no rule can describe it; y or n?");
            None
        }
        _ => {
            print_choices("not understood; ", has_rules);
            None
        }
    }
}

/// Asks the person at the terminal a question about something that cannot be undone. Without an answer it is not done.
pub(crate) async fn confirm(question: &str) -> bool {
    // What was typed before is no answer.
    keyboard::discard_typed();
    loop {
        output::prompt(&format!("{question}  y: yes  n: no\n> "));
        let Some(line) = read_line(&Cancel::new()).await else {
            output::message!("");
            return false;
        };
        match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => return true,
            "n" | "no" => return false,
            _ => output::message!("not understood"),
        }
    }
}

/// Returns all that a call will do: the whole command, or the changes to a file.
fn shown_text(question: &Question) -> String {
    let arguments = question.call.arguments.as_str().unwrap_or_default();
    question.preview.clone().unwrap_or_else(|| whole_argument(&question.call.tool, arguments))
}

fn show(question: &Question, text: &str) {
    let Question { call, module, why, rule, rules, .. } = question;
    let who = one_line(module.as_deref().unwrap_or("agent"));
    let rule = rule.as_deref().filter(|rule| !rule.starts_with("mode ")).map(|rule| format!(": {}", one_line(rule)));
    let why = format!("{}{}", one_line(why), rule.unwrap_or_default());
    output::message!("{who} wants to use {BRANCH}{}{BRANCH:#} ({why}):", one_line(&call.tool));
    for line in text.lines() {
        output::message!("  {}", rath::record::draw::printable(line));
    }
    if !rules.is_empty() {
        let subject = |rule: &Rule| one_line(rule.to_string().trim_start_matches("allow "));
        let rules: String = rules.iter().map(|rule| format!("\n  {}", subject(rule))).collect();
        output::message!("s or a also allows from now on:{rules}");
    }
    // What was typed while the call was printed is no answer to the question.
    keyboard::discard_typed();
    print_choices("allow it?  ", !rules.is_empty());
}

/// Returns all that a call says: the command or the program as it is, and other arguments as JSON.
fn whole_argument(tool: &str, arguments: &str) -> String {
    let Some(serde_json::Value::Object(mut object)) = builtin::arguments_of(tool, arguments) else {
        return arguments.to_owned();
    };
    let main = ["command", "code"].iter().find_map(|name| match object.remove(*name)? {
        serde_json::Value::String(text) => Some(text),
        _ => None,
    });
    let rest = || serde_json::Value::Object(object.clone()).to_string();
    match main {
        Some(main) if object.is_empty() => main,
        Some(main) => format!("{main}\n{}", rest()),
        None => arguments.to_owned(),
    }
}

/// Prints the answers that are understood, after these words.
fn print_choices(words: &str, has_rules: bool) {
    let choices = match has_rules {
        true => "y: once  s: in this session  a: always in this directory  n WHY: no",
        false => "y: yes  n WHY: no",
    };
    let lines = Line::from(format!("{words}{choices}")).wrap(output::columns(), &"  ".into());
    lines.iter().for_each(|line| output::message!("{}", line.plain().trim_end()));
}

/// Reads a line from the terminal; none if there is none, or if the run is cancelled.
async fn read_line(cancel: &Cancel) -> Option<String> {
    let (sender, receiver) = oneshot::channel();
    // A thread of its own, and not one of the runtime: the program may end while it waits.
    std::thread::spawn(move || _ = sender.send(keyboard::read_line()));
    tokio::select! {
        line = receiver => line.ok().flatten(),
        () = cancel.cancelled() => None,
    }
}
