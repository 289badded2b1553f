//! Tests of rule sets with a label selector. The server evaluates the rules of such a rule set only
//! on the objects that match its selector.
//!
//! A target is the resource that the server watches for a rule set. If all rule sets of a target
//! have the same selector, the server sends this selector with its watch request. Otherwise, the
//! server watches all objects, and applies each selector itself.

use crate::harness::{
    Events, Kind, RULE_SET, TestCluster, audited, crd, eventually, ok_if, rule_set, shared, text,
    without_gaps,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A kind that the server may read, and that no other test uses. If another test used this kind,
/// the rule set of that test could change the selector of the server's watch.
const BACKUP: Kind = Kind {
    api_version: "backup.kubevirt.io/v1alpha1",
    kind: "VirtualMachineBackup",
    plural: "virtualmachinebackups",
};
/// The end of a line of [`event_lines`]. The operation has ended, because the labels of its subject
/// no longer match the selector.
const LEFT: &str =
    "SelectorLeft -: The labels of the subject no longer match the label selector of the rule set.";
/// The end of a line of [`event_lines`]. The operation has ended, because its subject was deleted.
const DELETED: &str = "SubjectDeleted -: The subject was deleted.";

/// Formats an event as `TYPE Phase State Reason progress: message`, for example
/// `MODIFIED Active Blocked PreCopy 45: to node-1`. If the operation has no progress or has
/// completed, `progress` is `-`.
fn line(event: &Value) -> String {
    let status = &event["object"]["status"];
    let progress = match (&status["progress"], text(status, "/phase")) {
        (Value::Number(progress), "Active") => progress.to_string(),
        _ => "-".to_owned(),
    };
    format!(
        "{} {} {} {} {progress}: {}",
        text(event, "/type"),
        text(status, "/phase"),
        text(status, "/state"),
        text(status, "/reason"),
        text(status, "/message")
    )
}

/// Returns the events about an operation on the object `subject`, formatted by [`line`]. Leaves out
/// events that only report an interruption of the server's own watch.
///
/// A rule with `forEach` detects one operation for each item of a list. `item` selects the
/// operation of one item. If the rule has no `forEach`, `item` is None.
fn event_lines(
    events: &[Value],
    subject: &str,
    operation: &str,
    item: Option<&str>,
) -> Vec<String> {
    without_gaps(events)
        .into_iter()
        .filter(|event| {
            let spec = &event["object"]["spec"];
            text(spec, "/subject/name") == subject
                && text(spec, "/operation") == operation
                && spec["item"].as_str() == item
        })
        .map(line)
        .collect()
}

/// Returns a rule set with one rule. The rule set selects the objects with the label `tier=<tier>`
/// and without the label `ignore`.
fn of_tier(name: &str, target: &Kind, namespace: &str, operation: &str, tier: &str) -> Value {
    let mut rules = rule_set(
        name,
        target,
        &[(operation, "object.status.phase == 'Running'")],
    );
    rules["spec"]["namespaces"] = json!([namespace]);
    rules["spec"]["labelSelector"] = json!({
        "matchLabels": {"tier": tier},
        "matchExpressions": [{"key": "ignore", "operator": "DoesNotExist"}],
    });
    rules
}

async fn running(cluster: &TestCluster, kind: &Kind, namespace: &str, name: &str, labels: &Value) {
    let object = json!({
        "apiVersion": kind.api_version, "kind": kind.kind,
        "metadata": {"name": name, "labels": labels},
        "status": {"phase": "Running"},
    });
    cluster.create(kind, Some(namespace), &object).await;
}

async fn label(cluster: &TestCluster, kind: &Kind, namespace: &str, name: &str, labels: &Value) {
    let path = format!("{}/{name}", kind.path(Some(namespace)));
    let patch = json!({"metadata": {"labels": labels}});
    cluster.admin.merge(&path, &patch).await.ok();
}

async fn delete(cluster: &TestCluster, kind: &Kind, namespace: &str, name: &str) {
    let path = format!("{}/{name}", kind.path(Some(namespace)));
    cluster.admin.delete(&path).await.ok();
}

/// Installs the CRD of a kind, creates these rule sets, and waits until the rule sets are Ready.
async fn install(cluster: &TestCluster, kind: &Kind, rule_sets: &[Value]) {
    cluster
        .create(&crate::harness::CRD, None, &crd(kind, "Namespaced"))
        .await;
    for rule_set in rule_sets {
        cluster.ready_rule_set(rule_set).await;
    }
}

/// Returns the URIs of the server's list and watch requests for this resource so far.
fn requests(cluster: &TestCluster, kind: &Kind) -> Vec<String> {
    let events = audited(cluster);
    let of_kind = events.iter().filter(|event| {
        // The audit log has one event for each stage of a request. This function uses only the
        // event of one stage, so that it returns each request once.
        let stage = match text(event, "/verb") {
            "list" => "ResponseComplete",
            "watch" => "ResponseStarted",
            _ => return false,
        };
        text(event, "/stage") == stage && text(event, "/objectRef/resource") == kind.plural
    });
    of_kind
        .map(|event| text(event, "/requestURI").to_owned())
        .collect()
}

/// Returns the number of events (changed or deleted objects) that the server has read from this
/// resource. The number is a metric of the server.
async fn events_read(cluster: &TestCluster, kind: &Kind) -> u64 {
    let admin = [
        ("X-Remote-User", "admin"),
        ("X-Remote-Group", "system:masters"),
    ];
    let metrics = cluster
        .front_proxy()
        .get_with("/metrics", &admin)
        .await
        .text;
    let mut lines = metrics.lines();
    let line = lines
        .find(|line| line.starts_with("ifo_feed_events_total") && line.contains(kind.plural))
        .unwrap_or_else(|| panic!("no metric about {} in {metrics}", kind.plural));
    let (_, count) = line.rsplit_once(' ').expect("a metric has a value");
    count.parse().expect("a counter is a number")
}

/// Waits until the events about an operation are exactly `want`. Returns all events.
async fn wait_for_life(
    events: &mut Events,
    (subject, operation): (&str, &str),
    want: &[String],
) -> Vec<Value> {
    events
        .until(&format!("{subject}, {operation}: {want:?}"), |all| {
            (event_lines(all, subject, operation, None) == want).then(|| all.to_vec())
        })
        .await
}

/// Returns the lines of an operation that starts, becomes `Settling`, and ends after the debounce
/// period. `end` is [`LEFT`] or [`DELETED`].
fn settled(operation: &str, end: &str) -> Vec<String> {
    vec![
        format!("ADDED Active Progressing {operation} -: "),
        format!("MODIFIED Active Settling {operation} -: "),
        format!("MODIFIED Completed Ended {end}"),
        format!("DELETED Completed Ended {end}"),
    ]
}

/// Returns the lines of an operation that starts, and ends without becoming `Settling`. `end` is
/// [`LEFT`] or [`DELETED`].
fn ended(operation: &str, end: &str) -> Vec<String> {
    let mut life = settled(operation, end);
    life.remove(1);
    life
}

#[test]
fn a_selector_shared_by_all_rule_sets_is_sent_with_the_watch() {
    shared(async |cluster| {
        let namespace = cluster.namespace("shared").await;
        let second = format!("{namespace}-2");
        let mut rule_sets = [
            of_tier(namespace, &BACKUP, namespace, "Saving", "gold"),
            of_tier(&second, &BACKUP, namespace, "Copying", "gold"),
        ];
        // Below, an object must match the selector again before the debounce period ends. A period
        // of 1 h is long enough, even on a slow machine.
        rule_sets[1]["spec"]["rules"][0]["debounce"] = json!("1h");
        install(cluster, &BACKUP, &rule_sets).await;
        // Asserts that all list and watch requests have the selector. Returns their number.
        let check_selectors = || {
            let sent = requests(cluster, &BACKUP);
            assert!(!sent.is_empty());
            for uri in &sent {
                let selection = uri.split_once("labelSelector=").map(|(_, it)| it);
                let mut parts: Vec<&str> = selection
                    .unwrap_or_else(|| panic!("no label selector in {uri}"))
                    .split("%2C")
                    .collect();
                parts.sort_unstable();
                assert_eq!(parts, ["%21ignore", "tier%3Dgold"], "{uri}");
            }
            sent.len()
        };
        let sent = check_selectors();

        let mut events = cluster.watch(namespace).await;
        let gold = json!({"tier": "gold"});
        running(
            cluster,
            &BACKUP,
            namespace,
            "never",
            &json!({"tier": "silver"}),
        )
        .await;
        running(cluster, &BACKUP, namespace, "leaves", &gold).await;
        running(cluster, &BACKUP, namespace, "dies", &gold).await;
        running(cluster, &BACKUP, namespace, "enters", &json!({})).await;
        label(cluster, &BACKUP, namespace, "enters", &gold).await;
        let all = [
            ("dies", "Copying"),
            ("dies", "Saving"),
            ("enters", "Copying"),
            ("enters", "Saving"),
            ("leaves", "Copying"),
            ("leaves", "Saving"),
        ];
        cluster.until_operations(namespace, &all).await;
        // The server must have read one event for each of the three matching objects. There is one
        // exception: if a watch was interrupted, the server has sent further requests, and may have
        // read the objects again.
        let read = events_read(cluster, &BACKUP).await;
        assert!(read == 3 || check_selectors() > sent, "{read}");

        // The labels of the object `leaves` change, so that the selector no longer matches. The
        // object `dies` is deleted. A watch with a selector reports both changes as DELETED. The
        // server must find out that `leaves` still exists.
        label(
            cluster,
            &BACKUP,
            namespace,
            "leaves",
            &json!({"ignore": ""}),
        )
        .await;
        delete(cluster, &BACKUP, namespace, "dies").await;
        for operation in ["Saving", "Copying"] {
            let want = ended(operation, DELETED);
            wait_for_life(&mut events, ("dies", operation), &want).await;
        }
        let want = settled("Saving", LEFT);
        wait_for_life(&mut events, ("leaves", "Saving"), &want).await;
        let want = &settled("Copying", LEFT)[..2];
        wait_for_life(&mut events, ("leaves", "Copying"), want).await;
        // The labels of the object `enters` change, so that the selector no longer matches. Before
        // the debounce period of `Copying` ends, the labels change back. The operation `Copying` on
        // this object must continue.
        label(
            cluster,
            &BACKUP,
            namespace,
            "enters",
            &json!({"tier": null}),
        )
        .await;
        let mut want = settled("Copying", LEFT);
        want.truncate(2);
        wait_for_life(&mut events, ("enters", "Copying"), &want).await;
        label(cluster, &BACKUP, namespace, "enters", &gold).await;
        want.push("MODIFIED Active Progressing Copying -: ".to_owned());
        let all_events = wait_for_life(&mut events, ("enters", "Copying"), &want).await;
        assert!(event_lines(&all_events, "never", "Saving", None).is_empty());
        // An operation that ended and started again would have two UIDs.
        let copies = all_events.iter().filter(|event| {
            let spec = &event["object"]["spec"];
            spec["subject"]["name"] == "enters" && spec["operation"] == "Copying"
        });
        let uids: BTreeSet<&str> = copies
            .map(|event| text(event, "/object/metadata/uid"))
            .collect();
        assert_eq!(uids.len(), 1, "{all_events:?}");

        // The second rule set gets another selector. The selectors now differ, so the server must
        // watch without a selector.
        let sent = requests(cluster, &BACKUP).len();
        let other = json!({"spec": {"labelSelector": {"matchLabels": {"tier": "silver"}}}});
        let path = format!("{}/{second}", RULE_SET.path(None));
        cluster.admin.merge(&path, &other).await.ok();
        eventually("the operations match the new selector", async || {
            let mut operations = cluster.operations(namespace).await;
            operations.retain(|it| it["status"]["state"] != "Settling");
            let names = ["/spec/subject/name", "/spec/operation"];
            let found: Vec<_> = operations
                .iter()
                .map(|it| names.map(|name| text(it, name)))
                .collect();
            ok_if(
                found == [["enters", "Saving"], ["never", "Copying"]],
                &found,
            )
        })
        .await;
        eventually(
            "the server sends a request without a selector",
            async || {
                let later = requests(cluster, &BACKUP).split_off(sent);
                let all = later.iter().any(|uri| !uri.contains("labelSelector="));
                ok_if(all, later)
            },
        )
        .await;
    });
}
