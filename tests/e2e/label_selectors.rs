//! Test of rule sets with a label selector. The server evaluates the rules of such a rule set only
//! on the objects that match its selector.
//!
//! A target is the resource that the server watches for a rule set. If all rule sets of a target
//! have the same selector, the server sends this selector with its watch request. Otherwise, the
//! server watches all objects, and applies each selector itself.

use crate::harness::{ACCOUNT, Cluster, Kind, rule_set, shared, text};
use serde_json::{Value, json};

/// A kind that the server may read, and that no other test uses. If another test used this kind,
/// the rule set of that test could change the selector of the server's watch.
const BACKUP: Kind = Kind {
    api_version: "backup.kubevirt.io/v1alpha1",
    kind: "VirtualMachineBackup",
    plural: "virtualmachinebackups",
};

/// Returns a rule set that selects the objects with the label `tier=gold` and without the label
/// `ignore`.
fn of_gold(name: &str, namespace: &str, operation: &str) -> Value {
    let running = [(operation, "object.status.phase == 'Running'")];
    let mut rules = rule_set(name, &BACKUP, &running);
    rules["spec"]["namespaces"] = json!([namespace]);
    rules["spec"]["labelSelector"] = json!({
        "matchLabels": {"tier": "gold"},
        "matchExpressions": [{"key": "ignore", "operator": "DoesNotExist"}],
    });
    rules
}

/// Returns the label selectors of the server's list and watch requests for [`BACKUP`] so far. A request
/// without a selector has an empty text.
fn selectors(cluster: &Cluster) -> Vec<String> {
    let is_own = |event: &Value| {
        // The audit log has one event for each stage of a request.
        let stage = match text(event, "/verb") {
            "list" => "ResponseComplete",
            "watch" => "ResponseStarted",
            _ => return false,
        };
        text(event, "/stage") == stage
            && text(event, "/objectRef/resource") == BACKUP.plural
            && text(event, "/user/username") == ACCOUNT
    };
    let events = cluster.audit_log(0).into_iter().filter(is_own);
    let selector = |event: Value| {
        let uri = text(&event, "/requestURI");
        let (_, selector) = uri.split_once("labelSelector=").unwrap_or_default();
        let selector = selector.split('&').next().unwrap_or_default();
        let mut parts: Vec<&str> = selector.split("%2C").collect();
        parts.sort_unstable();
        parts.join(",")
    };
    events.map(selector).collect()
}

/// Returns the reason for which the operation on the object of this name has ended.
fn end_reason(events: &[Value], subject: &str) -> Option<String> {
    let is_end =
        |it: &&Value| it["type"] == "DELETED" && text(it, "/object/spec/subject/name") == subject;
    let ended = events.iter().find(is_end)?;
    Some(text(ended, "/object/status/reason").to_owned())
}

/// The labels of an object change so that the selector no longer matches, and another object is deleted.
/// A watch with a selector reports both as DELETED. The server must find out that the first object still
/// exists.
#[test]
fn a_selector_shared_by_all_rule_sets_is_sent_with_the_watch() {
    shared(async |cluster| {
        let namespace = cluster.new_namespace("selected").await;
        cluster.define(&[BACKUP]).await;
        let saving = of_gold(namespace, namespace, "Saving");
        cluster.ready_rule_set(&saving).await;
        let mut events = cluster.watch(namespace).await;
        let running = async |name: &str, labels: Value| {
            let fields = json!({"metadata": {"labels": labels}, "status": {"phase": "Running"}});
            let object = BACKUP.object(name, fields);
            cluster.create(&BACKUP, Some(namespace), &object).await;
        };
        let label = async |name: &str, labels: Value| {
            let patch = json!({"metadata": {"labels": labels}});
            cluster.merge(&BACKUP, namespace, name, &patch).await;
        };
        running("never", json!({"tier": "silver"})).await;
        running("leaves", json!({"tier": "gold"})).await;
        running("dies", json!({"tier": "gold"})).await;
        running("enters", json!({})).await;
        label("enters", json!({"tier": "gold"})).await;
        let all = ["dies", "enters", "leaves"].map(|name| (name, "Saving"));
        cluster.until_operations(namespace, &all).await;
        let sent = selectors(cluster);
        let is_selector = |it: &String| it == "%21ignore,tier%3Dgold";
        assert!(!sent.is_empty() && sent.iter().all(is_selector), "{sent:?}");

        label("leaves", json!({"ignore": ""})).await;
        let path = BACKUP.one(Some(namespace), "dies");
        cluster.admin.delete(&path).await.ok();
        let reasons = events.until("the ends of two operations", |all| {
            Some([end_reason(all, "dies")?, end_reason(all, "leaves")?])
        });
        assert_eq!(reasons.await, ["SubjectDeleted", "SelectorLeft"]);

        // A second rule set has another selector, so the server must watch without a selector.
        let mut copying = of_gold(&format!("{namespace}-2"), namespace, "Copying");
        copying["spec"]["labelSelector"] = json!({"matchLabels": {"tier": "silver"}});
        cluster.ready_rule_set(&copying).await;
        let both = [("enters", "Saving"), ("never", "Copying")];
        cluster.until_operations(namespace, &both).await;
        let sent = selectors(cluster);
        assert!(sent.iter().any(String::is_empty), "{sent:?}");
    });
}
