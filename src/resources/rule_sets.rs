//! Describes the resource `operationrulesets`, which only a server without a cluster (the demo) serves.

use super::cells::{Column, SharedShortNames, age, check_label, columns, name_cell};
use crate::index::{IndexReader, Object, Resource, collection};
use aggregated_apiserver::serve::{CellValue, ResourceInfo};
use ifo_api::ruleset::{self, OperationRuleSet, OperationRuleSetStatus};
use ifo_api::{GROUP, VERSION};

/// Returns the rule set. Returns None for an operation or a record.
fn rule_set(object: &Object) -> Option<&OperationRuleSet> {
    match object {
        Object::RuleSet(rule_set) => Some(rule_set),
        _ => None,
    }
}

fn rule_set_status(object: &Object) -> Option<&OperationRuleSetStatus> {
    rule_set(object)?.status.as_ref()
}

/// Returns the reason of the condition `Ready`.
fn ready_reason(object: &Object) -> Option<&str> {
    let mut conditions = rule_set_status(object)?.conditions.iter();
    Some(&conditions.find(|it| it.type_ == "Ready")?.reason)
}

/// The columns of rule sets: the name, and then the printer columns of the CRD in the same order. The
/// cell Target contains only the plural name, without the API group, because a printer column of a
/// CRD has only one `JSONPath`.
static RULE_SET_COLUMNS: &[Column] = columns! {
    "Name" name 0 "Name must be unique." name_cell;
    "Component" string 0 "The component that owns these rules."
        |it, _| rule_set(it).map(|it| it.spec.component.as_str()).into();
    "Target" string 0 "The resource that is watched."
        |it, _| rule_set(it).map(|it| it.spec.target.resource.as_str()).into();
    "Ready" string 0 "True if operations are detected on every object of the target. NotInstalled if the cluster does not serve the API group of the target."
        |it, _| rule_set_status(it).map(|it| it.ready.as_str()).into();
    "Reason" string 0 "Reason of the condition Ready." |it, _| ready_reason(it).into();
    "Age" date 0 "Time since the rule set was created." age;
    "Group" string 1 "API group of the resource that is watched; empty is the core group."
        |it, _| rule_set(it).map(|it| it.spec.target.group.as_str()).into();
    "Watch Active" boolean 1 "Whether the target is being watched for this rule set."
        |it, _| rule_set_status(it).map_or(CellValue::Null, |it| CellValue::Bool(it.watch_active));
};

/// Returns the description of `operationrulesets`, for a server without a cluster (the demo). In a
/// cluster, rule sets are custom resources, and the kube-apiserver serves them.
pub fn operation_rule_sets(reader: IndexReader) -> Resource {
    Resource {
        info: ResourceInfo {
            namespaced: false,
            short_names: &["ors"],
            ..ResourceInfo::namespaced((GROUP, VERSION), ruleset::PLURAL, "OperationRuleSet")
        },
        schema: <OperationRuleSet as schemars::JsonSchema>::json_schema,
        check_label,
        collection: collection::OPERATIONS,
        columns: RULE_SET_COLUMNS,
        fields: Vec::new(),
        reader,
        context: SharedShortNames::default(),
        visibility: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::CustomResourceExt as _;
    use serde_json::{Value, json};

    #[test]
    fn rule_sets_have_the_same_columns_as_the_crd() {
        let crd = serde_json::to_value(ruleset::OperationRuleSet::crd()).unwrap();
        let printed = crd["spec"]["versions"][0]["additionalPrinterColumns"].clone();
        let printed = printed.as_array().unwrap();
        let (name, columns) = RULE_SET_COLUMNS.split_first().unwrap();
        assert_eq!(name.name, "Name");
        assert_eq!(columns.len(), printed.len());
        for (column, printed) in columns.iter().zip(printed) {
            let mut expected = json!({
                "name": column.name, "type": column.kind, "description": column.description,
                "jsonPath": printed["jsonPath"],
            });
            if column.priority != 0 {
                expected["priority"] = Value::from(column.priority);
            }
            assert_eq!(*printed, expected);
        }
    }
}
