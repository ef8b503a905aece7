//! Constructors of the chunks: `new` takes the members that every chunk of the kind has, `with_..` sets the others.

use std::sync::Arc;

use super::{
    Adopted, Approved, Asked, Assistant, Call, CallOrigin, Change, Checked, Choice, Chunk, Compressed, Conflict,
    Decided, Denied, Detached, Effect, Failed, FileVersion, Finish, Forked, Identity, Image, Instructions, Interrupted,
    Json, Memory, MemoryEvent, Merged, Note, Observed, Outcome, Placed, RecalledEntry, Resolution, Restored, Resumed,
    Retry, Route, Selected, Strategy, ToolResult, ToolSpec, ToolStarted, Tree, UnkeptReason, User, Verdict,
};
use crate::id::{CallId, CounterId, Digest, StepId};
use crate::payload::{Blob, Text};

impl Chunk {
    /// Makes a user message.
    pub fn user(text: impl Into<Text>) -> Self {
        Chunk::User(User::new(text))
    }

    /// Makes the instructions of an agent without tools.
    pub fn instructions(text: impl Into<Text>) -> Self {
        Chunk::Instructions(Instructions::new(text))
    }

    /// Makes a final answer of the model, without tool calls.
    pub fn assistant(text: impl Into<Text>) -> Self {
        Chunk::Assistant(Assistant::new(text))
    }

    /// Makes an answer of the model that asks for `calls`.
    pub fn calls(calls: impl IntoIterator<Item = Call>) -> Self {
        Chunk::Assistant(
            Assistant::new("").with_calls(calls.into_iter().collect::<Vec<_>>()).with_finish(Finish::Calls),
        )
    }

    /// Makes the result of a call that succeeded.
    pub fn result(call: impl Into<CallId>, output: impl Into<Text>) -> Self {
        Chunk::ToolResult(ToolResult::new(call, Outcome::Ok, output))
    }

    /// Makes a remark that no model sees.
    pub fn note(text: impl Into<Text>) -> Self {
        Chunk::Note(Note::new(text))
    }
}

impl Instructions {
    /// Makes instructions without tools.
    pub fn new(text: impl Into<Text>) -> Self {
        Instructions { text: text.into(), tools: Vec::new(), provider: None }
    }
}

impl ToolSpec {
    /// Describes a tool.
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: impl Into<Json>) -> Self {
        ToolSpec { name: name.into(), description: description.into(), parameters: parameters.into() }
    }
}

impl User {
    /// Makes a message without images.
    pub fn new(text: impl Into<Text>) -> Self {
        User { text: text.into(), images: Vec::new() }
    }
}

impl Image {
    /// Makes an image from its bytes.
    pub fn new(media_type: impl Into<String>, bytes: impl Into<Arc<[u8]>>) -> Self {
        Image { media_type: media_type.into(), blob: Blob::new(bytes) }
    }
}

impl Assistant {
    /// Makes a final answer without tool calls.
    pub fn new(text: impl Into<Text>) -> Self {
        Assistant { text: text.into(), ..Assistant::default() }
    }
}

impl Call {
    /// Makes a call of `tool`.
    pub fn new(id: impl Into<CallId>, tool: impl Into<Arc<str>>, arguments: impl Into<Text>) -> Self {
        Call { id: id.into(), tool: tool.into(), arguments: arguments.into() }
    }
}

impl ToolStarted {
    /// Makes the start of a call without an idempotency key.
    pub fn new(call: impl Into<CallId>) -> Self {
        ToolStarted { call: call.into(), key: None, rule: None }
    }
}

impl Assistant {
    /// Returns true if the provider paused the answer: `paused` among its facts. It is sent back as it is, and goes on.
    pub fn is_paused(&self) -> bool {
        #[derive(serde::Deserialize)]
        struct PauseFacts {
            paused: bool,
        }
        // Most facts say nothing of it, and are not parsed.
        let facts = self.facts.as_ref().map(Json::as_str).filter(|facts| facts.contains("\"paused\""));
        facts.and_then(|facts| serde_json::from_str::<PauseFacts>(facts).ok()).is_some_and(|facts| facts.paused)
    }
}

