//! The rule sets of the demo, in an [`ObjectStore`] of their own. Clients can only read the rule sets. The
//! rule-set controller writes their status.

use super::kinds::{self, RULE_SETS};
use super::model::{DemoModel, key, now_in_seconds, prefix};
use super::object_server::{NAME_COLUMN, age};
use super::objects::ObjectStore;
use super::shipped_rules;
use crate::resources::columns;
use crate::rules::{StatusAnswer, StatusSink, StatusWrite};
use aggregated_apiserver::serve::{CellValue, Column};
use aggregated_apiserver::store::Key;
use futures::future::{BoxFuture, ready};
use ifo_api::Gvr;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// The columns of rule sets: the name, and then the printer columns of the CRD in the same order. The
/// cell Target contains only the plural name, without the API group, because a printer column of a
/// CRD has only one `JSONPath`.
pub(super) static COLUMNS: &[Column<DemoModel>] = columns! {
    "Name" name 0 "Name must be unique." NAME_COLUMN.cell;
    "Component" string 0 "The component that owns these rules."
        |it, _| it["spec"]["component"].as_str().into();
    "Target" string 0 "The resource that is watched."
        |it, _| it["spec"]["target"]["resource"].as_str().into();
    "Ready" string 0 "True if operations are detected on every object of the target. NotInstalled if the cluster does not serve the API group of the target."
        |it, _| it["status"]["ready"].as_str().into();
    "Reason" string 0 "Reason of the condition Ready." |it, _| ready_reason(it).into();
    "Age" date 0 "Time since the rule set was created." age;
    "Group" string 1 "API group of the resource that is watched; empty is the core group."
        |it, _| it["spec"]["target"]["group"].as_str().into();
    "Watch Active" boolean 1 "Whether the target is being watched for this rule set."
        |it, _| it["status"]["watchActive"].as_bool().map_or(CellValue::Null, CellValue::Bool);
};

/// Returns the reason of the condition `Ready`.
fn ready_reason(rule_set: &Value) -> Option<&str> {
    let mut conditions = rule_set["status"]["conditions"].as_array()?.iter();
    conditions.find(|it| it["type"] == "Ready")?["reason"].as_str()
}

/// Returns a store with the shipped rule sets for the wanted targets.
pub fn shipped(wanted: impl Fn(&Gvr) -> bool) -> ObjectStore {
    let rule_sets = shipped_rules::shipped().into_iter();
    let rule_sets = rule_sets.filter(|it| wanted(&it.spec.target.gvr()));
    let objects = rule_sets.filter_map(|rule_set| {
        let mut object = json!(rule_set);
        let key = key(&object)?;
        let uid = Uuid::new_v5(&Uuid::NAMESPACE_OID, key.name.as_bytes());
        object["metadata"]["uid"] = uid.to_string().into();
        Some((key, object))
    });
    let store = ObjectStore::new(Arc::new(kinds::resolve));
    store.replace(objects.collect(), Arc::new(kinds::resolve));
    store
}

/// Completes a rule set as a kube-apiserver does: the generation increases when the spec changes, and
/// a file does not change the status. `before` is the stored rule set.
pub(super) fn complete(rule_set: &mut Value, before: Option<&Value>) {
    let before = before.unwrap_or(&Value::Null);
    let generation = before["metadata"]["generation"].as_i64().unwrap_or(0);
    let is_changed = before["spec"] != rule_set["spec"];
    let created = match &before["metadata"]["creationTimestamp"] {
        Value::Null => json!(now_in_seconds()),
        created => created.clone(),
    };
    rule_set["metadata"]["generation"] = json!(generation + i64::from(is_changed));
    rule_set["metadata"]["creationTimestamp"] = created;
    rule_set["status"] = before["status"].clone();
}

impl StatusSink for ObjectStore {
    fn write<'a>(&'a self, write: &'a StatusWrite) -> BoxFuture<'a, StatusAnswer> {
        let key = Key::new(
            prefix(&RULE_SETS.api_version(), RULE_SETS.kind),
            &*write.name,
        );
        self.patch(&key, &json!({"status": write.status}));
        // The result contains no resourceVersion. A resourceVersion would be needed only to detect
        // conflicts, and there are no conflicts because only this server writes the status.
        Box::pin(ready(StatusAnswer::Written(None)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_api::ruleset::OperationRuleSet;
    use kube::CustomResourceExt as _;

    #[test]
    fn rule_sets_have_the_same_columns_as_the_crd() {
        let crd = json!(OperationRuleSet::crd());
        let printed = crd["spec"]["versions"][0]["additionalPrinterColumns"].clone();
        let printed = printed.as_array().unwrap();
        let (name, columns) = COLUMNS.split_first().unwrap();
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
