//! `rath gc`: delete sessions and free space.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};
use std::path::PathBuf;

use rath::gc::{
    DirectoryReport, Gc, GcReport, KeepReason, KeptFork, KeptForkReason, RetentionPlan, RetentionRule, SkipReason,
};
use rath::record::Parent;
use rath::record::draw::{count, one_line, preview};
use rath::record::lineage::Lineage;
use rath::store::{BranchSummary, DeletionRefusal, Erased};
use rath::{BranchId, Store};
use serde_json::{Value, json};

use super::forget::log_keeps;
use super::ls::misplaced_files;
use crate::configuration;
use crate::output::{self, BRANCH, CommandResult, Exit, Failure};
use crate::retention::GcRules;
use crate::sessions::{self, StoreArg};

/// Delete sessions, and free the space that is no longer needed
///
/// Versions of files, and directories of forks, are removed if no session names them: neither in this store nor in
/// another one that has recorded a session of the directory. While a process works in the directory, they stay.
///
/// Rules delete old sessions. They can be in your config.toml too, for every `rath gc` without --delete and --all:
///
///   [gc]
///   older-than = "30d"
///   max-size = "2G"
///   keep-named = true
///
/// No rule deletes a session that is running, that has calls waiting for you, or whose age is not known. If what stays in any case is
/// larger than max-size, that rule deletes nothing.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct GcArgs {
    #[command(flatten)]
    store: StoreArg,
    /// Delete a session with all of its branches; may be repeated. A session stays if another one needs steps of it, and merges with
    /// other sessions have to be named too
    #[arg(long, value_name = "SESSION")]
    delete: Vec<String>,
    /// Delete all sessions of the store
    #[arg(long, conflicts_with = "delete")]
    all: bool,
    #[command(flatten)]
    rules: GcRules,
    /// Print what would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Remove the directories of forks of deleted sessions also if they hold files that no version has: files that you changed, and
    /// ignored files such as build output
    #[arg(long)]
    force: bool,
    /// Do not keep files for the sessions of this store, because you removed it for good; may be repeated. A store that is there keeps
    /// its files
    #[arg(long, value_name = "STORE")]
    without: Vec<String>,
    /// Look at the files in this directory too, and not only in those that sessions of the store worked in
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &GcArgs) -> CommandResult {
    let store = args.store.open().await?;
    let list = store.list().await?;
    let explicit = args.explicit(&store, &list).await?;
    let plan = args.plan(&store).await?;
    let delete: Vec<BranchId> = match explicit.is_empty() {
        true => plan.delete.iter().map(|(family, _)| *family).collect(),
        false => explicit.clone(),
    };
    let mut gc = args.without.iter().fold(Gc::new(), |gc, uri| gc.without_store(uri));
    gc = if args.dry_run { gc.dry_run() } else { gc };
    gc = if args.force { gc.remove_edited_forks() } else { gc };
    if !args.dry_run {
        drop(tokio::task::spawn_blocking(rath::sandbox::sweep_temporaries_blocking));
    }
    let report = gc.run(&store, &delete, &args.directory).await;
    let report = report.map_err(sessions::explain_held)?;
    report.damaged.iter().for_each(|(family, damage)| say_damage(*family, damage));
    let refused: HashSet<_> = report.refused.iter().map(|refusal| refusal.family).collect();
    if !(report.deleted.is_empty() && explicit.iter().any(|family| refused.contains(family))) {
        args.print(&plan, &report, &list)?;
        if !args.dry_run && report.store.erased == Erased::WhenIdle {
            output::warning(&log_keeps(&store));
        }
    }
    misplaced_files(&store, &args.store).await?.iter().for_each(|text| output::warning(text));
    args.explain(&plan, report, &explicit, (&store, &list)).await
}

