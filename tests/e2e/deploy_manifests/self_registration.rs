//! Test of the component `register`, with which the server creates and repairs its APIService.

use crate::harness::{ACCOUNT, API_SERVICE, Cluster, apart, text};
use serde_json::{Value, json};

/// The kustomization with the server and the component `register`.
const SERVER: &str = "deploy/register";

#[test]
fn the_server_registers_and_repairs_itself_until_it_is_removed() {
    apart("register", async |cluster| {
        let folders = ["deploy/crd", "deploy/crd-persistence", SERVER, "rules"];
        cluster.apply_folders(&folders).await;
        let mut server = cluster.server().await;
        cluster.until_served().await;
        let created = cluster.registration().await.expect("it exists");
        let owner = text(&created, "/metadata/ownerReferences/0/name");
        assert_eq!(owner, "ifo-apiserver-registration");
        check_rights(cluster).await;

        let damage =
            json!({"spec": {"caBundle": null, "service": {"port": 1}, "versionPriority": 7}});
        cluster.admin.merge(API_SERVICE, &damage).await.ok();
        let is_repaired = |it: &Value| it["spec"] == created["spec"];
        let what = "the server repairs its APIService";
        cluster
            .admin
            .until_object(what, API_SERVICE, is_repaired)
            .await;
        cluster.admin.delete(API_SERVICE).await.ok();
        cluster
            .admin
            .until_object(what, API_SERVICE, is_repaired)
            .await;
        cluster.until_served().await;
        cluster.a_namespace_can_be_deleted().await;

        // A server that stops keeps its APIService, because other replicas may run. The removal of
        // the server deletes it.
        assert!(server.terminate().await.success());
        assert!(cluster.registration().await.is_some());
        cluster.kubectl(&format!("delete -k {SERVER}")).await;
        assert_eq!(cluster.registration().await, None);
        cluster.a_namespace_can_be_deleted().await;
    });
}

/// Asserts that the server may create its own APIService, and no other one.
async fn check_rights(cluster: &Cluster) {
    for (group, version, why) in [
        ("other.example.com", "v1", "may only create the APIService"),
        ("live.ifo.kubevirt.io", "v1alpha1", "AlreadyExists"),
    ] {
        let object = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.{group}")},
            "spec": {
                "group": group, "version": version,
                "groupPriorityMinimum": 1, "versionPriority": 1,
                "service": {"name": "ifo-apiserver", "namespace": "ifo-system"},
            },
        });
        let line = format!("create -f - --as {ACCOUNT}");
        let refused = cluster.kubectl_with(&line, object.to_string()).await;
        let refused = refused.expect_err("it is another APIService, or it exists");
        assert!(refused.contains(why), "{refused}");
    }
}
