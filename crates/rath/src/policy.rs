//! Policies: which calls are made, which wait for a person, and which are refused.
//!
//! A [`Policy`] belongs to the program that runs a session, never to the session's record: `session.under(policy)`. Forks and
//! the sessions of sub-agents inherit it.

mod facts;
mod guarded;
mod rule;
mod shell;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rath_record::chunk::Call;

pub(crate) use facts::CallFacts;
pub use guarded::{RunsLater, runs_later};
pub use rule::{Permission, Rule, RuleError};
pub(crate) use shell::is_inside;

use self::guarded::{is_inert, may_contain_unasked, unasked_below};
use self::rule::{PathPattern, Subject};
use crate::links::{FollowedLink, LinkGuard, Links};

/// Decides about the calls of a session: by rules, and where no rule fits by a [`Mode`].
///
/// A rule that denies comes first, then what a person allowed for this session, then rules that ask, then rules that allow.
/// So a list of rules can be extended by others' without becoming more permissive, as long as theirs only ask and deny.
///
/// A call that a person has to decide about waits: the run ends with
/// [`ErrorKind::Approval`](crate::ErrorKind::Approval), and goes on after [`Session::approve`](crate::Session::approve) or
/// [`Session::deny`](crate::Session::deny). With [`ask_with`](Policy::ask_with) the run asks and goes on by itself.
///
/// ```
/// use rath::prelude::*;
///
/// # fn main() -> rath::Result<()> {
/// let policy = Policy::new(Mode::Ask).rule("allow command cargo test *".parse()?).rule("deny read .env".parse()?);
/// let session = Session::user("Run the tests.").under(policy);
/// # let _ = session;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Policy {
    mode: Mode,
    rules: Vec<Rule>,
    asker: Option<Asker>,
}

/// A policy in force for a session, its forks and its sub-agents.
pub(crate) struct ActivePolicy {
    pub(crate) policy: Policy,
    /// The rules that a person gave while this session runs. All branches share them.
    granted: Mutex<Vec<Rule>>,
    /// The files that a rule forbids to read, by their identity: under another name they are the same.
    hidden_files: Mutex<HashSet<FileIdentity>>,
    /// The paths in a directory that are hidden, also because links lead to them, when it was looked at last.
    hidden_paths: Mutex<HashMap<PathBuf, Arc<HashSet<PathBuf>>>>,
}

/// The identity of a file on this machine: a device, a number, and the time when it was created, since numbers are used again.
pub(crate) type FileIdentity = (u64, u64, Option<SystemTime>);

/// The decision about calls that no rule fits.
///
/// A stricter mode is less than a looser one.
///
/// Passed to [`Policy::new`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Mode {
    /// Calls that change nothing are made, and all others are refused.
    ReadOnly,
    /// Calls that change nothing are made, and a person is asked about all others.
    Ask,
    /// Calls that stay in the workspace are made: changes to its files, and commands in a sandbox that isolates them. A person
    /// is asked about all others, and about files that other programs run [unasked](RunsLater::Unasked).
    Workspace,
    /// All calls are made. A call that asks to leave the walls of its sandbox still needs a rule or a person.
    #[default]
    Full,
}

impl Mode {
    /// All modes, from the strictest on.
    pub const ALL: [Mode; 4] = [Mode::ReadOnly, Mode::Ask, Mode::Workspace, Mode::Full];

    /// Returns the name of the mode, such as `read-only`.
    pub fn name(self) -> &'static str {
        match self {
            Mode::ReadOnly => "read-only",
            Mode::Ask => "ask",
            Mode::Workspace => "workspace",
            Mode::Full => "full",
        }
    }
}

/// Something that a call uses, besides the paths that it [touches](crate::tool::Tool::touches). Rules can name it.
///
/// Returned by [`Tool::uses`](crate::tool::Tool::uses).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Use {
    /// A line of shell.
    CommandLine(String),
    /// A program and its arguments.
    Program(Vec<String>),
    /// A host on the network, by its name.
    Host(String),
    /// An MCP server, by its name.
    Server(String),
    /// A file or directory outside of the workspace, by its absolute path.
    Outside(String),
}

