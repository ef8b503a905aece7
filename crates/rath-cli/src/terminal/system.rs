//! The calls of Unix on a terminal.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, OutputModes, tcgetattr, tcsetattr};

/// Lets a line break return to the first column, as everything that prints expects.
pub(super) fn keep_line_breaks() {
    if let Ok(mut modes) = tcgetattr(stdin()) {
        modes.output_modes |= OutputModes::OPOST | OutputModes::ONLCR;
        let _ = tcsetattr(stdin(), OptionalActions::Now, &modes);
    }
}

/// Stops the program until the shell continues it.
pub(super) fn stop() -> io::Result<()> {
    Ok(kill_process(getpid(), Signal::TSTP)?)
}

/// Waits until something is typed, but no longer than this time. Returns false if nothing was; fails if the terminal is gone.
pub(super) fn wait_for_keys(most: Duration) -> io::Result<bool> {
    let stdin = stdin();
    let mut asked = [PollFd::new(&stdin, PollFlags::IN)];
    let most = Timespec::try_from(most).map_err(io::Error::other)?;
    match poll(&mut asked, Some(&most)) {
        Ok(found) if found > 0 && asked[0].revents().contains(PollFlags::HUP) => {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
        Ok(found) => Ok(found > 0),
        // A signal, as when the size of the terminal changes.
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Announces again what is typed already: setting the attributes of a terminal wakes its readers.
pub(super) fn announce_keys() -> io::Result<()> {
    let attributes = tcgetattr(stdin())?;
    Ok(tcsetattr(stdin(), OptionalActions::Now, &attributes)?)
}
