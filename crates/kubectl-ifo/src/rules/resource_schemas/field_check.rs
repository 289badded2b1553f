//! Checks a path of fields, such as `status.phase`, against the schema of a resource. For a field
//! that no object can have, the check suggests the most similar field of the schema. This module
//! also finds the type of the value at a path.

use crate::suggestion::nearest;
use ifo_cel::{FieldType, ObjectSchema, PathStep};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Maximum number of nested references and combinations (`allOf`, `anyOf`, `oneOf`) that the check
/// follows for one field. Schemas can be recursive, so a limit is necessary. Beyond the limit, the
/// check accepts any field and any type.
const MAX_DEPTH: usize = 32;

/// The schema of `metadata`. The schemas in CRDs do not describe this field.
static METADATA: LazyLock<Value> = LazyLock::new(|| {
    let settings = SchemaSettings::default().with(|it| it.inline_subschemas = true);
    let schema = settings
        .into_generator()
        .into_root_schema_for::<ObjectMeta>();
    schema.to_value()
});

/// The schema of a string, which has no fields.
static TEXT: LazyLock<Value> = LazyLock::new(|| json!({"type": "string"}));

/// A field that no object can have, and the position of the field in the checked path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::rules) struct UnknownField {
    /// Number of steps before the field in the path.
    pub(in crate::rules) depth: usize,
    /// The name of the field.
    pub(in crate::rules) field: String,
    /// The path of the parent, such as `object.status`.
    pub(in crate::rules) parent: String,
    /// The most similar field of the parent. None if no field is similar enough.
    pub(in crate::rules) nearest: Option<String>,
}

/// The schema of the objects of a resource.
#[derive(Clone, Copy, Debug)]
pub(in crate::rules) struct SchemaRoot<'s> {
    /// The document to which references in the schema point. `Null` for the schema in a CRD, which
    /// cannot contain references.
    pub(super) document: &'s Value,
    /// The schema itself.
    pub(super) schema: &'s Value,
}

/// The content that a value can have according to its schemas.
#[derive(Default)]
struct SchemaContent<'s> {
    fields: BTreeMap<&'s str, &'s Value>,
    /// The schemas of the values of a map, whose keys can have any name.
    values: Vec<&'s Value>,
    elements: Vec<&'s Value>,
    /// True if the value can also have content that the schemas do not describe.
    allows_any_content: bool,
}

/// The types and values that schemas allow.
#[derive(Default)]
struct SchemaTypes<'s> {
    names: BTreeSet<&'s str>,
    /// The possible strings. None if a schema does not list its possible strings.
    values: Option<Vec<String>>,
    /// Number of schemas whose types were added, with or without a list of possible strings.
    count: usize,
    /// True if a schema does not limit the type.
    allows_any_type: bool,
}

impl SchemaTypes<'_> {
    fn add_values(&mut self, listed: &Value) {
        let values = listed.as_array().map(|listed| {
            let values = listed.iter().filter_map(Value::as_str);
            values.map(str::to_owned).collect::<Vec<_>>()
        });
        self.count += 1;
        self.values = match (self.values.take(), values) {
            (None, values) if self.count == 1 => values,
            (Some(own), Some(more)) => Some(own.into_iter().chain(more).collect()),
            _ => None,
        };
    }
}

impl ObjectSchema for SchemaRoot<'_> {
    fn type_at(&self, path: &[PathStep]) -> FieldType {
        let schemas = self.schemas_at(path);
        let mut types = SchemaTypes::default();
        for schema in &schemas {
            self.gather_types(schema, &mut types, 0);
        }
        // If several schemas are possible for the value, the result lists no possible strings.
        let values = types.values.filter(|_| schemas.len() == 1);
        let mut names = types.names.into_iter();
        match (names.next(), names.next(), types.allows_any_type) {
            (Some("boolean"), None, false) => FieldType::Bool,
            (Some("integer"), None, false) => FieldType::Int,
            (Some("string"), None, false) => FieldType::String {
                values: values.unwrap_or_default(),
            },
            (Some("array"), None, false) => FieldType::List,
            (Some("object"), None, false) => FieldType::Object,
            // The type `number` is here, because a number without a fraction can be an int or a
            // double in CEL.
            _ => FieldType::Any,
        }
    }
}

impl<'s> SchemaRoot<'s> {
    /// Returns the first field in `path` that no object can have. Returns None if there is no such
    /// field in the part of the path that the schema describes. The rest of the path is not
    /// checked.
    pub(in crate::rules) fn first_unknown_field(&self, path: &[PathStep]) -> Option<UnknownField> {
        let mut parent = "object".to_owned();
        let mut here = vec![self.schema];
        for (depth, step) in path.iter().enumerate() {
            let inside = self.inside(&here);
            here = match step {
                PathStep::Index | PathStep::Each => {
                    parent.push_str("[]");
                    // A CEL macro such as `all` visits the keys of a map. A schema does not
                    // describe the keys, so the rest of the path is not checked.
                    if *step == PathStep::Each && inside.elements.is_empty() {
                        return None;
                    }
                    inside.elements.into_iter().chain(inside.values).collect()
                }
                PathStep::Field(name) => {
                    let known = match (depth, name.as_str()) {
                        (0, "apiVersion" | "kind") => Some(&*TEXT),
                        (0, "metadata") => Some(&*METADATA),
                        _ => inside.fields.get(name.as_str()).copied(),
                    };
                    if known.is_none() && inside.values.is_empty() {
                        return (!inside.allows_any_content)
                            .then(|| unknown(name, parent, &inside, depth));
                    }
                    parent.push('.');
                    parent.push_str(name);
                    known.map_or(inside.values, |known| vec![known])
                }
            };
            if here.is_empty() {
                return None;
            }
        }
        None
    }

