//! What the server shows its clients. Enters: certificate and key, as PEM, again and
//! again. Leaves: the pair that is current, for each handshake.

use super::{CertsError, now, unix_time};
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

/// The TLS configuration of the server: TLS 1.2 and 1.3, HTTP/2 preferred.
///
/// `resolver` is usually a [`ServingCertificate`], `verifier` that of
/// [`crate::auth::client_certificate_verifier`].
///
/// # Panics
///
/// Never: the provider that is named here has cipher suites for both versions.
pub fn server_config(
    resolver: Arc<dyn ResolvesServerCert>,
    verifier: Arc<dyn ClientCertVerifier>,
) -> ServerConfig {
    // The provider is named here: a process default would be whatever was first.
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .expect("ring has cipher suites for both versions")
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

/// The current certificate with its key; both are swapped at once.
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
    /// Shows the certificates of `chain` (PEM, leaf first), whose key is `key` (PEM).
    /// Its end is told to `metrics`, now and with each replacement.
    pub fn new(chain: &[u8], key: &[u8], metrics: Arc<Metrics>) -> Result<Self, CertsError> {
        let (pair, expires) = pair(chain, key)?;
        metrics.certificate_expires(expires);
        Ok(Self {
            current: ArcSwap::from_pointee(pair),
            metrics,
        })
    }

    /// Shows another pair from the next handshake on; on an error the old one stays.
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

    /// Reads the two files again after each `period` and shows what is in them when it
    /// has changed; never ends by itself.
    ///
    /// The content is compared, not watched: that works on every file system, and with
    /// the links by which the kubelet replaces a mounted Secret. A pair read between
    /// the writing of its two files does not match and is read again later.
    pub async fn follow(&self, certificate: PathBuf, key: PathBuf, period: Duration) {
        let mut last = None;
        loop {
            match read(&certificate, &key).await {
                Ok((chain, key)) => {
                    // A digest, so that the key is not held twice.
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
                                "keeping the last good serving certificate"
                            ),
                        }
                    }
                }
                Err(error) => {
                    // Said once, not with each try.
                    let said = Err(error.to_string());
                    if last.as_ref() != Some(&said) {
                        tracing::error!(%error, "keeping the last good serving certificate");
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

/// The pair as rustls wants it, and its end in seconds since 1970.
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
        // Shown all the same: a client then says what is wrong with it.
        tracing::warn!("the serving certificate has expired");
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| bad("key", &error))?;
    let pair = CertifiedKey::from_der(chain, key, &default_provider())
        .map_err(|error| bad("certificate and key", &error))?;
    Ok((pair, expires))
}
