//! Test of rule sets with a label selector. The server evaluates the rules of such a rule set only
//! on the objects that match its selector.
//!
//! A target is the resource that the server watches for a rule set. If all rule sets of a target
//! have the same selector, the server sends this selector with its watch request. Otherwise, the
//! server watches all objects, and applies each selector itself.

use crate::harness::{
    ACCOUNT, CRD, Cluster, Kind, RULE_SET, crd, event_types, eventually, is_in_gap, ok_if,
    rule_set, shared, text,
};
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
        let mut parts: Vec<&str> = selector.split("%2C").collect();
        parts.sort_unstable();
        parts.join(",")
    };
    events.map(selector).collect()
}

/// Waits until the operations in the namespace are these: each is the subject, the operation and the
/// state.
async fn until(cluster: &Cluster, namespace: &str, want: &[[&str; 3]]) {
    eventually(&format!("operations {want:?}"), async || {
        let operations = cluster.operations(namespace).await;
        let fields = ["/spec/subject/name", "/spec/operation", "/status/state"];
        let shown = |it| fields.map(|field| text(it, field));
        let found: Vec<_> = operations.iter().map(shown).collect();
        ok_if(found == want && !operations.iter().any(is_in_gap), &found)
    })
    .await;
}

/// The labels of an object change so that the selector no longer matches, and another object is deleted.
/// A watch with a selector reports both as DELETED. The server must find out that the first object still
/// exists.
#[test]
fn a_selector_shared_by_all_rule_sets_is_sent_with_the_watch() {
    shared(async |cluster| {
        let namespace = cluster.new_namespace("selected").await;
        let second = format!("{namespace}-2");
        cluster
            .create(&CRD, None, &crd(&BACKUP, "Namespaced"))
            .await;
        let mut copying = of_gold(&second, namespace, "Copying");
        // An object must match the selector again before the debounce period ends. A period of 1 h is
        // long enough, even on a slow machine.
        copying["spec"]["rules"][0]["debounce"] = json!("1h");
        cluster
            .ready_rule_set(&of_gold(namespace, namespace, "Saving"))
            .await;
        cluster.ready_rule_set(&copying).await;

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
        let gold = json!({"tier": "gold"});
        running("never", json!({"tier": "silver"})).await;
        running("leaves", gold.clone()).await;
        running("dies", gold.clone()).await;
        running("enters", json!({})).await;
        label("enters", gold.clone()).await;
        let all = ["dies", "enters", "leaves"]
            .map(|name| ["Copying", "Saving"].map(|operation| [name, operation, "Progressing"]));
        until(cluster, namespace, all.as_flattened()).await;
        let sent = selectors(cluster);
        assert!(!sent.is_empty());
        assert!(
            sent.iter().all(|it| it == "%21ignore,tier%3Dgold"),
            "{sent:?}"
        );

        label("leaves", json!({"ignore": ""})).await;
        label("enters", json!({"tier": null})).await;
        let path = BACKUP.one(Some(namespace), "dies");
        cluster.admin.delete(&path).await.ok();
        let settling = [
            ["enters", "Copying", "Settling"],
            ["leaves", "Copying", "Settling"],
        ];
        until(cluster, namespace, &settling).await;
        label("enters", gold).await;
        let back = [
            ["enters", "Copying", "Progressing"],
            ["enters", "Saving", "Progressing"],
            settling[1],
        ];
        until(cluster, namespace, &back).await;
        // An operation that ended and started again would have another UID and name. The operations end
        // for different reasons.
        let reason = |all: &[Value], subject: &str| {
            let of = |it: &&Value| text(it, "/object/spec/subject/name") == subject;
            let mut ended = all.iter().filter(of).filter(|it| it["type"] == "DELETED");
            ended
                .next()
                .map(|it| text(it, "/object/status/reason").to_owned())
        };
        let reasons = events.until("ends", |all| {
            Some([reason(all, "dies")?, reason(all, "leaves")?])
        });
        assert_eq!(reasons.await, ["SubjectDeleted", "SelectorLeft"]);
        let operations = cluster.operations(namespace).await;
        let copying = text(&operations[0], "/metadata/name");
        let added = |all: &[Value]| {
            let types = event_types(all, copying);
            types.into_iter().filter(|it| *it == "ADDED").count()
        };
        assert_eq!(events.inspect(added), 1);

        // The second rule set gets another selector. The selectors now differ, so the server must
        // watch without a selector.
        let other = json!({"spec": {"labelSelector": {"matchLabels": {"tier": "silver"}}}});
        cluster
            .admin
            .merge(&RULE_SET.one(None, &second), &other)
            .await
            .ok();
        eventually("the operations match the new selector", async || {
            let mut operations = cluster.operations(namespace).await;
            operations.retain(|it| it["status"]["state"] != "Settling");
            let fields = ["/spec/subject/name", "/spec/operation"];
            let shown = |it| fields.map(|field| text(it, field));
            let found: Vec<_> = operations.iter().map(shown).collect();
            ok_if(
                found == [["enters", "Saving"], ["never", "Copying"]],
                &found,
            )
        })
        .await;
        eventually(
            "the server sends a request without a selector",
            async || {
                let sent = selectors(cluster);
                ok_if(sent.iter().any(String::is_empty), sent)
            },
        )
        .await;
    });
}
