//! Reading a line that is not shown, on Unix.

use std::io;

use rustix::stdio::stdin;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

/// Asks for a line that the terminal does not show, and waits for it; none if it was interrupted.
///
/// The terminal sends no signals meanwhile: one would end the program and leave the terminal as it is now.
pub(super) fn read_hidden(ask: impl FnOnce()) -> io::Result<Option<String>> {
    const INTERRUPT: u8 = 3;
    const END: u8 = 4;
    const ERASE: [u8; 2] = [8, 127];
    let before = tcgetattr(stdin())?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
    tcsetattr(stdin(), OptionalActions::Flush, &hidden)?;
    // Not before the terminal hides what is typed.
    ask();
    let mut line = Vec::new();
    let read = loop {
        let mut byte = [0];
        match rustix::io::retry_on_intr(|| rustix::io::read(stdin(), &mut byte)) {
            Err(error) => break Err(error.into()),
            Ok(0) => break Ok(None),
            Ok(_) => {}
        }
        match byte[0] {
            b'\r' | b'\n' => break Ok(Some(String::from_utf8_lossy(&line).into_owned())),
            INTERRUPT | END => break Ok(None),
            byte if ERASE.contains(&byte) => _ = line.pop(),
            byte => line.push(byte),
        }
    };
    tcsetattr(stdin(), OptionalActions::Now, &before)?;
    read
}
