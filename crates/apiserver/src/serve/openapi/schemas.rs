//! Creates the schemas of the `OpenAPI` documents. The crate `schemars` creates JSON schemas for
//! Rust types. This module converts them to `OpenAPI` definitions in the form that Kubernetes
//! publishes:
//!
//! - The names of definitions begin with a package, such as `io.kubevirt.ifo.live.v1alpha1.`.
//! - The type null and the keyword `oneOf` do not occur.
//! - A reference that has a description is inside `allOf`.

use super::{Documented, SCHEMAS_V3};
use crate::serve::resource::ResourceInfo;
use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// The text before the list of values in the description of an enum, as Kubernetes writes it.
const ENUM_VALUES: &str = "\n\nPossible enum values:";

const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const LIST_METADATA: &str = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// Returns the definitions of the objects and lists of `resources`, by name.
pub(super) fn describe(resources: &[Documented<'_>]) -> Map<String, Value> {
    let mut definitions = Map::new();
    add::<v1::ObjectMeta>(&mut definitions);
    add::<v1::ListMeta>(&mut definitions);
    for (resource, fields) in resources {
        add_kind(&mut definitions, resource, fields);
        definitions.insert(list_name(resource), list(resource));
    }
    definitions
}

/// Returns the name of the definition of one object of `resource`.
pub(super) fn object_name(resource: &ResourceInfo) -> String {
    format!("{}{}", package(resource), resource.kind)
}

/// Returns the name of the definition of a list of `resource`.
pub(super) fn list_name(resource: &ResourceInfo) -> String {
    format!("{}{}", package(resource), resource.list_kind)
}

/// Returns a reference to the definition `name`.
pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("{SCHEMAS_V3}{name}")})
}

/// Returns the value of the extension `x-kubernetes-group-version-kind`, which connects a
/// definition or a path to a kind. To find the schema of a resource, kubectl reads this extension.
pub(super) fn group_version_kind(resource: &ResourceInfo, kind: &str) -> Value {
    json!({"group": resource.group, "version": resource.version, "kind": kind})
}

/// Returns the start of the names of a resource's definitions: the domain of the group in reverse
/// order, and the version, such as `io.kubevirt.ifo.live.v1alpha1.`.
fn package(resource: &ResourceInfo) -> String {
    let mut parts: Vec<&str> = resource.group.rsplit('.').collect();
    parts.push(resource.version);
    parts.join(".") + "."
}

/// Adds the definitions of a Kubernetes type and of the types that it contains. The names of these
/// types already contain a package.
fn add<T: JsonSchema>(definitions: &mut Map<String, Value>) {
    let mut generator = SchemaGenerator::new(SchemaSettings::draft2020_12());
    generator.subschema_for::<T>();
    for (name, mut schema) in generator.take_definitions(true) {
        convert(&mut schema, "");
        definitions.insert(name, schema);
    }
}

/// Adds the definition of a resource's kind, and the definitions of the types inside this kind.
fn add_kind(definitions: &mut Map<String, Value>, resource: &ResourceInfo, fields: &[&str]) {
    let package = package(resource);
    let mut root = (resource.schema)().to_value();
    let object = root
        .as_object_mut()
        .expect("the schema of a struct is an object");
    object.remove("$schema");
    object.remove("title");
    if let Some(Value::Object(own)) = object.remove("$defs") {
        for (name, mut schema) in own {
            convert(&mut schema, &package);
            definitions.insert(qualify(&name, &package), schema);
        }
    }
    convert(&mut root, &package);
    inline_enums(definitions);
    let properties = &mut root["properties"];
    for (name, schema) in [
        (
            "apiVersion",
            json!({"type": "string", "description": API_VERSION}),
        ),
        ("kind", json!({"type": "string", "description": KIND})),
        (
            "metadata",
            described(&v1::ObjectMeta::schema_name(), METADATA),
        ),
    ] {
        // The schemas of types that kube's macro `CustomResource` creates lack these three fields.
        if properties[name].is_null() {
            properties[name] = schema;
        }
    }
    for name in ["spec", "status"] {
        // A field that consists only of a `$ref` has no description. Such a field gets the
        // description of its type.
        if let Some(target) = properties[name]["$ref"].as_str() {
            let name_of_type = target.trim_start_matches(SCHEMAS_V3);
            if let Some(Value::String(description)) = definitions
                .get(name_of_type)
                .map(|schema| &schema["description"])
            {
                properties[name] = described(name_of_type, description);
            }
        }
    }
    if let Some(Value::Array(required)) = root.get_mut("required") {
        required.retain(|name| name != "apiVersion" && name != "kind" && name != "metadata");
    }
    root["x-kubernetes-group-version-kind"] = json!([group_version_kind(resource, resource.kind)]);
    if !fields.is_empty() {
        let fields = fields.iter().map(|path| json!({"fieldPath": path}));
        root["x-kubernetes-selectable-fields"] = fields.collect();
    }
    definitions.insert(object_name(resource), root);
}

