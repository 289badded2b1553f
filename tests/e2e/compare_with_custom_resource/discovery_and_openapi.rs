//! Compares the descriptions of two resources in aggregated discovery and in OpenAPI.
//! `ifo-apiserver` serves the live resource, and the kube-apiserver serves the custom resource with
//! the same schema. These documents describe the whole cluster, so the test compares only the parts
//! about the two resources.

use super::compare::Comparison;
use super::exchange::Pair;
use super::side::Side;
use super::test_objects::Twin;
use crate::harness::{DEADLINE, OPERATION, text};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// The media type of aggregated discovery in Kubernetes 1.30 and later.
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Largest depth to which references between schemas are resolved. Deeper references stay as they
/// are. The deepest schema (the conditions of an operation) has fewer levels.
const DEPTH: usize = 12;

/// Pause between two reads of the documents. At each read, the kube-apiserver uses processor time
/// to build the documents.
const PAUSE: Duration = Duration::from_secs(2);

/// Compares the documents. The documents can be old, because the kube-apiserver reads the documents
/// of aggregated servers only once a minute. So the comparison is repeated until the descriptions
/// agree, at most for [`DEADLINE`].
pub async fn compare(twin: &Twin, comparison: &mut Comparison) {
    let deadline = Instant::now() + DEADLINE;
    let mut agree = |(name, pair): &(String, Pair)| {
        !pair.custom.is_null() && comparison.compare_and_record(name, pair)
    };
    let mut pairs = read(twin).await;
    while !pairs.iter().all(&mut agree) && Instant::now() < deadline {
        tokio::time::sleep(PAUSE).await;
        pairs = read(twin).await;
    }
    for (name, pair) in &pairs {
        assert!(exists(pair), "the custom resource has no {name}");
        comparison.add(name, pair);
    }
}

/// Returns true if the document describes the custom resource. Without this check, two missing
/// descriptions would count as equal.
fn exists(pair: &Pair) -> bool {
    ![Value::Null, json!({}), json!(false)].contains(&pair.custom)
}

/// Reads all documents. Returns one pair for each compared part of the documents, with the name of
/// the part. The pair contains this part for both resources.
async fn read(twin: &Twin) -> Vec<(String, Pair)> {
    let headers = [("Accept", DISCOVERY)];
    let discovery = twin.caller().get_with("/apis", &headers).await.ok();
    let groups = |side: &Side| {
        let groups = discovery["items"].as_array().into_iter().flatten();
        let mut own = groups.filter(|group| group["metadata"]["name"] == side.group);
        let mut group = own.next().cloned().unwrap_or_default();
        // The live group has two more resources, `operationrecords` and `activities`.
        for version in group["versions"].as_array_mut().into_iter().flatten() {
            if let Some(resources) = version["resources"].as_array_mut() {
                resources.retain(|it| {
                    it["resource"] != "operationrecords" && it["resource"] != "activities"
                });
            }
        }
        group
    };
    let index = twin.caller().get("/openapi/v3").await.ok();
    let url = |side: &Side| {
        let path = format!("apis/{}/v1alpha1", side.group);
        let url = index["paths"][path]["serverRelativeURL"].as_str();
        url.map(str::to_owned)
    };
    let has_hash = |side: &Side| {
        let url = url(side).unwrap_or_default();
        let hash = url.split_once("?hash=").map(|(_, hash)| hash.len());
        json!(hash.is_some_and(|length| length > 8))
    };
    let document = async |side: &Side| match url(side) {
        Some(url) => twin.caller().get(&url).await.ok(),
        None => Value::Null,
    };
    let third = [document(&twin.live).await, document(&twin.custom).await];
    let third = |side: &Side| &third[usize::from(side.group == twin.custom.group)];
    let of_third = "/components/schemas";
    vec![
        pair(twin, "aggregated discovery", groups),
        pair(twin, "hash of OpenAPI v3", has_hash),
        pair(twin, "schema in OpenAPI v3", |side| {
            schema(third(side), of_third, side)
        }),
        pair(twin, "paths in OpenAPI v3", |side| {
            paths(third(side), of_third, side)
        }),
    ]
}

fn pair(twin: &Twin, what: &str, of: impl Fn(&Side) -> Value) -> (String, Pair) {
    let masked = |side: &Side| {
        let mut text = of(side).to_string();
        for (number, name) in forms(side.group).iter().enumerate() {
            text = text.replace(name, &format!("GROUP{number}"));
        }
        let mut masked =
            serde_json::from_str(&text).expect("the masked names need no escaping in JSON");
        without_descriptions(&mut masked);
        masked
    };
    let pair = Pair {
        live: masked(&twin.live),
        custom: masked(&twin.custom),
    };
    (format!("DOCUMENT {what}"), pair)
}

/// Replaces each text in a field `description` by the same fixed text. Empty texts stay empty. The
/// texts of the two resources may differ, so only the existence of a text is compared.
fn without_descriptions(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "description" && !text.is_empty() => {
                        "a description".clone_into(text);
                    }
                    _ => without_descriptions(value),
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(without_descriptions),
        _ => {}
    }
}

