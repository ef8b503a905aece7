//! Checking a value against a schema.

use std::cmp::Ordering;
use std::collections::HashSet;

use serde_json::{Map, Number, Value};

use super::{Keyword, NodeId, Properties, ResourceId, Schema, TypeName};
use crate::tool::check::{article, describe};

/// The most steps of a check: each keyword is one, and each value that is compared.
const MAX_STEPS: u32 = 500_000;
/// The most schemas that are checked inside each other.
const MAX_DEPTH: usize = 256;
/// The most violations that are collected.
const MAX_VIOLATIONS: usize = 1_000;
/// The most alternatives of a choice whose violations are named, and how deep choices inside choices are looked into.
const MAX_FORMS: usize = 8;
const MAX_FORMS_DEPTH: u32 = 2;
/// The most values of an `enum` that are named.
const MAX_OPTIONS: usize = 100;

/// The reason why a value is not valid.
#[derive(Debug)]
pub(in crate::tool) enum CheckError {
    /// The value is not as the schema wants it.
    Violations(Vec<Violation>),
    /// The check took too many steps or nested too deep, and nothing is known about the value.
    Limit,
}

/// A place where a value is not as the schema wants it.
#[derive(Debug)]
pub(in crate::tool) struct Violation {
    /// As `items[0].price`; empty for the value itself.
    pub(in crate::tool) path: String,
    pub(in crate::tool) found: String,
    pub(in crate::tool) kind: ViolationKind,
}

#[derive(Debug)]
pub(in crate::tool) enum ViolationKind {
    /// A field that has to be there is not.
    Missing(String),
    /// There are fields that must not be there.
    Unknown(Vec<String>),
    /// The value should be what is described here.
    Wanted(String),
    /// The value has none of several forms; the first violation of each.
    Forms(Vec<Violation>),
}

/// The place of a value in the value that is checked.
#[derive(Clone, Copy)]
struct ValuePath<'p> {
    above: Option<&'p ValuePath<'p>>,
    part: Part<'p>,
}

#[derive(Clone, Copy)]
enum Part<'p> {
    Top,
    Name(&'p str),
    Index(usize),
}

/// The parts of a value that a schema has looked at, for those that are about all others.
#[derive(Default)]
struct Evaluated {
    properties: HashSet<String>,
    all_properties: bool,
    items: HashSet<usize>,
    first_items: usize,
    all_items: bool,
}

struct Evaluator<'s> {
    schema: &'s Schema,
    steps: u32,
    limit_reached: bool,
    /// The schemas that are being checked, and the values, by address.
    active: Vec<(NodeId, *const Value)>,
    /// The resources of those schemas, without repetition: the dynamic scope.
    scopes: Vec<ResourceId>,
    /// None while only yes or no matters.
    violations: Option<Vec<Violation>>,
    forms_depth: u32,
}

impl Schema {
    /// Checks a value.
    pub(in crate::tool) fn check(&self, value: &Value) -> Result<(), CheckError> {
        let top = ValuePath { above: None, part: Part::Top };
        let mut quick = Evaluator::new(self, None);
        let is_valid = quick.check(0, value, &top, None);
        if quick.limit_reached {
            return Err(CheckError::Limit);
        }
        if is_valid {
            return Ok(());
        }
        let mut thorough = Evaluator::new(self, Some(Vec::new()));
        thorough.check(0, value, &top, None);
        match thorough.violations {
            Some(violations) if !violations.is_empty() => Err(CheckError::Violations(violations)),
            _ => Err(CheckError::Limit),
        }
    }
}

impl<'s> Evaluator<'s> {
    fn new(schema: &'s Schema, violations: Option<Vec<Violation>>) -> Self {
        Evaluator {
            schema,
            steps: MAX_STEPS,
            limit_reached: false,
            active: Vec::new(),
            scopes: Vec::new(),
            violations,
            forms_depth: 0,
        }
    }