impl Use {
    /// Returns true if a sandbox with walls has to let the call out.
    pub(crate) fn leaves_sandbox(&self) -> bool {
        matches!(self, Use::Host(_) | Use::Outside(_))
    }
}

/// A question to a person: may this call be made?
///
/// See [`Policy::ask_with`] for an example.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Question {
    /// The call.
    pub call: Call,
    /// The module that wants to make it, such as `readme.agent`.
    pub module: Option<String>,
    /// The reason why a person is asked.
    pub why: String,
    /// The rule or the mode that asks.
    pub rule: Option<String>,
    /// The change that the call would make, if the tool can tell: a diff.
    pub preview: Option<String>,
    /// The rules that would allow this call and others like it from here on. Empty if no rule can describe it.
    pub rules: Vec<Rule>,
}

/// A person's answer to a [`Question`].
///
/// See [`Policy::ask_with`] for an example.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reply {
    /// The call is made.
    Allow {
        /// The person.
        by: String,
        /// The rules that hold for later calls of the session.
        rules: Vec<Rule>,
    },
    /// The call is refused.
    Deny {
        /// The person.
        by: String,
        /// The reason, for the model.
        reason: String,
    },
    /// There is no answer now: the run ends, and the call waits.
    Wait,
}

type ReplyFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;
type Asker = Arc<dyn Fn(Question) -> ReplyFuture + Send + Sync>;

impl Policy {
    /// Creates a policy without rules.
    pub fn new(mode: Mode) -> Self {
        Policy { mode, ..Policy::default() }
    }

    /// Adds a rule.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Adds rules.
    pub fn rules(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.rules.extend(rules);
        self
    }

