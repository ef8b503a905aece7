//! Rules: a permission for the calls that a pattern fits.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use rath_workspace::IgnoreRules;

/// The answer of a rule, the strictest last.
///
/// Part of [`Rule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// The call is made.
    Allow,
    /// A person is asked first.
    Ask,
    /// The call is refused, and the model is told so.
    Deny,
}

/// A permission for calls that use something: a tool, a command, a file, a host, a server.
///
/// The text of a rule is its permission, a kind, and a pattern:
///
/// | kind | pattern |
/// |---|---|
/// | `tool` | the name of a tool; `*` stands for any characters |
/// | `command` | a command as it is typed; `*` stands for any characters, and ` *` at the end also for none |
/// | `read`, `write` | a path in the workspace, as in a `.gitignore` |
/// | `host` | a host name; `*.example.com` stands for every host below it |
/// | `server` | the name of an MCP server |
/// | `outside` | an absolute path outside of the workspace, and everything below it |
///
/// ```
/// use rath::policy::{Permission, Rule};
///
/// # fn main() -> rath::Result<()> {
/// let rule: Rule = "deny command git push *".parse()?;
/// assert_eq!(rule.permission(), Permission::Deny);
/// assert_eq!(rule.to_string(), "deny command git push *");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    permission: Permission,
    subject: Subject,
}

/// The things that a rule is about.
#[derive(Clone, Debug)]
pub(super) enum Subject {
    Tool(String),
    Command(String),
    Read(PathPattern),
    Write(PathPattern),
    Host(String, HostName),
    Server(String),
    Outside(String),
}

/// A pattern for paths in the workspace.
#[derive(Clone, Debug)]
pub(super) struct PathPattern {
    text: String,
    rules: IgnoreRules,
    /// The patterns of the directories on the way to what this one fits, the outermost first.
    above: Vec<IgnoreRules>,
    /// The path of the workspace below the directory that the pattern is about.
    prefix: String,
}

/// A text that is no rule.
///
/// Returned by [`Rule::from_str`](FromStr::from_str).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a rule: {problem}")]
pub struct RuleError {
    text: String,
    problem: String,
}

/// The size of the longest pattern.
const MAX_PATTERN_BYTES: usize = 2000;

const KINDS: &str = "tool, command, read, write, host, server, outside";

impl Rule {
    /// Creates a rule from the text behind its permission: `command cargo test *`.
    ///
    /// ```
    /// use rath::policy::{Permission, Rule};
    ///
    /// # fn main() -> rath::Result<()> {
    /// let rule = Rule::new(Permission::Allow, "write docs/")?;
    /// assert_eq!(rule.to_string(), "allow write docs/");
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(permission: Permission, subject: &str) -> Result<Self, RuleError> {
        let problem = |problem: String| RuleError { text: format!("{permission} {}", subject.trim()), problem };
        let (kind, pattern) = subject.trim_start().split_once(char::is_whitespace).unwrap_or((subject.trim(), ""));
        let trimmed = pattern.trim();
        // As in a `.gitignore`, a space at the end counts if it is escaped.
        let pattern = if trimmed.ends_with('\\') { pattern.trim_start() } else { trimmed };
        if !KINDS.split(", ").any(|known| known == kind) {
            return Err(problem(format!("unknown kind `{kind}`; known: {KINDS}")));
        }
        if pattern.is_empty() {
            return Err(problem(format!("a pattern is missing after `{kind}`")));
        }
        if pattern.len() > MAX_PATTERN_BYTES || pattern.contains(|it: char| it.is_control()) {
            let message = format!("a pattern has at most {MAX_PATTERN_BYTES} bytes and no control characters");
            return Err(problem(message));
        }
        let path = || PathPattern::new(pattern).map_err(problem);
        let subject = match kind {
            "tool" => Subject::Tool(pattern.to_owned()),
            "command" => Subject::Command(pattern.to_owned()),
            "read" => Subject::Read(path()?),
            "write" => Subject::Write(path()?),
            "host" => {
                let host = HostName::parse(pattern).ok_or_else(|| problem(format!("`{pattern}` is no host")))?;
                Subject::Host(pattern.to_owned(), host)
            }
            "server" => Subject::Server(pattern.to_owned()),
            _ if !pattern.starts_with('/') => return Err(problem("the path has to begin with `/`".to_owned())),
            _ => Subject::Outside(pattern.trim_end_matches('/').to_owned()),
        };
        Ok(Rule { permission, subject })
    }

