//! The cluster's configuration as it changes.

use super::super::testing::eventually;
use super::super::{Trust, TrustError};
use super::*;
use http::Method;
use std::time::Duration;

const PATH: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

#[tokio::test(start_paused = true)]
async fn loading_tries_again_until_it_is_there() {
    let cluster = Cluster::new();
    cluster.refuse(Method::GET, "extension-apiserver-authentication", 503);
    cluster.put(PATH, json!({"data": data(&ca("a"), &ca("b"))}));
    let trust = Trust::load(&cluster.client(), Duration::from_secs(30)).await;
    assert!(trust.is_ok());
    assert_eq!(cluster.seen(&Method::GET).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn loading_gives_up_in_the_end() {
    let cluster = Cluster::new();
    let error = Trust::load(&cluster.client(), Duration::from_secs(5)).await;
    assert!(matches!(error, Err(TrustError::Read(_))));
}

#[tokio::test]
async fn a_change_is_followed_and_a_bad_value_or_a_deletion_changes_nothing() {
    let cluster = Cluster::new();
    let (first, second) = (ca("first"), ca("second"));
    let proxy_ca = ca("proxy-ca");
    cluster.put(PATH, json!({"data": data(&first, &proxy_ca)}));
    let trust = Arc::new(ArcSwap::from_pointee(Trust::default()));
    let following = tokio::spawn(Trust::follow(cluster.client(), Arc::clone(&trust)));
    let knows = |ca: &Pair| {
        let peer = ca.client(&[("CN", "jane")]).peer();
        trust.load().verdict(&peer).user.is_some()
    };
    eventually("the first CA", || knows(&first)).await;

    // The watch is open once it has seen a change; till then, change something.
    for turn in 0.. {
        let mut data = data(&second, &proxy_ca);
        data.insert("turn".to_owned(), turn.to_string());
        cluster.put(PATH, json!({"data": data}));
        tokio::time::sleep(Duration::from_millis(20)).await;
        if knows(&second) {
            break;
        }
        assert!(turn < 500, "the change was never seen");
    }
    assert!(!knows(&first));

    let bad = [
        ("client-ca-file", "no certificate"),
        ("requestheader-client-ca-file", ""),
        ("requestheader-allowed-names", "front-proxy"),
        ("requestheader-username-headers", "[\"two words\"]"),
        ("requestheader-extra-headers-prefix", "[\"\"]"),
        ("requestheader-group-headers", "[1]"),
    ];
    for (key, value) in bad {
        let mut data = data(&first, &proxy_ca);
        data.insert(key.to_owned(), value.to_owned());
        let error = Trust::parse(data.clone()).unwrap_err().to_string();
        assert!(error.contains(&format!("key {key}:")), "{error}");
        cluster.put(PATH, json!({"data": data}));
    }
    cluster.delete(PATH);
    // What comes after them was read after them.
    let (third, last) = (ca("third"), ca("last"));
    cluster.put(PATH, json!({"data": data(&third, &last)}));
    let seen = || {
        assert!(!knows(&first), "a bad value was taken over");
        knows(&third)
    };
    eventually("the third CA", seen).await;
    following.abort();
}

#[tokio::test]
async fn the_same_again_keeps_the_verdicts() {
    let cluster = Cluster::new();
    let data = data(&ca("a"), &ca("b"));
    cluster.put(PATH, json!({"data": data}));
    let trust = Arc::new(ArcSwap::from_pointee(Trust::parse(data).unwrap()));
    let before = trust.load_full();
    let following = tokio::spawn(Trust::follow(cluster.client(), Arc::clone(&trust)));
    eventually("the list", || !cluster.seen(&Method::GET).is_empty()).await;
    eventually("the watch", || cluster.seen(&Method::GET).len() > 1).await;
    assert!(Arc::ptr_eq(&before, &trust.load_full()));
    following.abort();
}

#[test]
fn a_bundle_with_one_bad_certificate_is_bad() {
    let mut bad = data(&ca("a"), &ca("b"));
    bad.get_mut("client-ca-file")
        .unwrap()
        .push_str("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let error = Trust::parse(bad).unwrap_err().to_string();
    assert!(error.contains("client-ca-file"), "{error}");
    assert!(error.contains("certificate 2"), "{error}");
}
