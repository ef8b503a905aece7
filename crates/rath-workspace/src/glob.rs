//! Wildcard patterns, with git's meaning.
//!
//! All ways to match are followed at once, so the time is at most the product of the lengths of pattern and text: patterns come
//! from files of others.

/// The treatment of slashes by `*` and `?`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slash {
    /// A slash is matched like any other character.
    Any,
    /// A slash is matched only by `**` and by itself.
    Literal,
}

/// A wildcard pattern.
#[derive(Debug)]
pub(crate) struct Glob {
    tokens: Vec<Token>,
    /// The literal characters at the end, which decide most texts.
    suffix: Vec<u8>,
}

#[derive(Debug)]
enum Token {
    Byte(u8),
    /// One character of a set.
    Set(Box<ByteSet>),
    /// Any number of characters.
    Star {
        takes_slashes: bool,
        /// True for `**/` between slashes, which may stand for no directory at all: the slash is skipped too.
        may_skip_slash: bool,
    },
    /// A part that is not valid, which matches nothing.
    Nothing,
}

/// Returns true for a character with a special meaning in patterns.
pub(crate) fn is_special(byte: u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[' | b'\\')
}

impl Glob {
    pub(crate) fn new(pattern: &[u8], slash: Slash) -> Self {
        let mut parser = Parser { pattern, at: 0, slash };
        let tokens: Vec<_> = std::iter::from_fn(|| parser.next_token()).collect();
        let literals = tokens.iter().rev().map_while(|token| match token {
            Token::Byte(byte) => Some(*byte),
            _ => None,
        });
        let mut suffix: Vec<u8> = literals.collect();
        let before = tokens.len().checked_sub(suffix.len() + 1).map(|at| &tokens[at]);
        if matches!(before, Some(Token::Star { may_skip_slash: true, .. })) {
            suffix.pop();
        }
        suffix.reverse();
        Glob { tokens, suffix }
    }

    /// Returns true if the pattern matches a whole text.
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        if !text.ends_with(&self.suffix) {
            return false;
        }
        if let [Token::Star { takes_slashes, .. }, rest @ ..] = &self.tokens[..]
            && rest.len() == self.suffix.len()
        {
            return *takes_slashes || memchr::memchr(b'/', &text[..text.len() - rest.len()]).is_none();
        }
        let mut states = States::new(self.tokens.len());
        let mut next = States::new(self.tokens.len());
        self.enter(0, &mut states);
        for byte in text {
            next.clear();
            for state in &states.list {
                match self.tokens.get(*state) {
                    Some(Token::Byte(wanted)) if wanted == byte => self.enter(state + 1, &mut next),
                    Some(Token::Set(set)) if set.contains(*byte) => self.enter(state + 1, &mut next),
                    Some(Token::Star { takes_slashes, .. }) if *takes_slashes || *byte != b'/' => {
                        next.add(*state);
                        self.enter(state + 1, &mut next);
                    }
                    _ => {}
                }
            }
            if next.list.is_empty() {
                return false;
            }
            std::mem::swap(&mut states, &mut next);
        }
        states.is_in[self.tokens.len()]
    }

    /// Adds the state before a token, and all that are reached from there without a character.
    fn enter(&self, state: usize, states: &mut States) {
        if std::mem::replace(&mut states.is_entered[state], true) {
            return;
        }
        states.add(state);
        if let Some(Token::Star { may_skip_slash, .. }) = self.tokens.get(state) {
            self.enter(state + 1, states);
            if *may_skip_slash {
                self.enter(state + 2, states);
            }
        }
    }
}

/// The tokens before which a match may stand, and the end of the pattern.
struct States {
    list: Vec<usize>,
    is_in: Vec<bool>,
    /// The states that were reached from the token before, so that a star has taken nothing yet.
    is_entered: Vec<bool>,
}

impl States {
    fn new(tokens: usize) -> Self {
        States { list: Vec::new(), is_in: vec![false; tokens + 1], is_entered: vec![false; tokens + 1] }
    }

    fn add(&mut self, state: usize) {
        if !std::mem::replace(&mut self.is_in[state], true) {
            self.list.push(state);
        }
    }

    fn clear(&mut self) {
        for state in self.list.drain(..) {
            (self.is_in[state], self.is_entered[state]) = (false, false);
        }
    }
}

/// A set of characters.
#[derive(Debug, Default)]
struct ByteSet([u64; 4]);

impl ByteSet {
    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn remove(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] &= !(1 << (byte & 63));
    }

    fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] & (1 << (byte & 63)) != 0
    }
}

struct Parser<'a> {
    pattern: &'a [u8],
    at: usize,
    slash: Slash,
}

