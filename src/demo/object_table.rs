//! Shows the objects of the demo as a `Table`, as a kube-apiserver does. k9s requests tables of all
//! resources that it has no view for, such as virtual machines.

use crate::clock;
use axum::extract::Request;
use http::Method;
use http::header::ACCEPT;
use ifo_api::duration;
use jiff::Timestamp;
use serde_json::{Value, json};

/// How kubectl, k9s and other clients write the type of a table in the header `Accept`.
const TABLE: &str = "as=Table;v=v1;g=meta.k8s.io";

/// Returns the object or the list in the form that the client prefers.
pub fn requested(object: Value, request: &Request) -> Value {
    let accept = request.headers().get(ACCEPT);
    let accept = accept.and_then(|it| it.to_str().ok()).unwrap_or_default();
    if !accept.contains(TABLE) || request.method() != Method::GET {
        return object;
    }
    let query = request.uri().query().unwrap_or_default();
    let row = |item: &Value| {
        let metadata = &item["metadata"];
        let included = if query.contains("includeObject=Object") {
            item.clone()
        } else {
            json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
            })
        };
        json!({"cells": [metadata["name"], age(metadata)], "object": included})
    };
    let items = object["items"].as_array();
    let items = items.map_or(std::slice::from_ref(&object), Vec::as_slice);
    let rows: Vec<Value> = items.iter().map(row).collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": object["metadata"]["resourceVersion"]},
        "columnDefinitions": [
            {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
            {"name": "Age", "type": "string", "format": "", "description": "", "priority": 0},
        ],
        "rows": rows,
    })
}

/// Returns the time since the creation of an object, as kubectl prints it.
fn age(metadata: &Value) -> String {
    let created = metadata["creationTimestamp"].as_str();
    let created: Option<Timestamp> = created.and_then(|it| it.parse().ok());
    created.map_or("<unknown>".to_owned(), |it| {
        duration::human(clock::now().as_second() - it.as_second())
    })
}
