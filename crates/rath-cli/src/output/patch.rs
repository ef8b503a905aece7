//! Patches for people: coloured, and readable without colour.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

const ADDED: Style = AnsiColor::Green.on_default();
const REMOVED: Style = AnsiColor::Red.on_default();
const PLACE: Style = AnsiColor::Cyan.on_default();
const HEADER: Style = Style::new().bold();

/// Prints a patch in git's format, its lines coloured by their meaning.
pub(crate) fn print(out: &mut dyn Write, patch: &str) -> io::Result<()> {
    // A removed line that begins with two dashes looks like a header.
    let mut is_in_hunk = false;
    for line in patch.split_inclusive('\n') {
        let (text, end) = line.strip_suffix('\n').map_or((line, ""), |text| (text, "\n"));
        is_in_hunk = (is_in_hunk || text.starts_with("@@ ")) && !text.starts_with("diff --git ");
        let style = match text.as_bytes().first() {
            Some(b'+') if is_in_hunk => ADDED,
            Some(b'-') if is_in_hunk => REMOVED,
            Some(b'@') if is_in_hunk => PLACE,
            Some(_) if !is_in_hunk => HEADER,
            _ => Style::new(),
        };
        write!(out, "{style}{text}{style:#}{end}")?;
    }
    Ok(())
}

/// Returns the part of a patch that is about some files.
pub(crate) fn of_files(patch: &str, paths: &[&str]) -> String {
    const BEGIN: &str = "diff --git ";
    let mut part = String::new();
    let mut is_wanted = false;
    for line in patch.split_inclusive('\n') {
        // Lines of a file begin with a sign or a space, except those of binary files, which have no blank.
        if let Some(names) = line.strip_prefix(BEGIN) {
            let names = names.trim_end_matches('\n');
            // A name with unusual characters is quoted: all of those are shown.
            is_wanted = names.contains('"') || paths.iter().any(|path| names.ends_with(&format!(" b/{path}")));
        }
        if is_wanted {
            part.push_str(line);
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "diff --git a/a.sql b/a.sql\n--- a/a.sql\n+++ b/a.sql\n@@ -1,2 +1,1 @@\n one\n--- two\n\
                         diff --git a/b.sql b/b.sql\nold mode 100644\nnew mode 100755\n";

    #[test]
    fn lines_are_coloured_by_their_place() {
        let mut out = Vec::new();
        print(&mut out, PATCH).expect("a vector takes it");
        let (h, r, c, e) = ("\u{1b}[1m", "\u{1b}[31m", "\u{1b}[36m", "\u{1b}[0m");
        let expected = format!(
            "{h}diff --git a/a.sql b/a.sql{e}\n{h}--- a/a.sql{e}\n{h}+++ b/a.sql{e}\n{c}@@ -1,2 +1,1 @@{e}\n one\n\
             {r}--- two{e}\n{h}diff --git a/b.sql b/b.sql{e}\n{h}old mode 100644{e}\n{h}new mode 100755{e}\n"
        );
        assert_eq!(String::from_utf8(out).expect("UTF-8"), expected);
    }

    #[test]
    fn a_part_has_whole_files() {
        assert_eq!(of_files(PATCH, &["a.sql", "b.sql"]), PATCH);
        assert_eq!(of_files(PATCH, &["b.sql"]), PATCH[PATCH.find("diff --git a/b").expect("there")..]);
        assert_eq!(of_files(PATCH, &["sql"]), "");
    }
}
