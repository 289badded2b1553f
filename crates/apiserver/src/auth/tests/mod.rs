//! Tests authentication and authorization with a simulated cluster and real certificates.

mod authorizing;
mod client_certificate_authentication;
mod config_changes;
mod front_proxy;
mod handshakes;
mod tokens;

use super::testing::{CertificateAndKey, Cluster, ca};
use super::{
    Authenticate, AuthenticationConfig, ClusterAuthenticator, PeerCertificates, Unauthenticated,
    User,
};
use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A cluster with its CAs, and an authenticator that trusts them.
struct Setup {
    client_ca: CertificateAndKey,
    proxy_ca: CertificateAndKey,
    trust: Arc<ArcSwap<AuthenticationConfig>>,
    authenticator: ClusterAuthenticator,
    cluster: Cluster,
}

/// Returns data for the `ConfigMap` `extension-apiserver-authentication`, in the form in which the
/// kube-apiserver writes the data.
fn config_map_data(
    client_ca: &CertificateAndKey,
    proxy_ca: &CertificateAndKey,
) -> BTreeMap<String, String> {
    [
        ("client-ca-file", client_ca.pem()),
        ("requestheader-client-ca-file", proxy_ca.pem()),
        (
            "requestheader-username-headers",
            json!(["X-Remote-User", "X-Other-User"]).to_string(),
        ),
        (
            "requestheader-group-headers",
            json!(["X-Remote-Group"]).to_string(),
        ),
        (
            "requestheader-extra-headers-prefix",
            json!(["X-Remote-Extra-"]).to_string(),
        ),
        (
            "requestheader-allowed-names",
            json!(["front-proxy"]).to_string(),
        ),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

impl Setup {
    fn new() -> Self {
        Self::changed(|_| {})
    }

    /// Creates a setup. `change` can change the data of the `ConfigMap` before the authenticator
    /// parses the data.
    fn changed(change: impl FnOnce(&mut BTreeMap<String, String>)) -> Self {
        let cluster = Cluster::reviewing(|question| {
            if question["spec"]["token"] == "good" {
                let user = json!({"username": "tess", "uid": "7", "groups": ["testers"],
                                  "extra": {"scope": ["a", "b"]}});
                (201, json!({"authenticated": true, "user": user}))
            } else {
                (201, json!({"error": "invalid bearer token"}))
            }
        });
        let (client_ca, proxy_ca) = (ca("client-ca"), ca("proxy-ca"));
        let mut data = config_map_data(&client_ca, &proxy_ca);
        change(&mut data);
        let trust = Arc::new(ArcSwap::from_pointee(
            AuthenticationConfig::parse(data).unwrap(),
        ));
        Self {
            authenticator: ClusterAuthenticator::new(
                cluster.client(),
                Arc::clone(&trust),
                None,
                &crate::metrics::Metrics::default(),
            ),
            client_ca,
            proxy_ca,
            trust,
            cluster,
        }
    }

    fn proxy(&self) -> PeerCertificates {
        self.proxy_ca.client(&[("CN", "front-proxy")]).peer()
    }

    fn jane(&self) -> PeerCertificates {
        self.client_ca
            .client(&[("CN", "jane"), ("O", "dev"), ("O", "ops")])
            .peer()
    }

    async fn authenticate(
        &self,
        peer: &PeerCertificates,
        headers: &[(&str, &str)],
    ) -> Result<User, Unauthenticated> {
        self.authenticator
            .authenticate(peer, &header_map(headers))
            .await
    }

    /// Returns the name of the user, or `401` if the request is refused.
    async fn user_name(&self, peer: &PeerCertificates, headers: &[(&str, &str)]) -> String {
        self.authenticate(peer, headers)
            .await
            .map_or_else(|Unauthenticated| "401".to_owned(), |user| user.name)
    }
}

fn header_map(headers: &[(&str, &str)]) -> HeaderMap {
    headers
        .iter()
        .map(|(name, value)| {
            (
                name.parse::<HeaderName>().unwrap(),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            )
        })
        .collect()
}

fn no_certificate() -> PeerCertificates {
    PeerCertificates::default()
}
