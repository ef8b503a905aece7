//! A check of SQLite's own log (WAL) for damage.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use super::log::sibling_path;
use crate::store::error::{Result, StoreError, StoreErrorKind};

/// Checks SQLite's WAL for damage before SQLite opens it.
///
/// SQLite reads its WAL up to the first frame whose checksum does not fit, and takes the rest for an unfinished transaction. If
/// complete transactions follow that frame, the WAL is damaged, and SQLite would silently drop transactions that were reported
/// as durable.
pub(super) fn check(database: &Path) -> std::io::Result<Result<()>> {
    let name = sibling_path(database, "-wal");
    let mut before = None;
    // A WAL that is being written may look damaged for a moment: it is damaged if it does not change.
    for _ in 0..LOG_READS {
        let mut log = Vec::new();
        match File::open(&name) {
            Ok(mut file) => file.read_to_end(&mut log)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Ok(())),
            Err(error) => return Err(error),
        };
        let lost = lost_changes(&log);
        if lost == 0 {
            return Ok(Ok(()));
        }
        if before.as_ref() == Some(&log) {
            let message =
                format!("the log of {} is damaged: {lost} of its newest changes cannot be read", database.display());
            return Ok(Err(StoreError::new(StoreErrorKind::Damaged, message)
                .with_hint("move the file that ends in `-wal` away to open the store without them")));
        }
        before = Some(log);
        std::thread::sleep(BETWEEN_READS);
    }
    Ok(Ok(()))
}

/// The number of reads of a WAL that looks damaged, and the pause between them.
const LOG_READS: u32 = 50;
const BETWEEN_READS: Duration = Duration::from_millis(10);

const HEADER: usize = 32;
const FRAME: usize = 24;

/// Counts the complete transactions behind the frame at which SQLite stops reading.
fn lost_changes(log: &[u8]) -> usize {
    let number = |at: usize| log.get(at..at + 4).map(|it| u32::from_be_bytes([it[0], it[1], it[2], it[3]]));
    let (Some(magic), Some(size)) = (number(0), number(8)) else { return 0 };
    let page = size as usize;
    if log.len() < HEADER + FRAME || magic & 0xffff_fffe != 0x377f_0682 || !page.is_power_of_two() || page < 512 {
        // SQLite would not accept this header. If it was one, everything behind it is lost.
        return usize::from(log.len() > HEADER && log.iter().any(|byte| *byte != 0));
    }
    let word = |at: usize| {
        let it = &log[at..at + 4];
        let it = [it[0], it[1], it[2], it[3]];
        if magic & 1 == 1 { u32::from_be_bytes(it) } else { u32::from_le_bytes(it) }
    };
    let sum = |mut sum: (u32, u32), from: usize, to: usize| {
        for at in (from..to).step_by(8) {
            sum.0 = sum.0.wrapping_add(word(at)).wrapping_add(sum.1);
            sum.1 = sum.1.wrapping_add(word(at + 4)).wrapping_add(sum.0);
        }
        sum
    };
    let mut running = sum((0, 0), 0, 24);
    if (number(24), number(28)) != (Some(running.0), Some(running.1)) {
        return usize::from(log.len() > HEADER);
    }
    let salt = &log[16..24];
    let (mut good, mut whole, mut lost) = (true, 0, 0);
    // True if the unreadable part is the end of the first transaction, with frames of the WAL before it behind.
    let mut unfinished = false;
    let mut at = HEADER;
    while at + FRAME + page <= log.len() {
        // Frames of an earlier WAL differ in both halves of the salt.
        let own = log[at + 8..at + 12] == salt[..4] || log[at + 12..at + 16] == salt[4..];
        let ends_change = number(at + 4).is_some_and(|reader| reader > 0);
        let was_good = good;
        if good {
            let next = sum(sum(running, at, at + 8), at + FRAME, at + FRAME + page);
            good = log[at + 8..at + 16] == *salt && (number(at + 16), number(at + 20)) == (Some(next.0), Some(next.1));
            running = next;
        }
        if good {
            whole += usize::from(ends_change);
        } else if own && ends_change {
            lost += 1;
            unfinished = was_good && whole == 0;
        } else if own {
            unfinished = false;
        }
        at += FRAME + page;
        if !own && unfinished && lost == 1 {
            return 0;
        }
    }
    lost
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    /// Returns the WAL of a database with two transactions since its last reset.
    fn log(path: &Path, cut: bool) -> (Connection, Vec<u8>) {
        let connection = Connection::open(path).expect("a database");
        super::super::schema::settings(&connection).expect("it is set up");
        if !cut {
            connection.pragma_update_and_check(None, "journal_size_limit", -1, |_| Ok(())).expect("a setting");
        }
        let change = |sql: &str| connection.execute_batch(sql).expect("a change");
        change("CREATE TABLE words(word)");
        (0..20).for_each(|_| change("INSERT INTO words VALUES (zeroblob(9000))"));
        connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).expect("a checkpoint");
        change("INSERT INTO words VALUES (1)");
        let mut name = path.as_os_str().to_owned();
        name.push("-wal");
        if cut {
            change("INSERT INTO words VALUES (2)");
        }
        let log = std::fs::read(name).expect("a log");
        (connection, log)
    }

    #[test]
    fn what_a_crash_leaves_of_a_change_is_told_from_damage() {
        let folder = tempfile::tempdir().expect("a folder");
        let frame = FRAME + 4096;
        // Truncated behind the first transaction: no frames of the earlier WAL follow.
        let (_cut, log_now) = log(&folder.path().join("cut"), true);
        assert_eq!(log_now.len(), HEADER + 2 * frame);
        // As SQLite leaves it: frames of the earlier WAL follow the one transaction.
        let (_uncut, log_before) = log(&folder.path().join("uncut"), false);
        assert!(log_before.len() > HEADER + 20 * frame);
        let check = |name: &str, log: &[u8], at: Option<usize>, lost: usize| {
            let mut log = log.to_vec();
            at.into_iter().for_each(|at| log[at] ^= 1);
            assert_eq!(lost_changes(&log), lost, "{name}");
        };
        check("as it was written", &log_now, None, 0);
        check("the first change", &log_now, Some(HEADER + 100), 2);
        check("the last change", &log_now, Some(HEADER + frame + 100), 1);
        check("half of its salt", &log_now, Some(HEADER + frame + 9), 1);
        check("the other half", &log_now, Some(HEADER + frame + 13), 1);
        check("the header", &log_now, Some(5), 1);
        check("cut in the last change", &log_now[..log_now.len() - 1], None, 0);
        check("with what was before", &log_before, None, 0);
        check("killed in the first change since", &log_before, Some(HEADER + 100), 0);
    }
}
