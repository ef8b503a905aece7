//! Tests of the program, run as a process.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod attacks;
#[cfg(unix)]
mod bundles;
#[cfg(target_os = "linux")]
mod canaries;
#[cfg(target_os = "linux")]
mod configuration;
#[cfg(target_os = "linux")]
mod creates_nothing;
#[cfg(unix)]
mod damaged_imports;
mod demo;
#[cfg(target_os = "linux")]
mod directories;
#[cfg(target_os = "linux")]
mod doctor;
#[cfg(target_os = "linux")]
mod endings;
mod explain;
mod files;
mod fixture;
#[cfg(target_os = "linux")]
mod forget;
#[cfg(target_os = "linux")]
mod forgotten_views;
#[cfg(target_os = "linux")]
mod gc;
mod gc_keeps;
mod gc_lost_stores;
#[cfg(unix)]
mod gc_misplaced;
#[cfg(target_os = "linux")]
mod going_on;
mod guests;
#[cfg(target_os = "linux")]
mod guide;
mod hostile_text;
mod installed;
mod interchange;
#[cfg(target_os = "linux")]
mod kill;
#[cfg(target_os = "linux")]
mod log;
mod lost;
#[cfg(target_os = "linux")]
mod many;
#[cfg(target_os = "linux")]
mod mcp_http;
#[cfg(target_os = "linux")]
mod mcp_serve;
#[cfg(target_os = "linux")]
mod mcp_trust;
#[cfg(target_os = "linux")]
mod mcp_walls;
mod memory;
#[cfg(target_os = "linux")]
mod merged_files;
#[cfg(target_os = "linux")]
mod model_server;
#[cfg(target_os = "linux")]
mod moved;
#[cfg(unix)]
mod opensandbox;
#[cfg(target_os = "linux")]
mod output_schema;
#[cfg(target_os = "linux")]
mod outputs;
#[cfg(unix)]
mod permissions;
mod planted;
#[cfg(target_os = "linux")]
mod podman;
#[cfg(target_os = "linux")]
mod power_cut;
#[cfg(target_os = "linux")]
mod project_context;
#[cfg(target_os = "linux")]
mod replays;
#[cfg(target_os = "linux")]
mod run_options;
mod sandbox;
#[cfg(target_os = "linux")]
mod status;
#[cfg(target_os = "linux")]
mod steps;
mod stores;
#[cfg(unix)]
mod talk;
mod talk_forks;
mod talk_shows;
mod talk_typing;
#[cfg(all(target_os = "linux", feature = "otel"))]
mod telemetry;
mod tool_calls;
#[cfg(target_os = "linux")]
mod unwritable;
mod versions;
#[cfg(target_os = "linux")]
mod wrong_input;

use std::path::Path;
use std::process::Output;

use expect_test::{Expect, expect};
use rath::Usage;
use rath::chunk::Call;
use rath::prelude::*;

fn rath(folder: &Path, args: &[&str]) -> Output {
    rath_test_support::program(program_path()).args(args).current_dir(folder).output().expect("rath runs")
}

/// Returns the path of the program: a copy, if an ordinary user runs the attacks.
fn program_path() -> std::path::PathBuf {
    std::env::var_os("RATH_TEST_PROGRAM").map_or_else(|| env!("CARGO_BIN_EXE_rath").into(), Into::into)
}

/// Returns what `rath` prints on stdout.
fn printed(folder: &Path, args: &[&str]) -> String {
    String::from_utf8(rath(folder, args).stdout).expect("UTF-8")
}

