//! Decisions about calls.

use super::*;

/// A call of a tool, in the sandbox of a workspace.
fn facts(call: &str) -> CallFacts {
    let (tool, argument) = call.split_once(' ').unwrap_or((call, ""));
    let read = || vec![argument.to_owned()];
    let facts = match tool {
        "shell" => CallFacts::new(tool, false, false).confined(true).using(vec![Use::CommandLine(argument.to_owned())]),
        "unconfined" => CallFacts::new("shell", false, false).using(vec![Use::CommandLine(argument.to_owned())]),
        "python" => {
            let words = ["python", "-c", argument].map(str::to_owned);
            CallFacts::new("run_code", false, false).confined(true).using(vec![Use::Program(words.into())])
        }
        "read" => CallFacts::new("read_file", true, false).touching(read(), Vec::new()),
        "write" => CallFacts::new("write_file", false, false).touching(Vec::new(), read()),
        "fetch" => CallFacts::new("shell", false, false)
            .confined(true)
            .using(vec![Use::CommandLine("curl x".to_owned()), Use::Host(argument.to_owned())]),
        "outside" => CallFacts::new("shell", false, false)
            .confined(true)
            .using(vec![Use::CommandLine("make install".to_owned()), Use::Outside(argument.to_owned())]),
        "server" => CallFacts::new("files__list", false, false).using(vec![Use::Server("files".to_owned())]),
        "pay" => CallFacts::new(tool, false, true),
        other => CallFacts::new(other, false, false),
    };
    let targets = facts.redirects();
    facts.redirecting_to(targets)
}

fn check(mode: Mode, rules: &str, rows: &[(&str, &str)]) {
    let rules: Vec<Rule> =
        rules.split(';').filter(|it| !it.trim().is_empty()).map(|it| it.parse().expect(it)).collect();
    let policy = Policy::new(mode).rules(rules);
    for (call, expected) in rows {
        let found = match policy.decide(&facts(call), Vec::new) {
            Decision::Allow { rule } => {
                format!("allow{}", rule.map(|rule| format!(": {rule}")).unwrap_or_default())
            }
            Decision::Ask { why, rule } if rule.starts_with("mode ") => format!("ask: {why}"),
            Decision::Ask { why, rule } => format!("ask: {why} ({rule})"),
            Decision::Deny { rule } => format!("deny: {rule}"),
        };
        assert_eq!(found, *expected, "{call}");
    }
}

#[test]
fn a_mode_decides_where_no_rule_fits() {
    let changes = "ask: it may change something";
    check(
        Mode::ReadOnly,
        "",
        &[
            ("read a", "allow"),
            ("write a", "deny: mode read-only"),
            ("shell ls", "deny: mode read-only"),
            ("pay", "deny: mode read-only"),
            ("fetch example.com", "deny: mode read-only"),
        ],
    );
    check(Mode::Ask, "", &[("read a", "allow"), ("write a", changes), ("shell ls", changes), ("mail", changes)]);
    check(
        Mode::Workspace,
        "",
        &[
            ("read a", "allow"),
            ("write a", "allow"),
            ("write Makefile", "allow"),
            ("write a/.envrc", "ask: other programs run a/.envrc without being asked to"),
            ("shell ls", "allow"),
            ("unconfined ls", "ask: nothing isolates its commands"),
            ("mail", "ask: it may change something outside of the workspace"),
            ("server", "ask: it may change something outside of the workspace"),
            ("shell echo x > .envrc", "ask: other programs run .envrc without being asked to"),
            ("fetch example.com", "ask: it would use the network: example.com"),
            ("outside /opt", "ask: it would write /opt, outside of the workspace"),
        ],
    );
    check(
        Mode::Full,
        "",
        &[
            ("write .envrc", "allow"),
            ("unconfined ls", "allow"),
            ("mail", "allow"),
            ("pay", "ask: the tool asks for approval"),
            ("fetch example.com", "ask: it would use the network: example.com"),
            ("outside /opt", "ask: it would write /opt, outside of the workspace"),
        ],
    );
}

