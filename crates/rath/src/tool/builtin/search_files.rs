//! Searching the files.

use rath_record::chunk::ToolSpec;
use regex::bytes::{Regex, RegexBuilder};
use serde_json::{Value, json};

use super::tree::{Child, DEPTH_MOST, Directory};
use super::{cannot, count, spec, text};
use crate::error::ErrorKind;
use crate::sandbox::{Kind, Part, Sandbox};
use crate::session::{Error, Result};
use crate::tool::{Nature, Output, Tool, ToolCx, Touch};
use crate::workspace::IgnoreRules;

/// Searches the files.
#[derive(Clone, Copy, Debug)]
pub struct SearchFiles;

/// How many matching lines are shown.
const MATCHES_MOST: usize = 200;
/// How many files are opened.
const FILES_MOST: usize = 20_000;
/// How long a file can be that is searched.
const BYTES_MOST: u64 = 4 * 1024 * 1024;
/// How much of a line is shown.
const WIDTH_MOST: usize = 300;
/// How much memory a pattern may take.
const PATTERN_MOST: usize = 4 * 1024 * 1024;
const CONTEXT_MOST: u64 = 10;
/// How many patterns the braces of a glob may stand for.
const PATTERNS_MOST: usize = 1_000;
/// How long a glob can be, in bytes.
const GLOB_MOST: usize = 4_096;

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
                "maximum": CONTEXT_MOST,
                "description": "How many lines to show before and after each match; none if left out.",
            },
        });
        let description = "Searches text files for a regular expression and gives `path:line: text` for each line that matches. \
                           Leaves out `.git`, what `.gitignore` leaves out, binary files and files of more than 4 MiB.";
        spec("search_files", description, properties, &["pattern"])
    }

    fn nature(&self, _: &Value) -> Nature {
        Nature::ReadOnly
    }

    fn touches(&self, arguments: &Value) -> Vec<Touch> {
        vec![Touch::read(text(arguments, "path"))]
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let context = arguments["context"].as_u64().unwrap_or_default().min(CONTEXT_MOST);
        let pattern = RegexBuilder::new(text(&arguments, "pattern")).size_limit(PATTERN_MOST).build();
        let pattern = pattern.map_err(|error| Error::new(ErrorKind::Arguments, format_args!("`pattern`: {error}")))?;
        let mut search = Search {
            sandbox: cx.sandbox()?,
            pattern,
            glob: Glob::new(text(&arguments, "glob"))?,
            context: context as usize,
            found: Found::default(),
        };
        search.all(text(&arguments, "path")).await?;
        Ok(search.found.said().into())
    }
}

struct Search {
    sandbox: Sandbox,
    pattern: Regex,
    glob: Glob,
    context: usize,
    found: Found,
}

#[derive(Default)]
struct Found {
    lines: Vec<String>,
    matches: usize,
    files: usize,
    too_long: usize,
    /// What was not searched because it was enough.
    stopped: Option<&'static str>,
}

impl Search {
    async fn all(&mut self, path: &str) -> Result<()> {
        let found = self.sandbox.look(path).await?.ok_or_else(|| cannot("search", path, "there is no such file"))?;
        match found.kind {
            Kind::Directory => {}
            Kind::File => return self.file(path, found.bytes).await,
            Kind::Link | Kind::Other => return Err(cannot("search", path, "it is not an ordinary file")),
        }
        // The last is next: what a directory holds comes where the directory does.
        let mut waiting: Vec<(Directory, Option<Child>)> = vec![(Directory::open(&self.sandbox, path).await, None)];
        while let Some((directory, child)) = waiting.pop() {
            let mut within = match child {
                Some(child) if child.entry.kind == Kind::File => {
                    if self.glob.takes(&child.shown) {
                        // One that went away or that nobody may read is no reason to stop.
                        let _ = self.file(&child.path, child.entry.bytes).await;
                    }
                    tokio::task::yield_now().await;
                    if self.found.stopped.is_some() {
                        return Ok(());
                    }
                    continue;
                }
                Some(child) => directory.below(&child),
                None => directory,
            };
            if within.depth > DEPTH_MOST {
                continue;
            }
            let children = match within.children(&self.sandbox).await {
                Err(error) if within.depth == 0 => return Err(error),
                children => children.unwrap_or_default(),
            };
            // Links are not followed: whatever they lead to inside is found where it is.
            let searched = |child: &Child| matches!(child.entry.kind, Kind::File | Kind::Directory) && !child.ignored;
            let children = children.into_iter().rev().filter(searched);
            waiting.extend(children.map(|child| (within.clone(), Some(child))));
        }
        Ok(())
    }

