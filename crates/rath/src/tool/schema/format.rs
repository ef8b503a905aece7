//! The formats of texts that schemas name.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Draft;
use super::pattern::SchemaPattern;
use super::uri::scheme;

/// A format that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Date,
    DateTime,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Iri,
    IriReference,
    JsonPointer,
    Regex,
    RelativeJsonPointer,
    Time,
    Uri,
    UriReference,
    UriTemplate,
}

impl Format {
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "date" => Format::Date,
            "date-time" => Format::DateTime,
            "email" => Format::Email,
            "hostname" => Format::Hostname,
            "ipv4" => Format::Ipv4,
            "ipv6" => Format::Ipv6,
            "iri" => Format::Iri,
            "iri-reference" => Format::IriReference,
            "json-pointer" => Format::JsonPointer,
            "regex" => Format::Regex,
            "relative-json-pointer" => Format::RelativeJsonPointer,
            "time" => Format::Time,
            "uri" => Format::Uri,
            "uri-reference" => Format::UriReference,
            "uri-template" => Format::UriTemplate,
            _ => return None,
        })
    }

    /// Returns true if a draft knows the format and wants it checked.
    pub(super) fn is_checked(self, draft: Draft) -> bool {
        match self {
            Format::DateTime | Format::Email | Format::Hostname | Format::Ipv4 | Format::Ipv6 | Format::Uri => {
                draft <= Draft::Draft7
            }
            Format::JsonPointer | Format::UriReference | Format::UriTemplate => {
                matches!(draft, Draft::Draft6 | Draft::Draft7)
            }
            _ => draft == Draft::Draft7,
        }
    }

    pub(super) fn fits(self, text: &str) -> bool {
        match self {
            Format::Date => is_date(text),
            Format::DateTime => text.split_once(['T', 't']).is_some_and(|(date, time)| is_date(date) && is_time(time)),
            Format::Email => is_email(text),
            Format::Hostname => is_hostname(text),
            Format::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
            Format::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
            Format::Iri => is_uri(text, true, true),
            Format::IriReference => is_uri(text, true, false),
            Format::JsonPointer => is_json_pointer(text),
            Format::Regex => SchemaPattern::new(text).is_ok(),
            Format::RelativeJsonPointer => is_relative_json_pointer(text),
            Format::Time => is_time(text),
            Format::Uri => is_uri(text, false, true),
            Format::UriReference => is_uri(text, false, false),
            Format::UriTemplate => is_uri_template(text),
        }
    }
}

