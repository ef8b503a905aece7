//! Work as a user who is not the administrator.

use rustix::process::{Uid, geteuid};

/// The user to whom nothing belongs.
const NOBODY: u32 = 65534;

/// Calls `work` as an ordinary user: in a thread with another user id, if this process is the administrator's.
///
/// # Panics
///
/// If the user cannot be changed, or `work` panics.
pub fn as_ordinary_user(work: impl FnOnce() + Send) {
    if !geteuid().is_root() {
        return work();
    }
    let as_nobody = || {
        // The ids of a thread are its own on Linux, and so are those of the threads that it starts.
        let nobody = Uid::from_raw(NOBODY);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("the user can be changed");
        work();
    };
    std::thread::scope(|scope| scope.spawn(as_nobody).join()).expect("no panic");
}
