//! Tests of the installation with the real kubectl and the steps in `docs/installation.md`. Each
//! test has a new control plane. Without a kubelet, the Pods of the Deployment never run, so the
//! tests start the server as a process.

use crate::deploy_manifests::certificate_renewal::renew_own_ca;
use crate::harness::{
    ACCOUNT, API_SERVICE, Cluster, Kind, apart, eventually, items, ok_if, shared,
};
use serde_json::{Value, json};

/// The kind that the rule sets in `rules/cert-manager` watch.
const CERTIFICATE: Kind = Kind::new("cert-manager.io/v1", "Certificate", "certificates");

/// Returns true if the ServiceAccount of the server has this right in all namespaces.
async fn server_may(cluster: &Cluster, verb: &str, resource: &str) -> bool {
    let line = format!("auth can-i {verb} {resource} -A --as {ACCOUNT}");
    match &cluster.try_kubectl(&line).await {
        Ok(text) if text.trim() == "yes" => true,
        Err(text) if text.trim_end().ends_with("no") => false,
        other => panic!("{other:?}"),
    }
}

/// Returns the rules of a ClusterRole.
async fn rules_of(cluster: &Cluster, role: &str) -> Value {
    let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}");
    cluster.admin.get(&path).await.ok()["rules"].take()
}

/// Returns the errors and warnings in a log. Leaves out warnings about interrupted watches, because
/// they depend on the load of the machine.
fn errors_and_warnings(log: &str) -> Vec<&str> {
    let is_error = |line: &&str| {
        (line.contains("ERROR") || line.contains("WARN"))
            && !line.contains("the watch is interrupted")
    };
    log.lines().filter(is_error).collect()
}

#[test]
fn the_manifests_are_accepted_without_a_warning() {
    shared(async |cluster| {
        for folder in ["deploy", "rules"] {
            let line = format!("create -k {folder} --dry-run=server --warnings-as-errors");
            let error = cluster.try_kubectl(&line).await.err().unwrap_or_default();
            // The harness has already installed some of these objects. So the test ignores the
            // errors that report a conflict with an existing object.
            let exists = ["AlreadyExists", "already exists", "already allocated"];
            let other = error
                .lines()
                .filter(|line| line.contains("rror") || line.contains("arning"))
                .filter(|line| !exists.iter().any(|it| line.contains(it)));
            assert_eq!(other.count(), 0, "{error}");
        }
    });
}

#[test]
fn the_installation_blocks_no_namespace_and_its_removal_keeps_rule_sets() {
    apart("installation", async |cluster| {
        cluster.apply_folders(&["deploy/crd", "deploy"]).await;
        let wait = "wait --for=condition=Available deployment/ifo-apiserver -n ifo-system";
        let waited = cluster.try_kubectl(&format!("{wait} --timeout=1s")).await;
        let why = waited.expect_err("no kubelet runs the Deployment");
        assert!(why.contains("timed out waiting"), "{why}");
        assert_eq!(cluster.registration().await, None);
        cluster.a_namespace_can_be_deleted().await;

        // The right to read Pods is installed together with the rule sets that watch Pods. No rule
        // set is installed yet, so the server must not have this right.
        assert!(!server_may(cluster, "list", "pods").await);
        assert_eq!(rules_of(cluster, "ifo-targets").await, Value::Null);
        let server = cluster.server().await;
        cluster.register_server(&server).await;
        cluster.kubectl("get ifos -A").await;
        cluster.a_namespace_can_be_deleted().await;
        check_rights_of_a_pack(cluster).await;

        // A running server must log no error or warning when its registration is deleted.
        let before = server.log();
        cluster.kubectl("delete -k apiservice").await;
        cluster.a_namespace_can_be_deleted().await;
        cluster.register_server(&server).await;
        assert_eq!(
            errors_and_warnings(&server.log()),
            errors_and_warnings(&before)
        );

        // The removal has the steps of the installation in reverse order.
        let rule_sets = cluster.rule_sets().await;
        assert_eq!(rule_sets, ["certificate-rules"]);
        cluster.kubectl("delete -k apiservice").await;
        cluster.kubectl("delete -k deploy").await;
        drop(server);
        cluster.a_namespace_can_be_deleted().await;
        assert_eq!(cluster.rule_sets().await, rule_sets);
        let left = cluster.try_kubectl("get namespace ifo-system").await;
        assert!(left.is_err_and(|why| why.contains("NotFound")));
    });
}

