//! The certificate of a resumed session: the differences from the state in which the session was left.

use std::fmt;
use std::sync::Arc;

use rath_record::chunk::{Chunk, Instructions, Observed, Resumed as ResumedChunk};
use rath_record::turn::{Next, PendingCall};
use rath_record::{CallId, StepId, draw};

use super::branch_dirs::OutdatedFiles;
use super::recorder::Recorder;
use super::resume::StoredSession;
use super::{Error, Result, Session};
use crate::error::ErrorKind;
use crate::flow::Module;
use crate::store::{Damage, Holder};
use crate::tool::{is_added_by_update, is_update};

/// A session that was opened to be continued, with its certificate.
///
/// ```
/// use rath::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath::Result<()> {
/// let store = Store::open("memory:").await?;
/// # let agent = Agent::new("Be brief.", &Script::of([r#"{"text": "hi"}"#])?.into());
/// let id = agent.run(Session::user("hello").record(&store).await?).await?.id();
///
/// let resumed = store.resume(id).await?.against(&agent);
/// assert!(resumed.certificate().is_complete());
/// let session = resumed.complete()?;
/// assert_eq!(session.text(), Some("hi"));
/// # Ok(())
/// # }
/// ```
#[must_use = "look at the certificate, and take the session with `complete` or `anyway`"]
#[derive(Debug)]
pub struct Resumed {
    session: Session,
    certificate: Certificate,
    /// The state of the files, if it is not on the record.
    looked: Option<Observed>,
}

impl Resumed {
    pub(super) fn new(stored: StoredSession, left_open_by: Option<Arc<Holder>>) -> Self {
        let StoredSession { session, summary, damage } = stored;
        let mut differences: Vec<_> = damage.into_iter().map(Difference::Damage).collect();
        if session.is_guest() {
            differences.push(Difference::Guest);
        }
        if summary.totals.gap {
            differences.push(Difference::Gap);
        }
        if session.head().map(|head| head.id()) != Some(summary.head) {
            differences.push(Difference::Head { recorded: summary.head });
        }
        // The place of a guest is not looked at.
        let mut looked = None;
        if let Some(place) = session.place().filter(|_| !session.is_guest()) {
            match session.changes_since_record(OutdatedFiles::New) {
                Err(error) => {
                    differences.push(Difference::Place { place: place.to_string(), why: error.message() });
                }
                Ok(observed) => looked = observed,
            }
        }
        if let Some(Observed { effects, calls, .. }) = looked.as_ref().filter(|observed| !observed.effects.is_empty()) {
            // Before names are cut: half a secret would not be recognised.
            let effects = session.secrets().hide_in_effects(effects.clone());
            let paths = effects.iter().map(draw::describe_effect).collect();
            differences.push(match calls.is_empty() {
                true => Difference::Files { paths },
                false => {
                    let mut tools: Vec<_> = calls.iter().map(|call| tool_of(&session, call)).collect();
                    tools.dedup();
                    Difference::Unobserved { paths, calls: calls.clone(), tools }
                }
            });
        }
        differences.extend(in_doubt(&session).into_iter().map(|pending| Difference::InDoubt {
            call: pending.call.id,
            tool: pending.call.tool.to_string(),
            step: pending.origin.answer,
        }));
        let certificate = Certificate { differences, left_open_by, updated_tools: Vec::new() };
        Resumed { session, certificate, looked }
    }

    pub(super) fn recorded_by(self, recorder: Recorder) -> Self {
        Resumed { session: self.session.recorded_by(Some(recorder)), ..self }
    }

    /// Turns the session into a fork of itself.
    pub(super) fn forked(self) -> Self {
        // The files of a fork are the recorded ones.
        Resumed { session: self.session.fork(), looked: None, ..self }
    }

    /// Compares the tools, models and prompts of a module with those that the session knows, and adds the differences to the
    /// certificate.
    pub fn against(mut self, module: &(impl Module + Sized)) -> Self {
        // The prompt, the model and the tools of a session that was adopted were its author's.
        let own = self.session.as_record().newest_first();
        let own = own.take_while(|step| !matches!(step.chunk(), Chunk::Adopted(_)));
        let told = own.filter_map(|step| match step.chunk() {
            Chunk::Instructions(told) => Some((step.stamp().by.as_deref().unwrap_or_default(), told)),
            _ => None,
        });
        let mut seen = std::collections::HashSet::new();
        let newest: Vec<_> = told.filter(|(by, _)| seen.insert(by.to_owned())).collect();
        let certificate = &mut self.certificate;
        for (path, module) in module.named_modules() {
            let Some(now) = module.current_instructions(&self.session) else { continue };
            // A recorded path begins with the name of the outermost module; the path of a child does not.
            let is_at = |by: &str| by == path || by.split_once('.').map_or(path.is_empty(), |(_, inner)| inner == path);
            if let Some((_, known)) = newest.iter().find(|(by, _)| is_at(by)) {
                certificate.compare(&path, known, &now);
            }
        }
        certificate.updated_tools.sort();
        certificate.updated_tools.dedup();
        self
    }

