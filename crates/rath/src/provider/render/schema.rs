//! Normalizing the schemas of arguments.
//!
//! Every provider accepts the schema of an object with properties, and without alternatives at its root.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::{Map, Value, json};

/// Returns a schema in the form that every provider accepts.
///
/// A property that one of the alternatives at the root allows is allowed, and one that all of them require is required.
/// The combination of properties is checked when the tool is called.
pub(super) fn normalize(schema: Map<String, Value>) -> Map<String, Value> {
    let root = Value::Object(schema);
    let mut schema = root.as_object().cloned().unwrap_or_default();
    let removed: Vec<_> = REFUSED_AT_ROOT.iter().filter_map(|name| Some((*name, schema.remove(*name)?))).collect();
    if !removed.is_empty() {
        let ObjectSchema { properties, required } = ObjectSchema::collect(&root, &root, &mut HashSet::new());
        let properties = properties.into_iter().map(|(name, choices)| match &choices[..] {
            [one] => (name.to_owned(), (*one).clone()),
            many => (name.to_owned(), json!({ "anyOf": many })),
        });
        schema.insert("properties".to_owned(), Value::Object(properties.collect()));
        if !required.is_empty() {
            schema.insert("required".to_owned(), json!(required));
        }
        keep_referenced(&mut schema, removed);
    }
    schema.insert("type".to_owned(), "object".into());
    if !schema.get("properties").is_some_and(Value::is_object) {
        schema.insert("properties".to_owned(), Value::Object(Map::new()));
    }
    schema
}

/// The keywords that providers refuse at the root of a schema.
const REFUSED_AT_ROOT: [&str; 6] = ["$ref", "allOf", "anyOf", "enum", "not", "oneOf"];

/// The properties of an object, collected from the parts of a schema.
#[derive(Default)]
struct ObjectSchema<'a> {
    /// The distinct schemas of each property.
    properties: BTreeMap<&'a str, Vec<&'a Value>>,
    required: BTreeSet<&'a str>,
}

impl<'a> ObjectSchema<'a> {
    /// Collects the properties of a schema. References within the document are followed once each, since they may form
    /// cycles.
    fn collect(root: &'a Value, schema: &'a Value, followed: &mut HashSet<&'a str>) -> Self {
        let mut part = ObjectSchema::default();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            part.properties.insert(name, vec![property]);
        }
        part.required.extend(schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str));
        if let Some(name) = schema["$ref"].as_str()
            && followed.insert(name)
            && let Some(target) = name.strip_prefix('#').and_then(|pointer| root.pointer(pointer))
        {
            part.merge(ObjectSchema::collect(root, target, followed));
        }
        for subschema in schema["allOf"].as_array().into_iter().flatten() {
            part.merge(ObjectSchema::collect(root, subschema, followed));
        }
        for name in ["anyOf", "oneOf"] {
            let mut common: Option<BTreeSet<&str>> = None;
            for choice in schema[name].as_array().into_iter().flatten() {
                let ObjectSchema { properties, required } = ObjectSchema::collect(root, choice, followed);
                let known = common.take().map(|known| known.intersection(&required).copied().collect());
                common = Some(known.unwrap_or(required));
                part.merge(ObjectSchema { properties, required: BTreeSet::new() });
            }
            part.required.extend(common.unwrap_or_default());
        }
        part
    }

    fn merge(&mut self, other: ObjectSchema<'a>) {
        for (name, choices) in other.properties {
            let known = self.properties.entry(name).or_default();
            for choice in choices {
                if !known.contains(&choice) {
                    known.push(choice);
                }
            }
        }
        self.required.extend(other.required);
    }
}

/// Moves keywords that were removed from the root to the definitions, if references point into them.
fn keep_referenced(schema: &mut Map<String, Value>, removed: Vec<(&str, Value)>) {
    let text = Value::Object(schema.clone()).to_string();
    for (name, choices) in removed {
        let pointer = format!("#/{name}/");
        if text.contains(&format!("\"{pointer}")) {
            let definitions = schema.entry("$defs").or_insert_with(|| Value::Object(Map::new()));
            if let Some(definitions) = definitions.as_object_mut() {
                definitions.insert(name.to_owned(), json!({ name: choices }));
            }
            let moved = format!("#/$defs/{name}/{name}/");
            schema.values_mut().for_each(|value| rewrite_references(value, &pointer, &moved));
        }
    }
}

fn rewrite_references(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(pointer) if name == "$ref" => {
                        if let Some(rest) = pointer.strip_prefix(from) {
                            *pointer = format!("{to}{rest}");
                        }
                    }
                    member => rewrite_references(member, from, to),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| rewrite_references(value, from, to)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schema: Value, expected: Value) {
        let Value::Object(schema) = schema else { panic!("a schema is an object") };
        assert_eq!(Value::Object(normalize(schema)), expected);
    }

    #[test]
    fn a_normal_schema_is_unchanged() {
        let schema = json!({"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}]}}, "required": ["a"], "$defs": {}});
        check(schema.clone(), schema);
        check(json!({}), json!({"type": "object", "properties": {}}));
        check(json!({"type": ["object", "null"], "properties": null}), json!({"type": "object", "properties": {}}));
    }

    #[test]
    fn properties_of_alternatives_are_allowed_and_common_ones_required() {
        let circle = json!({"properties": {"kind": {"const": "circle"}, "r": {}}, "required": ["kind", "r"]});
        let square = json!({"properties": {"kind": {"const": "square"}, "a": {}}, "required": ["kind", "a"]});
        let kind = json!({"anyOf": [{"const": "circle"}, {"const": "square"}]});
        check(
            json!({"oneOf": [circle, square]}),
            json!({"type": "object", "properties": {"a": {}, "kind": kind, "r": {}}, "required": ["kind"]}),
        );
        check(
            json!({"allOf": [circle, {"anyOf": [{"properties": {"x": {}}}, {"properties": {"y": {}}}]}], "not": {}}),
            json!({"type": "object", "properties": {"kind": {"const": "circle"}, "r": {}, "x": {}, "y": {}},
                "required": ["kind", "r"]}),
        );
    }

    #[test]
    fn references_are_followed_once_even_in_cycles() {
        let defs =
            json!({"A": {"$ref": "#/$defs/B"}, "B": {"properties": {"x": {}}, "anyOf": [{"$ref": "#/$defs/A"}]}});
        check(
            json!({"$ref": "#/$defs/A", "$defs": defs}),
            json!({"type": "object", "properties": {"x": {}}, "$defs": defs}),
        );
        let circles: Vec<_> = (0..2_000).map(|_| json!({"$ref": "#"})).collect();
        check(json!({"anyOf": circles}), json!({"type": "object", "properties": {}}));
    }

    #[test]
    fn targets_of_references_are_kept() {
        let first = json!({"properties": {"p": {"type": "string"}}});
        let second = json!({"properties": {"z": {"$ref": "#/anyOf/0/properties/p"}}});
        let moved = json!({"properties": {"z": {"$ref": "#/$defs/anyOf/anyOf/0/properties/p"}}});
        check(
            json!({"anyOf": [first, second]}),
            json!({"type": "object", "properties": {"p": {"type": "string"}, "z": moved["properties"]["z"]},
                "$defs": {"anyOf": {"anyOf": [first, moved]}}}),
        );
    }
}
