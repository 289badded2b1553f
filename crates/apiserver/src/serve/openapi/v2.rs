//! Converts the `OpenAPI` paths and schemas of version 3 to a document of version 2 (Swagger). The
//! kube-apiserver requests this document and merges it with the documents of other servers.

use super::SCHEMAS_V3;
use serde_json::{Map, Value, json};

/// The start of references to schemas in a document of version 2.
const SCHEMAS_V2: &str = "#/definitions/";

/// Returns the document of version 2 for paths and schemas of version 3.
pub(super) fn document(
    info: &Value,
    paths: &Map<String, Value>,
    schemas: &Map<String, Value>,
) -> Value {
    let mut paths = paths.clone();
    for item in paths.values_mut().filter_map(Value::as_object_mut) {
        for (key, value) in item.iter_mut() {
            if key == "parameters" {
                convert_parameters(value);
            } else {
                convert_operation(value);
            }
        }
    }
    let mut document = json!({
        "swagger": "2.0",
        "info": info,
        "paths": paths,
        "definitions": schemas,
    });
    convert_references(&mut document);
    document
}

/// Converts parameters. In version 2, the type is a field of the parameter and not of its schema.
fn convert_parameters(parameters: &mut Value) {
    for parameter in parameters.as_array_mut().into_iter().flatten() {
        if let Some(parameter) = parameter.as_object_mut()
            && let Some(Value::Object(schema)) = parameter.remove("schema")
        {
            parameter.extend(schema);
        }
    }
}

/// Converts an `OpenAPI` operation (one HTTP method of one path). In version 2, the media types are
/// fields of the operation, and the schema is a field of the response.
fn convert_operation(operation: &mut Value) {
    let mut produces = Value::Null;
    let responses = operation["responses"].as_object_mut();
    for (code, response) in responses.into_iter().flatten() {
        let Some(response) = response.as_object_mut() else {
            continue;
        };
        if let Some(Value::Object(content)) = response.remove("content") {
            if code == "200" {
                produces = content.keys().cloned().collect();
            }
            if let Some((_, mut media_type)) = content.into_iter().next() {
                response.insert("schema".to_owned(), media_type["schema"].take());
            }
        }
    }
    operation["consumes"] = produces.clone();
    operation["produces"] = produces;
    operation["schemes"] = json!(["https"]);
}

/// Converts all references below `value`. A reference that has a description is moved out of
/// `allOf`, because clients of version 2 do not support references inside `allOf`.
fn convert_references(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if let Some(Value::Array(parts)) = object.get("allOf")
                && let [Value::Object(only)] = parts.as_slice()
                && let Some(target) = only.get("$ref").cloned()
            {
                object.remove("allOf");
                object.insert("$ref".to_owned(), target);
            }
            if let Some(Value::String(target)) = object.get_mut("$ref")
                && let Some(name) = target.strip_prefix(SCHEMAS_V3)
            {
                *target = format!("{SCHEMAS_V2}{name}");
            }
            object.values_mut().for_each(convert_references);
        }
        Value::Array(items) => items.iter_mut().for_each(convert_references),
        _ => {}
    }
}
