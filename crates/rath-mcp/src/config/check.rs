//! Checks of names, addresses and headers.

use super::{MAX_NAME_BYTES, shortened};

/// Checks the name of a server: `NAME__TOOL` has to be the name of a tool, and no other server's.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let is_valid = (1..=MAX_NAME_BYTES).contains(&name.len()) && name.chars().all(fits);
    if is_valid && !name.contains("__") && !name.starts_with('_') && !name.ends_with('_') {
        return Ok(());
    }
    Err(format!("a name has up to {MAX_NAME_BYTES} letters, digits, `-` and single `_` between them"))
}

/// Checks the address of a server, without showing it: it may contain a secret.
pub(super) fn check_url(url: &str) -> Result<(), &'static str> {
    let authority = authority(url).ok_or("its `url` has to begin with `https://` or `http://`")?;
    if url.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("its `url` contains white space or control characters");
    }
    if authority.contains('@') {
        return Err("its `url` contains a password; put it into `headers`");
    }
    if authority.is_empty() || authority.starts_with(':') {
        return Err("its `url` has no host");
    }
    Ok(())
}

/// Returns the part of an HTTP address between the scheme and the path.
pub(super) fn authority(url: &str) -> Option<&str> {
    let rest = ["https://", "http://"].into_iter().find_map(|scheme| {
        let (start, rest) = url.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    })?;
    rest.split(['/', '?', '#', '\\']).next()
}

/// Headers that belong to the connection or the protocol.
const RESERVED_HEADERS: [&str; 9] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "te",
    "transfer-encoding",
    "upgrade",
];

pub(super) fn check_header(name: &str, value: &str) -> Result<(), String> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let shown = shortened(name);
    if name.is_empty() || !name.chars().all(is_token) {
        return Err(format!("`headers`: {shown:?} is no name of a header"));
    }
    let lower = name.to_ascii_lowercase();
    if RESERVED_HEADERS.contains(&&*lower) || lower.starts_with("mcp-") {
        return Err(format!("the header `{shown}` is set by the protocol"));
    }
    match value.chars().all(|c| c == '\t' || (' '..='~').contains(&c)) {
        true => Ok(()),
        false => Err(format!("the value of the header `{shown}` contains a character that no header can have")),
    }
}