    /// Takes steps off the budget; false if nothing is left.
    fn spend(&mut self, steps: usize) -> bool {
        self.steps = self.steps.saturating_sub(u32::try_from(steps).unwrap_or(u32::MAX));
        self.limit_reached |= self.steps == 0;
        !self.limit_reached
    }

    /// Returns true if a value is as a schema wants it. Notes what is not, and which parts the schema looked at.
    fn check(&mut self, id: NodeId, value: &Value, place: &ValuePath<'_>, evaluated: Option<&mut Evaluated>) -> bool {
        let address = std::ptr::from_ref(value);
        // A schema that leads back to itself for the same value adds nothing.
        if self.active.iter().rev().take_while(|(_, other)| *other == address).any(|(other, _)| *other == id) {
            return true;
        }
        if self.active.len() == MAX_DEPTH {
            self.limit_reached = true;
        }
        if !self.spend(1) {
            return false;
        }
        let schema = self.schema;
        let node = &schema.nodes[id as usize];
        let enters = self.scopes.last() != Some(&node.resource);
        if enters {
            self.scopes.push(node.resource);
        }
        self.active.push((id, address));
        let is_unevaluated =
            |keyword: &Keyword| matches!(keyword, Keyword::UnevaluatedItems(_) | Keyword::UnevaluatedProperties(_));
        let mut own =
            (evaluated.is_some() || node.keywords.last().is_some_and(is_unevaluated)).then(Evaluated::default);
        let mut is_valid = true;
        for keyword in &node.keywords {
            is_valid &= self.spend(1) && self.keyword(keyword, value, place, &mut own);
            if !is_valid && (self.violations.is_none() || self.limit_reached) {
                break;
            }
        }
        self.active.pop();
        if enters {
            self.scopes.pop();
        }
        if let (true, Some(evaluated), Some(own)) = (is_valid, evaluated, own) {
            evaluated.merge(own);
        }
        is_valid
    }

    fn keyword(
        &mut self,
        keyword: &'s Keyword,
        value: &Value,
        place: &ValuePath<'_>,
        own: &mut Option<Evaluated>,
    ) -> bool {
        match (keyword, value) {
            (Keyword::Items { prefix, rest }, Value::Array(items)) => self.items(prefix, *rest, items, place, own),
            (Keyword::Contains { item, min, max }, Value::Array(items)) => {
                self.contains(*item, (*min, *max), items, value, place, own)
            }
            (Keyword::UnevaluatedItems(node), Value::Array(items)) => self.unevaluated_items(*node, items, place, own),
            (Keyword::Properties(properties), Value::Object(fields)) => {
                self.properties(properties, fields, value, place, own)
            }
            (Keyword::PropertyNames(node), Value::Object(fields)) => self.property_names(*node, fields, place),
            (Keyword::UnevaluatedProperties(node), Value::Object(fields)) => {
                self.unevaluated_properties(*node, fields, value, place, own)
            }
            (Keyword::DependentSchemas(schemas), Value::Object(fields)) => {
                let mut nodes = schemas.iter().filter(|(name, _)| fields.contains_key(name)).map(|(_, node)| *node);
                self.all(&mut nodes, value, place, own)
            }
            (Keyword::AllOf(nodes), _) => self.all(&mut nodes.iter().copied(), value, place, own),
            (Keyword::Ref(node), _) => self.check(*node, value, place, own.as_mut()),
            (Keyword::DynamicRef(node, anchor), _) => {
                let node = self.dynamic_target(*node, anchor.as_deref());
                self.check(node, value, place, own.as_mut())
            }
            (Keyword::RecursiveRef(node), _) => {
                let node = self.recursive_target(*node);
                self.check(node, value, place, own.as_mut())
            }
            (Keyword::AnyOf(nodes), _) => self.any(nodes, value, place, own),
            (Keyword::OneOf(nodes), _) => self.one(nodes, value, place, own),
            (Keyword::Not(node), _) => {
                !self.is_valid(*node, value, place, &mut None) && !self.limit_reached
                    || self.wanted(place, value, || "a value that the schema does not exclude".to_owned())
            }
            (Keyword::If { condition, then, otherwise }, _) => {
                let branch = if self.is_valid(*condition, value, place, own) { then } else { otherwise };
                branch.is_none_or(|node| self.check(node, value, place, own.as_mut()))
            }
            _ => self.assertion(keyword, value, place),
        }
    }

