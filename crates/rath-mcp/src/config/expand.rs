//! Replacing `${NAME}` and `${NAME:-default}` in a text.

/// Replaces the variables in a text. `variable` gets the name and the default. A value is not searched again, so it cannot name
/// another variable.
///
/// A `$` that no `{` follows stands for itself.
pub(super) fn expand(
    text: &str,
    max_bytes: usize,
    mut variable: impl FnMut(&str, Option<&str>) -> Option<String>,
) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        expanded.push_str(&rest[..start]);
        let after = &rest[start + 2..];
        let end = after.find('}').ok_or("`${` has no `}`")?;
        let (name, default) = match after[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&after[..end], None),
        };
        if !is_name(name) {
            return Err("wanted `${NAME}` or `${NAME:-default}`, found another form of `${..}`".to_owned());
        }
        match (variable(name, default).filter(|value| default.is_none() || !value.is_empty()), default) {
            (Some(value), _) => expanded.push_str(&value),
            (None, Some(default)) => expanded.push_str(default),
            (None, None) => return Err(format!("the variable `{name}` is not set")),
        }
        if expanded.len() > max_bytes {
            break;
        }
        rest = &after[end + 1..];
    }
    if expanded.len() + rest.len() > max_bytes {
        return Err(format!("the text has more than {max_bytes} bytes"));
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn is_name(name: &str) -> bool {
    name.len() <= 128
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