    /// Returns the rule for a workspace that lies at `prefix` below the directory that the rule's path is about.
    ///
    /// ```
    /// use rath::policy::Rule;
    ///
    /// # fn main() -> rath::Result<()> {
    /// let rule: Rule = "deny write /app/settings.toml".parse()?;
    /// let rule_in_app = rule.in_directory("app"); // forbids to write `settings.toml` there
    /// # let _ = rule_in_app;
    /// # Ok(())
    /// # }
    /// ```
    pub fn in_directory(mut self, prefix: &str) -> Self {
        if let Subject::Read(path) | Subject::Write(path) = &mut self.subject {
            path.prefix = prefix.trim_matches('/').to_owned();
        }
        self
    }

    /// Returns the permission.
    pub fn permission(&self) -> Permission {
        self.permission
    }

    pub(super) fn subject(&self) -> &Subject {
        &self.subject
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let (permission, subject) = text.trim_start().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
        let permission = match permission {
            "allow" => Permission::Allow,
            "ask" => Permission::Ask,
            "deny" => Permission::Deny,
            other => {
                let problem = format!("wanted allow, ask or deny, found `{other}`");
                return Err(RuleError { text: text.to_owned(), problem });
            }
        };
        Rule::new(permission, subject)
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Permission::Allow => "allow",
            Permission::Ask => "ask",
            Permission::Deny => "deny",
        })
    }
}

/// Writes the text that the rule is read from.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.permission, self.subject)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, pattern) = match self {
            Subject::Tool(pattern) => ("tool", pattern),
            Subject::Command(pattern) => ("command", pattern),
            Subject::Read(path) => ("read", &path.text),
            Subject::Write(path) => ("write", &path.text),
            Subject::Host(pattern, _) => ("host", pattern),
            Subject::Server(pattern) => ("server", pattern),
            Subject::Outside(path) => ("outside", path),
        };
        write!(f, "{kind} {}", if pattern.is_empty() { "/" } else { pattern })
    }
}

impl PartialEq for Subject {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl PathPattern {
    fn new(text: &str) -> Result<Self, String> {
        if text.starts_with(['!', '#']) || text.contains('\n') {
            return Err(format!("a path pattern cannot begin with `{}`", text.chars().next().unwrap_or_default()));
        }
        let rules = |text: &str| IgnoreRules::default().with_gitignore(b"", text.as_bytes());
        let names = text.trim_matches('/');
        let above = names.match_indices('/').map(|(end, _)| rules(&format!("/{}", &names[..end]))).collect();
        Ok(PathPattern { text: text.to_owned(), rules: rules(text), above, prefix: String::new() })
    }

    /// Returns true if the pattern is about where a path is, and not only about its last names.
    pub(super) fn is_anchored(&self) -> bool {
        self.text.trim_end_matches('/').contains('/')
    }

    /// Returns true if the pattern fits a path, or a directory that holds it.
    pub(super) fn matches(&self, path: &str) -> bool {
        let path: &str = &self.full_path(path);
        let parents = path.match_indices('/').map(|(end, _)| &path[..end]);
        parents.chain([path]).any(|above| self.rules.ignores(above.as_bytes(), true))
            || self.rules.ignores(path.as_bytes(), false)
    }

    /// Returns how many of its names the pattern fits to a directory, if it may fit paths below it: each number of names there is.
    pub(super) fn names_fitting_above(&self, directory: &str) -> impl Iterator<Item = usize> {
        let path = self.full_path(directory);
        let fitting = self.above.iter().enumerate().filter(move |(_, above)| above.ignores(path.as_bytes(), true));
        fitting.map(|(nth, _)| nth + 1)
    }

    fn full_path(&self, path: &str) -> String {
        match (self.prefix.as_str(), path) {
            ("", path) => path.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, path) => format!("{prefix}/{path}"),
        }
    }
}

/// Returns the pattern that fits one path and nothing beside it.
pub(super) fn exact_path(path: &str) -> String {
    format!("/{}", escape(path, &['*', '?', '[', '\\', ' ']))
}

/// Returns the pattern that fits one command and no other.
pub(super) fn exact_command(text: &str) -> String {
    escape(text, &['*', '\\'])
}