    /// Returns the mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Asks a person with this function while the run waits, also about the calls of sub-agents.
    ///
    /// Branches that run at the same time may ask at the same time.
    ///
    /// ```
    /// use rath::prelude::*;
    /// use rath::policy::Reply;
    ///
    /// let policy = Policy::new(Mode::Ask).ask_with(|question| async move {
    ///     println!("{} {}: {}", question.call.tool, question.call.arguments, question.why);
    ///     Reply::Deny { by: "Ann".to_owned(), reason: "not today".to_owned() }
    /// });
    /// # let _ = policy;
    /// ```
    pub fn ask_with<F>(mut self, ask: impl Fn(Question) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Reply> + Send + 'static,
    {
        self.asker = Some(Arc::new(move |question| Box::pin(ask(question))));
        self
    }

    /// Asks a person; [`Reply::Wait`] if there is none to ask.
    pub(crate) async fn ask(&self, question: Question) -> Reply {
        match &self.asker {
            Some(ask) => ask(question).await,
            None => Reply::Wait,
        }
    }

    pub(crate) fn can_ask(&self) -> bool {
        self.asker.is_some()
    }

    /// Returns true if it depends on paths which calls are allowed.
    pub(crate) fn looks_at_paths(&self) -> bool {
        let is_path =
            |rule: &Rule| matches!(rule.subject(), Subject::Read(_) | Subject::Write(_) | Subject::Outside(_));
        matches!(self.mode, Mode::Ask | Mode::Workspace) || self.rules.iter().any(is_path)
    }

    /// Returns true if the decision about a call depends on the isolation of commands.
    pub(crate) fn looks_at_isolation(&self, uses: &[Use]) -> bool {
        match self.mode {
            Mode::Workspace => !uses.is_empty(),
            _ => uses.iter().any(Use::leaves_sandbox),
        }
    }

    /// Decides about a call. `granted` returns the rules that a person gave in this session; it is called only if the decision
    /// depends on them.
    fn decide(&self, facts: &CallFacts, granted: impl FnOnce() -> Vec<Rule>) -> Decision {
        let ask = |why: &str, rule: &Rule| Decision::Ask { why: why.to_owned(), rule: rule.to_string() };
        let asked = match self.find_rule(facts, Permission::Deny) {
            Some(rule) if facts.uses(rule) => return Decision::Deny { rule: rule.to_string() },
            Some(rule) => Some(ask("a rule may forbid it", rule)),
            None => self.find_rule(facts, Permission::Ask).map(|rule| ask("a rule asks", rule)),
        };
        // The way out of the walls is a question of its own: no rule about the tool or its command answers it.
        let inside = |rules: &[Rule]| facts.allowed_inside(rules).map(Decision::allow);
        let outside = |rules: &[Rule]| facts.allowed_outside(rules).map(Decision::allow);
        let decided = inside(&self.rules).unwrap_or_else(|| self.default_inside(facts));
        let leaving = outside(&self.rules).unwrap_or_else(|| self.default_outside(facts));
        // A rule that asks does not loosen a mode that refuses.
        let all = [Some(decided.clone()), Some(leaving.clone()), asked.clone()];
        let strictest = all.into_iter().flatten().reduce(Decision::and).unwrap_or(Decision::Allow { rule: None });
        if !matches!(strictest, Decision::Ask { .. }) {
            return strictest;
        }
        let granted = granted();
        let or_granted = |decision: Decision, allowed: Option<Decision>| match decision {
            Decision::Ask { .. } => allowed.unwrap_or(decision),
            decided => decided,
        };
        let by_person = inside(&granted);
        let leaving = or_granted(leaving, outside(&granted));
        match (asked, by_person) {
            (Some(asked), None) => decided.and(leaving).and(asked),
            (Some(_), Some(allowed)) => allowed.and(leaving),
            (None, allowed) => or_granted(decided, allowed).and(leaving),
        }
    }

    /// Returns the first rule with a permission that is, or may be, about a call.
    fn find_rule(&self, facts: &CallFacts, permission: Permission) -> Option<&Rule> {
        let mut rules = self.rules.iter().filter(|rule| rule.permission() == permission);
        rules.clone().find(|rule| facts.uses(rule)).or_else(|| rules.find(|rule| facts.may_use(rule)))
    }

    /// Decides about a call that no rule fits, but for a way out of its walls.
    fn default_inside(&self, facts: &CallFacts) -> Decision {
        let rule = || format!("mode {}", self.mode.name());
        let ask = |why: String| Decision::Ask { why, rule: rule() };
        let allow = || Decision::Allow { rule: None };
        if facts.is_read_only && !facts.needs_approval {
            return allow();
        }
        match self.mode {
            Mode::ReadOnly => Decision::Deny { rule: rule() },
            _ if facts.needs_approval => ask("the tool asks for approval".to_owned()),
            Mode::Full => allow(),
            _ if facts.runs_unasked().is_some() => {
                let path = facts.runs_unasked().unwrap_or_default();
                ask(format!("other programs run {path} without being asked to"))
            }
            Mode::Ask => ask("it may change something".to_owned()),
            Mode::Workspace => match (facts.is_confined, facts.lines.is_empty(), facts.writes.is_empty()) {
                (true, false, _) | (_, true, false) => allow(),
                (false, false, _) => ask("nothing isolates its commands".to_owned()),
                (_, true, true) => ask("it may change something outside of the workspace".to_owned()),
            },
        }
    }

    /// Decides about the way out of the walls that a call asks for, where no rule does.
    fn default_outside(&self, facts: &CallFacts) -> Decision {
        // Where there are no walls there is no way out to ask for, and a mode that asks nothing.
        let asks = facts.is_confined || self.mode != Mode::Full;
        let why = match (facts.outside.first(), facts.hosts.first()) {
            (Some(path), _) if asks => format!("it would write {path}, outside of the workspace"),
            (None, Some(host)) if asks => format!("it would use the network: {host}"),
            _ => return Decision::Allow { rule: None },
        };
        let rule = format!("mode {}", self.mode.name());
        if self.mode == Mode::ReadOnly { Decision::Deny { rule } } else { Decision::Ask { why, rule } }
    }
}

impl ActivePolicy {
    pub(crate) fn new(policy: Policy) -> Self {
        ActivePolicy {
            policy,
            granted: Mutex::default(),
            hidden_files: Mutex::default(),
            hidden_paths: Mutex::default(),
        }
    }

    /// Adds rules that a person gave.
    pub(crate) fn grant(&self, rules: impl IntoIterator<Item = Rule>) {
        let mut granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        for rule in rules {
            if !granted.contains(&rule) {
                granted.push(rule);
            }
        }
    }