impl ToolResult {
    /// Makes a result without file changes.
    pub fn new(call: impl Into<CallId>, outcome: Outcome, output: impl Into<Text>) -> Self {
        let (call, output) = (call.into(), output.into());
        let (effects, put_back, not_put_back, images) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (whole, tree, structured) = (None, None, None);
        ToolResult { call, outcome, output, whole, effects, tree, put_back, not_put_back, images, structured }
    }
}

impl Placed {
    /// Makes the binding to the sandbox with this URI.
    pub fn new(place: impl Into<String>) -> Self {
        Placed { place: place.into(), tree: None }
    }
}

impl Memory {
    /// Makes an operation on the memory with this URI.
    pub fn new(memory: impl Into<String>, event: MemoryEvent) -> Self {
        Memory { memory: memory.into(), event }
    }
}

impl RecalledEntry {
    /// Makes an entry that a memory returned.
    pub fn new(entry: impl Into<String>, text: impl Into<Text>) -> Self {
        let (entry, text) = (entry.into(), text.into());
        RecalledEntry { entry, text, score: None, said_by: None, at: None, session: None, steps: Vec::new() }
    }
}

impl Compressed {
    /// Makes a fold of `hidden` into `summary`.
    pub fn new(hidden: impl Into<Vec<StepId>>, summary: impl Into<Text>) -> Self {
        Compressed { hidden: hidden.into(), kept: Vec::new(), summary: summary.into() }
    }
}

impl Selected {
    /// Makes a selection from `menu`.
    pub fn new(menu: impl Into<Vec<Route>>, reply: impl Into<Text>, choice: Choice) -> Self {
        Selected { menu: menu.into(), reply: reply.into(), choice, request: None }
    }
}

impl Route {
    /// Makes a route of a menu.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Route { name: name.into(), description: description.into() }
    }
}

impl Checked {
    /// Makes a run of a check without output, tree and inputs.
    pub fn new(check: impl Into<String>, verdict: Verdict) -> Self {
        Checked { check: check.into(), verdict, output: Text::default(), tree: None, inputs: Vec::new() }
    }
}

impl Forked {
    /// Makes the `nth` fork from a head, without a name.
    pub fn new(nth: u64) -> Self {
        Forked { nth, counter: None, from: None, name: None, merges: None }
    }
}

impl Merged {
    /// Makes the first merge of its two sides.
    pub fn new(strategy: Strategy) -> Self {
        Merged {
            strategy,
            nth: 1,
            counter: None,
            from: None,
            tree: None,
            effects: Vec::new(),
            conflicts: Vec::new(),
            call: None,
        }
    }
}

/// Describes the first merge of its two sides.
impl From<Strategy> for Merged {
    fn from(strategy: Strategy) -> Self {
        Merged::new(strategy)
    }
}

impl Detached {
    /// Makes the `nth` detachment from a head.
    pub fn new(nth: u64) -> Self {
        Detached { nth, counter: None, from: None }
    }
}

impl Retry {
    /// Makes the failure of an attempt.
    pub fn new(attempt: u32, of: u32, error: impl Into<Text>) -> Self {
        Retry { attempt, of, error: error.into(), provider: None }
    }
}

impl Interrupted {
    /// Makes an interruption of the run.
    pub fn new(reason: impl Into<Text>) -> Self {
        Interrupted { reason: reason.into(), partial: None, provider: None }
    }
}

impl Asked {
    /// Makes the question about a call.
    pub fn new(call: impl Into<CallId>, why: impl Into<String>) -> Self {
        Asked { call: call.into(), why: why.into(), rule: None, subject: None }
    }
}

impl Approved {
    /// Makes the approval of a call.
    pub fn new(call: impl Into<CallId>) -> Self {
        Approved { call: call.into(), origin: None, subject: None, by: None, rules: Vec::new() }
    }
}

impl Denied {
    /// Makes the denial of a call.
    pub fn new(call: impl Into<CallId>, reason: impl Into<Text>) -> Self {
        Denied { call: call.into(), origin: None, reason: reason.into(), by: None, rule: None }
    }
}

impl Failed {
    /// Makes the failure of a run.
    pub fn new(error: impl Into<String>, message: impl Into<Text>) -> Self {
        Failed { error: error.into(), message: message.into(), partial: None, provider: None }
    }
}

