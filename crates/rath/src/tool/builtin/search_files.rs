//! The tool that searches files for a regular expression.

use rath_record::chunk::ToolSpec;
use regex::bytes::{Regex, RegexBuilder};
use serde_json::{Value, json};

use super::nearest_paths::with_nearest_paths;
use super::tree::{Child, Directory, MAX_DEPTH};
use super::{count, file_error, spec, text};
use crate::error::ErrorKind;
use crate::sandbox::{ByteRange, FileKind, Sandbox};
use crate::secrets::Secrets;
use crate::session::{Error, Result};
use crate::tool::{Nature, Output, Tool, ToolCx, Touch};
use crate::workspace::IgnoreRules;

/// Searches files for a regular expression.
///
/// Part of [`read_only`](super::read_only).
#[derive(Clone, Copy, Debug)]
pub struct SearchFiles;

/// The number of matching lines that are shown.
const MAX_MATCHES: usize = 200;
/// The number of files that are searched.
const MAX_FILES: usize = 20_000;
/// The size of the largest file that is searched.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;
/// The number of bytes of a line that are shown.
const MAX_LINE_BYTES: usize = 300;
/// The memory that a compiled pattern may take.
const MAX_PATTERN_BYTES: usize = 4 * 1024 * 1024;
/// The number of lines that can be shown before and after a match.
const MAX_CONTEXT_LINES: u64 = 10;
/// The number of patterns that the braces of a glob may stand for.
const MAX_PATTERNS: usize = 1_000;
/// The length of the longest glob.
const MAX_GLOB_BYTES: usize = 4_096;

impl Tool for SearchFiles {
    fn spec(&self) -> ToolSpec {
        let properties = json!({
            "pattern": {
                "type": "string",
                "description": "A regular expression, as in ripgrep; `(?i)` in front ignores case. It is looked for line by line.",
            },
            "path": {"type": "string", "description": "The directory or file to search, relative to the workspace; all of it if left out."},
            "glob": {
                "type": "string",
                "description": "Which files: `*.rs` at any depth, `src/**/*.{ts,tsx}` from the searched directory on, `!*.md` all others.",
            },
            "context": {
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_CONTEXT_LINES,
                "description": "How many lines to show before and after each match; none if left out.",
            },
        });
        let description = "Searches text files for a regular expression and gives `path:line: text` for each line that matches. \
                           Leaves out `.git`, what `.gitignore` leaves out, binary files and files of more than 4 MiB.";
        spec("search_files", description, properties, &["pattern"])
    }

    fn is_builtin(&self) -> bool {
        true
    }

    fn nature(&self, _: &Value) -> Nature {
        Nature::ReadOnly
    }

    fn touches(&self, arguments: &Value) -> Vec<Touch> {
        vec![Touch::read(text(arguments, "path"))]
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let context = arguments["context"].as_u64().unwrap_or_default().min(MAX_CONTEXT_LINES);
        let pattern = RegexBuilder::new(text(&arguments, "pattern")).size_limit(MAX_PATTERN_BYTES).build();
        let pattern = pattern.map_err(|error| Error::new(ErrorKind::Arguments, format_args!("`pattern`: {error}")))?;
        let mut search = FileSearch {
            sandbox: cx.sandbox().await?,
            pattern,
            filter: PathFilter::new(text(&arguments, "glob"))?,
            context: context as usize,
            secrets: cx.session().secrets().clone(),
            results: SearchResults::default(),
        };
        search.run(text(&arguments, "path")).await?;
        Ok(search.results.into_text().into())
    }
}

/// A search in progress.
struct FileSearch {
    sandbox: Sandbox,
    pattern: Regex,
    filter: PathFilter,
    context: usize,
    secrets: Secrets,
    results: SearchResults,
}

#[derive(Default)]
struct SearchResults {
    lines: Vec<String>,
    matches: usize,
    files: usize,
    too_long: usize,
    /// A note on what was not searched, once a limit was reached.
    stopped: Option<&'static str>,
}

