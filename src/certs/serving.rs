//! The certificate that the server presents to its clients.
//!
//! Input: certificate and key as PEM, each time they change. Output: the current pair, for each TLS
//! handshake.

use super::{CertsError, TlsSettings, now, unix_time};
use crate::telemetry::Metrics;
use arc_swap::ArcSwap;
use openssl::x509::X509;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Returns the TLS configuration of the server. HTTP/2 is preferred to HTTP/1.1.
///
/// `resolver` is usually a [`ServingCertificate`], `verifier` that of
/// [`crate::auth::client_certificate_verifier`].
///
/// # Panics
///
/// Never. The provider has cipher suites for each accepted version.
pub fn server_config(
    resolver: Arc<dyn ResolvesServerCert>,
    verifier: Arc<dyn ClientCertVerifier>,
    settings: &TlsSettings,
) -> ServerConfig {
    // The provider is set explicitly. The process default would depend on the order of the start.
    let provider = settings.provider();
    let versions = settings.versions(&provider);
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&versions)
        .expect("the provider has cipher suites for these versions")
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

/// The current certificate and its key. Both are replaced together.
pub struct ServingCertificate {
    current: ArcSwap<CertifiedKey>,
    metrics: Arc<Metrics>,
}

impl std::fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServingCertificate").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

impl ServingCertificate {
    /// Creates a resolver for the certificates in `chain` (PEM, leaf first) and their `key` (PEM).
    ///
    /// `metrics` gets the expiry of this certificate and of each one that replaces it.
    pub fn new(chain: &[u8], key: &[u8], metrics: Arc<Metrics>) -> Result<Self, CertsError> {
        let (pair, expires) = pair(chain, key)?;
        metrics.certificate_expires(expires);
        Ok(Self {
            current: ArcSwap::from_pointee(pair),
            metrics,
        })
    }

    /// Uses another pair from the next handshake on. If it is invalid, the old pair stays.
    pub fn replace(&self, chain: &[u8], key: &[u8]) -> Result<(), CertsError> {
        let (pair, expires) = pair(chain, key)?;
        self.current.store(Arc::new(pair));
        self.metrics.certificate_expires(expires);
        Ok(())
    }

    /// Reads the pair from two PEM files.
    pub async fn load(
        certificate: &Path,
        key: &Path,
        metrics: Arc<Metrics>,
    ) -> Result<Self, CertsError> {
        let (chain, key) = read(certificate, key).await?;
        Self::new(&chain, &key, metrics)
    }

    /// Reads the two files after each `period` and uses their content if it has changed. Never
    /// ends.
    ///
    /// The content is compared instead of watching the files. Comparing works on every file system,
    /// and with the symbolic links through which the kubelet replaces a mounted Secret. If the
    /// files are read while only one of them is replaced, they do not match and are read again
    /// later.
    pub async fn follow(&self, certificate: PathBuf, key: PathBuf, period: Duration) {
        let mut last = None;
        loop {
            match read(&certificate, &key).await {
                Ok((chain, key)) => {
                    // Only a digest is kept, so that the key is not in memory twice.
                    let digest: [u8; 32] = Sha256::new()
                        .chain_update(&chain)
                        .chain_update([0])
                        .chain_update(&key)
                        .finalize()
                        .into();
                    if last != Some(Ok(digest)) {
                        let first = last.replace(Ok(digest)).is_none();
                        match self.replace(&chain, &key) {
                            Ok(()) if first => {}
                            Ok(()) => tracing::info!(
                                file = %certificate.display(),
                                "serving certificate replaced"
                            ),
                            Err(error) => tracing::error!(
                                file = %certificate.display(),
                                %error,
                                "the last valid serving certificate stays in use"
                            ),
                        }
                    }
                }
                Err(error) => {
                    // A repeated failure is logged once.
                    let said = Err(error.to_string());
                    if last.as_ref() != Some(&said) {
                        tracing::error!(%error, "the last valid serving certificate stays in use");
                        last = Some(said);
                    }
                }
            }
            tokio::time::sleep(period).await;
        }
    }
}

async fn read(certificate: &Path, key: &Path) -> Result<(Vec<u8>, Vec<u8>), CertsError> {
    let one = async |path: &Path| {
        tokio::fs::read(path)
            .await
            .map_err(|source| CertsError::File {
                path: path.to_owned(),
                source,
            })
    };
    Ok((one(certificate).await?, one(key).await?))
}

/// Parses the pair for rustls. Also returns the expiry in seconds since 1970.
fn pair(chain: &[u8], key: &[u8]) -> Result<(CertifiedKey, i64), CertsError> {
    let bad =
        |what: &str, why: &dyn std::fmt::Display| CertsError::BadServing(format!("{what}: {why}"));
    let chain = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| bad("certificate", &error))?;
    let leaf = chain
        .first()
        .ok_or_else(|| bad("certificate", &"there is none"))?;
    let leaf = X509::from_der(leaf).map_err(|error| bad("certificate", &error))?;
    let expires = unix_time(leaf.not_after())?;
    if expires <= now() {
        // An expired certificate is presented anyway: the client then reports the reason.
        tracing::warn!("the serving certificate has expired");
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| bad("key", &error))?;
    let pair = CertifiedKey::from_der(chain, key, &default_provider())
        .map_err(|error| bad("certificate and key", &error))?;
    Ok((pair, expires))
}