    /// Returns the certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Returns the session if there is no difference. A call whose end is unknown is a difference.
    pub fn complete(self) -> Result<Session> {
        if self.certificate.is_complete() {
            return Ok(self.into_observed());
        }
        let (kind, hint) = match self.session.is_guest() {
            true => (ErrorKind::Guest, "`Resumed::adopt` takes it over, and the record says so"),
            false => (ErrorKind::Differs, "`Resumed::anyway` continues, and the record says so"),
        };
        Err(Error::new(kind, &self.certificate).with_hint(hint).with_session(&self.session))
    }

    /// Takes over a session that others made, despite all differences. See [`Session::adopt`].
    pub fn adopt(self, by: impl Into<String>) -> Session {
        self.session.adopt(by)
    }

    /// Returns the session despite all differences, and records that decision. A guest stays one.
    pub fn anyway(mut self) -> Session {
        if !self.certificate.is_complete() {
            let differences: Vec<_> = self.certificate.differences.iter().map(ToString::to_string).collect();
            self.session.push(ResumedChunk::new(differences));
        }
        self.into_observed()
    }

    /// Returns the session with the changes to its files on record, if only they differ, or calls wait for a decision.
    pub fn accept_file_changes(self) -> Result<Session> {
        let may_differ = |it: &Difference| it.is_open() || matches!(it, Difference::Files { .. });
        if self.certificate.differences.iter().all(may_differ) { Ok(self.into_observed()) } else { self.complete() }
    }

    /// Returns the session if the only differences are calls that wait for a decision, and changes that they may have made.
    ///
    /// [`Session::approve`], [`Session::skip`] or [`Session::give_result`] decide; a run stops at undecided calls. Each of them
    /// records the changes first.
    pub fn to_decide(self) -> Result<Session> {
        let is_decidable = self.certificate.differences.iter().all(Difference::is_open);
        if is_decidable { Ok(self.into_observed()) } else { self.complete() }
    }

    /// Returns the session with the state of its files on record.
    fn into_observed(mut self) -> Session {
        if let Some(looked) = self.looked {
            self.session.push(looked);
        }
        self.session
    }
}

/// The differences between a session now and the session as it was left.
///
/// Returned by [`Resumed::certificate`].
#[derive(Clone, Debug, Default)]
pub struct Certificate {
    differences: Vec<Difference>,
    left_open_by: Option<Arc<Holder>>,
    updated_tools: Vec<String>,
}

impl Certificate {
    /// Returns true if there is no difference.
    pub fn is_complete(&self) -> bool {
        self.differences.is_empty()
    }

    /// Returns the differences.
    pub fn differences(&self) -> &[Difference] {
        &self.differences
    }

    /// Returns the built-in tools that differ from those that the model was told of because rath was updated meanwhile.
    ///
    /// They are no difference: a call in the form that the model knows is accepted, and the model is told of the tools as they are now
    /// before it is asked again. A built-in tool that would refuse such a call is a [`Difference::Tool`].
    pub fn updated_tools(&self) -> &[String] {
        &self.updated_tools
    }

    /// Returns the holder that wrote the session last and did not close it.
    pub fn left_open_by(&self) -> Option<&Holder> {
        self.left_open_by.as_deref()
    }
}

/// One difference from the session as it was left.
///
/// Returned by [`Certificate::differences`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// The session was made by others, and was not [adopted](Resumed::adopt).
    Guest,
    /// A step that the session descends from is damaged or missing.
    Damage(Damage),
    /// Steps were lost before the session was stored here, as when it was salvaged.
    Gap,
    /// The newest step cannot be read.
    Head {
        /// The id of that step.
        recorded: StepId,
    },
    /// A call was started and its end is unknown.
    InDoubt {
        /// The call.
        call: CallId,
        /// The tool of the call.
        tool: String,
        /// The step with the answer that asked for the call.
        step: StepId,
    },
    /// Tools cannot run at the place of the session.
    Place {
        /// The place.
        place: String,
        /// The reason.
        why: String,
    },
    /// Files differ from the record.
    Files {
        /// The files, each with its difference.
        paths: Vec<String>,
    },
    /// Files changed after calls were started whose end was not observed: those calls changed them, or others did.
    Unobserved {
        /// The files, each with its difference.
        paths: Vec<String>,
        /// The calls.
        calls: Vec<CallId>,
        /// The tools of the calls.
        tools: Vec<String>,
    },
    /// A tool differs from the one that the model was told of.
    Tool {
        /// The path of the module that has the tool.
        module: String,
        /// The tool.
        tool: String,
        /// The difference.
        change: ToolChange,
    },
    /// Another model would be asked.
    Model {
        /// The path of the module that asks.
        module: String,
        /// The recorded model.
        recorded: String,
        /// The model of the module.
        now: String,
    },
    /// The prompt differs.
    Prompt {
        /// The path of the module that has the prompt.
        module: String,
    },
}

