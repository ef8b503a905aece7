//! The names and descriptions under which models know the tools of a server.

use std::collections::{HashMap, HashSet};

use rath::chunk::ToolSpec;
use rath::{Digest, Secrets};
use rmcp::model::Tool;

use crate::text::{cleaned, one_line};

/// The most bytes of the name of a tool, its server's included.
const MAX_NAME_BYTES: usize = 64;
/// The hexadecimal digits that tell two names apart.
const SUFFIX_DIGITS: usize = 6;
/// The most bytes of a description.
const MAX_DESCRIPTION_BYTES: usize = 8 * 1024;
/// The most bytes of a schema.
const MAX_SCHEMA_BYTES: usize = 64 * 1024;

/// A tool of a server under the name by which models call it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamedTool {
    pub(crate) spec: ToolSpec,
    /// The name by which the server knows it.
    pub(crate) original: String,
    /// The hints of the server about the tool, for a person; empty if there are none.
    pub(crate) hints: String,
}

/// Names the tools of a server. Returns them in the order of the server, and the reasons why some are left out.
///
/// The names do not depend on the order.
pub(crate) fn name_tools(server: &str, tools: Vec<Tool>, secrets: &Secrets) -> (Vec<NamedTool>, Vec<String>) {
    let mut uses: HashMap<String, usize> = HashMap::new();
    let distinct: HashSet<&str> = tools.iter().map(|tool| &*tool.name).collect();
    distinct.iter().for_each(|name| *uses.entry(tool_name(server, name)).or_default() += 1);
    let (mut named, mut notes, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    for tool in &tools {
        let plain = tool_name(server, &tool.name);
        let is_changed = plain != format!("{server}__{}", tool.name);
        let name = match is_changed && uses.get(&plain).is_some_and(|uses| *uses > 1) {
            true => with_suffix(&plain, &tool.name),
            false => plain,
        };
        if !seen.insert(name.clone()) {
            notes.push(format!("the server `{server}` lists `{}` twice", one_line(secrets, &tool.name, 100)));
            continue;
        }
        let schema = serde_json::Value::Object((*tool.input_schema).clone());
        if schema.to_string().len() > MAX_SCHEMA_BYTES {
            notes.push(format!("the schema of `{name}` has more than {MAX_SCHEMA_BYTES} bytes, so it is left out"));
            continue;
        }
        let description = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
        let spec = ToolSpec::new(name, cleaned(secrets, description, MAX_DESCRIPTION_BYTES), schema);
        named.push(NamedTool { spec, original: tool.name.to_string(), hints: hints(server, tool) });
    }
    (named, notes)
}

/// Returns the name under which a model knows a tool, unless another tool has it.
fn tool_name(server: &str, tool: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let cleaned: String = tool.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    let cleaned = if cleaned.is_empty() { "_".to_owned() } else { cleaned };
    let name = format!("{server}__{cleaned}");
    if name.len() <= MAX_NAME_BYTES { name } else { with_suffix(&name, tool) }
}

/// Returns a name that ends with a digest of the original one.
fn with_suffix(name: &str, original: &str) -> String {
    let digest = Digest::compute(original.as_bytes()).to_string();
    let kept = name.len().min(MAX_NAME_BYTES - SUFFIX_DIGITS - 1);
    format!("{}_{}", &name[..kept], &digest[..SUFFIX_DIGITS])
}

/// Returns what a server says of a tool. It may be wrong, so it is shown to a person and decides nothing.
fn hints(server: &str, tool: &Tool) -> String {
    let Some(says) = &tool.annotations else { return String::new() };
    let rows = [
        (says.read_only_hint, "it only reads", "it changes something"),
        (says.destructive_hint, "it may destroy something", "it only adds"),
        (says.idempotent_hint, "a second call changes nothing further", ""),
        (says.open_world_hint, "it reaches other systems", "it reaches no other systems"),
    ];
    let words = rows.into_iter().filter_map(|(hint, yes, no)| hint.map(|hint| if hint { yes } else { no }));
    let words: Vec<_> = words.filter(|words| !words.is_empty()).collect();
    match words.is_empty() {
        true => String::new(),
        false => format!("the server `{server}` says, unchecked: {}", words.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use expect_test::{Expect, expect};
    use rmcp::model::ToolAnnotations;

    use super::*;

    fn tool(name: &str) -> Tool {
        Tool::new(name.to_owned(), "Does it.", Arc::new(serde_json::Map::new()))
    }

    fn check(names: &[&str], expected: Expect) {
        let (named, notes) = name_tools("srv", names.iter().map(|name| tool(name)).collect(), &Secrets::default());
        let lines = named.iter().map(|tool| format!("{} = {}", tool.spec.name, tool.original.escape_debug()));
        expected.assert_eq(&lines.chain(notes).collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn every_tool_has_a_name_of_its_own_whatever_the_order() {
        check(
            &["read", "a.b", "a/b", "a_b"],
            expect![[r#"
            srv__read = read
            srv__a_b_08b918 = a.b
            srv__a_b_0da3cf = a/b
            srv__a_b = a_b"#]],
        );
        check(
            &["a_b", "a/b", "a.b", "read"],
            expect![[r#"
            srv__a_b = a_b
            srv__a_b_0da3cf = a/b
            srv__a_b_08b918 = a.b
            srv__read = read"#]],
        );
        check(
            &["read", "read"],
            expect![[r#"
            srv__read = read
            the server `srv` lists `read` twice"#]],
        );
        check(
            &["", "日本", "\u{1b}[31m"],
            expect![[r#"
            srv___ = 
            srv____ = 日本
            srv____31m = \u{1b}[31m"#]],
        );
        let long = ["x".repeat(80), "x".repeat(81)];
        check(
            &[&long[0], &long[1]],
            expect![[r#"
            srv__xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_666567 = xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
            srv__xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_11af19 = xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"#]],
        );
    }

    #[test]
    fn what_a_server_says_of_a_tool_is_for_people() {
        let says = ToolAnnotations::new().read_only(true).open_world(false);
        let (named, _) = name_tools("srv", vec![tool("a").with_annotations(says), tool("b")], &Secrets::default());
        assert_eq!(named[0].hints, "the server `srv` says, unchecked: it only reads, it reaches no other systems");
        assert_eq!(named[1].hints, "");
    }

    #[test]
    fn descriptions_and_schemas_are_bounded() {
        let mut hidden = tool("a");
        hidden.description = Some(format!("Reads.\u{200b}\u{e0041}{}", "x".repeat(2 * MAX_DESCRIPTION_BYTES)).into());
        let mut large = tool("b");
        large.input_schema =
            Arc::new(serde_json::Map::from_iter([("x".to_owned(), "y".repeat(MAX_SCHEMA_BYTES).into())]));
        let (named, notes) = name_tools("srv", vec![hidden, large], &Secrets::default());
        assert_eq!(named.len(), 1);
        assert!(named[0].spec.description.starts_with("Reads.xxx"));
        assert_eq!(named[0].spec.description.len(), MAX_DESCRIPTION_BYTES + " [..]".len());
        assert_eq!(notes, ["the schema of `srv__b` has more than 65536 bytes, so it is left out"]);
    }
}
