//! The schema of `OperationRuleSet`: the fields of a rule set, and their constraints.

use crate::ruleset::OperationRuleSet;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

/// Returns the schema that this release defines.
pub fn rule_set() -> Value {
    schema_of(&OperationRuleSet::crd()).expect("the CRD has the version of this release")
}

/// Returns the fields in spec and status of a rule set that this crate defines and the CRD
/// `installed` does not define, such as `spec.rules[].operation`. The kube-apiserver removes these
/// fields from rule sets.
///
/// If `installed` has no schema for [`VERSION`](crate::VERSION), the list is empty.
pub fn missing_fields(installed: &CustomResourceDefinition) -> Vec<String> {
    let mut missing = Vec::new();
    if let Some(installed) = schema_of(installed) {
        let own = rule_set();
        for part in ["spec", "status"] {
            let (own, installed) = (&own["properties"][part], &installed["properties"][part]);
            compare(own, installed, part, &mut missing);
        }
    }
    missing
}

/// Returns the schema of [`VERSION`](crate::VERSION). Returns None if `crd` lacks this version, or
/// if the version has no schema.
fn schema_of(crd: &CustomResourceDefinition) -> Option<Value> {
    let mut versions = crd.spec.versions.iter();
    let version = versions.find(|version| version.name == crate::VERSION)?;
    Some(json!(version.schema.as_ref()?.open_api_v3_schema))
}

/// Adds to `missing` the paths of the properties that `own` has and `installed` does not have.
/// `path` is the path of the field that both schemas describe, such as `spec.rules[]`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_an_older_definition_lacks_are_found() {
        assert_eq!(missing_fields(&OperationRuleSet::crd()), [""; 0]);
        let mut older = json!(OperationRuleSet::crd());
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
}