/// Returns the forms in which OpenAPI writes the name of an API group in paths, in names of
/// schemas, in operation ids and in tags. `twin.io` gives `twin.io`, `io.twin`, `TwinIo` and
/// `twinIo`.
fn forms(group: &str) -> [String; 4] {
    let parts: Vec<&str> = group.rsplit('.').collect();
    let capital = |word: &&str| word[..1].to_ascii_uppercase() + &word[1..];
    let word: String = group.split('.').map(|part| capital(&part)).collect();
    let small = word[..1].to_ascii_lowercase() + &word[1..];
    [group.to_owned(), parts.join("."), word, small]
}

/// Returns the schema of the kind `InFlightOperation` in the API group of `side`, or null if the
/// document has no such schema. References in the schema are resolved, up to the depth [`DEPTH`].
/// `schemas` is the JSON pointer of the schemas in the document.
fn schema(document: &Value, schemas: &str, side: &Side) -> Value {
    let all = document.pointer(schemas).and_then(Value::as_object);
    let is_own = |schema: &Value| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds
            .into_iter()
            .flatten()
            .any(|it| it["group"] == side.group && it["kind"] == OPERATION.kind)
    };
    let own = all.into_iter().flat_map(Map::values).find(|it| is_own(it));
    own.map_or(Value::Null, |own| resolved(document, own, DEPTH))
}

fn resolved(document: &Value, schema: &Value, depth: usize) -> Value {
    match schema {
        Value::Object(fields) => {
            let reference = fields.get("$ref").and_then(Value::as_str);
            let target = reference.and_then(|it| document.pointer(it.trim_start_matches('#')));
            if let Some(target) = target.filter(|_| depth > 0) {
                let mut whole = resolved(document, target, depth - 1);
                // A field next to a reference overrides the field with the same name in the
                // referenced schema.
                for (name, value) in fields.iter().filter(|(name, _)| *name != "$ref") {
                    whole[name] = value.clone();
                }
                return whole;
            }
            let fields = fields
                .iter()
                .map(|(name, value)| (name.clone(), resolved(document, value, depth)));
            let mut fields: Map<String, Value> = fields.collect();
            if let Some(Value::Array(required)) = fields.get_mut("required") {
                required.sort_by_key(ToString::to_string);
            }
            // If an `allOf` has one element, the fields of this element replace the `allOf`.
            let only = fields.get("allOf").and_then(Value::as_array);
            if let Some([one]) = only.map(Vec::as_slice) {
                let one = one.clone();
                fields.remove("allOf");
                for (name, value) in one.as_object().into_iter().flatten() {
                    fields.entry(name.clone()).or_insert_with(|| value.clone());
                }
            }
            Value::Object(fields)
        }
        Value::Array(all) => all.iter().map(|it| resolved(document, it, depth)).collect(),
        other => other.clone(),
    }
}

/// For each path of the resource, returns the methods of the path, and the parameters and answers
/// of GET.
fn paths(document: &Value, schemas: &str, side: &Side) -> Value {
    let prefix = format!("/apis/{}/v1alpha1/", side.group);
    let all = document["paths"].as_object().into_iter().flatten();
    let own = all.filter_map(|(path, item)| Some((path.strip_prefix(&prefix)?, item)));
    let own =
        own.filter(|(path, _)| !path.contains("operationrecords") && !path.contains("activities"));
    let described = own.map(|(path, item)| {
        let mut get = item["get"].clone();
        let parameters = [&item["parameters"], &get["parameters"]]
            .into_iter()
            .filter_map(Value::as_array)
            .flatten()
            .map(|parameter| resolved(document, parameter, 1))
            .map(|parameter| (text(&parameter, "/name").to_owned(), parameter));
        get["parameters"] = Value::Object(parameters.collect());
        let methods: Vec<&String> = item
            .as_object()
            .into_iter()
            .flat_map(Map::keys)
            .filter(|key| *key != "parameters")
            .collect();
        let mut described = json!({"methods": methods, "get": get});
        replace_references(&mut described, schemas);
        (path.to_owned(), described)
    });
    Value::Object(described.collect())
}

/// Replaces each reference to a schema by the last part of the schema's name, which is the kind.
/// For example, `#/components/schemas/io.k8s.api.core.v1.Pod` becomes `Pod`.
fn replace_references(value: &mut Value, schemas: &str) {
    match value {
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|it| replace_references(it, schemas)),
        Value::Array(all) => all
            .iter_mut()
            .for_each(|it| replace_references(it, schemas)),
        Value::String(text) => {
            let name = text.strip_prefix(&format!("#{schemas}/"));
            if let Some(kind) = name.and_then(|name| name.rsplit('.').next()) {
                *text = kind.to_owned();
            }
        }
        _ => {}
    }
}
