//! The area at the bottom of a terminal that is drawn again and again, with what happens now and the line that is typed.
//!
//! Printed lines scroll up above it: [`around`] takes the area away, prints, and draws it again.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::terminal::{BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate};
use crossterm::{cursor, queue, terminal};

use crate::output;
use crate::styled::Line;

#[cfg(unix)]
#[path = "terminal/system.rs"]
mod system;
#[cfg(not(unix))]
#[path = "terminal/system_unsupported.rs"]
mod system;

/// The area, while a conversation is open.
static AREA: Mutex<Option<Area>> = Mutex::new(None);

/// The size that is assumed where a terminal does not tell its own.
const DEFAULT_SIZE: (u16, u16) = (80, 24);
/// The time between two drawings of what happens.
pub(crate) const REDRAW_EVERY: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Area {
    lines: Vec<Line>,
    cursor: CursorPosition,
    /// The columns of the lines on the screen, and the line of the cursor there; none while the area is not drawn.
    drawn: Option<(Vec<usize>, usize)>,
    /// The number of texts that are being printed.
    printing: usize,
}

/// A position in the area.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CursorPosition {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// Returns the columns of the terminal.
pub(crate) fn columns() -> usize {
    size().0
}

/// Returns the columns and the rows of the terminal.
pub(crate) fn size() -> (usize, usize) {
    let (columns, rows) = terminal::size().ok().filter(|size| size.0 > 0 && size.1 > 0).unwrap_or(DEFAULT_SIZE);
    (columns.into(), rows.into())
}

/// The terminal of a conversation. While it is entered, keys are read one by one, and the area is drawn.
#[derive(Default)]
pub(crate) struct ConversationTerminal {
    is_entered: bool,
}

impl ConversationTerminal {
    /// Begins to read keys and to draw the area.
    pub(crate) fn enter(&mut self) -> io::Result<()> {
        if !self.is_entered {
            enter()?;
            self.is_entered = true;
            *lock() = Some(Area::default());
        }
        Ok(())
    }

    /// Takes the area away, and leaves the terminal as it was.
    pub(crate) fn leave(&mut self) {
        if std::mem::take(&mut self.is_entered) {
            if let Some(mut area) = lock().take() {
                let _ = area.erase();
            }
            leave();
        }
    }

    /// Stops the program, as Ctrl-Z does, until the shell continues it.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        self.leave();
        system::stop()?;
        self.enter()
    }
}

impl Drop for ConversationTerminal {
    fn drop(&mut self) {
        self.leave();
    }
}

fn enter() -> io::Result<()> {
    terminal::enable_raw_mode()?;
    system::keep_line_breaks();
    output::control(|out| queue!(out, EnableBracketedPaste))
}

fn leave() {
    // The terminal may be gone.
    let _ = output::control(|out| queue!(out, EndSynchronizedUpdate, DisableBracketedPaste));
    let _ = terminal::disable_raw_mode();
}

/// Waits until something is typed, but no longer than this time. Returns false if nothing was; fails if the terminal is gone.
pub(crate) fn wait_for_keys(most: Duration) -> io::Result<bool> {
    system::wait_for_keys(most)
}

/// Announces again what is typed already, to a reader that waits for more.
pub(crate) fn announce_keys() -> io::Result<()> {
    system::announce_keys()
}

/// Draws other lines in the area, with the cursor there. Each is cut to the width of the terminal; of too many lines the first
/// are left out.
pub(crate) fn show(lines: Vec<Line>, cursor: CursorPosition) {
    let mut area = lock();
    let Some(area) = area.as_mut() else { return };
    if area.lines == lines && area.cursor == cursor && area.drawn.is_some() {
        return;
    }
    (area.lines, area.cursor) = (lines, cursor);
    if area.printing == 0 {
        // A terminal that is gone ends the program by its signal.
        let _ = area.erase().and_then(|()| area.draw());
    }
}

/// Draws lines below what is printed, while no conversation is open; none takes them away. Keys are read as always.
pub(crate) fn show_live(lines: Vec<Line>) {
    if lines.is_empty() {
        if let Some(mut area) = lock().take() {
            let _ = area.erase();
        }
        return;
    }
    lock().get_or_insert_default();
    // What is typed meanwhile appears below them.
    let cursor = CursorPosition { line: lines.len(), column: 0 };
    show(lines.into_iter().chain([Line::default()]).collect(), cursor);
}

/// Draws the area anew, after the size of the terminal has changed.
pub(crate) fn redraw() {
    if let Some(area) = lock().as_mut() {
        let _ = area.erase().and_then(|()| area.draw());
    }
}

/// Clears the terminal.
pub(crate) fn clear() {
    if let Some(area) = lock().as_mut() {
        area.drawn = None;
        let cleared = output::control(|out| queue!(out, Clear(ClearType::All), cursor::MoveTo(0, 0)));
        let _ = cleared.and_then(|()| area.draw());
    }
}

/// Prints above the area. What is printed ends with a line break.
pub(crate) fn around<T>(print: impl FnOnce() -> T) -> T {
    // Without a lock: what is printed may be computed by a function that prints a warning.
    if let Some(area) = lock().as_mut() {
        area.printing += 1;
        if area.printing == 1 {
            let _ = area.erase();
        }
    }
    let result = print();
    if let Some(area) = lock().as_mut() {
        area.printing = area.printing.saturating_sub(1);
        if area.printing == 0 {
            let _ = area.draw();
        }
    }
    result
}

impl Area {
    fn erase(&mut self) -> io::Result<()> {
        let Some((widths, line)) = self.drawn.take() else { return Ok(()) };
        let columns = columns();
        // A terminal that became narrower has wrapped the lines.
        let rows = |width: &usize| width.saturating_sub(1) / columns + 1;
        let above: usize = widths.iter().take(line).map(rows).sum();
        output::control(|out| {
            queue!(out, BeginSynchronizedUpdate, cursor::MoveToColumn(0))?;
            if above > 0 {
                queue!(out, cursor::MoveUp(above.try_into().unwrap_or(u16::MAX)))?;
            }
            queue!(out, Clear(ClearType::FromCursorDown))
        })
    }

    fn draw(&mut self) -> io::Result<()> {
        let (columns, rows) = size();
        let skipped = self.lines.len().saturating_sub(rows.saturating_sub(1).max(1));
        // The last column stays free: some terminals wrap there.
        let lines: Vec<_> = self.lines[skipped..].iter().map(|line| line.cut(columns.saturating_sub(1))).collect();
        let at = self.cursor.line.saturating_sub(skipped).min(lines.len().saturating_sub(1));
        let below = lines.len().saturating_sub(at + 1);
        let column = self.cursor.column.min(columns.saturating_sub(1));
        output::control(|out| {
            queue!(out, BeginSynchronizedUpdate)?;
            for (nth, line) in lines.iter().enumerate() {
                let line_break = if nth > 0 { "\r\n" } else { "" };
                write!(out, "{line_break}{}", output::shown(line))?;
            }
            if below > 0 {
                queue!(out, cursor::MoveUp(below.try_into().unwrap_or(u16::MAX)))?;
            }
            queue!(out, cursor::MoveToColumn(column.try_into().unwrap_or(u16::MAX)), EndSynchronizedUpdate)
        })?;
        self.drawn = Some((lines.iter().map(Line::columns).collect(), at));
        Ok(())
    }
}

fn lock() -> MutexGuard<'static, Option<Area>> {
    AREA.lock().unwrap_or_else(PoisonError::into_inner)
}
