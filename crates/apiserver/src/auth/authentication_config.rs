//! Reads the cluster's authentication configuration. The configuration contains:
//!
//! - The CAs of client certificates.
//! - The CAs of the front proxy (the kube-apiserver that forwards requests to this server).
//! - The names of the headers in which the front proxy names the user of a request.
//!
//! Every kube-apiserver publishes the configuration in the `ConfigMap`
//! `kube-system/extension-apiserver-authentication`. When the `ConfigMap` changes, the server
//! replaces the whole [`AuthenticationConfig`], including the cached verdicts on certificates.
//!
//! An invalid `ConfigMap` never replaces a valid configuration.

use super::client_certificate::{ClientCaBundle, user_of};
use super::front_proxy::UserHeaders;
use super::review_cache::{Digest, digest};
use super::{PeerCertificates, User};
use crate::request_error;
use arc_swap::ArcSwap;
use backon::{ExponentialBuilder, Retryable as _};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use std::collections::BTreeMap;
use std::error::Error as _;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

const CLIENT_CA: &str = "client-ca-file";
const PROXY_CA: &str = "requestheader-client-ca-file";
const USERNAME_HEADERS: &str = "requestheader-username-headers";
const UID_HEADERS: &str = "requestheader-uid-headers";
const GROUP_HEADERS: &str = "requestheader-group-headers";
const EXTRA_PREFIXES: &str = "requestheader-extra-headers-prefix";
const ALLOWED_NAMES: &str = "requestheader-allowed-names";

/// Time for which the verdict on a certificate is cached. When a certificate or its CA expires, the
/// server still accepts the certificate for at most this time.
const VERDICT_CACHE_TTL: Duration = Duration::from_mins(1);

/// Maximum number of cached verdicts. A full cache evicts the least recently used verdict. At the
/// next use of its certificate, the server verifies the certificate again. Few clients have
/// certificates: the kube-apiservers and a few people. 256 verdicts take about 150 KB.
const MAX_VERDICTS: u64 = 256;

/// An error in the authentication configuration of the cluster.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticationConfigError {
    /// The `ConfigMap` cannot be read.
    #[error("cannot read ConfigMap {NAMESPACE}/{NAME}{hint}: {why}", hint = permission_hint(.0), why = request_error(.0))]
    Read(#[source] kube::Error),
    /// A value in the `ConfigMap` is invalid.
    #[error("ConfigMap {NAMESPACE}/{NAME}, key {key}: {why}")]
    Value {
        /// The key in the `ConfigMap`, such as `client-ca-file`.
        key: &'static str,
        /// The reason why the value is invalid.
        why: String,
    },
}

/// Returns a hint if this server has no permission to read the `ConfigMap`. Otherwise returns an
/// empty text. The hint names the `Role` that has the permission.
///
/// A typical cause of the missing permission is a kustomize overlay that sets `namespace:`. Such an
/// overlay moves the `RoleBinding` into another namespace.
fn permission_hint(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            " (a RoleBinding in the namespace kube-system must grant the Role \
             extension-apiserver-authentication-reader to the ServiceAccount of this server)"
        }
        _ => "",
    }
}

/// The CAs and header names from one version of the `ConfigMap`, with cached verdicts on
/// certificates.
#[derive(Debug)]
pub struct AuthenticationConfig {
    /// The data of the `ConfigMap` from which the other fields are parsed.
    data: BTreeMap<String, String>,
    client: Option<ClientCaBundle>,
    proxy: Option<Proxy>,
    verdicts: Cache<Digest, Arc<TrustVerdict>>,
}

#[derive(Debug)]
struct Proxy {
    authorities: ClientCaBundle,
    /// The common names that the certificate of a front proxy may have. If the list is empty, every
    /// name is allowed.
    allowed_names: Vec<String>,
    headers: UserHeaders,
}

/// The verdict on a certificate chain: the result of verifying the chain with the configured CAs.
#[derive(Debug, Default)]
pub(super) struct TrustVerdict {
    /// True if a CA of the front proxy has issued the certificate, and the `ConfigMap` allows its
    /// common name.
    pub(super) is_proxy: bool,
    /// The user whom the certificate names. `None` if no client CA has issued the certificate, or
    /// if the certificate names no user.
    pub(super) user: Option<User>,
}

impl Default for AuthenticationConfig {
    /// Creates a configuration without CAs, which accepts no certificate.
    fn default() -> Self {
        Self::parse(BTreeMap::new()).expect("no key is required")
    }
}

impl AuthenticationConfig {
    /// Parses the data of the `ConfigMap`. A key may be missing, because the kube-apiserver writes
    /// a key only if the corresponding flag is set. The value of each existing key must be valid.
    pub fn parse(data: BTreeMap<String, String>) -> Result<Self, AuthenticationConfigError> {
        let bundle = |key| {
            let bundle = data.get(key).map(|pem| ClientCaBundle::from_pem(pem));
            let bundle = bundle.transpose();
            bundle.map_err(|why| AuthenticationConfigError::Value { key, why })
        };
        let client = bundle(CLIENT_CA)?;
        let headers = UserHeaders {
            name: list(&data, USERNAME_HEADERS)?,
            uid: list(&data, UID_HEADERS)?,
            groups: list(&data, GROUP_HEADERS)?,
            extra_prefixes: list(&data, EXTRA_PREFIXES)?,
        };
        let allowed_names = list(&data, ALLOWED_NAMES)?;
        let proxy = bundle(PROXY_CA)?.map(|authorities| Proxy {
            authorities,
            allowed_names,
            headers,
        });
        Ok(Self {
            data,
            client,
            proxy,
            verdicts: Cache::builder()
                .max_capacity(MAX_VERDICTS)
                .eviction_policy(EvictionPolicy::lru())
                .time_to_live(VERDICT_CACHE_TTL)
                .build(),
        })
    }

