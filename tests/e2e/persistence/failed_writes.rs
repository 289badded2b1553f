//! Test of failed writes in persistence mode: the CRD is missing, or the server has no right to write
//! custom resources. The server must still serve operations, and must report the missing CRD and the
//! missing right. When writes succeed again, the server must write all custom resources.

use super::{CR, install, persisting};
use crate::harness::{API_SERVICE, CRD, condition, eventually, is, migrating, ok_if, text};
use http::Method;
use serde_json::Value;

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
    });
}
