//! Three-way merges of texts, with the result of git: the changes of both sides, and conflict markers where they
//! overlap.

use crate::lines::{Hunk, LineIds, diff, lines};

/// The result of merging texts.
pub(super) struct MergedText {
    pub(super) text: Vec<u8>,
    /// True if the text contains conflict markers.
    pub(super) conflicts: bool,
}

/// The labels and the length of conflict markers.
pub(super) struct ConflictMarkers<'a> {
    pub(super) ours: &'a str,
    pub(super) theirs: &'a str,
    pub(super) size: usize,
}

/// A changed part of the text: its start and length in ours and in theirs.
#[derive(Clone, Debug)]
struct MergeChunk {
    origin: ChunkOrigin,
    ours: (usize, usize),
    theirs: (usize, usize),
}

/// The side that changed a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkOrigin {
    Conflict,
    Ours,
    Theirs,
    /// Both made the same change.
    Same,
}

/// Merges two texts that come from a common one.
pub(super) fn merge(base: &[u8], ours: &[u8], theirs: &[u8], markers: &ConflictMarkers<'_>) -> MergedText {
    let (base, ours, theirs) = (lines(base), lines(ours), lines(theirs));
    let mut ids = LineIds::default();
    let (o, a, b) = (ids.assign(&base), ids.assign(&ours), ids.assign(&theirs));
    let mut chunks = align(&diff(&o, &a), &diff(&o, &b), &a, &b, o.len());
    refine(&mut chunks, &a, &b);
    join_close_conflicts(&mut chunks);
    let text = MergeTexts { base, ours, theirs };
    let conflicts = chunks.iter().any(|chunk| chunk.origin == ChunkOrigin::Conflict);
    MergedText { text: text.render(&chunks, markers), conflicts }
}

/// Aligns the changes of both sides.
///
/// A change that overlaps several changes of the other side is combined with each of them. The start of such a
/// combination may be before the start of the text; it is always appended to the previous part.
fn align(ours: &[Hunk], theirs: &[Hunk], a: &[u32], b: &[u32], base: usize) -> Vec<MergeChunk> {
    let mut chunks: Vec<MergeChunk> = Vec::new();
    let (mut one, mut other) = (ours.iter().peekable(), theirs.iter().peekable());
    let run = |range: &std::ops::Range<usize>| (range.start as isize, range.len() as isize);
    while let (Some(x), Some(y)) = (one.peek(), other.peek()) {
        let ((x0, x0_len), (x1, x1_len)) = (run(&x.before), run(&x.after));
        let ((y0, y0_len), (y1, y1_len)) = (run(&y.before), run(&y.after));
        if x0 + x0_len < y0 {
            append(&mut chunks, ChunkOrigin::Ours, (x1, x1_len), (y1 - y0 + x0, x0_len));
            one.next();
            continue;
        }
        if y0 + y0_len < x0 {
            append(&mut chunks, ChunkOrigin::Theirs, (x1 - x0 + y0, y0_len), (y1, y1_len));
            other.next();
            continue;
        }
        let same = x.before == y.before && x1_len == y1_len && a[x.after.clone()] == b[y.after.clone()];
        if !same {
            let off = x0 - y0;
            let ffo = off + x0_len - y0_len;
            let (from_ours, from_theirs) = (x1 - off.max(0), y1 + off.min(0));
            let our_length = x1 + x1_len - from_ours - ffo.min(0);
            let their_length = y1 + y1_len - from_theirs + ffo.max(0);
            append(&mut chunks, ChunkOrigin::Conflict, (from_ours, our_length), (from_theirs, their_length));
        }
        if x0 + x0_len >= y0 + y0_len {
            other.next();
        }
        if y0 + y0_len >= x0 + x0_len {
            one.next();
        }
    }
    // After the last change of one origin, its lines have the same distance from the end as those of the base.
    let (base, a, b) = (base as isize, a.len() as isize, b.len() as isize);
    for hunk in one {
        let (x0, x0_len) = run(&hunk.before);
        append(&mut chunks, ChunkOrigin::Ours, run(&hunk.after), (x0 + b - base, x0_len));
    }
    for hunk in other {
        let (y0, y0_len) = run(&hunk.before);
        append(&mut chunks, ChunkOrigin::Theirs, (y0 + a - base, y0_len), run(&hunk.after));
    }
    chunks
}

/// Adds a part, or extends the last one if the two touch.
fn append(chunks: &mut Vec<MergeChunk>, origin: ChunkOrigin, ours: (isize, isize), theirs: (isize, isize)) {
    let end = |(start, length): (usize, usize)| (start + length) as isize;
    // Neither is negative after it is combined with the previous part.
    let length = |start: usize, (from, length): (isize, isize)| (from + length - start as isize).max(0) as usize;
    if let Some(last) = chunks.last_mut()
        && (ours.0 <= end(last.ours) || theirs.0 <= end(last.theirs))
    {
        if origin != last.origin {
            last.origin = ChunkOrigin::Conflict;
        }
        last.ours.1 = length(last.ours.0, ours);
        last.theirs.1 = length(last.theirs.0, theirs);
        return;
    }
    let run = |(start, length): (isize, isize)| (start.max(0) as usize, length.max(0) as usize);
    chunks.push(MergeChunk { origin, ours: run(ours), theirs: run(theirs) });
}