    /// Reads the configuration from the cluster. After a failure, waits and tries again. The first
    /// delay is 0.5 s, and each further delay is twice as long, up to 5 s. All attempts and delays
    /// together take at most `within`. If the next delay would exceed this limit, returns the last
    /// error. A lasting failure is logged once.
    pub async fn load(
        client: &Client,
        within: Duration,
    ) -> Result<Self, AuthenticationConfigError> {
        let api = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
        let read = || async {
            let found = api.get(NAME).await;
            let found = found.map_err(AuthenticationConfigError::Read)?;
            Self::parse(found.data.unwrap_or_default())
        };
        let delays = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(500))
            .with_max_delay(Duration::from_secs(5))
            .without_max_times()
            .with_total_delay(Some(within));
        let mut last_failure = None;
        let failed = |error: &AuthenticationConfigError, _| {
            let failure = Some(error.to_string());
            if failure != last_failure {
                tracing::warn!(%error, "authentication configuration cannot be read, trying again");
            }
            last_failure = failure;
        };
        let loaded = tokio::time::timeout(within, read.retry(delays).notify(failed)).await;
        loaded.unwrap_or_else(|late| {
            let late = kube::Error::Service(late.into());
            Err(AuthenticationConfigError::Read(late))
        })
    }

    /// Replaces `config` when the `ConfigMap` changes. Never ends. If the `ConfigMap` is deleted,
    /// cannot be read or is invalid, the last valid configuration stays in use. A lasting failure is
    /// logged once.
    pub async fn follow(client: Client, config: Arc<ArcSwap<Self>>) {
        let api = Api::<ConfigMap>::namespaced(client, NAMESPACE);
        let mut last_failure = None;
        let mut states = watch_object(api, NAME).default_backoff().boxed();
        while let Some(state) = states.next().await {
            let applied = match state {
                Ok(Some(found)) => apply(&config, found.data.unwrap_or_default()),
                Ok(None) => Err("it was deleted".to_owned()),
                Err(error) => {
                    let request = error.source().and_then(|source| source.downcast_ref());
                    Err(request.map_or_else(|| error.to_string(), request_error))
                }
            };
            let failure = applied.err();
            if let Some(error) = failure.as_ref().filter(|_| failure != last_failure) {
                tracing::warn!(
                    namespace = NAMESPACE,
                    name = NAME,
                    error,
                    "the authentication configuration cannot be updated; the last valid one stays \
                     in use"
                );
            }
            last_failure = failure;
        }
    }

    /// Returns the verdict on the certificate chain of a TLS client.
    pub(super) fn verdict(&self, peer: &PeerCertificates) -> Arc<TrustVerdict> {
        let key = digest(peer.0.iter().map(|certificate| &**certificate));
        self.verdicts.get_with(key, || Arc::new(self.judge(peer)))
    }

    fn judge(&self, peer: &PeerCertificates) -> TrustVerdict {
        let Some(user) = peer.0.first().and_then(user_of) else {
            return TrustVerdict::default();
        };
        let is_allowed = |proxy: &&Proxy| {
            proxy.allowed_names.is_empty() || proxy.allowed_names.contains(&user.name)
        };
        let proxy = self.proxy.as_ref().filter(is_allowed);
        let verifies = |authorities: &ClientCaBundle| authorities.verifies_chain(&peer.0);
        let is_known = self.client.as_ref().is_some_and(verifies);
        TrustVerdict {
            is_proxy: proxy.is_some_and(|proxy| verifies(&proxy.authorities)),
            user: (is_known && !user.name.is_empty()).then_some(user),
        }
    }

    /// Returns the names of the headers in which the front proxy names users. Returns `None` if the
    /// `ConfigMap` has no CA of a front proxy.
    pub(super) fn user_headers(&self) -> Option<&UserHeaders> {
        self.proxy.as_ref().map(|proxy| &proxy.headers)
    }
}

/// Replaces `config` if `data` is new. Returns an error if `data` is not valid.
fn apply(
    config: &ArcSwap<AuthenticationConfig>,
    data: BTreeMap<String, String>,
) -> Result<(), String> {
    // After a relist, the watch also reports an unchanged `ConfigMap` again. A new
    // `AuthenticationConfig` with the same data would only lose the cached verdicts.
    if config.load().data != data {
        let new = AuthenticationConfig::parse(data).map_err(|error| error.to_string())?;
        config.store(Arc::new(new));
        tracing::info!(
            namespace = NAMESPACE,
            name = NAME,
            "authentication configuration read"
        );
    }
    Ok(())
}

/// Parses a value that is a JSON array of strings. Returns an empty list if the key is missing.
fn list<T: FromStr<Err: Display>>(
    data: &BTreeMap<String, String>,
    key: &'static str,
) -> Result<Vec<T>, AuthenticationConfigError> {
    let bad = |why| AuthenticationConfigError::Value { key, why };
    let texts: Vec<String> = serde_json::from_str(data.get(key).map_or("[]", String::as_str))
        .map_err(|error| bad(format!("not a JSON array of strings: {error}")))?;
    let parse = |text: &String| {
        let parsed = text.parse();
        parsed.map_err(|error| bad(format!("{text:?}: {error}")))
    };
    texts.iter().map(parse).collect()
}
