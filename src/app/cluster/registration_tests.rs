//! Tests of [`Registration`]: when it creates the `APIService`, and which fields it repairs.

use super::*;
use crate::config::{Config, Mode};
use aggregated_apiserver::auth::testing::{Cluster, eventually};
use http::Method;

const PATH: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.live.ifo.kubevirt.io";
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/ifo-apiserver-registration";

/// Returns a cluster with the `ClusterRole` that owns the `APIService`.
fn cluster() -> Cluster {
    let cluster = Cluster::new();
    cluster.put(
        ROLE,
        json!({"metadata": {"uid": "uid-of-role"}, "rules": []}),
    );
    cluster
}

fn config(flags: &[&str]) -> Serve {
    let args = ["ifo-apiserver"].iter().chain(flags);
    let config = Config::from(args.map(|arg| (*arg).to_owned()), |_| None);
    match config.expect("the flags are valid").mode {
        Mode::Serve(serve) => *serve,
        Mode::Demo(_) => panic!("the demo was not requested"),
    }
}

/// Starts the task with `--register`. Returns the readiness of the replica.
fn start(cluster: &Cluster) -> Arc<Readiness> {
    start_with(
        cluster,
        &[
            "--namespace=operations",
            "--service-name=ifo",
            "--register-annotation=example.com/inject=true",
        ],
    )
}

fn start_with(cluster: &Cluster, flags: &[&str]) -> Arc<Readiness> {
    let (sender, bundle) = watch::channel(Arc::from("PEM"));
    // The bundle stays valid after its sender is dropped.
    drop(sender);
    let config = config(flags);
    let task = Registration::new(cluster.client(), Some(&config), Some(bundle));
    let readiness = Arc::new(Readiness::new());
    tokio::spawn(task.keep(readiness.clone()));
    readiness
}

#[test]
fn the_created_apiservice_equals_the_manifest() {
    let manifest = include_str!("../../../apiservice/apiservice.yaml");
    let mut manifest: Value = serde_saphyr::from_str(manifest).expect("YAML");
    let mut spec = desired(&config(&[]))["spec"].take();
    spec.as_object_mut()
        .expect("a spec has fields")
        .retain(|_, value| !value.is_null());
    assert_eq!(spec, manifest["spec"].take());
}

#[tokio::test(start_paused = true)]
async fn the_apiservice_is_created_complete_after_the_first_successful_readiness_probe() {
    let cluster = cluster();
    let readiness = start(&cluster);
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(cluster.get(PATH).is_none());

    readiness.set_was_ready();
    eventually("the APIService", || cluster.get(PATH).is_some()).await;
    let mut created = cluster.get(PATH).expect("it exists");
    created["metadata"]
        .as_object_mut()
        .expect("an object has metadata")
        .remove("resourceVersion");
    let expected = json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {
            "name": "v1alpha1.live.ifo.kubevirt.io",
            "labels": {"app.kubernetes.io/part-of": "ifo"},
            "annotations": {"example.com/inject": "true"},
            "ownerReferences": [{
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "name": "ifo-apiserver-registration", "uid": "uid-of-role",
            }],
        },
        "spec": {
            "group": "live.ifo.kubevirt.io", "version": "v1alpha1",
            "groupPriorityMinimum": 2000, "versionPriority": 100,
            "service": {"name": "ifo", "namespace": "operations", "port": 443},
            "caBundle": "UEVN",
        },
    });
    assert_eq!(created, expected);
    assert!(cluster.seen(&Method::PATCH).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_changed_apiservice_is_repaired_and_foreign_fields_are_kept() {
    let cluster = cluster();
    start(&cluster).set_was_ready();
    eventually("the APIService", || cluster.get(PATH).is_some()).await;
    let mut changed = cluster.get(PATH).expect("it exists");
    changed["spec"]["service"]["name"] = json!("other");
    changed["spec"]["caBundle"] = json!("b3RoZXI=");
    changed["metadata"]["annotations"] = json!({"who": "admin"});
    changed["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "uid-of-other",
    }]);
    cluster.put(PATH, changed);
    let service = || {
        cluster
            .get(PATH)
            .map(|it| it["spec"]["service"]["name"].clone())
    };
    eventually("the repaired Service", || service() == Some(json!("ifo"))).await;
    let repaired = cluster.get(PATH).expect("it exists");
    assert_eq!(
        repaired["metadata"]["annotations"],
        json!({"who": "admin", "example.com/inject": "true"})
    );
    let owners = &repaired["metadata"]["ownerReferences"];
    assert_eq!(owners[0]["uid"], "uid-of-role");
    assert_eq!(owners[1]["uid"], "uid-of-other");
    // The task of the caBundle writes this field.
    assert_eq!(repaired["spec"]["caBundle"], "b3RoZXI=");
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_apiservice_is_not_written() {
    for flags in [&[][..], &["--register-annotation=example.com/inject=true"]] {
        let cluster = cluster();
        start_with(&cluster, flags).set_was_ready();
        eventually("the APIService", || cluster.get(PATH).is_some()).await;
        let mut stored = cluster.get(PATH).expect("it exists");
        let metadata = stored["metadata"].as_object_mut().expect("an object");
        // A kube-apiserver stores no empty map.
        metadata.retain(|_, value| *value != json!({}));
        cluster.put(PATH, stored);
        tokio::time::sleep(CHECK_INTERVAL * 10).await;
        assert!(cluster.seen(&Method::PATCH).is_empty(), "{flags:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_creation_is_tried_again() {
    let cluster = cluster();
    cluster.refuse(Method::POST, "/apiservices", 403);
    start(&cluster).set_was_ready();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(cluster.get(PATH).is_none());
    eventually("the APIService", || cluster.get(PATH).is_some()).await;
}
