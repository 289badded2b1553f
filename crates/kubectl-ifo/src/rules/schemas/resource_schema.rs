//! Finds the type of a field in the schema of a resource, or that the schema has no such field.

use crate::suggestion::nearest;
use ifo_cel::{FieldType, ObjectSchema, PathStep};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Maximum number of parts (references and elements of `allOf`, `anyOf` and `oneOf`) of the schema
/// of one value. Schemas can be recursive, so a limit is necessary. Beyond the limit, any value is
/// possible.
const MAX_PARTS: usize = 64;

/// The schema of `metadata`. The schemas in CRDs do not describe this field.
static METADATA: LazyLock<Value> = LazyLock::new(|| {
    let settings = SchemaSettings::default().with(|it| it.inline_subschemas = true);
    let generator = settings.into_generator();
    generator.into_root_schema_for::<ObjectMeta>().to_value()
});

/// The schema of a string.
static TEXT: LazyLock<Value> = LazyLock::new(|| json!({"type": "string"}));

/// The schema of a value with any content.
static ANY: LazyLock<Value> =
    LazyLock::new(|| json!({"x-kubernetes-preserve-unknown-fields": true}));

/// The schema of the objects of a resource.
#[derive(Clone, Copy, Debug)]
pub(in crate::rules) struct ResourceSchema<'s> {
    /// The document to which references in the schema point. `Null` for the schema in a CRD, which
    /// cannot contain references.
    pub(super) document: &'s Value,
    /// The schema itself.
    pub(super) schema: &'s Value,
}

/// The content that a value can have according to its schemas.
#[derive(Default)]
struct Content<'s> {
    fields: BTreeMap<&'s str, &'s Value>,
    /// The schemas of the values of a map, whose keys can have any name.
    values: Vec<&'s Value>,
    elements: Vec<&'s Value>,
    /// True if the value can also have content that the schemas do not describe.
    is_open: bool,
}

impl ObjectSchema for ResourceSchema<'_> {
    fn type_at(&self, path: &[PathStep]) -> FieldType {
        let mut here = vec![self.schema];
        for (depth, step) in path.iter().enumerate() {
            let content = self.content(&here);
            here = match step {
                // A CEL macro such as `all` visits the keys of a map, which are strings.
                PathStep::Each if content.elements.is_empty() && !content.values.is_empty() => {
                    vec![&*TEXT]
                }
                PathStep::Each => content.elements,
                // An index can select any field of an object, and the fields can have different
                // types. So the schemas are unknown.
                PathStep::Index if !content.fields.is_empty() => Vec::new(),
                PathStep::Index => [content.elements, content.values].concat(),
                PathStep::Field(name) => match (depth, name.as_str()) {
                    (0, "apiVersion" | "kind") => vec![&*TEXT],
                    (0, "metadata") => vec![&*METADATA],
                    (_, name) => match content.fields.get(name) {
                        Some(field) => vec![*field],
                        None if content.values.is_empty() && !content.is_open => {
                            return missing(name, &content, depth);
                        }
                        None => content.values,
                    },
                },
            };
            if here.is_empty() {
                return FieldType::Any;
            }
        }
        match here.as_slice() {
            [schema] => self.type_of(schema),
            // Several schemas are possible, so the type is unknown.
            _ => FieldType::Any,
        }
    }
}

impl<'s> ResourceSchema<'s> {
    /// Returns the parts of a schema: the schema itself, and the parts of its references and
    /// combinations.
    fn parts(&self, schema: &'s Value) -> Vec<&'s Value> {
        let mut parts = Vec::new();
        let mut open = vec![schema];
        while let Some(schema) = open.pop() {
            if parts.len() >= MAX_PARTS {
                return vec![&*ANY];
            }
            parts.push(schema);
            if let Some(reference) = schema["$ref"].as_str() {
                let pointer = reference.strip_prefix('#');
                let found = pointer.and_then(|pointer| self.document.pointer(pointer));
                open.push(found.unwrap_or(&*ANY));
            }
            let combinations = ["allOf", "anyOf", "oneOf"].map(|key| schema[key].as_array());
            open.extend(combinations.into_iter().flatten().flatten());
        }
        parts
    }

    /// Returns the type of the values of a schema.
    fn type_of(&self, schema: &'s Value) -> FieldType {
        let parts = self.parts(schema);
        if parts.iter().any(|part| allows_several_types(part)) {
            return FieldType::Any;
        }
        let typed = parts.iter().filter(|part| !part["type"].is_null());
        let typed: Vec<&Value> = typed.copied().collect();
        let names = typed.iter().flat_map(|part| match &part["type"] {
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            one => Vec::from_iter(one.as_str()),
        });
        let names: BTreeSet<&str> = names.filter(|name| *name != "null").collect();
        let mut names = names.into_iter();
        match (names.next(), names.next()) {
            (Some("boolean"), None) => FieldType::Bool,
            (Some("integer"), None) => FieldType::Int,
            (Some("string"), None) => {
                // If several parts have a type, a part without `enum` allows every string.
                let listed = match typed.as_slice() {
                    [part] => part["enum"].as_array(),
                    _ => None,
                };
                let values = listed.into_iter().flatten().filter_map(Value::as_str);
                FieldType::String {
                    values: values.map(str::to_owned).collect(),
                }
            }
            (Some("array"), None) => FieldType::List,
            (Some("object"), None) => FieldType::Object,
            (None, _) if parts.iter().any(|part| part["properties"].is_object()) => {
                FieldType::Object
            }
            // The type `number` is here, because a number without a fraction can be an int or a
            // double in CEL.
            _ => FieldType::Any,
        }
    }

    /// Returns the content that a value with one of these schemas can have.
    fn content(&self, schemas: &[&'s Value]) -> Content<'s> {
        let mut content = Content::default();
        for schema in schemas {
            let parts = self.parts(schema);
            let (mut is_described, mut is_scalar) = (false, false);
            for part in &parts {
                let fields = part["properties"].as_object();
                let fields = fields.into_iter().flatten();
                let fields = fields.map(|(name, field)| (name.as_str(), field));
                content.fields.extend(fields);
                let values = &part["additionalProperties"];
                content
                    .values
                    .extend(Some(values).filter(|it| it.is_object()));
                let elements = &part["items"];
                content
                    .elements
                    .extend(Some(elements).filter(|it| !it.is_null()));
                is_described |= part["properties"].is_object() || !values.is_null();
                is_described |= !elements.is_null();
                is_scalar |= !matches!(part["type"].as_str(), None | Some("object"))
                    || part["x-kubernetes-int-or-string"] == true;
                content.is_open |= *values == true
                    || part["x-kubernetes-preserve-unknown-fields"] == true
                    || part["x-kubernetes-embedded-resource"] == true;
            }
            content.is_open |= !is_described && !is_scalar;
        }
        content
    }
}

/// Returns true if the values of a schema can be of several types, or of an unknown type.
fn allows_several_types(part: &Value) -> bool {
    let is_open = part["x-kubernetes-preserve-unknown-fields"] == true && part["type"].is_null();
    is_open
        || part["x-kubernetes-int-or-string"] == true
        || part["x-kubernetes-embedded-resource"] == true
}

/// Returns the type of a field that no object can have. `depth` is the number of steps before the
/// field.
fn missing(name: &str, content: &Content<'_>, depth: usize) -> FieldType {
    let always: &[&str] = if depth == 0 {
        &["apiVersion", "kind", "metadata"]
    } else {
        &[]
    };
    let names = content.fields.keys().chain(always);
    FieldType::Missing {
        nearest: nearest(name, names.copied()).map(str::to_owned),
    }
}