fn list(resource: &ResourceInfo) -> Value {
    let order = if resource.namespaced {
        "the text `namespace/name`"
    } else {
        "name"
    };
    json!({
        "description": format!("{} is a list of {}.", resource.list_kind, resource.kind),
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
        "x-kubernetes-group-version-kind": [group_version_kind(resource, resource.list_kind)],
    })
}

/// Returns a reference that has a description. The reference is inside `allOf`, because an object
/// with `$ref` must not have other keys.
fn described(name: &str, description: &str) -> Value {
    json!({"description": description, "allOf": [reference(name)]})
}

/// Adds the package to the name of a definition of this project. Names of Kubernetes' definitions
/// already contain a package.
fn qualify(name: &str, package: &str) -> String {
    if name.contains('.') {
        name.to_owned()
    } else {
        format!("{package}{name}")
    }
}

/// Converts one schema and all schemas inside it.
fn convert(schema: &mut Value, package: &str) {
    let Value::Object(object) = schema else {
        return;
    };
    drop_null(object);
    merge_enum(object);
    simplify_integer(object);
    if let Some(Value::String(text)) = object.get_mut("description") {
        *text = join_lines(text);
    }
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        for property in properties.values_mut() {
            convert(property, package);
        }
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = object.get_mut(inner) {
            convert(inner, package);
        }
    }
    if let Some(Value::String(target)) = object.remove("$ref") {
        let name = target.strip_prefix("#/$defs/").unwrap_or(&target);
        let reference = reference(&qualify(name, package));
        if object.is_empty() {
            *schema = reference;
        } else {
            object.insert("allOf".to_owned(), json!([reference]));
        }
    }
}

/// Copies the definition of each enum into the fields that refer to it, and removes the definition,
/// as in Kubernetes. So `kubectl explain` lists the values of these fields.
fn inline_enums(definitions: &mut Map<String, Value>) {
    let mut enums = Map::new();
    definitions.retain(|name, schema| {
        let is_enum = schema.get("enum").is_some();
        if is_enum {
            enums.insert(format!("{SCHEMAS_V3}{name}"), schema.take());
        }
        !is_enum
    });
    let fields = definitions
        .values_mut()
        .filter_map(|schema| schema.get_mut("properties")?.as_object_mut())
        .flat_map(Map::values_mut)
        .filter_map(Value::as_object_mut);
    for field in fields {
        let target = field
            .get("allOf")
            .map_or(field.get("$ref"), |parts| parts[0].get("$ref"));
        let Some(found) = target.and_then(|target| enums.get(target.as_str()?)) else {
            continue;
        };
        let mut merged = found.clone();
        if let (Some(Value::String(own)), Some(values)) =
            (field.get("description"), merged["description"].as_str())
        {
            let values = values.find(ENUM_VALUES).map_or("", |at| &values[at..]);
            merged["description"] = json!(format!("{own}{values}"));
        }
        if let Value::Object(merged) = merged {
            *field = merged;
        }
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

/// Converts the schema of an enum whose variants have descriptions. `schemars` creates a `oneOf`
/// with one constant for each variant. The result is an `enum`, and its description lists the
/// variants, as in Kubernetes.
fn merge_enum(object: &mut Map<String, Value>) {
    let Some(Value::Array(variants)) = object.get("oneOf") else {
        return;
    };
    let mut values = Vec::new();
    let mut text = String::from(ENUM_VALUES);
    for variant in variants {
        let (Some(Value::String(value)), Some(Value::String(description))) =
            (variant.get("const"), variant.get("description"))
        else {
            return;
        };
        values.push(json!(value));
        write!(text, "\n - `\"{value}\"` {}", join_lines(description))
            .expect("writing to a String cannot fail");
    }
    object.remove("oneOf");
    object.insert("type".to_owned(), json!("string"));
    object.insert("enum".to_owned(), Value::Array(values));
    let description = match object.get("description") {
        Some(Value::String(description)) => join_lines(description) + &text,
        _ => text.trim_start().to_owned(),
    };
    object.insert("description".to_owned(), json!(description));
}

/// Joins the lines of each paragraph, because clients wrap descriptions themselves. A list item stays a
/// separate line.
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
