//! Pages: the part of an answer that fits into its bound, and the cursor for the rest. Pure.

use std::ops::ControlFlow;

use rath::Digest;

/// The bytes that an answer has unless more are asked for.
pub(super) const DEFAULT_BYTES: u64 = 2_000;
/// The fewest bytes that can be asked for.
pub(super) const MIN_BYTES: u64 = 600;
/// The most bytes that can be asked for.
pub(super) const MAX_BYTES: u64 = 100_000;
/// The most bytes that the description of a page takes.
pub(super) const MAX_HEADER_BYTES: usize = 440;
/// The reason why a cursor leads nowhere.
pub(super) const GONE: &str = "what the cursor names is not there any more: ask without it";
/// The most bytes of a cursor.
const MAX_CURSOR_BYTES: usize = 170;

/// A place in an answer: a part, and an offset in the text of that part.
///
/// Parts have names that stay: those of lists, and the ids of sessions and steps. So a cursor leads to the same place after sessions
/// were added.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Position {
    part: String,
    offset: usize,
    /// The first digits of the digest of the text before the offset: a part that changed has another.
    before: String,
}

impl Position {
    /// Creates the position at an offset of a part that has this text.
    pub(super) fn new(part: &str, text: &str, offset: usize) -> Self {
        Position { part: part.to_owned(), offset, before: short_digest(&text[..offset]) }
    }

    /// Creates a position whose cursor is as long as any of this part.
    #[cfg(test)]
    pub(super) fn with_largest_offset(part: String) -> Self {
        Position { part, offset: u32::MAX as usize, before: short_digest("") }
    }

    /// Returns true if the text before the position is that of the earlier page.
    fn fits(&self, text: &str) -> bool {
        text.get(..self.offset).is_some_and(|before| short_digest(before) == self.before)
    }
}

fn short_digest(text: &str) -> String {
    format!("{:.8}", Digest::compute(text.as_bytes()))
}

/// A text that says where an answer goes on. It belongs to one request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cursor(String);

impl Cursor {
    /// Creates the cursor of a position in the answer to `request`.
    pub(super) fn new(request: &Digest, at: &Position) -> Self {
        Cursor(format!("{request:.8}.{}.{}.{}", at.offset, at.before, at.part))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns the position that a cursor of the same request names.
pub(super) fn parse_cursor(cursor: &str, request: &Digest) -> Result<Position, String> {
    let wrong = || "this is no cursor of an earlier answer".to_owned();
    let is_part = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-/".contains(&byte));
    let members: Vec<_> = cursor.split('.').take(5).filter(|_| cursor.len() <= MAX_CURSOR_BYTES).collect();
    let [digest, offset, before, part] = members[..] else { return Err(wrong()) };
    let offset = offset.parse().map_err(|_| wrong())?;
    if digest.len() != 8 || before.len() != 8 || !is_part(part) {
        return Err(wrong());
    }
    if digest != format!("{request:.8}") {
        return Err("the cursor belongs to another request: repeat the arguments of the one it came from".to_owned());
    }
    Ok(Position { part: part.to_owned(), offset, before: before.to_owned() })
}

/// Collects the parts of a page until it is full.
#[derive(Debug)]
pub(super) struct PageBuilder {
    /// The position at which the page begins, until its part is there.
    start: Option<Position>,
    /// The room of an empty page.
    bytes: usize,
    room: usize,
    page: Page,
}

/// A page of an answer.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Page {
    pub(super) text: String,
    /// The position at which the answer goes on.
    pub(super) next: Option<Position>,
    /// True if the page begins with a part that an earlier page has the beginning of: the part changed meanwhile.
    pub(super) is_repeated: bool,
}

impl PageBuilder {
    /// Creates a page for an answer of at most `max_bytes`, its header included.
    pub(super) fn new(start: Option<Position>, max_bytes: u64) -> Self {
        let bytes = max_bytes.clamp(MIN_BYTES, MAX_BYTES) as usize;
        let bytes = bytes - MAX_HEADER_BYTES;
        PageBuilder { start, bytes, room: bytes, page: Page::default() }
    }