impl GcArgs {
    /// Returns the sessions that are named for deletion.
    async fn explicit(&self, store: &Store, list: &[BranchSummary]) -> Result<Vec<BranchId>, Failure> {
        if self.all {
            let mut families: Vec<_> = list.iter().map(|listed| listed.family).collect();
            // Sessions that damage keeps out of the list, if they can be deleted.
            let unlisted: Vec<_> = store.unlisted().await?.into_iter().filter_map(|unlisted| unlisted.branch).collect();
            if !unlisted.is_empty() && store.measure_delete(&unlisted).await.is_ok() {
                families.extend(unlisted);
            }
            families.sort();
            families.dedup();
            return Ok(families);
        }
        let all = Families::of(list);
        let (mut families, mut named) = (Vec::new(), HashMap::new());
        for name in &self.delete {
            let branch = sessions::find_branch(store, name, &self.store.option()).await?;
            let family = all.of_branch.get(&branch).copied().unwrap_or(branch);
            if named.insert(branch, family).is_none() && family == branch {
                families.push(family);
            }
        }
        for (branch, family) in &named {
            let is_whole = named.contains_key(family);
            if is_whole && branch != family {
                continue;
            }
            let merges = all.merges_with_others(store, *family).await;
            let mut together = vec![*family];
            together.extend(&merges);
            let (own, whole, hint) = (branch.short(), family.short(), self.delete_together(&together));
            if !is_whole {
                let message = format!("{own} is a branch of session {whole}, and cannot be deleted alone");
                return Err(Failure::new(message, hint));
            }
            if !merges.iter().all(|merge| named.contains_key(merge)) {
                let ids: Vec<_> = merges.iter().map(|merge| merge.short()).collect();
                let message =
                    format!("merges with other sessions are branches of {whole} and would go too: {}", ids.join(", "));
                return Err(Failure::new(message, hint));
            }
        }
        Ok(families)
    }

    /// Returns the advice to delete sessions and branches together.
    fn delete_together(&self, ids: &[BranchId]) -> String {
        let options: Vec<_> = ids.iter().map(|id| format!("--delete {}", id.short())).collect();
        let what = if ids.len() == 1 { "the session" } else { "all of them" };
        let (dry_run, deletes) = if self.dry_run { (" --dry-run", "would delete") } else { ("", "deletes") };
        format!("`rath gc {}{dry_run}{}` {deletes} {what}", options.join(" "), self.store.option())
    }

    /// Returns the sessions that the rules choose. The rules of the configuration count unless sessions are named.
    async fn plan(&self, store: &Store) -> Result<RetentionPlan, Failure> {
        let configured = configuration::gc_rules()?;
        if self.all || !self.delete.is_empty() {
            if self.rules != GcRules::default() {
                let message = "rules choose the sessions to delete, and `--delete` and `--all` name them";
                return Err(Failure::new(message, "give one or the other").with_exit(Exit::Usage));
            }
            return Ok(RetentionPlan::default());
        }
        Ok(self.rules.clone().or(configured).retention().plan(store, &self.directory).await?)
    }

    fn print(&self, plan: &RetentionPlan, report: &GcReport, list: &[BranchSummary]) -> io::Result<()> {
        if self.json {
            let files: Vec<_> = report.directories.iter().map(directory_json).collect();
            let rules: BTreeMap<_, _> =
                plan.delete.iter().map(|(id, rule)| (id.to_string(), rule_name(*rule))).collect();
            let mut kept: BTreeMap<_, _> = plan.kept.iter().map(|(id, why)| (id.to_string(), keep_text(why))).collect();
            kept.extend(report.refused.iter().map(|it| (it.family.to_string(), it.error.message())));
            let (deleted, branches, store) = (&report.deleted, &report.branches, report.store);
            let json = json!({
                "dry_run": self.dry_run, "deleted": deleted, "branches": branches, "rules": rules, "kept": kept,
                "steps": store.steps, "bytes": store.bytes, "files": files, "unreachable_size": plan.unreachable_size,
            });
            return output::data(|out| output::json_line(out, &json));
        }
        let [deleted, freed, removed] = match self.dry_run {
            true => ["would delete", "would free", "would remove"],
            false => ["deleted", "freed", "removed"],
        };
        let by_branch: HashMap<_, _> = list.iter().map(|listed| (listed.branch, listed)).collect();
        let rules: HashMap<_, _> = plan.delete.iter().copied().collect();
        output::text(|out| {
            for branch in &report.branches {
                let listed = by_branch.get(branch);
                let title = preview(listed.map_or("", |listed| &*listed.title));
                let rule = rules.get(branch).map(|rule| rule_name(*rule));
                let family = listed.map(|listed| listed.family).filter(|family| family != branch);
                let why = match (family, rule) {
                    (Some(family), _) => format!(" (branch of {})", family.short()),
                    (None, Some(rule)) => format!(" ({rule})"),
                    (None, None) => String::new(),
                };
                let title = if title.is_empty() { title } else { format!("  {title}") };
                writeln!(out, "{deleted} {BRANCH}{}{BRANCH:#}{why}{title}", branch.short())?;
            }
            let (sessions, steps) = (count(report.deleted.len() as u64, "session"), count(report.store.steps, "step"));
            writeln!(out, "{deleted} {sessions}; {freed} {steps}, {}", count(report.store.bytes, "byte"))?;
            report.directories.iter().try_for_each(|directory| print_directory(out, removed, directory))
        })
    }