fn escape(text: &str, special: &[char]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if special.contains(&character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// Returns true if a command fits a pattern: ` *` at its end also fits nothing.
pub(super) fn command_matches(pattern: &str, text: &str) -> bool {
    pattern.strip_suffix(" *").is_some_and(|start| glob_matches(start, text)) || glob_matches(pattern, text)
}

/// A host as a rule or a call names it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HostName {
    /// A name, an address, or `*` and the end of a name. Every name of this machine is `localhost`.
    name: String,
    port: Option<u16>,
}

impl HostName {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => match rest.split_once(']')? {
                (name, "") => (name, None),
                (name, port) => (name, Some(port.strip_prefix(':')?)),
            },
            None if text.parse::<IpAddr>().is_ok() => (text.as_str(), None),
            None => text.rsplit_once(':').map_or((text.as_str(), None), |(name, port)| (name, Some(port))),
        };
        let port = match port {
            Some(port) => Some(port.parse().ok()?),
            None => None,
        };
        let name = name.trim_end_matches('.');
        let is_plain = |it: char| it.is_ascii_alphanumeric() || "-._:*".contains(it);
        if name.is_empty() || !name.chars().all(is_plain) {
            return None;
        }
        let is_here = name.parse::<IpAddr>().is_ok_and(|address| {
            let address = address.to_canonical();
            address.is_loopback() || address.is_unspecified()
        });
        let is_here = is_here || name == "localhost" || name.ends_with(".localhost");
        Some(HostName { name: if is_here { "localhost".to_owned() } else { name.to_owned() }, port })
    }

    /// Returns true if a rule for this host covers another.
    pub(super) fn covers(&self, other: &HostName) -> bool {
        const USUAL_PORTS: [u16; 2] = [80, 443];
        let covers_port = match (self.port, other.port) {
            (Some(port), other) => other == Some(port),
            (None, Some(port)) => USUAL_PORTS.contains(&port),
            (None, None) => true,
        };
        // `*` is every host of the internet, and not this machine or an address.
        let is_name = other.name != "localhost" && !other.is_address();
        let covers_name = match self.name.strip_prefix('*') {
            Some("") => is_name,
            Some(end) => is_name && end.starts_with('.') && other.name.ends_with(end),
            None => self.name == other.name,
        };
        covers_port && covers_name
    }

    /// Returns true if a host may be meant by both.
    pub(super) fn overlaps(&self, other: &HostName) -> bool {
        let same_port = self.port.is_none() || other.port.is_none() || self.port == other.port;
        let within = |wide: &HostName, one: &HostName| match wide.name.strip_prefix('*') {
            Some(end) => one.name.ends_with(end),
            None => wide.name == one.name,
        };
        // An address that is written as one number, or with fewer dots, may be any.
        let is_odd = |host: &HostName| host.is_address() && host.name.parse::<IpAddr>().is_err();
        let is_machine = |host: &HostName| host.is_address() || host.name == "localhost";
        let may_be_same = (is_odd(self) && is_machine(other)) || (is_odd(other) && is_machine(self));
        same_port && (within(self, other) || within(other, self) || may_be_same)
    }

    /// Returns true if this is an address, in whatever way it is written.
    fn is_address(&self) -> bool {
        let last = self.name.rsplit('.').next().unwrap_or_default();
        self.name.contains(':') || last.starts_with(|it: char| it.is_ascii_digit())
    }
}

/// Returns true if a text fits a pattern in which `*` stands for any characters, and `\` takes the next one as it is.
///
/// The time is at most the product of both lengths.
pub(super) fn glob_matches(pattern: &str, text: &str) -> bool {
    /// An element of a pattern.
    #[derive(PartialEq)]
    enum GlobPart {
        Any,
        One(char),
    }
    let mut parts = Vec::new();
    let mut chars = pattern.chars();
    while let Some(next) = chars.next() {
        parts.push(match next {
            '*' => GlobPart::Any,
            '\\' => GlobPart::One(chars.next().unwrap_or('\\')),
            next => GlobPart::One(next),
        });
    }
    let text: Vec<char> = text.chars().collect();
    let (mut part, mut at) = (0, 0);
    // The last `*` that was passed, and the place in the text up to which it stands.
    let mut last_any: Option<(usize, usize)> = None;
    while at < text.len() {
        match parts.get(part) {
            Some(GlobPart::Any) => {
                last_any = Some((part, at));
                part += 1;
            }
            Some(GlobPart::One(wanted)) if *wanted == text[at] => (part, at) = (part + 1, at + 1),
            _ => match &mut last_any {
                Some((any, end)) => {
                    *end += 1;
                    (part, at) = (*any + 1, *end);
                }
                None => return false,
            },
        }
    }
    parts[part..].iter().all(|part| *part == GlobPart::Any)
}

#[cfg(test)]
mod tests {
    use super::{HostName, Rule, Subject, command_matches, exact_command, exact_path, glob_matches};

