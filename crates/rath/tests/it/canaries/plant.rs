//! Canaries: random values that are planted in the channels of a session, in many forms.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rath::Secrets;
use rath::secrets::AddOutcome;

use super::channels::{CHANNELS, Channel, Holds};

/// A random value, and the channel and the form in which it is planted.
pub(super) struct Canary {
    pub(super) channel: &'static Channel,
    pub(super) form: &'static str,
    pub(super) value: String,
    /// The parts of the value that no form breaks, each twelve letters and digits.
    pub(super) cores: Vec<String>,
}

/// The kinds of value that are planted in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Species {
    /// Values that the session is told to hide.
    Known,
    /// Values that only their pattern shows to be keys.
    Keys,
}

/// A session's worth of canaries: some for each channel.
pub(super) struct Round {
    pub(super) canaries: Vec<Canary>,
    species: Species,
    texts: BTreeMap<&'static str, Vec<String>>,
    used: RefCell<BTreeSet<&'static str>>,
}

/// The number of canaries in each channel of a round.
pub(super) const CANARIES_PER_CHANNEL: usize = 8;

impl Round {
    pub(super) fn new(nth: usize, species: Species, random: &mut Random) -> Self {
        let mut round = Round { canaries: Vec::new(), species, texts: BTreeMap::new(), used: RefCell::default() };
        for (row, channel) in CHANNELS.iter().enumerate() {
            if species == Species::Keys && channel.holds == Holds::KnownOnly {
                continue;
            }
            for copy in 0..CANARIES_PER_CHANNEL {
                // Each round, the next forms in each channel.
                let turn = row + (nth * CANARIES_PER_CHANNEL + copy);
                round.plant(channel, turn, random);
            }
        }
        round
    }

    fn plant(&mut self, channel: &'static Channel, turn: usize, random: &mut Random) {
        let (value, cores) = match self.species {
            Species::Known => known_value(channel, turn, random),
            Species::Keys => key(turn, random),
        };
        let forms = if self.species == Species::Known { FORMS } else { &FORMS[..3] };
        let candidates = (0..forms.len()).map(|skipped| &forms[(turn + skipped) % forms.len()]);
        let mut planted = candidates.map(|(form, encode)| (*form, encode(&value)));
        let fits = |text: &str| channel.holds != Holds::Name || text.chars().all(is_name_char);
        let (form, text) = planted.find(|(_, text)| fits(text)).expect("a form fits");
        self.texts.entry(channel.name).or_default().push(text);
        self.canaries.push(Canary { channel, form, value, cores });
    }

    /// Returns the text for a channel, with its canaries.
    #[track_caller]
    pub(super) fn text(&self, channel: &'static str) -> String {
        let texts = self.pieces(channel);
        texts.iter().map(|text| format!("see {text} here; ")).collect()
    }

    /// Returns the names for a channel, each with a canary.
    #[track_caller]
    pub(super) fn pieces(&self, channel: &'static str) -> Vec<String> {
        assert!(CHANNELS.iter().any(|known| known.name == channel), "`{channel}` is not in the table");
        self.used.borrow_mut().insert(channel);
        self.texts.get(channel).cloned().unwrap_or_default()
    }

    /// Returns the name for a channel, with its canaries.
    #[track_caller]
    pub(super) fn name(&self, channel: &'static str) -> String {
        self.pieces(channel).join("-")
    }

    /// Returns the secrets that a session is told of.
    pub(super) fn secrets(&self) -> Secrets {
        let mut secrets = Secrets::default();
        if self.species == Species::Known {
            for canary in &self.canaries {
                assert_eq!(secrets.add("CANARY", format!(" {}\n", canary.value)), AddOutcome::Added);
            }
        }
        secrets
    }