    /// Checks a keyword that says everything itself.
    fn assertion(&mut self, keyword: &Keyword, value: &Value, place: &ValuePath<'_>) -> bool {
        match (keyword, value) {
            (Keyword::Never, _) => self.wanted(place, value, || "nothing".to_owned()),
            (Keyword::Type(types), _) => {
                types.iter().any(|name| name.fits(value))
                    || self.wanted(place, value, || {
                        types.iter().map(|name| article(name.name())).collect::<Vec<_>>().join(" or ")
                    })
            }
            (Keyword::Enum(values), _) => {
                self.spend(values.len());
                values.iter().any(|other| equal(other, value)) || self.wanted(place, value, || one_of(values))
            }
            (Keyword::SchemaOf(draft), _) => {
                self.spend(1_000);
                let is_schema = Schema::with_draft(value, *draft);
                is_schema.map_err(|error| self.wanted(place, value, || format!("a JSON schema ({error})"))).is_ok()
            }
            (Keyword::Const(other), _) => equal(other, value) || self.wanted(place, value, || other.to_string()),
            (Keyword::Required(names), Value::Object(fields)) => self.required(names, fields, value, place),
            (Keyword::DependentRequired(all), Value::Object(fields)) => all
                .iter()
                .filter(|(name, _)| fields.contains_key(name))
                .fold(true, |is_valid, (_, names)| is_valid & self.required(names, fields, value, place)),
            (Keyword::MinProperties(limit), Value::Object(fields)) => {
                fields.len() as u64 >= *limit
                    || self.wanted(place, value, || format!("at least {}", plural(*limit, "field")))
            }
            (Keyword::MaxProperties(limit), Value::Object(fields)) => {
                fields.len() as u64 <= *limit
                    || self.wanted(place, value, || format!("at most {}", plural(*limit, "field")))
            }
            (_, Value::Number(number)) => self.number(keyword, number, value, place),
            (_, Value::String(text)) => self.string(keyword, text, value, place),
            (_, Value::Array(items)) => self.array(keyword, items, value, place),
            _ => true,
        }
    }

    fn number(&mut self, keyword: &Keyword, number: &Number, value: &Value, place: &ValuePath<'_>) -> bool {
        let (fits, word, limit) = match keyword {
            Keyword::Minimum(limit) => (compare(number, limit).is_ge(), "at least", limit),
            Keyword::Maximum(limit) => (compare(number, limit).is_le(), "at most", limit),
            Keyword::ExclusiveMinimum(limit) => (compare(number, limit).is_gt(), "more than", limit),
            Keyword::ExclusiveMaximum(limit) => (compare(number, limit).is_lt(), "less than", limit),
            Keyword::MultipleOf(divisor) => (is_multiple(number, divisor), "a multiple of", divisor),
            _ => return true,
        };
        fits || self.wanted(place, value, || format!("{word} {limit}"))
    }

    fn string(&mut self, keyword: &Keyword, text: &str, value: &Value, place: &ValuePath<'_>) -> bool {
        match keyword {
            Keyword::MinLength(limit) => {
                text.chars().count() as u64 >= *limit
                    || self.wanted(place, value, || format!("at least {}", plural(*limit, "character")))
            }
            Keyword::MaxLength(limit) => {
                text.chars().count() as u64 <= *limit
                    || self.wanted(place, value, || format!("at most {}", plural(*limit, "character")))
            }
            Keyword::Pattern(pattern) => {
                self.spend(text.len() / 64);
                match pattern.matches(text) {
                    Some(true) => true,
                    Some(false) => self.wanted(place, value, || format!("a text that matches `{}`", pattern.text)),
                    None => self.exceed(),
                }
            }
            Keyword::Format(format, name) => {
                format.fits(text) || self.wanted(place, value, || format!("a text in the format `{name}`"))
            }
            _ => true,
        }
    }

