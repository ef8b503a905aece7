use expect_test::{Expect, expect};
use secrecy::ExposeSecret;

use super::*;

/// Parses a configuration with a few variables and compares the servers, or the error.
fn check(origin: Origin, text: &str, expected: Expect) {
    let variable = |name: &str| match name {
        "TOKEN" => Some("correct-horse".to_owned()),
        "NESTED" => Some("${TOKEN}".to_owned()),
        "EMPTY" => Some(String::new()),
        "LONG" => Some("x".repeat(MAX_TEXT_BYTES)),
        "SHORT" | "WORD" | "PLAIN_WORD" => Some(name.to_lowercase()),
        _ => None,
    };
    let mut shown = String::new();
    match Config::parse(text, origin, variable) {
        Ok(Config { servers, notices, .. }) => {
            for server in servers {
                shown += &format!("{} reads {:?}: {:?}\n", server.name, server.variables, server.transport);
                if let Transport::Stdio(process) = &server.transport {
                    let env = process.env.iter().map(|(name, value)| format!("{name}={}", value.expose_secret()));
                    shown += &format!("  {:?} {:?}\n", process.args, env.collect::<Vec<_>>());
                }
                for (name, value) in server.secrets() {
                    shown += &format!("  secret {name}: {:?}\n", value.expose_secret());
                }
            }
            notices.iter().for_each(|notice| shown += &format!("notice: {notice}\n"));
        }
        Err(error) => shown = format!("{error:?}"),
    }
    expected.assert_eq(&shown);
}

