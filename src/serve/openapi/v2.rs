//! Converts the OpenAPI document of version 3 to version 2 (Swagger). kube-aggregator requests
//! version 2 and merges it with the documents of other servers.

use super::SCHEMAS_V3;
use serde_json::{Map, Value, json};

/// The location of schemas in a document of version 2.
const SCHEMAS_V2: &str = "#/definitions/";

/// Returns the whole document.
pub(super) fn document(
    info: &Value,
    paths: &Map<String, Value>,
    schemas: &Map<String, Value>,
) -> Value {
    let mut paths = paths.clone();
    for item in paths.values_mut().filter_map(Value::as_object_mut) {
        for (key, value) in item.iter_mut() {
            if key == "parameters" {
                parameters(value);
            } else {
                operation(value);
            }
        }
    }
    let mut document = json!({
        "swagger": "2.0",
        "info": info,
        "paths": paths,
        "definitions": schemas,
    });
    references(&mut document);
    document
}

/// In version 2, a parameter has its type without a schema.
fn parameters(parameters: &mut Value) {
    for parameter in parameters.as_array_mut().into_iter().flatten() {
        if let Some(parameter) = parameter.as_object_mut()
            && let Some(Value::Object(schema)) = parameter.remove("schema")
        {
            parameter.extend(schema);
        }
    }
}

/// In version 2, the operation has the media types, and the response has the schema.
fn operation(operation: &mut Value) {
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

/// Changes every reference to the location of version 2. A reference with a description is moved
/// out of `allOf`, because readers of version 2 do not support that form.
fn references(value: &mut Value) {
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
            object.values_mut().for_each(references);
        }
        Value::Array(items) => items.iter_mut().for_each(references),
        _ => {}
    }
}
