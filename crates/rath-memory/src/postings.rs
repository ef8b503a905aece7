//! The notes that a term occurs in, as bytes.
//!
//! A list of postings is a sequence of blocks, in the order of their notes. A block has a header and the postings of at most
//! [`BLOCK_POSTINGS`] notes. Blocks name their first note in full, so two lists whose notes follow each other are joined by joining
//! their bytes, and a search skips blocks without reading them.

/// The number of a note: 1, 2, 3, .. in the order in which notes were written. Numbers are not used again.
pub(crate) type Doc = u32;

/// The most notes that are ever written to one memory. Each takes some bytes of memory while the memory is open.
pub(crate) const MAX_DOC: Doc = 1 << 24;

/// The most postings of a block.
const BLOCK_POSTINGS: usize = 128;
/// First note, last note, length of the data, postings, postings with the term in their text, highest counts.
const HEADER_BYTES: usize = 4 + 4 + 2 + 1 + 1 + 1;

/// The most occurrences in a text that are counted.
const MAX_IN_TEXT: u8 = 31;
/// The most that counts beside the text.
const MAX_BESIDE: u8 = 7;

/// The number of times that a term occurs in a note.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count(u8);

impl Count {
    /// Adds an occurrence in the text.
    pub(crate) fn add_in_text(&mut self) {
        self.0 = self.0 & 0xe0 | (self.in_text() + 1).min(MAX_IN_TEXT);
    }

    /// Adds an occurrence beside the text, in halves of one in the text.
    pub(crate) fn add_beside(&mut self, halves: u8) {
        self.0 = self.0 & 0x1f | (self.halves_beside() + halves).min(MAX_BESIDE) << 5;
    }

    fn max_of_each(self, other: Count) -> Count {
        Count((self.0 & 0x1f).max(other.0 & 0x1f) | (self.0 & 0xe0).max(other.0 & 0xe0))
    }

    /// Returns the occurrences in the text.
    pub(crate) fn in_text(self) -> u8 {
        self.0 & 0x1f
    }

    /// Returns the occurrences beside the text: in the name of the person who said it, in its date, in its path.
    pub(crate) fn halves_beside(self) -> u8 {
        self.0 >> 5
    }
}

/// Appends postings to a list. The notes come in their order.
pub(crate) fn encode(postings: &[(Doc, Count)], into: &mut Vec<u8>) {
    for block in postings.chunks(BLOCK_POSTINGS) {
        let (Some(first), Some(last)) = (block.first(), block.last()) else { continue };
        let header = into.len();
        into.resize(header + HEADER_BYTES, 0);
        let mut before = first.0;
        for (doc, count) in block {
            let mut gap = doc - before;
            before = *doc;
            while gap >= 0x80 {
                into.push(gap as u8 | 0x80);
                gap >>= 7;
            }
            into.extend([gap as u8, count.0]);
        }
        let length = (into.len() - header - HEADER_BYTES) as u16;
        let in_text = block.iter().filter(|(_, count)| count.in_text() > 0).count() as u8;
        let highest = block.iter().fold(Count::default(), |highest, (_, count)| highest.max_of_each(*count));
        let header = &mut into[header..header + HEADER_BYTES];
        header[..4].copy_from_slice(&first.0.to_le_bytes());
        header[4..8].copy_from_slice(&last.0.to_le_bytes());
        header[8..10].copy_from_slice(&length.to_le_bytes());
        header[10..].copy_from_slice(&[block.len() as u8, in_text, highest.0]);
    }
}

/// Returns a list without some notes, or None if it has none of them. `gone` is sorted.
pub(crate) fn without(list: &[u8], gone: &[Doc]) -> Option<Vec<u8>> {
    let postings = PostingList::parse([list]).all();
    let kept: Vec<_> = postings.iter().filter(|(doc, _)| gone.binary_search(doc).is_err()).copied().collect();
    if kept.len() == postings.len() {
        return None;
    }
    let mut bytes = Vec::new();
    encode(&kept, &mut bytes);
    Some(bytes)
}

/// A block of postings that is still bytes.
#[derive(Clone, Copy)]
struct Block<'a> {
    first: Doc,
    last: Doc,
    postings: u8,
    in_text: u8,
    highest: Count,
    data: &'a [u8],
}

impl Block<'_> {
    /// Calls `visit` with each posting. Bytes that are damaged end the block early.
    fn each(&self, mut visit: impl FnMut(Doc, Count)) {
        let mut data = self.data;
        let mut doc = self.first;
        while !data.is_empty() {
            let (mut gap, mut shift) = (0_u32, 0);
            loop {
                let [byte, rest @ ..] = data else { return };
                data = rest;
                gap |= u32::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            let [count, rest @ ..] = data else { return };
            data = rest;
            doc = doc.saturating_add(gap);
            if doc > self.last {
                return;
            }
            visit(doc, Count(*count));
        }
    }
}

/// The postings of one term: its blocks, in the order of their notes.
pub(crate) struct PostingList<'a>(Vec<Block<'a>>);