    fn array(&mut self, keyword: &Keyword, items: &[Value], value: &Value, place: &ValuePath<'_>) -> bool {
        match keyword {
            Keyword::MinItems(limit) => {
                items.len() as u64 >= *limit
                    || self.wanted(place, value, || format!("at least {}", plural(*limit, "item")))
            }
            Keyword::MaxItems(limit) => {
                items.len() as u64 <= *limit
                    || self.wanted(place, value, || format!("at most {}", plural(*limit, "item")))
            }
            Keyword::UniqueItems => {
                let mut seen = HashSet::new();
                let is_unique = items.iter().all(|item| {
                    let mut text = String::new();
                    write_canonical(item, &mut text);
                    self.spend(text.len() / 16) && seen.insert(text)
                });
                is_unique || self.wanted(place, value, || "items that differ".to_owned())
            }
            _ => true,
        }
    }

    fn required(
        &mut self,
        names: &[String],
        fields: &Map<String, Value>,
        value: &Value,
        place: &ValuePath<'_>,
    ) -> bool {
        self.spend(names.len());
        let mut missing = names.iter().filter(|name| !fields.contains_key(*name)).peekable();
        let is_valid = missing.peek().is_none();
        for name in missing {
            self.report(place, value, || ViolationKind::Missing(name.clone()));
        }
        is_valid
    }

    fn items(
        &mut self,
        prefix: &[NodeId],
        rest: Option<NodeId>,
        items: &[Value],
        place: &ValuePath<'_>,
        own: &mut Option<Evaluated>,
    ) -> bool {
        let mut is_valid = true;
        for (nth, item) in items.iter().enumerate() {
            let Some(node) = prefix.get(nth).copied().or(rest) else { break };
            is_valid &= self.check(node, item, &place.index(nth), None);
            if !is_valid && (self.violations.is_none() || self.limit_reached) {
                return false;
            }
        }
        if let Some(own) = own {
            own.first_items = own.first_items.max(prefix.len());
            own.all_items |= rest.is_some();
        }
        is_valid
    }

    fn contains(
        &mut self,
        node: NodeId,
        (min, max): (u64, Option<u64>),
        items: &[Value],
        value: &Value,
        place: &ValuePath<'_>,
        own: &mut Option<Evaluated>,
    ) -> bool {
        let mut count = 0;
        for (nth, item) in items.iter().enumerate() {
            if self.is_valid(node, item, &place.index(nth), &mut None) {
                count += 1;
                let draft = self.schema.resources[self.schema.nodes[node as usize].resource as usize].draft;
                if let (Some(own), super::Draft::Draft2020) = (own.as_mut(), draft) {
                    own.items.insert(nth);
                }
            }
        }
        if count < min {
            return self.wanted(place, value, || format!("at least {} as in `contains`", plural(min, "item")));
        }
        max.is_none_or(|max| {
            count <= max || self.wanted(place, value, || format!("at most {} as in `contains`", plural(max, "item")))
        })
    }

    fn unevaluated_items(
        &mut self,
        node: NodeId,
        items: &[Value],
        place: &ValuePath<'_>,
        own: &mut Option<Evaluated>,
    ) -> bool {
        let Some(own) = own else { return true };
        if own.all_items {
            return true;
        }
        own.all_items = true;
        let mut is_valid = true;
        for (nth, item) in items.iter().enumerate().skip(own.first_items) {
            if !own.items.contains(&nth) {
                is_valid &= self.check(node, item, &place.index(nth), None);
            }
        }
        is_valid
    }

