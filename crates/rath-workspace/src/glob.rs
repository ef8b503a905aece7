//! Wildcard patterns, with git's meaning.

/// The treatment of slashes by `*` and `?`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slash {
    /// A slash is matched like any other character.
    Any,
    /// A slash is matched only by `**` and by itself.
    Literal,
}

/// The result of matching a pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GlobMatch {
    Match,
    No,
    /// No match, for any number of characters that a star before it takes.
    Impossible,
    /// No match, unless a `**` before it takes more characters.
    NoUnlessDoubleStar,
}

/// The number of steps after which a pattern counts as not matching, so that no pattern can take forever.
const MAX_GLOB_STEPS: u32 = 1_000_000;

/// Returns true for a character with a special meaning in patterns.
pub(crate) fn is_special(byte: u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[' | b'\\')
}

/// Returns true if a pattern matches a whole text.
pub(crate) fn matches(pattern: &[u8], text: &[u8], slash: Slash) -> bool {
    let mut glob = Glob { pattern, text, slash, steps: MAX_GLOB_STEPS };
    glob.matches(0, 0) == GlobMatch::Match
}

struct Glob<'a> {
    pattern: &'a [u8],
    text: &'a [u8],
    slash: Slash,
    steps: u32,
}

impl Glob<'_> {
    /// Returns a character of the pattern, and 0 after its end.
    fn p(&self, at: usize) -> u8 {
        self.pattern.get(at).copied().unwrap_or(0)
    }

    /// Returns a character of the text, and 0 after its end.
    fn t(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    fn matches(&mut self, mut p: usize, mut t: usize) -> GlobMatch {
        while self.p(p) != 0 {
            self.steps = self.steps.saturating_sub(1);
            if self.steps == 0 {
                return GlobMatch::Impossible;
            }
            let (wanted, byte) = (self.p(p), self.t(t));
            if byte == 0 && wanted != b'*' {
                return GlobMatch::Impossible;
            }
            match wanted {
                b'?' if self.slash == Slash::Literal && byte == b'/' => return GlobMatch::No,
                b'?' => {}
                b'*' => match self.match_star(&mut p, &mut t) {
                    Some(result) => return result,
                    None => continue,
                },
                b'[' => match self.match_class(&mut p, byte) {
                    None => return GlobMatch::Impossible,
                    Some(false) => return GlobMatch::No,
                    Some(true) => {}
                },
                b'\\' => {
                    p += 1;
                    if self.p(p) != byte {
                        return GlobMatch::No;
                    }
                }
                _ if wanted != byte => return GlobMatch::No,
                _ => {}
            }
            (p, t) = (p + 1, t + 1);
        }
        if self.t(t) == 0 { GlobMatch::Match } else { GlobMatch::No }
    }

    /// Matches a star; none if matching continues after the star.
    fn match_star(&mut self, p: &mut usize, t: &mut usize) -> Option<GlobMatch> {
        let first = *p;
        *p += 1;
        let mut takes_slashes = self.slash == Slash::Any;
        if self.p(*p) == b'*' {
            while self.p(*p) == b'*' {
                *p += 1;
            }
            let begins = first == 0 || self.pattern[first - 1] == b'/';
            let ends = matches!((self.p(*p), self.p(*p + 1)), (0 | b'/', _) | (b'\\', b'/'));
            if self.slash == Slash::Literal && begins && ends {
                // Between slashes, `**` may stand for no directory at all.
                if self.p(*p) == b'/' && self.matches(*p + 1, *t) == GlobMatch::Match {
                    return Some(GlobMatch::Match);
                }
                takes_slashes = true;
            }
        }
        let rest = self.text.get(*t..).unwrap_or_default();
        if self.p(*p) == 0 {
            let stays = takes_slashes || memchr::memchr(b'/', rest).is_none();
            return Some(if stays { GlobMatch::Match } else { GlobMatch::NoUnlessDoubleStar });
        }
        if !takes_slashes && self.p(*p) == b'/' {
            return match memchr::memchr(b'/', rest) {
                None => Some(GlobMatch::Impossible),
                Some(slash) => {
                    *t += slash;
                    None
                }
            };
        }
        self.match_after_star(*p, *t, takes_slashes)
    }

    /// Tries the rest of the pattern at every position that the star may reach.
    fn match_after_star(&mut self, p: usize, mut t: usize, takes_slashes: bool) -> Option<GlobMatch> {
        while self.t(t) != 0 {
            self.steps = self.steps.saturating_sub(1);
            if self.steps == 0 {
                return Some(GlobMatch::Impossible);
            }
            let wanted = self.p(p);
            if !is_special(wanted) {
                // A literal character has to follow, so the star takes everything before it.
                while self.t(t) != 0 && self.t(t) != wanted && (takes_slashes || self.t(t) != b'/') {
                    t += 1;
                }
                if self.t(t) != wanted {
                    return Some(if takes_slashes { GlobMatch::Impossible } else { GlobMatch::NoUnlessDoubleStar });
                }
            }
            let result = self.matches(p, t);
            if result != GlobMatch::No {
                if !takes_slashes || result != GlobMatch::NoUnlessDoubleStar {
                    return Some(result);
                }
            } else if !takes_slashes && self.t(t) == b'/' {
                return Some(GlobMatch::NoUnlessDoubleStar);
            }
            t += 1;
        }
        Some(GlobMatch::Impossible)
    }

    /// Returns true if a set of characters contains this one; none if the set is not valid. Stops at its closing
    /// bracket.
    fn match_class(&self, p: &mut usize, byte: u8) -> Option<bool> {
        *p += 1;
        let negated = matches!(self.p(*p), b'!' | b'^');
        if negated {
            *p += 1;
        }
        let (mut before, mut contains) = (0, false);
        loop {
            let mut one = self.p(*p);
            match one {
                0 => return None,
                b'\\' => {
                    *p += 1;
                    one = self.p(*p);
                    if one == 0 {
                        return None;
                    }
                    contains |= one == byte;
                }
                b'-' if before != 0 && !matches!(self.p(*p + 1), 0 | b']') => {
                    *p += 1;
                    let mut last = self.p(*p);
                    if last == b'\\' {
                        *p += 1;
                        last = self.p(*p);
                        if last == 0 {
                            return None;
                        }
                    }
                    contains |= (before..=last).contains(&byte);
                    one = 0;
                }
                b'[' if self.p(*p + 1) == b':' => {
                    let start = *p + 2;
                    let length = self.pattern.get(start..)?.iter().position(|byte| *byte == b']')?;
                    match self.pattern[start..start + length].strip_suffix(b":") {
                        Some(name) => {
                            contains |= is_in_class(name, byte)?;
                            *p = start + length;
                            one = 0;
                        }
                        // Without its end, `[:` is an ordinary bracket.
                        None => contains |= byte == b'[',
                    }
                }
                _ => contains |= one == byte,
            }
            before = one;
            *p += 1;
            if self.p(*p) == b']' {
                break;
            }
        }
        Some(contains != negated && !(self.slash == Slash::Literal && byte == b'/'))
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
