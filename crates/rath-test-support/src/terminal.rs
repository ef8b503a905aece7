//! A terminal that a test types into and reads from.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::wait_until;

/// A program in a terminal.
pub struct Terminal {
    /// None once the terminal is closed.
    keyboard: Option<File>,
    screen: Arc<Mutex<String>>,
    child: Child,
    /// Set when the screen is no longer read.
    is_closed: Arc<AtomicBool>,
}

/// The time after which the reader of a screen looks whether it has to end.
const READ_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

impl Terminal {
    /// Starts a program whose stdin, stdout and stderr are a new terminal.
    #[track_caller]
    pub fn start(command: Command) -> Self {
        Terminal::with_columns(command, 0)
    }

    /// Starts a program in a terminal with so many columns. A terminal with none does not tell its size.
    #[track_caller]
    pub fn with_columns(command: Command, columns: u16) -> Self {
        Terminal::with_streams(command, columns, |command, side| {
            command.stdin(side()).stdout(side()).stderr(side());
        })
    }

    /// Starts a program whose stdout alone is a terminal, with so many columns.
    #[track_caller]
    pub fn of_stdout(command: Command, columns: u16) -> Self {
        Terminal::with_streams(command, columns, |command, side| {
            command.stdout(side());
        })
    }

    /// Starts a program that `connect` gives the terminal to.
    #[track_caller]
    fn with_streams(mut command: Command, columns: u16, connect: impl Fn(&mut Command, &dyn Fn() -> File)) -> Self {
        let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&main).and_then(|()| unlockpt(&main)).expect("a terminal");
        let size = Winsize { ws_row: if columns > 0 { 24 } else { 0 }, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&main, size).expect("a terminal has a size");
        let name = ptsname(&main, Vec::new()).expect("its name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let side = || File::from(rustix::fs::open(&*name, flags, Mode::empty()).expect("its other side"));
        connect(&mut command, &side);
        let child = command.spawn().expect("the program starts");
        // The copies of its side of the terminal would keep it open after its end.
        drop(command);
        let (keyboard, screen) = (File::from(main), Arc::<Mutex<String>>::default());
        let (mut reader, shown) = (keyboard.try_clone().expect("a second handle"), screen.clone());
        let is_closed = Arc::<AtomicBool>::default();
        let closed = is_closed.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while !closed.load(Ordering::SeqCst) {
                match poll(&mut [PollFd::new(&reader, PollFlags::IN)], Some(&READ_WAIT)) {
                    Ok(0) => continue,
                    Ok(_) => {}
                    Err(_) => break,
                }
                let Ok(read @ 1..) = reader.read(&mut buffer) else { break };
                let text = String::from_utf8_lossy(&buffer[..read]).replace('\r', "");
                shown.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
            }
        });
        Terminal { keyboard: Some(keyboard), screen, child, is_closed }
    }

    /// Returns everything that was shown so far.
    pub fn screen(&self) -> String {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until a text was shown `times`, then types a line.
    #[track_caller]
    pub fn answer(&mut self, text: &str, times: usize, line: &str) {
        wait_until(&format!("{text} in a terminal"), || self.screen().matches(text).count() >= times);
        self.type_text(&format!("{line}\n"));
    }

    /// Waits until a text was shown `times`, then presses keys: `\r` is Enter, `\u{3}` Ctrl-C.
    #[track_caller]
    pub fn press(&mut self, text: &str, times: usize, keys: &str) {
        wait_until(&format!("{text} in a terminal"), || self.screen().matches(text).count() >= times);
        self.type_text(keys);
    }

    /// Closes the terminal, and waits for the program to end.
    #[track_caller]
    pub fn hang_up(mut self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.keyboard = None;
        let child = &mut self.child;
        wait_until("the program ends with its terminal", || child.try_wait().expect("a status").is_some());
    }

    fn type_text(&mut self, text: &str) {
        let keyboard = self.keyboard.as_mut().expect("the terminal is open");
        keyboard.write_all(text.as_bytes()).expect("it is typed");
    }

    /// Returns the process id of the program.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the program to end, and returns everything that was shown.
    #[track_caller]
    pub fn finish(mut self) -> (String, ExitStatus) {
        let mut status = None;
        wait_until("the program in a terminal ends", || {
            status = self.child.try_wait().expect("a status");
            status.is_some()
        });
        // What the program wrote last may still be on its way to the screen.
        let mut last = self.screen();
        loop {
            std::thread::sleep(std::time::Duration::from_millis(50));
            let now = self.screen();
            if now == last {
                break;
            }
            last = now;
        }
        (last, status.expect("it has ended"))
    }
}

impl Drop for Terminal {
    /// Ends the program of a test that failed.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
