//! The published schemas: the CRDs, and the parts that they share with `OpenAPI`.

use crate::persisted;
use crate::ruleset::OperationRuleSet;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt as _;

/// Returns the CRD of `OperationRuleSet`, as in `deploy/crd/operationrulesets.yaml`.
pub fn operation_rule_sets() -> CustomResourceDefinition {
    readable(OperationRuleSet::crd())
}

/// Returns the CRD of persisted operations, as in `deploy/crd-persistence/inflightoperations.yaml`.
/// It has no status subresource, because an operation is written in one request.
pub fn persisted_operations() -> CustomResourceDefinition {
    let mut crd = readable(persisted::InFlightOperation::crd());
    for version in &mut crd.spec.versions {
        version.subresources = None;
    }
    crd
}

fn readable(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|validation| validation.open_api_v3_schema.as_mut())
        {
            // In a CRD, the name of the kind is elsewhere.
            schema.title = None;
            join_descriptions(schema);
        }
    }
    crd
}

/// Joins the lines of all descriptions in `schema`.
fn join_descriptions(schema: &mut JSONSchemaProps) {
    if let Some(description) = &mut schema.description {
        *description = join_lines(description);
    }
    for property in schema
        .properties
        .iter_mut()
        .flat_map(|all| all.values_mut())
    {
        join_descriptions(property);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => join_descriptions(items),
        Some(JSONSchemaPropsOrArray::Schemas(all)) => all.iter_mut().for_each(join_descriptions),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        join_descriptions(values);
    }
}

/// Joins the lines of each paragraph. Comments in the source are wrapped, but clients wrap
/// descriptions themselves. Empty lines and list items are kept.
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
    fn paragraphs_are_joined_and_lists_are_kept() {
        assert_eq!(
            join_lines("One\ntwo.\n\nThree\nfour:\n - a\n - b"),
            "One two.\n\nThree four:\n - a\n - b"
        );
        assert_eq!(join_lines(""), "");
    }

    fn assert_described(path: &str, schema: &JSONSchemaProps) {
        let description = schema.description.as_deref().unwrap_or_default();
        assert!(!description.is_empty(), "{path} says nothing");
        for (name, property) in schema.properties.iter().flatten() {
            assert_described(&format!("{path}.{name}"), property);
        }
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
            for (name, property) in items.properties.iter().flatten() {
                assert_described(&format!("{path}[].{name}"), property);
            }
        }
    }

    #[test]
    fn every_field_of_the_crds_is_described() {
        for crd in [operation_rule_sets(), persisted_operations()] {
            let [version] = crd.spec.versions.as_slice() else {
                panic!("{:?}", crd.spec.versions);
            };
            let schema = version.schema.clone().unwrap().open_api_v3_schema.unwrap();
            for (name, property) in schema.properties.iter().flatten() {
                assert_described(name, property);
            }
        }
    }
}
