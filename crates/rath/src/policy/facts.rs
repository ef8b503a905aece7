//! The facts about a call, and the rules that are about it.

use super::rule::{HostName, Permission, Rule, Subject, command_matches, exact_command, exact_path, glob_matches};
use super::shell::{ShellLine, SimpleCommand};
use super::{RunsLater, Use, runs_later};

/// The facts about a call that a decision depends on.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallFacts {
    tool: String,
    pub(super) is_read_only: bool,
    pub(super) needs_approval: bool,
    /// True if the sandbox isolates commands.
    pub(super) is_confined: bool,
    pub(super) lines: Vec<ShellLine>,
    pub(super) hosts: Vec<String>,
    servers: Vec<String>,
    pub(super) outside: Vec<String>,
    reads: Vec<String>,
    pub(super) writes: Vec<String>,
    /// The names of links on the way to what the call reads.
    read_names: Vec<String>,
    /// The names of links on the way to what the call writes.
    written_names: Vec<String>,
}

impl CallFacts {
    pub(crate) fn new(tool: &str, is_read_only: bool, needs_approval: bool) -> Self {
        CallFacts { tool: tool.to_owned(), is_read_only, needs_approval, ..CallFacts::default() }
    }

    /// Sets the isolation of commands.
    pub(crate) fn confined(mut self, is_confined: bool) -> Self {
        self.is_confined = is_confined;
        self
    }

    /// Adds the paths that the call touches, with their links resolved.
    pub(crate) fn touching(mut self, reads: Vec<String>, writes: Vec<String>) -> Self {
        self.reads.extend(reads);
        self.writes.extend(writes);
        self
    }

    /// Adds what the call uses.
    pub(crate) fn using(mut self, uses: Vec<Use>) -> Self {
        for used in uses {
            match used {
                Use::CommandLine(line) => self.lines.push(ShellLine::parse(&line)),
                Use::Program(words) => {
                    let commands = vec![SimpleCommand::new(words)];
                    self.lines.push(ShellLine { commands, is_program: true, ..ShellLine::default() });
                }
                Use::Host(host) => self.hosts.push(host),
                Use::Server(server) => self.servers.push(server),
                Use::Outside(path) => self.outside.push(path),
            }
        }
        self
    }

    /// Returns the paths that lines of shell redirect output to.
    pub(crate) fn redirects(&self) -> Vec<String> {
        self.lines.iter().flat_map(|line| &line.writes).cloned().collect()
    }

    /// Returns the directories that lines of shell may change to.
    pub(crate) fn directories(&self) -> Vec<String> {
        self.lines.iter().flat_map(|line| &line.directories).cloned().collect()
    }

    /// Replaces the paths that lines of shell redirect output to by those that they lead to.
    pub(crate) fn redirecting_to(mut self, targets: Vec<String>) -> Self {
        let mut targets = targets.into_iter();
        self.lines.iter_mut().for_each(|line| line.lead_writes_to(&mut targets));
        self
    }

    /// Adds the names on the way to paths that lead through links.
    pub(crate) fn through(mut self, read_names: Vec<String>, written_names: Vec<String>) -> Self {
        self.read_names.extend(read_names);
        self.written_names.extend(written_names);
        self
    }

    fn runs_commands(&self) -> bool {
        !self.lines.is_empty()
    }

    /// Returns true if the call uses what a rule is about, under any name on the way.
    pub(super) fn uses(&self, rule: &Rule) -> bool {
        match rule.subject() {
            Subject::Tool(pattern) => glob_matches(pattern, &self.tool),
            Subject::Command(pattern) => {
                self.commands().any(|command| command.forms().iter().any(|form| command_matches(pattern, form)))
            }
            Subject::Read(pattern) => self.reads.iter().chain(&self.read_names).any(|path| pattern.matches(path)),
            Subject::Write(pattern) => self.all_writes().chain(&self.written_names).any(|path| pattern.matches(path)),
            Subject::Host(_, pattern) => {
                // A host that cannot be compared may be any.
                let may_be = |host: &String| HostName::parse(host).is_none_or(|host| pattern.overlaps(&host));
                self.hosts.iter().any(may_be)
            }
            Subject::Server(pattern) => self.servers.iter().any(|server| glob_matches(pattern, server)),
            Subject::Outside(above) => self.outside.iter().any(|path| is_below(above, path) || is_below(path, above)),
        }
    }

    /// Returns true if the call uses what a rule is about, or may do so: a line of shell may run any command if a part of it is
    /// only known when it runs.
    pub(super) fn may_use(&self, rule: &Rule) -> bool {
        let is_about_command = matches!(rule.subject(), Subject::Command(_));
        self.uses(rule) || (is_about_command && self.lines.iter().any(|line| line.is_opaque))
    }

