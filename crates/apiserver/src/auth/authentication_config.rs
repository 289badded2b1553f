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

use super::client_certificate::{CertificateSubject, ClientCaBundle};
use super::front_proxy::UserHeaders;
use super::review_cache::{Digest, digest};
use super::{PeerCertificates, User};
use arc_swap::ArcSwap;
use futures::StreamExt;
use http::HeaderName;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use std::collections::BTreeMap;
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

/// Maximum number of cached verdicts. A full cache evicts the least recently used verdict. The
/// server verifies the certificate of an evicted verdict again at its next use. Few clients have
/// certificates: the kube-apiservers and a few people. 256 verdicts take about 150 KB.
const MAX_VERDICTS: u64 = 256;

/// An error in the authentication configuration of the cluster.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticationConfigError {
    /// The `ConfigMap` cannot be read.
    #[error("cannot read ConfigMap {NAMESPACE}/{NAME}{hint}: {0}", hint = permission_hint(.0))]
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
#[derive(Debug)]
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
        Self::with(BTreeMap::new(), None, None)
    }
}

impl AuthenticationConfig {
    fn with(
        data: BTreeMap<String, String>,
        client: Option<ClientCaBundle>,
        proxy: Option<Proxy>,
    ) -> Self {
        Self {
            data,
            client,
            proxy,
            verdicts: Cache::builder()
                .max_capacity(MAX_VERDICTS)
                .eviction_policy(EvictionPolicy::lru())
                .time_to_live(VERDICT_CACHE_TTL)
                .build(),
        }
    }

    /// Parses the data of the `ConfigMap`. A key may be missing, because the kube-apiserver writes
    /// a key only if the corresponding flag is set. The value of each existing key must be valid.
    pub fn parse(data: BTreeMap<String, String>) -> Result<Self, AuthenticationConfigError> {
        let parse_cas = |key| {
            data.get(key)
                .map(|bundle| {
                    ClientCaBundle::from_pem(bundle)
                        .map_err(|why| AuthenticationConfigError::Value { key, why })
                })
                .transpose()
        };
        let client = parse_cas(CLIENT_CA)?;
        let headers = UserHeaders {
            name: header_names(&data, USERNAME_HEADERS)?,
            uid: header_names(&data, UID_HEADERS)?,
            groups: header_names(&data, GROUP_HEADERS)?,
            extra_prefixes: header_names(&data, EXTRA_PREFIXES)?
                .iter()
                .map(|prefix| prefix.as_str().to_owned())
                .collect(),
        };
        let allowed_names = strings(&data, ALLOWED_NAMES)?;
        let proxy = parse_cas(PROXY_CA)?.map(|authorities| Proxy {
            authorities,
            allowed_names,
            headers,
        });
        Ok(Self::with(data, client, proxy))
    }

    /// Reads the configuration from the cluster. After a failure, waits and tries again. The first
    /// delay is 0.5 s, and each further delay is twice as long, up to 5 s.
    ///
    /// `within` is the time limit for all attempts. If the next attempt would start after this
    /// limit, returns the last error.
    pub async fn load(
        client: &Client,
        within: Duration,
    ) -> Result<Self, AuthenticationConfigError> {
        let api = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
        let deadline = tokio::time::Instant::now() + within;
        let mut delay = Duration::from_millis(500);
        loop {
            let error = match tokio::time::timeout_at(deadline, api.get(NAME)).await {
                Ok(Ok(found)) => match Self::parse(found.data.unwrap_or_default()) {
                    Ok(config) => return Ok(config),
                    Err(error) => error,
                },
                Ok(Err(error)) => AuthenticationConfigError::Read(error),
                Err(late) => AuthenticationConfigError::Read(kube::Error::Service(late.into())),
            };
            if tokio::time::Instant::now() + delay >= deadline {
                return Err(error);
            }
            tracing::warn!(%error, "authentication configuration cannot be read, trying again");
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(Duration::from_secs(5));
        }
    }

