//! Whom the cluster trusts to say who a client is. Enters: the `ConfigMap`
//! `kube-system/extension-apiserver-authentication`, which every kube-apiserver
//! publishes. Leaves: a [`Trust`], replaced as a whole when the `ConfigMap` changes.
//!
//! Promises: a value that cannot be read never replaces one that could; a certificate's
//! verdict is forgotten with the CAs that gave it.

use super::certificate::{Authorities, CertificateSubject};
use super::headers::UserHeaders;
use super::reviews::{Recent, digest};
use super::{PeerCertificates, User};
use crate::telemetry::Metrics;
use arc_swap::ArcSwap;
use futures::StreamExt;
use http::HeaderName;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
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

/// How long a certificate's verdict is kept: so much later at most is it noticed that
/// it, or a CA over it, has expired.
const KEEP_VERDICT: Duration = Duration::from_mins(1);

/// How many verdicts are kept. Clients are the kube-apiservers, each with a handful of
/// connections but one certificate, and a few people: 256 is plenty, and 150 KB at most
/// unless certificates name hundreds of organizations.
const MAX_VERDICTS: usize = 256;

/// What is wrong with the cluster's authentication configuration.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The `ConfigMap` cannot be read.
    #[error("cannot read ConfigMap {NAMESPACE}/{NAME}: {0}")]
    Read(#[source] kube::Error),
    /// A value in it is bad.
    #[error("ConfigMap {NAMESPACE}/{NAME}, key {key}: {why}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong with its value.
        why: String,
    },
}

/// The CAs and header names of the cluster, as of one moment.
#[derive(Debug)]
pub struct Trust {
    /// The data it was read from.
    data: BTreeMap<String, String>,
    client: Option<Authorities>,
    proxy: Option<Proxy>,
    /// The client CAs whose every certificate is one of the front proxy as well.
    pub(super) shared: Vec<String>,
    verdicts: Recent<Arc<TrustVerdict>>,
}

#[derive(Debug)]
struct Proxy {
    authorities: Authorities,
    /// Empty allows any.
    allowed_names: Vec<String>,
    headers: UserHeaders,
}

impl Proxy {
    /// Whether any certificate of its CAs may name users.
    fn takes_any_name(&self) -> bool {
        self.allowed_names.is_empty() && !self.headers.name.is_empty()
    }
}

/// What the CAs say of a certificate.
#[derive(Debug)]
pub(super) struct TrustVerdict {
    /// It is the front proxy's.
    pub(super) is_proxy: bool,
    /// The user it names, if a client CA vouches for it.
    pub(super) user: Option<User>,
}

impl Default for Trust {
    /// Trust in nobody: no certificate verifies.
    fn default() -> Self {
        Self::with(BTreeMap::new(), None, None)
    }
}

impl Trust {
    fn with(
        data: BTreeMap<String, String>,
        client: Option<Authorities>,
        proxy: Option<Proxy>,
    ) -> Self {
        let shared = match (&client, &proxy) {
            (Some(client), Some(proxy)) if proxy.takes_any_name() => {
                proxy.authorities.covering(client)
            }
            _ => Vec::new(),
        };
        Self {
            data,
            client,
            proxy,
            shared,
            verdicts: Recent::new(KEEP_VERDICT, MAX_VERDICTS),
        }
    }

    /// Reads the data of the `ConfigMap`. A key that is missing means that there is no
    /// such CA or header (`requestheader-uid-headers` is written only if the flag is
    /// set); a key that is there must be right.
    pub fn parse(data: BTreeMap<String, String>) -> Result<Self, TrustError> {
        let authorities = |key| {
            data.get(key)
                .map(|bundle| {
                    Authorities::from_pem(bundle).map_err(|why| TrustError::Value { key, why })
                })
                .transpose()
        };
        let client = authorities(CLIENT_CA)?;
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
        let proxy = authorities(PROXY_CA)?.map(|authorities| Proxy {
            authorities,
            allowed_names,
            headers,
        });
        Ok(Self::with(data, client, proxy))
    }