    /// Returns the rules that allow the call but for a way out of its walls: one that allows its tool, or some that together
    /// allow all that it uses.
    pub(super) fn allowed_inside(&self, rules: &[Rule]) -> Option<Vec<String>> {
        let find = |fits: &dyn Fn(&Subject) -> bool| find_allowing(rules, fits);
        let tool = || find(&|subject| matches!(subject, Subject::Tool(pattern) if glob_matches(pattern, &self.tool)));
        let server = |name| find(&|subject| matches!(subject, Subject::Server(pattern) if glob_matches(pattern, name)));
        let command = |text: &str| {
            find(&|subject| matches!(subject, Subject::Command(pattern) if command_matches(pattern, text)))
        };
        let read = |path| find(&|subject| matches!(subject, Subject::Read(pattern) if pattern.matches(path)));
        let write = |path| find(&|subject| matches!(subject, Subject::Write(pattern) if pattern.matches(path)));
        let by_parts = || -> Option<Vec<String>> {
            let commands: Vec<_> = match find(&|subject| matches!(subject, Subject::Command(pattern) if pattern == "*"))
            {
                Some(rule) if self.runs_commands() => vec![rule],
                _ if self.lines.iter().any(ShellLine::is_unclear) => return None,
                _ => self.commands().map(|it| command(&it.text())).collect::<Option<_>>()?,
            };
            let writes = self.writes_to_allow().map(|path| write(path));
            let paths = self.reads.iter().map(|path| read(path)).chain(writes);
            let servers = self.servers.iter().map(|name| server(name));
            commands.into_iter().map(Some).chain(paths).chain(servers).collect()
        };
        // A call that uses nothing that a rule could name is allowed by its tool only.
        tool().map(|rule| vec![rule]).or_else(by_parts).filter(|rules| !rules.is_empty())
    }

    /// Returns the rules that allow the way out of its walls that the call asks for. There are none if it asks for none.
    pub(super) fn allowed_outside(&self, rules: &[Rule]) -> Option<Vec<String>> {
        let host = |name: &String| {
            let host = HostName::parse(name)?;
            find_allowing(rules, &|subject| matches!(subject, Subject::Host(_, pattern) if pattern.covers(&host)))
        };
        let outside = |path: &String| {
            find_allowing(rules, &|subject| matches!(subject, Subject::Outside(above) if is_below(above, path)))
        };
        self.hosts.iter().map(host).chain(self.outside.iter().map(outside)).collect()
    }

    /// Returns the rules that would allow this call and its like; none if rules cannot describe it.
    pub(crate) fn rules_to_offer(&self) -> Vec<Rule> {
        let hosts = self.hosts.iter().map(|host| format!("host {host}"));
        let leaving = hosts.chain(self.outside.iter().map(|path| format!("outside {path}")));
        let mut own: Vec<String> = self
            .commands()
            .map(|command| format!("command {}", exact_command(&command.text())))
            .chain(self.writes_to_allow().map(|path| format!("write {}", exact_path(path))))
            .collect();
        if own.is_empty() || self.needs_approval {
            own = vec![format!("tool {}", exact_command(&self.tool))];
        } else if self.lines.iter().any(|line| !line.can_be_a_rule()) {
            return Vec::new();
        }
        let mut rules: Vec<Rule> = Vec::new();
        for subject in own.into_iter().chain(leaving) {
            match Rule::new(Permission::Allow, &subject) {
                Ok(rule) if !rules.contains(&rule) => rules.push(rule),
                Ok(_) => {}
                Err(_) => return Vec::new(),
            }
        }
        // Rules are offered only if they have the effect that the person expects.
        let is_enough = self.allowed_inside(&rules).is_some() && self.allowed_outside(&rules).is_some();
        if is_enough { rules } else { Vec::new() }
    }

    fn commands(&self) -> impl Iterator<Item = &SimpleCommand> {
        self.lines.iter().flat_map(|line| &line.commands)
    }

    /// Returns a file that the call writes and that other programs run unasked.
    pub(super) fn runs_unasked(&self) -> Option<&str> {
        self.all_writes().chain(&self.written_names).find(|path| is_run_unasked(path)).map(String::as_str)
    }

    /// Returns the paths that rules have to fit which allow the call to write: those that it writes, and the names on the way that
    /// other programs run unasked.
    fn writes_to_allow(&self) -> impl Iterator<Item = &String> {
        self.all_writes().chain(self.written_names.iter().filter(|path| is_run_unasked(path)))
    }

    /// Returns the paths that the call writes, also by redirection.
    fn all_writes(&self) -> impl Iterator<Item = &String> {
        self.writes.iter().chain(self.lines.iter().flat_map(|line| &line.writes))
    }
}

fn is_run_unasked(path: &str) -> bool {
    runs_later(path) == Some(RunsLater::Unasked)
}

/// Returns the first rule that allows something that fits.
fn find_allowing(rules: &[Rule], fits: &dyn Fn(&Subject) -> bool) -> Option<String> {
    let mut allowing = rules.iter().filter(|rule| rule.permission() == Permission::Allow);
    allowing.find(|rule| fits(rule.subject())).map(Rule::to_string)
}

/// Returns true if a path is `above` or below it.
fn is_below(above: &str, path: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