    /// Returns true if a rule forbids to read something.
    pub(crate) fn hides_files(&self) -> bool {
        let hides = |rule: &Rule| rule.permission() == Permission::Deny && matches!(rule.subject(), Subject::Read(_));
        self.policy.rules.iter().any(hides)
    }

    /// Returns the rule that forbids to read a file.
    pub(crate) fn hides(&self, path: &str) -> Option<String> {
        let hides = |rule: &&Rule| match rule.subject() {
            Subject::Read(pattern) => rule.permission() == Permission::Deny && pattern.matches(path),
            _ => false,
        };
        self.policy.rules.iter().find(hides).map(Rule::to_string)
    }

    /// Returns true if a file is hidden: by its path, or because it was hidden under another name before.
    pub(crate) fn hides_file(&self, path: &str, identity: Option<FileIdentity>) -> bool {
        let mut hidden = self.hidden_files.lock().unwrap_or_else(PoisonError::into_inner);
        if self.hides(path).is_some() {
            hidden.extend(identity);
            return true;
        }
        identity.is_some_and(|identity| hidden.contains(&identity))
    }

    /// Hides a file under all its names.
    pub(crate) fn hide_file(&self, identity: Option<FileIdentity>) {
        self.hidden_files.lock().unwrap_or_else(PoisonError::into_inner).extend(identity);
    }

    /// Returns the paths in a directory that are hidden, also because links lead to them; none if it was not looked at.
    pub(crate) fn hidden_paths(&self, directory: &Path) -> Option<Arc<HashSet<PathBuf>>> {
        self.hidden_paths.lock().unwrap_or_else(PoisonError::into_inner).get(directory).cloned()
    }

    /// Sets the paths in a directory that are hidden.
    pub(crate) fn set_hidden_paths(&self, directory: &Path, paths: HashSet<PathBuf>) {
        let mut targets = self.hidden_paths.lock().unwrap_or_else(PoisonError::into_inner);
        targets.insert(directory.to_owned(), Arc::new(paths));
    }

    /// Returns true if files below a directory may be guarded that no snapshot names, although it is one of dependencies or build
    /// results.
    pub(crate) fn may_guard_below(&self, directory: &str) -> bool {
        self.denied_paths().next().is_some() || (self.policy.mode != Mode::Full && may_contain_unasked(directory))
    }

    /// Returns the patterns of rules that deny, each with the number of its rule.
    fn denied_paths(&self) -> impl Iterator<Item = (usize, &PathPattern)> {
        self.policy.rules.iter().enumerate().filter_map(|(nth, rule)| match rule.subject() {
            Subject::Read(pattern) | Subject::Write(pattern) if rule.permission() == Permission::Deny => {
                Some((nth, pattern))
            }
            _ => None,
        })
    }

    /// Returns the links of a directory, with the names of those that a rule hides or guards.
    pub(crate) fn hiding_links(&self, links: &[FollowedLink]) -> Links {
        let fits_below = self.denied_paths().any(|(_, pattern)| pattern.is_anchored());
        Links::new(links, fits_below, &|name| self.link_guards(name))
    }

    /// Returns the links of a directory, with the names of those that a rule or the list of files that run unasked guards.
    pub(crate) fn guarded_links(&self, links: &[FollowedLink]) -> Links {
        Links::new(links, true, &|name| self.name_guards(name))
    }

    /// Returns the rules and the entries of the list that fit a name, or may fit names below it.
    pub(crate) fn name_guards(&self, name: &str) -> Vec<LinkGuard> {
        let mut guards = self.link_guards(name);
        guards.extend((runs_later(name) == Some(RunsLater::Unasked)).then_some(LinkGuard::Listed));
        guards.extend(unasked_below(name).map(LinkGuard::ListedBelow));
        guards
    }

    /// Returns the rules that fit a name, or may fit names below it.
    fn link_guards(&self, name: &str) -> Vec<LinkGuard> {
        let fitting = |(nth, pattern): (usize, &PathPattern)| {
            let below = pattern.names_fitting_above(name).map(move |names| LinkGuard::RuleBelow(nth, names));
            pattern.matches(name).then_some(LinkGuard::Rule(nth)).into_iter().chain(below).collect::<Vec<_>>()
        };
        self.denied_paths().flat_map(fitting).collect()
    }