    /// Fails if a channel of the table was not used.
    #[track_caller]
    pub(super) fn check_used(&self) {
        let used = self.used.borrow();
        let unused: Vec<_> = CHANNELS.iter().map(|channel| channel.name).filter(|name| !used.contains(name)).collect();
        assert!(unused.is_empty(), "no text goes through {unused:?}");
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-.+%=".contains(c)
}

/// Makes a value without a pattern. Some have characters that most formats escape.
fn known_value(channel: &Channel, turn: usize, random: &mut Random) -> (String, Vec<String>) {
    let cores = vec![random.core(), random.core()];
    let between = match (channel.holds, turn % 3) {
        (Holds::Name, _) | (_, 0) => "-",
        (_, 1) => "/\"\\<é>&+ü ~",
        _ => "\n$'\t🔑:@",
    };
    (cores.join(between), cores)
}

/// Makes a text with the pattern of a key.
fn key(turn: usize, random: &mut Random) -> (String, Vec<String>) {
    let (first, second, third) = (random.core(), random.core(), random.core());
    let value = match turn % 6 {
        0 => format!("sk-{first}1a2B{second}"),
        1 => format!("ghp_{first}{second}{third}"),
        2 => format!("hf_{first}1aB2cD{second}"),
        3 => format!("sk_live_{first}1aB2{second}"),
        4 => format!("glpat-{first}1a2B{second}"),
        _ => format!("sk-ant-api03-{first}1a2B{second}"),
    };
    let cores = [first, second, third].into_iter().filter(|core| value.contains(core.as_str())).collect();
    (value, cores)
}

/// A way to write a value.
pub(super) type Form = (&'static str, fn(&str) -> String);

/// The forms that are hidden. The first three also apply to keys that only their pattern shows.
pub(super) const FORMS: &[Form] = &[
    ("raw", str::to_owned),
    ("white space around it", |value| format!(" \t{value}\n")),
    ("quotes around it", |value| format!("\"{value}\"")),
    ("JSON", |value| json(value)),
    ("JSON in JSON", |value| json(&json(value))),
    ("JSON, ASCII only", |value| units(value, |unit| unit > 126, |unit| format!("\\u{unit:04x}"))),
    ("JSON, ASCII only, capital digits", |value| units(value, |unit| unit > 126, |unit| format!("\\u{unit:04X}"))),
    ("JSON, all escaped", |value| units(value, |_| true, |unit| format!("\\u{unit:04x}"))),
    ("JSON, all escaped, capital digits", |value| units(value, |_| true, |unit| format!("\\u{unit:04X}"))),
    ("URL", |value| bytes(value, |byte| !byte.is_ascii_alphanumeric(), |byte| format!("%{byte:02X}"))),
    ("URL, small digits", |value| bytes(value, |byte| !byte.is_ascii_alphanumeric(), |byte| format!("%{byte:02x}"))),
    ("HTML form", |value| {
        reqwest::Url::parse_with_params("http://h/", [("q", value)])
            .expect("a URL")
            .query()
            .unwrap_or_default()
            .to_owned()
    }),
    ("URL, all escaped", |value| bytes(value, |_| true, |byte| format!("%{byte:02X}"))),
    ("URL, all escaped, small digits", |value| bytes(value, |_| true, |byte| format!("%{byte:02x}"))),
    ("URL, vowels escaped", |value| {
        bytes(value, |byte| b"aeiouAEIOU-/ %\"".contains(&byte) || !byte.is_ascii(), |byte| format!("%{byte:02x}"))
    }),
    ("Base64", |value| STANDARD.encode(value)),
    ("Base64 for URLs", |value| URL_SAFE_NO_PAD.encode(value)),
    ("Base64 behind one byte", |value| STANDARD.encode(format!("u{value}:and more"))),
    ("Base64 behind two bytes", |value| URL_SAFE_NO_PAD.encode(format!("me{value}"))),
    ("Base64 in lines", |value| {
        wrapped(&STANDARD.encode(format!("{}{value} and more", "the user ".repeat(5))), 76, "\n")
    }),
    ("Base64 in lines, in JSON", |value| {
        wrapped(&STANDARD.encode(format!("{}{value}", "the user ".repeat(4))), 64, "\\n")
    }),
    ("hex", |value| bytes(value, |_| true, |byte| format!("{byte:02x}"))),
    ("hex, capital digits", |value| bytes(value, |_| true, |byte| format!("{byte:02X}"))),
    ("on two lines of a shell", |value| {
        let middle = value.len() / 3;
        format!("{}\\\n{}", &value[..middle], &value[middle..])
    }),
];

fn json(text: &str) -> String {
    let quoted = serde_json::to_string(text).expect("a string is JSON");
    quoted[1..quoted.len() - 1].to_owned()
}

/// Writes some units of UTF-16 in another way, and all others as JSON does.
fn units(text: &str, is_escaped: fn(u16) -> bool, escape: fn(u16) -> String) -> String {
    let write = |c: char| {
        let units: Vec<u16> = c.encode_utf16(&mut [0; 2]).to_vec();
        match units.iter().any(|unit| is_escaped(*unit)) {
            true => units.into_iter().map(escape).collect(),
            false => json(&c.to_string()),
        }
    };
    text.chars().map(write).collect()
}

/// Writes some bytes in another way.
fn bytes(text: &str, is_escaped: fn(u8) -> bool, escape: fn(u8) -> String) -> String {
    text.bytes().map(|byte| if is_escaped(byte) { escape(byte) } else { char::from(byte).to_string() }).collect()
}

fn wrapped(text: &str, columns: usize, line_break: &str) -> String {
    let lines = text.as_bytes().chunks(columns).map(|line| std::str::from_utf8(line).expect("ASCII"));
    lines.collect::<Vec<_>>().join(line_break)
}

/// A source of random texts with a fixed seed (SplitMix64).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new() -> Self {
        Random(rath_test_support::seed())
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    /// Makes a part of a value. Capitals, small letters and digits alternate, as they do in keys.
    fn core(&mut self) -> String {
        let classes: [&[u8]; 3] = [b"ABCDEFGHJKLMNPQRSTUVWXYZ", b"abcdefghijkmnopqrstuvwxyz", b"0123456789"];
        let letter = |nth: usize, random: &mut Random| {
            let class = classes[nth % 3];
            char::from(class[random.below(class.len())])
        };
        (0..12).map(|nth| letter(nth, self)).collect()
    }
}