/// Installs the rule pack `rules/cert-manager`, which contains rule sets and a ClusterRole. Asserts
/// that the pack gives the server the right to read certificates, and no other right.
async fn check_rights_of_a_pack(cluster: &Cluster) {
    cluster.define(&[CERTIFICATE]).await;
    cluster.apply_folders(&["rules/cert-manager"]).await;
    cluster
        .until_rule_set("certificate-rules", "Ready", "True")
        .await;
    assert_eq!(
        rules_of(cluster, "ifo-targets").await,
        rules_of(cluster, "ifo-rules-cert-manager").await
    );
    assert!(server_may(cluster, "watch", "certificates.cert-manager.io").await);
    for resource in ["pods", "secrets", "deployments.apps"] {
        assert!(!server_may(cluster, "list", resource).await, "{resource}");
    }
}

#[test]
fn deleting_the_server_first_deletes_its_registration_and_keeps_rule_sets_and_history() {
    apart("removal", async |cluster| {
        // The server is installed before the CRDs that it needs. When the CRDs exist, it must work
        // without a restart.
        cluster.apply_folders(&["deploy/persistence"]).await;
        let mut server = cluster.server().await;
        let missing = "their CRD is not installed: kubectl apply -k deploy/crd";
        let count = |text: &str| {
            let log = server.log();
            let lines = errors_and_warnings(&log);
            lines.into_iter().filter(|line| line.contains(text)).count()
        };
        eventually("the missing CRD is logged", async || {
            ok_if(count(missing) > 0, server.log())
        })
        .await;
        cluster.a_namespace_can_be_deleted().await;
        cluster
            .apply_folders(&["deploy/crd", "deploy/crd-persistence"])
            .await;
        cluster.register_server(&server).await;
        cluster.until_persisted().await;
        assert_eq!(count(missing), 1, "{}", server.log());
        assert_eq!(count("cannot be written"), 0, "{}", server.log());

        // This also applies `rules/generic`.
        renew_own_ca(cluster, &server).await;
        let rule_sets = cluster.rule_sets().await;
        assert!(rule_sets.len() > 5, "{rule_sets:?}");
        // The rule sets in `rules/generic` detect the rollout of the server's own Deployment. No
        // node runs the Pods of the Deployment, so this operation stays in flight.
        let records = "/apis/ifo.kubevirt.io/v1alpha1/inflightoperations";
        let uid = |list: &Value| list["items"][0]["metadata"]["uid"].clone();
        let what = "an operation is written as a custom resource";
        let written = |list: &Value| uid(list).is_string();
        let operation = uid(&cluster.admin.until_object(what, records, written).await);
        let owned = |it: &Value| {
            let owner = &it["metadata"]["ownerReferences"][0]["name"];
            *owner == json!("ifo-apiserver-registration")
        };
        let what = "the registration has an owner";
        cluster.admin.until_object(what, API_SERVICE, owned).await;

        // An administrator may forget to delete the APIService first. Then `kubectl delete -k
        // deploy/persistence` must also delete the APIService. No kubelet stops the server, so the
        // test kills it.
        server.kill().await;
        cluster.kubectl("delete -k deploy/persistence").await;
        assert_eq!(cluster.registration().await, None);
        cluster.a_namespace_can_be_deleted().await;
        assert_eq!(cluster.rule_sets().await, rule_sets);
        let kept = cluster.admin.get(records).await.ok();
        let is_kept = |it: &Value| it["metadata"]["uid"] == operation;
        assert!(items(&kept).iter().any(is_kept), "{kept}");

        cluster.apply_folders(&["deploy"]).await;
        let server = cluster.server().await;
        cluster.register_server(&server).await;
        cluster
            .until_rule_set("deployment-rules", "Ready", "True")
            .await;
    });
}