#[test]
fn a_rule_that_denies_comes_before_one_that_asks_and_one_that_allows() {
    let rules =
        "allow tool shell; ask command git *; deny command git push *; allow command git push *; allow tool pay";
    check(
        Mode::Ask,
        rules,
        &[
            ("shell ls", "allow: allow tool shell"),
            ("shell git log", "ask: a rule asks (ask command git *)"),
            ("shell git push", "deny: deny command git push *"),
            ("shell a && git push origin", "deny: deny command git push *"),
            ("shell echo $(git push)", "deny: deny command git push *"),
            ("shell sudo -u x /usr/bin/git push", "deny: deny command git push *"),
            ("shell A=1 git push", "deny: deny command git push *"),
            ("shell bash -c 'git push'", "deny: deny command git push *"),
            ("shell $x push", "ask: a rule may forbid it (deny command git push *)"),
            ("pay", "allow: allow tool pay"),
        ],
    );
}

#[test]
fn a_call_is_allowed_only_if_rules_cover_all_that_it_uses() {
    let changes = "ask: it may change something";
    let rules = "allow command cargo test *; allow command git status; allow write src/; allow host crates.io; \
                 allow outside /opt/x; allow command make *; allow server files; allow command python -c 'print(1)'";
    check(
        Mode::Ask,
        rules,
        &[
            ("shell cargo test", "allow: allow command cargo test *"),
            ("shell cargo test -p a && git status", "allow: allow command cargo test *, allow command git status"),
            ("shell cd crates/a && cargo test", changes),
            ("shell cd ../other && cargo test", changes),
            ("shell cd / && cargo test", changes),
            ("shell cargo test; rm -rf .", changes),
            ("shell cargo test | sh", changes),
            ("shell cargo test $(rm x)", changes),
            ("shell cargo test `rm x`", changes),
            ("shell cargo test <(rm x)", changes),
            ("shell cargo test\nrm x", changes),
            ("shell cargo test & rm x", changes),
            ("shell PATH=. cargo test", changes),
            ("shell ./cargo test", changes),
            ("shell cargo test > src/log", "allow: allow command cargo test *, allow write src/"),
            ("shell cargo test > .git/hooks/x", "ask: other programs run .git/hooks/x without being asked to"),
            ("shell cargo test > src/../x", changes),
            ("shell cargo test > ~/src/x", changes),
            ("shell cargo test > /tmp/src/x", changes),
            ("shell cargo test >&2x", changes),
            ("shell cargo test \r#;rm x", changes),
            ("shell cargo test &>/dev/null rm x", changes),
            ("shell cargo test $((#$(rm x)\n))", changes),
            ("shell cd .git && cargo test > src/x", "ask: other programs run .git/src/x without being asked to"),
            ("shell cargo test > $x", changes),
            ("shell cargo() { rm x; }; cargo test", changes),
            ("shell # cargo test", changes),
            ("shell cargo test <<E\nrm x\nE", changes),
            ("python print(1)", "allow: allow command python -c 'print(1)'"),
            ("python print(1);x()", changes),
            ("write src/a", "allow: allow write src/"),
            ("write a", changes),
            ("server", "allow: allow server files"),
            ("fetch crates.io", changes),
            ("outside /opt/x/y", "allow: allow command make *, allow outside /opt/x"),
            ("outside /opt/xy", "ask: it would write /opt/xy, outside of the workspace"),
        ],
    );
    check(Mode::Workspace, "allow host crates.io", &[("fetch crates.io", "allow: allow host crates.io")]);
    check(Mode::ReadOnly, "allow host crates.io", &[("fetch crates.io", "deny: mode read-only")]);
    check(Mode::Ask, "allow command *", &[("shell $x; a > b", changes), ("shell $x", "allow: allow command *")]);
    check(Mode::Ask, "allow tool shell", &[("shell $x; a > b", "allow: allow tool shell")]);
    check(Mode::Ask, "allow tool *", &[("fetch a.com", "ask: it would use the network: a.com")]);
}

