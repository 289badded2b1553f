//! Creates the schemas of the `OpenAPI` documents. The crate `schemars` creates JSON schemas for
//! Rust types. This module converts them to the form that Kubernetes publishes:
//!
//! - The schema of a resource contains the schemas of all its fields, like the schema of a custom
//!   resource. Only the schema of the metadata is a reference.
//! - The type null and the keyword `oneOf` do not occur.
//! - A reference with a description is inside `allOf`.

use crate::serve::resource::{AnyResource, ResourceInfo};
use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform as _};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const LIST_METADATA: &str = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// Returns all schemas of a document by name.
pub(super) fn describe(resources: &[&AnyResource]) -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
    });
    let mut generator = settings.into_generator();
    generator.subschema_for::<v1::ObjectMeta>();
    generator.subschema_for::<v1::ListMeta>();
    let mut definitions = generator.take_definitions(true);
    for schema in definitions.values_mut() {
        if let Ok(schema) = <&mut Schema>::try_from(schema) {
            RecursiveTransform(simplify).transform(schema);
        }
    }
    for resource in resources {
        definitions.insert(object_name(&resource.info), object(resource));
        definitions.insert(list_name(&resource.info), list(&resource.info));
    }
    definitions
}

/// Returns the name of the schema of one object.
pub(super) fn object_name(resource: &ResourceInfo) -> String {
    format!("{}{}", package(resource), resource.kind)
}

/// Returns the name of the schema of a list.
pub(super) fn list_name(resource: &ResourceInfo) -> String {
    format!("{}{}", package(resource), resource.list_kind())
}

/// Returns a reference to a schema.
pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Returns the group, version and kind with which kubectl finds a path or a schema.
pub(super) fn group_version_kind(resource: &ResourceInfo, kind: &str) -> Value {
    json!({"group": resource.group, "version": resource.version, "kind": kind})
}

/// Returns the start of the names of a resource's schemas, such as `com.example.v1.`.
fn package(resource: &ResourceInfo) -> String {
    let mut parts: Vec<&str> = resource.group.rsplit('.').collect();
    parts.push(resource.version);
    parts.join(".") + "."
}

/// Returns the schema of one object.
fn object(resource: &AnyResource) -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let mut schema = (resource.schema)(&mut settings.into_generator());
    RecursiveTransform(simplify).transform(&mut schema);
    let mut root = schema.to_value();
    let properties = &mut root["properties"];
    properties["apiVersion"] = json!({"type": "string", "description": API_VERSION});
    properties["kind"] = json!({"type": "string", "description": KIND});
    properties["metadata"] = described(&v1::ObjectMeta::schema_name(), METADATA);
    if let Some(Value::Array(required)) = root.get_mut("required") {
        required.retain(|name| name != "apiVersion" && name != "kind" && name != "metadata");
    }
    let info = &resource.info;
    root["x-kubernetes-group-version-kind"] = json!([group_version_kind(info, info.kind)]);
    if !resource.fields.is_empty() {
        let fields = resource.fields.iter();
        let fields = fields.map(|path| json!({"fieldPath": path}));
        root["x-kubernetes-selectable-fields"] = fields.collect();
    }
    root
}

fn list(resource: &ResourceInfo) -> Value {
    let order = if resource.namespaced {
        "the text `namespace/name`"
    } else {
        "name"
    };
    json!({
        "description": format!("{} is a list of {}.", resource.list_kind(), resource.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": API_VERSION},
            "kind": {"type": "string", "description": KIND},
            "metadata": described(&v1::ListMeta::schema_name(), LIST_METADATA),
            "items": {
                "type": "array",
                "description": format!("The objects, sorted by {order}."),
                "items": reference(&object_name(resource)),
            },
        },
        "x-kubernetes-group-version-kind": [group_version_kind(resource, &resource.list_kind())],
    })
}

/// Returns a reference with a description.
fn described(name: &str, description: &str) -> Value {
    json!({"description": description, "allOf": [reference(name)]})
}

/// Converts one schema, but not its subschemas. The caller applies this function recursively.
fn simplify(schema: &mut Schema) {
    let object = schema.ensure_object();
    object.remove("title");
    drop_null(object);
    merge_enum(object);
    simplify_integer(object);
    if let Some(Value::String(text)) = object.get_mut("description") {
        *text = join_lines(text);
    }
    if object.len() > 1
        && let Some(target) = object.remove("$ref")
    {
        object.insert("allOf".to_owned(), json!([{ "$ref": target }]));
    }
}

/// Removes null from a schema. The schema of a Rust `Option<T>` allows `T` and null, but Kubernetes
/// objects omit an absent field.
fn drop_null(object: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if object.get("default").is_some_and(Value::is_null) {
        object.remove("default");
    }
    let null = json!({"type": "null"});
    if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
        choices.retain(|choice| *choice != null);
        if let [Value::Object(only)] = choices.as_slice() {
            let only = only.clone();
            object.remove("anyOf");
            for (key, value) in only {
                // The field keeps its own description, which is more precise than the description
                // of its type.
                object.entry(key).or_insert(value);
            }
        }
    }
}

/// Replaces an enum whose values have descriptions (`oneOf`) by an enum without them.
fn merge_enum(object: &mut Map<String, Value>) {
    let variants = object.get("oneOf").and_then(Value::as_array);
    let values = variants.map(|all| all.iter().filter_map(|it| it.get("const").cloned()));
    if let Some(values) = values.map(Iterator::collect::<Value>) {
        object.remove("oneOf");
        object.insert("type".to_owned(), json!("string"));
        object.insert("enum".to_owned(), values);
    }
}

/// Joins the lines of each paragraph, because clients wrap descriptions themselves. A list item
/// stays a separate line.
fn join_lines(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    for line in text.lines() {
        let begins_paragraph = joined.is_empty() || joined.ends_with('\n') || line.is_empty();
        if begins_paragraph || line.starts_with([' ', '-', '*']) {
            if !joined.is_empty() {
                joined.push('\n');
            }
        } else {
            joined.push(' ');
        }
        joined.push_str(line);
    }
    joined
}

/// Replaces the format of an integer by `int32` or `int64`, which are the only integer formats in
/// `OpenAPI`. For example, `uint8` becomes `int32`. If the function replaces the format, it also
/// removes the maximum: the largest value of the Rust type, such as 255.
fn simplify_integer(object: &mut Map<String, Value>) {
    let format = match object.get("format").and_then(Value::as_str) {
        Some("uint8" | "uint16" | "int8" | "int16") => "int32",
        Some("uint32" | "uint64" | "uint") => "int64",
        _ => return,
    };
    object.insert("format".to_owned(), json!(format));
    object.remove("maximum");
}
