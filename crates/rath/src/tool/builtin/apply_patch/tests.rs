use expect_test::{Expect, expect};
use proptest::prelude::*;
use rath_test_support::Chance;

use super::fit::apply_hunks;
use super::parse::{FilePatch, HunkLine, Patch, PatchHunk};

/// Returns a patch with these sections.
fn patch(sections: &str) -> String {
    format!("*** Begin Patch\n{sections}\n*** End Patch\n")
}

/// Applies the only section of a patch, which updates a file.
fn apply(text: &str, hunks: &str) -> Result<String, String> {
    let parsed = Patch::parse(&patch(&format!("*** Update File: a\n{hunks}")))?;
    match &parsed.files[..] {
        [FilePatch::Update { hunks, .. }] => apply_hunks(text, hunks),
        other => panic!("one update: {other:?}"),
    }
}

/// Compares a text after the hunks; `!` and the reason if one does not fit.
fn check(text: &str, hunks: &str, expected: Expect) {
    expected.assert_eq(&apply(text, hunks).map_or_else(|why| format!("! {why}"), |text| format!("{text:?}")));
}

/// Compares what is read of a patch; `!` and the reason if it is none.
fn check_parse(text: &str, expected: Expect) {
    let describe_hunk = |hunk: &PatchHunk| {
        let line = |line: &HunkLine| match line {
            HunkLine::Context(text) => format!(" {text}|"),
            HunkLine::Removed(text) => format!("-{text}|"),
            HunkLine::Added(text) => format!("+{text}|"),
        };
        let lines: String = hunk.lines.iter().map(line).collect();
        let end = if hunk.is_at_end { " end" } else { "" };
        format!(" [{:?} {lines}{end}]", hunk.headers)
    };
    let describe = |file: &FilePatch| match file {
        FilePatch::Add { path, content } => format!("add {path} {content:?}"),
        FilePatch::Delete { path } => format!("delete {path}"),
        FilePatch::Update { path, to, hunks } => {
            format!("update {path} to {to:?}{}", hunks.iter().map(describe_hunk).collect::<String>())
        }
    };
    let read = Patch::parse(text);
    let read = read.map(|patch| patch.files.iter().map(describe).collect::<Vec<_>>().join("\n"));
    expected.assert_eq(&read.unwrap_or_else(|why| format!("! {why}")));
}

