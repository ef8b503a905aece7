//! The session's policy, applied to the calls of a round.

use std::sync::Arc;

use rath_record::chunk::{Approved, Asked, Call, CallOrigin, Chunk, Denied, Outcome};
use rath_record::turn::Progress;

use super::{CallAction, CallOutcome, CallPlan, DecidedPaths, ReadyCall};
use crate::blocking::run_blocking;
use crate::links::{FollowedPath, SeenRoot};
use crate::policy::{ActivePolicy, CallFacts, Decision, Question, Reply, Use, is_inside};
use crate::sandbox::{Capabilities, Isolation, Network};
use crate::session::{Result, Session, within_limits};
use crate::tool::schedule::normalize_path;
use crate::tool::{Access, Nature, ToolCx, Touch};

/// Decides about the calls of a round: by the policy, and by a person where the policy can ask one. Decisions are recorded.
pub(super) async fn decide(session: &mut Session, plans: &mut [CallPlan]) -> Result<()> {
    let policy = session.policy().cloned();
    if policy.is_none() && !plans.iter().any(|plan| needs_decision(&plan.action)) {
        return Ok(());
    }
    let policy = policy.unwrap_or_else(|| Arc::new(ActivePolicy::new(Default::default())));
    // In a box: most rounds of sessions without a policy need no decision.
    Box::pin(decide_by(&policy, session, plans)).await
}

/// Decides about the calls of a round by a policy: that of the session, or the default one.
async fn decide_by(policy: &ActivePolicy, session: &mut Session, plans: &mut [CallPlan]) -> Result<()> {
    let is_given = session.policy().is_some();
    for plan in plans.iter_mut() {
        wait_below(session, policy, plan);
    }
    let needs_facts = |plan: &CallPlan| matches!(plan.action, CallAction::Make(_) | CallAction::AskApproval { .. });
    let surroundings = Surroundings::of(session, policy, plans).await;
    for plan in plans.iter_mut().filter(|plan| needs_facts(plan)) {
        let (mut ready, held) = match std::mem::replace(&mut plan.action, CallAction::AskEnd) {
            CallAction::Make(ready) => (ready, None),
            CallAction::AskApproval { ready, why, .. } => (ready, Some(why)),
            CallAction::Close(_) | CallAction::AskEnd | CallAction::AskBelow(_) => {
                unreachable!("these calls need no facts")
            }
        };
        let facts = surroundings.facts(&mut ready).await?;
        let is_decided = match ready.progress {
            Progress::Approved => approves(approval(session, plan), &ready),
            // It is made again: the rules of now decide, unless a person decided about this call.
            Progress::Unknown => approval(session, plan).is_some_and(|approval| approves(Some(approval), &ready)),
            Progress::Paused { .. } => true,
            _ => false,
        };
        plan.action = match (policy.decide(&facts, || session.granted_rules()), held) {
            (Decision::Deny { rule }, _) => {
                let denied = Denied::new(plan.call.id.clone(), REFUSED).with_origin(plan.origin);
                deny(session, denied.with_rule(rule))
            }
            (_, Some(why)) => ask(session, policy, (&plan.call, plan.origin), ready, &facts, (why, None)).await,
            (Decision::Ask { why, rule }, None) if !is_decided => {
                ask(session, policy, (&plan.call, plan.origin), ready, &facts, (why, Some(rule))).await
            }
            (Decision::Ask { .. }, None) => CallAction::Make(ready),
            (Decision::Allow { rule }, None) => {
                let mode = || format!("mode {}", policy.policy.mode().name());
                ready.rule = rule.or(is_given.then(mode));
                if !policy.policy.looks_at_paths() {
                    ready.decided_paths.clear();
                }
                CallAction::Make(ready)
            }
        };
    }
    Ok(())
}

const REFUSED: &str = "the rules of the user do not allow it";

/// Records why calls wait for a person, once for each.
pub(super) fn record_questions(session: &mut Session, plans: &[CallPlan]) {
    for plan in plans {
        if let CallAction::AskApproval { ready, why, rule } = &plan.action {
            record_question(session, &plan.call, ready, (why, rule.as_deref()));
        }
    }
}

/// Records a question, unless it is the last that was asked about the call.
fn record_question(session: &mut Session, call: &Call, ready: &ReadyCall, (why, rule): (&str, Option<&str>)) {
    let is_answer = |chunk: &Chunk| matches!(chunk, Chunk::Assistant(_));
    let mut since = session.as_record().newest_first().take_while(|step| !is_answer(step.chunk()));
    let last = since.find_map(|step| match step.chunk() {
        Chunk::Asked(asked) if asked.call == call.id => Some(asked),
        _ => None,
    });
    let question = Asked::new(call.id.clone(), why).with_rule(rule.map(str::to_owned)).with_subject(ready.subject());
    if last != Some(&question) {
        session.push(question);
    }
}