impl Adopted {
    /// Makes the adoption of a session by a person.
    pub fn new(by: impl Into<String>) -> Self {
        Adopted { by: by.into() }
    }
}

impl Resumed {
    /// Makes the decision to continue in spite of `differences`.
    pub fn new(differences: impl Into<Vec<String>>) -> Self {
        Resumed { differences: differences.into(), is_incomplete: false }
    }

    /// Makes the decision to copy a session from a damaged file, in spite of this damage.
    pub fn from_damaged(damage: impl Into<Vec<String>>) -> Self {
        Resumed { differences: damage.into(), is_incomplete: true }
    }
}

impl Note {
    /// Makes a remark that no model sees.
    pub fn new(text: impl Into<Text>) -> Self {
        Note { text: text.into() }
    }
}

impl Effect {
    /// Makes a change of a path, without digests.
    pub fn new(path: impl Into<String>, change: Change) -> Self {
        Effect { path: path.into(), change, before: None, after: None, unkept: None }
    }
}

impl Observed {
    /// Makes an observation of a tree without differences.
    pub fn new(tree: Tree) -> Self {
        Observed { tree, effects: Vec::new(), calls: Vec::new() }
    }
}

impl Decided {
    /// Makes the resolution of a conflict.
    pub fn new(path: impl Into<String>, taken: Resolution, tree: Tree) -> Self {
        Decided { path: path.into(), taken, tree, effects: Vec::new() }
    }
}

impl Restored {
    /// Makes the restoration of the files of a step, whose tree this is.
    pub fn new(to: StepId, tree: Tree) -> Self {
        Restored { to, tree, effects: Vec::new() }
    }
}

impl Conflict {
    /// Makes a conflict at a path that exists on no side.
    pub fn new(path: impl Into<String>, what: impl Into<String>) -> Self {
        Conflict { path: path.into(), what: what.into(), base: None, ours: None, theirs: None }
    }
}

