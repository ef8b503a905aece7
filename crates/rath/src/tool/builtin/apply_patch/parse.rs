//! Reading a patch: the format between `*** Begin Patch` and `*** End Patch`.
//!
//! ```text
//! *** Begin Patch
//! *** Update File: src/a.rs
//! *** Move to: src/b.rs
//! @@ fn main() {
//!      let a = 1;
//! -    old(a);
//! +    new(a);
//! *** End of File
//! *** Add File: notes.txt
//! +one line
//! *** Delete File: old.txt
//! *** End Patch
//! ```

/// A patch: the changes to files, in order.
#[derive(Debug, PartialEq)]
pub(in crate::tool::builtin) struct Patch {
    pub(super) files: Vec<FilePatch>,
}

/// The change of a patch to one file.
#[derive(Debug, PartialEq)]
pub(super) enum FilePatch {
    Add { path: String, content: String },
    Delete { path: String },
    Update { path: String, to: Option<String>, hunks: Vec<PatchHunk> },
}

/// A place in a file, and the change there.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PatchHunk {
    /// The texts behind `@@`: lines above the place, from the outermost on.
    pub(super) headers: Vec<String>,
    pub(super) lines: Vec<HunkLine>,
    /// True if the lines are the last ones of the file.
    pub(super) is_at_end: bool,
}

/// A line of a hunk.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum HunkLine {
    Context(String),
    Removed(String),
    Added(String),
}

/// The size of the longest patch.
pub(super) const MAX_PATCH_BYTES: usize = 1 << 20;
/// The number of files that one patch may change.
const MAX_FILES: usize = 200;
/// The number of hunks that one patch may have.
const MAX_HUNKS: usize = 2_000;
/// The number of bytes of a line that an error shows.
const MAX_SHOWN_BYTES: usize = 80;

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File:";
const DELETE: &str = "*** Delete File:";
const UPDATE: &str = "*** Update File:";
const MOVE: &str = "*** Move to:";
const END_OF_FILE: &str = "*** End of File";

impl Patch {
    /// Reads a patch, or says which line of it is wrong.
    pub(in crate::tool::builtin) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_PATCH_BYTES {
            return Err(format!(
                "the patch has {} bytes, and the limit is {MAX_PATCH_BYTES}; give several",
                text.len()
            ));
        }
        let lines: Vec<_> = text.lines().collect();
        let (first, last) = find_ends(&lines)?;
        let mut parser = PatchParser { lines: &lines[..last], at: first + 1, hunks: 0 };
        let mut files = Vec::new();
        while let Some(file) = parser.file()? {
            files.push(file);
            if files.len() > MAX_FILES {
                return Err(format!("the patch changes more than {MAX_FILES} files; give several"));
            }
        }
        if files.is_empty() {
            return Err(format!("the patch changes no file; wanted `{UPDATE} PATH`, `{ADD} PATH` or `{DELETE} PATH`"));
        }
        Ok(Patch { files })
    }

    /// Returns the paths that the patch changes, each once.
    pub(in crate::tool::builtin) fn paths(&self) -> Vec<&str> {
        let mut paths = Vec::new();
        for file in &self.files {
            let (path, to) = match file {
                FilePatch::Add { path, .. } | FilePatch::Delete { path } => (path, None),
                FilePatch::Update { path, to, .. } => (path, to.as_ref()),
            };
            for path in [path].into_iter().chain(to) {
                if !paths.contains(&path.as_str()) {
                    paths.push(path);
                }
            }
        }
        paths
    }
}

/// Returns the positions of the first and the last line of a patch.
///
/// Models wrap a patch in a fence or in a here-document at times: such lines around it say nothing.
fn find_ends(lines: &[&str]) -> Result<(usize, usize), String> {
    let is_wrapping = |line: &&str| {
        let line = line.trim();
        line.is_empty() || line.starts_with("```") || line.contains("<<")
    };
    let first = lines.iter().take_while(|line| is_wrapping(line)).count();
    let delimiter = lines[..first].iter().find_map(|line| line.split_once("<<"));
    let delimiter =
        delimiter.map(|(_, word)| word.trim_matches(|c: char| c == '-' || c == '\'' || c == '"' || c.is_whitespace()));
    match lines.get(first) {
        Some(line) if line.trim() == BEGIN => {}
        Some(line) => return Err(format!("line {} of the patch: wanted `{BEGIN}`, found `{}`", first + 1, cut(line))),
        None => return Err(format!("the patch is empty; wanted `{BEGIN}` in its first line")),
    }
    let is_behind = |line: &&&str| is_wrapping(line) || Some(line.trim()) == delimiter;
    let behind = lines.iter().rev().take_while(is_behind).count();
    match lines.len().checked_sub(behind + 1) {
        Some(last) if last > first && lines[last].trim_end() == END => Ok((first, last)),
        _ => Err(format!("the patch has no end; wanted `{END}` in its last line")),
    }
}

/// The lines of a patch that are not read yet.
struct PatchParser<'a> {
    lines: &'a [&'a str],
    at: usize,
    /// The number of hunks that are read.
    hunks: usize,
}