    /// Returns the schemas of the value at a path. The list is empty if the schemas are unknown.
    fn schemas_at(&self, path: &[PathStep]) -> Vec<&'s Value> {
        let mut here = vec![self.schema];
        for (depth, step) in path.iter().enumerate() {
            let inside = self.inside(&here);
            here = match step {
                PathStep::Each if inside.elements.is_empty() && inside.values.is_empty() => {
                    Vec::new()
                }
                // A CEL macro such as `all` visits the keys of a map, which are strings.
                PathStep::Each if inside.elements.is_empty() => vec![&*TEXT],
                PathStep::Each => inside.elements,
                // An index can select any field of an object, and the fields can have different
                // types. So the schemas are unknown.
                PathStep::Index if !inside.fields.is_empty() => Vec::new(),
                PathStep::Index => inside.elements.into_iter().chain(inside.values).collect(),
                PathStep::Field(name) => match (depth, name.as_str()) {
                    (0, "apiVersion" | "kind") => vec![&*TEXT],
                    (0, "metadata") => vec![&*METADATA],
                    _ => match inside.fields.get(name.as_str()) {
                        Some(field) => vec![field],
                        None => inside.values,
                    },
                },
            };
        }
        here
    }

    /// Adds to `types` the types that `schema` allows.
    fn gather_types(&self, schema: &'s Value, types: &mut SchemaTypes<'s>, depth: usize) {
        if depth > MAX_DEPTH
            || schema["x-kubernetes-int-or-string"] == true
            || schema["x-kubernetes-embedded-resource"] == true
        {
            types.allows_any_type = true;
            return;
        }
        if let Some(reference) = schema["$ref"].as_str() {
            let found = reference
                .strip_prefix('#')
                .and_then(|pointer| self.document.pointer(pointer));
            match found {
                Some(found) => self.gather_types(found, types, depth + 1),
                None => types.allows_any_type = true,
            }
            return;
        }
        let own: Vec<&str> = match &schema["type"] {
            Value::String(own) => vec![own],
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !own.is_empty() {
            types
                .names
                .extend(own.into_iter().filter(|own| *own != "null"));
            types.add_values(&schema["enum"]);
            return;
        }
        // If the schema has no `type`, the parts of its combinations define the types.
        let mut has_parts = false;
        for key in ["allOf", "anyOf", "oneOf"] {
            for part in schema[key].as_array().into_iter().flatten() {
                has_parts = true;
                if part["type"] != "null" {
                    self.gather_types(part, types, depth + 1);
                }
            }
        }
        match (has_parts, &schema["properties"]) {
            (true, _) => {}
            (false, Value::Object(_)) => {
                types.names.insert("object");
            }
            _ => types.allows_any_type = true,
        }
    }

    /// Returns the content that a value with these schemas can have.
    fn inside(&self, schemas: &[&'s Value]) -> SchemaContent<'s> {
        let mut inside = SchemaContent::default();
        for schema in schemas {
            self.gather_content(schema, &mut inside, 0);
        }
        inside
    }

    /// Adds to `inside` the content that `schema` defines.
    fn gather_content(&self, schema: &'s Value, inside: &mut SchemaContent<'s>, depth: usize) {
        if depth > MAX_DEPTH {
            inside.allows_any_content = true;
            return;
        }
        if let Some(reference) = schema["$ref"].as_str() {
            let found = reference
                .strip_prefix('#')
                .and_then(|pointer| self.document.pointer(pointer));
            match found {
                Some(found) => self.gather_content(found, inside, depth + 1),
                None => inside.allows_any_content = true,
            }
            return;
        }
        let mut combined = false;
        for key in ["allOf", "anyOf", "oneOf"] {
            for part in schema[key].as_array().into_iter().flatten() {
                // A part that only restricts values, such as `required`, defines no fields, so it
                // is left out.
                let defining_keys = ["$ref", "properties", "items", "allOf", "anyOf", "oneOf"];
                if defining_keys.iter().any(|key| part.get(key).is_some()) {
                    combined = true;
                    self.gather_content(part, inside, depth + 1);
                }
            }
        }
        let fields = schema["properties"].as_object();
        inside.fields.extend(
            fields
                .into_iter()
                .flatten()
                .map(|(name, field)| (name.as_str(), field)),
        );
        match &schema["additionalProperties"] {
            Value::Bool(open) => inside.allows_any_content |= open,
            values @ Value::Object(_) => inside.values.push(values),
            _ => {}
        }
        if !schema["items"].is_null() {
            inside.elements.push(&schema["items"]);
        }
        let object = matches!(schema["type"].as_str(), None | Some("object"));
        let scalar = schema["x-kubernetes-int-or-string"] == true;
        let defines_nothing = fields.is_none()
            && schema["additionalProperties"].is_null()
            && schema["items"].is_null();
        inside.allows_any_content |= schema["x-kubernetes-preserve-unknown-fields"] == true
            || schema["x-kubernetes-embedded-resource"] == true
            || (defines_nothing && object && !scalar && !combined);
    }
}

fn unknown(name: &str, parent: String, inside: &SchemaContent<'_>, depth: usize) -> UnknownField {
    let always: &[&str] = if depth == 0 {
        &["apiVersion", "kind", "metadata"]
    } else {
        &[]
    };
    let names = inside.fields.keys().chain(always);
    UnknownField {
        depth,
        nearest: nearest(name, names.copied()).map(str::to_owned),
        field: name.to_owned(),
        parent,
    }
}

impl std::fmt::Display for UnknownField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} has no field '{}'", self.parent, self.field)?;
        match &self.nearest {
            Some(nearest) => write!(f, "; the nearest is '{nearest}'"),
            None => Ok(()),
        }
    }
}