    #[test]
    fn a_rule_is_written_as_it_is_read() {
        for text in [
            "allow tool shell",
            "ask command git push *",
            "deny read .env",
            "allow write /src/**/*.rs",
            "deny host *.example.com",
            "ask server files",
            "allow outside /tmp/x",
        ] {
            assert_eq!(text.parse::<Rule>().map(|rule| rule.to_string()).as_deref(), Ok(text));
        }
        for (text, problem) in [
            ("", "`` is not a rule: wanted allow, ask or deny, found ``"),
            ("permit tool a", "`permit tool a` is not a rule: wanted allow, ask or deny, found `permit`"),
            (
                "allow shell",
                "`allow shell` is not a rule: unknown kind `shell`; known: tool, command, read, write, host, server, outside",
            ),
            ("allow tool ", "`allow tool` is not a rule: a pattern is missing after `tool`"),
            ("deny write !a", "`deny write !a` is not a rule: a path pattern cannot begin with `!`"),
            ("allow outside a", "`allow outside a` is not a rule: the path has to begin with `/`"),
        ] {
            assert_eq!(text.parse::<Rule>().expect_err(text).to_string(), problem);
        }
    }

    #[test]
    fn patterns_fit_what_they_say() {
        let path = |pattern: &str, path: &str| match format!("allow read {pattern}").parse::<Rule>() {
            Ok(Rule { subject: Subject::Read(pattern), .. }) => pattern.matches(path),
            other => panic!("{other:?}"),
        };
        for (pattern, fitting, other) in [
            (".env", ".env a/b/.env .env/x", ".envrc env"),
            ("src/", "src/a src/a/b", "lib/a a/srcs/b"),
            ("/src/*.rs", "src/a.rs", "src/a/b.rs a/src/b.rs"),
            ("src/**/*.rs", "src/a.rs src/a/b.rs", "src/a.py"),
        ] {
            assert!(fitting.split(' ').all(|it| path(pattern, it)), "{pattern}: {fitting}");
            assert!(!other.split(' ').any(|it| path(pattern, it)), "{pattern}: {other}");
        }
        let below = "deny write /app/a".parse::<Rule>().map(|rule| rule.in_directory("app/"));
        assert!(
            matches!(below, Ok(Rule { subject: Subject::Write(path), .. }) if path.matches("a") && !path.matches("app/a"))
        );
        for name in ["a*b", "a b ", "[x]", "a\\b", "a?", "!a", "#a", "-"] {
            assert!(path(&exact_path(name), name), "{name}");
            assert!(!path(&exact_path(name), "x"), "{name}");
        }
        assert!(command_matches("git push *", "git push") && command_matches("git push *", "git push origin"));
        assert!(!command_matches("git push *", "git pushx") && !command_matches("git push", "git push x"));
        assert!(
            command_matches(&exact_command("rm * \\"), "rm * \\") && !command_matches(&exact_command("rm *"), "rm a")
        );
        assert!(glob_matches("a*b*c", "aXbXbXc") && !glob_matches("a*b*c", "acb") && glob_matches("*", ""));
        assert!(!glob_matches(&"*a".repeat(500), &"a".repeat(400)));
        let host = |text: &str| HostName::parse(text).expect(text);
        for (rule, fitting, other) in [
            ("a.com", "a.com A.COM. a.com:443", "b.com a.com:22 x.a.com *.a.com"),
            ("*.a.com", "b.a.com *.a.com b.c.a.com:80", "a.com xa.com *.com"),
            (
                "*",
                "a.com *.com",
                "localhost 127.0.0.1 ::1 0.0.0.0 10.0.0.1 [::ffff:127.0.0.1] 3221225986 3221225986:80 127.1 0x7f.1",
            ),
            ("localhost:8080", "localhost:8080 127.0.0.1:8080 [::1]:8080 x.localhost:8080", "localhost localhost:80"),
        ] {
            assert!(fitting.split(' ').all(|it| host(rule).covers(&host(it))), "{rule}: {fitting}");
            assert!(!other.split(' ').any(|it| host(rule).covers(&host(it))), "{rule}: {other}");
        }
        for (rule, other) in [
            ("127.0.0.1", "localhost:80"),
            ("localhost", "0.0.0.0"),
            ("127.0.0.1", "::ffff:127.0.0.1"),
            ("a.b.test", "*.b.test"),
            ("*.b.test", "*.test"),
            ("a.com", "a.com:22"),
            ("192.0.2.2", "192.0.514"),
            ("localhost", "0x7f.1"),
        ] {
            assert!(host(rule).overlaps(&host(other)), "{rule} {other}");
        }
        assert!(["", "a b", "a/b", "a@b", "[a", "[::1]x"].iter().all(|it| HostName::parse(it).is_none()));
    }
}
