//! A validator of JSON schemas, drafts 4 to 2020-12.
//!
//! Schemas come from programs that need not be trusted, so every check has a bound: patterns have a largest size, references
//! are followed inside the schema only, and a check that takes too many steps or nests too deep ends as [`CheckError::Limit`].
//!
//! `format` is checked in drafts 4 to 7, and says nothing in later ones, as their authors have it. `$vocabulary` and the
//! keywords about content say nothing either.

mod evaluate;
mod format;
mod pattern;
mod uri;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::{Map, Number, Value};

pub(super) use self::evaluate::{CheckError, Violation, ViolationKind};
use self::format::Format;
use self::pattern::SchemaPattern;

/// The most values that a schema may have.
const MAX_SCHEMA_VALUES: usize = 200_000;
/// The most different patterns that a schema may have.
const MAX_PATTERNS: usize = 1_000;
/// The URI of a schema that does not say its own.
const DEFAULT_URI: &str = "json-schema:///";

/// A version of the JSON schema language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Draft {
    Draft4,
    Draft6,
    Draft7,
    Draft2019,
    Draft2020,
}

/// A schema that values can be checked against.
#[derive(Debug)]
pub(super) struct Schema {
    nodes: Vec<SchemaNode>,
    resources: Vec<SchemaResource>,
}

type NodeId = u32;
type ResourceId = u32;

/// A schema, or one inside a schema.
#[derive(Debug, Default)]
struct SchemaNode {
    resource: ResourceId,
    /// In the order in which they are checked: those about unevaluated parts come last.
    keywords: Vec<Keyword>,
}

/// A schema with a URI of its own.
#[derive(Debug)]
struct SchemaResource {
    uri: String,
    root: NodeId,
    draft: Draft,
    anchors: HashMap<String, NodeId>,
    dynamic_anchors: HashMap<String, NodeId>,
    has_recursive_anchor: bool,
}

#[derive(Debug)]
enum Keyword {
    /// The schema `false`.
    Never,
    Type(Vec<TypeName>),
    Enum(Vec<Value>),
    Const(Value),
    Minimum(Number),
    Maximum(Number),
    ExclusiveMinimum(Number),
    ExclusiveMaximum(Number),
    MultipleOf(Number),
    MinLength(u64),
    MaxLength(u64),
    Pattern(Arc<SchemaPattern>),
    Format(Format, String),
    MinItems(u64),
    MaxItems(u64),
    UniqueItems,
    Items {
        prefix: Vec<NodeId>,
        rest: Option<NodeId>,
    },
    Contains {
        item: NodeId,
        min: u64,
        max: Option<u64>,
    },
    MinProperties(u64),
    MaxProperties(u64),
    Required(Vec<String>),
    Properties(Properties),
    PropertyNames(NodeId),
    DependentRequired(Vec<(String, Vec<String>)>),
    DependentSchemas(Vec<(String, NodeId)>),
    AllOf(Vec<NodeId>),
    AnyOf(Vec<NodeId>),
    OneOf(Vec<NodeId>),
    Not(NodeId),
    If {
        condition: NodeId,
        then: Option<NodeId>,
        otherwise: Option<NodeId>,
    },
    Ref(NodeId),
    /// With the name of the anchor, if it leads to a dynamic one.
    DynamicRef(NodeId, Option<String>),
    RecursiveRef(NodeId),
    /// A reference to the schema of schemas.
    SchemaOf(Draft),
    UnevaluatedItems(NodeId),
    UnevaluatedProperties(NodeId),
}

#[derive(Debug)]
struct Properties {
    named: BTreeMap<String, NodeId>,
    matching: Vec<(Arc<SchemaPattern>, NodeId)>,
    additional: Option<NodeId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TypeName {
    Null,
    Boolean,
    /// With draft 4, `1.0` is none.
    Integer {
        written: bool,
    },
    Number,
    String,
    Array,
    Object,
}

impl Schema {
    /// Reads a schema. The error says where it is malformed, and how.
    pub(super) fn new(schema: &Value) -> Result<Self, String> {
        Schema::with_draft(schema, Draft::Draft2020)
    }

