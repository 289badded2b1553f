//! Generates the CRDs from the types in this crate. `ifo-apiserver` also uses [`join_lines`] for
//! the descriptions in its `OpenAPI` schemas.

use crate::persisted;
use crate::ruleset::OperationRuleSet;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

/// Returns the CRD of `OperationRuleSet`, which is also in `deploy/crd/operationrulesets.yaml`.
pub fn operation_rule_sets() -> CustomResourceDefinition {
    readable(&OperationRuleSet::crd())
}

/// Returns the CRD of the custom resources that `ifo-apiserver` writes in persistence mode, one for
/// each operation. The CRD is also in `deploy/crd-persistence/inflightoperations.yaml`. The CRD has
/// no status subresource, because `ifo-apiserver` writes spec and status in one request.
pub fn persisted_operations() -> CustomResourceDefinition {
    let mut crd = readable(&persisted::InFlightOperation::crd());
    for version in &mut crd.spec.versions {
        version.subresources = None;
    }
    crd
}

/// Returns the fields in spec and status of a rule set that this crate defines and the CRD
/// `installed` does not define, such as `spec.rules[].operation`. The kube-apiserver removes these
/// fields from rule sets.
///
/// If `installed` has no schema for [`VERSION`](crate::VERSION), the list is empty.
pub fn missing_fields(installed: &CustomResourceDefinition) -> Vec<String> {
    let mut missing = Vec::new();
    if let (Some(own), Some(installed)) = (schema_of(&operation_rule_sets()), schema_of(installed))
    {
        for part in ["spec", "status"] {
            let (own, installed) = (&own["properties"][part], &installed["properties"][part]);
            compare(own, installed, part, &mut missing);
        }
    }
    missing
}

/// Returns the schema of [`VERSION`](crate::VERSION), or None if `crd` does not have it.
fn schema_of(crd: &CustomResourceDefinition) -> Option<Value> {
    let mut versions = crd.spec.versions.iter();
    let version = versions.find(|version| version.name == crate::VERSION)?;
    Some(json!(version.schema.as_ref()?.open_api_v3_schema))
}

/// Adds to `missing` the paths of the properties that `own` has and `installed` does not have.
/// `path` is the path at which both schemas are, such as `spec.rules[]`.
fn compare(own: &Value, installed: &Value, path: &str, missing: &mut Vec<String>) {
    if installed.is_null() || installed["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    for (name, property) in own["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        match installed["properties"].get(name) {
            Some(installed) => compare(property, installed, &path, missing),
            None => missing.push(path),
        }
    }
    compare(
        &own["items"],
        &installed["items"],
        &format!("{path}[]"),
        missing,
    );
}

/// Joins the lines of all descriptions in the CRD, and removes the title of each version's schema.
fn readable(crd: &CustomResourceDefinition) -> CustomResourceDefinition {
    let mut json = json!(crd);
    for version in json["spec"]["versions"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        // The title is the kind, which a CRD contains in `spec.names`.
        version["schema"]["openAPIV3Schema"]["title"] = Value::Null;
    }
    join_descriptions(&mut json);
    serde_json::from_value(json).expect("joined lines change no type")
}

/// Joins the lines of all descriptions in `schema`.
fn join_descriptions(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "description" => *text = join_lines(text),
                    value => join_descriptions(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(join_descriptions),
        _ => {}
    }
}

/// Joins the lines of each paragraph, because clients wrap descriptions themselves. Empty lines are
/// kept. A line that begins with a space, `-` or `*`, such as a list item, stays a separate line.
pub fn join_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let breaks = line.is_empty()
            || line.starts_with([' ', '-', '*'])
            || out.is_empty()
            || out.ends_with('\n');
        if breaks {
            if !out.is_empty() {
                out.push('\n');
            }
        } else {
            out.push(' ');
        }
        out.push_str(line);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_an_older_definition_lacks_are_found() {
        assert_eq!(missing_fields(&operation_rule_sets()), [""; 0]);
        let mut older = json!(operation_rule_sets());
        let version = &mut older["spec"]["versions"][0];
        let parts = &mut version["schema"]["openAPIV3Schema"]["properties"];
        let mut remove = |path: &str, field: &str| {
            let fields = parts.pointer_mut(path).and_then(Value::as_object_mut);
            fields
                .expect("there are fields")
                .remove(field)
                .expect("it exists");
        };
        remove("/status/properties", "ready");
        remove("/spec/properties", "variables");
        remove("/spec/properties/rules/items/properties", "outcome");
        let mut older: CustomResourceDefinition = serde_json::from_value(older).unwrap();
        assert_eq!(
            missing_fields(&older),
            ["spec.rules[].outcome", "spec.variables", "status.ready"]
        );
        // A definition without this version has no schema to compare, so no field is reported.
        older.spec.versions.clear();
        assert_eq!(missing_fields(&older), [""; 0]);
    }

    #[test]
    fn paragraphs_are_joined_and_lists_are_kept() {
        assert_eq!(
            join_lines("One\ntwo.\n\nThree\nfour:\n - a\n - b"),
            "One two.\n\nThree four:\n - a\n - b"
        );
        assert_eq!(join_lines(""), "");
    }

    fn assert_described(path: &str, schema: &Value) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            assert!(
                property["description"].is_string(),
                "{path} has no description"
            );
            assert_described(&path, property);
        }
        if schema["items"].is_object() {
            assert_described(&format!("{path}[]"), &schema["items"]);
        }
    }

    #[test]
    fn every_field_of_the_crds_is_described() {
        for crd in [operation_rule_sets(), persisted_operations()] {
            assert_eq!(crd.spec.versions.len(), 1);
            assert_described("", &schema_of(&crd).expect("there is a schema"));
        }
    }
}