    fn properties(
        &mut self,
        properties: &Properties,
        fields: &Map<String, Value>,
        value: &Value,
        place: &ValuePath<'_>,
        own: &mut Option<Evaluated>,
    ) -> bool {
        let (mut is_valid, mut unknown) = (true, Vec::new());
        let is_closed = properties.additional.is_some_and(|node| self.is_never(node));
        for (name, field) in fields {
            let place = place.name(name);
            let named = properties.named.get(name);
            let mut is_known = named.is_some();
            if let Some(node) = named {
                is_valid &= self.check(*node, field, &place, None);
            }
            for (pattern, node) in &properties.matching {
                self.spend(1 + name.len() / 64);
                match pattern.matches(name) {
                    Some(true) => {
                        is_known = true;
                        is_valid &= self.check(*node, field, &place, None);
                    }
                    Some(false) => {}
                    None => return self.exceed(),
                }
            }
            match properties.additional {
                Some(node) if !is_known && !is_closed => is_valid &= self.check(node, field, &place, None),
                Some(_) if !is_known => {
                    is_valid = false;
                    unknown.push(name.clone());
                }
                _ => {}
            }
            if let Some(own) = own.as_mut().filter(|_| is_known || properties.additional.is_some()) {
                own.properties.insert(name.clone());
            }
            if !is_valid && (self.violations.is_none() || self.limit_reached) {
                return false;
            }
        }
        if !unknown.is_empty() {
            self.report(place, value, || ViolationKind::Unknown(unknown));
        }
        is_valid
    }

    fn property_names(&mut self, node: NodeId, fields: &Map<String, Value>, place: &ValuePath<'_>) -> bool {
        fields.keys().fold(true, |is_valid, name| {
            let value = Value::String(name.clone());
            is_valid & self.check(node, &value, &place.name(name), None)
        })
    }

    fn unevaluated_properties(
        &mut self,
        node: NodeId,
        fields: &Map<String, Value>,
        value: &Value,
        place: &ValuePath<'_>,
        own: &mut Option<Evaluated>,
    ) -> bool {
        let Some(own) = own else { return true };
        if own.all_properties {
            return true;
        }
        own.all_properties = true;
        let others = fields.iter().filter(|(name, _)| !own.properties.contains(*name));
        if self.is_never(node) {
            let unknown: Vec<_> = others.map(|(name, _)| name.clone()).collect();
            let is_valid = unknown.is_empty();
            if !is_valid {
                self.report(place, value, || ViolationKind::Unknown(unknown));
            }
            return is_valid;
        }
        others.fold(true, |is_valid, (name, field)| is_valid & self.check(node, field, &place.name(name), None))
    }

    fn all(
        &mut self,
        nodes: &mut dyn Iterator<Item = NodeId>,
        value: &Value,
        place: &ValuePath<'_>,
        own: &mut Option<Evaluated>,
    ) -> bool {
        let mut is_valid = true;
        for node in nodes {
            is_valid &= self.check(node, value, place, own.as_mut());
            if !is_valid && (self.violations.is_none() || self.limit_reached) {
                break;
            }
        }
        is_valid
    }

    fn any(&mut self, nodes: &[NodeId], value: &Value, place: &ValuePath<'_>, own: &mut Option<Evaluated>) -> bool {
        let mut is_valid = false;
        for node in nodes {
            is_valid |= self.is_valid(*node, value, place, own);
            // Every form that fits says which parts it looked at.
            if is_valid && own.is_none() {
                break;
            }
        }
        is_valid || self.no_form(nodes, value, place)
    }

    fn one(&mut self, nodes: &[NodeId], value: &Value, place: &ValuePath<'_>, own: &mut Option<Evaluated>) -> bool {
        let mut count = 0;
        for node in nodes {
            count += u64::from(self.is_valid(*node, value, place, own));
            if count > 1 {
                return self
                    .wanted(place, value, || "exactly one of several forms, and it has more than one".to_owned());
            }
        }
        count == 1 || self.no_form(nodes, value, place)
    }

    /// Notes that a value has none of several forms, with the first violation of each.
    fn no_form(&mut self, nodes: &[NodeId], value: &Value, place: &ValuePath<'_>) -> bool {
        if self.limit_reached || self.violations.is_none() {
            return false;
        }
        let mut forms = Vec::new();
        if self.forms_depth < MAX_FORMS_DEPTH {
            self.forms_depth += 1;
            for node in nodes.iter().take(MAX_FORMS) {
                let outer = self.violations.replace(Vec::new());
                self.check(*node, value, place, None);
                let inner = std::mem::replace(&mut self.violations, outer);
                forms.extend(inner.into_iter().flatten().next());
            }
            self.forms_depth -= 1;
        }
        self.report(place, value, || ViolationKind::Forms(forms));
        false
    }