    /// Reads it from the cluster; tries again, with pauses of 0.5 s to 5 s, until
    /// `within` has passed, then gives the last error.
    pub async fn load(client: &Client, within: Duration) -> Result<Self, TrustError> {
        let api = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
        let end = tokio::time::Instant::now() + within;
        let mut pause = Duration::from_millis(500);
        loop {
            let error = match tokio::time::timeout_at(end, api.get(NAME)).await {
                Ok(Ok(found)) => match Self::parse(found.data.unwrap_or_default()) {
                    Ok(trust) => return Ok(trust),
                    Err(error) => error,
                },
                Ok(Err(error)) => TrustError::Read(error),
                Err(late) => TrustError::Read(kube::Error::Service(late.into())),
            };
            if tokio::time::Instant::now() + pause >= end {
                return Err(error);
            }
            tracing::warn!(%error, "trying again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    }

    /// Keeps `trust` as the cluster's `ConfigMap` is, for as long as it runs; never
    /// ends by itself. Whatever fails, the last good one stays.
    pub async fn follow(client: Client, trust: Arc<ArcSwap<Self>>, metrics: Arc<Metrics>) {
        let api = Api::<ConfigMap>::namespaced(client, NAMESPACE);
        let only = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
        let mut events = watcher(api, only).default_backoff().boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(found) | watcher::Event::InitApply(found)) => {
                    adopt(&trust, found.data.unwrap_or_default(), &metrics);
                }
                Ok(watcher::Event::Delete(_)) => {
                    tracing::warn!(
                        namespace = NAMESPACE,
                        name = NAME,
                        "authentication configuration was deleted; keeping the last one"
                    );
                }
                Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
                Err(error) => {
                    tracing::warn!(
                        namespace = NAMESPACE,
                        name = NAME,
                        %error,
                        "cannot follow the authentication configuration; keeping the last one"
                    );
                }
            }
        }
    }

    /// Warns, in the log and by a metric, if every client certificate of a CA can claim any
    /// user and group. Requests are answered all the same, as every Kubernetes API server
    /// does: whether that is wanted is for the cluster's administrator to decide.
    pub fn report(&self, metrics: &Metrics) {
        metrics.front_proxy_trust_shared(!self.shared.is_empty());
        if !self.shared.is_empty() {
            tracing::warn!(
                namespace = NAMESPACE,
                name = NAME,
                authorities = self.shared.join("; "),
                "every client certificate of these authorities can claim any user and group: \
                 the CA bundle of the front proxy vouches for them, and \
                 {ALLOWED_NAMES} is empty"
            );
        }
    }

    /// What the CAs say of the chain that a peer presented.
    pub(super) fn verdict(&self, peer: &PeerCertificates) -> Arc<TrustVerdict> {
        let key = digest(peer.0.iter().map(|certificate| &**certificate));
        if let Some(verdict) = self.verdicts.get(&key) {
            return verdict;
        }
        // Not under the lock: this checks signatures. Two may do it at once.
        let verdict = Arc::new(self.judge(peer));
        self.verdicts.insert(key, Arc::clone(&verdict));
        verdict
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
                && proxy.authorities.vouch_for(&peer.0)
        });
        if let Some(authorities) = &self.client
            && authorities.vouch_for(&peer.0)
        {
            verdict.user = subject.user();
        }
        verdict
    }

    /// The headers in which a front proxy names users.
    pub(super) fn headers(&self) -> Option<&UserHeaders> {
        self.proxy.as_ref().map(|proxy| &proxy.headers)
    }
}

/// Takes `data` over if it is new and good.
fn adopt(trust: &ArcSwap<Trust>, data: BTreeMap<String, String>, metrics: &Metrics) {
    // A relist brings the same again; the verdicts would be lost for nothing.
    if trust.load().data == data {
        return;
    }
    match Trust::parse(data) {
        Ok(new) => {
            tracing::info!(
                namespace = NAMESPACE,
                name = NAME,
                "authentication configuration read"
            );
            new.report(metrics);
            trust.store(Arc::new(new));
        }
        Err(error) => tracing::error!(%error, "keeping the last good one"),
    }
}

/// A value that is a JSON array of strings; empty when the key is missing.
fn strings(data: &BTreeMap<String, String>, key: &'static str) -> Result<Vec<String>, TrustError> {
    data.get(key).map_or(Ok(Vec::new()), |value| {
        serde_json::from_str(value).map_err(|error| TrustError::Value {
            key,
            why: format!("not a JSON array of strings: {error}"),
        })
    })
}

fn header_names(
    data: &BTreeMap<String, String>,
    key: &'static str,
) -> Result<Vec<HeaderName>, TrustError> {
    strings(data, key)?
        .iter()
        .map(|name| {
            name.parse().map_err(|_| TrustError::Value {
                key,
                why: format!("{name:?} is not a header name"),
            })
        })
        .collect()
}
