//! Finds the type of a field in the schema of a resource, and detects fields that the schema does
//! not have.

use ifo_cel::{FieldType, ObjectSchema, PathStep, nearest_value};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Largest number of references that are followed to find one schema. References can form a cycle,
/// so a limit is necessary. If the limit is reached, the schema allows any value.
const MAX_REFERENCES: usize = 64;

/// The schema of `metadata`. The schemas in CRDs do not describe this field.
pub(super) static METADATA: LazyLock<Value> = LazyLock::new(|| {
    let settings = SchemaSettings::default().with(|it| it.inline_subschemas = true);
    let generator = settings.into_generator();
    generator.into_root_schema_for::<ObjectMeta>().to_value()
});

/// The schema of a string.
pub(super) static TEXT: LazyLock<Value> = LazyLock::new(|| json!({"type": "string"}));

/// The schema of a value with any content.
static ANY: LazyLock<Value> =
    LazyLock::new(|| json!({"x-kubernetes-preserve-unknown-fields": true}));

/// The schema of the objects of a resource.
#[derive(Clone, Copy, Debug)]
pub(in crate::rules) struct ResourceSchema<'s> {
    /// The document to which references in the schema point.
    pub(super) document: &'s Value,
    /// The schema itself.
    pub(super) schema: &'s Value,
}

impl ObjectSchema for ResourceSchema<'_> {
    fn type_at(&self, path: &[PathStep]) -> FieldType {
        let mut schema = self.schema;
        for step in path {
            let here = self.resolve(schema);
            let (items, values) = (&here["items"], &here["additionalProperties"]);
            schema = match step {
                PathStep::Field(name) => match here["properties"].get(name) {
                    Some(field) => field,
                    None if values.is_object() => values,
                    None if is_open(here) => &*ANY,
                    None => return missing(name, here),
                },
                // An index can select any field of an object, and the fields can have different
                // types. So the type is unknown.
                PathStep::Index if here["properties"].is_object() => &*ANY,
                PathStep::Index | PathStep::Each if !items.is_null() => items,
                PathStep::Index if values.is_object() => values,
                // A CEL macro such as `all` visits the keys of a map, which are strings.
                PathStep::Each if values.is_object() => &*TEXT,
                PathStep::Index | PathStep::Each => &*ANY,
            };
        }
        type_of(self.resolve(schema))
    }
}

impl<'s> ResourceSchema<'s> {
    /// Follows the references of a schema. In OpenAPI documents of Kubernetes, a field refers to
    /// its schema with `$ref`, or with an `allOf` of one element. In CRDs, `allOf`, `anyOf` and
    /// `oneOf` have neither fields nor types, because the schemas are structural.
    fn resolve(&self, mut schema: &'s Value) -> &'s Value {
        for _ in 0..MAX_REFERENCES {
            let part = match schema["allOf"].as_array().map(Vec::as_slice) {
                Some([part]) => part,
                _ => schema,
            };
            let Some(reference) = part["$ref"].as_str() else {
                return schema;
            };
            let pointer = reference.strip_prefix('#');
            let found = pointer.and_then(|pointer| self.document.pointer(pointer));
            schema = found.unwrap_or(&*ANY);
        }
        &ANY
    }
}

/// Returns the type of the values of a schema.
fn type_of(schema: &Value) -> FieldType {
    let allows_any_field = schema["x-kubernetes-preserve-unknown-fields"] == true;
    if schema["x-kubernetes-embedded-resource"] == true
        || schema["type"].is_null() && (allows_any_field || !schema["properties"].is_object())
    {
        return FieldType::Any;
    }
    match schema["type"].as_str() {
        Some("boolean") => FieldType::Bool,
        Some("integer") => FieldType::Int,
        Some("string") => {
            let values = schema["enum"].as_array().into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(str::to_owned);
            FieldType::String {
                values: values.collect(),
            }
        }
        Some("array") => FieldType::List,
        Some("object") | None => FieldType::Object,
        // The type `number` is here, because a number without a fraction can be an int or a double
        // in CEL.
        _ => FieldType::Any,
    }
}

/// Returns true if the value can have fields that its schema does not describe.
fn is_open(schema: &Value) -> bool {
    let is = |mark: &str| schema[mark] == true;
    let is_scalar = !matches!(schema["type"].as_str(), None | Some("object"))
        || is("x-kubernetes-int-or-string");
    let described = ["properties", "additionalProperties", "items"];
    is("x-kubernetes-preserve-unknown-fields")
        || is("x-kubernetes-embedded-resource")
        || is("additionalProperties")
        || !is_scalar && described.iter().all(|it| schema[*it].is_null())
}

/// Returns the type of a field that no object can have.
fn missing(name: &str, schema: &Value) -> FieldType {
    let fields = schema["properties"].as_object().into_iter().flatten();
    let names = fields.map(|(name, _)| name.as_str());
    FieldType::Missing {
        nearest: nearest_value(name, names).map(str::to_owned),
    }
}