/// Returns the approval of a call, if it is in force.
fn approval<'a>(session: &'a Session, plan: &CallPlan) -> Option<&'a Approved> {
    session.chunks_about(plan.origin).find_map(|chunk| match chunk {
        Chunk::Approved(approved) if approved.origin == Some(plan.origin) => Some(approved),
        _ => None,
    })
}

/// Returns true if an approval is about what the call would reach now: a link may have been changed since a person was asked. Without
/// a question the person saw the arguments, and no more.
fn approves(approval: Option<&Approved>, ready: &ReadyCall) -> bool {
    match approval.and_then(|approval| approval.subject) {
        Some(subject) => subject == ready.subject(),
        None => !ready.decided_paths.lead_elsewhere(),
    }
}

/// Lets a paused call wait on, if no call below it is decided and no person can be asked.
fn wait_below(session: &Session, policy: &ActivePolicy, plan: &mut CallPlan) {
    let CallAction::Make(ReadyCall { progress: Progress::Paused { .. }, .. }) = plan.action else { return };
    let open = || session.paused_work(&plan.call.id).into_iter().flat_map(|work| work.open_calls());
    let is_undecided = |progress: &Progress| !matches!(progress, Progress::Approved | Progress::Denied { .. });
    let undecided: Vec<_> = open().filter(|pending| is_undecided(&pending.progress)).collect();
    // Of the calls of a round only some needed a decision, so one that was decided lets the workflow try again.
    if !policy.policy.can_ask() && undecided.len() == open().count() && !undecided.is_empty() {
        let calls = undecided.into_iter().map(|mut pending| {
            pending.call.id = format!("{}/{}", plan.call.id, pending.call.id).into();
            pending
        });
        plan.action = CallAction::AskBelow(calls.collect());
    }
}

/// Returns true if a decision is needed even where the session has no policy.
fn needs_decision(action: &CallAction) -> bool {
    match action {
        CallAction::Make(ready) => {
            let is_paused = matches!(ready.progress, Progress::Paused { .. });
            is_paused || ready.needs_approval || ready.uses.iter().any(Use::leaves_sandbox)
        }
        CallAction::AskApproval { .. } => true,
        CallAction::Close(_) | CallAction::AskEnd | CallAction::AskBelow(_) => false,
    }
}

/// Records the denial of a call, and returns the outcome that the model reads.
fn deny(session: &mut Session, denied: Denied) -> CallAction {
    let outcome = denial(&denied);
    session.push(denied);
    CallAction::Close(outcome)
}

/// Returns the outcome of a call that was denied while it was planned.
pub(super) fn denial(denied: &Denied) -> CallOutcome {
    let rule = denied.rule.iter().map(|rule| format!(" ({rule})")).collect::<String>();
    CallOutcome::new(Outcome::Denied, format!("denied: {}{rule}", denied.reason))
}

/// Asks a person about a call, and records the answer.
async fn ask(
    session: &mut Session,
    policy: &ActivePolicy,
    (call, origin): (&Call, CallOrigin),
    mut ready: ReadyCall,
    facts: &CallFacts,
    (why, rule): (String, Option<String>),
) -> CallAction {
    if !policy.policy.can_ask() {
        return CallAction::AskApproval { ready, why, rule };
    }
    record_question(session, call, &ready, (&why, rule.as_deref()));
    let cx = ToolCx::with_key(session.for_tool(), call.clone(), ready.key.clone());
    let preview = ready.tool.tool().preview(&cx, &ready.arguments).await;
    let module = session.module().map(str::to_owned);
    let rules = facts.rules_to_offer();
    let question = Question { call: call.clone(), module, why: why.clone(), rule: rule.clone(), preview, rules };
    // Listeners hear of steps that are durable, and a person decides with them in sight. If that fails, the next step reports it.
    let _ = session.durable().await;
    // If a limit ends the wait, there is no answer.
    let answer = within_limits(session, policy.policy.ask(question)).await.unwrap_or(Reply::Wait);
    match answer {
        Reply::Wait => CallAction::AskApproval { ready, why, rule },
        Reply::Deny { by, reason } => {
            deny(session, Denied::new(call.id.clone(), reason).with_origin(origin).with_by(by))
        }
        Reply::Allow { by, rules } => {
            let texts: Vec<_> = rules.iter().map(ToString::to_string).collect();
            policy.grant(rules);
            let approved = Approved::new(call.id.clone()).with_origin(origin).with_subject(ready.subject());
            session.push(approved.with_by(by).with_rules(texts));
            ready.progress = Progress::Approved;
            CallAction::Make(ready)
        }
    }
}