impl<'a> PatchParser<'a> {
    /// Reads the change of the next file; none at the end.
    fn file(&mut self) -> Result<Option<FilePatch>, String> {
        self.skip_blank();
        let Some(line) = self.peek() else { return Ok(None) };
        let at = self.at;
        self.at += 1;
        Ok(Some(if let Some(path) = line.strip_prefix(ADD) {
            FilePatch::Add { path: path_in(path, at)?, content: self.content()? }
        } else if let Some(path) = line.strip_prefix(DELETE) {
            FilePatch::Delete { path: path_in(path, at)? }
        } else if let Some(path) = line.strip_prefix(UPDATE) {
            let path = path_in(path, at)?;
            let to = match self.peek().and_then(|line| line.strip_prefix(MOVE)) {
                Some(to) => {
                    self.at += 1;
                    Some(path_in(to, self.at - 1)?)
                }
                None => None,
            };
            let hunks = self.file_hunks()?;
            if hunks.is_empty() && to.is_none() {
                return Err(format!("line {} of the patch: no change of `{}` follows", at + 1, cut(&path)));
            }
            FilePatch::Update { path, to, hunks }
        } else {
            let wanted = format!("wanted `{UPDATE} PATH`, `{ADD} PATH`, `{DELETE} PATH` or `{END}`");
            return Err(format!("line {} of the patch: {wanted}, found `{}`", at + 1, cut(line)));
        }))
    }

    /// Reads the lines of a new file.
    fn content(&mut self) -> Result<String, String> {
        let mut content = String::new();
        let mut blank = 0;
        while let Some(line) = self.peek().filter(|line| !line.starts_with("***")) {
            match line.strip_prefix('+') {
                Some(line) => {
                    // A blank line between two others lacks its `+`; one behind them all is no line of the file.
                    content.extend(std::iter::repeat_n('\n', std::mem::take(&mut blank)));
                    content.push_str(line);
                    content.push('\n');
                }
                None if line.trim().is_empty() => blank += 1,
                None => {
                    let problem = "each line of a new file has to begin with `+`";
                    return Err(format!("line {} of the patch: {problem}, found `{}`", self.at + 1, cut(line)));
                }
            }
            self.at += 1;
        }
        Ok(content)
    }

    /// Reads the hunks of a file.
    fn file_hunks(&mut self) -> Result<Vec<PatchHunk>, String> {
        let mut hunks = Vec::new();
        loop {
            while self.peek() == Some("") {
                self.at += 1;
            }
            match self.peek() {
                Some(line) if !line.starts_with("***") => {}
                _ => return Ok(hunks),
            }
            hunks.push(self.hunk()?);
            self.hunks += 1;
            if self.hunks > MAX_HUNKS {
                return Err(format!("the patch has more than {MAX_HUNKS} hunks; give several"));
            }
        }
    }

    fn hunk(&mut self) -> Result<PatchHunk, String> {
        let start = self.at;
        let mut hunk = PatchHunk::default();
        while let Some(rest) = self.peek().and_then(|line| line.strip_prefix("@@")) {
            hunk.headers.extend(header(rest));
            self.at += 1;
        }
        // Blank lines without a space in front, which are lines of the file only if others follow.
        let mut blank = 0;
        while let Some(line) = self.peek().filter(|line| !line.starts_with("@@")) {
            if line.trim_end() == END_OF_FILE {
                hunk.is_at_end = true;
                self.at += 1;
                break;
            }
            if line.starts_with("***") {
                break;
            }
            let mut text = line.chars();
            let added = match text.next() {
                None => {
                    blank += 1;
                    self.at += 1;
                    continue;
                }
                Some(' ') => HunkLine::Context(text.as_str().to_owned()),
                Some('-') => HunkLine::Removed(text.as_str().to_owned()),
                Some('+') => HunkLine::Added(text.as_str().to_owned()),
                _ => {
                    let wanted = "a line of a hunk has to begin with a space, `-` or `+`";
                    return Err(format!("line {} of the patch: {wanted}, found `{}`", self.at + 1, cut(line)));
                }
            };
            hunk.lines.extend(std::iter::repeat_n(HunkLine::Context(String::new()), std::mem::take(&mut blank)));
            hunk.lines.push(added);
            self.at += 1;
        }
        let is_change = |line: &HunkLine| !matches!(line, HunkLine::Context(_));
        match hunk.lines.iter().any(is_change) {
            true => Ok(hunk),
            false => Err(format!("line {} of the patch: this hunk has no line with `-` or `+`", start + 1)),
        }
    }

    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.at).copied()
    }

    fn skip_blank(&mut self) {
        while self.peek().is_some_and(|line| line.trim().is_empty()) {
            self.at += 1;
        }
    }
}

/// Returns the text behind `@@`; none if it names no line. Line numbers, as other formats have them, are not used.
fn header(rest: &str) -> Option<String> {
    let text = rest.strip_prefix(' ').unwrap_or(rest).trim_end();
    let is_numbers = |text: &str| {
        let is_range = |word: &str, sign: char| {
            word.strip_prefix(sign).is_some_and(|word| word.chars().all(|c| c.is_ascii_digit() || c == ','))
        };
        let mut words = text.split_whitespace();
        words.next().is_some_and(|word| is_range(word, '-')) && words.next().is_some_and(|word| is_range(word, '+'))
    };
    let text = text.strip_suffix("@@").map_or(text, str::trim_end);
    (!text.trim().is_empty() && !is_numbers(text)).then(|| text.to_owned())
}

fn path_in(text: &str, at: usize) -> Result<String, String> {
    match text.trim() {
        "" => Err(format!("line {} of the patch: the path is missing", at + 1)),
        path => Ok(path.to_owned()),
    }
}

/// Returns the beginning of a line, for an error.
fn cut(line: &str) -> String {
    let line = line.trim_end();
    match line.len() > MAX_SHOWN_BYTES {
        true => format!("{}…", &line[..line.floor_char_boundary(MAX_SHOWN_BYTES)]),
        false => line.to_owned(),
    }
}