#[test]
fn a_patch_is_read_as_models_write_it() {
    check_parse(
        &patch(
            "*** Update File: a.rs\n*** Move to: b.rs\n@@ fn a() {\n@@     if b {\n ctx\n-old\n+new\n\n last\n*** End of File\n\
             *** Add File: c d.txt\n+one\n+\n+two\n*** Delete File: e",
        ),
        expect![[r#"
            update a.rs to Some("b.rs") [["fn a() {", "    if b {"]  ctx|-old|+new| | last| end]
            add c d.txt "one\n\ntwo\n"
            delete e"#]],
    );
    // The first hunk may lack its `@@`; line numbers of another format are not used; blank lines separate sections.
    check_parse(
        &patch("*** Update File: a\n-x\n+y\n\n@@ -1,2 +3,4 @@ fn f()\n-p\n+q\n\n*** Delete File: b\n"),
        expect![[r#"
            update a to None [[] -x|+y|] [[] -p|+q|]
            delete b"#]],
    );
    check_parse("```\n*** Begin Patch\r\n*** Delete File: a\r\n*** End Patch\r\n```\n", expect!["delete a"]);
    check_parse("apply_patch <<'EOF'\n*** Begin Patch\n*** Delete File: a\n*** End Patch\nEOF\n", expect!["delete a"]);
    check_parse(&patch("*** Add File: empty"), expect![[r#"add empty """#]]);
    check_parse(&patch("*** Update File: ä\n@@\n-ö\n+ü"), expect!["update ä to None [[] -ö|+ü|]"]);
}

#[test]
fn an_error_of_the_parser_names_the_line() {
    check_parse("", expect!["! the patch is empty; wanted `*** Begin Patch` in its first line"]);
    check_parse("--- a\n+++ b\n", expect!["! line 1 of the patch: wanted `*** Begin Patch`, found `--- a`"]);
    check_parse("*** Begin Patch\n", expect!["! the patch has no end; wanted `*** End Patch` in its last line"]);
    check_parse(
        "*** Begin Patch\n*** Delete File: a\n",
        expect!["! the patch has no end; wanted `*** End Patch` in its last line"],
    );
    check_parse(
        &patch(""),
        expect![
            "! the patch changes no file; wanted `*** Update File: PATH`, `*** Add File: PATH` or `*** Delete File: PATH`"
        ],
    );
    check_parse(
        &patch("*** Rename File: a"),
        expect![
            "! line 2 of the patch: wanted `*** Update File: PATH`, `*** Add File: PATH`, `*** Delete File: PATH` or `*** End Patch`, found `*** Rename File: a`"
        ],
    );
    check_parse(&patch("*** Delete File:"), expect!["! line 2 of the patch: the path is missing"]);
    check_parse(
        &patch("*** Add File: a\none"),
        expect!["! line 3 of the patch: each line of a new file has to begin with `+`, found `one`"],
    );
    check_parse(&patch("*** Update File: a"), expect!["! line 2 of the patch: no change of `a` follows"]);
    check_parse(
        &patch("*** Update File: a\n@@\n one"),
        expect!["! line 3 of the patch: this hunk has no line with `-` or `+`"],
    );
    check_parse(
        &patch("*** Update File: a\n@@\none"),
        expect!["! line 4 of the patch: a line of a hunk has to begin with a space, `-` or `+`, found `one`"],
    );
    check_parse(
        &"x".repeat(2_000_000),
        expect!["! the patch has 2000000 bytes, and the limit is 1048576; give several"],
    );
    check_parse(
        &patch(&"*** Delete File: a\n".repeat(201)),
        expect!["! the patch changes more than 200 files; give several"],
    );
    let hunks = "@@\n-a\n".repeat(2_001);
    check_parse(
        &patch(&format!("*** Update File: a\n{hunks}")),
        expect!["! the patch has more than 2000 hunks; give several"],
    );
}

#[test]
fn hunks_are_applied_where_their_lines_are() {
    check("a\nb\nc\n", "@@\n a\n-b\n+x\n c", expect![[r#""a\nx\nc\n""#]]);
    check("a\nb\nb\n", "@@\n-b\n+x\n@@\n-b\n+y", expect![[r#""a\nx\ny\n""#]]);
    check("fn a\n  x\nfn b\n  x\n", "@@ fn b\n-  x\n+  y", expect![[r#""fn a\n  x\nfn b\n  y\n""#]]);
    check(
        "class A\n  fn b\n    x\nclass C\n  fn b\n    x\n",
        "@@ class C\n@@ fn b\n-    x\n+    y",
        expect![[r#""class A\n  fn b\n    x\nclass C\n  fn b\n    y\n""#]],
    );
    // The header is above the hunk before.
    check("fn a\n x\n y\n", "@@ fn a\n- x\n+ 1\n@@ fn a\n- y\n+ 2", expect![[r#""fn a\n 1\n 2\n""#]]);
    check("a\nb\na\n", "@@\n-a\n+x\n*** End of File", expect![[r#""a\nb\nx\n""#]]);
    // New lines only: behind the header, or at the end.
    check("a\nb\n", "@@ a\n+x", expect![[r#""a\nx\nb\n""#]]);
    check("a\nb\n", "@@\n+x", expect![[r#""a\nb\nx\n""#]]);
    check("", "@@\n+x", expect![[r#""x\n""#]]);
    check("a\n", "@@\n-a", expect![[r#""""#]]);
    // White space at the end of a line that stays is kept as the file has it.
    check("a  \nb\t\nc\n", "@@\n a\n-b\n+x\n c", expect![[r#""a  \nx\nc\n""#]]);
    // An exact match comes before one that is not.
    check("b \nb\n", "@@\n-b\n+x", expect![[r#""b \nx\n""#]]);
}

#[test]
fn line_endings_and_a_missing_last_one_stay() {
    check("a\r\nb\r\nc\r\n", "@@\n a\n-b\n+x\n+y", expect![[r#""a\r\nx\r\ny\r\nc\r\n""#]]);
    check("a\nb\r\nc\nd\n", "@@\n-c\n+x", expect![[r#""a\nb\r\nx\nd\n""#]]);
    check("a\r\nb\r\nc\n", "@@\n+x", expect![[r#""a\r\nb\r\nc\nx\r\n""#]]);
    check("a\nb", "@@\n-b\n+x", expect![[r#""a\nx""#]]);
    check("a\nb", "@@\n+x", expect![[r#""a\nb\nx""#]]);
    check("a\nb", "@@\n-b", expect![[r#""a""#]]);
    check("a\r\nb", "@@\n-b\n+x\n+y", expect![[r#""a\r\nx\r\ny""#]]);
    check("a\nb\n", "@@\r\n-b\r\n+x\r", expect![[r#""a\nx\n""#]]);
}

#[test]
fn a_hunk_that_does_not_fit_says_why() {
    let text = "fn main() {\n\tlet a = 1;\n\tprint(a);\n}\n";
    check(
        text,
        "@@ fn main() {\n-    let a = 1;\n+    let a = 2;",
        expect![[r#"
            ! hunk 1 of 1: its lines are not in the file; line 2 is the same but for white space: line 2 begins with 1 tab, and with 4 spaces in the patch:
            	let a = 1;
            read the file again, and give the lines as they are there"#]],
    );
    check(
        text,
        "@@\n fn main() {\n-\tlet a = 2;\n+\tlet a = 3;",
        expect![[r#"
            ! hunk 1 of 1: its lines are not in the file; lines 1 to 2 are nearest, and the first that differs is line 2: `	let a = 2;` in the patch:
            fn main() {
            	let a = 1;
            read the file again, and give the lines as they are there"#]],
    );
    check(
        text,
        "@@\n-zebra\n+x",
        expect![
            "! hunk 1 of 1: its lines are not in the file; the first is `zebra`; read the file again, and give the lines as they are there"
        ],
    );
    check(
        text,
        "@@ fn mian() {\n-}\n+x",
        expect![[r#"
        ! hunk 1 of 1: the line behind `@@` is not in the file: `fn mian() {`; line 1 is nearest:
        fn main() {"#]],
    );
    check(
        "a\nb\n",
        "@@\n-b\n+x\n@@\n-a\n+y",
        expect![
            "! hunk 2 of 2: its lines begin in line 1, above the hunk before; give the hunks in the order of the file"
        ],
    );
    check(
        "a\nb\n",
        "@@ b\n-a\n+y",
        expect![
            "! hunk 1 of 1: its lines begin in line 1, and not below the line behind `@@`; change that line or leave it out"
        ],
    );
    check(
        "a\nb\n",
        "@@\n-a\n+y\n*** End of File",
        expect![
            "! hunk 1 of 1: its lines begin in line 1, and not at the end of the file; leave out `*** End of File`"
        ],
    );
}

#[test]
fn hunks_that_are_made_to_cost_much_cost_little() {
    let text = "a\n".repeat(2_000_000);
    let hunk = format!("@@\n{}-b\n+c", " a\n".repeat(200_000));
    let problem = apply(&text, &hunk).expect_err("it is refused");
    assert!(problem.starts_with("hunk 1 of 1: its lines occur too often"), "{problem}");
}

/// Returns a patch that turns one list of lines into another, with as much context as chance has it.
///
/// A hunk begins with lines that are found at its place first: with all lines behind the hunk before, if fewer are not enough.
fn patch_between(old: &[&str], new: &[&str], chance: &mut Chance) -> String {
    let mut text = String::from("*** Begin Patch\n*** Update File: a\n");
    let (mut at, mut new_at) = (0, 0);
    let mut hunks = 0;
    while (at, new_at) != (old.len(), new.len()) {
        // Lines that stay.
        let same = old[at..].iter().zip(&new[new_at..]).take_while(|(one, other)| one == other).count();
        let change = at + same;
        if change == old.len() && new_at + same == new.len() {
            break;
        }
        // Lines that go and come.
        let gone = chance.below((old.len() - change) as u64 + 1) as usize;
        // New lines in front of all others take the place of one: nothing else says where they stand.
        let gone = if change == at && change < old.len() { gone.max(1) } else { gone };
        let come = if change + gone == old.len() {
            new.len() - new_at - same
        } else {
            chance.below((new.len() - new_at - same) as u64 + 1) as usize
        };
        if gone + come == 0 {
            // Nothing is left of one side, or chance had it so: all goes and all comes.
            let (gone, come) = (old.len() - change, new.len() - new_at - same);
            hunks += push_hunk(&mut text, (old, at, change, gone), &new[new_at + same..][..come], chance);
            break;
        }
        hunks += push_hunk(&mut text, (old, at, change, gone), &new[new_at + same..][..come], chance);
        (at, new_at) = (change + gone, new_at + same + come);
    }
    if hunks == 0 {
        return String::new();
    }
    text + "*** End Patch\n"
}

fn push_hunk(
    text: &mut String,
    (old, done, change, gone): (&[&str], usize, usize, usize),
    come: &[&str],
    chance: &mut Chance,
) -> usize {
    let is_first = |from: usize| {
        let wanted = &old[from..change + gone];
        !wanted.is_empty() && old[done..].windows(wanted.len()).position(|lines| lines == wanted) == Some(from - done)
    };
    let mut from = change - chance.below((change - done) as u64 + 1) as usize;
    while from > done && !is_first(from) {
        from -= 1;
    }
    text.push_str("@@\n");
    old[from..change].iter().for_each(|line| *text += &format!(" {line}\n"));
    old[change..change + gone].iter().for_each(|line| *text += &format!("-{line}\n"));
    come.iter().for_each(|line| *text += &format!("+{line}\n"));
    if change + gone == old.len() && chance.below(2) == 0 {
        text.push_str("*** End of File\n");
    }
    1
}

proptest! {
    #![proptest_config(rath_test_support::property(400))]

    #[test]
    fn a_patch_made_from_two_files_turns_one_into_the_other(
        old in proptest::collection::vec("[ab +@*-]{0,3}", 0..12),
        new in proptest::collection::vec("[ab +@*-]{0,3}", 0..12),
        seed in any::<u64>(),
        ending in prop::sample::select(vec!["\n", "\r\n"]),
    ) {
        let (old, new): (Vec<&str>, Vec<&str>) = (old.iter().map(|it| &**it).collect(), new.iter().map(|it| &**it).collect());
        let text = patch_between(&old, &new, &mut Chance(seed));
        let join = |lines: &[&str]| lines.iter().map(|line| format!("{line}{ending}")).collect::<String>();
        if text.is_empty() {
            prop_assert_eq!(old, new);
        } else {
            let patch = Patch::parse(&text).map_err(|why| TestCaseError::fail(format!("{why}\n{text}")))?;
            let [FilePatch::Update { hunks, .. }] = &patch.files[..] else { panic!("one update: {patch:?}") };
            let edited = apply_hunks(&join(&old), hunks).map_err(|why| TestCaseError::fail(format!("{why}\n{text}")))?;
            // A file without lines says nothing about its line endings.
            let edited = if old.is_empty() { edited.replace('\n', ending) } else { edited };
            prop_assert_eq!(edited, join(&new), "{}", text);
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(
        lines in proptest::collection::vec(prop_oneof![
            prop::sample::select(vec![
                "*** Begin Patch", "*** End Patch", "*** Update File: a", "*** Add File: b", "*** Delete File: c",
                "*** Move to: d", "*** End of File", "@@", "@@ x", "@@ -1 +1 @@", "", " ", "-", "+", "+x", "-x", " x", "x", "```", "<<EOF", "EOF", "ä",
                "*** ", "***", "@", "*** Update File:",
            ]).prop_map(str::to_owned),
            any::<String>(),
        ], 0..20),
        is_wrapped in any::<bool>(),
        file in any::<String>(),
    ) {
        let text = lines.join("\n");
        let text = if is_wrapped { patch(&text) } else { text };
        if let Ok(patch) = Patch::parse(&text) {
            for part in &patch.files {
                if let FilePatch::Update { hunks, .. } = part {
                    let _ = apply_hunks(&file, hunks);
                    let _ = apply_hunks("x\n\nä\n", hunks);
                }
            }
            prop_assert!(!patch.paths().is_empty());
        }
    }
}
