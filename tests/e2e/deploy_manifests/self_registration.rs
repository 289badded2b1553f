//! Tests of the component `register`, with which the server creates and repairs its APIService.

use crate::harness::{ServerProcess, apart, eventually, ok_if, text};
use crate::installation::{ACCOUNT, Cluster};
use serde_json::{Value, json};

const NAME: &str = "v1alpha1.live.ifo.kubevirt.io";

/// The kustomization with the server and the component `register`.
const SERVER: &str = "deploy/register";

/// Installs the CRDs, the server and all rule packs. The server does not run, as in a cluster that
/// cannot pull the image.
async fn install(cluster: &Cluster<'_>) {
    for folder in ["deploy/crd", "deploy/crd-persistence", SERVER, "rules"] {
        cluster.kubectl_on_folder("apply", folder).await;
    }
}

#[test]
fn the_server_registers_and_repairs_itself_until_it_is_removed() {
    apart("register", async |control_plane| {
        let cluster = Cluster::of(control_plane).await;
        install(&cluster).await;
        let mut server: ServerProcess = cluster.server().await;
        cluster.wait_until_served().await;
        let created = cluster.registration().await.expect("it exists");
        assert_eq!(
            text(&created, "/metadata/ownerReferences/0/name"),
            "ifo-apiserver-registration"
        );
        check_rights(&cluster).await;

        let damage =
            json!({"spec": {"caBundle": null, "service": {"port": 1}, "versionPriority": 7}});
        let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/{NAME}");
        cluster.admin.merge(&path, &damage).await.ok();
        eventually("the server repairs its APIService", async || {
            let found = cluster.registration().await.unwrap_or_default();
            ok_if(found["spec"] == created["spec"], &found["spec"])
        })
        .await;
        let delete = ["delete", "apiservice", NAME];
        cluster.kubectl(&delete).await.expect("it can be deleted");
        cluster.wait_until_served().await;
        let created_again = cluster.registration().await.expect("it exists");
        assert_eq!(created_again["spec"], created["spec"]);
        cluster.a_namespace_can_be_deleted("during").await;

        // A server that stops keeps its APIService, because other replicas may run. The removal of
        // the server deletes it.
        assert!(server.terminate().await.success());
        assert!(cluster.registration().await.is_some());
        cluster.kubectl_on_folder("delete", SERVER).await;
        assert_eq!(cluster.registration().await, None);
        cluster.a_namespace_can_be_deleted("after").await;
    });
}

/// Asserts that the server may create its own APIService, and no other one.
async fn check_rights(cluster: &Cluster<'_>) {
    let other = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.other.example.com"},
        "spec": {
            "group": "other.example.com", "version": "v1",
            "groupPriorityMinimum": 1, "versionPriority": 1,
            "service": {"name": "ifo-apiserver", "namespace": "ifo-system"},
        },
    });
    let create = async |object: &Value| {
        let kubectl = &cluster.control_plane.addresses.kubectl;
        let args = ["create", "-f", "-", "--as", ACCOUNT];
        crate::harness::kubectl(kubectl, &args, Some(object.to_string())).await
    };
    let refused = create(&other).await.expect_err("it is another APIService");
    assert!(
        refused.contains("may only create the APIService"),
        "{refused}"
    );
    let mut own = other;
    own["metadata"]["name"] = json!(NAME);
    own["spec"]["group"] = json!("live.ifo.kubevirt.io");
    own["spec"]["version"] = json!("v1alpha1");
    let refused = create(&own).await.expect_err("it exists");
    assert!(refused.contains("AlreadyExists"), "{refused}");
}
