//! URIs, as far as references between schemas need them.

use percent_encoding::percent_decode_str;

/// Resolves a reference without a fragment, as RFC 3986 does.
pub(super) fn resolve(base: &str, reference: &str) -> String {
    if scheme(reference).is_some() {
        return reference.to_owned();
    }
    let Some(scheme) = scheme(base) else { return reference.to_owned() };
    let rest = &base[scheme.len() + 1..];
    if reference.starts_with("//") {
        return format!("{scheme}:{reference}");
    }
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())),
        None => ("", rest),
    };
    let slashes = if rest.starts_with("//") { "//" } else { "" };
    let base_path = path.split('?').next().unwrap_or_default();
    if reference.starts_with('?') {
        return format!("{scheme}:{slashes}{authority}{base_path}{reference}");
    }
    let (path, query) = reference.split_at(reference.find('?').unwrap_or(reference.len()));
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        let above = base_path.rfind('/').map_or(if slashes.is_empty() { "" } else { "/" }, |at| &base_path[..=at]);
        format!("{above}{path}")
    };
    format!("{scheme}:{slashes}{authority}{}{query}", without_dots(&path))
}

/// Returns the scheme of an absolute URI.
pub(super) fn scheme(uri: &str) -> Option<&str> {
    let (scheme, _) = uri.split_once(':')?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    (scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(fits)).then_some(scheme)
}

/// Removes `.` and `..` from a path.
fn without_dots(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let last = path.split('/').count() - 1;
    for (nth, part) in path.split('/').enumerate() {
        match part {
            "." | ".." => {
                if part == ".." && parts.len() > 1 {
                    parts.pop();
                }
                if nth == last {
                    parts.push("");
                }
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Decodes `%41` as `A`.
pub(super) fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
