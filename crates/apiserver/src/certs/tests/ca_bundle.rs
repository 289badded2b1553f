//! Tests of [`CaBundleUpdater`]: when it writes the `caBundle` of the `APIService`, and when it
//! does not.

use super::super::{CaBundleHolder, CaBundleUpdater};
use crate::auth::testing::{Cluster, eventually};
use crate::metrics::Metrics;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

pub(super) const NAME: &str = "v1alpha1.live.ifo.kubevirt.io";
pub(super) const PATH: &str =
    "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.live.ifo.kubevirt.io";

fn service(bundle: Option<&str>) -> Value {
    let mut object = json!({
        "metadata": {"annotations": {"who": "admin"}},
        "spec": {
            "group": "live.ifo.kubevirt.io", "version": "v1alpha1",
            "groupPriorityMinimum": 2000, "versionPriority": 100,
            "service": {"name": "ifo-apiserver", "namespace": "ifo-system"},
        },
    });
    if let Some(bundle) = bundle {
        object["spec"]["caBundle"] = json!(BASE64_STANDARD.encode(bundle));
    }
    object
}

fn start_updater(cluster: &Cluster) -> (watch::Sender<Arc<str>>, tokio::task::JoinHandle<()>) {
    start_updater_with_metrics(cluster, Arc::default())
}

/// Starts an updater that publishes the bundle `one` and updates `metrics`. Returns the sender of
/// later bundles, and the task of the updater.
fn start_updater_with_metrics(
    cluster: &Cluster,
    metrics: Arc<Metrics>,
) -> (watch::Sender<Arc<str>>, tokio::task::JoinHandle<()>) {
    let (sender, updater) = updater(cluster, metrics);
    (sender, tokio::spawn(updater.keep_up_to_date()))
}

fn updater(cluster: &Cluster, metrics: Arc<Metrics>) -> (watch::Sender<Arc<str>>, CaBundleUpdater) {
    let (sender, receiver) = watch::channel(Arc::from("one"));
    let holder = CaBundleHolder::ApiService(NAME);
    let (client, manager) = (cluster.client(), "ifo-apiserver");
    let updater = CaBundleUpdater::new(client, holder, receiver, manager, metrics);
    (sender, updater)
}

