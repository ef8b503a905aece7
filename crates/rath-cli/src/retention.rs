//! The rules by which `rath gc` deletes old sessions, as they are typed or configured.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rath::gc::Retention;
use toml_edit::TableLike;

/// The rules of the command line or of the configuration.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub(crate) struct GcRules {
    /// Delete sessions whose last step is older than this: 30d, 12h, 8w
    #[arg(long, value_name = "AGE")]
    pub(crate) older_than: Option<Age>,
    /// Delete the oldest sessions until the steps and files of the others fit: 2G, 500M
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_size: Option<Size>,
    /// Let no rule delete a session with a branch that was named by `rath fork --name`
    #[arg(long)]
    pub(crate) keep_named: bool,
}

/// An age, and the text that it was read from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Age(Duration, String);

/// A number of bytes, and the text that it was read from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Size(u64, String);

const AGE_UNITS: [(char, u64); 5] = [('s', 1), ('m', 60), ('h', 3600), ('d', 24 * 3600), ('w', 7 * 24 * 3600)];
const SIZE_UNITS: [(char, u64); 4] = [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30), ('T', 1 << 40)];

impl Age {
    pub(crate) fn duration(&self) -> Duration {
        self.0
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.1)
    }
}

impl FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = parse_units(text, &AGE_UNITS);
        let wrong = || format!("wanted a number and s, m, h, d or w, such as `30d`, found `{text}`");
        seconds.map(|seconds| Age(Duration::from_secs(seconds), text.to_owned())).ok_or_else(wrong)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = parse_units(text, &SIZE_UNITS);
        let wrong = || format!("wanted a number and K, M, G or T, such as `2G`, found `{text}`");
        bytes.map(|bytes| Size(bytes, text.to_owned())).ok_or_else(wrong)
    }
}

/// Reads a number with a unit.
fn parse_units(text: &str, units: &[(char, u64)]) -> Option<u64> {
    let unit = text.chars().last()?;
    let (_, factor) = units.iter().find(|(known, _)| *known == unit)?;
    let digits = &text[..text.len() - unit.len_utf8()];
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|_| is_number)?.checked_mul(*factor)
}

impl GcRules {
    /// Reads the section `gc` of a configuration.
    pub(crate) fn parse(table: &dyn TableLike) -> Result<Self, String> {
        let mut rules = GcRules::default();
        for (name, value) in table.iter() {
            let text = || value.as_str().ok_or_else(|| format!("`{name}` is not a text"));
            match name {
                "older-than" => rules.older_than = Some(text()?.parse()?),
                "max-size" => rules.max_size = Some(text()?.parse()?),
                "keep-named" => rules.keep_named = value.as_bool().ok_or("`keep-named` is neither true nor false")?,
                other => return Err(format!("unknown name `{other}`; known: older-than, max-size, keep-named")),
            }
        }
        Ok(rules)
    }

    /// Returns these rules, with those of the configuration where there is none.
    pub(crate) fn or(self, configured: GcRules) -> Self {
        GcRules {
            older_than: self.older_than.or(configured.older_than),
            max_size: self.max_size.or(configured.max_size),
            keep_named: self.keep_named || configured.keep_named,
        }
    }

    /// Returns the rules for the store.
    pub(crate) fn retention(&self) -> Retention {
        let mut retention = Retention::new();
        if let Some(Age(age, _)) = &self.older_than {
            retention = retention.older_than(*age);
        }
        if let Some(Size(bytes, _)) = &self.max_size {
            retention = retention.max_size(*bytes);
        }
        if self.keep_named { retention.keep_named() } else { retention }
    }

    /// Returns the rules as lines of text.
    pub(crate) fn lines(&self) -> Vec<String> {
        let age = self.older_than.iter().map(|Age(_, text)| format!("older-than {text}"));
        let size = self.max_size.iter().map(|Size(_, text)| format!("max-size {text}"));
        let named = Some("keep-named".to_owned()).filter(|_| self.keep_named);
        age.chain(size).chain(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_sizes_have_a_number_and_a_unit() {
        let rows = [("30d", Some(2_592_000)), ("8w", Some(4_838_400)), ("0s", Some(0)), ("30", None), ("d", None)];
        for (text, seconds) in rows.into_iter().chain([("-1d", None), ("+1d", None), ("1.5d", None), ("", None)]) {
            assert_eq!(text.parse::<Age>().ok().map(|Age(age, _)| age.as_secs()), seconds, "{text}");
        }
        let rows = [("2G", Some(2 << 30)), ("1K", Some(1024)), ("2GB", None), ("2g", None), ("99999999999T", None)];
        for (text, bytes) in rows {
            assert_eq!(text.parse::<Size>().ok().map(|Size(bytes, _)| bytes), bytes, "{text}");
        }
    }
}
