//! Every public struct, enum, trait, function and macro of the libraries has an example, or says where its use is shown.
//!
//! Its doc comment contains a Rust code block, or a sentence that begins with one of [`REASONS`] and links to the item that
//! shows the use: "Returned by [`Session::blame`]." or "See [`Store`] for an example." Methods, types and constants need
//! neither. Rustdoc checks the links, and the doc tests run the examples.
//!
//! An item is public if it is `pub` in a module whose path is `pub`, or if a `pub use` names it after its module. Modules and
//! items that are hidden from the documentation are left out, and twins for other platforms.

use std::collections::BTreeSet;
use std::path::Path;

use rath_test_support::{ModuleDeclaration, SourceFile, source_files};

/// The beginnings of a sentence that stands for an example, each before a link.
const REASONS: [&str; 6] = ["Returned by", "Passed to", "Part of", "Created by", "Implemented by", "See"];

/// The libraries.
const ROOTS: [&str; 4] =
    ["rath-record/src/lib.rs", "rath-workspace/src/lib.rs", "rath-sandbox/src/lib.rs", "rath/src/lib.rs"];

#[test]
fn every_public_item_has_an_example_or_a_reason() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut seen, mut wrong) = (0, BTreeSet::new());
    for root in ROOTS {
        let files = source_files(&crates.join(root), is_documented);
        let exports: BTreeSet<_> = files.iter().flat_map(|file| exports(&file.text)).collect();
        for file in &files {
            for item in items(&file.text).iter().filter(|item| is_public(item, file, &exports)) {
                seen += 1;
                if !item.has_example() && !item.has_reason() {
                    let path = file.path.strip_prefix(&crates).expect("it is below the crates");
                    wrong.insert(format!("{}: {}\n", path.display(), item.name));
                }
            }
        }
    }
    assert!(seen > 200, "the items are there: {seen}");
    let wrong_texts: String = wrong.iter().map(String::as_str).collect();
    assert!(wrong.is_empty(), "{} of {seen} have no example and no reason:\n{wrong_texts}", wrong.len());
}

/// Returns true for a module that the documentation of this platform contains.
fn is_documented(module: &ModuleDeclaration<'_>) -> bool {
    let is_left_out = |line: &&str| {
        line.contains("doc(hidden)") || line.starts_with("#[cfg(") && (line.contains("test)") || line.contains("not("))
    };
    !module.attributes.iter().any(is_left_out)
}

/// An item that is `pub`, and the lines above it: its doc comment and its attributes.
struct Item<'a> {
    name: &'a str,
    above: Vec<&'a str>,
}

impl Item<'_> {
    fn is_hidden(&self) -> bool {
        self.above.contains(&"#[doc(hidden)]")
    }

    /// Returns true if the doc comment has a code block of Rust, perhaps behind a `cfg_attr`.
    fn has_example(&self) -> bool {
        let mut is_inside = false;
        for line in &self.above {
            if line.starts_with('#') && line.contains("doc = \"```\"") {
                return true;
            }
            if let Some((_, language)) = line.split_once("/// ```") {
                if !is_inside && ["", "no_run", "should_panic", "compile_fail"].contains(&language) {
                    return true;
                }
                is_inside = !is_inside;
            }
        }
        false
    }

    /// Returns true if a sentence of the doc comment begins with a reason and a link.
    fn has_reason(&self) -> bool {
        let docs: Vec<_> = self.above.iter().filter_map(|line| line.strip_prefix("///")).map(str::trim).collect();
        let mut paragraphs = docs.split(|line| line.is_empty()).map(|lines| lines.join(" "));
        paragraphs.any(|paragraph| {
            paragraph.split(". ").any(|sentence| {
                let reason = REASONS.iter().find(|reason| sentence.starts_with(&format!("{reason} [`")));
                reason.is_some_and(|reason| *reason != "See" || sentence.contains(" for an example"))
            })
        })
    }
}

fn is_public(item: &Item<'_>, file: &SourceFile, exports: &BTreeSet<(String, String)>) -> bool {
    let is_exported = |name: &str| exports.contains(&(file.module.clone(), name.to_owned()));
    !item.is_hidden() && (file.is_public || is_exported(item.name) || is_exported("*"))
}

