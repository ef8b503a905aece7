//! Sandboxes by URI.

use expect_test::expect;
use rath_sandbox::ErrorKind;
use rath_sandbox::{Command, Isolated, Local, Sandbox};

use crate::block_on;

#[test]
fn a_uri_holds_the_settings_and_opens_the_same_sandbox() {
    let minute = std::time::Duration::from_secs(60);
    let host = |isolated: Isolated, host: &str| isolated.allow_host(host).expect("a host");
    let rows: [(Sandbox, &str); 10] = [
        (Sandbox::local("/w/"), "local:/w"),
        (Local::new("/a b").memory(1 << 30).output(10).into(), "local:/a b?memory=1g&output=10"),
        (Sandbox::isolated("/what?"), "isolated:/what%3F"),
        (Isolated::new("/w").network().memory(1 << 30).into(), "isolated:/w?network=on&memory=1g"),
        (
            host(host(Isolated::new("/w"), "a.com"), "[::1]:80").writable("/opt/x").into(),
            "isolated:/w?network=a.com,[::1]:80&write=/opt/x",
        ),
        (host(Isolated::new("/w").network(), "a.com").into(), "isolated:/w?network=on"),
        (Isolated::new("/w").hidden_host().processes(5).into(), "isolated:/w?host=hidden&processes=5"),
        (Isolated::new("/w").hidden_host().read_only_host().into(), "isolated:/w"),
        (Isolated::new("/w").file_size(1025).cpu_time(minute).into(), "isolated:/w?file_size=1025&cpu_time=60s"),
        (
            Isolated::new("/w").hide("a&b").show("/opt/x").env("TOKEN", "secret").into(),
            "isolated:/w?hide=a%26b&show=/opt/x",
        ),
    ];
    for (sandbox, uri) in rows {
        assert_eq!(sandbox.uri(), uri);
        assert_eq!(Sandbox::open(uri).expect("it was just written").uri(), uri);
    }
}

#[test]
fn a_uri_names_the_same_directories_from_everywhere() {
    let here = std::env::current_dir().expect("a directory");
    let here = here.display();
    for (uri, absolute) in [
        ("local:", format!("local:{here}")),
        ("local:./", format!("local:{here}")),
        ("isolated:a/./b/", format!("isolated:{here}/a/b")),
        ("isolated:..?hide=a&show=b&write=./c", format!("isolated:{here}/..?hide=a&show={here}/b&write={here}/c")),
    ] {
        let sandbox = Sandbox::open(uri).expect("a sandbox");
        assert_eq!(sandbox.uri(), absolute);
        assert!(sandbox.directory().is_some_and(std::path::Path::is_absolute));
    }
}

#[cfg(unix)]
#[test]
fn every_path_of_bytes_survives_a_uri() {
    use std::os::unix::ffi::OsStrExt;
    let mut chance = rath_test_support::Chance(rath_test_support::seed());
    let special = [b'%', b'?', b'&', b'2', b'5', b'3', b'F', 0xc3, 0xa9, 0xff, b'/'];
    let mut random = || -> Vec<u8> {
        let length = 1 + chance.below(6);
        let mut byte = || match chance.below(2) {
            0 => special[usize::try_from(chance.below(special.len() as u64)).expect("small")],
            _ => u8::try_from(1 + chance.below(255)).expect("a byte"),
        };
        (0..length).map(|_| byte()).collect()
    };
    let cases = u64::from(rath_test_support::cases(3_000));
    let names: Vec<Vec<u8>> = (1..=255).map(|byte| vec![byte]).chain((0..cases).map(|_| random())).collect();
    for name in names {
        let path = std::path::Path::new("/w").join(std::ffi::OsStr::from_bytes(&[b"x", &name[..], b"x"].concat()));
        let wanted: std::path::PathBuf = path.components().collect();
        for sandbox in [Sandbox::local(&path), Isolated::new(&path).hide(&path).show(&path).writable(&path).into()] {
            let again = Sandbox::open(sandbox.uri()).expect("it was just written");
            assert_eq!(again.directory(), Some(&*wanted), "{}", sandbox.uri());
            assert_eq!((again.uri(), again.hidden()), (sandbox.uri(), sandbox.hidden()));
        }
    }
}

