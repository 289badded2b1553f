//! Test of the server's writes to the cluster. Persistence mode, which writes operations as custom
//! resources, is off. The server must write only the documented objects, and must not write an
//! object for each operation. The test reads the writes from the audit log.

use crate::harness::{TestCluster, alone, audited, migrating, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Instant;

/// Returns the audit events about writes of the server's ServiceAccount so far. Requests that
/// create SubjectAccessReviews and TokenReviews also count as writes.
fn writes(cluster: &TestCluster) -> Vec<Value> {
    let mut events = audited(cluster);
    events.retain(|event| !matches!(text(event, "/verb"), "get" | "list" | "watch"));
    events
}

/// Formats a write as `verb group/resource/subresource namespace/name`.
fn summary(event: &Value) -> String {
    let of = |field: &str| text(event, &format!("/objectRef/{field}"));
    format!(
        "{} {}/{}/{} {}/{}",
        text(event, "/verb"),
        of("apiGroup"),
        of("resource"),
        of("subresource"),
        of("namespace"),
        of("name")
    )
}

fn is_review(event: &Value) -> bool {
    matches!(
        text(event, "/objectRef/resource"),
        "subjectaccessreviews" | "tokenreviews"
    )
}

fn is_lease(event: &Value) -> bool {
    text(event, "/objectRef/resource") == "leases"
}

fn is_status(event: &Value) -> bool {
    text(event, "/objectRef/resource") == "operationrulesets"
        && text(event, "/objectRef/subresource") == "status"
}

#[test]
fn the_server_writes_only_the_documented_objects() {
    alone(async |cluster| {
        let namespace = cluster.namespace("writes").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        let before = writes(cluster).len();
        let started = Instant::now();
        let machines: Vec<String> = (0..20).map(|number| format!("vm-{number:02}")).collect();
        let all: Vec<(&str, &str)> = machines
            .iter()
            .map(|it| (it.as_str(), "Migrating"))
            .collect();
        for name in &machines {
            cluster.machine(namespace, name, "Migrating").await;
        }
        cluster.until_operations(namespace, &all).await;
        for name in &machines {
            cluster.set_status(namespace, name, "Running").await;
        }
        cluster.until_operations(namespace, &[]).await;

        let events = writes(cluster);
        let new: Vec<String> = events[before..]
            .iter()
            .filter(|it| !is_review(it) && !is_lease(it))
            .map(summary)
            .collect();
        let statuses = events[before..].iter().filter(|it| is_status(it)).count();
        assert_eq!(
            new.len(),
            statuses,
            "the server must not write for an operation: {new:?}"
        );
        // The server writes the `lastEvaluationTime` of a rule set at most once per
        // `REQUEUE_INTERVAL` (5 s in the tests), for any number of operations. The test allows five
        // more writes, for other changes of the status.
        let own = format!("/{namespace}");
        let own = new.iter().filter(|it| it.ends_with(&own)).count() as u64;
        let intervals = started.elapsed().as_secs() / 5;
        assert!(own <= intervals + 5, "{intervals} intervals: {new:?}");

        let allowed = |event: &Value| {
            let verb = text(event, "/verb");
            let of = |field: &str| text(event, &format!("/objectRef/{field}"));
            match (of("resource"), of("name")) {
                ("subjectaccessreviews" | "tokenreviews", _) => verb == "create",
                ("operationrulesets", _) => {
                    of("subresource") == "status" && matches!(verb, "patch" | "update")
                }
                ("secrets", name) => {
                    of("namespace") == "ifo-system"
                        && name == "ifo-apiserver-serving-ca"
                        && verb == "update"
                }
                ("configmaps", "ifo-apiserver-baselines") => {
                    of("namespace") == "ifo-system" && verb == "patch"
                }
                ("leases", name) => {
                    of("namespace") == "ifo-system"
                        && match verb {
                            "create" => matches!(name, "" | "ifo-apiserver"),
                            "update" => name == "ifo-apiserver",
                            _ => false,
                        }
                }
                ("apiservices", "v1alpha1.live.ifo.kubevirt.io") => {
                    matches!(verb, "patch" | "update")
                }
                _ => false,
            }
        };
        let other: Vec<String> = events
            .iter()
            .filter(|event| !allowed(event))
            .map(summary)
            .collect();
        assert!(other.is_empty(), "{other:?}");
        // A kube-apiserver that has just started refuses requests until it has read the roles. So
        // it may have refused some writes. But for each kind of write, such as an update of a
        // Lease, at least one request must have succeeded.
        let kind = |event: &Value| {
            let of = |field: &str| text(event, &format!("/objectRef/{field}")).to_owned();
            let verb = text(event, "/verb").to_owned();
            (verb, of("resource"), of("subresource"))
        };
        let succeeded = |event: &&Value| event["responseStatus"]["code"].as_u64() < Some(400);
        let good: BTreeSet<_> = events.iter().filter(succeeded).map(kind).collect();
        let all: BTreeSet<_> = events.iter().map(kind).collect();
        let refused: Vec<_> = all.difference(&good).collect();
        assert!(refused.is_empty(), "{refused:?}");
    });
}
