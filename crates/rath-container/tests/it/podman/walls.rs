//! Commands in a container reach nothing but the workspace, within their limits.

use std::path::Path;

use rath_sandbox::{ByteRange, Command, ErrorKind, ExitStatus, Isolation, Mechanism, Network, Sandbox};
use rath_test_support::temp_dir;

use super::support::{container, containers_of, request, run, sh, socket, wait};

fn put(root: &Path, path: &str, text: &str) {
    std::fs::create_dir_all(root.join(path).parent().expect("a directory")).expect("a directory");
    std::fs::write(root.join(path), text).expect("a file");
}

fn text(sandbox: &Sandbox, line: &str) -> String {
    sh(sandbox, line).text()
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn only_the_workspace_can_be_written() {
    let folder = temp_dir();
    put(folder.path(), "a.txt", "a\n");
    let sandbox = Sandbox::new(container(folder.path()));
    let lines = "for path in /x /bin/x /etc/x /usr/x /.rath-sandbox/x /.rath-sandbox/empty/x /home/x; do \
                 touch $path 2>/dev/null && echo \"wrote $path\"; done; \
                 touch ok /tmp/ok /var/tmp/ok ~/ok && ls -A /var/tmp ~; cat a.txt";
    assert_eq!(text(&sandbox, lines), "/home/rath:\nok\n\n/var/tmp:\nok\na\n");
    assert!(folder.path().join("ok").is_file());
    // The machine's own files are not there.
    let other = temp_dir();
    put(other.path(), "secret", "secret\n");
    let path = other.path().join("secret");
    assert_eq!(text(&sandbox, &format!("cat '{}' 2>/dev/null; echo $?", path.display())), "1\n");
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn files_belong_to_the_user_and_commands_have_no_privileges() {
    use std::os::unix::fs::MetadataExt as _;
    let folder = temp_dir();
    let sandbox = Sandbox::new(container(folder.path()));
    let status = text(&sandbox, "touch new; grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status");
    let fields: Vec<_> = status.split_whitespace().collect();
    let none = "0000000000000000";
    assert_eq!(fields, ["CapEff:", none, "CapBnd:", none, "NoNewPrivs:", "1", "Seccomp:", "2"]);
    let (own, made) = (folder.path().metadata().expect("it is there"), folder.path().join("new").metadata());
    assert_eq!(made.expect("it was made").uid(), own.uid());
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn the_network_is_off_unless_it_is_allowed() {
    let folder = temp_dir();
    let interfaces = "cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' ' | sort | tr '\\n' ' '";
    let off = Sandbox::new(container(folder.path()));
    assert_eq!(text(&off, interfaces), "lo ");
    assert_eq!(wait(off.capabilities()).expect("known").network, Network::Off);
    let on = Sandbox::new(container(folder.path()).network());
    match wait(on.capabilities()) {
        Ok(capabilities) => {
            assert_eq!(capabilities.network, Network::On);
            assert!(text(&on, interfaces).split_whitespace().count() > 1);
        }
        // The engine has no plugins for networks, and says so.
        Err(error) => assert!(error.message().contains("podman answered 500"), "{error}"),
    }
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn rath_is_invisible_and_git_is_read_only_at_every_depth() {
    let folder = temp_dir();
    for path in [".rath/secret", "a/.rath/secret", ".git/config", "a/b/.git/hooks/x"] {
        put(folder.path(), path, "text\n");
    }
    let sandbox = Sandbox::new(container(folder.path()));
    assert_eq!(
        text(&sandbox, "ls -A .rath a/.rath; cat .git/config a/b/.git/hooks/x"),
        ".rath:\n\na/.rath:\ntext\ntext\n"
    );
    let attempts = "echo x >> .git/config; touch .git/x a/b/.git/hooks/y .rath/x; rm -rf .git a/b/.git .rath; \
                    mv a moved; mv a/b a/c; mv .rath old; mv .git old; ls -A; ls -A a";
    let output = sh(&sandbox, attempts);
    assert_eq!(output.stdout.text(), ".git\n.rath\na\n.rath\nb\n");
    for (path, kept) in [(".git/config", "text\n"), ("a/b/.git/hooks/x", "text\n"), (".rath/secret", "text\n")] {
        assert_eq!(std::fs::read_to_string(folder.path().join(path)).expect("kept"), kept, "{path}");
    }
    // A repository that a command makes is protected when the sandbox is opened again.
    text(&sandbox, "mkdir -p new/.git; echo mine > new/.git/config");
    let again = Sandbox::new(container(folder.path()));
    assert_eq!(sh(&again, "echo x > new/.git/config; cat new/.git/config").stdout.text(), "mine\n");
    let writable = Sandbox::new(container(folder.path()).writable_git());
    assert_eq!(text(&writable, "echo more >> .git/config; cat .git/config; ls -A .rath"), "text\nmore\n");
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn hidden_files_are_hidden_also_when_they_appear_later() {
    let folder = temp_dir();
    put(folder.path(), ".env", "KEY=1\n");
    put(folder.path(), "keys/a.pem", "key\n");
    let sandbox = Sandbox::new(container(folder.path()).hide(".env").hide("keys").hide("later"));
    assert_eq!(text(&sandbox, "cat .env; ls keys; ls later 2>/dev/null"), "");
    put(folder.path(), "later", "secret\n");
    assert_eq!(text(&sandbox, "cat later"), "");
    let everything = ByteRange { offset: 0, max_len: u64::MAX };
    assert_eq!(wait(sandbox.read(".env", everything)).expect_err("hidden").kind(), ErrorKind::OutsideWorkspace);
    // For one command, and files that the program keeps out.
    let mut command = Command::shell("cat a.txt store; ls");
    put(folder.path(), "a.txt", "a\n");
    put(folder.path(), "store", "store\n");
    put(folder.path(), "store-wal", "store\n");
    command.hidden = vec!["a.txt".into()];
    sandbox.keep_out(&folder.path().join("store"));
    assert_eq!(run(&sandbox, &command).expect("it runs").text(), "a.txt\nkeys\nlater\nstore\nstore-wal\n");
    assert_eq!(text(&sandbox, "cat a.txt store-wal"), "a\n");
}

/// A file that appears while a command runs can be covered in another container only, so the next command waits, for its own time at most.
#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn a_command_waits_for_others_no_longer_than_it_may_take() {
    let folder = temp_dir();
    let sandbox = Sandbox::new(container(folder.path()).hide("later"));
    let (first, second) = wait(async {
        let long = Command::shell("touch begun; until [ -e end ]; do sleep 0.05; done; echo first");
        let first = sandbox.run(&long);
        let second = async {
            while !folder.path().join("begun").exists() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            put(folder.path(), "later", "secret\n");
            let mut command = Command::shell("cat later");
            command.timeout = std::time::Duration::from_millis(200);
            let refused = sandbox.run(&command).await.expect_err("the first runs");
            put(folder.path(), "end", "");
            refused
        };
        tokio::join!(first, second)
    });
    assert_eq!(second.kind(), ErrorKind::Unavailable);
    assert!(second.hint().is_some_and(|hint| hint.contains("wait until they end")), "{second:?}");
    assert_eq!(first.expect("it runs").text(), "first\n");
    assert_eq!(text(&sandbox, "cat later"), "");
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn limits_are_enforced() {
    let folder = temp_dir();
    let limited = container(folder.path()).memory(64 << 20).processes(24).file_size(1 << 20).milli_cpus(1500);
    let sandbox = Sandbox::new(limited);
    let capabilities = wait(sandbox.capabilities()).expect("known");
    assert_eq!(capabilities.isolation, Isolation::Container);
    let memory = capabilities.memory.expect("limited");
    assert_eq!(memory.max, 64 << 20);
    assert!(matches!(memory.mechanism, Mechanism::CgroupV1 | Mechanism::CgroupV2));
    // A program that holds 200 MB.
    let output = sh(&sandbox, "head -c 200000000 /dev/zero | tail -n 1 | wc -c; echo after");
    assert!(!output.stdout.text().starts_with("200000000"), "{output:?}");
    // The first process and the supervisor are among them.
    let count = "n=0; while [ $n -lt 100 ]; do sleep 60 & n=$((n+1)); done; ls /proc | grep -c '^[0-9]'";
    let output = sh(&sandbox, count);
    assert!(output.stderr.text().contains("fork"), "{output:?}");
    assert_eq!(text(&sandbox, "head -c 4000000 /dev/zero > big 2>/dev/null; wc -c < big"), format!("{}\n", 1 << 20));
    assert_eq!(text(&sandbox, "echo still here"), "still here\n");
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn a_command_that_kills_or_stops_its_supervisor_is_killed_too() {
    let folder = temp_dir();
    let sandbox = Sandbox::new(container(folder.path()));
    let mark = "86399.25";
    let line = format!("setsid sleep {mark} & sleep {mark} & kill -9 $PPID; sleep {mark}");
    let output = sh(&sandbox, &line);
    assert_eq!(output.status, ExitStatus::Signal(9));
    assert_eq!(text(&sandbox, &format!("ps | grep -c '[s]leep {mark}'")), "0\n");
    // The first process cannot be killed or looked into from inside.
    assert_eq!(text(&sandbox, "kill -9 1; kill -STOP 1; echo alive"), "alive\n");
    assert_eq!(text(&sandbox, "cat /proc/1/environ /proc/1/maps >/dev/null 2>&1 || echo closed"), "closed\n");
    let mut command = Command::shell(&format!("sleep {mark} & kill -STOP $PPID; sleep {mark}"));
    command.timeout = std::time::Duration::from_millis(300);
    assert_eq!(run(&sandbox, &command).expect("it runs").status, ExitStatus::TimedOut);
    // The container has ended with it; the next command gets another.
    assert_eq!(text(&sandbox, &format!("ps | grep -c '[s]leep {mark}'")), "0\n");
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn processes_that_start_others_without_end_are_killed() {
    let folder = temp_dir();
    let sandbox = Sandbox::new(container(folder.path()).processes(200));
    for line in ["f() { f | f & }; f; sleep 0.3; echo begun", "f() { f & f; }; f & sleep 0.3; echo begun"] {
        let mut command = Command::shell(line);
        command.timeout = std::time::Duration::from_secs(5);
        let output = run(&sandbox, &command).expect("it runs");
        assert!(
            [ExitStatus::Exit(0), ExitStatus::TimedOut, ExitStatus::Exit(2)].contains(&output.status),
            "{output:?}"
        );
        // The first process, a supervisor, and those of this line.
        let count: u32 = text(&sandbox, "ls /proc | grep -c '^[0-9]'").trim().parse().expect("a number");
        assert!(count <= 5, "{count} processes");
    }
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn a_container_that_is_removed_from_outside_ends_its_command_and_is_replaced() {
    let folder = temp_dir();
    let sandbox = Sandbox::new(container(folder.path()));
    text(&sandbox, "touch /tmp/kept");
    let [id] = <[String; 1]>::try_from(containers_of(folder.path())).expect("one container");
    let output = wait(sandbox.run_streaming(&Command::shell("echo begun; sleep 86399"), &mut |_, _| {
        assert!(request("DELETE", &format!("/containers/{id}?force=true")).contains(" 20"));
    }));
    let output = output.expect("it was started");
    assert_eq!((output.status, &*output.stdout.text()), (ExitStatus::Signal(9), "begun\n"));
    assert_eq!(text(&sandbox, "ls /tmp/kept 2>/dev/null; echo again"), "again\n");
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn hostile_settings_are_errors_or_have_no_effect() {
    let folder = temp_dir();
    let comma = folder.path().join("a,readonly");
    std::fs::create_dir(&comma).expect("a directory");
    let error = run(&Sandbox::new(container(&comma)), &Command::shell("true")).expect_err("it cannot be mounted");
    assert_eq!(error.kind(), ErrorKind::Config);
    let missing = rath_container::Container::image("localhost/rath-no-such-image:1").directory(folder.path());
    let error = run(&Sandbox::new(missing.socket(socket())), &Command::shell("true")).expect_err("no image");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(error.hint(), Some("`podman pull localhost/rath-no-such-image:1` fetches it"));
    let odd = container(folder.path()).env("NAME", "a\nb=c").env("", "x").env("LD_PRELOAD", "/nowhere.so");
    let sandbox = Sandbox::new(odd);
    assert_eq!(text(&sandbox, "echo \"$NAME\""), "a\nb=c\n");
    let nul = Sandbox::new(container(folder.path()).env("NAME", "a\0b"));
    assert!(run(&nul, &Command::shell("true")).expect_err("it is no string").message().contains("NUL byte"));
}

#[test]
#[ignore = "needs podman, at a socket that RATH_CONTAINER_SOCKET names: see CONTRIBUTING.md"]
fn secrets_are_not_in_the_records_of_the_engine() {
    let folder = temp_dir();
    let secret = "canary-5f2b7c";
    let sandbox = Sandbox::new(container(folder.path()).env("TOKEN", secret));
    let mut command = Command::shell("echo $TOKEN $OTHER; cat");
    command.env = vec![("OTHER".to_owned(), secret.to_owned())];
    command.stdin = secret.as_bytes().to_vec();
    assert_eq!(run(&sandbox, &command).expect("it runs").text().matches(secret).count(), 3);
    let [id] = <[String; 1]>::try_from(containers_of(folder.path())).expect("one container");
    assert!(!request("GET", &format!("/containers/{id}/json")).contains(secret));
    assert!(!sandbox.uri().contains(secret));
}