#[test]
fn the_rules_that_are_offered_allow_the_call() {
    for (call, offered) in [
        ("shell cargo test", "allow command cargo test"),
        ("shell rm * && ls > a b", "allow command rm \\*; allow command ls b; allow write /a"),
        ("shell $x", ""),
        ("shell rm '*'", "allow command rm '\\*'"),
        ("shell echo $(date)", ""),
        ("python print(1)", ""),
        ("pay", "allow tool pay"),
        ("shell cat <<E\na\nE", ""),
        ("write a b", "allow write /a\\ b"),
        ("mail", "allow tool mail"),
        ("fetch a.com", "allow command curl x; allow host a.com"),
    ] {
        let facts = facts(call);
        let rules = facts.rules_to_offer();
        assert_eq!(rules.iter().map(Rule::to_string).collect::<Vec<_>>().join("; "), offered, "{call}");
        let granted = Policy::new(Mode::Ask).decide(&facts, || rules.clone());
        assert_eq!(matches!(granted, Decision::Allow { .. }), !offered.is_empty(), "{call}");
    }
}

#[test]
fn a_grant_beats_a_rule_that_asks_and_not_one_that_denies() {
    let granted = || vec!["allow command git push".parse().expect("a rule")];
    let decide = |rule: &str| {
        Policy::new(Mode::Full).rule(rule.parse().expect("a rule")).decide(&facts("shell git push"), granted)
    };
    assert_eq!(decide("ask command git *"), Decision::Allow { rule: Some("allow command git push".to_owned()) });
    // A rule that asks does not loosen a mode that refuses, and a rule that may forbid does not hide one that does.
    let read_only = |rules: &str, call: &str| {
        let rules = rules.split(';').map(|rule| rule.parse().expect("a rule"));
        Policy::new(Mode::ReadOnly).rules(rules).decide(&facts(call), Vec::new)
    };
    assert_eq!(read_only("ask tool *", "shell ls"), Decision::Deny { rule: "mode read-only".to_owned() });
    assert_eq!(read_only("deny command x", "shell $x"), Decision::Deny { rule: "mode read-only".to_owned() });
    let both = "deny command git push *;deny tool shell";
    assert_eq!(read_only(both, "shell $x"), Decision::Deny { rule: "deny tool shell".to_owned() });
    assert_eq!(decide("deny command git *"), Decision::Deny { rule: "deny command git *".to_owned() });
}

#[test]
fn a_rule_that_denies_fits_any_name_on_the_way_and_one_that_allows_the_target() {
    let check = |rules: &str, expected: &str| {
        let rules = rules.split(';').filter(|it| !it.is_empty()).map(|it| it.parse::<Rule>().expect(it));
        let policy = Policy::new(Mode::Workspace).rules(rules);
        let names = || vec![".envrc".to_owned()];
        let writes = CallFacts::new("write_file", false, false).touching(Vec::new(), vec!["conf/env.sh".to_owned()]);
        let writes = writes.through(Vec::new(), names());
        let reads = CallFacts::new("read_file", true, false).touching(vec!["conf/env.sh".to_owned()], Vec::new());
        let reads = reads.through(names(), Vec::new());
        let decided = [reads, writes].map(|facts| match policy.decide(&facts, Vec::new) {
            Decision::Allow { .. } => "allow",
            Decision::Ask { .. } => "ask",
            Decision::Deny { .. } => "deny",
        });
        assert_eq!(decided.join(" "), expected);
    };
    check("", "allow ask");
    check("deny read .envrc", "deny ask");
    check("deny write .envrc", "allow deny");
    check("deny write conf/", "allow deny");
    check("ask read .envrc", "ask ask");
    check("allow write .envrc", "allow ask");
    check("allow write conf/", "allow ask");
    check("allow write conf/;allow write .envrc", "allow allow");
    check("allow write *;deny write .envrc", "allow deny");
    check("allow tool write_file", "allow allow");
}