pub(super) fn bundle(cluster: &Cluster) -> Option<String> {
    let found = cluster.get(PATH)?["spec"]["caBundle"].as_str()?.to_owned();
    Some(String::from_utf8(BASE64_STANDARD.decode(found).unwrap()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_ca_bundle_is_set_when_the_apiservice_or_the_bundle_changes() {
    let cluster = Cluster::new();
    let (sender, keeping) = start_updater(&cluster);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(cluster.seen(&Method::PATCH).is_empty());

    cluster.put(PATH, service(None));
    let is = |expected: &str| bundle(&cluster).as_deref() == Some(expected);
    eventually("the first bundle", || is("one")).await;

    cluster.put(PATH, service(Some("the bundle of another writer")));
    eventually("the restored bundle", || is("one")).await;

    sender.send("two".into()).unwrap();
    eventually("the second bundle", || is("two")).await;

    cluster.delete(PATH);
    cluster.put(PATH, service(None));
    eventually("the bundle in the recreated APIService", || is("two")).await;

    // After the sender is dropped, the last bundle stays valid.
    drop(sender);
    cluster.put(PATH, service(None));
    eventually("the last bundle after its sender was dropped", || is("two")).await;

    // No other field was written.
    for seen in cluster.seen(&Method::PATCH) {
        assert_eq!(seen.path, PATH);
        assert_eq!(seen.body.as_array().unwrap().len(), 1);
        assert_eq!(seen.body[0]["path"], "/spec/caBundle");
    }
    let mut rest = cluster.get(PATH).unwrap();
    rest["spec"].as_object_mut().unwrap().remove("caBundle");
    assert_eq!(rest["spec"], service(None)["spec"]);
    keeping.abort();
}

#[tokio::test(start_paused = true)]
async fn each_webhook_of_a_configuration_gets_the_ca_bundle() {
    const PATH: &str =
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/gates";
    let cluster = Cluster::new();
    cluster.put(PATH, json!({"webhooks": []}));
    let (_sender, receiver) = watch::channel(Arc::from("one"));
    let holder = CaBundleHolder::Webhooks("gates");
    let updater = CaBundleUpdater::new(cluster.client(), holder, receiver, "a", Arc::default());
    let keeping = tokio::spawn(updater.keep_up_to_date());
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(cluster.seen(&Method::PATCH).is_empty());

    let current = BASE64_STANDARD.encode("one");
    let webhook = |bundle: &str| json!({"clientConfig": {"caBundle": bundle}});
    let without = json!({"clientConfig": {}});
    cluster.put(PATH, json!({"webhooks": [webhook(&current), without]}));
    let both = json!([webhook(&current), webhook(&current)]);
    eventually("both bundles", || {
        cluster.get(PATH).unwrap()["webhooks"] == both
    })
    .await;
    assert_eq!(cluster.seen(&Method::PATCH).len(), 1);
    keeping.abort();
}

#[tokio::test(start_paused = true)]
async fn a_correct_ca_bundle_is_not_written() {
    let cluster = Cluster::new();
    cluster.put(PATH, service(Some("one")));
    let (_sender, keeping) = start_updater(&cluster);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!((6..=7).contains(&cluster.seen(&Method::GET).len()));
    assert!(cluster.seen(&Method::PATCH).is_empty());
    keeping.abort();
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_write_is_retried_every_ten_seconds() {
    let cluster = Cluster::new();
    cluster.put(PATH, service(None));
    for _ in 0..3 {
        cluster.refuse(Method::PATCH, NAME, 403);
    }
    let (metrics, render) = Metrics::registered();
    let (_sender, keeping) = start_updater_with_metrics(&cluster, metrics.clone());
    let is_current = |value: i64| {
        let line = format!("ifo_ca_bundle_current{{}} {value}");
        render().contains(&line)
    };
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(bundle(&cluster), None);
    assert_eq!(cluster.seen(&Method::PATCH).len(), 3);
    assert!(is_current(0));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(bundle(&cluster).as_deref(), Some("one"));
    assert_eq!(cluster.seen(&Method::PATCH).len(), 4);
    assert!(is_current(1));
    keeping.abort();
}

#[tokio::test(start_paused = true)]
async fn only_a_refusal_by_rbac_is_reported_as_a_missing_permission() {
    for code in [403, 500] {
        let cluster = Cluster::new();
        cluster.put(PATH, service(None));
        cluster.refuse(Method::PATCH, NAME, code);
        let (_sender, updater) = updater(&cluster, Arc::default());
        let failure = updater.check(false).await.unwrap_err();
        assert!(failure.contains("cannot patch APIService"), "{failure}");
        assert_eq!(failure.contains("RBAC"), code == 403, "{failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_ca_disappears_after_a_failed_write() {
    let cluster = Cluster::new();
    let both = "one-----END CERTIFICATE-----two";
    cluster.put(PATH, service(Some("one")));
    let (sender, keeping) = start_updater(&cluster);
    sender.send(both.into()).unwrap();
    eventually("both CAs", || bundle(&cluster).as_deref() == Some(both)).await;
    cluster.refuse(Method::PATCH, NAME, 500);
    sender.send("two".into()).unwrap();
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(bundle(&cluster).as_deref(), Some("two"));
    keeping.abort();
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_is_retried() {
    let cluster = Cluster::new();
    cluster.put(PATH, service(None));
    // The first read is never answered.
    cluster.hang(Method::GET, NAME);
    let (_sender, keeping) = start_updater(&cluster);
    tokio::time::sleep(Duration::from_mins(3)).await;
    assert_eq!(bundle(&cluster).as_deref(), Some("one"));
    keeping.abort();
}

#[tokio::test(start_paused = true)]
async fn replicas_with_different_bundles_do_not_overwrite_each_other() {
    let end = "-----END CERTIFICATE-----\n";
    let both = format!("one{end}two{end}");
    let cluster = Cluster::new();
    // Another replica has already renewed its CA and published both certificates.
    cluster.put(PATH, service(Some(&both)));
    let (sender, receiver) = watch::channel(Arc::from(format!("one{end}")));
    let (metrics, render) = Metrics::registered();
    let keeping = CaBundleUpdater::new(
        cluster.client(),
        CaBundleHolder::ApiService(NAME),
        receiver,
        "ifo-apiserver",
        metrics.clone(),
    )
    .keep_up_to_date();
    let keeping = tokio::spawn(keeping);
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(cluster.seen(&Method::PATCH).is_empty());
    assert!(render().contains("ifo_ca_bundle_current{} 1"));
    // When the bundle of this replica changes, the replica writes the new bundle, even if the
    // `APIService` has more certificates.
    let two = format!("two{end}");
    sender.send(two.as_str().into()).unwrap();
    eventually("the shorter bundle", || {
        bundle(&cluster).as_ref() == Some(&two)
    })
    .await;
    keeping.abort();
}
