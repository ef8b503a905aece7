//! The files that a message attaches: `@PATH`, and the paths of images that are pasted.

use std::path::{Path, PathBuf};

use rath::chunk::{Image, RecalledEntry, User};
use rath::record::draw::one_line;

use crate::output::{self, Failure};
use crate::prompts::read_image;

/// The most bytes of a text that are attached.
const MAX_TEXT_BYTES: u64 = 256 << 10;
/// The most names that completion offers.
const MAX_COMPLETIONS: usize = 20;

/// A message with the files that it attaches.
pub(crate) struct AttachedMessage {
    /// The text as it was typed, with images.
    pub(crate) message: User,
    /// The texts that are attached: a step of their own, so that the message stays what was typed.
    pub(crate) texts: Vec<RecalledEntry>,
    /// The names that look like those of files and attach none, each with the reason.
    pub(crate) not_attached: Vec<String>,
}

/// Makes a message of what was typed, with the files that it attaches. A word with `@` that is no file is text.
pub(crate) fn message(text: &str, directory: &Path) -> Result<AttachedMessage, Failure> {
    let (mut images, mut texts, mut not_attached) = (Vec::new(), Vec::new(), Vec::new());
    let mut seen = Vec::new();
    for mention in mentions(text).into_iter().filter(|mention| mention.is_closed) {
        let name = existing_name(&mention, directory);
        if name.is_empty() || seen.contains(&name) {
            continue;
        }
        let path = directory.join(&name);
        if path.is_file() {
            match read(&path)? {
                Attachment::Image(image) => images.push(image),
                Attachment::Text(content) => {
                    let line_break = if content.ends_with('\n') { "" } else { "\n" };
                    let whole = format!("<file path=\"{name}\">\n{content}{line_break}</file>");
                    texts.push(RecalledEntry::new(name.clone(), whole));
                }
            }
        } else {
            let kind = if path.is_dir() { "a directory" } else { "no file" };
            not_attached.push(format!("@{} is {kind}; sent as text", one_line(&name)));
        }
        seen.push(name);
    }
    Ok(AttachedMessage { message: User::new(text).with_images(images), texts, not_attached })
}

/// A word with `@`, which may name a file.
struct Mention {
    /// The position of the `@` in the text.
    begin: usize,
    /// The name, without quotes and backslashes.
    name: String,
    is_quoted: bool,
    /// False if the text ends before the second quote.
    is_closed: bool,
    /// True if nothing follows in the text.
    is_last: bool,
}

/// Returns the words of a text that begin with `@`. A name with blanks is in quotes, or has a backslash before each of them.
fn mentions(text: &str) -> Vec<Mention> {
    let mut found = Vec::new();
    let mut chars = text.char_indices().peekable();
    let mut is_word_begin = true;
    while let Some((begin, c)) = chars.next() {
        if c != '@' || !is_word_begin {
            is_word_begin = c.is_whitespace();
            continue;
        }
        let is_quoted = chars.next_if(|(_, c)| *c == '"').is_some();
        let is_end = |c: char| if is_quoted { c == '"' } else { c.is_whitespace() };
        let (mut name, mut is_ended) = (String::new(), false);
        while let Some((_, c)) = chars.next() {
            match chars.peek() {
                Some((_, next)) if c == '\\' && is_special(*next) => {
                    name.push(*next);
                    chars.next();
                }
                _ if is_end(c) => {
                    is_ended = true;
                    break;
                }
                _ => name.push(c),
            }
        }
        // What ended the word is a blank, or a quote that another word may follow at once.
        is_word_begin = true;
        let is_last = !is_ended;
        found.push(Mention { begin, name, is_quoted, is_closed: is_ended || !is_quoted, is_last });
    }
    found
}

/// Returns true for characters that a backslash makes a part of a name.
fn is_special(c: char) -> bool {
    c.is_whitespace() || ['"', '\'', '\\', '(', ')'].contains(&c)
}

/// Returns the name that is meant: the end of a sentence is no part of it, unless there is such a file.
fn existing_name(mention: &Mention, directory: &Path) -> String {
    let name = mention.name.as_str();
    if mention.is_quoted || directory.join(name).is_file() {
        return name.to_owned();
    }
    let name = name.trim_end_matches([',', ';', ':', ')', '?', '!']);
    let name = if directory.join(name).is_file() { name } else { name.trim_end_matches('.') };
    name.to_owned()
}

/// Returns the word that attaches a file: in quotes if its name has blanks.
fn mention_of(name: &str) -> String {
    if name.chars().any(is_special) { format!("{} ", begun_mention(name) + "\"") } else { format!("@{name} ") }
}

/// Returns the beginning of such a word.
fn begun_mention(name: &str) -> String {
    match name.chars().any(is_special) {
        true => format!("@\"{}", name.replace('\\', "\\\\").replace('"', "\\\"")),
        false => format!("@{name}"),
    }
}

