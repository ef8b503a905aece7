//! Schemas of every draft, and schemas that are made to do harm.

use serde_json::json;

use super::*;

const SCHEMA_4: &str = "http://json-schema.org/draft-04/schema#";
const SCHEMA_7: &str = "http://json-schema.org/draft-07/schema#";
const SCHEMA_2019: &str = "https://json-schema.org/draft/2019-09/schema";

/// Checks which values fit a schema.
#[track_caller]
fn check(schema: Value, valid: &[Value], invalid: &[Value]) {
    let compiled = Schema::new(&schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
    for value in valid {
        assert!(compiled.check(value).is_ok(), "{schema}: {value}: {:?}", compiled.check(value));
    }
    for value in invalid {
        assert!(matches!(compiled.check(value), Err(CheckError::Violations(_))), "{schema}: {value}");
    }
}

#[test]
fn drafts_differ_as_they_should() {
    let four = |schema: Value| with(schema, "$schema", SCHEMA_4);
    let seven = |schema: Value| with(schema, "$schema", SCHEMA_7);
    let nineteen = |schema: Value| with(schema, "$schema", SCHEMA_2019);
    check(four(json!({"minimum": 1, "exclusiveMinimum": true})), &[json!(2)], &[json!(1)]);
    check(four(json!({"type": "integer"})), &[json!(1)], &[json!(1.0)]);
    check(json!({"type": "integer"}), &[json!(1), json!(1.0), json!(1e30)], &[json!(1.5), json!("1")]);
    check(four(json!({"additionalProperties": false})), &[json!({})], &[json!({"a": 1})]);
    check(json!({"exclusiveMinimum": 1}), &[json!(2)], &[json!(1)]);
    check(seven(json!({"items": [true], "additionalItems": {"type": "null"}})), &[json!([1, null])], &[json!([1, 1])]);
    check(json!({"prefixItems": [true], "items": {"type": "null"}}), &[json!([1, null])], &[json!([1, 1])]);
    check(
        seven(json!({"$ref": "#/definitions/a", "type": "null", "definitions": {"a": {"type": "string"}}})),
        &[json!("")],
        &[json!(null)],
    );
    check(
        json!({"$ref": "#/$defs/a", "maxLength": 1, "$defs": {"a": {"type": "string"}}}),
        &[json!("")],
        &[json!("ab")],
    );
    check(seven(json!({"format": "date"})), &[json!("2024-02-29"), json!(1)], &[json!("2023-02-29")]);
    check(json!({"format": "date"}), &[json!("yesterday")], &[]);
    check(
        seven(json!({"dependencies": {"a": ["b"], "c": {"required": ["d"]}}})),
        &[json!({"a": 1, "b": 1})],
        &[json!({"a": 1}), json!({"c": 1})],
    );
    check(
        nineteen(json!({"$recursiveAnchor": true, "properties": {"a": {"$recursiveRef": "#"}}, "type": "object"})),
        &[json!(
            {"a": {"a": {}}}
        )],
        &[json!({"a": {"a": 1}})],
    );
}

fn with(mut schema: Value, name: &str, value: &str) -> Value {
    schema[name] = json!(value);
    schema
}

#[test]
fn keywords_mean_what_the_specification_says() {
    check(json!({"const": 1}), &[json!(1), json!(1.0)], &[json!(true), json!("1")]);
    check(json!({"enum": [[1, {"a": 2}]]}), &[json!([1.0, {"a": 2}])], &[json!([1, {"a": 2, "b": 1}])]);
    check(json!({"multipleOf": 0.01}), &[json!(4.02), json!(19.99), json!(3)], &[json!(0.0075)]);
    check(json!({"multipleOf": 3}), &[json!(9), json!(3e20), json!(0)], &[json!(10), json!(1e300)]);
    check(json!({"maximum": 9007199254740993u64}), &[json!(9007199254740993u64)], &[json!(9007199254740994u64)]);
    check(
        json!({"uniqueItems": true}),
        &[json!([1, true, "1", [1], {"a": 1}])],
        &[json!([1, 1.0]), json!([{"a": 1, "b": 2}, {"b": 2, "a": 1}])],
    );
    check(json!({"maxLength": 2}), &[json!("äö"), json!("😀😀")], &[json!("abc")]);
    check(json!({"contains": {"type": "null"}, "minContains": 2}), &[json!([null, 1, null])], &[json!([null])]);
    check(
        json!({"patternProperties": {"^a": {"type": "null"}}, "additionalProperties": false}),
        &[json!({"ab": null})],
        &[json!({"ab": 1}), json!({"b": null})],
    );
    check(
        json!({"allOf": [{"properties": {"a": true}}], "anyOf": [{"required": ["c"], "properties": {"c": true}}, true], "unevaluatedProperties": false}),
        &[json!({"a": 1}), json!({"a": 1, "c": 1})],
        &[json!({"b": 1})],
    );
    check(json!({"prefixItems": [true], "unevaluatedItems": false}), &[json!([1])], &[json!([1, 2])]);
    check(
        json!({"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"required": ["c"]}}),
        &[json!({"a": 1, "b": 1}), json!({"c": 1})],
        &[json!({"a": 1}), json!({})],
    );
    check(json!({"oneOf": [{"minimum": 1}, {"maximum": 3}]}), &[json!(0), json!(4)], &[json!(2)]);
    check(json!({"propertyNames": {"maxLength": 1}}), &[json!({"a": 1})], &[json!({"ab": 1})]);
    check(
        json!({"$ref": "http://json-schema.org/draft-07/schema#"}),
        &[json!({"type": "string"})],
        &[json!({"type": 1})],
    );
}

#[test]
fn references_lead_to_ids_anchors_and_pointers() {
    check(
        json!({"$id": "http://x/root", "$ref": "item", "$defs": {"i": {"$id": "/item", "$ref": "#n", "$defs": {"n": {"$anchor": "n", "type": "null"}}}}}),
        &[json!(null)],
        &[json!(1)],
    );
    check(
        json!({"properties": {"a/b": {"type": "null"}, "c": {"$ref": "#/properties/a~1b"}}}),
        &[json!({"c": null})],
        &[json!({"c": 1})],
    );
    check(json!({"$ref": "#/%24defs/a%25", "$defs": {"a%": {"type": "null"}}}), &[json!(null)], &[json!(1)]);
    for (schema, expected) in [
        (
            json!({"$ref": "http://127.0.0.1:9/x"}),
            "`/$ref`: `http://127.0.0.1:9/x` is not in the schema, and nothing is fetched",
        ),
        (json!({"$ref": "#/none"}), "`/$ref`: there is no `#/none` in the schema"),
        (
            json!({"properties": {"a": {"type": "text"}}}),
            "`/properties/a/type`: wanted null, boolean, integer, number, string, array or object, found a string: \"text\"",
        ),
        (json!({"required": true}), "`/required`: wanted a list of names, found true"),
        (json!({"pattern": "("}), "`/pattern`: wanted a regular expression, found `(`"),
        (json!({"items": 1}), "`/items`: wanted a schema, found 1"),
        (json!({"$schema": "http://x/y"}), "`$schema`: wanted draft 4, 6, 7, 2019-09 or 2020-12, found `http://x/y`"),
        (json!(1), "the schema: wanted a schema, found 1"),
    ] {
        let error = Schema::new(&schema).expect_err("malformed");
        assert!(error.starts_with(expected), "{schema}: {error}");
    }
}

#[test]
fn patterns_are_those_of_ecmascript() {
    for (pattern, valid, invalid) in [
        (r"^\d+$", "12", "١٢"),
        (r"^\w$", "a", "ä"),
        (r"^[\w.-]+$", "a-b.c", "a b"),
        (r"^\p{L}+$", "äß", "1"),
        (r"^(?!foo).*$", "bar", "foo"),
        (r"^(a|b)\1$", "aa", "ab"),
        (r"^[[a]$", "[", "b"),
        (r"^a{,2}$", "a{,2}", "aa"),
        (r"^{x}$", "{x}", "x"),
        (r"^\u00e4\/\-$", "ä/-", "a/-"),
        (r"^\uD83D\uDE00$", "😀", "x"),
        (r"^\cA$", "\u{1}", "A"),
        (r"^[^]$", "\n", ""),
        (r"^[a&&b]$", "&", "c"),
    ] {
        check(json!({"pattern": pattern}), &[json!(valid)], &[json!(invalid)]);
    }
    for pattern in ["(", "[", "a**", r"\Z", r"\"] {
        assert!(Schema::new(&json!({"pattern": pattern})).is_err(), "{pattern}");
    }
}

/// Each level has two references to the next.
fn doubling(keyword: &str, levels: usize) -> Value {
    let mut definitions = Map::new();
    for nth in 0..levels {
        let next = json!({"$ref": format!("#/$defs/{}", nth + 1)});
        definitions.insert(nth.to_string(), json!({keyword: [next, next]}));
    }
    definitions.insert(levels.to_string(), json!({"type": "integer"}));
    json!({"$ref": "#/$defs/0", "$defs": definitions})
}

#[test]
fn schemas_that_are_made_to_do_harm_do_none() {
    let nested = |count: usize, field: &str| (0..count).fold(json!(1), |value, _| json!({field: value}));
    let chain = (0..20_000).map(|nth| (nth.to_string(), json!({"$ref": format!("#/$defs/{}", nth + 1)})));
    let chain: Map<String, Value> = chain.chain([("20000".to_owned(), json!(true))]).collect();
    let fields: Map<String, Value> = (0..20_000).map(|nth| (nth.to_string(), json!({"minimum": nth}))).collect();
    let forked = json!({"anyOf": [{"properties": {"a": {"$ref": "#"}}, "required": ["b"]}, {"properties": {"a": {"$ref": "#"}}, "required": ["c"]}]});
    let late = json!({"properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#", "not": true}]}}, "type": "object"});
    let cases = [
        (json!({"$ref": "#"}), json!(1), true),
        (json!({"allOf": [{"$ref": "#"}], "not": {"$ref": "#"}}), json!(1), false),
        (json!({"$ref": "#/$defs/0", "$defs": chain}), json!(1), false),
        (doubling("allOf", 40), json!(1), false),
        (doubling("anyOf", 40), json!("x"), false),
        (doubling("oneOf", 40), json!("x"), false),
        (forked, nested(60, "a"), false),
        (late, nested(60, "a"), false),
        (nested(120, "not"), json!(1), false),
        (json!({"pattern": "^(a+)+$"}), json!("a".repeat(5_000) + "!"), false),
        (json!({"pattern": "^(?=(a+)+$)(a|aa)+\\1$"}), json!("a".repeat(5_000) + "!"), false),
        (json!({"pattern": "((a{1,1000}){1,1000}){1,1000}"}), json!(""), false),
        (json!({"pattern": "(".repeat(8_000) + &")".repeat(8_000)}), json!(""), false),
        (json!({"pattern": "[".repeat(16_000)}), json!(""), false),
        (json!({"properties": fields}), json!({"5": 1}), false),
        (json!({"uniqueItems": true}), json!((0..20_000).collect::<Vec<_>>()), true),
        (json!({"properties": {"a": {"$ref": "#"}}}), nested(120, "a"), true),
    ];
    // A small stack, so that a recursion without an end is found.
    let work = move || {
        for (schema, value, expected) in cases {
            let shown: String = schema.to_string().chars().take(80).collect();
            let outcome = Schema::new(&schema).map(|schema| schema.check(&value).is_ok());
            assert_eq!(outcome.unwrap_or(false), expected, "{shown}");
        }
    };
    std::thread::Builder::new().stack_size(1024 * 1024).spawn(work).expect("a thread").join().expect("all are checked");
}