    /// Returns true if a value is as a schema wants it, without noting why it is not.
    fn is_valid(&mut self, node: NodeId, value: &Value, place: &ValuePath<'_>, own: &mut Option<Evaluated>) -> bool {
        let violations = self.violations.take();
        let is_valid = self.check(node, value, place, own.as_mut());
        self.violations = violations;
        is_valid
    }

    fn is_never(&self, node: NodeId) -> bool {
        matches!(self.schema.nodes[node as usize].keywords[..], [Keyword::Never])
    }

    /// The schema with this dynamic anchor in the outermost resource that has one.
    fn dynamic_target(&self, node: NodeId, anchor: Option<&str>) -> NodeId {
        let Some(anchor) = anchor else { return node };
        let resources = self.scopes.iter().map(|id| &self.schema.resources[*id as usize]);
        let mut targets = resources.filter_map(|resource| resource.dynamic_anchors.get(anchor));
        targets.next().copied().unwrap_or(node)
    }

    /// The root of the outermost resource that is to be extended, if the one that is referred to is.
    fn recursive_target(&self, node: NodeId) -> NodeId {
        let resource = |id: ResourceId| &self.schema.resources[id as usize];
        let own = resource(self.schema.nodes[node as usize].resource);
        if !own.has_recursive_anchor || own.root != node {
            return node;
        }
        let mut outer = self.scopes.iter().map(|id| resource(*id)).filter(|resource| resource.has_recursive_anchor);
        outer.next().map_or(node, |resource| resource.root)
    }

    /// Notes that no more is known, since the check takes too much.
    fn exceed(&mut self) -> bool {
        self.limit_reached = true;
        false
    }

    fn wanted(&mut self, place: &ValuePath<'_>, value: &Value, wanted: impl FnOnce() -> String) -> bool {
        self.report(place, value, || ViolationKind::Wanted(wanted()));
        false
    }

    fn report(&mut self, place: &ValuePath<'_>, value: &Value, kind: impl FnOnce() -> ViolationKind) {
        if let Some(violations) = self.violations.as_mut().filter(|violations| violations.len() < MAX_VIOLATIONS) {
            violations.push(Violation { path: place.to_string(), found: describe(value), kind: kind() });
        }
    }
}

impl Evaluated {
    fn merge(&mut self, other: Evaluated) {
        self.properties.extend(other.properties);
        self.items.extend(other.items);
        self.all_properties |= other.all_properties;
        self.all_items |= other.all_items;
        self.first_items = self.first_items.max(other.first_items);
    }
}

impl<'p> ValuePath<'p> {
    fn name(&'p self, name: &'p str) -> Self {
        ValuePath { above: Some(self), part: Part::Name(name) }
    }

    fn index(&'p self, index: usize) -> Self {
        ValuePath { above: Some(self), part: Part::Index(index) }
    }
}

impl std::fmt::Display for ValuePath<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mut parts, mut next) = (Vec::new(), Some(self));
        while let Some(place) = next {
            parts.push(place.part);
            next = place.above;
        }
        let mut is_first = true;
        for part in parts.into_iter().rev() {
            match part {
                Part::Top => continue,
                Part::Name(name) if is_first => f.write_str(name)?,
                Part::Name(name) => write!(f, ".{name}")?,
                Part::Index(index) => write!(f, "[{index}]")?,
            }
            is_first = false;
        }
        Ok(())
    }
}