    /// Says what was kept and why, and returns the exit status.
    async fn explain(
        &self,
        plan: &RetentionPlan,
        report: GcReport,
        explicit: &[BranchId],
        (store, list): (&Store, &[BranchSummary]),
    ) -> CommandResult {
        let kept = self.kept();
        for (family, why) in &plan.kept {
            output::note(&format!("{kept} {}: {}", family.short(), keep_text(why)));
        }
        if let Some(bytes) = plan.unreachable_size {
            let bytes = count(bytes, "byte");
            let deleted = if self.dry_run { "would delete" } else { "deleted" };
            output::note(&format!(
                "max-size {deleted} nothing: the sessions that are in use, wait for you or are kept by a rule have {bytes}"
            ));
        }
        let mut exit = Exit::Success;
        for directory in &report.directories {
            exit = exit.max(self.explain_directory(directory));
        }
        let explicit: HashSet<_> = explicit.iter().collect();
        for DeletionRefusal { family, error, needed_by } in report.refused {
            if !explicit.contains(&family) {
                output::note(&format!("{kept} {}: {}", family.short(), error.message()));
            } else if needed_by.is_empty() {
                return Err(sessions::explain_held(error));
            } else {
                let (mut together, all) = (Vec::new(), Families::of(list));
                for family in [family].into_iter().chain(needed_by) {
                    together.push(family);
                    together.extend(all.merges_with_others(store, family).await);
                }
                return Err(Failure::from(error).with_hint(self.delete_together(&together)));
            }
        }
        Ok(exit)
    }

    /// Returns the verb for what stays.
    fn kept(&self) -> &'static str {
        if self.dry_run { "would keep" } else { "kept" }
    }

    /// Returns the command that lets go of a store.
    fn without(&self, uri: &str) -> String {
        format!("`rath gc --without {}{}`", output::quote(uri), self.store.option())
    }

    fn explain_directory(&self, report: &DirectoryReport) -> Exit {
        let own = output::path(&report.directory.join(".rath"));
        let (kept, were) = (self.kept(), if self.dry_run { "would be" } else { "were" });
        for fork in &report.kept_forks {
            output::note(&format!("{kept} {}: {}", output::path(&fork.path), fork_text(fork)));
        }
        if !report.kept_forks.is_empty() {
            output::message!("hint: `rath gc --force{}` removes such forks", self.store.option());
        }
        for pack in &report.kept_packs {
            let pack = output::path(pack);
            output::note(&format!("{kept} {pack}: its index is lost, and it cannot be read"));
        }
        match &report.skipped {
            None => Exit::Success,
            Some(SkipReason::InUse) => {
                output::note(&format!("files in {own} {were} left alone: a process works there"));
                Exit::Success
            }
            Some(SkipReason::ReplacedStore { uri }) => {
                let message = format!("no files in {own} {were} removed: another store lies at {uri}");
                output::warning(&format!(
                    "{message}, and the versions that the earlier one named are kept\nhint: put the earlier one back; if it is \
                     gone, {} removes what only it named",
                    self.without(uri)
                ));
                Exit::Failure
            }
            Some(SkipReason::UnreadableStore { uri, why }) => {
                let message =
                    format!("no files in {own} {were} removed: {uri} may name them, and cannot be read: {why}");
                let hint = match self.store.has_uri(uri) {
                    true => format!("`rath verify{}` names the damage", self.store.option()),
                    false => format!(
                        "if it was moved, move it back; if it is gone for good, {} removes what only it named",
                        self.without(uri)
                    ),
                };
                output::warning(&format!("{message}\nhint: {hint}"));
                Exit::Failure
            }
            Some(reason) => {
                let why = if let SkipReason::Damaged { why } = reason { why } else { "they cannot be read" };
                output::warning(&format!("no files in {own} {were} removed: {why}"));
                Exit::Differs
            }
        }
    }
}

/// Says what cannot be read of a session that is deleted.
fn say_damage(family: BranchId, damage: &[String]) {
    if let Some(first) = damage.first() {
        let more = if damage.len() > 1 { format!(" (and {} more)", damage.len() - 1) } else { String::new() };
        output::note(&format!("{} is damaged: {first}{more}", family.short()));
    }
}

/// The sessions of a store, with their branches.
struct Families<'a> {
    of_branch: HashMap<BranchId, BranchId>,
    branches: HashMap<BranchId, Vec<&'a BranchSummary>>,
}

impl<'a> Families<'a> {
    fn of(list: &'a [BranchSummary]) -> Self {
        let mut branches: HashMap<_, Vec<_>> = HashMap::new();
        list.iter().for_each(|listed| branches.entry(listed.family).or_default().push(listed));
        Families { of_branch: list.iter().map(|listed| (listed.branch, listed.family)).collect(), branches }
    }

