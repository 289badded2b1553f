//! Tests how the CA is stored in its Secret.

use super::super::{Authority, CaSecret, CertsError, now};
use crate::auth::testing::Cluster;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Method;
use serde_json::{Value, json};

const SECRET_NAME: &str = "ifo-apiserver-serving-ca";
const PATH: &str = "/api/v1/namespaces/ifo-system/secrets/ifo-apiserver-serving-ca";

fn ca_secret(cluster: &Cluster) -> CaSecret {
    CaSecret::new(cluster.client(), "ifo-system", SECRET_NAME, "ifo-apiserver")
}

async fn load(cluster: &Cluster) -> Result<Authority, CertsError> {
    ca_secret(cluster).load_authority().await
}

async fn load_or_replace(cluster: &Cluster) -> Result<Authority, CertsError> {
    ca_secret(cluster).load_or_replace_authority().await
}

/// Returns a cluster with an empty Secret, as the manifests create it.
pub(super) fn installed() -> Cluster {
    let cluster = Cluster::new();
    cluster.put(PATH, json!({"type": "Opaque"}));
    cluster
}

pub(super) fn secret(authority: &Authority) -> Value {
    json!({"type": "Opaque", "data": {
        "tls.crt": BASE64_STANDARD.encode(authority.bundle()),
        "tls.key": BASE64_STANDARD.encode(authority.key_pem()),
    }})
}

#[tokio::test]
async fn the_first_server_stores_a_ca_and_the_next_reads_it() {
    let cluster = installed();
    let first = load(&cluster).await.unwrap();
    let second = load(&cluster).await.unwrap();
    assert!(first.is(&second));
    assert_eq!(cluster.seen(&Method::PUT).len(), 1);
    assert!(cluster.seen(&Method::POST).is_empty());
}

#[tokio::test]
async fn servers_that_start_together_use_one_ca() {
    let cluster = installed();
    let all = futures::future::join_all((0..8).map(|_| load(&cluster))).await;
    let stored = load(&cluster).await.unwrap();
    for one in all {
        assert!(one.unwrap().is(&stored));
    }
    assert!(
        cluster.seen(&Method::PUT).len() > 1,
        "the servers must have written at the same time"
    );
}

#[tokio::test]
async fn a_ca_near_expiry_is_replaced_by_a_running_server() {
    let cluster = Cluster::new();
    let old = Authority::create_until(now() + 1000).unwrap();
    let mut object = secret(&old);
    object["metadata"] = json!({"labels": {"ours": "no"}});
    cluster.put(PATH, object);
    assert!(load(&cluster).await.unwrap().is(&old));
    let new = load_or_replace(&cluster).await.unwrap();
    assert!(!new.is(&old));
    let stored = cluster.get(PATH).unwrap();
    assert_eq!(stored["metadata"]["labels"], json!({"ours": "no"}));
    assert!(load_or_replace(&cluster).await.unwrap().is(&new));
}

#[tokio::test]
async fn an_expired_ca_is_replaced_by_a_server_that_starts() {
    let cluster = Cluster::new();
    let old = Authority::create_until(now() - 10).unwrap();
    cluster.put(PATH, secret(&old));
    assert!(!load(&cluster).await.unwrap().is(&old));
}

#[tokio::test]
async fn two_servers_that_replace_a_ca_together_agree() {
    let cluster = Cluster::new();
    let old = Authority::create_until(now() + 1000).unwrap();
    cluster.put(PATH, secret(&old));
    let (one, other) = futures::join!(load_or_replace(&cluster), load_or_replace(&cluster));
    assert!(one.unwrap().is(&other.unwrap()));
}

#[tokio::test]
async fn a_secret_without_a_ca_is_reported_and_left_unchanged() {
    let good = secret(&Authority::create().unwrap());
    let mut without_key = good.clone();
    without_key["data"]
        .as_object_mut()
        .unwrap()
        .remove("tls.key");
    let mut garbage = good.clone();
    garbage["data"]["tls.crt"] = json!(BASE64_STANDARD.encode("garbage"));
    let mut mixed = good.clone();
    mixed["data"]["tls.key"] = secret(&Authority::create().unwrap())["data"]["tls.key"].clone();
    for object in [
        json!({"data": {"other": "eA=="}}),
        without_key,
        garbage,
        mixed,
    ] {
        let cluster = Cluster::new();
        cluster.put(PATH, object);
        let before = cluster.get(PATH);
        let error = load(&cluster).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("does not contain a usable CA"), "{text}");
        assert!(
            text.contains("ifo-system/ifo-apiserver-serving-ca"),
            "{text}"
        );
        assert_eq!(cluster.get(PATH), before);
        assert!(cluster.seen(&Method::PUT).is_empty());
    }
}

#[tokio::test]
async fn a_forbidden_request_is_reported() {
    for (method, doing) in [(Method::GET, "read"), (Method::PUT, "updated")] {
        let cluster = installed();
        cluster.refuse(method, SECRET_NAME, 403);
        let error = load(&cluster).await.unwrap_err().to_string();
        assert!(error.contains(&format!("cannot be {doing}")), "{error}");
        assert!(!error.contains("Status {"), "{error}");
    }
}

#[tokio::test]
async fn a_missing_secret_is_reported() {
    let cluster = Cluster::new();
    let error = load(&cluster).await.unwrap_err().to_string();
    assert!(error.contains("create an empty Secret"), "{error}");
    assert!(cluster.seen(&Method::POST).is_empty());
}

#[tokio::test]
async fn a_ca_that_may_not_be_replaced_is_used_until_it_expires() {
    for (left, used) in [(1000, true), (-10, false)] {
        let cluster = Cluster::new();
        let old = Authority::create_until(now() + left).unwrap();
        cluster.put(PATH, secret(&old));
        cluster.refuse(Method::PUT, SECRET_NAME, 403);
        match load_or_replace(&cluster).await {
            Ok(loaded) => assert!(used && loaded.is(&old)),
            Err(error) => assert!(!used, "{error}"),
        }
        assert_eq!(cluster.seen(&Method::PUT).len(), 1);
    }
}