impl TypeName {
    fn fits(self, value: &Value) -> bool {
        match (self, value) {
            (TypeName::Null, Value::Null)
            | (TypeName::Boolean, Value::Bool(_))
            | (TypeName::Number, Value::Number(_))
            | (TypeName::String, Value::String(_))
            | (TypeName::Array, Value::Array(_))
            | (TypeName::Object, Value::Object(_)) => true,
            (TypeName::Integer { written }, Value::Number(number)) => {
                // An integer that is too large for others is read as a float.
                let is_whole = |float: f64| float.fract() == 0.0 && (!written || float.abs() > u64::MAX as f64);
                !number.is_f64() || number.as_f64().is_some_and(is_whole)
            }
            _ => false,
        }
    }

    fn name(self) -> &'static str {
        match self {
            TypeName::Null => "null",
            TypeName::Boolean => "boolean",
            TypeName::Integer { .. } => "integer",
            TypeName::Number => "number",
            TypeName::String => "string",
            TypeName::Array => "array",
            TypeName::Object => "object",
        }
    }
}

/// Compares values as JSON schemas do: `1` is `1.0`.
fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => compare(one, other).is_eq(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, one)| other.get(name).is_some_and(|other| equal(one, other)))
        }
        _ => one == other,
    }
}

/// Writes a value so that equal values have equal texts.
fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Number(number) => match integer(number) {
            Some(integer) => out.push_str(&integer.to_string()),
            None => out.push_str(&number.to_string()),
        },
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            out.push('{');
            for (name, value) in fields {
                out.push_str(&format!("{name:?}:"));
                write_canonical(value, out);
                out.push(',');
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}

/// The number as an integer, if it is one.
fn integer(number: &Number) -> Option<i128> {
    if let Some(number) = number.as_i64() {
        return Some(number.into());
    }
    if let Some(number) = number.as_u64() {
        return Some(number.into());
    }
    let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e36)?;
    Some(float as i128)
}

/// Compares two numbers exactly.
fn compare(one: &Number, other: &Number) -> Ordering {
    match (integer(one), integer(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        (Some(one), None) => compare_float(other, one).reverse(),
        (None, Some(other)) => compare_float(one, other),
        (None, None) => one.as_f64().partial_cmp(&other.as_f64()).unwrap_or(Ordering::Equal),
    }
}

/// Compares a number that is no integer, or a very large one, with an integer.
fn compare_float(float: &Number, integer: i128) -> Ordering {
    let float = float.as_f64().unwrap_or_default();
    // A cast that does not fit gives the nearest integer that does.
    match (float.floor() as i128).cmp(&integer) {
        Ordering::Equal => Ordering::Greater,
        unequal => unequal,
    }
}

/// Returns true if a number is a multiple of another, both taken as the decimal numbers that they are written as.
fn is_multiple(number: &Number, divisor: &Number) -> bool {
    let (Some((value, exponent)), Some((divisor, other))) = (decimal(number), decimal(divisor)) else { return false };
    if value == 0 || divisor == 0 {
        return value == 0;
    }
    let difference = exponent - other;
    if difference >= 0 {
        // Digit by digit: the remainder stays below 2^64, and ten times that fits.
        return (0..difference).fold(value % divisor, |rest, _| rest * 10 % divisor) == 0;
    }
    let scale = 10u128.checked_pow(difference.unsigned_abs());
    let divisor = scale.and_then(|scale| divisor.checked_mul(scale));
    // A divisor that does not fit is larger than the value.
    divisor.is_some_and(|divisor| value % divisor == 0)
}

/// A number without its sign as digits and a power of ten.
fn decimal(number: &Number) -> Option<(u128, i32)> {
    let text = number.to_string();
    let text = text.trim_start_matches('-');
    let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction = fraction.trim_end_matches('0');
    let value = format!("{whole}{fraction}").parse().ok()?;
    Some((value, exponent.parse::<i32>().ok()? - fraction.len() as i32))
}

fn one_of(values: &[Value]) -> String {
    let mut named: Vec<_> = values.iter().take(MAX_OPTIONS).map(Value::to_string).collect();
    if values.len() > MAX_OPTIONS {
        named.push(format!("and {} more", values.len() - MAX_OPTIONS));
    }
    format!("one of {}", named.join(", "))
}

fn plural(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