    /// Returns the branches of a session that are merges with other sessions. One that cannot be read may be such a merge.
    async fn merges_with_others(&self, store: &Store, family: BranchId) -> Vec<BranchId> {
        let branches = self.branches.get(&family).map_or(&[][..], |branches| branches);
        if branches.len() < 2 {
            return Vec::new();
        }
        let mut heads = Vec::new();
        for tip in branches.iter().filter(|listed| listed.is_tip) {
            heads.extend(store.read(tip.branch).await.ok().and_then(|found| found.session.head().cloned()));
        }
        let is_own = |parent: &Parent| {
            let branch = parent.step().map(|parent| parent.stamp().branch);
            branch.is_some_and(|branch| self.of_branch.get(&branch).is_none_or(|other| *other == family))
        };
        let (mut whole, mut merges) = (HashSet::new(), HashSet::new());
        for step in Lineage::new(heads).walk() {
            whole.insert(step.stamp().branch);
            if !step.parents().iter().all(is_own) {
                merges.insert(step.stamp().branch);
            }
        }
        let others = branches.iter().map(|listed| listed.branch).filter(|branch| *branch != family);
        others.filter(|branch| merges.contains(branch) || !whole.contains(branch)).collect()
    }
}

fn print_directory(out: &mut dyn Write, removed: &str, report: &DirectoryReport) -> io::Result<()> {
    let total = report.removed.total();
    if total.bytes == 0 && total.files == 0 {
        return Ok(());
    }
    let kinds = report.removed.kinds().into_iter().filter(|(_, kind)| kind.files > 0);
    let kinds: Vec<_> = kinds.map(|(name, kind)| count(kind.files, kind_name(name))).collect();
    let own = output::path(&report.directory.join(".rath"));
    writeln!(out, "{removed} in {own}: {}; {}", kinds.join(", "), count(total.bytes, "byte"))
}

fn kind_name(kind: &str) -> &str {
    match kind {
        "versions" => "stored version",
        "base_versions" => "shared file",
        "forks" => "fork file",
        "indexes" => "index file",
        _ => "backup file",
    }
}

fn directory_json(report: &DirectoryReport) -> Value {
    let kind = |kind: rath::workspace::FileCount| json!({"files": kind.files, "bytes": kind.bytes});
    let mut json: serde_json::Map<_, _> =
        report.removed.kinds().into_iter().map(|(name, counted)| (name.to_owned(), kind(counted))).collect();
    json.insert("directory".to_owned(), json!(report.directory));
    let fork_json = |fork: &KeptFork| json!({"path": fork.path, "why": fork_text(fork)});
    json.insert("kept_forks".to_owned(), report.kept_forks.iter().map(fork_json).collect());
    json.insert("kept_packs".to_owned(), json!(report.kept_packs));
    let skipped = report.skipped.as_ref().map(|reason| match reason {
        SkipReason::InUse => json!({"why": "in use"}),
        SkipReason::ReplacedStore { uri } => json!({"store": uri, "why": "another store lies there"}),
        SkipReason::UnreadableStore { uri, why } => json!({"store": uri, "why": why}),
        SkipReason::Damaged { why } => json!({"why": why}),
        _ => json!({"why": "unknown"}),
    });
    json.insert("skipped".to_owned(), skipped.unwrap_or_default());
    json.into()
}

fn rule_name(rule: RetentionRule) -> &'static str {
    match rule {
        RetentionRule::Age => "older-than",
        RetentionRule::Size => "max-size",
        _ => "rule",
    }
}

fn fork_text(fork: &KeptFork) -> String {
    match &fork.reason {
        KeptForkReason::Edited => "its files were changed outside of the session".to_owned(),
        KeptForkReason::Untracked { paths, count } => {
            let more = match count.saturating_sub(paths.len() as u64) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let paths: Vec<_> = paths.iter().map(|path| one_line(path)).collect();
            format!("no version has these files: {}{more}", paths.join(", "))
        }
        KeptForkReason::Unreadable { why } => format!("its files cannot be read: {why}"),
        _ => "it may be needed".to_owned(),
    }
}

fn keep_text(reason: &KeepReason) -> String {
    match reason {
        KeepReason::InUse { holder } => format!("it is being written by {holder}"),
        KeepReason::Waiting => "it has calls waiting for you".to_owned(),
        KeepReason::Named { name } => format!("its branch is named {}", preview(name)),
        KeepReason::UnknownAge => "none of its steps has a time, so it is not known how old it is".to_owned(),
        KeepReason::Damaged { why } => format!("its size is not known: {why}"),
        _ => "it is needed".to_owned(),
    }
}
