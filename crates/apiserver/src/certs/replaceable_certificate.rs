//! The certificate that the server presents in TLS handshakes. The server can replace the
//! certificate while it runs, for example when the certificate files change.

use super::own_ca::not_after;
use super::{CertsError, TlsSettings, now, parse};
use crate::metrics::Metrics;
use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Returns the TLS configuration of the server. If a client supports both HTTP/2 and HTTP/1.1, the
/// server selects HTTP/2.
///
/// `resolver` is usually a [`ServingCertificate`], and `verifier` is usually
/// [`crate::auth::client_certificate_verifier`].
///
/// # Panics
///
/// Never, because the provider has cipher suites for each accepted version.
pub fn server_config(
    resolver: Arc<dyn ResolvesServerCert>,
    verifier: Arc<dyn ClientCertVerifier>,
    settings: &TlsSettings,
) -> ServerConfig {
    // The provider is passed explicitly, because the process-wide default may not be installed yet.
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

/// The current certificate and its key.
#[derive(Debug)]
pub struct ServingCertificate {
    pub(super) current: ArcSwap<CertifiedKey>,
    metrics: Arc<Metrics>,
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

impl ServingCertificate {
    /// Creates a resolver that presents the certificates in `chain` (PEM, leaf first). `key` (PEM)
    /// is the private key of the leaf.
    ///
    /// `metrics` shows the expiry of the current leaf.
    pub fn new(chain: &[u8], key: &[u8], metrics: Arc<Metrics>) -> Result<Self, CertsError> {
        let (pair, expires) = pair(chain, key, None)?;
        metrics.certificate_expires(expires);
        Ok(Self {
            current: ArcSwap::from_pointee(pair),
            metrics,
        })
    }

    /// Presents another certificate in all further handshakes. If the certificate or its key is
    /// invalid, returns an error, and the current certificate stays in use. An expired certificate
    /// is also an error, unless the current certificate has expired, too.
    pub fn replace(&self, chain: &[u8], key: &[u8]) -> Result<(), CertsError> {
        let (pair, expires) = pair(chain, key, Some(&self.current.load()))?;
        self.current.store(Arc::new(pair));
        self.metrics.certificate_expires(expires);
        Ok(())
    }

    /// Reads the certificate and its key from two PEM files.
    pub async fn load(
        certificate: &Path,
        key: &Path,
        metrics: Arc<Metrics>,
    ) -> Result<Self, CertsError> {
        let (chain, key_pem) = read(certificate, key).await?;
        Self::new(&chain, &key_pem, metrics).map_err(|error| match error {
            CertsError::BadServing(why) => {
                let files = [certificate, key].map(|file| file.display().to_string());
                CertsError::BadServing(format!("{why} (files {})", files.join(" and ")))
            }
            error => error,
        })
    }

    /// Reads the files `certificate` and `key` immediately, and again after each `period`. If the
    /// content of a file has changed, presents the new certificate. Never ends.
    ///
    /// The method reads the files periodically, because watching files does not work on every file
    /// system. Reading also works for a mounted Secret, which the kubelet replaces through symbolic
    /// links.
    ///
    /// If a read finds only one of the two new files, the key does not match the certificate. Then
    /// the current certificate stays in use until a later read finds both new files.
    pub async fn follow(&self, certificate: PathBuf, key: PathBuf, period: Duration) {
        let mut last = None;
        loop {
            let found = read(&certificate, &key).await;
            let found = found.map_err(|error| error.to_string());
            if last.as_ref() != Some(&found) {
                let replaced = match &found {
                    Ok((chain, key)) => self.replace(chain, key).map_err(|it| it.to_string()),
                    Err(error) => Err(error.clone()),
                };
                let file = certificate.display();
                match replaced {
                    Ok(()) if last.is_none() => {}
                    Ok(()) => tracing::info!(%file, "serving certificate replaced"),
                    Err(error) => tracing::error!(
                        %file,
                        error,
                        "the last valid serving certificate stays in use"
                    ),
                }
                last = Some(found);
            }
            tokio::time::sleep(period).await;
        }
    }
}

async fn read(certificate: &Path, key: &Path) -> Result<(Vec<u8>, Vec<u8>), CertsError> {
    let read_file = async |path: &Path| {
        tokio::fs::read(path)
            .await
            .map_err(|source| CertsError::File {
                path: path.to_owned(),
                source,
            })
    };
    Ok((read_file(certificate).await?, read_file(key).await?))
}

/// Parses the certificate and its key for rustls. Also returns the expiry in seconds since 1970.
/// Returns an error if the certificate has expired, but the `current` one has not.
fn pair(
    chain: &[u8],
    key: &[u8],
    current: Option<&CertifiedKey>,
) -> Result<(CertifiedKey, i64), CertsError> {
    let bad =
        |what: &str, why: &dyn std::fmt::Display| CertsError::BadServing(format!("{what}: {why}"));
    let chain = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| bad("certificate", &error))?;
    let leaf = chain
        .first()
        .ok_or_else(|| bad("certificate", &"the file contains no certificate"))?;
    let leaf = parse(leaf).map_err(|error| bad("certificate", &error))?;
    let expires = leaf.validity().not_after.timestamp();
    if expires <= now() {
        if current.is_some_and(|current| not_after(&current.cert[0]) > now()) {
            return Err(bad("certificate", &"it has expired"));
        }
        // Without a better one, the server presents even an expired certificate, so that clients
        // report the expiry as the error.
        tracing::warn!("the serving certificate has expired");
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| bad("key", &error))?;
    let pair = CertifiedKey::from_der(chain, key, &default_provider())
        .map_err(|error| bad("certificate and key", &error))?;
    Ok((pair, expires))
}