    async fn file(&mut self, path: &str, bytes: u64) -> Result<()> {
        if bytes > BYTES_MOST {
            self.found.too_long += 1;
            return Ok(());
        }
        if self.found.files == FILES_MOST {
            self.found.stopped =
                Some("20000 files were searched, and the others were not; narrow the path or the glob");
            return Ok(());
        }
        self.found.files += 1;
        let text = self.sandbox.read(path, Part { from: 0, most: BYTES_MOST }).await?;
        if !text.contains(&0) {
            self.text(path, &text);
        }
        Ok(())
    }

    fn text(&mut self, path: &str, text: &[u8]) {
        let lines: Vec<_> =
            text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
        // What follows the last line feed is a line only if it is something.
        let lines =
            if lines.last().is_some_and(|line| line.is_empty()) { &lines[..lines.len() - 1] } else { &lines[..] };
        // How many of the lines are written or passed over, and whether a gap before the next is to be seen.
        let mut written = 0;
        let mut gap = self.context > 0 && !self.found.lines.is_empty();
        for (nth, line) in lines.iter().enumerate() {
            let Some(at) = self.pattern.find(line) else { continue };
            if self.found.matches == MATCHES_MOST {
                self.found.stopped = Some("more matches are left out; narrow the pattern, the path or the glob");
                return;
            }
            self.found.matches += 1;
            let from = nth.saturating_sub(self.context).max(written);
            if gap || self.context > 0 && written > 0 && from > written {
                self.found.lines.push("--".to_owned());
            }
            gap = false;
            for (before, line) in lines.iter().enumerate().take(nth).skip(from) {
                self.found.lines.push(format!("{path}-{}- {}", before + 1, cut(line, 0)));
            }
            self.found.lines.push(format!("{path}:{}: {}", nth + 1, cut(line, at.start())));
            written = nth + 1;
            // As far as the next match, which is written as one.
            for (after, line) in lines.iter().enumerate().skip(nth + 1).take(self.context) {
                if self.pattern.is_match(line) {
                    break;
                }
                self.found.lines.push(format!("{path}-{}- {}", after + 1, cut(line, 0)));
                written = after + 1;
            }
        }
    }
}

impl Found {
    fn said(mut self) -> String {
        if self.lines.is_empty() {
            self.lines.push(format!("no match in {}", count(self.files, "file")));
        }
        if self.too_long > 0 {
            self.lines.push(format!("[{} of more than {BYTES_MOST} bytes not searched]", count(self.too_long, "file")));
        }
        self.lines.extend(self.stopped.map(|why| format!("[{why}]")));
        self.lines.join("\n")
    }
}

/// As much of a line as is shown, with what matches in it.
fn cut(line: &[u8], at: usize) -> String {
    let line = String::from_utf8_lossy(line);
    if line.len() <= WIDTH_MOST {
        return line.into_owned();
    }
    let start = line.floor_char_boundary(at.saturating_sub(WIDTH_MOST / 3).min(line.len() - WIDTH_MOST));
    let end = line.floor_char_boundary(start + WIDTH_MOST);
    let (before, after) = (if start > 0 { "…" } else { "" }, if end < line.len() { "…" } else { "" });
    format!("{before}{}{after}", &line[start..end])
}

/// Which files are searched.
enum Glob {
    All,
    These(IgnoreRules),
    Others(IgnoreRules),
}

impl Glob {
    fn new(glob: &str) -> Result<Self> {
        let (plain, others) = glob.strip_prefix('!').map_or((glob, false), |plain| (plain, true));
        if plain.is_empty() {
            return Ok(Glob::All);
        }
        let mut patterns = Vec::new();
        if !expand(plain, &mut patterns) {
            let message = format!("`glob`: wanted at most {GLOB_MOST} bytes that stand for {PATTERNS_MOST} patterns");
            return Err(Error::new(ErrorKind::Arguments, message));
        }
        // The rules of `.gitignore` are what people mean: a name at any depth, a path from the top.
        let rules = IgnoreRules::default().below(b"", patterns.join("\n").as_bytes());
        Ok(if others { Glob::Others(rules) } else { Glob::These(rules) })
    }

    fn takes(&self, path: &str) -> bool {
        let matches = |rules: &IgnoreRules| {
            let mut above = path.match_indices('/').map(|(at, _)| &path[..at]);
            above.any(|above| rules.ignores(above.as_bytes(), true)) || rules.ignores(path.as_bytes(), false)
        };
        match self {
            Glob::All => true,
            Glob::These(rules) => matches(rules),
            Glob::Others(rules) => !matches(rules),
        }
    }
}

/// Writes `*.{md,rs}` as `*.md` and `*.rs`; false if that gives too many patterns.
///
/// A brace without its other half stands for itself.
fn expand(glob: &str, patterns: &mut Vec<String>) -> bool {
    if patterns.len() >= PATTERNS_MOST || glob.len() > GLOB_MOST {
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
