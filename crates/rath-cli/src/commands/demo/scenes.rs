//! The scenes of the demo around the crash: two repairs, of which one is chosen and merged, and the end of the work.

use rath::chunk::Verdict;
use rath::flow::Module;
use rath::memory::Note;
use rath::prelude::*;
use rath::record::draw::count;
use rath::store::Create;
use rath::{BranchId, Difference};

use super::directory::DemoDirectory;
use super::printer::{EventLines, heading, line, say, verdict_text};
use super::team::{self, Team};
use crate::agent::{describe_change, secrets};
use crate::output::{self, Failure, ID};
use crate::sandboxes;
use crate::sessions;

/// The branches of a repair that was chosen.
pub(super) struct RepairBranches {
    /// The branch with the files of both repairs joined.
    pub(super) merged: BranchId,
    pub(super) rest: BranchId,
    pub(super) even: BranchId,
}

/// Finds the bug, repairs it on two branches at the same time, and merges the repair that passes the tests. Returns the
/// branches, and the store, which has to be closed.
pub(super) async fn repair(directory: &DemoDirectory, team: &Team) -> Result<(RepairBranches, Store), Failure> {
    let store = rath::store::Registry::new().open_as(&directory.store(), Create::IfMissing).await?;
    let store = store.hiding(&secrets()).sandboxes(sandboxes::kinds());
    let session = Session::user("`sh test.sh` fails. Repair split.sh.").hiding(secrets());
    let session = session.to(sandbox(directory).await?).record(&store).await?;

    let session = find_cause(directory, team, session).await?;
    let [rest, even] = repair_twice(team, &session).await?;
    let branches = (rest.id(), even.id());
    let merged = choose(team, session, rest, even).await?;
    Ok((RepairBranches { merged: merged.id(), rest: branches.0, even: branches.1 }, store))
}

/// Returns the isolated sandbox of the directory where the machine allows it, and a local one elsewhere. Says which.
async fn sandbox(directory: &DemoDirectory) -> Result<Sandbox, Failure> {
    let isolated = sandboxes::usable_sandbox(Sandbox::isolated(directory.path())).await;
    let sandbox = match isolated.capabilities().await {
        Ok(_) => isolated,
        Err(_) => Sandbox::local(directory.path()),
    };
    sandboxes::print_sandbox_in(&sandbox, &output::path(directory.path()), true).await?;
    Ok(sandbox)
}

/// Lets an agent look at the failure. It knows the user's rule from the memory, where an earlier session could have put it.
async fn find_cause(directory: &DemoDirectory, team: &Team, session: Session) -> Result<Session, Failure> {
    heading(1, "A test fails, and the memory has a rule about it");
    Memory::open(&directory.memory()).await?.remember(Note::new(team::RULE)).await?;
    let mut lines = EventLines::of("lead");
    let mut session = team.lead.run(session).on_event(move |event| lines.print(event)).await?;
    team.lead.commit(&mut session).await?;
    Ok(session)
}

/// Runs two agents at the same time, each on a fork with files of its own.
async fn repair_twice(team: &Team, session: &Session) -> Result<[Session; 2], Failure> {
    heading(2, "Two agents repair it at the same time, each in its own files");
    let fork = |name: &str| {
        let mut fork = session.fork_named(name);
        fork.push(Chunk::user("Repair it: no cent of a bill may be lost."));
        fork
    };
    let (mut rest_lines, mut even_lines) = (EventLines::of("rest"), EventLines::of("even"));
    let rest = team.rest.run(fork("rest")).on_event(move |event| rest_lines.print(event));
    let even = team.even.run(fork("even")).on_event(move |event| even_lines.print(event));
    let (rest, even) = tokio::try_join!(rest.into_future(), even.into_future())?;
    Ok([rest, even])
}

/// Lets the selector choose one of the repairs by their checks, and merges it.
async fn choose(team: &Team, mut session: Session, rest: Session, even: Session) -> Result<Session, Failure> {
    heading(3, "A selector chooses by the checks, and the choice is merged");
    let routes = [Takeover::new("rest", &rest, &even), Takeover::new("even", &even, &rest)];
    for route in &routes {
        line(route.branch, format_args!("{} {}", team::TESTS, verdict_text(route.verdict)));
    }
    let picked = team.selector.pick(&mut session, &[&routes[0], &routes[1]]).await?;
    let Some(route) = picked else {
        return Err(Failure::new("the selector chose no repair", "`rath log` shows what it was asked"));
    };
    say("selector", &format!("chooses {}", route.name().unwrap_or_default()));
    let mut session = route.run(session).await?;
    session.update_files().await?;
    let passed = verdict_text(Verdict::Passed);
    let id = session.id().short();
    line("merged", format_args!("as {ID}{id}{ID:#}; {} {passed} on the merged files", team::TESTS));
    let fact = "Differences of running totals lose no cent.";
    say("even", &format!("remembers: {fact}"));
    team.even.remember(&mut session, fact).await?;
    team.even.commit(&mut session).await?;
    Ok(session)
}

/// Goes on after the crash: says what is not certain, decides about it, and lets the agent finish.
pub(super) async fn resume(directory: &DemoDirectory, branch: BranchId) -> Result<Session, Failure> {
    heading(5, "The session goes on where it was");
    let team = Team::new(directory, team::AFTER_CRASH).await?;
    let store = sessions::open(&directory.store(), Create::Never).await?;
    let resumed = store.resume(branch).await?;
    let differences = resumed.certificate().differences().to_vec();
    differences.iter().for_each(|difference| say("rath", &describe_change(difference)));
    let mut session = resumed.to_decide()?;
    for difference in &differences {
        let Difference::InDoubt { call, .. } = difference else { continue };
        say("user", "do not make it again (as `rath review --skip` decides)");
        session.skip(call.clone()).await?;
    }
    let mut lines = EventLines::of("release");
    let session = team.release.run(session).on_event(move |event| lines.print(event)).await?;
    session.require_check(team::TESTS).await?;
    Ok(session)
}

/// Takes over the repair of one branch, and keeps that of the other aside.
struct Takeover {
    branch: &'static str,
    name: String,
    /// The verdict of the newest check on the branch, which the selector's model reads.
    verdict: Verdict,
    description: String,
    chosen: Session,
    other: Session,
}

impl Takeover {
    fn new(branch: &'static str, chosen: &Session, other: &Session) -> Self {
        let verdict = chosen.checks().list.get(team::TESTS).map_or(Verdict::Broken, |check| check.checked.verdict);
        let how = match verdict {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            _ => "did not run",
        };
        let files = count(chosen.files().list.len() as u64, "file");
        let description = format!("`{}` {how}, {files} changed", team::TESTS);
        let (name, chosen, other) = (format!("merge_{branch}"), chosen.clone(), other.clone());
        Takeover { branch, name, verdict, description, chosen, other }
    }
}

impl Module for Takeover {
    fn kind(&self) -> &str {
        "Takeover"
    }

    fn name(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn description(&self) -> &str {
        &self.description
    }
}

impl Workflow for Takeover {
    async fn forward(&self, session: Session) -> Result<Session> {
        let mut merged = session.merge(&self.chosen).await?;
        merged.keep_aside(&self.other);
        // The gate: a choice against the checks goes no further.
        merged.require_check(team::TESTS).await?;
        Ok(merged)
    }
}
