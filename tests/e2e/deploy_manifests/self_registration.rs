//! Checks the component `register`, with which the server creates and repairs its APIService.

use crate::harness::{API_SERVICE, Cluster, text};
use serde_json::{Value, json};

/// Damages and deletes the APIService that the server has created. The server must repair it.
pub async fn check(cluster: &Cluster) {
    let created = cluster.registration().await.expect("it exists");
    let owner = text(&created, "/metadata/ownerReferences/0/name");
    assert_eq!(owner, "ifo-apiserver-registration");
    check_rights(cluster).await;
    let damage = json!({"spec": {"caBundle": null, "service": {"port": 1}, "versionPriority": 7}});
    cluster.admin.merge(API_SERVICE, &damage).await.ok();
    let is_repaired = |it: &Value| it["spec"] == created["spec"];
    let until_repaired = async || {
        let what = "the server repairs its APIService";
        let admin = &cluster.admin;
        admin.until_object(what, API_SERVICE, is_repaired).await;
    };
    until_repaired().await;
    cluster.admin.delete(API_SERVICE).await.ok();
    until_repaired().await;
    cluster.until_served().await;
}

/// Asserts that the server may create its own APIService, and no other one.
async fn check_rights(cluster: &Cluster) {
    for (group, version, why) in [
        ("other.example.com", "v1", "may only create the APIService"),
        ("live.ifo.kubevirt.io", "v1alpha1", "AlreadyExists"),
    ] {
        let namespace = cluster.namespace;
        let object = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.{group}")},
            "spec": {
                "group": group, "version": version,
                "groupPriorityMinimum": 1, "versionPriority": 1,
                "service": {"name": "ifo-apiserver", "namespace": namespace},
            },
        });
        let line = format!("create -f - --as system:serviceaccount:{namespace}:ifo-apiserver");
        let refused = cluster.kubectl_with(&line, object.to_string()).await;
        let refused = refused.expect_err("it is another APIService, or it exists");
        assert!(refused.contains(why), "{refused}");
    }
}