    /// Reads a schema, by the rules of this draft unless the schema names another.
    fn with_draft(schema: &Value, default: Draft) -> Result<Self, String> {
        count_values(schema)?;
        let mut compiler = Compiler {
            schema: Schema { nodes: Vec::new(), resources: Vec::new() },
            node_by_address: HashMap::new(),
            queue: Vec::new(),
            references: Vec::new(),
            patterns: HashMap::new(),
            resource_values: Vec::new(),
        };
        let draft = Draft::of(schema, default)?;
        let anchors = HashMap::new();
        let root = SchemaResource {
            uri: DEFAULT_URI.to_owned(),
            root: 0,
            draft,
            anchors,
            dynamic_anchors: HashMap::new(),
            has_recursive_anchor: false,
        };
        compiler.schema.resources.push(root);
        compiler.resource_values.push(schema);
        compiler.node(schema, 0, Path::default());
        compiler.compile()?;
        Ok(compiler.schema)
    }
}

impl Draft {
    fn of(schema: &Value, default: Draft) -> Result<Self, String> {
        match schema.get("$schema") {
            None => Ok(default),
            Some(Value::String(uri)) => Draft::from_uri(uri)
                .ok_or_else(|| format!("`$schema`: wanted draft 4, 6, 7, 2019-09 or 2020-12, found `{uri}`")),
            Some(other) => Err(format!("`$schema`: wanted a URI, found {other}")),
        }
    }

    fn from_uri(uri: &str) -> Option<Self> {
        let uri = uri.strip_suffix('#').unwrap_or(uri);
        let name = uri.strip_prefix("http://").or_else(|| uri.strip_prefix("https://"))?;
        Some(match name.strip_prefix("json-schema.org/")? {
            "draft-04/schema" => Draft::Draft4,
            "draft-06/schema" => Draft::Draft6,
            "draft-07/schema" => Draft::Draft7,
            "draft/2019-09/schema" => Draft::Draft2019,
            "draft/2020-12/schema" | "schema" => Draft::Draft2020,
            _ => return None,
        })
    }
}

/// Refuses schemas that are too large. Iterates, since a schema that was not parsed from text can be of any depth.
fn count_values(schema: &Value) -> Result<(), String> {
    let (mut queue, mut count) = (vec![schema], 0);
    while let Some(value) = queue.pop() {
        count += 1;
        if count > MAX_SCHEMA_VALUES {
            return Err(format!("wanted at most {MAX_SCHEMA_VALUES} values in it, found more"));
        }
        match value {
            Value::Array(items) => queue.extend(items),
            Value::Object(fields) => queue.extend(fields.values()),
            _ => {}
        }
    }
    Ok(())
}

/// The place of a value in a schema, for messages.
#[derive(Clone, Debug, Default)]
struct Path(Option<Arc<(Path, String)>>);

impl Path {
    fn join(&self, part: impl Into<String>) -> Self {
        Path(Some(Arc::new((self.clone(), part.into()))))
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mut parts, mut next) = (Vec::new(), &self.0);
        while let Some(link) = next {
            parts.push(&link.1);
            next = &link.0.0;
        }
        for part in parts.into_iter().rev() {
            write!(f, "/{}", part.replace('~', "~0").replace('/', "~1"))?;
        }
        Ok(())
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        // One after the other, or a long chain overflows the stack.
        let mut next = self.0.take();
        while let Some(link) = next {
            next = Arc::into_inner(link).and_then(|(mut path, _)| path.0.take());
        }
    }
}

struct Compiler<'a> {
    schema: Schema,
    /// The node of each value of the schema that is a schema itself, by the address of the value.
    node_by_address: HashMap<*const Value, NodeId>,
    queue: Vec<(NodeId, &'a Value, ResourceId, Path)>,
    references: Vec<Reference>,
    patterns: HashMap<String, Arc<SchemaPattern>>,
    /// The values that the resources are, in the same order.
    resource_values: Vec<&'a Value>,
}