    /// Replaces `config` when the `ConfigMap` changes. Never ends. If the `ConfigMap` is deleted,
    /// cannot be read or is invalid, the last valid configuration stays in use.
    pub async fn follow(client: Client, config: Arc<ArcSwap<Self>>) {
        let api = Api::<ConfigMap>::namespaced(client, NAMESPACE);
        let mut states = watch_object(api, NAME).default_backoff().boxed();
        while let Some(state) = states.next().await {
            match state {
                Ok(Some(found)) => apply(&config, found.data.unwrap_or_default()),
                Ok(None) => {
                    tracing::warn!(
                        namespace = NAMESPACE,
                        name = NAME,
                        "authentication configuration was deleted; the last one stays in use"
                    );
                }
                Err(error) => {
                    tracing::warn!(
                        namespace = NAMESPACE,
                        name = NAME,
                        %error,
                        "cannot watch the authentication configuration; the last one stays in use"
                    );
                }
            }
        }
    }

    /// Returns the verdict on the certificate chain of a TLS client.
    pub(super) fn verdict(&self, peer: &PeerCertificates) -> Arc<TrustVerdict> {
        let key = digest(peer.0.iter().map(|certificate| &**certificate));
        self.verdicts.get_with(key, || Arc::new(self.judge(peer)))
    }

    fn judge(&self, peer: &PeerCertificates) -> TrustVerdict {
        let mut verdict = TrustVerdict {
            is_proxy: false,
            user: None,
        };
        let Some(subject) = peer.0.first().and_then(CertificateSubject::of) else {
            return verdict;
        };
        verdict.is_proxy = self.proxy.as_ref().is_some_and(|proxy| {
            (proxy.allowed_names.is_empty() || proxy.allowed_names.contains(&subject.common_name))
                && proxy.authorities.verifies_chain(&peer.0)
        });
        if let Some(authorities) = &self.client
            && authorities.verifies_chain(&peer.0)
        {
            verdict.user = subject.user();
        }
        verdict
    }

    /// Returns the names of the headers in which the front proxy names users. Returns `None` if the
    /// `ConfigMap` has no CA of a front proxy.
    pub(super) fn user_headers(&self) -> Option<&UserHeaders> {
        self.proxy.as_ref().map(|proxy| &proxy.headers)
    }
}

/// Replaces `config` if `data` is new and valid.
fn apply(config: &ArcSwap<AuthenticationConfig>, data: BTreeMap<String, String>) {
    // After a relist, the watch reports the `ConfigMap` again, even if it is unchanged. A new
    // `AuthenticationConfig` with the same data would only lose the cached verdicts.
    if config.load().data == data {
        return;
    }
    match AuthenticationConfig::parse(data) {
        Ok(new) => {
            tracing::info!(
                namespace = NAMESPACE,
                name = NAME,
                "authentication configuration read"
            );
            config.store(Arc::new(new));
        }
        Err(error) => {
            tracing::error!(%error, "the new authentication configuration is invalid; the last valid one stays in use");
        }
    }
}

/// Parses a value that is a JSON array of strings. Returns an empty list if the key is missing.
fn strings(
    data: &BTreeMap<String, String>,
    key: &'static str,
) -> Result<Vec<String>, AuthenticationConfigError> {
    data.get(key).map_or(Ok(Vec::new()), |value| {
        serde_json::from_str(value).map_err(|error| AuthenticationConfigError::Value {
            key,
            why: format!("not a JSON array of strings: {error}"),
        })
    })
}

fn header_names(
    data: &BTreeMap<String, String>,
    key: &'static str,
) -> Result<Vec<HeaderName>, AuthenticationConfigError> {
    strings(data, key)?
        .iter()
        .map(|name| {
            name.parse().map_err(|_| AuthenticationConfigError::Value {
                key,
                why: format!("{name:?} is not a header name"),
            })
        })
        .collect()
}
