//! Tests how the server renews a certificate of its own CA while it runs.

use super::super::{
    Authority, CaBundleHolder, CaBundleUpdater, CaSecret, OwnCertificate, ServingCertificate, now,
};
use super::ca_bundle::{NAME as API_SERVICE, PATH as API_SERVICE_PATH, bundle};
use super::own_ca::accepts;
use super::secrets::{installed, secret};
use super::serving_files::{der, presented};
use crate::auth::testing::Cluster;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Method;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

const SECRET_NAME: &str = "ifo-apiserver-serving-ca";
const PATH: &str = "/api/v1/namespaces/ifo-system/secrets/ifo-apiserver-serving-ca";

async fn own(cluster: &Cluster) -> (OwnCertificate, Arc<ServingCertificate>) {
    let names = vec!["a".to_owned()];
    let secret = CaSecret::new(cluster.client(), "ifo-system", SECRET_NAME, "ifo-apiserver");
    let own = OwnCertificate::load(secret, names).await.unwrap();
    let first = own.issued();
    let serving = ServingCertificate::new(&first.chain, &first.key, Arc::default()).unwrap();
    (own, Arc::new(serving))
}

#[tokio::test(start_paused = true)]
async fn a_changed_ca_secret_is_adopted_without_failed_clients() {
    let cluster = installed();
    let (own, serving) = own(&cluster).await;
    let bundle = own.bundle();
    let first = presented(&serving);
    let keeping = tokio::spawn(own.keep_renewed(Arc::clone(&serving)));

    let other = Authority::create().unwrap();
    cluster.put(PATH, secret(&other));
    let mut swapped = false;
    for _ in 0..120 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (leaf, roots) = (presented(&serving), bundle.borrow().clone());
        assert!(accepts(&roots, &leaf, "a"));
        swapped |= leaf != first;
    }
    assert!(swapped);
    // Another replica reads the Secret later, and still presents a certificate of the old CA.
    assert!(accepts(&bundle.borrow(), &first, "a"));
    tokio::time::sleep(Duration::from_mins(6)).await;
    assert_eq!(**bundle.borrow(), *other.bundle());
    keeping.abort();
}

#[tokio::test]
async fn a_replica_that_starts_with_a_ca_near_its_end_still_publishes_that_ca() {
    let cluster = Cluster::new();
    let old = Authority::create_until(now() + 1000).unwrap();
    cluster.put(PATH, secret(&old));
    let others = old.issue(&["a".to_owned()]).unwrap();
    let (own, _serving) = own(&cluster).await;
    assert!(accepts(&own.bundle().borrow(), &der(&others.chain), "a"));
}

/// Starts a replica that keeps the `caBundle` of the `APIService` up to date, and renews its
/// certificate.
async fn start_replica(cluster: &Cluster) -> (Arc<ServingCertificate>, [JoinHandle<()>; 2]) {
    let (own, serving) = own(cluster).await;
    let updater = CaBundleUpdater::new(
        cluster.client(),
        CaBundleHolder::ApiService(API_SERVICE),
        own.bundle(),
        "ifo-apiserver",
        Arc::default(),
    );
    let tasks = [
        tokio::spawn(updater.keep_up_to_date()),
        tokio::spawn(own.keep_renewed(Arc::clone(&serving))),
    ];
    (serving, tasks)
}

#[tokio::test(start_paused = true)]
async fn clients_accept_all_replicas_while_a_ca_is_replaced() {
    let old = Authority::create_until(now() + 1000).unwrap();
    let cluster = Cluster::new();
    cluster.put(PATH, secret(&old));
    cluster.put(API_SERVICE_PATH, json!({"spec": {}}));
    // The first replica replaces the CA after 60 s. The second replica could read the new CA after
    // 119 s, but two of its reads fail. The third replica starts during the replacement.
    let mut replicas = Vec::new();
    let mut last = String::new();
    for second in 0..600 {
        match second {
            0 | 59 | 75 => replicas.push(start_replica(&cluster).await),
            110 | 170 => cluster.refuse(Method::GET, SECRET_NAME, 500),
            _ => {}
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        last = bundle(&cluster).unwrap();
        for (at, (serving, _)) in replicas.iter().enumerate() {
            let is_accepted = accepts(&last, &presented(serving), "a");
            assert!(is_accepted, "replica {at} after {second} s");
        }
    }
    let new = cluster.get(PATH).unwrap()["data"]["tls.crt"].take();
    assert_eq!(json!(BASE64_STANDARD.encode(last)), new);
    assert_ne!(new, secret(&old)["data"]["tls.crt"]);
    for task in replicas.iter().flat_map(|(_, tasks)| tasks) {
        task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn an_emptied_secret_gets_a_new_ca_and_an_invalid_or_deleted_one_changes_nothing() {
    let cluster = installed();
    let (own, serving) = own(&cluster).await;
    let first = presented(&serving);
    let keeping = tokio::spawn(own.keep_renewed(Arc::clone(&serving)));
    let invalid = json!({"data": {"other": "eA=="}});
    cluster.put(PATH, invalid.clone());
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(presented(&serving), first);
    assert_eq!(cluster.get(PATH).unwrap()["data"], invalid["data"]);
    cluster.delete(PATH);
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(presented(&serving), first);
    cluster.put(PATH, json!({"type": "Opaque"}));
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_ne!(presented(&serving), first);
    assert!(cluster.get(PATH).unwrap()["data"]["tls.crt"].is_string());
    keeping.abort();
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_renewed_on_time_even_without_the_secret() {
    let cluster = installed();
    let (mut own, serving) = own(&cluster).await;
    let (first, bundle) = (presented(&serving), own.bundle());
    assert_eq!(first, der(&own.issued().chain));
    own.issued.renew_at = now() - 1;
    cluster.refuse(Method::GET, SECRET_NAME, 403);
    let keeping = tokio::spawn(own.keep_renewed(Arc::clone(&serving)));
    tokio::time::sleep(Duration::from_secs(61)).await;
    let second = presented(&serving);
    assert_ne!(second, first);
    assert!(accepts(&bundle.borrow(), &second, "a"));
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(
        presented(&serving),
        second,
        "the certificate must be renewed only once"
    );
    keeping.abort();
}