/// The surroundings of the calls that decisions depend on.
#[derive(Default)]
struct Surroundings {
    /// The directory in which paths are resolved; none if no call names one, or if it is not on this machine.
    root: Option<Arc<SeenRoot>>,
    /// The restrictions of the sandbox; none if no decision depends on them.
    capabilities: Option<Capabilities>,
}

impl Surroundings {
    async fn of(session: &Session, policy: &ActivePolicy, plans: &[CallPlan]) -> Self {
        let ready = || {
            plans.iter().filter_map(|plan| match &plan.action {
                CallAction::Make(ready) | CallAction::AskApproval { ready, .. } => Some(ready),
                CallAction::Close(_) | CallAction::AskEnd | CallAction::AskBelow(_) => None,
            })
        };
        let mut surroundings = Surroundings::default();
        // A place that cannot be opened confines nothing; the tools that need it report the error.
        let Ok(sandbox) = session.branch_sandbox().await else { return surroundings };
        if ready().any(|ready| ready.touches_paths() || !ready.uses.is_empty()) {
            let sandbox = sandbox.clone();
            let open = run_blocking(move || -> Result<_> { Ok(SeenRoot::of(&sandbox)) });
            surroundings.root = open.await.ok().flatten().map(Arc::new);
        }
        if ready().any(|ready| policy.policy.looks_at_isolation(&ready.uses)) {
            surroundings.capabilities = sandbox.capabilities().await.ok();
        }
        surroundings
    }

    /// Returns true if the sandbox isolates commands.
    fn is_confined(&self) -> bool {
        self.capabilities.as_ref().is_some_and(|it| it.isolation != Isolation::None)
    }

    /// Returns true if the sandbox lets all its commands reach what this one uses.
    fn is_reachable(&self, used: &Use) -> bool {
        let Some(capabilities) = &self.capabilities else { return false };
        match used {
            Use::Host(host) => capabilities.network == Network::On || capabilities.hosts.contains(host),
            _ => false,
        }
    }

    /// Returns the facts about a call, and notes the paths that they are about.
    async fn facts(&self, ready: &mut ReadyCall) -> Result<CallFacts> {
        // The calls of a workflow are decided one by one.
        let is_read_only = ready.nature == Nature::ReadOnly || ready.tool.tool().only_runs_workflows();
        let facts = CallFacts::new(ready.tool.name(), is_read_only, ready.needs_approval).confined(self.is_confined());
        let mut decided = DecidedPaths::new(self.root.clone());
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        let (mut read_names, mut written_names) = (Vec::new(), Vec::new());
        let touched: Vec<_> = ready.touches.iter().filter_map(Touch::path).collect();
        let all = decided.add(touched.iter().map(|(path, _)| (*path).to_owned()).collect()).await?;
        for ((given, access), FollowedPath { target, names, .. }) in touched.into_iter().zip(all) {
            // A file tool does not leave the directory: it fails.
            let name = if is_inside(&target) { target } else { normalize_path(given) };
            let (paths, others) = match access {
                Access::Read => (&mut reads, &mut read_names),
                Access::Write => (&mut writes, &mut written_names),
            };
            paths.push(name);
            others.extend(names);
        }
        let mut uses = Vec::new();
        for used in ready.uses.iter().filter(|used| !self.is_reachable(used)).cloned() {
            uses.push(match used {
                Use::Outside(given) => {
                    let target = decided.add(vec![given]).await?.remove(0).target;
                    let absolute = self.root.as_ref().map(|seen| seen.root.path().join(&target));
                    Use::Outside(absolute.map_or(target, |path| path.to_string_lossy().into_owned()))
                }
                other => other,
            });
        }
        // Given only if the call is allowed, and then exactly this: what was decided about.
        for used in &uses {
            match used {
                Use::Host(host) => ready.extra.hosts.push(host.clone()),
                Use::Outside(path) => ready.extra.writable.push(path.clone()),
                _ => {}
            }
        }
        let facts = facts.touching(reads, writes).using(uses);
        let redirects = decided.add(facts.redirects()).await?;
        written_names.extend(redirects.iter().flat_map(|path| path.names.iter().cloned()));
        let targets = redirects.into_iter().map(|path| path.target).collect();
        decided.add(facts.directories()).await?;
        ready.decided_paths = decided;
        Ok(facts.redirecting_to(targets).through(read_names, written_names))
    }
}
