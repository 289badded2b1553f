//! Tests of targets. A target is a resource that the server watches because a rule set names it.
//! The CRD of a target can be missing and installed later. The server can also lack the right to read
//! the target.

use crate::harness::{CRD, Cluster, Kind, RULE_SET, condition, crd, is, rule_set, shared, text};
use serde_json::{Value, json};

/// A kind that `deploy/targets-default` allows the server to read. No other test installs it.
const CLONE: Kind = Kind {
    api_version: "clone.kubevirt.io/v1beta1",
    kind: "VirtualMachineClone",
    plural: "virtualmachineclones",
};
/// A kind that the server is not allowed to read.
const WIDGET: Kind = Kind::new("e2e.example.com/v1", "Widget", "widgets");

/// Creates a namespace and a rule set for a target. Returns the namespace, which is the name of the rule
/// set.
async fn with_rule_set(cluster: &Cluster, target: &Kind) -> &'static str {
    let namespace = cluster.new_namespace("target").await;
    let running = [("Running", "object.status.phase == 'Running'")];
    let rules = rule_set(namespace, target, &running);
    cluster.create(&RULE_SET, None, &rules).await;
    namespace
}

/// Waits until the rule set works and no longer has the condition `failure`. Then lets it detect an
/// operation.
async fn until_it_works(cluster: &Cluster, target: &Kind, namespace: &str, failure: &str) {
    let ready = cluster.until_rule_set(namespace, "Ready", "True").await;
    assert_eq!(condition(&ready, failure), &Value::Null, "{ready}");
    assert_eq!(ready["status"]["watchActive"], true);
    let object = target.object("a", json!({"status": {"phase": "Running"}}));
    let path = target.path(Some(namespace));
    cluster.admin.create_when_served(&path, &object).await;
    let running = [("a", "Running")];
    cluster.until_operations(namespace, &running).await;
}

#[test]
fn a_target_installed_later_is_watched_automatically() {
    shared(async |cluster| {
        let namespace = with_rule_set(cluster, &CLONE).await;
        let waiting = cluster
            .until_rule_set(namespace, "NotInstalled", "True")
            .await;
        let message = text(condition(&waiting, "NotInstalled"), "/message");
        assert!(message.contains("clone.kubevirt.io"), "{message}");
        assert!(is(&waiting, "Ready", "NotInstalled"), "{waiting}");
        assert!(is(&waiting, "Validated", "True"), "{waiting}");
        cluster.create(&CRD, None, &crd(&CLONE, "Namespaced")).await;
        until_it_works(cluster, &CLONE, namespace, "NotInstalled").await;
    });
}

#[test]
fn a_forbidden_watch_names_the_missing_right_and_recovers_when_granted() {
    shared(async |cluster| {
        cluster
            .create(&CRD, None, &crd(&WIDGET, "Namespaced"))
            .await;
        let namespace = with_rule_set(cluster, &WIDGET).await;
        let failed = cluster
            .until_rule_set(namespace, "WatchFailed", "True")
            .await;
        let message = text(condition(&failed, "WatchFailed"), "/message");
        for part in ["widgets", "e2e.example.com", "watch", "cluster scope"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert!(is(&failed, "Ready", "False"), "{failed}");
        assert_ne!(failed["status"]["watchActive"], true, "{failed}");

        // The message contains the commands that grant the missing right.
        let (_, commands) = message
            .split_once("or run: ")
            .expect("the message must contain commands");
        for command in commands.split(" && ") {
            let line = command.strip_prefix("kubectl ").expect("it is kubectl");
            cluster.kubectl(line).await;
        }
        until_it_works(cluster, &WIDGET, namespace, "WatchFailed").await;
    });
}