/// Runs the official test suite; `RATH_SCHEMA_SUITE` is its `tests` directory.
///
/// Schemas that refer to other documents are left out: nothing is fetched.
#[test]
#[ignore = "needs the JSON Schema test suite, which `.ci/run` fetches"]
fn the_official_suite_passes() {
    let root = std::env::var_os("RATH_SCHEMA_SUITE").expect("RATH_SCHEMA_SUITE is set");
    let root = std::path::PathBuf::from(root);
    let mut count = 0;
    for (name, draft) in [
        ("draft4", Draft::Draft4),
        ("draft6", Draft::Draft6),
        ("draft7", Draft::Draft7),
        ("draft2019-09", Draft::Draft2019),
        ("draft2020-12", Draft::Draft2020),
    ] {
        for file in std::fs::read_dir(root.join(name)).expect("a directory").map(|file| file.expect("a file").path()) {
            let Ok(text) = std::fs::read_to_string(&file) else { continue };
            let groups: Vec<Value> = serde_json::from_str(&text).expect("groups of tests");
            for group in groups {
                let schema = match Schema::with_draft(&group["schema"], draft) {
                    Err(error) if error.contains("localhost") || error.contains("nothing is fetched") => continue,
                    schema => schema.unwrap_or_else(|error| panic!("{}: {group}: {error}", file.display())),
                };
                for test in group["tests"].as_array().expect("tests") {
                    let is_valid = schema.check(&test["data"]).is_ok();
                    assert_eq!(json!(is_valid), test["valid"], "{}: {}: {test}", file.display(), group["schema"]);
                    count += 1;
                }
            }
        }
    }
    assert!(count > 4_000, "only {count} tests were run");
}
