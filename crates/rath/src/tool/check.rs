//! Whether what a model wrote fits what a tool takes, told so that the model can mend it.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{ValidationError, Validator};
use rath_record::chunk::ToolSpec;
use serde_json::Value;

/// How many mistakes are named at once.
const NAMED_MOST: usize = 5;

/// The schema of a tool's arguments, ready to be used.
pub(crate) struct Check(Validator);

impl Check {
    /// Says what is wrong where a model could not be told about the tool.
    pub(super) fn new(spec: &ToolSpec) -> Result<Self, String> {
        check_name(&spec.name)?;
        let schema: Value = serde_json::from_str(spec.parameters.as_str()).map_err(|error| error.to_string())?;
        Check::schema(&schema)
    }

    pub(crate) fn schema(schema: &Value) -> Result<Self, String> {
        let validator = jsonschema::validator_for(schema).map_err(|error| format!("its schema is not one: {error}"))?;
        Ok(Check(validator))
    }

    /// Says which fields are wrong, what was wanted there and what was found.
    pub(crate) fn arguments(&self, arguments: &Value) -> Result<(), String> {
        if self.0.is_valid(arguments) {
            return Ok(());
        }
        let mut wrong: Vec<_> = self.0.iter_errors(arguments).map(|error| mistake(&error)).collect();
        let more = wrong.len().saturating_sub(NAMED_MOST);
        wrong.truncate(NAMED_MOST);
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
fn mistake(error: &ValidationError<'_>) -> String {
    let at = field(error.instance_path().as_str());
    let found = found(error.instance());
    let wanted = match error.kind() {
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            return format!("`{}`: it is missing", join(&at, name));
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let names = unexpected.iter().map(|name| format!("`{}`", join(&at, name))).collect::<Vec<_>>();
            return format!("{}: there is no such field", names.join(", "));
        }
        ValidationErrorKind::Type { kind } => match kind {
            TypeKind::Single(kind) => article(&kind.to_string()),
            TypeKind::Multiple(kinds) => {
                kinds.iter().map(|kind| article(&kind.to_string())).collect::<Vec<_>>().join(" or ")
            }
        },
        ValidationErrorKind::Enum { options } => match options.as_array() {
            Some(options) => format!("one of {}", options.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")),
            None => options.to_string(),
        },
        ValidationErrorKind::Constant { expected_value } => expected_value.to_string(),
        ValidationErrorKind::Minimum { limit } => format!("at least {limit}"),
        ValidationErrorKind::Maximum { limit } => format!("at most {limit}"),
        ValidationErrorKind::ExclusiveMinimum { limit } => format!("more than {limit}"),
        ValidationErrorKind::ExclusiveMaximum { limit } => format!("less than {limit}"),
        ValidationErrorKind::MultipleOf { multiple_of } => format!("a multiple of {multiple_of}"),
        ValidationErrorKind::MinLength { limit } => format!("at least {limit} characters"),
        ValidationErrorKind::MaxLength { limit } => format!("at most {limit} characters"),
        ValidationErrorKind::MinItems { limit } => format!("at least {limit} items"),
        ValidationErrorKind::MaxItems { limit } => format!("at most {limit} items"),
        ValidationErrorKind::UniqueItems => "items that differ".to_owned(),
        ValidationErrorKind::Pattern { pattern } => format!("a text that matches `{pattern}`"),
        ValidationErrorKind::Format { format } => format!("a text in the format `{format}`"),
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            let ways = context.iter().filter_map(|way| way.first()).map(mistake).collect::<Vec<_>>();
            return format!("{}: wanted one of several forms, found {found} ({})", name(&at), ways.join(", or "));
        }
        _ => return format!("{}: {error}", name(&at)),
    };
    format!("{}: wanted {wanted}, found {found}", name(&at))
}

/// `/items/0/price` as `items[0].price`.
fn field(pointer: &str) -> String {
    pointer.split('/').skip(1).fold(String::new(), |path, part| {
        let part = part.replace("~1", "/").replace("~0", "~");
        if part.parse::<usize>().is_ok() { format!("{path}[{part}]") } else { join(&path, &part) }
    })
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn name(path: &str) -> String {
    if path.is_empty() { "the arguments".to_owned() } else { format!("`{path}`") }
}

fn article(kind: &str) -> String {
    match kind {
        "null" => "null".to_owned(),
        "array" | "integer" | "object" => format!("an {kind}"),
        _ => format!("a {kind}"),
    }
}

/// What was found, in few words: the value itself if it is short.
fn found(value: &Value) -> String {
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