    /// Returns the part at which the page begins, until that part was added.
    pub(super) fn awaited_part(&self) -> Option<&str> {
        self.start.as_ref().map(|start| start.part.as_str())
    }

    /// Returns true if a part would be passed over, because the page begins at a later one.
    pub(super) fn passes_over(&self, part: &str) -> bool {
        self.awaited_part().is_some_and(|awaited| awaited != part)
    }

    /// Lets the page begin at a part, if it is the one at which the page begins.
    pub(super) fn arrive(&mut self, part: &str) {
        if self.awaited_part() == Some(part) {
            self.start = None;
        }
    }

    /// Lets the page begin at the next part, because the one at which it begins is gone.
    pub(super) fn skip(&mut self) {
        self.start = None;
    }

    /// Returns the number of bytes of a part with which the page is full, and is known to be cut.
    pub(super) fn needed_bytes(&self) -> usize {
        let offset = self.start.as_ref().map_or(0, |start| start.offset);
        offset.saturating_add(self.room).saturating_add(1)
    }

    /// Adds a part, or as much of it as there is room for. Breaks when the page is full.
    pub(super) fn add(&mut self, part: &str, text: &str) -> ControlFlow<()> {
        if self.passes_over(part) {
            return ControlFlow::Continue(());
        }
        let offset = match self.start.take() {
            Some(start) if start.fits(text) => start.offset,
            // Two texts are not joined: a state changed, or a step was forgotten.
            Some(_) => {
                self.page.is_repeated = true;
                0
            }
            None => 0,
        };
        let rest = &text[offset..];
        if rest.len() <= self.room {
            self.page.text.push_str(rest);
            self.room -= rest.len();
            return ControlFlow::Continue(());
        }
        if rest.len() <= self.bytes && !self.page.text.is_empty() {
            // What fits into a page is not cut: it may change before the next page.
            self.end_before(part);
            return ControlFlow::Break(());
        }
        let fits = &rest[..rest.floor_char_boundary(self.room)];
        // Whole lines, unless much room would stay empty.
        let end = fits.rfind('\n').map(|at| at + 1).filter(|end| *end > fits.len() / 2).unwrap_or(fits.len());
        self.page.text.push_str(&fits[..end]);
        self.room = 0;
        self.page.next = Some(Position::new(part, text, offset + end));
        ControlFlow::Break(())
    }

    /// Ends the page: the answer goes on with this part.
    pub(super) fn end_before(&mut self, part: &str) {
        self.room = 0;
        self.page.next = Some(Position::new(part, "", 0));
    }

