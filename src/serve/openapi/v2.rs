//! Version 2 of `OpenAPI` (Swagger) from the parts of version 3. kube-aggregator asks
//! for it and merges it with the other servers' documents.

use super::SCHEMAS_V3;
use serde_json::{Map, Value, json};

/// Where schemas stand in a document of version 2.
const SCHEMAS_V2: &str = "#/definitions/";

/// The whole document.
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

/// Parameters carry their type themselves.
fn parameters(parameters: &mut Value) {
    for parameter in parameters.as_array_mut().into_iter().flatten() {
        if let Some(parameter) = parameter.as_object_mut()
            && let Some(Value::Object(schema)) = parameter.remove("schema")
        {
            parameter.extend(schema);
        }
    }
}

/// Media types stand with the operation, schemas with the response.
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

/// Points every reference to the place where version 2 has its schemas, and takes those
/// with a description out of `allOf`, which readers of version 2 do not expect.
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
