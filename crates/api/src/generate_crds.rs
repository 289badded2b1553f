//! Generates the CRDs from the types in this crate. `ifo-apiserver` also uses [`join_lines`] for
//! the descriptions in its `OpenAPI` schemas.

use crate::persisted;
use crate::ruleset::OperationRuleSet;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt as _;

/// Returns the CRD of `OperationRuleSet`, which is also in `deploy/crd/operationrulesets.yaml`.
pub fn operation_rule_sets() -> CustomResourceDefinition {
    readable(OperationRuleSet::crd())
}

/// Returns the CRD of the custom resources that `ifo-apiserver` writes in persistence mode, one for
/// each operation. The CRD is also in `deploy/crd-persistence/inflightoperations.yaml`. The CRD has
/// no status subresource, because `ifo-apiserver` writes spec and status in one request.
pub fn persisted_operations() -> CustomResourceDefinition {
    let mut crd = readable(persisted::InFlightOperation::crd());
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
    let own = operation_rule_sets();
    let mut missing = Vec::new();
    for part in ["spec", "status"] {
        if let (Some(own), Some(installed)) = (part_of(&own, part), part_of(installed, part)) {
            compare(own, installed, part, &mut missing);
        }
    }
    missing
}

/// Returns the schema of `part` (`spec` or `status`) in [`VERSION`](crate::VERSION), or None if
/// `crd` does not have it.
fn part_of<'c>(crd: &'c CustomResourceDefinition, part: &str) -> Option<&'c JSONSchemaProps> {
    let mut versions = crd.spec.versions.iter();
    let version = versions.find(|version| version.name == crate::VERSION)?;
    let schema = version.schema.as_ref()?.open_api_v3_schema.as_ref()?;
    schema.properties.as_ref()?.get(part)
}

/// Adds to `missing` the paths of the properties that `own` has and `installed` does not have.
/// `path` is the path at which both schemas are, such as `spec.rules[]`.
fn compare(
    own: &JSONSchemaProps,
    installed: &JSONSchemaProps,
    path: &str,
    missing: &mut Vec<String>,
) {
    if installed.x_kubernetes_preserve_unknown_fields == Some(true) {
        return;
    }
    for (name, property) in own.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        match installed.properties.as_ref().and_then(|all| all.get(name)) {
            Some(installed) => compare(property, installed, &path, missing),
            None => missing.push(path),
        }
    }
    if let (
        Some(JSONSchemaPropsOrArray::Schema(own)),
        Some(JSONSchemaPropsOrArray::Schema(installed)),
    ) = (&own.items, &installed.items)
    {
        compare(own, installed, &format!("{path}[]"), missing);
    }
}

/// Joins the lines of all descriptions in the CRD, and removes the title of each version's schema.
fn readable(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|validation| validation.open_api_v3_schema.as_mut())
        {
            // The title is the kind, which a CRD contains in `spec.names`.
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
        let mut older = operation_rule_sets();
        let version = older.spec.versions.first_mut().expect("there is a version");
        let validation = version.schema.as_mut().expect("it has a schema");
        let schema = validation.open_api_v3_schema.as_mut();
        let parts = schema.and_then(|schema| schema.properties.as_mut());
        let parts = parts.expect("a rule set has a spec and a status");
        let status = parts
            .get_mut("status")
            .and_then(|it| it.properties.as_mut());
        status.expect("the status has fields").remove("ready");
        let spec = parts.get_mut("spec").and_then(|it| it.properties.as_mut());
        let spec = spec.expect("the spec has fields");
        spec.remove("variables");
        let rules = spec.get_mut("rules").and_then(|rules| rules.items.as_mut());
        let Some(JSONSchemaPropsOrArray::Schema(rule)) = rules else {
            panic!("rules must be a list");
        };
        let fields = rule.properties.as_mut().expect("a rule has fields");
        fields.remove("outcome");
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

    fn assert_described(path: &str, schema: &JSONSchemaProps) {
        let description = schema.description.as_deref().unwrap_or_default();
        assert!(!description.is_empty(), "{path} has no description");
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
