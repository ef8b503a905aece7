//! The call that wrote each line of a file.

use std::collections::HashMap;

use rath_record::chunk::{Call, Change, Chunk, Verdict};
use rath_record::view::{self, Freshness, Trees};
use rath_record::{CallId, Digest, Record, Step, StepId};
use rath_workspace::Revision;

use super::Result;
use super::versions::{Versions, tree_id};
use crate::tool::written_paths;

/// A file, and the step that each of its lines came from.
///
/// ```
/// use rath::Origin;
/// use rath::prelude::*;
/// use rath::tool::builtin::Shell;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let script = Script::of([
/// #     r#"{"calls": [{"name": "shell", "arguments": {"command": "echo two >> notes.txt"}}]}"#,
/// #     r#"{"text": "Done."}"#,
/// # ])?;
/// # let agent = Agent::new("You edit files.", &script.into()).tool(Shell);
/// std::fs::write(directory.path().join("notes.txt"), "one\n")?;
/// let session = Session::user("Add a line.").to(Sandbox::local(directory.path()));
/// let session = agent.run(session).await?;
///
/// let blame = session.blame("notes.txt").await?.expect("the file exists");
/// assert!(matches!(blame.lines[0].origin, Origin::Before));
/// assert!(matches!(blame.lines[1].origin, Origin::Call(_)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Blame {
    /// The path of the file.
    pub path: String,
    /// The lines, in order.
    pub lines: Vec<Line>,
}

/// One line of a file, and its origin.
///
/// Part of [`Blame`].
#[derive(Clone, Debug)]
pub struct Line {
    /// The text, without the line break.
    pub text: String,
    /// The step that wrote the line.
    pub step: StepId,
    /// The origin of the line.
    pub origin: Origin,
    /// The names of the checks that saw the line, passed and still hold.
    pub checks: Vec<String>,
    /// The names of the checks that saw the line and failed on the files as they are.
    pub failed_checks: Vec<String>,
}

/// The origin of a line.
///
/// Part of [`Line`].
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// The line was there when the workspace was first recorded.
    Before,
    /// No call on this record wrote the line.
    Outside,
    /// A call wrote the line.
    Call(Author),
    /// One of these calls wrote the line, or others did: the end of the calls was not observed.
    InDoubt(Vec<CallId>),
    /// A merge, or a decision on a conflict, made the line.
    Merge,
    /// The step that wrote the line was [forgotten](crate::Store::forget), or a later one did: its version of the file is not there.
    Forgotten,
}

/// The call that wrote a line, and the answer that asked for it.
///
/// Part of [`Origin::Call`].
#[derive(Clone, Debug, PartialEq)]
pub struct Author {
    /// The call.
    pub call: Call,
    /// The module that made the call.
    pub by: Option<String>,
    /// The answer that asked for the call.
    pub answer: StepId,
    /// The digest of the request that the answer belongs to.
    pub request: Option<Digest>,
    /// The certainty that the call wrote the line.
    pub certainty: Certainty,
}

/// The certainty that a call wrote a line.
///
/// Part of [`Author`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// The call wrote the line: its tool changes no other files than those that the call names.
    By,
    /// The line was written while the call ran, by the call or by another process. Files are compared before and after a call, so
    /// the changes of a command cannot be told from those of an editor.
    During,
}

/// Returns the origin of every line of a file, as the file is at the head of a record; none if there is no such file.
///
/// Trees are what was observed, so lines that a shell command wrote are found like any others.
pub(super) fn blame(record: &Record, versions: &Versions, path: &str) -> Result<Option<Blame>> {
    let trees = view::trees(record);
    let Some(head) = trees.head.and_then(|head| trees.at(head)) else { return Ok(None) };
    let parents = |tree: &view::RecordedTree<'_>| match tree.step.chunk() {
        // All lines are those of the step that was restored.
        Chunk::Restored(restored) => trees.at(restored.to).map_or_else(|| tree.before.clone(), |to| vec![to]),
        _ => tree.before.clone(),
    };
    let revision = |tree: &view::RecordedTree<'_>| Ok(Revision { tree: tree_id(tree.tree)?, parents: parents(tree) });
    let revisions: Vec<Revision> = trees.list.iter().map(revision).collect::<Result<_>>()?;
    let Some(lines) = versions.objects().blame(&revisions, head, path)? else { return Ok(None) };
    let depends = |inputs: &[String]| inputs.is_empty() || inputs.iter().any(|input| view::covers(input, path));
    let fresh = view::checks(record).list.into_iter();
    let fresh = fresh.filter(|(_, it)| it.freshness == Freshness::Fresh && depends(&it.checked.inputs));
    let checks: Vec<_> =
        fresh.filter_map(|(name, check)| Some((name, check.checked.verdict, trees.at(check.step.id())?))).collect();
    // Many lines come from few revisions.
    let mut origins: HashMap<(usize, bool), Line> = HashMap::new();
    let lines = lines.into_iter().map(|line| {
        let at = line.revision;
        let with_origin = origins.entry((at, line.is_forgotten)).or_insert_with(|| {
            let names = |wanted: Verdict| {
                let saw = checks.iter().filter(|(_, verdict, saw)| *verdict == wanted && trees.descends_from(*saw, at));
                saw.map(|(name, ..)| (*name).to_owned()).collect()
            };
            Line {
                text: String::new(),
                step: trees.list[at].step.id(),
                origin: if line.is_forgotten { Origin::Forgotten } else { origin(&trees, at) },
                checks: names(Verdict::Passed),
                failed_checks: names(Verdict::Failed),
            }
        });
        Line { text: line.text, ..with_origin.clone() }
    });
    Ok(Some(Blame { path: path.to_owned(), lines: lines.collect() }))
}

fn origin(trees: &Trees<'_>, at: usize) -> Origin {
    let step = trees.list[at].step;
    match step.chunk() {
        _ if step.withheld().is_some() => Origin::Forgotten,
        Chunk::Observed(_) if trees.list[at].before.is_empty() => Origin::Before,
        Chunk::Observed(observed) if !observed.calls.is_empty() => Origin::InDoubt(observed.calls.clone()),
        Chunk::ToolResult(_) => author(step).map_or(Origin::Outside, Origin::Call),
        Chunk::Merged(_) | Chunk::Decided(_) => Origin::Merge,
        _ => Origin::Outside,
    }
}

fn author(result: &Step) -> Option<Author> {
    let (call, answer) = view::find_call(result)?;
    let request = match answer.chunk() {
        Chunk::Assistant(answer) => answer.request,
        _ => None,
    };
    let by = answer.stamp().by.as_ref().map(|by| by.to_string());
    let certainty = if changes_named_files(call, result) { Certainty::By } else { Certainty::During };
    Some(Author { call: call.clone(), by, answer: answer.id(), request, certainty })
}

/// Returns true if a call can have changed only the files that it names, and its result has no other change.
fn changes_named_files(call: &Call, result: &Step) -> bool {
    let named = written_paths(&call.tool, call.arguments.as_str().unwrap_or_default());
    let is_named = |path: &String| named.iter().any(|named| named.trim_start_matches("./") == path);
    result.chunk().effects().iter().all(|effect| match &effect.change {
        Change::Renamed { from } => is_named(from) && is_named(&effect.path),
        _ => is_named(&effect.path),
    })
}
