//! Test of the server's writes to the cluster. The RBAC roles allow it to write only the documented
//! objects, and `shipped_roles` proves that it needs each right. This test proves that it does not write
//! an object for each operation. The test reads the writes from the audit log.

use crate::harness::{ACCOUNT, TestCluster, alone, migrating, text};
use serde_json::Value;
use std::time::Instant;

/// Returns the server's writes so far, without reviews and renewals of the Lease. Each has the form
/// `verb resource/subresource name`.
fn writes(cluster: &TestCluster) -> Vec<String> {
    let is_write = |event: &Value| {
        text(event, "/user/username") == ACCOUNT
            && !matches!(text(event, "/verb"), "get" | "list" | "watch")
            && !matches!(
                text(event, "/objectRef/resource"),
                "subjectaccessreviews" | "tokenreviews" | "leases"
            )
    };
    let summary = |event: Value| {
        let of = |field: &str| text(&event, &format!("/objectRef/{field}")).to_owned();
        let verb = text(&event, "/verb");
        format!(
            "{verb} {}/{} {}",
            of("resource"),
            of("subresource"),
            of("name")
        )
    };
    let events = cluster.audit_log(0).into_iter();
    events.filter(is_write).map(summary).collect()
}

#[test]
fn the_server_writes_no_object_for_an_operation() {
    alone(async |cluster| {
        let namespace = cluster.new_namespace("writes").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        let before = writes(cluster).len();
        let started = Instant::now();
        let machines: Vec<String> = (0..20).map(|number| format!("vm-{number:02}")).collect();
        for name in &machines {
            cluster.machine(namespace, name, "Migrating").await;
        }
        let all: Vec<_> = machines
            .iter()
            .map(|it| (it.as_str(), "Migrating"))
            .collect();
        cluster.until_operations(namespace, &all).await;
        for name in &machines {
            cluster.set_status(namespace, name, "Running").await;
        }
        cluster.until_operations(namespace, &[]).await;

        let new = &writes(cluster)[before..];
        let is_status = |it: &&String| it.contains("operationrulesets/status");
        let statuses: Vec<&String> = new.iter().filter(is_status).collect();
        assert_eq!(new.len(), statuses.len(), "{new:?}");
        // The server writes the `lastEvaluationTime` of a rule set at most once per
        // `REQUEUE_INTERVAL` (5 s in the tests), for any number of operations. The test allows five
        // more writes, for other changes of the status.
        let own = statuses.iter().filter(|it| it.ends_with(namespace)).count() as u64;
        let intervals = started.elapsed().as_secs() / 5;
        assert!(own <= intervals + 5, "{intervals} intervals: {new:?}");
    });
}
