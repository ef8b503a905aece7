use std::sync::atomic::{AtomicUsize, Ordering};

use expect_test::{Expect, expect};

use super::*;
use crate::sandbox::{self, Command, Entry, Ran, SandboxBackend, Sink};

/// What becomes of a text; `!` and why where nothing does.
fn check(text: &str, old: &str, new: &str, which: Which, expected: Expect) {
    let edited = replaced(text, old, new, which);
    let told =
        edited.map_or_else(|why| format!("! {why}"), |edited| format!("{:?} in {}", edited.text, named(&edited.lines)));
    expected.assert_eq(&told);
}

#[test]
fn a_text_is_replaced_where_it_is_once_and_nothing_else_changes() {
    check("a b c", "b", "x", Which::Only, expect![[r#""a x c" in line 1"#]]);
    check("a\nb\nc", "b\nc", "x", Which::Only, expect![[r#""a\nx" in line 2"#]]);
    check("a\nb\n", "b\n", "", Which::Only, expect![[r#""a\n" in line 2"#]]);
    check("a\nb", "b", "c\n", Which::Only, expect![[r#""a\nc\n" in line 2"#]]);
    check("ä\nö", "ö", "ü", Which::Only, expect![[r#""ä\nü" in line 2"#]]);
    check("b b b", "b", "bb", Which::All, expect![[r#""bb bb bb" in line 1"#]]);
    check("b\nb\n\nb", "b", "", Which::All, expect![[r#""\n\n\n" in lines 1, 2 and 4"#]]);
    check("aaaa", "aa", "b", Which::All, expect![[r#""bb" in line 1"#]]);
    check("\u{feff}a", "a", "b", Which::Only, expect![[r#""\u{feff}b" in line 1"#]]);
}

#[test]
fn line_endings_stay_as_they_are() {
    check("a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", Which::Only, expect![[r#""x\r\ny\r\nz\r\nc\r\n" in line 1"#]]);
    check("a\r\nb\r\n", "b", "x\ny", Which::Only, expect![[r#""a\r\nx\r\ny\r\n" in line 2"#]]);
    check("a\r\nb\r\n", "b", "x\r\ny", Which::Only, expect![[r#""a\r\nx\r\ny\r\n" in line 2"#]]);
    check("a\nb\r\nc\nd", "c", "x\ny", Which::Only, expect![[r#""a\nb\r\nx\ny\nd" in line 3"#]]);
    check("a\nb\r\nc\nd", "b\nc", "x\ny", Which::Only, expect![[r#""a\nx\r\ny\nd" in line 2"#]]);
    check("a\r\nb", "\nb", "\nc", Which::Only, expect![[r#""a\r\nc" in line 1"#]]);
    check("a\r\nb", "a\r\nb", "a\nb", Which::Only, expect![[r#""a\nb" in line 1"#]]);
    check("a\r\nb\r\n", "\r\n", "\n", Which::All, expect![[r#""a\nb\n" in lines 1 and 2"#]]);
    check("a\rb", "b", "c\nd", Which::Only, expect![[r#""a\rc\nd" in line 1"#]]);
}

#[test]
fn a_text_that_is_not_there_once_is_told_with_what_is() {
    check(
        "a b\nb\nb",
        "b",
        "x",
        Which::Only,
        expect!["! `old` is there 3 times, in lines 1, 2 and 3; add lines around it, or set `all`"],
    );
    check(
        "aaa",
        "aa",
        "x",
        Which::Only,
        expect!["! `old` is there 2 times, in line 1; add lines around it, or set `all`"],
    );
    check("a", "", "x", Which::Only, expect!["! `old` is empty"]);
    check("a", "a", "a", Which::Only, expect!["! `old` and `new` are the same"]);
    check("a", "zebra", "x", Which::Only, expect!["! `old` is not there"]);
    check("", "zebra", "x", Which::Only, expect!["! `old` is not there"]);
    check("a", "\n\n", "x", Which::Only, expect!["! `old` is not there"]);
    check(
        "fn main() {\n    if ready {\n\tgo();\n    }\n}\n",
        "if ready {\n    go();\n}",
        "x",
        Which::Only,
        expect![[r#"
            ! `old` is not there; lines 2 to 4 are the same but for white space:
                if ready {
            	go();
                }"#]],
    );
    check(
        "let total = sum(items);\nprint(total);\n",
        "let totals = sum(items);",
        "x",
        Which::Only,
        expect![[r#"
            ! `old` is not there; line 1 is nearest:
            let total = sum(items);"#]],
    );
    check(
        "one\ntwo\nthree\nfour\n",
        "two\nthird\nfour",
        "x",
        Which::Only,
        expect![[r#"
            ! `old` is not there; lines 2 to 4 are nearest:
            two
            three
            four"#]],
    );
}

/// A file that somebody else writes while it is edited.
struct Contested(AtomicUsize);

impl SandboxBackend for Contested {
    fn uri(&self) -> &str {
        "contested:"
    }
    async fn run(&self, _: &Command, _: &mut Sink<'_>) -> sandbox::Result<Ran> {
        Err(sandbox::Error::new(sandbox::ErrorKind::Unavailable, "nothing runs here"))
    }
    async fn read(&self, _: &str, _: Part) -> sandbox::Result<Vec<u8>> {
        Ok(format!("read {} times", self.0.fetch_add(1, Ordering::Relaxed)).into_bytes())
    }
    async fn write(&self, _: &str, _: &[u8]) -> sandbox::Result<()> {
        panic!("it would be lost what somebody else wrote")
    }
    async fn list(&self, _: &str) -> sandbox::Result<Vec<Entry>> {
        Ok(Vec::new())
    }
    async fn look(&self, _: &str) -> sandbox::Result<Option<Entry>> {
        Ok(None)
    }
}

#[test]
fn a_file_that_somebody_changes_meanwhile_is_not_overwritten() {
    let sandbox = Sandbox::new(Contested(AtomicUsize::new(0)));
    let edited = futures_util::FutureExt::now_or_never(edit(&sandbox, "a", "read", "x", Which::Only));
    let error = edited.expect("nothing waits").expect_err("it changed");
    expect!["cannot edit `a`: it was changed by somebody else meanwhile; read it again"].assert_eq(&error.to_string());
}
