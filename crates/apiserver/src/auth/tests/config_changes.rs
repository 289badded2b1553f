//! Tests how the server follows changes of the cluster's authentication configuration. The
//! configuration is in the `ConfigMap` `extension-apiserver-authentication`. It contains the CAs of
//! clients and the CAs of the front proxy (the kube-apiserver that forwards requests).

use super::super::testing::{ca_again, eventually};
use super::super::{AuthenticationConfig, AuthenticationConfigError};
use super::*;
use crate::metrics::Metrics;
use http::Method;
use std::sync::Mutex;
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
        Arc::default(),
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
        Arc::default(),
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

/// Collects log lines. All clones share the same lines.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Counts the warnings about a CA that the server trusts both for clients and for the front
    /// proxy.
    fn warnings(&self) -> usize {
        let log = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        log.matches("can claim any user and group").count()
    }
}

fn without_names(mut data: BTreeMap<String, String>) -> BTreeMap<String, String> {
    data.insert("requestheader-allowed-names".to_owned(), "[]".to_owned());
    data
}

#[tokio::test]
async fn a_ca_shared_by_clients_and_front_proxy_is_logged_at_each_change() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let (metrics, render) = Metrics::registered();
    let shown = |value: u8| {
        let line = format!("ifo_front_proxy_trust_shared {value}\n");
        render().contains(&line)
    };
    let cluster = Cluster::new();
    let (shared, other) = (ca("shared"), ca("other"));
    let data_shared = without_names(config_map_data(&shared, &shared));
    cluster.put(PATH, json!({"data": data_shared}));
    let trust = AuthenticationConfig::load(&cluster.client(), Duration::from_secs(30)).await;
    let trust = trust.unwrap();
    assert!(shown(0) && log.warnings() == 0);
    trust.report(&metrics);
    assert!(shown(1) && log.warnings() == 1);

    let trust = Arc::new(ArcSwap::from_pointee(trust));
    let following =
        AuthenticationConfig::follow(cluster.client(), Arc::clone(&trust), Arc::clone(&metrics));
    let following = tokio::spawn(following);
    eventually("the watch", || cluster.seen(&Method::GET).len() > 2).await;
    // `AuthenticationConfig::follow` lists the `ConfigMap` before it opens the watch. The list
    // contained the same configuration, so there is no second warning.
    assert_eq!(log.warnings(), 1);
    // The watch of `AuthenticationConfig::follow` may not be open yet. So the test repeats each
    // change until the metric shows it.
    let mut turn = 0;
    let mut change = async |mut data: BTreeMap<String, String>, seen: &dyn Fn() -> bool| {
        while !seen() {
            turn += 1;
            assert!(turn < 1000, "the watch must report the change");
            data.insert("turn".to_owned(), turn.to_string());
            cluster.put(PATH, json!({"data": data}));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    change(without_names(config_map_data(&shared, &other)), &|| {
        shown(0)
    })
    .await;
    let before = log.warnings();
    change(data_shared, &|| shown(1)).await;
    assert!(log.warnings() > before);
    change(config_map_data(&shared, &shared), &|| shown(0)).await;
    following.abort();
}

#[test]
fn a_ca_is_shared_if_it_equals_a_ca_of_the_front_proxy_or_was_issued_by_one() {
    let (one, other, proxy) = (ca("one"), ca("other"), ca("proxy"));
    let namesake = ca("one");
    let of_clients = proxy.intermediate("of clients");
    let of_proxies = one.intermediate("of proxies");
    let bundle = |all: &[&CertificateAndKey]| all.iter().map(|it| it.pem()).collect::<String>();
    let cases: [(&[&CertificateAndKey], &[&CertificateAndKey], &[&str]); 7] = [
        (&[&one], &[&proxy], &[]),
        (&[&one], &[&namesake], &[]),
        (&[&other, &one], &[&proxy, &one], &["CN=one"]),
        // `proxy` has issued the CA `of_clients`. A client with a certificate from `of_clients` can
        // send `of_clients` as an intermediate certificate. The server accepts this client as a
        // front proxy.
        (&[&of_clients], &[&proxy], &["CN=of clients"]),
        // `one` has issued the CA `of_proxies`. The CAs of the front proxy contain `of_proxies`,
        // but not `one`. So the server does not accept a client with a certificate from `one` as a
        // front proxy.
        (&[&one], &[&of_proxies], &[]),
        (&[&one, &other], &[&one, &other], &["CN=one", "CN=other"]),
        (&[&ca_again("proxy", &proxy)], &[&proxy], &["CN=proxy"]),
    ];
    for (clients, proxies, expected) in cases {
        let mut data = without_names(config_map_data(&one, &proxy));
        data.insert("client-ca-file".to_owned(), bundle(clients));
        data.insert("requestheader-client-ca-file".to_owned(), bundle(proxies));
        assert_eq!(
            AuthenticationConfig::parse(data.clone())
                .unwrap()
                .client_cas_trusted_as_proxy,
            expected
        );
        // If the configuration names no header for the user name, no client can claim to be another
        // user.
        data.insert("requestheader-username-headers".to_owned(), "[]".to_owned());
        assert!(
            AuthenticationConfig::parse(data.clone())
                .unwrap()
                .client_cas_trusted_as_proxy
                .is_empty()
        );
        // Only a certificate with one of the allowed common names is accepted as a front proxy.
        let names = r#"["front-proxy"]"#.to_owned();
        data.insert("requestheader-allowed-names".to_owned(), names);
        let headers = r#"["X-Remote-User"]"#.to_owned();
        data.insert("requestheader-username-headers".to_owned(), headers);
        assert!(
            AuthenticationConfig::parse(data)
                .unwrap()
                .client_cas_trusted_as_proxy
                .is_empty()
        );
    }
}
