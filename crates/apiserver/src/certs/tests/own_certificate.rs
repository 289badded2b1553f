//! Tests how the server renews a certificate of its own CA while it runs.

use super::super::{Authority, CaSecret, OwnCertificate, ServingCertificate, now};
use super::own_ca::accepts;
use super::secrets::{installed, secret};
use super::serving_files::{der, presented};
use crate::auth::testing::Cluster;
use std::sync::Arc;
use std::time::Duration;

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
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(**bundle.borrow(), *other.bundle());
    keeping.abort();
}

#[tokio::test(start_paused = true)]
async fn an_emptied_secret_gets_a_new_ca_and_an_invalid_or_deleted_one_changes_nothing() {
    let cluster = installed();
    let (own, serving) = own(&cluster).await;
    let first = presented(&serving);
    let keeping = tokio::spawn(own.keep_renewed(Arc::clone(&serving)));
    let invalid = serde_json::json!({"data": {"other": "eA=="}});
    cluster.put(PATH, invalid.clone());
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(presented(&serving), first);
    assert_eq!(cluster.get(PATH).unwrap()["data"], invalid["data"]);
    cluster.delete(PATH);
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(presented(&serving), first);
    cluster.put(PATH, serde_json::json!({"type": "Opaque"}));
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
    cluster.refuse(http::Method::GET, SECRET_NAME, 403);
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