/// A difference between a tool and the one that the model was told of.
///
/// Part of [`Difference`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolChange {
    /// The module has no tool of that name.
    Missing,
    /// The model was not told of the tool.
    New,
    /// The schema of the arguments differs.
    Arguments,
    /// The description differs.
    Description,
}

impl fmt::Display for ToolChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ToolChange::Missing => "is missing",
            ToolChange::New => "is new",
            ToolChange::Arguments => "takes other arguments",
            ToolChange::Description => "has another description",
        })
    }
}

impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.differences[..] {
            [] => f.write_str("nothing has changed")?,
            [one] => write!(f, "{one}")?,
            more => {
                write!(f, "{} differences:", more.len())?;
                more.iter().try_for_each(|difference| write!(f, "\n- {difference}"))?;
            }
        }
        match &self.left_open_by {
            Some(holder) => write!(f, " (not closed by {holder})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = |module: &str| if module.is_empty() { String::new() } else { format!(" of `{module}`") };
        match self {
            Difference::Guest => f.write_str("the session was made by others, or copied from elsewhere"),
            Difference::Damage(damage) => write!(f, "damaged: {damage}"),
            Difference::Gap => f.write_str("parts of it were lost before it was stored here"),
            Difference::Head { recorded } => write!(f, "the newest step, {}, cannot be read", recorded.short()),
            Difference::InDoubt { call, tool, step } => {
                write!(
                    f,
                    "`{call}` ({tool}), of the answer {}, may have taken effect, and its result is unknown",
                    step.short()
                )
            }
            Difference::Place { place, why } => write!(f, "tools cannot run at {place}: {why}"),
            Difference::Files { paths } => write!(f, "files changed since the last turn: {}", list(paths)),
            Difference::Unobserved { paths, tools, .. } => {
                let tools: Vec<_> = tools.iter().map(|tool| format!("`{tool}`")).collect();
                write!(
                    f,
                    "files changed after {} started, by this call or by others: {}",
                    tools.join(", "),
                    list(paths)
                )
            }
            Difference::Tool { module, tool, change } => write!(f, "the tool `{tool}`{} {change}", whose(module)),
            Difference::Model { module, recorded, now } => {
                write!(f, "the model{} was {recorded} and is {now}", whose(module))
            }
            Difference::Prompt { module } => write!(f, "the prompt{} has changed", whose(module)),
        }
    }
}

impl Difference {
    /// Returns true if the difference is a call in doubt, or changes that one may have made.
    pub fn is_open(&self) -> bool {
        matches!(self, Difference::InDoubt { .. } | Difference::Unobserved { .. })
    }
}

/// Returns the tool of a call, or the id of a call that is not on the record.
fn tool_of(session: &Session, call: &CallId) -> String {
    let tool = session.as_record().find_newest(|step| match step.chunk() {
        Chunk::Assistant(answer) => {
            answer.calls.iter().find(|asked| asked.id == *call).map(|asked| asked.tool.to_string())
        }
        _ => None,
    });
    tool.unwrap_or_else(|| call.to_string())
}

fn list(paths: &[String]) -> String {
    let more = paths.len().saturating_sub(PATHS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", paths.iter().take(PATHS).map(String::as_str).collect::<Vec<_>>().join(", "))
}

/// The number of files that are printed.
const PATHS: usize = 10;

/// Returns the calls whose end is unknown.
fn in_doubt(session: &Session) -> Vec<PendingCall> {
    let Next::RunTools(calls) = session.next() else { return Vec::new() };
    calls.into_iter().filter(|call| call.progress.is_in_doubt()).collect()
}

impl Certificate {
    /// Compares recorded instructions with those that a module would give now.
    fn compare(&mut self, module: &str, known: &Instructions, now: &Instructions) {
        let module = module.to_owned();
        if let (Some(recorded), Some(other)) = (&known.provider, &now.provider)
            && recorded != other
        {
            let (recorded, now) = (recorded.to_string(), other.to_string());
            self.differences.push(Difference::Model { module: module.clone(), recorded, now });
        }
        if known.text != now.text {
            self.differences.push(Difference::Prompt { module: module.clone() });
        }
        let mut tool = |tool: &str, change: ToolChange, is_update: bool| match is_update {
            true => self.updated_tools.push(tool.to_owned()),
            false => {
                self.differences.push(Difference::Tool { module: module.clone(), tool: tool.to_owned(), change });
            }
        };
        for then in known.tools.iter().filter(|tool| tool.name != crate::tool::READ_OUTPUT) {
            match now.tools.iter().find(|tool| tool.name == then.name) {
                None => tool(&then.name, ToolChange::Missing, false),
                Some(same) if same.parameters != then.parameters => {
                    tool(&then.name, ToolChange::Arguments, is_update(then, same));
                }
                Some(same) if same.description != then.description => {
                    tool(&then.name, ToolChange::Description, is_update(then, same));
                }
                Some(_) => {}
            }
        }
        for new in now.tools.iter().filter(|tool| known.tools.iter().all(|known| known.name != tool.name)) {
            tool(&new.name, ToolChange::New, is_added_by_update(new, &known.tools));
        }
    }
}