enum Attachment {
    Text(String),
    Image(Image),
}

fn read(path: &Path) -> Result<Attachment, Failure> {
    if is_named_as_image(path) {
        return read_image(path).map(Attachment::Image);
    }
    let cannot = |why: String| {
        let message = format!("cannot attach {}: {why}", output::path(path));
        Failure::new(message, "leave out the @, and the agent reads it with its tools")
    };
    let size = std::fs::metadata(path).map_err(|error| cannot(error.to_string()))?.len();
    if size > MAX_TEXT_BYTES {
        return Err(cannot(format!("it has more than {} KiB", MAX_TEXT_BYTES >> 10)));
    }
    let bytes = std::fs::read(path).map_err(|error| cannot(error.to_string()))?;
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(Attachment::Text(text)),
        _ => Err(cannot("it is neither text nor an image".to_owned())),
    }
}

fn is_named_as_image(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    ["png", "jpg", "jpeg", "gif", "webp"].contains(&extension.to_ascii_lowercase().as_str())
}

/// Returns the word that attaches a pasted path, if it is that of an image: terminals paste the path of a file that is dropped, in
/// quotes or with backslashes if it has blanks.
pub(crate) fn pasted_image(text: &str, directory: &Path) -> Option<String> {
    let text = text.trim();
    let is_image = |name: &String| is_named_as_image(Path::new(name)) && directory.join(name).is_file();
    let unquoted = ['\'', '"'].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote));
    let unescaped = mentions(&format!("@{text}")).into_iter().next().filter(|it| it.is_last).map(|it| it.name);
    let candidates = [Some(text.to_owned()), unquoted.map(str::to_owned), unescaped].into_iter().flatten();
    let mut plain = candidates.map(|name| name.strip_prefix("file://").map(str::to_owned).unwrap_or(name));
    plain.find(is_image).map(|name| mention_of(&name))
}

/// The end of a line that can be completed: the word with `@` that the cursor is in.
pub(crate) struct BegunMention {
    begin: usize,
    name: String,
}

impl BegunMention {
    /// Returns the word before the cursor, if it begins with `@`. `before` is the text before the cursor.
    pub(crate) fn find(before: &str) -> Option<Self> {
        let Mention { begin, name, .. } = mentions(before).pop().filter(|mention| mention.is_last)?;
        Some(BegunMention { begin, name })
    }

    /// Returns the text before the cursor with a completed word, or the names that it may become.
    pub(crate) fn complete(&self, before: &str, directory: &Path) -> Completion {
        let found = completions(&self.name, directory);
        let common = common_begin(&found);
        let begin = &before[..self.begin];
        match found.len() {
            1 if !common.ends_with('/') => Completion::Text(format!("{begin}{}", mention_of(&common))),
            _ if common.len() > self.name.len() => Completion::Text(format!("{begin}{}", begun_mention(&common))),
            _ => Completion::Choices(found),
        }
    }
}

/// The result of a completion.
#[derive(Debug, PartialEq)]
pub(crate) enum Completion {
    /// The text before the cursor.
    Text(String),
    /// The names that fit, if the text cannot be completed further.
    Choices(Vec<String>),
}

/// Returns the paths that `begin` can be completed to, each of a directory with a slash.
fn completions(begin: &str, directory: &Path) -> Vec<String> {
    let (folder, name) = begin.rsplit_once('/').map_or(("", begin), |(folder, name)| (folder, name));
    let shown = |entry: &str| if begin.contains('/') { format!("{folder}/{entry}") } else { entry.to_owned() };
    let listed: PathBuf = if begin.starts_with('/') && folder.is_empty() { "/".into() } else { directory.join(folder) };
    let Ok(entries) = std::fs::read_dir(listed) else { return Vec::new() };
    let mut found: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let entry_name = entry.file_name().into_string().ok()?;
            let is_hidden = entry_name.starts_with('.') && !name.starts_with('.');
            let slash = if entry.path().is_dir() { "/" } else { "" };
            (entry_name.starts_with(name) && !is_hidden).then(|| shown(&entry_name) + slash)
        })
        .collect();
    found.sort();
    found.truncate(MAX_COMPLETIONS);
    found
}