#[cfg(unix)]
#[test]
fn bytes_that_are_no_text_are_escaped_and_a_bare_percent_sign_stays() {
    use std::os::unix::ffi::OsStrExt;
    let path = std::path::Path::new("/caf").join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
    assert_eq!(Sandbox::isolated(&path).uri(), "isolated:/caf/caf%E9");
    for (uri, directory) in [("local:/100%", "/100%"), ("local:/%zz%2", "/%zz%2"), ("local:/%253F", "/%3F")] {
        assert_eq!(Sandbox::open(uri).expect("a sandbox").directory(), Some(std::path::Path::new(directory)));
    }
}

#[test]
fn the_error_for_a_wrong_uri_lists_what_is_known() {
    let found = [
        "nothing",
        "docker:rust",
        "isolated:./?netwrok=on",
        "isolated:./?network=yes",
        "isolated:./?network=a b",
        "local:./?memory=much",
    ]
    .map(|uri| {
        let error = Sandbox::open(uri).expect_err("it is wrong");
        assert_eq!(error.kind(), ErrorKind::Config);
        format!("{uri}\n  {}\n", format!("{error:?}").replace('\n', "\n  "))
    });
    expect![[r#"
        nothing
          wanted a sandbox, found `nothing`
          hint: write the kind of sandbox, a colon, and where: `isolated:./`
        docker:rust
          unknown kind of sandbox `docker`; known: local, isolated
        isolated:./?netwrok=on
          unknown option `netwrok` of a sandbox of the kind `isolated`; known: network, host, git, walls, memory, processes, file_size, cpu_time, output, hide, show, write, at
        isolated:./?network=yes
          wanted off, on or hosts such as `example.com,*.example.com` as `network` of a sandbox of the kind `isolated`, found `yes`
        isolated:./?network=a b
          wanted off, on or hosts such as `example.com,*.example.com` as `network` of a sandbox of the kind `isolated`, found `a b`
        local:./?memory=much
          wanted a number of bytes such as `512m` or `4g` as `memory` of a sandbox of the kind `local`, found `much`
    "#]]
    .assert_eq(&found.concat());
}

#[test]
fn the_directory_is_opened_at_the_first_use() {
    let directory = rath_test_support::temp_dir();
    let missing = directory.path().join("later");
    for sandbox in [Sandbox::local(&missing), Sandbox::isolated(&missing)] {
        let run = || block_on(sandbox.run(&Command::shell("true")));
        let error = run().expect_err("there is no such directory");
        assert_eq!((error.kind(), error.hint()), (ErrorKind::Unavailable, Some("the directory has to be there")));
        assert!(!missing.exists());
        std::fs::create_dir(&missing).expect("made");
        run().expect("it is there now");
        drop(sandbox);
        assert!(missing.exists(), "the directory of the user stays");
        std::fs::remove_dir(&missing).expect("it is empty");
    }
}

#[test]
fn capabilities_are_printed_on_one_line() {
    let directory = rath_test_support::temp_dir();
    let print = |sandbox: Sandbox| block_on(sandbox.capabilities()).expect("it works here").to_string();
    assert_eq!(print(Sandbox::local(directory.path())), "no walls, network");
    let isolated = Isolated::new(directory.path()).hidden_host().file_size(1 << 20);
    let line = print(isolated.cpu_time(std::time::Duration::from_secs(5)).into());
    assert!(line.starts_with("sees programs and libraries only, no network, "), "{line}");
    assert!(line.ends_with("files 1 MiB by rlimit, cpu 5 s by rlimit"), "{line}");
}
