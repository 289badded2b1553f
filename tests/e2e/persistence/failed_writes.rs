//! Tests of failed writes in persistence mode. Writes fail in three cases: the kube-apiserver is
//! stopped, the CRD is missing, or the server has no right to write custom resources. The server
//! must still serve operations, and must report a missing CRD and a missing right. When writes
//! succeed again, the server must write all custom resources.

use super::{CR, crs, install, persisting, random_status_changes::Traffic, writes};
use crate::harness::{
    API_SERVICE, CRD, condition, eventually, full_size, is, migrating, ok_if, text,
};
use http::Method;
use serde_json::Value;
use std::time::Duration;

#[test]
fn the_queue_catches_up_after_an_outage_of_the_kube_apiserver() {
    persisting(async |persisting| {
        let cluster = persisting.cluster;
        let mut traffic = Traffic::start(cluster, 20).await;
        let mut outage = async |away: Duration| {
            let stop = async {
                tokio::time::sleep(Duration::from_millis(700)).await;
                let stopped = cluster.control_plane.command("stop kube-apiserver").await;
                stopped.expect("the kube-apiserver must stop");
            };
            tokio::join!(traffic.steps(300), stop);
            // While the kube-apiserver is stopped, the server must still serve the operations in
            // its memory.
            assert!(!persisting.live().await.is_empty());
            tokio::time::sleep(away).await;
            let started = cluster.control_plane.command("start kube-apiserver").await;
            started.expect("the kube-apiserver must start");
            cluster.until_served().await;
        };
        if full_size() {
            outage(Duration::from_mins(1)).await;
        }
        outage(Duration::from_secs(5)).await;
        let resident = persisting.metric("process_resident_memory_bytes").await;
        #[allow(clippy::cast_precision_loss, reason = "megabytes")]
        let limit = persisting.server.memory_limit() as f64;
        assert!(resident > 0.0 && resident < limit, "{resident}");
        traffic.steps(100).await;
        traffic.repeat().await;
        eventually(
            "the custom resources equal the expected operations",
            async || {
                let crs = persisting.wait_until_equal().await;
                let active = traffic.active(crs.values());
                ok_if(active == traffic.expected_active(), active)
            },
        )
        .await;
    });
}

#[test]
fn without_the_crd_or_rights_operations_are_served_with_a_condition() {
    persisting(async |persisting| {
        let cluster = persisting.cluster;
        let namespace = cluster.new_namespace("no-crd").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        let until_condition = async |value: &str| {
            let is =
                |it: &Value| is(it, "OperationsPersisted", value) && is(it, "Available", "True");
            let what = format!("OperationsPersisted is {value}");
            let found = cluster.admin.until_object(&what, API_SERVICE, is).await;
            condition(&found, "OperationsPersisted").clone()
        };
        until_condition("True").await;
        let definition = CRD.one(None, &format!("{}.ifo.kubevirt.io", CR.plural));
        cluster.admin.delete(&definition).await.ok();
        cluster.admin.until_code(&CR.path(None), 404).await;
        cluster.machine(namespace, "a", "Migrating").await;
        eventually("the operation is served", async || {
            let live = persisting.live_in(namespace).await;
            ok_if(!live.is_empty(), live)
        })
        .await;
        until_condition("CustomResourceDefinitionMissing").await;
        let log = persisting.server.log();
        assert!(log.contains("CustomResourceDefinitionMissing"), "{log}");
        install(cluster).await;
        until_condition("True").await;
        persisting.wait_until_equal().await;

        let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/ifo-apiserver-persistence";
        let without = r#"[{"op": "remove", "path": "/rules/0"}]"#.to_owned();
        let kind = "application/json-patch+json";
        cluster
            .admin
            .send(Method::PATCH, role, kind, without)
            .await
            .ok();
        cluster.machine(namespace, "b", "Migrating").await;
        let found = until_condition("Forbidden").await;
        assert!(
            text(&found, "/message").contains("inflightoperations"),
            "{found}"
        );
        let log = persisting.server.log();
        let lines = log.lines();
        let failures = lines.filter(|line| line.contains("but not written as custom resources"));
        let forbidden = failures.filter(|line| line.contains("Forbidden"));
        assert_eq!(forbidden.count(), 1, "{log}");
        install(cluster).await;
        until_condition("True").await;
        persisting.wait_until_equal().await;

        // The server creates the custom resource of an operation in flight again.
        cluster.admin.delete(&CR.path(None)).await.ok();
        let before = writes(cluster).await;
        cluster.set_status(namespace, "a", "Running").await;
        eventually("the end of the operation is written", async || {
            let crs = crs(cluster).await;
            let ended = crs.values().any(|cr| cr["status"]["phase"] == "Completed");
            ok_if(ended, crs.len())
        })
        .await;
        assert!(writes(cluster).await > before);
    });
}