/// Removes common lines from conflicts.
fn refine(chunks: &mut Vec<MergeChunk>, a: &[u32], b: &[u32]) {
    let mut refined = Vec::with_capacity(chunks.len());
    for chunk in chunks.drain(..) {
        if chunk.origin != ChunkOrigin::Conflict || chunk.ours.1 == 0 || chunk.theirs.1 == 0 {
            refined.push(chunk);
            continue;
        }
        let (ours, theirs) = (chunk.ours.0, chunk.theirs.0);
        let hunks = diff(&a[ours..ours + chunk.ours.1], &b[theirs..theirs + chunk.theirs.1]);
        if hunks.is_empty() {
            refined.push(MergeChunk { origin: ChunkOrigin::Same, ..chunk });
        }
        refined.extend(hunks.into_iter().map(|hunk| MergeChunk {
            origin: ChunkOrigin::Conflict,
            ours: (ours + hunk.before.start, hunk.before.len()),
            theirs: (theirs + hunk.after.start, hunk.after.len()),
        }));
    }
    *chunks = refined;
}

/// Joins conflicts with at most three lines between them.
fn join_close_conflicts(chunks: &mut Vec<MergeChunk>) {
    let mut joined: Vec<MergeChunk> = Vec::with_capacity(chunks.len());
    for chunk in chunks.drain(..) {
        match joined.last_mut() {
            Some(last)
                if last.origin == ChunkOrigin::Conflict
                    && chunk.origin == ChunkOrigin::Conflict
                    && chunk.ours.0 as isize - (last.ours.0 + last.ours.1) as isize <= 3 =>
            {
                last.ours.1 = chunk.ours.0 + chunk.ours.1 - last.ours.0;
                last.theirs.1 = chunk.theirs.0 + chunk.theirs.1 - last.theirs.0;
            }
            _ => joined.push(chunk),
        }
    }
    *chunks = joined;
}

/// The lines of the three texts.
struct MergeTexts<'a> {
    base: Vec<&'a [u8]>,
    ours: Vec<&'a [u8]>,
    theirs: Vec<&'a [u8]>,
}

impl MergeTexts<'_> {
    /// Writes the merged text.
    fn render(&self, chunks: &[MergeChunk], markers: &ConflictMarkers<'_>) -> Vec<u8> {
        let mut text = Vec::new();
        let mut at = 0;
        for chunk in chunks {
            let ours = &self.ours[chunk.ours.0..chunk.ours.0 + chunk.ours.1];
            let theirs = &self.theirs[chunk.theirs.0..chunk.theirs.0 + chunk.theirs.1];
            if chunk.origin == ChunkOrigin::Same {
                continue;
            }
            copy(&mut text, &self.ours[at..chunk.ours.0]);
            match chunk.origin {
                ChunkOrigin::Ours => copy(&mut text, ours),
                ChunkOrigin::Theirs => copy(&mut text, theirs),
                ChunkOrigin::Conflict => {
                    let end: &[u8] = if self.conflict_uses_crlf(chunk) { b"\r\n" } else { b"\n" };
                    write_marker(&mut text, b'<', markers.size, markers.ours, end);
                    copy_whole(&mut text, ours, end);
                    write_marker(&mut text, b'=', markers.size, "", end);
                    copy_whole(&mut text, theirs, end);
                    write_marker(&mut text, b'>', markers.size, markers.theirs, end);
                }
                ChunkOrigin::Same => {}
            }
            at = chunk.ours.0 + chunk.ours.1;
        }
        copy(&mut text, &self.ours[at..]);
        text
    }

    /// Returns true if all three texts end lines with a carriage return at a conflict.
    fn conflict_uses_crlf(&self, chunk: &MergeChunk) -> bool {
        let ours = conflict_uses_crlflf(&self.ours, chunk.ours.0.saturating_sub(1));
        let theirs = || conflict_uses_crlflf(&self.theirs, chunk.theirs.0.saturating_sub(1));
        let base = || conflict_uses_crlflf(&self.base, 0);
        // An unknown line ending counts as any, unless all are unknown.
        let mut uses_crlf = ours;
        if uses_crlf != Some(false) {
            uses_crlf = theirs();
        }
        if uses_crlf != Some(false) {
            uses_crlf = base();
        }
        uses_crlf == Some(true)
    }
}

/// Returns true if a line ends with a carriage return and a line feed; none if that is unknown.
fn conflict_uses_crlflf(lines: &[&[u8]], at: usize) -> Option<bool> {
    let line = lines.get(at)?;
    if line.ends_with(b"\n") {
        return Some(line.ends_with(b"\r\n"));
    }
    at.checked_sub(1).map(|before| lines[before].ends_with(b"\r\n"))
}

fn copy(text: &mut Vec<u8>, lines: &[&[u8]]) {
    lines.iter().for_each(|line| text.extend_from_slice(line));
}

/// Copies lines, and adds a line break if the last one has none.
fn copy_whole(text: &mut Vec<u8>, lines: &[&[u8]], end: &[u8]) {
    copy(text, lines);
    if lines.last().is_some_and(|line| !line.ends_with(b"\n")) {
        text.extend_from_slice(end);
    }
}

/// Writes a line with a conflict marker.
fn write_marker(text: &mut Vec<u8>, mark: u8, size: usize, label: &str, end: &[u8]) {
    text.resize(text.len() + size, mark);
    if !label.is_empty() {
        text.push(b' ');
        text.extend_from_slice(label.as_bytes());
    }
    text.extend_from_slice(end);
}