impl FileSearch {
    async fn run(&mut self, path: &str) -> Result<()> {
        let Some(entry) = self.sandbox.stat(path).await? else {
            let error = file_error("search", path, "there is no such file");
            return Err(with_nearest_paths(&self.sandbox, path, error).await);
        };
        match entry.kind {
            FileKind::Directory => {}
            FileKind::File => return self.search_file(path, entry.bytes).await,
            FileKind::Symlink | FileKind::Other => {
                return Err(file_error("search", path, "it is not an ordinary file"));
            }
        }
        // A stack: the children of a directory are searched directly after it.
        let mut waiting: Vec<(Directory, Option<Child>)> = vec![(Directory::open(&self.sandbox, path).await, None)];
        while let Some((directory, child)) = waiting.pop() {
            let mut within = match child {
                Some(child) if child.entry.kind == FileKind::File => {
                    if self.filter.accepts(&child.shown) {
                        // A file that was removed meanwhile or may not be read does not end the search.
                        let _ = self.search_file(&child.path, child.entry.bytes).await;
                    }
                    tokio::task::yield_now().await;
                    if self.results.stopped.is_some() {
                        return Ok(());
                    }
                    continue;
                }
                Some(child) => directory.below(&child),
                None => directory,
            };
            if within.depth > MAX_DEPTH {
                continue;
            }
            let children = match within.children(&self.sandbox).await {
                Err(error) if within.depth == 0 => return Err(error),
                children => children.unwrap_or_default(),
            };
            // Symlinks are not followed: a target inside the workspace is found at its own path.
            let searched =
                |child: &Child| matches!(child.entry.kind, FileKind::File | FileKind::Directory) && !child.ignored;
            let children = children.into_iter().rev().filter(searched);
            waiting.extend(children.map(|child| (within.clone(), Some(child))));
        }
        Ok(())
    }

    async fn search_file(&mut self, path: &str, bytes: u64) -> Result<()> {
        if bytes > MAX_FILE_BYTES {
            self.results.too_long += 1;
            return Ok(());
        }
        if self.results.files == MAX_FILES {
            self.results.stopped =
                Some("20000 files were searched, and the others were not; narrow the path or the glob");
            return Ok(());
        }
        self.results.files += 1;
        let text = self.sandbox.read(path, ByteRange { offset: 0, max_len: MAX_FILE_BYTES }).await?;
        if !text.contains(&0) {
            self.search_text(path, &text);
        }
        Ok(())
    }

    fn search_text(&mut self, path: &str, text: &[u8]) {
        let lines: Vec<_> =
            text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
        // An empty rest after the last line feed is not a line.
        let lines =
            if lines.last().is_some_and(|line| line.is_empty()) { &lines[..lines.len() - 1] } else { &lines[..] };
        // `written` counts the lines up to the last one that was shown; `gap` asks for a separator before the next.
        let mut written = 0;
        let mut gap = self.context > 0 && !self.results.lines.is_empty();
        for (nth, line) in lines.iter().enumerate() {
            let Some(at) = self.pattern.find(line) else { continue };
            if self.results.matches == MAX_MATCHES {
                self.results.stopped = Some("more matches are left out; narrow the pattern, the path or the glob");
                return;
            }
            self.results.matches += 1;
            let from = nth.saturating_sub(self.context).max(written);
            if gap || self.context > 0 && written > 0 && from > written {
                self.results.lines.push("--".to_owned());
            }
            gap = false;
            for (before, line) in lines.iter().enumerate().take(nth).skip(from) {
                self.results.lines.push(format!("{path}-{}- {}", before + 1, cut_line(line, 0, &self.secrets)));
            }
            self.results.lines.push(format!("{path}:{}: {}", nth + 1, cut_line(line, at.start(), &self.secrets)));
            written = nth + 1;
            // Up to the next match, which is shown as a match.
            for (after, line) in lines.iter().enumerate().skip(nth + 1).take(self.context) {
                if self.pattern.is_match(line) {
                    break;
                }
                self.results.lines.push(format!("{path}-{}- {}", after + 1, cut_line(line, 0, &self.secrets)));
                written = after + 1;
            }
        }
    }
}

impl SearchResults {
    fn into_text(mut self) -> String {
        if self.lines.is_empty() {
            self.lines.push(format!("no match in {}", count(self.files, "file")));
        }
        if self.too_long > 0 {
            self.lines
                .push(format!("[{} of more than {MAX_FILE_BYTES} bytes not searched]", count(self.too_long, "file")));
        }
        self.lines.extend(self.stopped.map(|why| format!("[{why}]")));
        self.lines.join("\n")
    }
}

/// Cuts a line to the part that is shown, which contains the match.
fn cut_line(line: &[u8], at: usize, secrets: &Secrets) -> String {
    let line = String::from_utf8_lossy(line);
    if line.len() <= MAX_LINE_BYTES {
        return line.into_owned();
    }
    // Before the line is cut: a part of a secret would not be recognised.
    let line = secrets.hide(&line).unwrap_or(line.into_owned());
    if line.len() <= MAX_LINE_BYTES {
        return line;
    }
    let start = line.floor_char_boundary(at.saturating_sub(MAX_LINE_BYTES / 3).min(line.len() - MAX_LINE_BYTES));
    let end = line.floor_char_boundary(start + MAX_LINE_BYTES);
    let (before, after) = (if start > 0 { "…" } else { "" }, if end < line.len() { "…" } else { "" });
    format!("{before}{}{after}", &line[start..end])
}