/// A reference that is not resolved yet.
struct Reference {
    node: NodeId,
    keyword: &'static str,
    uri: String,
    path: Path,
}

impl<'a> Compiler<'a> {
    /// Returns the node of a schema, which is compiled later if it has none yet.
    fn node(&mut self, value: &'a Value, resource: ResourceId, path: Path) -> NodeId {
        if let Some(id) = self.node_by_address.get(&std::ptr::from_ref(value)) {
            return *id;
        }
        let id = self.schema.nodes.len() as NodeId;
        self.schema.nodes.push(SchemaNode { resource, keywords: Vec::new() });
        self.node_by_address.insert(value, id);
        self.queue.push((id, value, resource, path));
        id
    }

    fn compile(&mut self) -> Result<(), String> {
        // A reference can lead to a place that is no schema by its position, and that holds further references.
        while !self.queue.is_empty() || !self.references.is_empty() {
            while let Some((id, value, resource, path)) = self.queue.pop() {
                self.compile_node(id, value, resource, &path)?;
            }
            if let Some(reference) = self.references.pop() {
                self.resolve(reference)?;
            }
        }
        for node in &mut self.schema.nodes {
            node.keywords.sort_by_key(Keyword::order);
        }
        Ok(())
    }

    fn compile_node(&mut self, id: NodeId, value: &'a Value, resource: ResourceId, path: &Path) -> Result<(), String> {
        let draft = self.schema.resources[resource as usize].draft;
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Bool(true) if draft > Draft::Draft4 => return Ok(()),
            Value::Bool(false) if draft > Draft::Draft4 => {
                self.schema.nodes[id as usize].keywords.push(Keyword::Never);
                return Ok(());
            }
            other => return Err(wrong(path, "a schema", other)),
        };
        let resource = self.identify(id, value, fields, resource, path)?;
        let draft = self.schema.resources[resource as usize].draft;
        self.schema.nodes[id as usize].resource = resource;
        let mut fields = Fields { compiler: self, fields, resource, draft, path, keywords: Vec::new() };
        if draft < Draft::Draft2019 && fields.fields.contains_key("$ref") {
            // Keywords beside a reference have no meaning; definitions can still be referred to.
            fields.definitions()?;
            return fields.references(id);
        }
        fields.references(id)?;
        fields.all()?;
        let keywords = fields.keywords;
        self.schema.nodes[id as usize].keywords.extend(keywords);
        Ok(())
    }

    /// Notes the URI and the anchors of a schema, and returns the resource that it belongs to.
    fn identify(
        &mut self,
        node: NodeId,
        value: &'a Value,
        fields: &'a Map<String, Value>,
        resource: ResourceId,
        path: &Path,
    ) -> Result<ResourceId, String> {
        let SchemaResource { draft: outer, uri: base, .. } = &self.schema.resources[resource as usize];
        let draft = if node == 0 { *outer } else { Draft::of(value, *outer).unwrap_or(*outer) };
        if draft < Draft::Draft2019 && fields.contains_key("$ref") {
            return Ok(resource);
        }
        let mut resource = resource;
        let keyword = if draft == Draft::Draft4 { "id" } else { "$id" };
        match fields.get(keyword) {
            None => {}
            Some(Value::String(id)) => {
                let (plain, fragment) = id.split_once('#').unwrap_or((id, ""));
                if !plain.is_empty() {
                    let uri = uri::resolve(base, plain);
                    if self.schema.resources.iter().any(|resource| resource.uri == uri) {
                        return Err(format!(
                            "{}: `{uri}` is the URI of another schema in it",
                            named(&path.join(keyword))
                        ));
                    }
                    if node == 0 {
                        self.schema.resources[0].uri = uri;
                    } else {
                        resource = self.schema.resources.len() as ResourceId;
                        let (anchors, dynamic_anchors) = (HashMap::new(), HashMap::new());
                        let has_recursive_anchor = false;
                        let new =
                            SchemaResource { uri, root: node, draft, anchors, dynamic_anchors, has_recursive_anchor };
                        self.schema.resources.push(new);
                        self.resource_values.push(value);
                    }
                }
                if !fragment.is_empty() && draft < Draft::Draft2019 {
                    self.schema.resources[resource as usize].anchors.insert(fragment.to_owned(), node);
                }
            }
            Some(other) => return Err(wrong(&path.join(keyword), "a URI", other)),
        }
        let own = &mut self.schema.resources[resource as usize];
        if draft >= Draft::Draft2019
            && let Some(anchor) = fields.get("$anchor").and_then(Value::as_str)
        {
            own.anchors.insert(anchor.to_owned(), node);
        }
        if draft >= Draft::Draft2020
            && let Some(anchor) = fields.get("$dynamicAnchor").and_then(Value::as_str)
        {
            own.anchors.insert(anchor.to_owned(), node);
            own.dynamic_anchors.insert(anchor.to_owned(), node);
        }
        if draft == Draft::Draft2019 && own.root == node {
            own.has_recursive_anchor = fields.get("$recursiveAnchor") == Some(&Value::Bool(true));
        }
        Ok(resource)
    }

    fn resolve(&mut self, reference: Reference) -> Result<(), String> {
        let Reference { node, keyword, uri, path } = reference;
        let resource = self.schema.nodes[node as usize].resource;
        let from = &self.schema.resources[resource as usize];
        let (plain, fragment) = uri.split_once('#').unwrap_or((&uri, ""));
        let absolute = if plain.is_empty() { from.uri.clone() } else { uri::resolve(&from.uri, plain) };
        let Some(to) = self.schema.resources.iter().position(|resource| resource.uri == absolute) else {
            if let Some(draft) = Draft::from_uri(&absolute).filter(|_| fragment.is_empty()) {
                self.schema.nodes[node as usize].keywords.push(Keyword::SchemaOf(draft));
                return Ok(());
            }
            return Err(format!("{}: `{uri}` is not in the schema, and nothing is fetched", named(&path)));
        };
        let fragment = uri::decode(fragment);
        let target = if fragment.is_empty() {
            self.schema.resources[to].root
        } else if fragment.starts_with('/') {
            self.find(to as ResourceId, &fragment)
                .ok_or_else(|| format!("{}: there is no `{uri}` in the schema", named(&path)))?
        } else {
            let anchor = self.schema.resources[to].anchors.get(&fragment).copied();
            anchor.ok_or_else(|| format!("{}: there is no `{uri}` in the schema", named(&path)))?
        };
        let keyword = match keyword {
            "$ref" => Keyword::Ref(target),
            "$recursiveRef" => Keyword::RecursiveRef(target),
            _ => {
                let is_dynamic = self.schema.resources[to].dynamic_anchors.get(&fragment) == Some(&target);
                Keyword::DynamicRef(target, is_dynamic.then_some(fragment))
            }
        };
        self.schema.nodes[node as usize].keywords.push(keyword);
        Ok(())
    }

    /// Finds the schema at a JSON pointer.
    fn find(&mut self, resource: ResourceId, pointer: &str) -> Option<NodeId> {
        let (mut value, mut resource) = (self.resource_values[resource as usize], resource);
        let mut path = Path::default();
        for part in pointer.split('/').skip(1) {
            let part = part.replace("~1", "/").replace("~0", "~");
            value = match value {
                Value::Object(fields) => fields.get(&part)?,
                Value::Array(items) => items.get(part.parse::<usize>().ok()?)?,
                _ => return None,
            };
            if let Some(node) = self.node_by_address.get(&std::ptr::from_ref(value)) {
                resource = self.schema.nodes[*node as usize].resource;
            }
            path = path.join(part);
        }
        Some(self.node(value, resource, path))
    }

    fn pattern(&mut self, text: &str, path: &Path) -> Result<Arc<SchemaPattern>, String> {
        if let Some(pattern) = self.patterns.get(text) {
            return Ok(pattern.clone());
        }
        if self.patterns.len() == MAX_PATTERNS {
            return Err(format!("wanted at most {MAX_PATTERNS} different patterns in it, found more"));
        }
        let pattern = SchemaPattern::new(text).map_err(|error| format!("{}: {error}", named(path)))?;
        let pattern = Arc::new(pattern);
        self.patterns.insert(text.to_owned(), pattern.clone());
        Ok(pattern)
    }
}