impl Parser<'_> {
    /// Returns the character at an offset from here, and 0 after the end.
    fn peek(&self, offset: usize) -> u8 {
        self.pattern.get(self.at + offset).copied().unwrap_or(0)
    }

    fn next_token(&mut self) -> Option<Token> {
        let first = *self.pattern.get(self.at)?;
        Some(match first {
            b'*' => self.star(),
            b'?' => {
                self.at += 1;
                self.set(ByteSet([u64::MAX; 4]))
            }
            b'[' => match self.class() {
                Some(set) => self.set(set),
                None => self.nothing(),
            },
            b'\\' => {
                self.at += 1;
                match self.pattern.get(self.at) {
                    Some(byte) => {
                        self.at += 1;
                        Token::Byte(*byte)
                    }
                    None => Token::Nothing,
                }
            }
            byte => {
                self.at += 1;
                Token::Byte(byte)
            }
        })
    }

    fn star(&mut self) -> Token {
        let first = self.at;
        while self.peek(0) == b'*' {
            self.at += 1;
        }
        let begins = first == 0 || self.pattern[first - 1] == b'/';
        let ends = matches!((self.peek(0), self.peek(1)), (0 | b'/', _) | (b'\\', b'/'));
        let is_double = self.at - first > 1;
        let takes_directories = self.slash == Slash::Literal && is_double && begins && ends;
        Token::Star {
            takes_slashes: self.slash == Slash::Any || takes_directories,
            may_skip_slash: takes_directories && self.peek(0) == b'/',
        }
    }

    /// Returns the token for one character of a set.
    fn set(&self, mut set: ByteSet) -> Token {
        if self.slash == Slash::Literal {
            set.remove(b'/');
        }
        Token::Set(Box::new(set))
    }

    fn nothing(&mut self) -> Token {
        self.at = self.pattern.len();
        Token::Nothing
    }

    /// Parses a set of characters in brackets; none if it is not valid.
    fn class(&mut self) -> Option<ByteSet> {
        self.at += 1;
        let negated = matches!(self.peek(0), b'!' | b'^');
        self.at += usize::from(negated);
        let mut set = ByteSet::default();
        // The character that a range may begin with.
        let mut before = None;
        loop {
            before = match *self.pattern.get(self.at)? {
                b'\\' => {
                    self.at += 1;
                    let byte = *self.pattern.get(self.at)?;
                    set.insert(byte);
                    Some(byte)
                }
                b'-' if before.is_some() && !matches!(self.peek(1), 0 | b']') => {
                    self.at += 1;
                    self.at += usize::from(self.peek(0) == b'\\');
                    let last = *self.pattern.get(self.at)?;
                    (before?..=last).for_each(|byte| set.insert(byte));
                    None
                }
                b'[' if self.peek(1) == b':' => {
                    let name = self.pattern.get(self.at + 2..)?;
                    let name = &name[..memchr::memchr(b']', name)?];
                    match name.strip_suffix(b":") {
                        Some(class) => {
                            (0..=u8::MAX).try_for_each(|byte| {
                                is_in_class(class, byte)?.then(|| set.insert(byte));
                                Some(())
                            })?;
                            self.at += 2 + name.len();
                            None
                        }
                        // Without its end, `[:` is an ordinary bracket.
                        None => {
                            set.insert(b'[');
                            Some(b'[')
                        }
                    }
                }
                byte => {
                    set.insert(byte);
                    Some(byte)
                }
            };
            self.at += 1;
            if *self.pattern.get(self.at)? == b']' {
                self.at += 1;
                break;
            }
        }
        if negated {
            set.0 = set.0.map(|bits| !bits);
        }
        Some(set)
    }
}

/// Returns true if a character belongs to a named class; none if there is no such class.
fn is_in_class(name: &[u8], byte: u8) -> Option<bool> {
    Some(match name {
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"alpha" => byte.is_ascii_alphabetic(),
        b"blank" => matches!(byte, b' ' | b'\t'),
        b"cntrl" => byte.is_ascii_control(),
        b"digit" => byte.is_ascii_digit(),
        b"graph" => byte.is_ascii_graphic(),
        b"lower" => byte.is_ascii_lowercase(),
        b"print" => byte.is_ascii_graphic() || byte == b' ',
        b"punct" => byte.is_ascii_punctuation(),
        b"space" => byte.is_ascii_whitespace() || byte == 0x0b,
        b"upper" => byte.is_ascii_uppercase(),
        b"xdigit" => byte.is_ascii_hexdigit(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Following one way after the other takes a million steps and more for each of these texts.
    #[test]
    fn patterns_that_are_made_to_take_long_do_not() {
        let directories = "aa/".repeat(40);
        for (pattern, text, expected) in [
            ("**/".repeat(18) + "/b", directories.clone() + "c", false),
            ("**/*a/**/".repeat(11) + "b", "a/".repeat(20) + "ab", false),
            ("**/*a/**/".repeat(11) + "b", "a/".repeat(40) + "b", true),
            ("**/a/".repeat(300) + "b", "a/".repeat(1_000) + "b", true),
        ] {
            let glob = Glob::new(pattern.as_bytes(), Slash::Literal);
            for nth in 0..if text.len() > 1_000 { 1 } else { 1_000 } {
                assert_eq!(glob.matches(text.as_bytes()), expected, "{nth}: {pattern}");
            }
        }
    }
}
