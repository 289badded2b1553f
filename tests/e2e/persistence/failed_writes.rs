//! Tests of failed writes in persistence mode. Writes fail in three cases: the kube-apiserver is
//! stopped, the CRD is missing, or the server has no right to write custom resources. The server
//! must still serve operations, and must report a missing CRD and a missing right. When writes
//! succeed again, the server must write all custom resources.

use super::{
    CR, Persisting, crs, delete_custom_resources, install, random_status_changes::Traffic, writes,
};
use crate::harness::{
    CRD, alone_in_persistence_cluster, condition, eventually, full_size, migrating, ok_if, text,
};
use std::time::Duration;

const REGISTRATION: &str =
    "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.live.ifo.kubevirt.io";

#[test]
fn the_queue_catches_up_after_an_outage_of_the_kube_apiserver() {
    alone_in_persistence_cluster(async |cluster| {
        delete_custom_resources(cluster).await;
        let persisting = Persisting::start(cluster, &[]).await;
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
            cluster.wait_until_served().await;
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
    alone_in_persistence_cluster(async |cluster| {
        let persisting = Persisting::start(cluster, &[]).await;
        let namespace = cluster.namespace("no-crd").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        let definition = format!("{}/{}.ifo.kubevirt.io", CRD.path(None), CR.plural);
        let wait_for_condition = async |status: &str| {
            eventually(&format!("OperationsPersisted is {status}"), async || {
                let service = cluster.admin.get(REGISTRATION).await.ok();
                let found = condition(&service, "OperationsPersisted").clone();
                ok_if(found["status"] == status, &found)?;
                let available = condition(&service, "Available")["status"].clone();
                ok_if(available == "True", available)?;
                Ok(found)
            })
            .await
        };
        wait_for_condition("True").await;
        cluster.admin.delete(&definition).await.ok();
        eventually("the CRD is deleted", async || {
            let answer = cluster.admin.get(&CR.path(None)).await;
            ok_if(answer.code == 404, answer.code)
        })
        .await;
        cluster.machine(namespace, "a", "Migrating").await;
        eventually("the operation is served", async || {
            let live = persisting.live().await;
            let found = live
                .values()
                .any(|it| text(it, "/spec/subject/namespace") == namespace);
            ok_if(found, live.len())
        })
        .await;
        let found = wait_for_condition("False").await;
        assert_eq!(text(&found, "/reason"), "CustomResourceDefinitionMissing");
        assert!(persisting.log().contains("CustomResourceDefinitionMissing"));

        install(cluster).await;
        wait_for_condition("True").await;
        persisting.wait_until_equal().await;

        let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/ifo-apiserver-persistence";
        let without = r#"[{"op": "remove", "path": "/rules/0"}]"#.to_owned();
        let kind = "application/json-patch+json";
        cluster
            .admin
            .send(http::Method::PATCH, role, kind, without)
            .await
            .ok();
        cluster.machine(namespace, "b", "Migrating").await;
        let found = wait_for_condition("False").await;
        assert_eq!(text(&found, "/reason"), "Forbidden");
        let log = persisting.log();
        let lines = log.lines();
        let failures = lines.filter(|line| line.contains("but not written as custom resources"));
        assert_eq!(
            failures.filter(|line| line.contains("Forbidden")).count(),
            1,
            "{log}"
        );
        assert!(
            text(&found, "/message").contains("inflightoperations"),
            "{found}"
        );
        install(cluster).await;
        wait_for_condition("True").await;
        persisting.wait_until_equal().await;

        delete_custom_resources(cluster).await;
        // The server creates the custom resource of an operation in flight again.
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