/// The keywords of one schema.
struct Fields<'c, 'a> {
    compiler: &'c mut Compiler<'a>,
    fields: &'a Map<String, Value>,
    resource: ResourceId,
    draft: Draft,
    path: &'c Path,
    keywords: Vec<Keyword>,
}

impl<'a> Fields<'_, 'a> {
    fn all(&mut self) -> Result<(), String> {
        self.definitions()?;
        self.values()?;
        self.numbers()?;
        self.strings()?;
        self.arrays()?;
        self.objects()?;
        self.combinations()
    }

    fn references(&mut self, node: NodeId) -> Result<(), String> {
        let keywords = ["$ref", "$recursiveRef", "$dynamicRef"];
        let known = match self.draft {
            Draft::Draft4 | Draft::Draft6 | Draft::Draft7 => &keywords[..1],
            Draft::Draft2019 => &keywords[..2],
            Draft::Draft2020 => &keywords[..],
        };
        for keyword in
            known.iter().copied().filter(|keyword| *keyword != "$recursiveRef" || self.draft == Draft::Draft2019)
        {
            match self.fields.get(keyword) {
                None => {}
                Some(Value::String(uri)) => {
                    let path = self.path.join(keyword);
                    self.compiler.references.push(Reference { node, keyword, uri: uri.clone(), path });
                }
                Some(other) => return Err(wrong(&self.path.join(keyword), "a URI", other)),
            }
        }
        Ok(())
    }

    fn definitions(&mut self) -> Result<(), String> {
        for keyword in ["$defs", "definitions"] {
            self.map_of_schemas(keyword)?;
        }
        Ok(())
    }

    fn values(&mut self) -> Result<(), String> {
        if let Some(value) = self.fields.get("type") {
            let names = match value {
                Value::String(_) => std::slice::from_ref(value),
                Value::Array(names) if !names.is_empty() => names,
                other => return Err(wrong(&self.path.join("type"), "the name of a type, or a list of them", other)),
            };
            let draft = self.draft;
            let types = names.iter().map(|name| name.as_str().and_then(|name| TypeName::parse(name, draft)));
            let Some(types) = types.collect::<Option<Vec<_>>>() else {
                let names = "null, boolean, integer, number, string, array or object";
                return Err(wrong(&self.path.join("type"), names, value));
            };
            self.keywords.push(Keyword::Type(types));
        }
        match self.fields.get("enum") {
            None => {}
            Some(Value::Array(values)) => self.keywords.push(Keyword::Enum(values.clone())),
            Some(other) => return Err(wrong(&self.path.join("enum"), "an array", other)),
        }
        if self.draft > Draft::Draft4
            && let Some(value) = self.fields.get("const")
        {
            self.keywords.push(Keyword::Const(value.clone()));
        }
        Ok(())
    }

    fn numbers(&mut self) -> Result<(), String> {
        let (minimum, maximum) = (self.number("minimum")?, self.number("maximum")?);
        if self.draft == Draft::Draft4 {
            let (from, to) = (self.boolean("exclusiveMinimum")?, self.boolean("exclusiveMaximum")?);
            self.keywords.extend(minimum.map(if from { Keyword::ExclusiveMinimum } else { Keyword::Minimum }));
            self.keywords.extend(maximum.map(if to { Keyword::ExclusiveMaximum } else { Keyword::Maximum }));
        } else {
            self.keywords.extend(minimum.map(Keyword::Minimum));
            self.keywords.extend(maximum.map(Keyword::Maximum));
            let (from, to) = (self.number("exclusiveMinimum")?, self.number("exclusiveMaximum")?);
            self.keywords.extend(from.map(Keyword::ExclusiveMinimum));
            self.keywords.extend(to.map(Keyword::ExclusiveMaximum));
        }
        if let Some(number) = self.number("multipleOf")? {
            if number.as_f64().is_none_or(|number| number <= 0.0) {
                return Err(wrong(&self.path.join("multipleOf"), "a number above 0", &Value::Number(number)));
            }
            self.keywords.push(Keyword::MultipleOf(number));
        }
        Ok(())
    }

    fn strings(&mut self) -> Result<(), String> {
        let (min, max) = (self.count("minLength")?, self.count("maxLength")?);
        self.keywords.extend(min.map(Keyword::MinLength));
        self.keywords.extend(max.map(Keyword::MaxLength));
        match self.fields.get("pattern") {
            None => {}
            Some(Value::String(text)) => {
                let pattern = self.compiler.pattern(text, &self.path.join("pattern"))?;
                self.keywords.push(Keyword::Pattern(pattern));
            }
            Some(other) => return Err(wrong(&self.path.join("pattern"), "a regular expression", other)),
        }
        match self.fields.get("format") {
            None => {}
            Some(Value::String(name)) => {
                let format = Format::parse(name).filter(|format| format.is_checked(self.draft));
                self.keywords.extend(format.map(|format| Keyword::Format(format, name.clone())));
            }
            Some(other) => return Err(wrong(&self.path.join("format"), "the name of a format", other)),
        }
        Ok(())
    }

    fn arrays(&mut self) -> Result<(), String> {
        let (min, max) = (self.count("minItems")?, self.count("maxItems")?);
        self.keywords.extend(min.map(Keyword::MinItems));
        self.keywords.extend(max.map(Keyword::MaxItems));
        if self.boolean("uniqueItems")? {
            self.keywords.push(Keyword::UniqueItems);
        }
        let (prefix, rest) = if self.draft >= Draft::Draft2020 {
            (self.list_of_schemas("prefixItems")?.unwrap_or_default(), self.schema("items")?)
        } else if let Some(Value::Array(_)) = self.fields.get("items") {
            (self.list_or_nothing("items")?, self.boolean_or_schema("additionalItems")?)
        } else {
            self.boolean_or_schema("additionalItems")?;
            (Vec::new(), self.schema("items")?)
        };
        if !prefix.is_empty() || rest.is_some() {
            self.keywords.push(Keyword::Items { prefix, rest });
        }
        if self.draft > Draft::Draft4
            && let Some(item) = self.schema("contains")?
        {
            let counted = self.draft >= Draft::Draft2019;
            let min = if counted { self.count("minContains")? } else { None };
            let max = if counted { self.count("maxContains")? } else { None };
            self.keywords.push(Keyword::Contains { item, min: min.unwrap_or(1), max });
        }
        if self.draft >= Draft::Draft2019
            && let Some(node) = self.schema("unevaluatedItems")?
        {
            self.keywords.push(Keyword::UnevaluatedItems(node));
        }
        Ok(())
    }

    fn objects(&mut self) -> Result<(), String> {
        let (min, max) = (self.count("minProperties")?, self.count("maxProperties")?);
        self.keywords.extend(min.map(Keyword::MinProperties));
        self.keywords.extend(max.map(Keyword::MaxProperties));
        if let Some(value) = self.fields.get("required") {
            self.keywords.push(Keyword::Required(names(&self.path.join("required"), value)?));
        }
        let named = self.map_of_schemas("properties")?.unwrap_or_default();
        let mut matching = Vec::new();
        for (text, node) in self.map_of_schemas("patternProperties")?.unwrap_or_default() {
            let pattern = self.compiler.pattern(&text, &self.path.join("patternProperties"))?;
            matching.push((pattern, node));
        }
        let additional = self.boolean_or_schema("additionalProperties")?;
        if !named.is_empty() || !matching.is_empty() || additional.is_some() {
            self.keywords.push(Keyword::Properties(Properties { named, matching, additional }));
        }
        if self.draft > Draft::Draft4 {
            let node = self.schema("propertyNames")?;
            self.keywords.extend(node.map(Keyword::PropertyNames));
        }
        self.dependencies()?;
        if self.draft >= Draft::Draft2019
            && let Some(node) = self.schema("unevaluatedProperties")?
        {
            self.keywords.push(Keyword::UnevaluatedProperties(node));
        }
        Ok(())
    }

    fn dependencies(&mut self) -> Result<(), String> {
        let (mut required, mut schemas) = (Vec::new(), Vec::new());
        // Later drafts have the two below in its place, and know it still.
        for (name, value) in self.map("dependencies")? {
            let path = self.path.join("dependencies").join(name);
            match value {
                Value::Array(_) => required.push((name.clone(), names(&path, value)?)),
                _ => schemas.push((name.clone(), self.compiler.node(value, self.resource, path))),
            }
        }
        if self.draft >= Draft::Draft2019 {
            for (name, value) in self.map("dependentRequired")? {
                required.push((name.clone(), names(&self.path.join("dependentRequired").join(name), value)?));
            }
            schemas.extend(self.map_of_schemas("dependentSchemas")?.unwrap_or_default());
        }
        if !required.is_empty() {
            self.keywords.push(Keyword::DependentRequired(required));
        }
        if !schemas.is_empty() {
            self.keywords.push(Keyword::DependentSchemas(schemas));
        }
        Ok(())
    }

    fn combinations(&mut self) -> Result<(), String> {
        let nodes = self.list_of_schemas("allOf")?;
        self.keywords.extend(nodes.map(Keyword::AllOf));
        let nodes = self.list_of_schemas("anyOf")?;
        self.keywords.extend(nodes.map(Keyword::AnyOf));
        let nodes = self.list_of_schemas("oneOf")?;
        self.keywords.extend(nodes.map(Keyword::OneOf));
        let node = self.schema("not")?;
        self.keywords.extend(node.map(Keyword::Not));
        if self.draft >= Draft::Draft7 {
            let (then, otherwise) = (self.schema("then")?, self.schema("else")?);
            let condition = self.schema("if")?;
            self.keywords.extend(condition.map(|condition| Keyword::If { condition, then, otherwise }));
        }
        Ok(())
    }

    fn schema(&mut self, keyword: &str) -> Result<Option<NodeId>, String> {
        let Some(value) = self.fields.get(keyword) else { return Ok(None) };
        Ok(Some(self.compiler.node(value, self.resource, self.path.join(keyword))))
    }

    /// Draft 4 has no schema that is a boolean, except here.
    fn boolean_or_schema(&mut self, keyword: &str) -> Result<Option<NodeId>, String> {
        match self.fields.get(keyword) {
            Some(Value::Bool(allowed)) if self.draft == Draft::Draft4 => {
                let keywords = if *allowed { Vec::new() } else { vec![Keyword::Never] };
                let id = self.compiler.schema.nodes.len() as NodeId;
                self.compiler.schema.nodes.push(SchemaNode { resource: self.resource, keywords });
                Ok(Some(id))
            }
            _ => self.schema(keyword),
        }
    }

    fn list_of_schemas(&mut self, keyword: &str) -> Result<Option<Vec<NodeId>>, String> {
        match self.fields.get(keyword) {
            None => Ok(None),
            Some(Value::Array(values)) if !values.is_empty() => self.list_or_nothing(keyword).map(Some),
            Some(other) => Err(wrong(&self.path.join(keyword), "a list of schemas", other)),
        }
    }

    fn list_or_nothing(&mut self, keyword: &str) -> Result<Vec<NodeId>, String> {
        let path = self.path.join(keyword);
        let values = self.fields.get(keyword).and_then(Value::as_array).into_iter().flatten();
        let nodes = values.enumerate();
        Ok(nodes.map(|(nth, value)| self.compiler.node(value, self.resource, path.join(nth.to_string()))).collect())
    }

    fn map(&self, keyword: &str) -> Result<impl Iterator<Item = (&'a String, &'a Value)> + use<'a>, String> {
        let fields = match self.fields.get(keyword) {
            None => None,
            Some(Value::Object(fields)) => Some(fields),
            Some(other) => return Err(wrong(&self.path.join(keyword), "an object", other)),
        };
        Ok(fields.into_iter().flatten())
    }

    fn map_of_schemas(&mut self, keyword: &str) -> Result<Option<BTreeMap<String, NodeId>>, String> {
        let path = self.path.join(keyword);
        let mut nodes = BTreeMap::new();
        for (name, value) in self.map(keyword)? {
            nodes.insert(name.clone(), self.compiler.node(value, self.resource, path.join(name)));
        }
        Ok((!nodes.is_empty()).then_some(nodes))
    }

    fn number(&self, keyword: &str) -> Result<Option<Number>, String> {
        match self.fields.get(keyword) {
            None => Ok(None),
            Some(Value::Number(number)) => Ok(Some(number.clone())),
            Some(other) => Err(wrong(&self.path.join(keyword), "a number", other)),
        }
    }

    fn count(&self, keyword: &str) -> Result<Option<u64>, String> {
        let Some(value) = self.fields.get(keyword) else { return Ok(None) };
        let count = value.as_u64().or_else(|| {
            let float = value.as_f64().filter(|float| *float >= 0.0 && float.fract() == 0.0)?;
            Some(float as u64)
        });
        match count {
            Some(count) => Ok(Some(count)),
            None => Err(wrong(&self.path.join(keyword), "a whole number, 0 or more", value)),
        }
    }

    fn boolean(&self, keyword: &str) -> Result<bool, String> {
        match self.fields.get(keyword) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(other) => Err(wrong(&self.path.join(keyword), "true or false", other)),
        }
    }
}