    /// Returns the page. Fails if the part at which it begins did not come.
    pub(super) fn finish(self) -> Result<Page, String> {
        match self.start {
            None => Ok(self.page),
            Some(_) => Err(GONE.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Digest {
        Digest::compute(b"a request")
    }

    /// Joins all pages of these parts, and checks the bound of each.
    fn joined(parts: &[(&str, &str)], max_bytes: u64) -> String {
        let (mut whole, mut start) = (String::new(), None);
        for _ in 0..10_000 {
            let mut builder = PageBuilder::new(start, max_bytes);
            let _ = parts.iter().try_for_each(|(part, text)| builder.add(part, text));
            let page = builder.finish().expect("the parts are there");
            assert!(page.text.len() + MAX_HEADER_BYTES <= max_bytes as usize, "{} bytes", page.text.len());
            whole.push_str(&page.text);
            let Some(next) = page.next else { return whole };
            assert!(!page.text.is_empty(), "every page brings something");
            start = Some(parse_cursor(Cursor::new(&request(), &next).as_str(), &request()).expect("a cursor"));
        }
        panic!("the pages do not end");
    }

    #[test]
    fn pages_joined_are_the_whole() {
        let line = "a line of some words\n".repeat(300);
        let wide = "塞纳河".repeat(1000);
        let rows: Vec<String> = (0..200).map(|nth| format!("{}\n", "x".repeat(nth))).collect();
        let names: Vec<String> = (0..200).map(|nth| format!("part{nth}")).collect();
        let many: Vec<_> = names.iter().zip(&rows).map(|(name, row)| (name.as_str(), row.as_str())).collect();
        for parts in
            [&[][..], &[("a", "")], &[("a", "short")], &[("a", &line)], &[("a", &wide), ("b", ""), ("c", &line)], &many]
        {
            let whole: String = parts.iter().map(|(_, text)| *text).collect();
            for max_bytes in [MIN_BYTES, MIN_BYTES + 1, 601, 1_234, DEFAULT_BYTES, MAX_BYTES] {
                assert_eq!(joined(parts, max_bytes), whole, "with {max_bytes} bytes");
            }
        }
    }

    #[test]
    fn a_cursor_belongs_to_its_request() {
        let position = Position::new("0af3/77", "a text of a part", 12);
        let cursor = Cursor::new(&request(), &position);
        assert_eq!(parse_cursor(cursor.as_str(), &request()), Ok(position));
        let other = parse_cursor(cursor.as_str(), &Digest::compute(b"another"));
        assert!(other.is_err_and(|why| why.contains("another request")));
        let digest = format!("{:.8}", request());
        let huge = format!("{digest}.0.{digest}.{}", "a".repeat(1_000_000));
        for wrong in [
            "",
            "..",
            "...",
            "a.b.c.d",
            &digest,
            &format!("{digest}.0"),
            &format!("{digest}.0.a"),
            &format!("{digest}.0.a.a"),
            &format!("{digest}.-1.{digest}.a"),
            &format!("{digest}.99999999999999999999999.{digest}.a"),
            &format!("{digest}.0.{digest}.../../etc/passwd"),
            &format!("{digest}.0.{digest}.a\n"),
            &huge,
        ] {
            assert!(parse_cursor(wrong, &request()).is_err(), "{wrong:.80}");
        }
    }

    #[test]
    fn a_cursor_to_what_is_gone_is_refused() {
        let mut builder = PageBuilder::new(Some(Position::new("gone", "", 0)), DEFAULT_BYTES);
        assert_eq!(builder.add("a", "text"), ControlFlow::Continue(()));
        assert!(builder.finish().is_err());
    }

    #[test]
    fn a_part_that_changed_is_repeated() {
        let position = Position::new("b", "old words", 4);
        for (text, expected, is_repeated) in [
            ("old words", "words", false),
            ("old other words", "other words", false),
            ("new words", "new words", true),
            ("old", "old", true),
            ("", "", true),
            ("ol河", "ol河", true),
        ] {
            let mut builder = PageBuilder::new(Some(position.clone()), DEFAULT_BYTES);
            let _ = [("a", "no"), ("b", text), ("c", ".")].iter().try_for_each(|(part, text)| builder.add(part, text));
            let page = builder.finish().expect("it is there");
            assert_eq!((page.text, page.is_repeated), (format!("{expected}."), is_repeated), "{text}");
        }
        let position = Position { offset: usize::MAX, ..position };
        assert!(!position.fits("text"));
    }

    #[test]
    fn a_part_that_fits_into_a_page_is_not_cut() {
        let row = format!("{}\n", "x".repeat(99));
        let mut builder = PageBuilder::new(None, MIN_BYTES);
        assert_eq!(builder.add("a", &row), ControlFlow::Continue(()));
        assert_eq!(builder.add("b", &row), ControlFlow::Break(()));
        let page = builder.finish().expect("a page");
        assert_eq!((page.text, page.next), (row, Some(Position::new("b", "", 0))));
    }
}
