//! Checks whether the arguments that a model wrote are those that a tool takes, with errors that a model can mend.

use rath_record::chunk::ToolSpec;
use serde_json::Value;

use super::schema::{CheckError, Schema, Violation, ViolationKind};

/// The most mistakes that are named at once.
const NAMED_MOST: usize = 5;

/// The schema of a tool's arguments, ready to be used.
pub(crate) struct ArgumentChecker(Schema);

impl ArgumentChecker {
    /// Says what is wrong where a model could not be told about the tool.
    pub(super) fn new(spec: &ToolSpec) -> Result<Self, String> {
        check_name(&spec.name)?;
        let schema: Value = serde_json::from_str(spec.parameters.as_str()).map_err(|error| error.to_string())?;
        ArgumentChecker::schema(&schema)
    }

    pub(crate) fn schema(schema: &Value) -> Result<Self, String> {
        let schema = Schema::new(schema).map_err(|error| format!("its schema is not one: {error}"))?;
        Ok(ArgumentChecker(schema))
    }

    /// Says which fields are wrong, what was wanted there and what was found.
    pub(crate) fn arguments(&self, arguments: &Value) -> Result<(), String> {
        self.renamed_arguments(arguments, &|_| None)
    }

    /// Checks arguments of which a call gave some under other names: `as_given` returns the name that it gave a field.
    pub(super) fn renamed_arguments(
        &self,
        arguments: &Value,
        as_given: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), String> {
        let violations = match self.0.check(arguments) {
            Ok(()) => return Ok(()),
            Err(CheckError::Violations(violations)) => violations,
            Err(CheckError::Limit) => {
                return Err("the schema takes too long to check these arguments against".to_owned());
            }
        };
        let mut wrong: Vec<_> =
            violations.iter().take(NAMED_MOST).map(|violation| mistake(violation, as_given)).collect();
        let more = violations.len() - wrong.len();
        if more > 0 {
            wrong.push(format!("and {more} more"));
        }
        Err(wrong.join("; "))
    }
}

/// Every provider takes these names.
fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if (1..=64).contains(&name.len()) && name.chars().all(fits) {
        return Ok(());
    }
    Err("its name has to be 1 to 64 letters, digits, `_` and `-`".to_owned())
}

/// One mistake: which field, what was wanted, what was found.
fn mistake(violation: &Violation, as_given: &dyn Fn(&str) -> Option<String>) -> String {
    let Violation { path, found, kind } = violation;
    let path = &given_path(path, as_given);
    match kind {
        ViolationKind::Missing(field) => format!("`{}`: it is missing", join(path, field)),
        ViolationKind::Unknown(fields) => {
            let fields = fields.iter().map(|field| format!("`{}`", join(path, field))).collect::<Vec<_>>();
            format!("{}: there is no such field", fields.join(", "))
        }
        ViolationKind::Wanted(wanted) => format!("{}: wanted {wanted}, found {found}", name(path)),
        ViolationKind::Forms(forms) => {
            let forms = forms.iter().map(|form| mistake(form, as_given)).collect::<Vec<_>>().join(", or ");
            let forms = if forms.is_empty() { forms } else { format!(" ({forms})") };
            format!("{}: wanted one of several forms, found {found}{forms}", name(path))
        }
    }
}

/// Returns the path to a field as the call named it, such as `files[1]` for `paths[1]`.
fn given_path(path: &str, as_given: &dyn Fn(&str) -> Option<String>) -> String {
    let (field, below) = path.split_at(path.find(['.', '[']).unwrap_or(path.len()));
    as_given(field).map_or_else(|| path.to_owned(), |given| given + below)
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn name(path: &str) -> String {
    if path.is_empty() { "the arguments".to_owned() } else { format!("`{path}`") }
}

pub(super) fn article(kind: &str) -> String {
    match kind {
        "null" => "null".to_owned(),
        "array" | "integer" | "object" => format!("an {kind}"),
        _ => format!("a {kind}"),
    }
}

/// Describes a value in few words: the value itself if it is short.
pub(super) fn describe(value: &Value) -> String {
    let kind = match value {
        Value::Null => return "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => return value.to_string(),
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    let text = value.to_string();
    if text.chars().count() <= 40 { format!("{kind}: {text}") } else { kind.to_owned() }
}
