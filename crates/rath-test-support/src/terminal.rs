//! A terminal that a test types into and reads from.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::wait_until;

/// A program in a terminal.
pub struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    child: Child,
}

impl Terminal {
    /// Starts a program whose stdin, stdout and stderr are a new terminal.
    #[track_caller]
    pub fn start(mut command: Command) -> Self {
        let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&main).and_then(|()| unlockpt(&main)).expect("a terminal");
        let name = ptsname(&main, Vec::new()).expect("its name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let side = || File::from(rustix::fs::open(&*name, flags, Mode::empty()).expect("its other side"));
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().expect("the program starts");
        // The copies of its side of the terminal would keep it open after its end.
        drop(command);
        let (keyboard, screen) = (File::from(main), Arc::<Mutex<String>>::default());
        let (mut reader, shown) = (keyboard.try_clone().expect("a second handle"), screen.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..read]).replace('\r', "");
                shown.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
            }
        });
        Terminal { keyboard, screen, child }
    }

    /// Returns everything that was shown so far.
    pub fn screen(&self) -> String {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until a text was shown `times`, then types a line.
    #[track_caller]
    pub fn answer(&mut self, text: &str, times: usize, line: &str) {
        wait_until(&format!("{text} in a terminal"), || self.screen().matches(text).count() >= times);
        self.keyboard.write_all(format!("{line}\n").as_bytes()).expect("it is typed");
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
