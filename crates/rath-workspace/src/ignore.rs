//! The rules of `.gitignore` files, with git's meaning.

use std::sync::Arc;

use crate::change::Digest;
use crate::glob::{self, Glob, Slash};

/// The `.gitignore` rules that apply in a directory, for callers that read the files themselves.
///
/// ```
/// # use rath_workspace::IgnoreRules;
/// let top = IgnoreRules::default().with_gitignore(b"", b"*.log\ntarget/\n");
/// let logs = top.with_gitignore(b"logs", b"!keep.log\n");
/// assert!(top.ignores(b"logs/a.log", false));
/// assert!(!logs.ignores(b"logs/keep.log", false));
/// assert!(top.ignores(b"target", true));
/// ```
#[derive(Clone, Debug, Default)]
pub struct IgnoreRules(Rules);

impl IgnoreRules {
    /// Returns these rules, extended by those of a `.gitignore` with this content in a directory below.
    ///
    /// The path of the directory has no slash at its end, and is empty for the topmost one.
    pub fn with_gitignore(&self, directory: &[u8], content: &[u8]) -> Self {
        IgnoreRules(IgnoreLevel::push(&self.0, &Arc::new(Patterns::parse(content)), directory))
    }

    /// Returns true if a path is ignored.
    ///
    /// The path must begin with that of the directory that the rules belong to. As in git, everything in an ignored
    /// directory is ignored: ask for the parent directories first.
    pub fn ignores(&self, path: &[u8], is_directory: bool) -> bool {
        ignores(&self.0, path, is_directory)
    }
}

/// The rules of a directory: those of its own `.gitignore` and of all directories above; none if there are no rules.
pub(crate) type Rules = Option<Arc<IgnoreLevel>>;

/// The rules of one `.gitignore`.
#[derive(Debug)]
pub(crate) struct IgnoreLevel {
    parent: Rules,
    patterns: Arc<Patterns>,
    /// The length of the path of its directory, with the slash at its end.
    base: usize,
    /// Identifies these rules together with all above.
    id: RulesId,
}

/// Identifies the rules of a directory. All zeros stand for no rules.
pub(crate) type RulesId = [u8; 16];

/// The lines of one `.gitignore`.
#[derive(Debug)]
pub(crate) struct Patterns {
    list: Vec<Pattern>,
    digest: Digest,
}

/// One line of a `.gitignore`.
#[derive(Debug)]
struct Pattern {
    /// The part before the first wildcard.
    literal: Vec<u8>,
    /// The whole pattern, or the part after the literal one if paths are matched; none without a wildcard.
    glob: Option<Glob>,
    /// True for a pattern that begins with `!`.
    negative: bool,
    /// True for a pattern that ends with a slash, and matches directories only.
    directories: bool,
    /// True for a pattern without a slash, which matches names at any depth.
    name: bool,
}

/// The longest pattern. No path that a longer one matches could be opened.
const MAX_PATTERN_BYTES: usize = 4096;

impl Patterns {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let digest = Digest::compute(bytes);
        let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let list = text.split(|byte| *byte == b'\n').filter_map(Pattern::parse).collect();
        Patterns { list, digest }
    }

    fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

impl IgnoreLevel {
    /// Returns the rules of a directory with its own patterns, below those of its parent.
    pub(crate) fn push(parent: &Rules, patterns: &Arc<Patterns>, path: &[u8]) -> Rules {
        if patterns.is_empty() {
            return parent.clone();
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&rules_id(parent));
        hasher.update(&patterns.digest.0);
        let mut id = RulesId::default();
        id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        let base = if path.is_empty() { 0 } else { path.len() + 1 };
        Some(Arc::new(IgnoreLevel { parent: parent.clone(), patterns: patterns.clone(), base, id }))
    }
}

/// An id that no rules have.
pub(crate) const OTHER_RULES: RulesId = [0xff; 16];

/// Returns the id of rules.
pub(crate) fn rules_id(rules: &Rules) -> RulesId {
    rules.as_ref().map(|level| level.id).unwrap_or_default()
}

/// Returns true if a path is ignored. No directory above the path may be ignored.
pub(crate) fn ignores(rules: &Rules, path: &[u8], is_directory: bool) -> bool {
    let mut next = rules;
    while let Some(level) = next {
        let path = &path[level.base..];
        if let Some(pattern) = level.patterns.list.iter().rev().find(|pattern| pattern.matches(path, is_directory)) {
            return !pattern.negative;
        }
        next = &level.parent;
    }
    false
}

impl Pattern {
    fn parse(line: &[u8]) -> Option<Self> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.starts_with(b"#") || line.len() > MAX_PATTERN_BYTES {
            return None;
        }
        let line = &line[..memchr::memchr(0, line).unwrap_or(line.len())];
        let line = trim_trailing_spaces(line);
        let (line, negative) = line.strip_prefix(b"!").map_or((line, false), |line| (line, true));
        let (line, directories) = line.strip_suffix(b"/").map_or((line, false), |line| (line, true));
        if line.is_empty() {
            return None;
        }
        let name = memchr::memchr(b'/', line).is_none();
        let text = line.strip_prefix(b"/").unwrap_or(line);
        let (literal, rest) = text.split_at(text.iter().position(|byte| glob::is_special(*byte)).unwrap_or(text.len()));
        // As in git, the literal part of a path is removed before matching, so a `**` after it counts as if it came first.
        let glob = (!rest.is_empty()).then(|| match name {
            true => Glob::new(text, Slash::Any),
            false => Glob::new(rest, Slash::Literal),
        });
        Some(Pattern { literal: literal.to_vec(), glob, negative, directories, name })
    }

    fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        if self.directories && !is_directory {
            return false;
        }
        let value = match memchr::memrchr(b'/', path).filter(|_| self.name) {
            Some(slash) => &path[slash + 1..],
            None => path,
        };
        match &self.glob {
            None => value == self.literal,
            Some(_) if !value.starts_with(&self.literal) => false,
            Some(glob) => glob.matches(if self.name { value } else { &value[self.literal.len()..] }),
        }
    }
}

/// Removes spaces at the end, unless they are escaped.
fn trim_trailing_spaces(line: &[u8]) -> &[u8] {
    let mut end = None;
    let mut at = 0;
    while at < line.len() {
        match line[at] {
            b' ' => end = end.or(Some(at)),
            b'\\' => {
                // A backslash at the end is not an escape, and nothing is removed.
                if at + 1 == line.len() {
                    return line;
                }
                at += 1;
                end = None;
            }
            _ => end = None,
        }
        at += 1;
    }
    &line[..end.unwrap_or(line.len())]
}
