//! Tests of targets. A target is a resource that the server watches because a rule set names it.
//! The CRD of a target can be missing, installed later, or removed. The server can also lack the
//! right to read the target.

use crate::harness::{
    CRD, Kind, RULE_SET, TestCluster, condition, crd, eventually, ok_if, rule_set, shared, text,
};
use serde_json::{Value, json};

/// A kind that `deploy/targets-default` allows the server to read. No other test installs it.
const CLONE: Kind = Kind {
    api_version: "clone.kubevirt.io/v1beta1",
    kind: "VirtualMachineClone",
    plural: "virtualmachineclones",
};
/// A kind that the server is not allowed to read.
const WIDGET: Kind = Kind {
    api_version: "e2e.example.com/v1",
    kind: "Widget",
    plural: "widgets",
};

/// Returns a rule set that detects the operation `Running`.
fn running(name: &str, target: &Kind) -> Value {
    rule_set(
        name,
        target,
        &[("Running", "object.status.phase == 'Running'")],
    )
}

/// Creates an object on which the rule set of [`running`] detects `Running`. Repeats the request
/// until the kube-apiserver serves the kind of the object.
async fn create_running(cluster: &TestCluster, kind: &Kind, namespace: &str, name: &str) {
    let object = json!({
        "apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name},
        "status": {"phase": "Running"},
    });
    let path = kind.path(Some(namespace));
    eventually(&format!("{} can be created", kind.kind), async || {
        let answer = cluster.admin.post(&path, &object).await;
        ok_if(answer.code == 201, answer)
    })
    .await;
}

#[test]
fn a_target_installed_later_is_watched_automatically() {
    shared(async |cluster| {
        let namespace = cluster.namespace("later").await;
        cluster
            .create(&RULE_SET, None, &running(namespace, &CLONE))
            .await;
        let waiting = cluster
            .rule_set_until(namespace, "NotInstalled", |it| {
                condition(it, "NotInstalled")["status"] == "True"
            })
            .await;
        let message = text(condition(&waiting, "NotInstalled"), "/message");
        assert!(message.contains("clone.kubevirt.io"), "{message}");
        assert_eq!(condition(&waiting, "Ready")["reason"], "NotInstalled");
        assert_eq!(condition(&waiting, "Validated")["status"], "True");

        cluster.create(&CRD, None, &crd(&CLONE, "Namespaced")).await;
        let active = cluster
            .rule_set_until(namespace, "Ready", |it| {
                condition(it, "Ready")["status"] == "True"
            })
            .await;
        assert_eq!(condition(&active, "NotInstalled"), &Value::Null, "{active}");
        assert_eq!(active["status"]["watchActive"], true);
        create_running(cluster, &CLONE, namespace, "a").await;
        cluster
            .until_operations(namespace, &[("a", "Running")])
            .await;
    });
}

#[test]
fn a_forbidden_watch_names_the_missing_right_and_recovers_when_granted() {
    shared(async |cluster| {
        let namespace = cluster.namespace("forbidden").await;
        cluster
            .create(&CRD, None, &crd(&WIDGET, "Namespaced"))
            .await;
        cluster
            .create(&RULE_SET, None, &running(namespace, &WIDGET))
            .await;
        let failed = cluster
            .rule_set_until(namespace, "WatchFailed", |it| {
                condition(it, "WatchFailed")["status"] == "True"
            })
            .await;
        let message = text(condition(&failed, "WatchFailed"), "/message");
        for part in ["widgets", "e2e.example.com", "watch", "cluster scope"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert_eq!(condition(&failed, "Ready")["status"], "False", "{failed}");
        assert_ne!(failed["status"]["watchActive"], true, "{failed}");

        // The message contains the commands that grant the missing right.
        let (_, commands) = message
            .split_once("or run: ")
            .expect("the message must contain commands");
        for command in commands.split(" && ") {
            let args: Vec<&str> = command.split_whitespace().skip(1).collect();
            cluster
                .kubectl(&args)
                .await
                .expect("the commands in the message must work");
        }
        let ready = cluster
            .rule_set_until(namespace, "Ready", |it| {
                condition(it, "Ready")["status"] == "True"
            })
            .await;
        assert_eq!(condition(&ready, "WatchFailed"), &Value::Null, "{ready}");
        create_running(cluster, &WIDGET, namespace, "a").await;
        cluster
            .until_operations(namespace, &[("a", "Running")])
            .await;
    });
}