/// Returns what all texts begin with.
pub(crate) fn common_begin(texts: &[String]) -> String {
    let Some((first, others)) = texts.split_first() else { return String::new() };
    let mut common = first.as_str();
    for other in others {
        let same = common.char_indices().zip(other.chars()).find(|((_, a), b)| a != b).map(|((at, _), _)| at);
        common = &common[..same.unwrap_or(common.len().min(other.len()))];
    }
    common.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_images_are_attached_and_other_words_are_text() {
        let folder = rath_test_support::temp_dir();
        let directory = folder.path();
        std::fs::create_dir(directory.join("src")).expect("a directory");
        std::fs::write(directory.join("src/a.rs"), "fn a() {}").expect("written");
        std::fs::write(directory.join("b.PNG"), b"\x89PNG\r\n\x1a\n..").expect("written");
        std::fs::write(directory.join("my pic.png"), b"\x89PNG\r\n\x1a\n..").expect("written");
        std::fs::write(directory.join("fake.png"), "text").expect("written");
        let typed = "Look at @src/a.rs, @src/a.rs and @b.PNG. Write to me@example.org and @nobody, not to @src.";
        let made = message(typed, directory).expect("a message");
        assert_eq!(made.message.text.as_str(), Some(typed), "the message is what was typed");
        let texts: Vec<_> = made.texts.iter().filter_map(|entry| entry.text.as_str()).collect();
        assert_eq!(texts, ["<file path=\"src/a.rs\">\nfn a() {}\n</file>"]);
        assert_eq!(made.message.images.len(), 1);
        assert_eq!(made.not_attached, ["@nobody is no file; sent as text", "@src is a directory; sent as text"]);
        let Err(failure) = message("@fake.png", directory) else { panic!("no image") };
        assert!(failure.message.contains("of another kind"), "{failure}");
        for name in [r#"@"my pic.png""#, r"@my\ pic.png", r#"so: @"my pic.png", or?"#] {
            let made = message(name, directory).expect("a message");
            assert_eq!((made.message.images.len(), made.not_attached.len()), (1, 0), "{name}");
        }
        for open in [r#"@"my pic.png"#, "@", "@ x", "a@b"] {
            let made = message(open, directory).expect("a message");
            assert_eq!((made.message.images.len(), made.not_attached.len()), (0, 0), "{open}");
        }
    }

    #[test]
    fn a_pasted_path_of_an_image_is_attached_however_its_blanks_are_written() {
        let folder = rath_test_support::temp_dir();
        for name in ["b.PNG", "my pic.png"] {
            std::fs::write(folder.path().join(name), b"\x89PNG\r\n\x1a\n..").expect("written");
        }
        std::fs::write(folder.path().join("a.rs"), "").expect("written");
        let whole = folder.path().join("my pic.png").display().to_string();
        let attached = format!("@\"{whole}\" ");
        for (pasted, expected) in [
            ("'b.PNG'\n".to_owned(), Some("@b.PNG ")),
            (whole.clone(), Some(&*attached)),
            (format!("'{whole}'"), Some(&attached)),
            (format!("\"{whole}\" "), Some(&attached)),
            (whole.replace(' ', "\\ "), Some(&attached)),
            (format!("file://{whole}"), Some(&attached)),
            ("a.rs".to_owned(), None),
            ("b.PNG and more".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(pasted_image(&pasted, folder.path()).as_deref(), expected, "{pasted}");
        }
    }

    #[test]
    fn paths_are_completed() {
        let folder = rath_test_support::temp_dir();
        for name in ["alpha.rs", "alpine.rs", ".hidden"] {
            std::fs::write(folder.path().join(name), "").expect("written");
        }
        std::fs::create_dir(folder.path().join("deep")).expect("a directory");
        assert_eq!(completions("al", folder.path()), ["alpha.rs", "alpine.rs"]);
        assert_eq!(common_begin(&completions("al", folder.path())), "alp");
        assert_eq!(completions("d", folder.path()), ["deep/"]);
        assert_eq!(completions("nothing", folder.path()), Vec::<String>::new());
        assert_eq!(common_begin(&["é".to_owned(), "è".to_owned()]), "");
    }

    #[test]
    fn words_with_blanks_are_completed_in_quotes() {
        let folder = rath_test_support::temp_dir();
        for name in ["my pic.png", "my pin.png", "plain.rs"] {
            std::fs::write(folder.path().join(name), "").expect("written");
        }
        std::fs::create_dir(folder.path().join("a dir")).expect("a directory");
        let complete = |text: &str| Some(BegunMention::find(text)?.complete(text, folder.path()));
        let text = |text: &str| Some(Completion::Text(text.to_owned()));
        assert_eq!(complete("see @pl"), text("see @plain.rs "));
        assert_eq!(complete("see @m"), text("see @\"my pi"));
        assert_eq!(complete("see @\"my pic"), text("see @\"my pic.png\" "));
        assert_eq!(complete("see @my\\ pin"), text("see @\"my pin.png\" "));
        assert_eq!(complete("see @a"), text("see @\"a dir/"));
        assert_eq!(
            complete("see @\"my pi"),
            Some(Completion::Choices(vec!["my pic.png".to_owned(), "my pin.png".to_owned()]))
        );
        assert_eq!(complete("see @plain.rs and"), None);
    }
}