/// Parses the members of one server.
fn check_server(members: &str, expected: Expect) {
    check(Origin::User, &format!(r#"{{"mcpServers": {{"one": {members}}}}}"#), expected);
}

#[test]
fn servers_are_read_with_their_variables() {
    check(
        Origin::User,
        r#"{"mcpServers": {
            "web": {"type": "http", "url": "https://a.example:8443/mcp?k=${TOKEN}", "headers": {"X-Key": "k ${TOKEN}"}},
            "files": {"command": "${CMD:-mcp-files}", "args": ["$HOME", "${NESTED}", "-t${TOKEN}"],
                      "env": {"A": "${EMPTY:-b}", "C": "", "A_KEY": "open sesame"},
                      "cwd": "sub", "walls": "network", "timeout": 3},
            "off": {"command": "x", "disabled": true}
        }, "inputs": []}"#,
        expect![[r#"
            files reads ["CMD", "EMPTY", "NESTED", "TOKEN"]: Stdio(StdioServer { command: "mcp-files", args: 3, env: ["A", "A_KEY", "C"], cwd: "sub", walls: Network })
              ["$HOME", "${TOKEN}", "-tcorrect-horse"] ["A=b", "A_KEY=open sesame", "C="]
              secret TOKEN: "correct-horse"
              secret A_KEY: "open sesame"
            web reads ["TOKEN"]: Http(HttpServer { host: "a.example:8443", headers: ["X-Key"] })
              secret TOKEN: "correct-horse"
              secret TOKEN: "correct-horse"
              secret X-Key: "k"
              secret X-Key: "correct-horse"
              secret X-Key: "k correct-horse"
              secret url: "correct-horse"
            notice: `inputs` means nothing here and was ignored
            notice: the server `files`: `timeout` means nothing here and was ignored
            notice: the server `off` is disabled
        "#]],
    );
}

#[test]
fn a_project_does_not_choose_walls() {
    check(
        Origin::Project,
        r#"{"mcpServers": {"a": {"command": "x", "walls": "none"}}}"#,
        expect![[r#"
        a reads []: Stdio(StdioServer { command: "x", args: 0, env: [], cwd: "", walls: Isolated })
          [] []
        notice: the server `a`: a file of the project cannot choose `walls`, so it stays isolated
    "#]],
    );
}

#[test]
fn what_is_wrong_is_named() {
    check(
        Origin::User,
        "{",
        expect!["the configuration cannot be read: EOF while parsing an object at line 1 column 1"],
    );
    check(
        Origin::User,
        r#"{"mcpServers": {},}"#,
        expect![[r#"
            the configuration cannot be read: trailing comma at line 1 column 19
            hint: JSON has no comments, and no comma after the last member"#]],
    );
    check(
        Origin::User,
        "[]",
        expect!["the configuration cannot be read: invalid type: sequence, expected an object at line 1 column 0"],
    );
    check(
        Origin::User,
        r#"{"servers": {}}"#,
        expect![[r#"
        the configuration has no member `mcpServers`
        hint: it has to look like {"mcpServers": {"name": {"command": "program"}}}"#]],
    );
    check(
        Origin::User,
        r#"{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}"#,
        expect![[r#"
            notice: the server `a` is left out: there are two of this name
        "#]],
    );
    check(
        Origin::User,
        r#"{"mcpServers": {}, "mcpServers": {}}"#,
        expect!["the configuration has two members `mcpServers`"],
    );
    check(
        Origin::User,
        r#"{"mcpServers": {"a__b": {"command": "x"}}}"#,
        expect![[r#"
            notice: the server `a__b` is left out: a name has up to 32 letters, digits, `-` and single `_` between them
        "#]],
    );
    check(
        Origin::User,
        r#"{"mcpServers": {"a\u001b]b": {"command": "x"}}}"#,
        expect![[r#"
            notice: the server `a�]b` is left out: a name has up to 32 letters, digits, `-` and single `_` between them
        "#]],
    );
    check_server(
        "7",
        expect![[r#"
        notice: the server `one` is left out: wanted an object, found a number
    "#]],
    );
    check_server(
        "{}",
        expect![[r#"
        notice: the server `one` is left out: it has neither a `command` nor a `url`
    "#]],
    );
    check_server(
        r#"{"command": ""}"#,
        expect![[r#"
        notice: the server `one` is left out: its `command` is empty
    "#]],
    );
    check_server(
        r#"{"command": "x", "args": "y"}"#,
        expect![[r#"
            notice: the server `one` is left out: `args`: wanted an array, found a string
        "#]],
    );
    check_server(
        r#"{"command": "x", "args": [1]}"#,
        expect![[r#"
            notice: the server `one` is left out: `args[0]`: wanted a string, found a number
        "#]],
    );
    check_server(
        r#"{"command": "x\u0000"}"#,
        expect![[r#"
        notice: the server `one` is left out: `command` contains a NUL byte
    "#]],
    );
    check_server(
        r#"{"command": "x", "env": {"A=B": "c"}}"#,
        expect![[r#"
            notice: the server `one` is left out: `env`: "A=B" is no name of a variable
        "#]],
    );
    check_server(
        r#"{"command": "x", "env": {"A": "${MISSING}"}}"#,
        expect![[r#"
            notice: the server `one` is left out: the variable `MISSING` is not set (in `env.A`) and has no default
        "#]],
    );
    check_server(
        r#"{"command": "x", "args": ["${env:TOKEN}"]}"#,
        expect![[r#"
            notice: the server `one` is left out: wanted `${NAME}` or `${NAME:-default}`, found another form of `${..}` (in `args[0]`)
        "#]],
    );
    check_server(
        r#"{"command": "x", "args": ["${TOKEN"]}"#,
        expect![[r#"
            notice: the server `one` is left out: `${` has no `}` (in `args[0]`)
        "#]],
    );
    check_server(
        r#"{"command": "x", "args": ["${LONG}${LONG}"]}"#,
        expect![[r#"
            notice: the server `one` is left out: the text has more than 32768 bytes (in `args[0]`)
        "#]],
    );
    check_server(
        r#"{"command": "x", "walls": "thick"}"#,
        expect![[r#"
            notice: the server `one` is left out: unknown `walls`; known: "isolated", "network", "none"
        "#]],
    );
    check_server(
        r#"{"type": "sse", "url": "http://x"}"#,
        expect![[r#"
            notice: the server `one` is left out: the type `sse` belongs to a version of the protocol that is not supported; most such servers also have an endpoint for the type `http`
        "#]],
    );
    check_server(
        r#"{"type": "carrier pigeon"}"#,
        expect![[r#"
            notice: the server `one` is left out: unknown type "carrier pigeon"; known: "stdio", "http"
        "#]],
    );
    check_server(
        r#"{"url": "file:///etc/passwd"}"#,
        expect![[r#"
            notice: the server `one` is left out: its `url` has to begin with `https://` or `http://`
        "#]],
    );
    check_server(
        r#"{"url": "https://me:${TOKEN}@a.example/"}"#,
        expect![[r#"
            notice: the server `one` is left out: its `url` contains a password; put it into `headers`
        "#]],
    );
    check_server(
        r#"{"url": "https:///x"}"#,
        expect![[r#"
        notice: the server `one` is left out: its `url` has no host
    "#]],
    );
    check_server(
        r#"{"url": "https://a.example", "headers": {"Host": "b"}}"#,
        expect![[r#"
            notice: the server `one` is left out: the header `Host` is set by the protocol
        "#]],
    );
    check_server(
        r#"{"url": "https://a.example", "headers": {"Mcp-Session-Id": "b"}}"#,
        expect![[r#"
            notice: the server `one` is left out: the header `Mcp-Session-Id` is set by the protocol
        "#]],
    );
    check_server(
        r#"{"url": "https://a.example", "headers": {"X": "a\r\nY: b"}}"#,
        expect![[r#"
            notice: the server `one` is left out: the value of the header `X` contains a character that no header can have
        "#]],
    );
    check_server(
        r#"{"url": "https://a.example", "headers": {"a b": "c"}}"#,
        expect![[r#"
            notice: the server `one` is left out: `headers`: "a b" is no name of a header
        "#]],
    );
}

#[test]
fn sizes_are_bounded() {
    let big = format!(r#"{{"mcpServers": {{"a": {{"command": "{}"}}}}}}"#, "x".repeat(MAX_CONFIG_BYTES));
    check(Origin::User, &big, expect!["the configuration has more than 1048576 bytes"]);
    let many: Vec<_> = (0..=MAX_SERVERS).map(|n| format!(r#""s{n}": {{"command": "x"}}"#)).collect();
    check(
        Origin::User,
        &format!(r#"{{"mcpServers": {{{}}}}}"#, many.join(",")),
        expect!["the configuration names more than 64 servers"],
    );
    let args = vec![r#""a""#; MAX_LIST_ITEMS + 1].join(",");
    check_server(
        &format!(r#"{{"command": "x", "args": [{args}]}}"#),
        expect![[r#"
            notice: the server `one` is left out: `args` has more than 256 entries
        "#]],
    );
    let deep = format!(r#"{{"command": "x", "y": {}{}}}"#, "[".repeat(300), "]".repeat(300));
    check_server(
        &deep,
        expect![[r#"
        notice: the server `one` is left out: it cannot be read: recursion limit exceeded at line 1 column 149
    "#]],
    );
}

#[test]
fn what_a_project_writes_out_is_no_secret() {
    let text = r#"{"mcpServers": {
        "one": {"command": "x", "env": {"CACHE_KEY": "function", "KEY": "${TOKEN}"}},
        "two": {"url": "http://h/?k=here", "headers": {"Authorization": "Bearer ${EMPTY}x", "Version": "2022-06-28"}}}}"#;
    check(
        Origin::Project,
        text,
        expect![[r#"
        one reads ["TOKEN"]: Stdio(StdioServer { command: "x", args: 0, env: ["CACHE_KEY", "KEY"], cwd: "", walls: Isolated })
          [] ["CACHE_KEY=function", "KEY=correct-horse"]
          secret TOKEN: "correct-horse"
        two reads ["EMPTY"]: Http(HttpServer { host: "h", headers: ["Authorization", "Version"] })
    "#]],
    );
    check(
        Origin::User,
        text,
        expect![[r#"
        one reads ["TOKEN"]: Stdio(StdioServer { command: "x", args: 0, env: ["CACHE_KEY", "KEY"], cwd: "", walls: Isolated })
          [] ["CACHE_KEY=function", "KEY=correct-horse"]
          secret TOKEN: "correct-horse"
          secret CACHE_KEY: "function"
          secret KEY: "correct-horse"
        two reads ["EMPTY"]: Http(HttpServer { host: "h", headers: ["Authorization", "Version"] })
          secret Authorization: "Bearer"
          secret Authorization: "x"
          secret Authorization: "Bearer x"
          secret url: "here"
    "#]],
    );
}

#[test]
fn addresses_of_this_machine_need_no_proxy() {
    for (url, expected) in [
        ("http://[::1]/mcp", true),
        ("http://[::1]:8080/mcp", true),
        ("http://localhost", true),
        ("http://LOCALHOST:1/", true),
        ("http://127.0.0.2:1", true),
        ("http://127.evil.example/", false),
        ("http://[::2]/", false),
        ("https://localhost.example/", false),
    ] {
        let config = ServerConfig::http("one", url).expect("valid");
        let Transport::Http(server) = config.transport else { panic!("it is reached by HTTP") };
        assert_eq!(server.is_loopback(), expected, "{url}");
    }
}

#[test]
fn a_wrong_server_keeps_no_other_from_being_used() {
    let wrong = [
        ("a__b", r#"{"command": "x"}"#),
        ("c", r#"{"type": "sse", "url": "http://x"}"#),
        ("d", r#"{"url": "x"}"#),
        ("e", r#"{"command": "${MISSING}"}"#),
        ("f", r#"{"command": "x"}, "f": {"command": "y"}"#),
        ("g", r#"{"command": "x", "disabled": true}"#),
        ("h", r#"{"command": "x", "cwd": "a/../.."}"#),
    ];
    let entries: Vec<_> = wrong.iter().map(|(name, server)| format!("{name:?}: {server}")).collect();
    let text = format!(r#"{{"mcpServers": {{{}, "fine": {{"command": "x", "cwd": "a/.."}}}}}}"#, entries.join(","));
    let config = Config::parse(&text, Origin::Project, |_| None).expect("it is JSON");
    let names: Vec<_> = config.servers.iter().map(|server| &*server.name).collect();
    assert_eq!(names, ["fine"]);
    let left_out: Vec<_> = config.left_out.iter().map(|(name, _)| &**name).collect();
    assert_eq!(left_out, ["a__b", "c", "d", "e", "f", "g", "h"]);
    expect![[r#"
        the server `a__b` is left out: a name has up to 32 letters, digits, `-` and single `_` between them
        the server `c` is left out: the type `sse` belongs to a version of the protocol that is not supported; most such servers also have an endpoint for the type `http`
        the server `d` is left out: its `url` has to begin with `https://` or `http://`
        the server `e` is left out: the variable `MISSING` is not set (in `command`) and has no default
        the server `f` is left out: there are two of this name
        the server `g` is disabled
        the server `h` is left out: its `cwd` is outside of the project"#]].assert_eq(&config.notices.join("\n"));
}

#[test]
fn an_outline_shows_variables_as_they_are_written() {
    let text = r#"{"mcpServers": {
        "base": {"url": "${API_BASE:-https://a.example}/mcp"},
        "host": {"url": "https://${HOST}/mcp"},
        "none": {"url": "${SCHEME}://me@b.example"},
        "wrong": {"url": "mailto:${NAME}"}
    }}"#;
    let outline = Config::outline(text, Origin::Project).expect("it is JSON");
    let shown = outline.iter().map(|server| {
        let variables = server.config.as_ref().map(|config| &config.variables);
        format!("{} reads {variables:?}: {}", server.name, server.written["url"])
    });
    expect![[r#"
        base reads Ok(["API_BASE"]): "${API_BASE:-https://a.example}/mcp"
        host reads Ok(["HOST"]): "https://${HOST}/mcp"
        none reads Ok(["SCHEME"]): "${SCHEME}://me@b.example"
        wrong reads Ok(["NAME"]): "mailto:${NAME}""#]]
    .assert_eq(&shown.collect::<Vec<_>>().join("\n"));
    assert!(!format!("{outline:?}").contains("a.example"), "a written text may be a secret");
    // The values decide.
    check(
        Origin::Project,
        text,
        expect![[r#"
        base reads ["API_BASE"]: Http(HttpServer { host: "a.example", headers: [] })
        notice: the server `host` is left out: the variable `HOST` is not set (in `url`) and has no default
        notice: the server `none` is left out: the variable `SCHEME` is not set (in `url`) and has no default
        notice: the server `wrong` is left out: the variable `NAME` is not set (in `url`) and has no default
    "#]],
    );
}

/// All texts of up to three parts in each place of a server that is used with some value of the variable: the outline has the server,
/// whole and not left out. So what a user did not see is never started.
#[test]
fn a_server_that_is_used_with_some_values_is_in_the_outline() {
    let parts = ["x", "/", "..", "\0", " ", "https://a", "${", "${A}", "${A:-}", "${A:-b/c}", "${A:-\u{e9}\0}"];
    let values = [None, Some(""), Some(".."), Some("d/e"), Some("https://h"), Some("\0")];
    let pairs = parts.iter().flat_map(|a| parts.iter().map(move |b| format!("{a}{b}")));
    let mut texts: Vec<_> = pairs.flat_map(|pair| parts.iter().map(move |part| format!("{pair}{part}"))).collect();
    texts.extend(parts.map(str::to_owned));
    // Shorter with its values than it is written, and the other way round.
    texts.push(format!("{}x", format!("${{{}:-}}", "A".repeat(120)).repeat(300)));
    texts.push("${A:-}".repeat(MAX_TEXT_BYTES / 4));
    texts.push("x".repeat(MAX_TEXT_BYTES + 1));
    let mut used = 0;
    for text in &texts {
        let mut servers = serde_json::json!({
            "command": {"command": text}, "args": {"command": "x", "args": [text]}, "cwd": {"command": "x", "cwd": text},
            "env": {"command": "x", "env": {"E": text}}, "url": {"url": text},
            "headers": {"url": "http://h", "headers": {"H": text}}, "off": {"command": "x", "disabled": true},
            "type": {"command": "x", "type": text},
        });
        servers[text.as_str()] = serde_json::json!({"command": "x"});
        let config = serde_json::json!({"mcpServers": servers}).to_string();
        let outline = Config::outline(&config, Origin::Project).expect("it is JSON");
        assert_eq!(outline.len(), servers.as_object().expect("an object").len());
        for value in values {
            let parsed =
                Config::parse(&config, Origin::Project, |name| value.filter(|_| name == "A").map(str::to_owned));
            for server in parsed.expect("it is JSON").servers {
                let shown = outline.iter().find(|shown| shown.name == server.name).expect("it is there");
                assert_eq!(shown.written, servers[&server.name], "{text:.80}");
                assert_eq!(shown.config.as_ref().err(), None, "{}: {text:.80} with {value:?}", server.name);
                used += 1;
            }
        }
    }
    assert!(used > 10_000, "{used}");
}

#[test]
fn a_value_is_secret_by_the_name_that_it_is_given() {
    check(
        Origin::Project,
        r#"{"mcpServers": {"one": {"command": "${TOKEN}",
            "args": ["--api-key", "${NESTED}", "--jwt=${SHORT}", "-e", "SESSION_ID=${SHORT}", "--level", "${LEVEL:-1}"],
            "env": {"SIG": "${WORD}", "PLAIN": "${PLAIN_WORD}"}}}}"#,
        expect![[r#"
            one reads ["LEVEL", "NESTED", "PLAIN_WORD", "SHORT", "TOKEN", "WORD"]: Stdio(StdioServer { command: "correct-horse", args: 7, env: ["PLAIN", "SIG"], cwd: "", walls: Isolated })
              ["--api-key", "${TOKEN}", "--jwt=short", "-e", "SESSION_ID=short", "--level", "1"] ["PLAIN=plain_word", "SIG=word"]
              secret TOKEN: "correct-horse"
              secret NESTED: "${TOKEN}"
              secret SHORT: "short"
              secret SHORT: "short"
              secret WORD: "word"
        "#]],
    );
    check_server(
        r#"{"command": "x", "args": ["--api-key", "abcdefgh", "--jwt=ijklmnop", "--level", "1"], "env": {"SESSION": "qrstuvwx"}}"#,
        expect![[r#"
            one reads []: Stdio(StdioServer { command: "x", args: 5, env: ["SESSION"], cwd: "", walls: Isolated })
              ["--api-key", "abcdefgh", "--jwt=ijklmnop", "--level", "1"] ["SESSION=qrstuvwx"]
              secret SESSION: "qrstuvwx"
              secret --api-key: "abcdefgh"
              secret --jwt: "ijklmnop"
        "#]],
    );
}

#[test]
fn names_tell_secrets_from_ordinary_values() {
    for (name, expected) in [
        ("API_KEY", true),
        ("API_KEY_2", true),
        ("API_KEY_PROD", true),
        ("AWS_ACCESS_KEY_ID", true),
        ("DB_PASS", true),
        ("DB_PWD", true),
        ("GITHUB_PAT", true),
        ("GITHUB_TOKEN", true),
        ("KEY_TOKEN", true),
        ("MY_PASSWORD_OLD", true),
        ("SECRET_VALUE", true),
        ("SESSION", true),
        ("SESSION_ID", true),
        ("SESSION_KEY", true),
        ("SESSION_TOKEN", true),
        ("KEY_FILE", false),
        ("OLDPWD", false),
        ("PASS_THROUGH", false),
        ("PAT_PREFIX", false),
        ("PRIMARY_KEY", false),
        ("PUBLIC_KEY", false),
        ("PWD", false),
        ("SESSION_MODE", false),
        ("SIG_ALG", false),
    ] {
        assert_eq!(secrets::is_secret_name(name), expected, "{name}");
    }
}

#[test]
fn a_header_holds_a_secret_unless_it_says_what_a_client_is() {
    for (name, expected) in [
        ("Authorization", true),
        ("Cookie", true),
        ("X-Api-Key", true),
        ("X-Customer", true),
        ("x-k", true),
        ("Accept", false),
        ("Accept-Language", false),
        ("Content-Type", false),
        ("Notion-Version", false),
        ("User-Agent", false),
        ("Version", false),
    ] {
        assert_eq!(secrets::is_secret_header(name), expected, "{name}");
    }
    check_server(
        r#"{"type": "http", "url": "http://h/", "headers": {"x-k": "abcdefgh", "User-Agent": "ijklmnop"}}"#,
        expect![[r#"
            one reads []: Http(HttpServer { host: "h", headers: ["User-Agent", "x-k"] })
              secret x-k: "abcdefgh"
              secret x-k: "abcdefgh"
        "#]],
    );
}

#[test]
fn the_value_of_an_option_is_no_other_option() {
    for (args, expected) in [
        (&["--api-key", "VALUE"][..], &["--api-key VALUE"][..]),
        (&["--no-auth", "--api-key", "VALUE"], &["--api-key VALUE"]),
        (&["--no-auth", "file.txt"], &[]),
        (&["--no-auth=yes"], &[]),
        (&["--auth", "--api-key", "VALUE"], &["--api-key VALUE"]),
        (&["--auth", "--token=VALUE"], &["--token VALUE"]),
        (&["--auth", "-v", "file.txt"], &[]),
        (&["--token", "-", "file.txt"], &[]),
        (&["--token"], &[]),
        (&["--primary-key", "customer_id"], &[]),
        (&["-e", "SESSION_MODE=production", "-e", "API_KEY=VALUE"], &["API_KEY VALUE"]),
    ] {
        let found = secrets::secret_args(args);
        let found: Vec<_> = found
            .iter()
            .map(|(nth, name, value)| {
                assert!(args[*nth].ends_with(value));
                format!("{name} {value}")
            })
            .collect();
        assert_eq!(found, expected, "{args:?}");
    }
}