/// Reads two digits, or four.
fn digits(text: &str, length: usize) -> Option<u32> {
    (text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

fn is_date(text: &str) -> bool {
    let parts: Vec<_> = text.split('-').collect();
    let [year, month, day] = parts[..] else { return false };
    let (Some(year), Some(month), Some(day)) = (digits(year, 4), digits(month, 2), digits(day, 2)) else {
        return false;
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    (1..=12).contains(&month) && (1..=last).contains(&day)
}

fn is_time(text: &str) -> bool {
    read_time(text).is_some()
}

fn read_time(text: &str) -> Option<()> {
    let (time, offset) = match text.strip_suffix(['Z', 'z']) {
        Some(time) => (time, 0),
        None => {
            let at = text.rfind(['+', '-'])?;
            let (hours, minutes) = text[at + 1..].split_once(':')?;
            let (hours, minutes) = (digits(hours, 2)?, digits(minutes, 2)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let offset = (hours * 60 + minutes) as i32;
            (&text[..at], if text.as_bytes()[at] == b'+' { offset } else { -offset })
        }
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let parts: Vec<_> = time.split(':').collect();
    let [hours, minutes, seconds] = parts[..] else { return None };
    let (hours, minutes, seconds) = (digits(hours, 2)?, digits(minutes, 2)?, digits(seconds, 2)?);
    if hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    // A second is added at the end of a day, by the time of Greenwich.
    let minute_there = ((hours * 60 + minutes) as i32 - offset).rem_euclid(24 * 60);
    (seconds < 60 || minute_there == 24 * 60 - 1).then_some(())
}

fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let is_atom = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c);
    let is_local = match local.strip_prefix('"').and_then(|local| local.strip_suffix('"')) {
        Some(quoted) => !quoted.replace("\\\\", "").replace("\\\"", "").contains(['"', '\\']),
        None => local.split('.').all(|part| !part.is_empty() && part.chars().all(is_atom)),
    };
    let is_domain = match domain.strip_prefix('[').and_then(|domain| domain.strip_suffix(']')) {
        Some(address) => match address.strip_prefix("IPv6:") {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => address.parse::<Ipv4Addr>().is_ok(),
        },
        None => is_hostname(domain),
    };
    is_local && is_domain && local.len() <= 64
}

fn is_hostname(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
            && (!label.get(2..).is_some_and(|rest| rest.starts_with("--")) || label[..2].eq_ignore_ascii_case("xn"))
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

/// Checks the characters of a URI and the parts that have a form of their own.
fn is_uri(text: &str, is_international: bool, is_absolute: bool) -> bool {
    let fits = |c: char, more: &str| {
        c.is_ascii_alphanumeric()
            || "-._~!$&'()*+,;=:@%/".contains(c)
            || more.contains(c)
            || is_international && !c.is_ascii()
    };
    let is_escaped = text
        .split('%')
        .skip(1)
        .all(|rest| rest.get(..2).is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit())));
    let scheme = scheme(text);
    if !is_escaped || is_absolute && scheme.is_none() {
        return false;
    }
    let rest = scheme.map_or(text, |scheme| &text[scheme.len() + 1..]);
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest),
    };
    // Without a scheme, a colon in the first part would look like one.
    let is_clear =
        scheme.is_some() || !authority.is_empty() || !path.split('/').next().is_some_and(|part| part.contains(':'));
    let all = |part: &str, more: &str| part.chars().all(|c| fits(c, more));
    is_clear && is_authority(authority, &fits) && all(path, "") && all(query, "?") && all(fragment, "?")
}

fn is_authority(text: &str, fits: &dyn Fn(char, &str) -> bool) -> bool {
    let (user, host) = text.rsplit_once('@').unwrap_or(("", text));
    if user.contains(['@', '/', '[', ']']) || !user.chars().all(|c| fits(c, "")) {
        return false;
    }
    let (host, port) = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((address, port)) => {
            if address.parse::<Ipv6Addr>().is_err() && !address.starts_with(['v', 'V']) {
                return false;
            }
            ("", port.strip_prefix(':').or(port.is_empty().then_some("")))
        }
        None => match host.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (host, Some("")),
        },
    };
    let is_port = port.is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    is_port && !host.contains([':', '@', '/']) && host.chars().all(|c| fits(c, ""))
}

fn is_json_pointer(text: &str) -> bool {
    let is_escaped = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    (text.is_empty() || text.starts_with('/')) && is_escaped
}

fn is_relative_json_pointer(text: &str) -> bool {
    let (number, rest) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let is_number = !number.is_empty() && (number == "0" || !number.starts_with('0'));
    is_number && (rest == "#" || is_json_pointer(rest))
}

fn is_uri_template(text: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let Some(inner) = rest[at..].strip_prefix('{') else { return false };
        let Some((expression, after)) = inner.split_once('}') else { return false };
        let names = expression.trim_start_matches(['+', '#', '.', '/', ';', '?', '&', '=', ',', '!', '@', '|']);
        let is_name = |name: &str| {
            let name = name.strip_suffix('*').unwrap_or(name);
            let (name, length) = name.split_once(':').unwrap_or((name, "1"));
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '%');
            !name.is_empty() && name.chars().all(fits) && length.parse::<u16>().is_ok_and(|length| length < 10_000)
        };
        if !names.split(',').all(is_name) {
            return false;
        }
        rest = after;
    }
    !text.contains([' ', '"', '<', '>', '\\', '^', '`', '|']) || text.contains('{')
}