/// Declares methods that set a member and return the value.
macro_rules! setters {
    ($($type:ident { $($(#[$doc:meta])* $method:ident($member:ident: $value:ty);)* })*) => {
        $(impl $type {
            $($(#[$doc])*
            pub fn $method(mut self, $member: impl Into<$value>) -> Self {
                self.$member = $member.into();
                self
            })*
        })*
    };
}

setters! {
    Instructions {
        /// Sets the tools.
        with_tools(tools: Vec<ToolSpec>);
        /// Sets the provider.
        with_provider(provider: Option<Identity>);
    }
    User {
        /// Sets the images.
        with_images(images: Vec<Image>);
    }
    Assistant {
        /// Sets the reasoning.
        with_reasoning(reasoning: Text);
        /// Sets the tool calls.
        with_calls(calls: Vec<Call>);
        /// Sets the reason why the model stopped.
        with_finish(finish: Finish);
        /// Sets the digest of the request.
        with_request(request: Option<Digest>);
        /// Sets the parts of the request that are not on the record.
        with_settings(settings: Option<Json>);
        /// Sets the provider and model that answered.
        with_provider(provider: Option<Identity>);
        /// Sets the facts that the provider reports.
        with_facts(facts: Option<Json>);
        /// Sets the state that only this provider can read.
        with_sidecar(sidecar: Option<Json>);
    }
    ToolStarted {
        /// Sets the idempotency key.
        with_key(key: Option<String>);
        /// Sets the rule that allowed the call.
        with_rule(rule: Option<String>);
    }
    ToolResult {
        /// Sets the full output, of which the model reads a part.
        with_whole(whole: Option<Text>);
        /// Sets the changes to files.
        with_effects(effects: Vec<Effect>);
        /// Sets the workspace tree after the call.
        with_tree(tree: Option<Tree>);
        /// Sets the files that were put back.
        with_put_back(put_back: Vec<String>);
        /// Sets the files that could not be put back.
        with_not_put_back(not_put_back: Vec<String>);
        /// Sets the images in the output.
        with_images(images: Vec<Image>);
        /// Sets the output as a value for programs.
        with_structured(structured: Option<Json>);
    }
    Placed {
        /// Sets the workspace tree in the sandbox.
        with_tree(tree: Option<Tree>);
    }
    Compressed {
        /// Sets the steps that stay visible.
        with_kept(kept: Vec<StepId>);
    }
    Selected {
        /// Sets the digest of the request.
        with_request(request: Option<Digest>);
    }
    Checked {
        /// Sets the output.
        with_output(output: Text);
        /// Sets the workspace tree that the check ran on.
        with_tree(tree: Option<Tree>);
        /// Sets the files and directories that the check depends on.
        with_inputs(inputs: Vec<String>);
    }
    Forked {
        /// Sets the counter that the number is from.
        with_counter(counter: Option<CounterId>);
        /// Sets the head at the time of the fork.
        with_from(from: Option<StepId>);
        /// Sets the name of the branch.
        with_name(name: Option<String>);
        /// Sets the head of the other side of a merge.
        with_merges(merges: Option<StepId>);
    }
    Merged {
        /// Sets the number that keeps merges of the same sides apart.
        with_nth(nth: u64);
        /// Sets the counter that the number is from.
        with_counter(counter: Option<CounterId>);
        /// Sets the head of our side at the time of the merge.
        with_from(from: Option<StepId>);
        /// Sets the workspace tree after the merge.
        with_tree(tree: Option<Tree>);
        /// Sets the changes to files that differ from both sides.
        with_effects(effects: Vec<Effect>);
        /// Sets the conflicts.
        with_conflicts(conflicts: Vec<Conflict>);
        /// Sets the call that the other side is the work of.
        with_call(call: Option<CallId>);
    }
    Detached {
        /// Sets the counter that the number is from.
        with_counter(counter: Option<CounterId>);
        /// Sets the head at the time of the detachment.
        with_from(from: Option<StepId>);
    }
    Asked {
        /// Sets the rule that asks.
        with_rule(rule: Option<String>);
        /// Sets the digest of the files and hosts that the question is about.
        with_subject(subject: Option<Digest>);
    }
    Approved {
        /// Sets the answer that asked for the call, and the position of the call there.
        with_origin(origin: Option<CallOrigin>);
        /// Sets the digest of the files and hosts that the person was shown.
        with_subject(subject: Option<Digest>);
        /// Sets the person.
        with_by(by: Option<String>);
        /// Sets the rules that hold for later calls.
        with_rules(rules: Vec<String>);
    }
    Denied {
        /// Sets the answer that asked for the call, and the position of the call there.
        with_origin(origin: Option<CallOrigin>);
        /// Sets the person.
        with_by(by: Option<String>);
        /// Sets the rule that denied the call.
        with_rule(rule: Option<String>);
    }
    Effect {
        /// Sets the digest of the file before the change.
        with_before(before: Option<Digest>);
        /// Sets the digest of the file after the change.
        with_after(after: Option<Digest>);
        /// Sets the reason why no version of the file is kept.
        with_unkept(unkept: Option<UnkeptReason>);
    }
    Retry {
        /// Sets the model whose tokens the attempt used.
        with_provider(provider: Option<Identity>);
    }
    Interrupted {
        /// Sets the text of an answer that had arrived.
        with_partial(partial: Option<Text>);
        /// Sets the model whose tokens the attempt used.
        with_provider(provider: Option<Identity>);
    }
    Failed {
        /// Sets the text of an answer that had arrived.
        with_partial(partial: Option<Text>);
        /// Sets the model whose tokens the attempt used.
        with_provider(provider: Option<Identity>);
    }
    Observed {
        /// Sets the differences from the state that the record knew.
        with_effects(effects: Vec<Effect>);
        /// Sets the calls that may have made the changes.
        with_calls(calls: Vec<CallId>);
    }
    Decided {
        /// Sets the changes to files that the resolution made.
        with_effects(effects: Vec<Effect>);
    }
    Restored {
        /// Sets the changes to files.
        with_effects(effects: Vec<Effect>);
    }
    Conflict {
        /// Sets the file in the merge base.
        with_base(base: Option<FileVersion>);
        /// Sets the file on our side.
        with_ours(ours: Option<FileVersion>);
        /// Sets the file on their side.
        with_theirs(theirs: Option<FileVersion>);
    }
}