    /// Returns the rules that deny to read or write a file.
    pub(crate) fn denies(&self, path: &str) -> Vec<String> {
        let fitting = self.denied_paths().filter(|(_, pattern)| pattern.matches(path));
        fitting.map(|(nth, _)| self.policy.rules[nth].to_string()).collect()
    }

    /// Returns true if not every call may leave a change of a file behind. `ignored_dir` is the ignored directory that it is in.
    pub(crate) fn guards(&self, path: &str, ignored_dir: Option<&str>) -> bool {
        let is_denied = self.denied_paths().any(|(_, pattern)| pattern.matches(path));
        is_denied || self.refuses_change(path, ignored_dir, false).is_some()
    }

    /// Returns the reason why a call may not leave a change of this file behind, if there is one. `ignored_dir` is the ignored
    /// directory that it is in.
    ///
    /// A command says nothing about the files that it writes, so they are looked at afterwards. Files that other programs run
    /// unasked may be changed by a call that a person approved.
    pub(crate) fn refuses_change(&self, path: &str, ignored_dir: Option<&str>, is_approved: bool) -> Option<String> {
        let writes = |rule: &&Rule, permission: Permission| {
            rule.permission() == permission
                && matches!(rule.subject(), Subject::Write(pattern) if pattern.matches(path))
        };
        let find = |rules: &[Rule], permission| rules.iter().find(|rule| writes(rule, permission)).map(Rule::to_string);
        if let Some(rule) = find(&self.policy.rules, Permission::Deny) {
            return Some(rule);
        }
        let granted = || self.granted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_run =
            runs_later(path) == Some(RunsLater::Unasked) && !ignored_dir.is_some_and(|dir| is_inert(path, dir));
        let is_guarded = self.policy.mode != Mode::Full && !is_approved && is_run;
        let is_allowed =
            || find(&self.policy.rules, Permission::Allow).or_else(|| find(&granted(), Permission::Allow)).is_some();
        (is_guarded && !is_allowed()).then(|| "other programs run it without being asked to".to_owned())
    }

    /// Decides about a call. `recorded` returns the rules that a person gave and the record holds.
    pub(crate) fn decide(&self, facts: &CallFacts, recorded: impl FnOnce() -> Vec<Rule>) -> Decision {
        self.policy.decide(facts, || {
            self.grant(recorded());
            self.granted.lock().unwrap_or_else(PoisonError::into_inner).clone()
        })
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules: Vec<_> = self.rules.iter().map(Rule::to_string).collect();
        f.debug_struct("Policy").field("mode", &self.mode).field("rules", &rules).finish_non_exhaustive()
    }
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Mode::ALL.map(Mode::name).join(", ");
        let found = Mode::ALL.into_iter().find(|mode| mode.name() == name);
        found.ok_or_else(|| format!("unknown mode `{name}`; known: {known}"))
    }
}

/// The decision about a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    Allow {
        /// The rule that allows it; none if the mode does.
        rule: Option<String>,
    },
    Ask {
        why: String,
        /// The rule or the mode that asks.
        rule: String,
    },
    Deny {
        rule: String,
    },
}

impl Decision {
    fn allow(rules: impl IntoIterator<Item = String>) -> Self {
        let mut rules: Vec<String> = rules.into_iter().collect();
        rules.dedup();
        Decision::Allow { rule: (!rules.is_empty()).then(|| rules.join(", ")) }
    }

    /// Returns the stricter of two decisions.
    fn and(self, other: Decision) -> Self {
        match (self, other) {
            (Decision::Allow { rule }, Decision::Allow { rule: other }) => {
                Decision::allow(rule.into_iter().chain(other))
            }
            (deny @ Decision::Deny { .. }, _) | (_, deny @ Decision::Deny { .. }) => deny,
            (_, ask @ Decision::Ask { .. }) | (ask, _) => ask,
        }
    }
}

#[cfg(test)]
mod tests;