/// Returns the items that a file declares `pub` at its outermost level, and those of its `plane_error!`.
fn items(text: &str) -> Vec<Item<'_>> {
    let (mut items, mut above) = (Vec::new(), Vec::new());
    let (mut is_plane_error, mut is_attribute) = (false, false);
    for line in text.lines() {
        let code = line.trim_start();
        is_attribute |= code.starts_with("#[");
        if code.starts_with("///") || is_attribute {
            above.push(code);
            is_attribute &= !code.ends_with(']');
            continue;
        }
        is_plane_error = line == "plane_error! {" || is_plane_error && line != "}";
        let name = if is_plane_error { name_in_plane_error(line) } else { declared_name(line, &above) };
        let above = std::mem::take(&mut above);
        items.extend(name.map(|name| Item { name, above }));
    }
    items
}

/// Returns the name of the item that a line without indentation declares `pub`.
fn declared_name<'a>(line: &'a str, above: &[&str]) -> Option<&'a str> {
    let declaration = match line.strip_prefix("macro_rules! ") {
        Some(name) if above.contains(&"#[macro_export]") => name,
        Some(_) => return None,
        None => {
            let mut words = line.strip_prefix("pub ")?;
            // The procedural macros: their own crate cannot use the library that their examples need.
            if let Some(name) = words.strip_prefix("use rath_macros::") {
                return identifier(name);
            }
            for qualifier in ["const ", "async ", "unsafe "] {
                words = words.strip_prefix(qualifier).unwrap_or(words);
            }
            let kinds = ["struct ", "enum ", "trait ", "fn "];
            kinds.iter().find_map(|kind| words.strip_prefix(kind))?
        }
    };
    identifier(declaration)
}

/// Returns the name of the error, or of the enum of its kinds, that a line of `plane_error!` declares.
fn name_in_plane_error(line: &str) -> Option<&str> {
    let declaration = line.strip_prefix("    ").filter(|line| line.ends_with([';', '{']))?;
    identifier(declaration)
}

fn identifier(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    Some(&text[..end]).filter(|name| !name.is_empty())
}

/// Returns what the `pub use` of a file name: a module and an item of it, or `*` for all.
fn exports(text: &str) -> Vec<(String, String)> {
    let mut exports = Vec::new();
    for line in text.split("\npub use ").skip(1) {
        let path = line.split(';').next().unwrap_or_default();
        let Some((module, names)) = path.rsplit_once("::") else { continue };
        let module = module.rsplit("::").next().unwrap_or(module);
        let names = names.trim_matches(['{', '}']).split(',').map(str::trim).filter(|name| !name.is_empty());
        exports.extend(names.map(|name| (module.to_owned(), name.to_owned())));
    }
    exports
}

#[test]
fn an_item_without_an_example_or_a_reason_is_found() {
    #[track_caller]
    fn check(text: &str, expected: &[(&str, bool)]) {
        let items = items(text);
        let found: Vec<_> = items.iter().map(|item| (item.name, item.has_example() || item.has_reason())).collect();
        assert_eq!(found, expected);
    }
    check("/// A step.\n#[derive(Clone)]\npub struct Step(u8);\n", &[("Step", false)]);
    check(
        "/// A step.\n///\n/// ```\n/// assert!(true);\n/// ```\npub struct Step<'a> {\n    pub fn no() {}\n}\n",
        &[("Step", true)],
    );
    check("/// A step.\n///\n/// ```text\n/// a\n/// ```\npub async fn step() {\n", &[("step", false)]);
    check(
        "/// A step.\n#[cfg_attr(unix, doc = \"```\")]\n/// assert!(true);\n/// ```\npub trait Step {\n",
        &[("Step", true)],
    );
    check("/// A step. Returned by\n/// [`next`].\npub enum Step {\n", &[("Step", true)]);
    check("/// A step that is returned by [`next`].\npub enum Step {\n", &[("Step", false)]);
    check("/// A step.\n///\n/// See [`next`].\npub enum Step {\n", &[("Step", false)]);
    check("/// A step.\n///\n/// See [`next`] for an example.\npub enum Step {\n", &[("Step", true)]);
    check(
        "plane_error! {\n    /// An error.\n    E with u8;\n    /// Kinds.\n    Kind {\n        /// A.\n        A => A,\n    }\n}\n",
        &[("E", false), ("Kind", false)],
    );
    check(
        "macro_rules! inner {\n}\n#[macro_export]\nmacro_rules! outer {\n}\npub(crate) fn f() {}\n",
        &[("outer", false)],
    );
    let found = exports("\npub use self::change::{Change,\n    Kind};\npub use kinds::*;\n");
    let found: Vec<_> = found.iter().map(|(module, name)| format!("{module}::{name}")).collect();
    assert_eq!(found, ["change::Change", "change::Kind", "kinds::*"]);
}