/// The files that are searched, by path.
enum PathFilter {
    All,
    Matching(IgnoreRules),
    NotMatching(IgnoreRules),
}

impl PathFilter {
    fn new(glob: &str) -> Result<Self> {
        let (plain, others) = glob.strip_prefix('!').map_or((glob, false), |plain| (plain, true));
        if plain.is_empty() {
            return Ok(PathFilter::All);
        }
        let mut patterns = Vec::new();
        if !expand(plain, &mut patterns) {
            let message =
                format!("`glob`: wanted at most {MAX_GLOB_BYTES} bytes that stand for {MAX_PATTERNS} patterns");
            return Err(Error::new(ErrorKind::Arguments, message));
        }
        // The rules of `.gitignore`: a name matches at any depth, a path from the top.
        let rules = IgnoreRules::default().with_gitignore(b"", patterns.join("\n").as_bytes());
        Ok(if others { PathFilter::NotMatching(rules) } else { PathFilter::Matching(rules) })
    }

    fn accepts(&self, path: &str) -> bool {
        let matches = |rules: &IgnoreRules| {
            let mut above = path.match_indices('/').map(|(at, _)| &path[..at]);
            above.any(|above| rules.ignores(above.as_bytes(), true)) || rules.ignores(path.as_bytes(), false)
        };
        match self {
            PathFilter::All => true,
            PathFilter::Matching(rules) => matches(rules),
            PathFilter::NotMatching(rules) => !matches(rules),
        }
    }
}

/// Writes `*.{md,rs}` as `*.md` and `*.rs`; false if that gives too many patterns.
///
/// A brace without its other half stands for itself.
fn expand(glob: &str, patterns: &mut Vec<String>) -> bool {
    if patterns.len() >= MAX_PATTERNS || glob.len() > MAX_GLOB_BYTES {
        return false;
    }
    let Some((open, commas, close)) = braces(glob) else {
        // Neither character is special in a glob, and both are at the beginning of a line in a `.gitignore`.
        let escape = if glob.starts_with(['!', '#']) { "\\" } else { "" };
        patterns.push(format!("{escape}{glob}"));
        return true;
    };
    let ends = commas.iter().chain([&close]);
    let starts = [&open].into_iter().chain(&commas);
    starts
        .zip(ends)
        .all(|(start, end)| expand(&[&glob[..open], &glob[start + 1..*end], &glob[close + 1..]].concat(), patterns))
}

/// Finds the first pair of braces, and the commas that are directly in it.
fn braces(glob: &str) -> Option<(usize, Vec<usize>, usize)> {
    let bytes = glob.as_bytes();
    let mut open: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut first: Option<(usize, Vec<usize>, usize)> = None;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'{' => open.push((at, Vec::new())),
            b',' => {
                if let Some((_, commas)) = open.last_mut() {
                    commas.push(at);
                }
            }
            b'}' => {
                if let Some((start, commas)) = open.pop()
                    && first.as_ref().is_none_or(|(first, ..)| start < *first)
                {
                    first = Some((start, commas, at));
                }
            }
            _ => {}
        }
        at += 1;
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_stand_for_each_of_their_parts() {
        let expanded = |glob: &str| {
            let mut patterns = Vec::new();
            expand(glob, &mut patterns).then(|| patterns.join(" "))
        };
        for (glob, expected) in [
            ("*.rs", "*.rs"),
            ("*.{md,rs}", "*.md *.rs"),
            ("{a,b}/{c,d}", "a/c a/d b/c b/d"),
            ("{a,b{c,d}}e", "ae bce bde"),
            ("{a,}b", "ab b"),
            ("{a}", "a"),
            ("{a,b", "{a,b"),
            ("{x{a,b}", "{xa {xb"),
            ("a,b}", "a,b}"),
            ("\\{a,b\\}", "\\{a,b\\}"),
            ("{!a,#b}", "\\!a \\#b"),
            ("{ä,ö}", "ä ö"),
        ] {
            assert_eq!(expanded(glob).as_deref(), Some(expected), "{glob}");
        }
        assert_eq!(expanded(&"{a,b}".repeat(30)), None);
        assert_eq!(expanded(&"{".repeat(100_000)), None);
    }
}
