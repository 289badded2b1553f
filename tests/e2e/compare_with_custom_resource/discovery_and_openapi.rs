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
    loop {
        let pairs = read(twin).await;
        let compare = |(name, pair): &(String, Pair)| {
            // Without this check, two missing descriptions would count as equal.
            let exists = ![Value::Null, json!({}), json!(false)].contains(&pair.custom);
            (exists, comparison.record(name, pair))
        };
        let results: Vec<_> = pairs.iter().map(compare).collect();
        let exist = results.iter().all(|(exists, _)| *exists);
        let agree = results.iter().all(|(_, agrees)| *agrees);
        if exist && agree || Instant::now() > deadline {
            assert!(exist, "the custom resource lacks a description: {pairs:#?}");
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
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
    let read = async |side: &Side| match url(side) {
        Some(url) => twin.caller().get(&url).await.ok(),
        None => Value::Null,
    };
    let documents = [read(&twin.live).await, read(&twin.custom).await];
    let document = |side: &Side| &documents[usize::from(side.group == twin.custom.group)];
    vec![
        pair(twin, "aggregated discovery", groups),
        pair(twin, "hash of OpenAPI v3", has_hash),
        pair(twin, "schema in OpenAPI v3", |side| {
            schema(document(side), side)
        }),
        pair(twin, "paths in OpenAPI v3", |side| {
            paths(document(side), side)
        }),
    ]
}

fn pair(twin: &Twin, what: &str, of: impl Fn(&Side) -> Value) -> (String, Pair) {
    let masked = |side: &Side| {
        let forms = forms(side.group).into_iter().enumerate();
        let masked = forms.fold(of(side).to_string(), |text, (number, name)| {
            text.replace(&name, &format!("GROUP{number}"))
        });
        serde_json::from_str(&masked).expect("the masked names need no escaping in JSON")
    };
    let pair = Pair {
        live: masked(&twin.live),
        custom: masked(&twin.custom),
    };
    (format!("DOCUMENT {what}"), pair)
}

/// Returns the forms in which OpenAPI writes the name of an API group in paths, in names of
/// schemas, in operation ids and in tags. `twin.io` gives `twin.io`, `io.twin`, `TwinIo` and
/// `twinIo`.
fn forms(group: &str) -> [String; 4] {
    let parts: Vec<&str> = group.rsplit('.').collect();
    let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    let word: String = group.split('.').map(capital).collect();
    let small = word[..1].to_ascii_lowercase() + &word[1..];
    [group.to_owned(), parts.join("."), word, small]
}

/// Returns the schema of the kind `InFlightOperation` in the API group of `side`, or null if the
/// document has no such schema. References in the schema are resolved, up to the depth [`DEPTH`].
fn schema(document: &Value, side: &Side) -> Value {
    let is_own = |schema: &&Value| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        let mut kinds = kinds.into_iter().flatten();
        kinds.any(|it| it["group"] == side.group && it["kind"] == OPERATION.kind)
    };
    let all = document["components"]["schemas"].as_object();
    let own = all.into_iter().flat_map(Map::values).find(is_own);
    own.map_or(Value::Null, |own| normalized(document, own, DEPTH))
}

/// For each path of the resource, returns the methods of the path, and the parameters and answers
/// of GET.
fn paths(document: &Value, side: &Side) -> Value {
    let prefix = format!("/apis/{}/v1alpha1/", side.group);
    let all = document["paths"].as_object().into_iter().flatten();
    let own = all.filter_map(|(path, item)| Some((path.strip_prefix(&prefix)?, item)));
    let own =
        own.filter(|(path, _)| !path.contains("operationrecords") && !path.contains("activities"));
    let described = own.map(|(path, item)| {
        let mut get = normalized(document, &item["get"], 0);
        let parameters = [&item["parameters"], &item["get"]["parameters"]]
            .into_iter()
            .filter_map(Value::as_array)
            .flatten()
            .map(|parameter| normalized(document, parameter, 1))
            .map(|parameter| (text(&parameter, "/name").to_owned(), parameter));
        get["parameters"] = Value::Object(parameters.collect());
        let methods = item.as_object().into_iter().flat_map(Map::keys);
        let methods: Vec<&String> = methods.filter(|key| *key != "parameters").collect();
        (path.to_owned(), json!({"methods": methods, "get": get}))
    });
    Value::Object(described.collect())
}

/// Returns a part of a document in the form that is compared:
///
/// - References to schemas are resolved, up to this depth. Each other reference becomes the last part
///   of the name of the schema, which is the kind.
/// - If an `allOf` has one element, the fields of this element replace the `allOf`.
/// - The elements of `required` are sorted.
/// - The texts of the two resources may differ, so only the existence of a description is compared.
fn normalized(document: &Value, part: &Value, depth: usize) -> Value {
    let fields = match part {
        Value::Object(fields) => fields,
        Value::Array(all) => {
            let all = all.iter();
            return all.map(|it| normalized(document, it, depth)).collect();
        }
        other => return other.clone(),
    };
    let mut whole = Map::new();
    for (name, value) in fields {
        let value = match (name.as_str(), value) {
            ("description", Value::String(text)) if !text.is_empty() => json!("a description"),
            ("$ref", Value::String(reference)) if depth == 0 => {
                json!(reference.rsplit(['/', '.']).next())
            }
            ("$ref" | "allOf", _) => continue,
            _ => normalized(document, value, depth),
        };
        whole.insert(name.clone(), value);
    }
    if let Some(Value::Array(required)) = whole.get_mut("required") {
        required.sort_by_key(ToString::to_string);
    }
    // A field next to a reference or an `allOf` overrides the field with the same name in it.
    let mut inherited = Vec::new();
    if let Some(reference) = fields.get("$ref").and_then(Value::as_str)
        && depth > 0
    {
        let target = document.pointer(reference.trim_start_matches('#'));
        let target = target.expect("the document has the schema");
        inherited.push(normalized(document, target, depth - 1));
    }
    match fields.get("allOf").and_then(Value::as_array) {
        Some(all) if all.len() == 1 => inherited.push(normalized(document, &all[0], depth)),
        Some(all) => {
            let all = all.iter().map(|it| normalized(document, it, depth));
            whole.insert("allOf".to_owned(), all.collect());
        }
        None => {}
    }
    for (name, value) in inherited.iter().filter_map(Value::as_object).flatten() {
        whole.entry(name.clone()).or_insert_with(|| value.clone());
    }
    Value::Object(whole)
}