/// Runs `rath` in `folder` and compares its output on both streams and its exit code.
fn check(folder: &Path, args: &[&str], expected: Expect) {
    let output = rath(folder, args);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let err: String = fixture::normalize(folder, &err).lines().map(|line| format!("! {line}\n")).collect();
    let code = output.status.code().expect("an exit code");
    expected.assert_eq(&format!("{out}{err}exit {code}\n"));
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

/// Creates a directory with a session that was forked and merged.
fn folder() -> rath_test_support::TempDir {
    let folder = rath_test_support::temp_dir();
    let mut session = Session::user("Which river runs through Paris?");
    session.push_with_usage(Chunk::assistant("The Seine."), Usage::new(14, 4));
    let mut poet = session.fork_named("poet");
    poet.push(Chunk::user("Say it\nin verse."));
    let mut critic = session.fork();
    critic.push(Chunk::calls([Call::new("c1", "search", r#"{"q":"Seine"}"#)]));
    critic.push(Chunk::result("c1", "a river \u{1b}[31m"));
    block_on(poet.merge(&critic)).expect("nothing is open").save_blocking(folder.path().join("s.rath")).expect("saved");
    folder
}

#[test]
fn log_shows_what_happened() {
    let folder = folder();
    check(
        folder.path(),
        &["log", "-v", "s.rath"],
        expect![[r#"
        ◆    ceef85e3 b3  merged
        ├─╮
        │ ○  79dc84a8 b2  tool result: c1 ok: a river \u{1b}[31m
        │ ○  f55f31e8 b2  assistant calls search({"q":"Seine"})
        │ ○  b48ca179 b2  forked
        ○ │  522fb461 poet  user: Say it in verse.
        ○ │  52e458d3 poet  forked
        ├─╯
        ○  a6367fdb main  assistant: The Seine.  (14 in, 4 out)
        ○  3c77e466 main  user: Which river runs through Paris?
        exit 0
    "#]],
    );
    check(
        folder.path(),
        &["log", "-v", "s.rath", "-n", "2"],
        expect![[r#"
            ◆    ceef85e3 b3  merged
            ├─╮
            │ ○  79dc84a8 b2  tool result: c1 ok: a river \u{1b}[31m
            ~
            exit 0
        "#]],
    );
}

#[test]
fn show_shows_a_step() {
    let folder = folder();
    let shown = |args: &[&str]| printed(folder.path(), args);
    // Ids of branches and times differ from run to run.
    let without = |text: &str, fields: [&str; 2]| {
        text.lines().filter(|line| !fields.iter().any(|field| line.starts_with(field))).collect::<Vec<_>>().join("\n")
    };
    let step = |says: &str| {
        let log = shown(&["log", "-v", "s.rath"]);
        let line = log.lines().find(|line| line.contains(says)).expect("a step").to_owned();
        line.split_whitespace().find(|word| word.len() == 8).expect("an id").to_owned()
    };
    expect![[r#"
        step     522fb46155f405d155c6c85478a5077cd9e28afce68f3db3bd8125ebbfa0fc62
        kind     user
        parent   52e458d3

        Say it
        in verse."#]]
    .assert_eq(&without(&shown(&["show", "s.rath", &step("verse")]), ["branch", "at "]));
    expect![[r#"
        step     f55f31e8589942e8c6b30b60cacbe072a768a732a13ad45a21d127f435cff6ad
        kind     assistant
        parent   b48ca179
        finish   calls

        call c1: search {"q":"Seine"}"#]]
    .assert_eq(&without(&shown(&["show", "s.rath", &step("calls")]), ["branch", "at "]));
    expect![[r#"
        step     79dc84a854fe75414b1c9ae5b95cb3e1da2b53184ffcae49e5ba04990f110e87
        kind     tool_result
        parent   f55f31e8

        call c1: ok
        a river \u{1b}[31m"#]]
    .assert_eq(&without(&shown(&["show", "s.rath", &step("tool result")]), ["branch", "at "]));
    let json: serde_json::Value = serde_json::from_str(&shown(&["show", "s.rath", "head", "--json"])).expect("JSON");
    assert_eq!(json["chunk"]["kind"], "merged");
    assert_eq!(json["parents"].as_array().map(Vec::len), Some(2));
    assert!(json["at"].as_str().is_some_and(|at| at.ends_with('Z')));
}

#[test]
fn verify_names_what_is_damaged() {
    let folder = folder();
    let path = folder.path().join("s.rath");
    let whole = std::fs::read(&path).expect("read");
    let verified = |bytes: &[u8], args: &[&str]| {
        std::fs::write(&path, bytes).expect("written");
        let output = rath(folder.path(), args);
        let out = String::from_utf8(output.stdout).expect("UTF-8");
        (out, output.status.code().expect("an exit code"))
    };
    let (out, code) = verified(&whole, &["verify", "s.rath"]);
    assert_eq!((out, code), (format!("intact: 10 rows, 8 steps, {} bytes\n", whole.len()), 0));

    let mut flipped = whole.clone();
    let at = String::from_utf8_lossy(&whole).find("Seine.").expect("the answer");
    flipped[at] ^= 1;
    let (out, code) = verified(&flipped, &["verify", "s.rath"]);
    let row = whole[..at].iter().filter(|byte| **byte == b'\n').count();
    assert!(out.contains(&format!("row {row}: the row was changed: its seal does not match its bytes\n")), "{out}");
    assert!(out.lines().last().is_some_and(|last| last.starts_with("damaged: 9 rows, 7 steps")), "{out}");
    assert_eq!(code, 3);
    let (out, code) = verified(&flipped, &["log", "-v", "s.rath"]);
    assert!(out.contains("Which river") && out.contains("verse"), "the rest is shown: {out}");
    assert_eq!(code, 3);

    let (out, code) = verified(&whole[..whole.len() - 60], &["verify", "s.rath"]);
    assert!(out.starts_with("cut off "), "{out}");
    assert_eq!(code, 3);
    // A graph is checked as one.
    let (graph, _) = verified(&whole, &["export", "s.rath"]);
    assert_eq!(
        verified(graph.as_bytes(), &["verify", "s.rath"]),
        ("intact: a graph of 4 sessions; every seal matches and no parent is missing\n".to_owned(), 0)
    );
    let missing: String = graph.lines().skip(1).map(|line| format!("{line}\n")).collect();
    let (out, code) = verified(missing.as_bytes(), &["verify", "s.rath"]);
    assert!(out.contains(" is missing\n"), "{out}");
    assert_eq!(code, 3);
}

#[test]
fn every_json_line_is_json() {
    let folder = folder();
    for args in [&["log", "s.rath", "--json"][..], &["verify", "s.rath", "--json"], &["export", "s.rath"]] {
        let output = printed(folder.path(), args);
        assert!(!output.is_empty());
        for line in output.lines() {
            serde_json::from_str::<serde_json::Value>(line).expect("JSON");
        }
    }
}

#[test]
fn wrong_use_is_explained() {
    let folder = folder();
    check(
        folder.path(),
        &["log", "none.rath"],
        expect![[r#"
            ! error: there is no session and no file `none.rath`
            ! hint: `rath ls --all` lists the sessions
            exit 1
        "#]],
    );
    check(
        folder.path(),
        &["show", "s.rath", "zzz"],
        expect![[r#"
            ! error: wanted the first digits of a step's id, a branch, or `head`, found `zzz`
            ! hint: `rath log s.rath` lists the steps
            exit 1
        "#]],
    );
    std::fs::write(folder.path().join("notes.txt"), "hello\n").expect("written");
    check(
        folder.path(),
        &["log", "-v", "notes.txt"],
        expect![[r#"
            ! error: notes.txt: not a rath session file: no line of it is a row
            ! hint: name a file that rath wrote; `rath export --help` lists the formats
            exit 1
        "#]],
    );
    check(
        folder.path(),
        &["verify", "notes.txt"],
        expect![[r#"
            ! error: notes.txt: not a rath session file: no line of it is a row
            ! hint: name a file that rath wrote; `rath export --help` lists the formats
            exit 1
        "#]],
    );
    check(
        folder.path(),
        &["lgo", "s.rath"],
        expect![[r#"
            ! error: there is no command `rath lgo`
            ! hint: `rath --help` lists the commands
            exit 2
        "#]],
    );
    check(
        folder.path(),
        &["-h"],
        expect![[r#"
            Run agents, and read, check and export their sessions

            Usage: rath [OPTIONS]
                   rath <COMMAND>

            Commands:
              run          Run an agent on a prompt
              resume       Continue a session in the store
              review       Show what is waiting for your decision, or decide
              adopt        Take over a session that others made
              demo         Watch agents repair a failing test, and a crash that costs
                           nothing
              ls           List the sessions in the store, newest last
              status       Show how far a session is, where its files are, and what changed
                           since
              log          Show what happened in a session, newest first
              show         Show one step in full
              explain      Explain a turn or a step: what the model saw, where tools ran,
                           what changed, and what it cost
              render       Show the request that a model was sent, or would be sent
              cost         Show the cost of the model calls, by model and by branch
              replay       Repeat a session and compare it with the record
              fork         Start a new branch from a session, or from one of its steps
              merge        Join two sessions and their files
              diff         Show what a session changed, or the differences between the files
                           of two sessions or steps
              checkout     Write the files of a session or step to a new directory
              restore      Change a session's files back to what they were at a step
              blame        Show which tool call wrote each line of a file
              bisect       Find the first step after which a command fails
              check        Run a command as a check and record its result, or list the
                           checks
              verify       Check a session, a file or a whole store for damage
              salvage      Copy the undamaged part of a session, and mark what is lost
              export       Write a session to a file, in one of several formats
              import       Copy a session file into the store
              forget       Remove the text and files of a step for good; the step itself
                           stays
              gc           Delete sessions, and free the space that is no longer needed
              memory       Show, write and remove the notes that agents keep across runs
              mcp          Let other programs ask about sessions, and list the servers that
                           agents use (MCP)
              config       Show what is configured, or accept the file of a project
              doctor       Say what works on this machine, and how to mend the rest
              completions  Print the script with which a shell completes rath's commands
              man          Write the manual pages to a directory, one for each command
              help         Print this message or the help of the given subcommand(s)

            Options:
                  --model <MODEL>         The model: openai:NAME, anthropic:NAME,
                                          gemini:NAME, script:FILE, or a name in your
                                          configuration
                  --agent <NAME>          The agent in your configuration whose prompt,
                                          model, tools, memory, turns and mode are used
                  --system <TEXT>         The system prompt. Default: the one of the stored
                                          session; otherwise the agent is told to be careful
                                          and brief
                  --sandbox <SANDBOX>     The sandbox of the tools: isolated:DIRECTORY,
                                          container:IMAGE, local:DIRECTORY or none
                  --network               Allow network access in an isolated sandbox
                  --mode <MODE>           The calls that are made without asking: read-only,
                                          ask, workspace or full
                  --memory <MEMORY>       The memory of the agent, such as
                                          local:.rath/memory. Default: none
                  --embeddings <MODEL>    Find notes by their meaning too, by vectors of
                                          this model, such as openai:text-embedding-3-small
                  --no-mcp                Leave out the tools of MCP servers
                  --turns <N>             The number of times that the model may be asked.
                                          Default: that of the agent; otherwise 100
                  --budget <LIMIT>        The limits of the session: 50000tokens, 2usd,
                                          20turns or 10min; several are separated by commas
                  --option <NAME=VALUE>   A further member of requests to the model, such as
                                          temperature=0.2 or reasoning_effort=low; may be
                                          repeated
                  --no-context            Do not tell the agent the project's AGENTS.md, the
                                          directory, the date and the branch when a session
                                          begins
                  --output-schema <FILE>  Print nothing but an answer of JSON that fits the
                                          JSON schema in this file
                  --json                  Print one JSON object for each event
                  --store <STORE>         The store of sessions: sqlite:PATH,
                                          jsonl:DIRECTORY or memory: [default:
                                          sqlite:.rath/rath.db]
                  --new                   Begin a new session. Default: go on with the
                                          newest one here, if there is one
              -c, --continue              Go on with the newest session
                  --session <SESSION>     Go on with this session
              -h, --help                  Print help (see more with '--help')
              -V, --version               Print version

            Exit codes:
              0    success
              1    failure
              2    wrong usage
              3    damage or a difference was found (verify: or the file is not closed)
              4    waiting for your decision
              130  interrupted
            exit 0
        "#]],
    );
}

#[test]
fn data_arrives_to_the_byte_and_text_cannot_drive_the_terminal() {
    let folder = rath_test_support::temp_dir();
    let odd = "del \u{7f} esc \u{1b}[2J csi \u{9b}2J turn \u{202e}abc";
    let mut session = Session::user(odd).to(Sandbox::local(odd)).fork_named(odd);
    session.push(Chunk::assistant(format!("{odd}\n").repeat(2_000)));
    session.save_blocking(folder.path().join("s.rath")).expect("saved");
    let run = |args: &[&str]| printed(folder.path(), args);
    std::fs::write(folder.path().join("g.jsonl"), run(&["export", "s.rath"])).expect("written");
    assert!(run(&["verify", "g.jsonl"]).starts_with("intact"));
    let json: serde_json::Value = serde_json::from_str(&run(&["show", "s.rath", "head", "--json"])).expect("JSON");
    let digest = json["chunk"]["text"]["digest"].as_str().expect("a long text").to_owned();
    assert_eq!(json["payloads"][digest.as_str()].as_str().map(str::len), Some(2_000 * (odd.len() + 1)));
    for args in [&["log", "-v", "s.rath"][..], &["show", "s.rath", "head"], &["show", "s.rath", "main"]] {
        let shown = run(args);
        assert!(shown.contains("[2J"), "{shown}");
        assert!(!shown.contains(['\u{7f}', '\u{1b}', '\u{9b}', '\u{202e}']), "{args:?}");
    }
    assert!(!session.to_string().contains(['\u{7f}', '\u{1b}', '\u{9b}', '\u{202e}']));
}

#[test]
fn a_step_can_be_named_in_the_ways_a_person_would() {
    let folder = folder();
    let shown = |step: &str| printed(folder.path(), &["show", "s.rath", step]);
    assert!(shown("poet").contains("in verse."));
    assert!(shown("main").contains("The Seine."));
    assert_eq!(shown("3C77E466"), shown("3c77"));
    assert_eq!(shown("head"), shown("b3"));
}

#[test]
fn a_lost_step_is_called_lost() {
    let folder = folder();
    let path = folder.path().join("s.rath");
    let damaged = std::fs::read_to_string(&path).expect("read").replace("The Seine.", "The Marne.");
    std::fs::write(&path, damaged).expect("written");
    check(
        folder.path(),
        &["show", "s.rath", "a6367fdb"],
        expect![[r#"
            ! error: step a6367fdb is damaged or missing
            ! hint: `rath verify s.rath` lists the damage
            exit 1
        "#]],
    );
    std::fs::write(&path, "").expect("written");
    check(
        folder.path(),
        &["show", "s.rath", "head"],
        expect![[r#"
            ! error: there are no steps in s.rath
            ! hint: the file may have been cut off at its beginning
            exit 1
        "#]],
    );
    check(
        folder.path(),
        &["log", "-v", "s.rath"],
        expect![[r#"
        ! warning: s.rath: ends without its closing row: cut off there, or still being written
        exit 0
    "#]],
    );
}

#[cfg(unix)]
#[test]
fn a_pipe_is_verified_as_far_as_it_can_be() {
    let folder = folder();
    let piped = |session: &Session| {
        let path = folder.path().join("piped.rath");
        session.save_blocking(&path).expect("saved");
        let script = format!("cat piped.rath | '{}' verify /dev/stdin", env!("CARGO_BIN_EXE_rath"));
        let output = rath_test_support::program("sh")
            .args(["-c", &script])
            .current_dir(folder.path())
            .output()
            .expect("sh runs");
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let straight = Session::user("hi");
    let (code, out) = piped(&straight);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.starts_with("intact: 3 rows, 1 step"), "{out}");

    // A parent from further up has to be looked for, and a pipe cannot be read again.
    let forks = [1, 2].map(|nth| {
        let mut fork = straight.fork();
        fork.push(Chunk::user(nth.to_string()));
        fork
    });
    let (code, out) = piped(&block_on(Session::merge_all(forks)).expect("nothing is open"));
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("hint: the check reads it more than once; save it to a file first"), "{out}");
}

/// Creates a directory with a session that has a signed answer, and then one of a scripted model.
fn asked() -> rath_test_support::TempDir {
    let folder = rath_test_support::temp_dir();
    let mut session = Session::system("Be brief.");
    session.push(Chunk::user("Look."));
    let signed = r#"{"kind":"assistant","text":"I look.","reasoning":"hm","calls":[{"id":"toolu_1","tool":"look"}],"finish":"calls","provider":{"provider":"anthropic","model":"claude-sonnet-4-5"},"sidecar":{"content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"text","bytes":7},{"type":"tool_use"}]}}"#;
    session.push_with_usage(Chunk::decode(signed).expect("a chunk"), Usage::new(2_000_000, 1_000));
    session.push(Chunk::result("toolu_1", "a river"));
    let provider =
        Provider::from(Script::of([r#"{"text":"A river.","usage":{"input":30,"output":3}}"#]).expect("a script"));
    let session = block_on(provider.ask(session).into_future()).expect("it is answered");
    session.save_blocking(folder.path().join("s.rath")).expect("saved");
    folder
}

#[test]
fn render_shows_the_request_as_it_was_sent() {
    check(
        asked().path(),
        &["render", "s.rath"],
        expect![[r#"
        {"model":"script","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Look."},{"role":"assistant","content":"I look.","tool_calls":[{"id":"caAdHs1Uk","type":"function","function":{"name":"look","arguments":"{}"}}]},{"role":"tool","tool_call_id":"caAdHs1Uk","content":"a river"}],"stream":true,"stream_options":{"include_usage":true}}
        exit 0
    "#]],
    );
}

#[test]
fn render_shows_what_another_model_would_be_sent_and_what_is_lost() {
    let folder = asked();
    check(
        folder.path(),
        &["render", "s.rath", "--to", "anthropic:claude-sonnet-4-5"],
        expect![[r#"
        {"model":"claude-sonnet-4-5","system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"Look."}]},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"text","text":"I look."},{"type":"tool_use","id":"toolu_1","name":"look","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"a river"}]},{"role":"assistant","content":[{"type":"text","text":"A river."}]},{"role":"user","content":[{"type":"text","text":"Go on."}]}],"max_tokens":64000,"tools":[{"name":"none","description":"There is no tool.","input_schema":{"type":"object","properties":{}}}],"tool_choice":{"type":"none"},"cache_control":{"type":"ephemeral"},"stream":true}
        ! kept: 1 reasoning block, 1 call id
        ! about 0 of 199 tokens from the prompt cache
        exit 0
    "#]],
    );
    check(
        folder.path(),
        &["render", "s.rath", "--to", "openai:gpt-5", "--report"],
        expect![[r#"
            d218bc59 rewritten call id
            d218bc59 dropped   reasoning block
            ! rewritten: 1 call id
            ! dropped: 1 reasoning block
            ! about 0 of 156 tokens from the prompt cache
            exit 0
        "#]],
    );
}

#[test]
fn render_explains_wrong_use() {
    let folder = asked();
    check(
        folder.path(),
        &["render", "s.rath", "--to", "gpt-5"],
        expect![[r#"
            ! error: invalid value `gpt-5` for `--to <MODEL>`: wanted `openai:NAME`, `anthropic:NAME` or `gemini:NAME`
            ! hint: `rath render --help` describes it
            exit 2
        "#]],
    );
    let user = printed(folder.path(), &["log", "s.rath", "--json"]);
    let user = user.lines().find(|line| line.contains(r#""kind":"user""#)).expect("the user spoke");
    let id = user.split('"').nth(3).expect("an id").get(..8).expect("eight digits").to_owned();
    check(
        folder.path(),
        &["render", "s.rath", &id],
        expect![[r#"
            ! error: step 3f6efd35 is not an answer of a model
            ! hint: `rath render s.rath 3f6efd35 --to openai:gpt-5` shows the request that would be sent now
            exit 1
        "#]],
    );
}

#[test]
fn cost_shows_what_the_calls_cost() {
    let folder = asked();
    std::fs::write(folder.path().join("p.json"), r#"{"script:script": {"input": 100, "output": 1000}}"#)
        .expect("written");
    std::fs::write(folder.path().join("bad.json"), r#"{"script:script": {"input": "much"}}"#).expect("written");
    check(
        folder.path(),
        &["cost", "s.rath"],
        expect![[r#"
            anthropic:claude-sonnet-4-5  2000000 in, 1000 out  $6.01
            script:script                30 in, 3 out          no price
            total of priced models                             $6.01
            ! hint: `rath cost --help` tells how to give the prices of other models
            exit 0
        "#]],
    );
    check(
        folder.path(),
        &["cost", "s.rath", "--prices", "p.json"],
        expect![[r#"
            anthropic:claude-sonnet-4-5  2000000 in, 1000 out  $6.01
            script:script                30 in, 3 out          $0.006
            total                                              $6.02
            exit 0
        "#]],
    );
    check(
        folder.path(),
        &["cost", "s.rath", "--prices", "bad.json"],
        expect![[r#"
            ! error: bad.json: wanted prices by model: invalid type: string "much", expected f64 at line 1 column 34
            ! hint: a price is dollars for a million tokens: {"openai:NAME": {"input": 1.25, "output": 10}}
            exit 1
        "#]],
    );
    check(
        folder.path(),
        &["cost", "s.rath", "--prices", "no.json"],
        expect![[r#"
            ! error: cannot read the prices in no.json: No such file or directory (os error 2)
            ! hint: `--prices` names a JSON file: prices by model
            exit 1
        "#]],
    );
    let forked = self::folder();
    check(
        forked.path(),
        &["render", "s.rath"],
        expect![[r#"
            ! error: no answer in s.rath came from a model
            ! hint: `rath render s.rath --to openai:gpt-5` shows the request that would be sent now
            exit 1
        "#]],
    );
    let json = printed(folder.path(), &["cost", "s.rath", "--json"]);
    assert!(json.contains(
        r#""provider":"anthropic","model":"claude-sonnet-4-5","usage":{"input":2000000,"output":1000},"dollars":6.015"#
    ));
}

/// Creates a directory with a script and a directory to work in.
fn workshop(script: &str) -> rath_test_support::TempDir {
    let folder = rath_test_support::temp_dir();
    std::fs::create_dir(folder.path().join("work")).expect("a directory");
    std::fs::write(folder.path().join("work/a.txt"), "hello\n").expect("a file");
    std::fs::write(folder.path().join("script.jsonl"), script).expect("a file");
    folder
}

const LOOK: &str = r#"
{"text": "Let me look.", "calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}, {"name": "shell", "arguments": {"command": "exit 3"}}]}
{"text": "It says hello."}
{"text": "Still hello.", "expect": {"contains": ["It says hello.", "And now?"]}}
"#;

#[test]
fn run_works_in_a_directory_and_keeps_the_session() {
    let folder = workshop(LOOK);
    let model = ["--model", "script:script.jsonl", "--sandbox", "local:work", "--store", "file:s.rath"];
    check(
        folder.path(),
        &[&["run", "What is here?"], &model[..]].concat(),
        expect![[r#"
            Let me look.
            It says hello.
            ! no sandbox: tools start in FOLDER/work and can do anything you can
            ! ✓ read_file a.txt
            ! ✗ shell exit 3  failed
            !   │ exit code 3
            ! done in TIME: 4,079 tokens
            ! saved in s.rath; `rath log s.rath` shows the steps
            exit 0
        "#]],
    );
    // A new run reads the script from its beginning, so the first answers are removed.
    std::fs::write(folder.path().join("script.jsonl"), LOOK.lines().last().expect("a line")).expect("a file");
    check(
        folder.path(),
        &[&["run", "And now?"], &model[..]].concat(),
        expect![[r#"
            Still hello.
            ! no sandbox: tools start in FOLDER/work and can do anything you can
            ! done in TIME: 2,104 tokens
            ! saved in s.rath; `rath log s.rath` shows the steps
            exit 0
        "#]],
    );
    let log = rath(folder.path(), &["log", "-v", "s.rath"]).stdout;
    let log = fixture::normalize(folder.path(), &String::from_utf8_lossy(&log));
    expect![[r#"
        ○  STEP1 main  assistant: Still hello.  [agent]  (2101 in, 3 out)
        ○  STEP2 main  user: And now?
        ○  STEP3 main  assistant: It says hello.  [agent]  (2080 in, 4 out)
        ○  STEP4 main  tool result: call_2_2 failed: exit code 3  [agent]
        ○  STEP5 main  tool started: call_2_2  [agent]
        ○  STEP6 main  tool result: call_2_1 ok: hello  [agent]
        ○  STEP7 main  tool started: call_2_1  [agent]
        ○  STEP8 main  assistant: Let me look. calls read_file({"path":"a.txt"}), shell({"command":"exit 3"})  [agent]  (1979 in, 16 out)
        ○  STEP9 main  instructions: You are a careful assistant. Do what the user asks, with th… (tools: read_file, list_files, file_exists, search_files, write_fil…)  [agent]
        ○  STEP10 main  files recorded: STEP11  [agent]
        ○  STEP12 main  sandbox: local:FOLDER/work
        ○  STEP13 main  user: What is here?
    "#]]
    .assert_eq(&fixture::with_numbered_steps(&log));
}

#[test]
fn run_prints_what_happens_as_json() {
    let folder = workshop(LOOK);
    let out = printed(folder.path(), &["run", "What is here?", "--model", "script:script.jsonl", "--json"]);
    let events: Vec<String> = out
        .lines()
        .map(|line| {
            let event: serde_json::Value = serde_json::from_str(line).expect("a JSON object a line");
            let kind = event["event"].as_str().expect("what happens").to_owned();
            match &event["step"]["chunk"]["kind"] {
                serde_json::Value::String(chunk) => format!("{kind} {chunk}"),
                _ => kind,
            }
        })
        .collect();
    expect![[r#"
        step observed
        step instructions
        turn
        text
        step assistant
        step tool_started
        tool_started
        tool_finished
        step tool_result
        step tool_started
        tool_started
        tool_finished
        step tool_result
        turn
        text
        step assistant
        done"#]]
    .assert_eq(&events.join("\n"));
}

#[test]
fn run_keeps_what_was_done_when_it_fails_and_goes_on_later() {
    let folder = workshop(
        r#"{"calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}]}
           {"error": {"status": 400, "message": "no"}}"#,
    );
    let model = ["--model", "script:script.jsonl", "--sandbox", "local:work", "--store", "file:s.rath"];
    check(
        folder.path(),
        &[&["run", "What is here?"], &model[..]].concat(),
        expect![[r#"
            ! no sandbox: tools start in FOLDER/work and can do anything you can
            ! ✓ read_file a.txt
            ! error: no (400)
            ! hint: the model's server gives the reason; `--model` names another model
            exit 1
        "#]],
    );
    std::fs::write(folder.path().join("script.jsonl"), r#"{"text": "hello", "expect": {"contains": "hello"}}"#)
        .expect("a file");
    check(
        folder.path(),
        &[&["run"], &model[..]].concat(),
        expect![[r#"
            hello
            ! no sandbox: tools start in FOLDER/work and can do anything you can
            ! done in TIME: 2,035 tokens
            ! saved in s.rath; `rath log s.rath` shows the steps
            exit 0
        "#]],
    );
}

#[cfg(target_os = "linux")]
#[test]
fn run_saves_the_session_even_if_its_output_cannot_be_written() {
    let folder = workshop(LOOK);
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a device that is full");
    let output = rath_test_support::program(env!("CARGO_BIN_EXE_rath"))
        .args([
            "run",
            "What is here?",
            "--model",
            "script:script.jsonl",
            "--sandbox",
            "local:work",
            "--store",
            "file:s.rath",
        ])
        .current_dir(folder.path())
        .stdout(full)
        .output()
        .expect("rath runs");
    assert_eq!(output.status.code(), Some(1));
    let session = Session::open_blocking(folder.path().join("s.rath")).expect("a session").session;
    assert_eq!(session.text(), Some("It says hello."));
}

#[test]
fn an_interrupted_call_waits_for_a_decision() {
    let folder = workshop(r#"{"text": "done"}"#);
    let mut session = Session::user("go").to(Sandbox::local("work"));
    session.push(Chunk::calls([Call::new("c1", "shell", r#"{"command": "echo again"}"#)]));
    session.push(rath::chunk::ToolStarted::new("c1"));
    session.save_blocking(folder.path().join("s.rath")).expect("saved");
    let model = ["run", "--model", "script:script.jsonl", "--sandbox", "local:work", "--store", "file:s.rath"];
    check(
        folder.path(),
        &model,
        expect![[r#"
            ! no sandbox: tools start in FOLDER/work and can do anything you can
            ! error: may have taken effect, and its end is unknown: `c1` (shell)
            ! hint: `rath run --model script:script.jsonl --sandbox local:work --store file:s.rath --approve c1` runs it again; --deny c1 refuses it
            exit 4
        "#]],
    );
    check(
        folder.path(),
        &[&model[..], &["--deny", "c1"]].concat(),
        expect![[r#"
            done
            ! no sandbox: tools start in FOLDER/work and can do anything you can
            ! done in TIME: 2,035 tokens
            ! saved in s.rath; `rath log s.rath` shows the steps
            exit 0
        "#]],
    );
}

#[test]
fn run_refuses_wrong_options_before_it_starts() {
    let folder = workshop(LOOK);
    let check = |args: &[&str], expected: Expect| check(folder.path(), &[&["run", "hi"], args].concat(), expected);
    check(
        &["--model", "foo:x"],
        expect![[r#"
            ! error: unknown kind of provider `foo`; known: anthropic, gemini, openai, script
            ! hint: use openai:NAME, anthropic:NAME, gemini:NAME or script:FILE
            exit 2
        "#]],
    );
    check(
        &["--model", "script:script.jsonl", "--sandbox", "local:none"],
        expect![[r#"
            ! error: cannot work in `FOLDER/none`: No such file or directory (os error 2)
            ! hint: the directory has to be there
            exit 1
        "#]],
    );
    check(
        &["--model", "script:script.jsonl", "--sandbox", "docker:x"],
        expect![[r#"
            ! error: unknown kind of sandbox `docker`; known: local, isolated, container, opensandbox
            ! hint: `--sandbox isolated:.` names another sandbox; `rath doctor` says what works here
            exit 2
        "#]],
    );
    check(
        &["--model", "script:script.jsonl", "--sandbox", "work"],
        expect![[r#"
            ! error: wanted a sandbox, found `work`
            ! hint: write the kind of sandbox, a colon, and where: `isolated:./`
            exit 2
        "#]],
    );
    check(
        &["--model", "script:script.jsonl", "--store", "file:none/s.rath"],
        expect![[r#"
            ! sandbox: writes only in FOLDER, no network
            ! error: cannot write none/s.rath: No such file or directory (os error 2)
            ! hint: see if the path is right, and if you may read and write it
            exit 1
        "#]],
    );
    check(
        &["--model", "script:script.jsonl", "--store", "file:script.jsonl"],
        expect![[r#"
        ! error: script.jsonl: not a rath session file: no line of it is a row
        ! hint: name a file that rath wrote; `rath export --help` lists the formats
        exit 1
    "#]],
    );
    check(
        &["--model", "script:script.jsonl", "--store", "sqlight:x"],
        expect![[r#"
        ! error: invalid value `sqlight:x` for `--store <STORE>`: wanted sqlite:PATH, jsonl:DIRECTORY or memory:
        ! hint: `rath run --help` describes it
        exit 2
    "#]],
    );
    check(
        &["--model", "script:script.jsonl", "--approve", "c1"],
        expect![[r#"
        ! error: no call `c1` waits for a decision
        ! hint: every call in this session has its result
        exit 1
    "#]],
    );
}

#[test]
fn run_hides_what_the_environment_calls_secret() {
    let folder = rath_test_support::temp_dir();
    let secret = "correct-horse-battery";
    let lines = [
        r#"{"calls":[{"name":"shell","arguments":{"command":"cat secret.txt"}}]}"#.to_owned(),
        format!(r#"{{"text":"It is {secret}, in {}."}}"#, folder.path().display()),
    ];
    std::fs::write(folder.path().join("script.jsonl"), lines.join("\n")).expect("written");
    std::fs::write(folder.path().join("secret.txt"), format!("a {secret}\n")).expect("written");
    let prompt = format!("what is {secret}?");
    let output = rath_test_support::program(env!("CARGO_BIN_EXE_rath"))
        .args(["run", &prompt, "--json", "--model", "script:script.jsonl", "--store", "file:s.rath"])
        .args(["--sandbox", "local:."])
        .envs([
            ("HOUSE_TOKEN", secret),
            ("SHORT_KEY", "shell"),
            ("SOME_CREDENTIALS", &*folder.path().to_string_lossy()),
        ])
        .current_dir(folder.path())
        .output()
        .expect("rath runs");
    let saved = std::fs::read_to_string(folder.path().join("s.rath")).expect("it is kept");
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(saved.contains("what is [secret HOUSE_TOKEN]?"), "{saved}");
    for text in [&saved, &printed] {
        assert!(!text.contains(secret), "{text}");
        assert!(text.contains("a [secret HOUSE_TOKEN]"), "{text}");
        // Neither a path nor a word is a secret, under any name of a variable.
        assert!(text.contains(&*folder.path().to_string_lossy()) && !text.contains("SHORT_KEY"), "{text}");
    }
}
