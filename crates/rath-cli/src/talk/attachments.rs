//! The files that a message attaches: `@PATH`, and the paths of images that are pasted.

use std::path::{Path, PathBuf};

use rath::chunk::{Image, User};

use crate::output::{self, Failure};
use crate::prompts::read_image;

/// The most bytes of a text that are attached.
const MAX_TEXT_BYTES: u64 = 256 << 10;
/// The most names that completion offers.
const MAX_COMPLETIONS: usize = 20;

/// Makes a message of what was typed, with the files that it attaches. A word with `@` that is no file is text.
pub(crate) fn message(text: &str, directory: &Path) -> Result<User, Failure> {
    let (mut whole, mut images) = (text.to_owned(), Vec::new());
    let mut attached: Vec<&str> = Vec::new();
    for name in text.split_whitespace().filter_map(|word| word.strip_prefix('@')) {
        let name = name.trim_end_matches([',', ';', ':', ')', '?', '!']);
        let name = if directory.join(name).is_file() { name } else { name.trim_end_matches('.') };
        let path = directory.join(name);
        if name.is_empty() || attached.contains(&name) || !path.is_file() {
            continue;
        }
        attached.push(name);
        match read(&path)? {
            Attachment::Image(image) => images.push(image),
            Attachment::Text(content) => {
                let line_break = if content.ends_with('\n') { "" } else { "\n" };
                whole.push_str(&format!("\n\n<file path=\"{name}\">\n{content}{line_break}</file>"));
            }
        }
    }
    Ok(User::new(whole).with_images(images))
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

/// Returns the word that attaches a pasted path, if it is that of an image: terminals paste the path of a file that is dropped.
pub(crate) fn pasted_image(text: &str, directory: &Path) -> Option<String> {
    let text = text.trim();
    let unquoted = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')).unwrap_or(text);
    let plain = unquoted.strip_prefix("file://").unwrap_or(unquoted);
    let path = directory.join(plain);
    let is_one_word = !plain.is_empty() && !plain.contains(char::is_whitespace);
    (is_one_word && is_named_as_image(&path) && path.is_file()).then(|| format!("@{plain} "))
}

/// Returns the paths that `begin` can be completed to, each of a directory with a slash.
pub(crate) fn completions(begin: &str, directory: &Path) -> Vec<String> {
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
            (entry_name.starts_with(name) && !is_hidden && !entry_name.contains(char::is_whitespace))
                .then(|| shown(&entry_name) + slash)
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
        std::fs::write(directory.join("fake.png"), "text").expect("written");
        let made = message("Look at @src/a.rs, @src/a.rs and @b.PNG. Write to me@example.org and @nobody.", directory);
        let made = made.expect("a message");
        let text = made.text.as_str().expect("a text");
        assert_eq!(text.matches("fn a() {}").count(), 1);
        assert!(text.ends_with("<file path=\"src/a.rs\">\nfn a() {}\n</file>"), "{text}");
        assert_eq!(made.images.len(), 1);
        let failure = message("@fake.png", directory).expect_err("no image");
        assert!(failure.message.contains("of another kind"), "{failure}");
        assert_eq!(pasted_image("'b.PNG'\n", directory).as_deref(), Some("@b.PNG "));
        assert_eq!(pasted_image("src/a.rs", directory), None);
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
}
