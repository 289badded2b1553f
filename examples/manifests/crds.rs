//! Generates the CRDs from the types in `ifo_api`.

use ifo_api::persisted;
use ifo_api::ruleset::OperationRuleSet;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

/// Returns the CRD of `OperationRuleSet`.
pub(super) fn rule_sets() -> CustomResourceDefinition {
    readable(&OperationRuleSet::crd())
}

/// Returns the CRD of the custom resources that `ifo-apiserver` writes in persistence mode, one for
/// each operation. The CRD has no status subresource, because `ifo-apiserver` writes spec and status in
/// one request.
pub(super) fn persisted_operations() -> CustomResourceDefinition {
    let mut crd = readable(&persisted::InFlightOperation::crd());
    for version in &mut crd.spec.versions {
        version.subresources = None;
    }
    crd
}

/// Simplifies all schemas in the CRD, and removes the title of each version's schema.
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
    simplify(&mut json);
    serde_json::from_value(json).expect("the simplified JSON is still a CRD")
}

/// Joins the lines of all descriptions in `schema`, and replaces the format `uint64`, which OpenAPI does
/// not have.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "description" => *text = join_lines(text),
                    Value::String(format) if name == "format" && format == "uint64" => {
                        "int64".clone_into(format);
                    }
                    value => simplify(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(simplify),
        _ => {}
    }
}

/// Joins the lines of each paragraph, because clients wrap descriptions themselves. Empty lines are
/// kept. A line that begins with a space, `-` or `*`, such as a list item, stays a separate line.
fn join_lines(text: &str) -> String {
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
        for crd in [rule_sets(), persisted_operations()] {
            assert_eq!(crd.spec.versions.len(), 1);
            assert_described("", &json!(crd.spec.versions[0].schema)["openAPIV3Schema"]);
        }
    }
}
