use std::sync::atomic::{AtomicUsize, Ordering};

use expect_test::{Expect, expect};

use super::*;
use crate::sandbox::{self, Command, DirEntry, Output, SandboxBackend, Sink};

/// Compares the text after an edit; `!` and the reason if there is none.
fn check(text: &str, old: &str, new: &str, mode: EditMode, expected: Expect) {
    let edited = replace(text, old, new, mode);
    let result = edited.map_or_else(
        |why| format!("! {why}"),
        |edited| format!("{:?} in {}", edited.text, format_lines(&edited.lines)),
    );
    expected.assert_eq(&result);
}

#[test]
fn only_the_text_is_replaced() {
    check("a b c", "b", "x", EditMode::Only, expect![[r#""a x c" in line 1"#]]);
    check("a\nb\nc", "b\nc", "x", EditMode::Only, expect![[r#""a\nx" in line 2"#]]);
    check("a\nb\n", "b\n", "", EditMode::Only, expect![[r#""a\n" in line 2"#]]);
    check("a\nb", "b", "c\n", EditMode::Only, expect![[r#""a\nc\n" in line 2"#]]);
    check("ä\nö", "ö", "ü", EditMode::Only, expect![[r#""ä\nü" in line 2"#]]);
    check("b b b", "b", "bb", EditMode::All, expect![[r#""bb bb bb" in line 1"#]]);
    check("b\nb\n\nb", "b", "", EditMode::All, expect![[r#""\n\n\n" in lines 1, 2 and 4"#]]);
    check("aaaa", "aa", "b", EditMode::All, expect![[r#""bb" in line 1"#]]);
    check("\u{feff}a", "a", "b", EditMode::Only, expect![[r#""\u{feff}b" in line 1"#]]);
}

#[test]
fn line_endings_stay_as_they_are() {
    check("a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", EditMode::Only, expect![[r#""x\r\ny\r\nz\r\nc\r\n" in line 1"#]]);
    check("a\r\nb\r\n", "b", "x\ny", EditMode::Only, expect![[r#""a\r\nx\r\ny\r\n" in line 2"#]]);
    check("a\r\nb\r\n", "b", "x\r\ny", EditMode::Only, expect![[r#""a\r\nx\r\ny\r\n" in line 2"#]]);
    check("a\nb\r\nc\nd", "c", "x\ny", EditMode::Only, expect![[r#""a\nb\r\nx\ny\nd" in line 3"#]]);
    check("a\nb\r\nc\nd", "b\nc", "x\ny", EditMode::Only, expect![[r#""a\nx\r\ny\nd" in line 2"#]]);
    check("a\r\nb", "\nb", "\nc", EditMode::Only, expect![[r#""a\r\nc" in line 1"#]]);
    check("a\r\nb", "a\r\nb", "a\nb", EditMode::Only, expect![[r#""a\nb" in line 1"#]]);
    check("a\r\nb\r\n", "\r\n", "\n", EditMode::All, expect![[r#""a\nb\n" in lines 1 and 2"#]]);
    check("a\rb", "b", "c\nd", EditMode::Only, expect![[r#""a\rc\nd" in line 1"#]]);
}

#[test]
fn an_error_names_the_lines_or_shows_similar_ones() {
    check(
        "a b\nb\nb",
        "b",
        "x",
        EditMode::Only,
        expect!["! `old_string` is there 3 times, in lines 1, 2 and 3; add lines around it, or set `replace_all`"],
    );
    check(
        "aaa",
        "aa",
        "x",
        EditMode::Only,
        expect!["! `old_string` is there 2 times, in line 1; add lines around it, or set `replace_all`"],
    );
    check("a", "", "x", EditMode::Only, expect!["! `old_string` is empty"]);
    check("a", "a", "a", EditMode::Only, expect!["! `old_string` and `new_string` are the same"]);
    check("a", "zebra", "x", EditMode::Only, expect!["! `old_string` is not there"]);
    check("", "zebra", "x", EditMode::Only, expect!["! `old_string` is not there"]);
    check("a", "\n\n", "x", EditMode::Only, expect!["! `old_string` is not there"]);
    check(
        "fn main() {\n    if ready {\n\tgo();\n    }\n}\n",
        "if ready {\n    go();\n}",
        "x",
        EditMode::Only,
        expect![[r#"
            ! `old_string` is not there; lines 2 to 4 are the same but for white space: line 2 begins with 4 spaces, and with no white space in `old_string`:
                if ready {
            	go();
                }"#]],
    );
    check(
        "let total = sum(items);\nprint(total);\n",
        "let totals = sum(items);",
        "x",
        EditMode::Only,
        expect![[r#"
            ! `old_string` is not there; line 1 is nearest:
            let total = sum(items);"#]],
    );
    check(
        "one\ntwo\nthree\nfour\n",
        "two\nthird\nfour",
        "x",
        EditMode::Only,
        expect![[r#"
            ! `old_string` is not there; lines 2 to 4 are nearest, and the first that differs is line 3: `third` in `old_string`:
            two
            three
            four"#]],
    );
}

#[test]
fn an_error_says_what_differs() {
    let text = "fn main() {\n    go();  \n\tstop( a );\n}\n";
    check(
        text,
        "    go();\n\tstop( a );",
        "x",
        EditMode::Only,
        expect![[r#"
        ! `old_string` is not there; lines 2 to 3 are the same but for white space: line 2 ends with 2 spaces, and with no white space in `old_string`:
            go();  
        	stop( a );"#]],
    );
    check(text, "  go();", "x", EditMode::Only, expect![[r#""fn main() {\n  x  \n\tstop( a );\n}\n" in line 2"#]]);
    check(
        text,
        "stop(a);",
        "x",
        EditMode::Only,
        expect![[r#"
        ! `old_string` is not there; line 3 is the same but for white space: line 3 begins with 1 tab, and with no white space in `old_string`:
        	stop( a );"#]],
    );
    check(
        text,
        "1\tfn main() {\n2\t    go();  ",
        "x",
        EditMode::Only,
        expect![
            "! `old_string` is not there; lines 1 to 2 are the same without the line numbers: leave the numbers out"
        ],
    );
    check(
        text,
        "1: fn main() {",
        "x",
        EditMode::Only,
        expect!["! `old_string` is not there; line 1 is the same without the line numbers: leave the numbers out"],
    );
    check(
        &"x".repeat(1_000),
        &format!("{}y", "x".repeat(999)),
        "x",
        EditMode::Only,
        expect![[r#"
        ! `old_string` is not there; line 1 is nearest:
        xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"#]],
    );
}

#[test]
fn edits_that_are_made_to_cost_much_cost_little() {
    let long = "a".repeat(1 << 20);
    let many = "aaaa bbbb\n".repeat(100_000);
    let cases = [
        // A result of 64 GB.
        (&long, "a".to_owned(), "b".repeat(1 << 16), EditMode::All, "it would have more than 16777216 bytes"),
        // Half a million occurrences of half a megabyte.
        (
            &long,
            "a".repeat(1 << 19),
            "b".to_owned(),
            EditMode::Only,
            "`old_string` is there at least 100 times, in line 1; add",
        ),
        // Many short lines, and a long one.
        (&many, "a".repeat(100_000), "b".to_owned(), EditMode::Only, "`old_string` is not there"),
        // Each of them differs in the last line.
        (&many, "aaaabbbb\n".repeat(50_000) + "c", "b".to_owned(), EditMode::Only, "`old_string` is not there"),
    ];
    for (text, old, new, mode, expected) in cases {
        let message = replace(text, &old, &new, mode).expect_err("it is refused");
        assert!(message.starts_with(expected), "{message}");
    }
}

/// A file that changes while it is edited.
struct Contested(AtomicUsize);

impl SandboxBackend for Contested {
    fn uri(&self) -> &str {
        "contested:"
    }
    async fn run(&self, _: &Command, _: &mut Sink<'_>) -> sandbox::Result<Output> {
        Err(sandbox::Error::new(sandbox::ErrorKind::Unavailable, "nothing runs here"))
    }
    async fn read(&self, _: &str, _: ByteRange) -> sandbox::Result<Vec<u8>> {
        Ok(format!("read {} times", self.0.fetch_add(1, Ordering::Relaxed)).into_bytes())
    }
    async fn write(&self, _: &str, _: &[u8]) -> sandbox::Result<()> {
        panic!("the change of another writer would be lost")
    }
    async fn list(&self, _: &str) -> sandbox::Result<Vec<DirEntry>> {
        Ok(Vec::new())
    }
    async fn stat(&self, _: &str) -> sandbox::Result<Option<DirEntry>> {
        Ok(None)
    }
}

#[test]
fn a_file_that_changes_during_an_edit_is_not_overwritten() {
    let sandbox = Sandbox::new(Contested(AtomicUsize::new(0)));
    let edited = futures_util::FutureExt::now_or_never(edit(&sandbox, "a", "read", "x", EditMode::Only));
    let error = edited.expect("nothing waits").expect_err("it changed");
    expect!["cannot edit `a`: it changed while it was edited; read it again"].assert_eq(&error.to_string());
}