impl<'a> PostingList<'a> {
    /// Reads the headers of lists that follow each other. A list that is damaged ends early.
    pub(crate) fn parse(lists: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut blocks: Vec<Block<'a>> = Vec::new();
        for mut bytes in lists {
            while let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) {
                let number =
                    |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
                let length = usize::from(u16::from_le_bytes([header[8], header[9]]));
                let Some((data, rest)) = rest.split_at_checked(length) else { break };
                let [postings, in_text, highest] = [header[10], header[11], header[12]];
                let highest = Count(highest);
                let block = Block { first: number(0), last: number(4), postings, in_text, highest, data };
                // In order, so that they can be searched, whatever the file says.
                if block.last < block.first || blocks.last().is_some_and(|before| before.last >= block.first) {
                    break;
                }
                blocks.push(block);
                bytes = rest;
            }
        }
        PostingList(blocks)
    }

    /// Returns all postings.
    pub(crate) fn all(&self) -> Vec<(Doc, Count)> {
        let mut all = Vec::new();
        self.each_up_to(Doc::MAX, |doc, count| all.push((doc, count)));
        all
    }

    /// Calls `visit` with each posting of the notes up to `last`.
    pub(crate) fn each_up_to(&self, last: Doc, mut visit: impl FnMut(Doc, Count)) {
        for block in self.0.iter().take_while(|block| block.first <= last) {
            if block.last <= last {
                block.each(&mut visit);
            } else {
                block.each(|doc, count| {
                    if doc <= last {
                        visit(doc, count);
                    }
                });
            }
        }
    }

    /// Counts the notes up to `last` that have the term, and those that have it in their text.
    pub(crate) fn count_notes(&self, last: Doc) -> (u32, u32) {
        let (mut notes, mut in_text) = (0, 0);
        for block in self.0.iter().take_while(|block| block.first <= last) {
            if block.last <= last {
                notes += u32::from(block.postings);
                in_text += u32::from(block.in_text);
            } else {
                block.each(|doc, found| {
                    notes += u32::from(doc <= last);
                    in_text += u32::from(doc <= last && found.in_text() > 0);
                });
            }
        }
        (notes, in_text)
    }

    /// Returns the highest counts, in a text and beside one.
    pub(crate) fn highest(&self) -> Count {
        self.0.iter().fold(Count::default(), |highest, block| highest.max_of_each(block.highest))
    }

    /// Returns true if there are no postings.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Calls `visit` with the position and the count of each note in `docs`, which is sorted, that has the term.
    pub(crate) fn find_each(&self, docs: &[Doc], mut visit: impl FnMut(usize, Count)) {
        let mut at = 0;
        let mut blocks = self.0.as_slice();
        while at < docs.len() {
            let skip = blocks.partition_point(|block| block.last < docs[at]);
            blocks = &blocks[skip..];
            let Some(block) = blocks.first() else { return };
            at += docs[at..].partition_point(|doc| *doc < block.first);
            let end = at + docs[at..].partition_point(|doc| *doc <= block.last);
            if at < end {
                let mut next = at;
                block.each(|doc, count| {
                    while next < end && docs[next] < doc {
                        next += 1;
                    }
                    if next < end && docs[next] == doc {
                        visit(next, count);
                    }
                });
            }
            at = end;
            blocks = &blocks[1..];
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    fn count(in_text: u8, beside: u8) -> Count {
        let mut count = Count::default();
        (0..in_text).for_each(|_| count.add_in_text());
        count.add_beside(beside);
        count
    }

    /// Postings of random notes, with gaps of all sizes.
    fn postings() -> impl Strategy<Value = Vec<(Doc, Count)>> {
        let docs = prop_oneof![btree_set(1..2_000_u32, 0..600), btree_set(1..4_000_000_000_u32, 0..400)];
        (docs, vec((0..40_u8, 0..9_u8), 600)).prop_map(|(docs, counts)| {
            docs.into_iter().zip(counts).map(|(doc, (in_text, beside))| (doc, count(in_text, beside))).collect()
        })
    }

    proptest! {
        #![proptest_config(rath_test_support::property(256))]

        #[test]
        fn a_list_is_read_as_it_was_written(postings in postings(), cut in 0..600_usize, last in 0..3_000_u32) {
            let (one, other) = postings.split_at(cut.min(postings.len()));
            let (mut bytes, mut more) = (Vec::new(), Vec::new());
            encode(one, &mut bytes);
            encode(other, &mut more);
            let apart = PostingList::parse([bytes.as_slice(), more.as_slice()]).all();
            bytes.extend(more);
            let list = PostingList::parse([bytes.as_slice()]);
            prop_assert_eq!(&list.all(), &postings);
            prop_assert_eq!(&apart, &postings);
            let early: Vec<_> = postings.iter().filter(|(doc, _)| *doc <= last).collect();
            let in_text = early.iter().filter(|(_, count)| count.in_text() > 0).count();
            prop_assert_eq!(list.count_notes(last), (early.len() as u32, in_text as u32));
        }

        #[test]
        fn notes_are_found_in_a_list_and_taken_out_of_it(postings in postings(), asked in btree_set(1..2_100_u32, 0..300)) {
            let asked: Vec<Doc> = asked.into_iter().collect();
            let mut bytes = Vec::new();
            encode(&postings, &mut bytes);
            let mut found = Vec::new();
            PostingList::parse([bytes.as_slice()]).find_each(&asked, |at, count| found.push((asked[at], count)));
            let (expected, rest): (Vec<_>, Vec<_>) = postings.iter().partition(|(doc, _)| asked.contains(doc));
            prop_assert_eq!(&found, &expected);
            match without(&bytes, &asked) {
                None => prop_assert!(expected.is_empty()),
                Some(bytes) => prop_assert_eq!(PostingList::parse([bytes.as_slice()]).all(), rest),
            }
        }

        #[test]
        fn damaged_bytes_are_no_panic(bytes in vec(any::<u8>(), 0..300), asked in vec(any::<u32>(), 0..20)) {
            let list = PostingList::parse([bytes.as_slice()]);
            let mut asked = asked;
            asked.sort_unstable();
            list.all();
            list.count_notes(7);
            list.find_each(&asked, |_, _| ());
        }
    }
}
