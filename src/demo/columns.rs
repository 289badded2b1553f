//! The columns of the tables in the demo.

use super::model::DemoModel;
use crate::resources::columns;
use aggregated_apiserver::serve::{CellContext, CellValue, Column};
use ifo_api::duration;
use kube::core::DynamicObject;

/// The column with the name of an object.
const NAME: Column<DemoModel> = Column {
    format: "name",
    ..Column::text("Name", |it: &DynamicObject, _| {
        it.metadata.name.as_deref().into()
    })
};

/// The columns of the objects of the scenes.
pub(super) static COLUMNS: &[Column<DemoModel>] = &[NAME, Column::text("Age", age)];

/// Returns the time since the creation of an object, as kubectl prints it.
fn age<'a>(object: &'a DynamicObject, context: &CellContext<'_, ()>) -> CellValue<'a> {
    let created = object.metadata.creation_timestamp.as_ref();
    let age = created.map(|then| duration::human(context.now.as_second() - then.0.as_second()));
    age.or_else(|| Some("<unknown>".to_owned())).into()
}

/// The columns of rule sets: the name, and then the printer columns of the CRD in the same order. The
/// cell Target contains only the plural name, without the API group, because a printer column of a
/// CRD has only one `JSONPath`.
pub(super) static RULE_SET_COLUMNS: &[Column<DemoModel>] = columns! {
    "Name" name 0 "Name must be unique." NAME.cell;
    "Component" string 0 "The component that owns these rules."
        |it, _| it.data["spec"]["component"].as_str().into();
    "Target" string 0 "The resource that is watched."
        |it, _| it.data["spec"]["target"]["resource"].as_str().into();
    "Ready" string 0 "True if operations are detected on every object of the target. NotInstalled if the cluster does not serve the API group of the target."
        |it, _| it.data["status"]["ready"].as_str().into();
    "Reason" string 0 "Reason of the condition Ready." |it, _| ready_reason(it).into();
    "Age" date 0 "Time since the rule set was created." age;
    "Group" string 1 "API group of the resource that is watched; empty is the core group."
        |it, _| it.data["spec"]["target"]["group"].as_str().into();
    "Watch Active" boolean 1 "Whether the target is being watched for this rule set."
        |it, _| it.data["status"]["watchActive"].as_bool().map_or(CellValue::Null, CellValue::Bool);
};

/// Returns the reason of the condition `Ready`.
fn ready_reason(rule_set: &DynamicObject) -> Option<&str> {
    let mut conditions = rule_set.data["status"]["conditions"].as_array()?.iter();
    conditions.find(|it| it["type"] == "Ready")?["reason"].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_api::ruleset::OperationRuleSet;
    use kube::CustomResourceExt as _;
    use serde_json::{Value, json};

    #[test]
    fn rule_sets_have_the_same_columns_as_the_crd() {
        let crd = json!(OperationRuleSet::crd());
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
