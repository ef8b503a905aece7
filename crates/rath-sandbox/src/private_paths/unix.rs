//! The home directory of an account.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// Returns the home directory in the list of accounts.
pub(super) fn account_home() -> Option<PathBuf> {
    let accounts = std::fs::read("/etc/passwd").ok()?;
    home_in(&accounts, rustix::process::geteuid().as_raw()).map(|home| PathBuf::from(OsStr::from_bytes(home)))
}

/// Returns the home directory of a user in a list of accounts.
fn home_in(accounts: &[u8], user: u32) -> Option<&[u8]> {
    let user = user.to_string();
    let mut homes = accounts.split(|byte| *byte == b'\n').filter_map(|account| {
        // name:password:user:group:comment:home:shell
        let fields: Vec<_> = account.split(|byte| *byte == b':').collect();
        (*fields.get(2)? == user.as_bytes()).then_some(*fields.get(5)?)
    });
    homes.next()
}

#[cfg(test)]
mod tests {
    use super::super::{home_directories, private_paths_in, resolved};
    use super::*;

    #[test]
    fn the_home_of_an_account_is_found() {
        let accounts = b"# x\nroot:x:0:0:root:/root:/bin/sh\nshort:x:7\nann:x:1000:1000:Ann, A.:/srv/ann:/bin/sh\n";
        assert_eq!(home_in(accounts, 1000), Some(&b"/srv/ann"[..]));
        assert_eq!(home_in(accounts, 0), Some(&b"/root"[..]));
        assert_eq!((home_in(accounts, 7), home_in(accounts, 8)), (None, None));
    }

    #[test]
    #[ignore = "started by the test below, with another home"]
    fn child() {
        assert!(home_directories().contains(&PathBuf::from("/")));
        let hidden = private_paths_in(std::path::Path::new("/"));
        for name in [".ssh", ".netrc", ".local/share/rath"] {
            assert!(hidden.contains(&PathBuf::from(name)), "{name} in {hidden:?}");
        }
    }

    #[test]
    fn a_home_that_is_the_root_directory_has_private_files() {
        let mut child = rath_test_support::this_test("private_paths::system::tests::child", &[("HOME", "/")]);
        let output = child.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn a_path_is_resolved_as_far_as_it_is_there() {
        let folder = tempfile::tempdir().expect("a directory");
        let top = folder.path().canonicalize().expect("it is there");
        std::fs::create_dir(top.join("real")).expect("made");
        std::os::unix::fs::symlink("real", top.join("link")).expect("a link");
        assert_eq!(resolved(&top.join("link/a/b")), top.join("real/a/b"));
        assert_eq!(resolved(&top.join("real/../link")).as_os_str(), top.join("real").as_os_str());
    }
}