impl Keyword {
    /// Cheap keywords first; those that depend on what the others evaluated last.
    fn order(&self) -> u8 {
        match self {
            Keyword::UnevaluatedItems(_) | Keyword::UnevaluatedProperties(_) => 2,
            Keyword::AllOf(_)
            | Keyword::AnyOf(_)
            | Keyword::OneOf(_)
            | Keyword::Not(_)
            | Keyword::If { .. }
            | Keyword::Ref(_)
            | Keyword::DynamicRef(..)
            | Keyword::RecursiveRef(_)
            | Keyword::SchemaOf(_) => 1,
            _ => 0,
        }
    }
}

impl TypeName {
    fn parse(name: &str, draft: Draft) -> Option<Self> {
        Some(match name {
            "null" => TypeName::Null,
            "boolean" => TypeName::Boolean,
            "integer" => TypeName::Integer { written: draft == Draft::Draft4 },
            "number" => TypeName::Number,
            "string" => TypeName::String,
            "array" => TypeName::Array,
            "object" => TypeName::Object,
            _ => return None,
        })
    }
}

fn names(path: &Path, value: &Value) -> Result<Vec<String>, String> {
    let names = value.as_array().map(|names| names.iter().map(|name| name.as_str().map(str::to_owned)));
    names.and_then(Iterator::collect).ok_or_else(|| wrong(path, "a list of names", value))
}

fn wrong(path: &Path, wanted: &str, found: &Value) -> String {
    format!("{}: wanted {wanted}, found {}", named(path), super::check::describe(found))
}

fn named(path: &Path) -> String {
    let path = path.to_string();
    if path.is_empty() { "the schema".to_owned() } else { format!("`{path}`") }
}

#[cfg(test)]
mod tests;
