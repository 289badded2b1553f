//! Tests how the server follows changes of the cluster's authentication configuration. The
//! configuration is in the `ConfigMap` `extension-apiserver-authentication`. It contains the CAs of
//! clients and the CAs of the front proxy (the kube-apiserver that forwards requests).

use super::super::testing::eventually;
use super::super::{AuthenticationConfig, AuthenticationConfigError};
use super::*;
use http::Method;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const PATH: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

#[tokio::test(start_paused = true)]
async fn loading_the_configuration_is_retried_until_it_exists() {
    let cluster = Cluster::new();
    cluster.refuse(Method::GET, "extension-apiserver-authentication", 503);
    cluster.put(PATH, json!({"data": config_map_data(&ca("a"), &ca("b"))}));
    let trust = AuthenticationConfig::load(&cluster.client(), Duration::from_secs(30)).await;
    assert!(trust.is_ok());
    assert_eq!(cluster.seen(&Method::GET).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn loading_the_configuration_times_out() {
    let cluster = Cluster::new();
    let error = AuthenticationConfig::load(&cluster.client(), Duration::from_secs(5)).await;
    assert!(matches!(error, Err(AuthenticationConfigError::Read(_))));
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_of_loading_includes_the_time_of_requests() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let silent = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
    });
    let client = kube::Client::new(silent, "default");
    let error = AuthenticationConfig::load(&client, Duration::from_secs(30)).await;
    assert!(matches!(error, Err(AuthenticationConfigError::Read(_))));
    assert_eq!(requests.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_reported_with_the_object_that_grants_it() {
    let cluster = Cluster::new();
    cluster.refuse(Method::GET, "extension-apiserver-authentication", 403);
    let error = AuthenticationConfig::load(&cluster.client(), Duration::from_millis(100)).await;
    let error = error
        .expect_err("the cluster refuses the request")
        .to_string();
    assert!(
        error.contains("Role extension-apiserver-authentication-reader"),
        "{error}"
    );
    assert!(!error.contains("Status {"), "{error}");
}

#[tokio::test]
async fn configuration_changes_apply_and_invalid_values_or_deletions_do_not() {
    let cluster = Cluster::new();
    let (first, second) = (ca("first"), ca("second"));
    let proxy_ca = ca("proxy-ca");
    cluster.put(PATH, json!({"data": config_map_data(&first, &proxy_ca)}));
    let trust = Arc::new(ArcSwap::from_pointee(AuthenticationConfig::default()));
    let following = tokio::spawn(AuthenticationConfig::follow(
        cluster.client(),
        Arc::clone(&trust),
    ));
    let accepts = |ca: &CertificateAndKey| {
        let peer = ca.client(&[("CN", "jane")]).peer();
        trust.load().verdict(&peer).user.is_some()
    };
    eventually("the first CA", || accepts(&first)).await;

    // The watch of `AuthenticationConfig::follow` may not be open yet. The simulated kube-apiserver
    // reports a change only to open watches. So the test repeats the change until `trust` contains
    // it.
    for turn in 0.. {
        let mut data = config_map_data(&second, &proxy_ca);
        data.insert("turn".to_owned(), turn.to_string());
        cluster.put(PATH, json!({"data": data}));
        tokio::time::sleep(Duration::from_millis(20)).await;
        if accepts(&second) {
            break;
        }
        assert!(turn < 3_000, "the watch must report the change");
    }
    assert!(!accepts(&first));

    let bad = [
        ("client-ca-file", "no certificate"),
        ("requestheader-client-ca-file", ""),
        ("requestheader-allowed-names", "front-proxy"),
        ("requestheader-username-headers", "[\"two words\"]"),
        ("requestheader-extra-headers-prefix", "[\"\"]"),
        ("requestheader-group-headers", "[1]"),
    ];
    for (key, value) in bad {
        let mut data = config_map_data(&first, &proxy_ca);
        data.insert(key.to_owned(), value.to_owned());
        let error = AuthenticationConfig::parse(data.clone())
            .unwrap_err()
            .to_string();
        assert!(error.contains(&format!("key {key}:")), "{error}");
        assert!(
            !value.contains("words") || error.contains("two words"),
            "{error}"
        );
        cluster.put(PATH, json!({"data": data}));
    }
    cluster.delete(PATH);
    // The watch reports all versions of the `ConfigMap` in order. When `trust` accepts the third
    // CA, `AuthenticationConfig::follow` has processed the invalid versions and the deletion.
    let (third, last) = (ca("third"), ca("last"));
    cluster.put(PATH, json!({"data": config_map_data(&third, &last)}));
    let seen = || {
        assert!(
            !accepts(&first),
            "an invalid configuration must not be used"
        );
        accepts(&third)
    };
    eventually("the third CA", seen).await;
    following.abort();
}

#[tokio::test]
async fn an_unchanged_configuration_keeps_cached_decisions() {
    let cluster = Cluster::new();
    let data = config_map_data(&ca("a"), &ca("b"));
    cluster.put(PATH, json!({"data": data}));
    let trust = Arc::new(ArcSwap::from_pointee(
        AuthenticationConfig::parse(data).unwrap(),
    ));
    let before = trust.load_full();
    let following = tokio::spawn(AuthenticationConfig::follow(
        cluster.client(),
        Arc::clone(&trust),
    ));
    eventually("the list", || !cluster.seen(&Method::GET).is_empty()).await;
    eventually("the watch", || cluster.seen(&Method::GET).len() > 1).await;
    assert!(Arc::ptr_eq(&before, &trust.load_full()));
    following.abort();
}

#[test]
fn a_bundle_with_one_invalid_certificate_is_invalid() {
    let mut bad = config_map_data(&ca("a"), &ca("b"));
    bad.get_mut("client-ca-file")
        .unwrap()
        .push_str("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let error = AuthenticationConfig::parse(bad).unwrap_err().to_string();
    assert!(error.contains("client-ca-file"), "{error}");
    assert!(error.contains("certificate 2"), "{error}");
}
