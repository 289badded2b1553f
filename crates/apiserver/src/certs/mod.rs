//! Provides the serving certificate of this server and the TLS configuration. The certificate comes
//! from files. If no files are configured, the server creates a CA, stores the CA in a Secret, and
//! issues the certificate with this CA. The module also publishes the CA bundle with which the
//! kube-apiserver verifies this server.
//!
//! ```text
//! --tls-cert-file ──poll───────────────▶ ServingCertificate ──▶ server_config
//! Secret ──▶ Authority ──issue, renew──▶ ServingCertificate ──▶ server_config
//!                └── bundle ──▶ CaBundleUpdater ──▶ APIService spec.caBundle
//! ```
//!
//! Guarantees:
//!
//! - The certificate and its key change together, without a restart and without closing
//!   connections.
//! - An invalid certificate never replaces a valid certificate.
//! - If the Secret has data that is not a valid CA, the server does not overwrite the Secret.

mod ca_bundle;
mod ca_secret;
mod own_ca;
mod own_certificate;
mod replaceable_certificate;
mod tls_settings;

#[cfg(test)]
mod tests;

pub use ca_bundle::{CaBundleHolder, CaBundleUpdater};
pub use ca_secret::CaSecret;
pub use own_ca::{Authority, IssuedCertificate};
pub use own_certificate::OwnCertificate;
pub use replaceable_certificate::{ServingCertificate, server_config};
pub use tls_settings::{TlsCipherSuite, TlsSettings, TlsVersion};

use std::path::PathBuf;
use std::time::Duration;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The errors of this module.
#[derive(Debug, thiserror::Error)]
pub enum CertsError {
    /// A key or a certificate cannot be created.
    #[error("cannot make a certificate: {0}")]
    Create(#[from] rcgen::Error),
    /// A certificate was requested without a DNS name and without an IP address.
    #[error("a serving certificate needs a DNS name or an IP address")]
    NoName,
    /// The certificate or the key of a CA is invalid.
    #[error("not a usable CA: {0}")]
    BadAuthority(String),
    /// The Secret of the CA cannot be used.
    #[error("Secret {secret}, in which the server stores its CA: {why}")]
    Secret {
        /// `NAMESPACE/NAME` of the Secret.
        secret: String,
        /// The reason.
        why: String,
    },
    /// A certificate file or key file cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// The serving certificate or its key is invalid.
    #[error("not a usable serving certificate: {0}")]
    BadServing(String),
}

/// The common name of the certificates that the server's own CA issues. The common name of the CA
/// starts with the same text. Clients do not check common names: they verify only the alternative
/// names.
const COMMON_NAME: &str = "aggregated-apiserver";

/// Time limit for one check of the Secret, or of an object with a CA bundle. The limit covers all
/// reads and writes of the check. A check that takes longer is cancelled and repeated later.
///
/// Without this limit, a check that never ends would prevent the renewal of certificates. The time
/// limit of the `kube::Client` is not sufficient: it can be longer than 30 s, and it applies to
/// each request, but a check sends several requests.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// Parses a certificate from DER.
fn parse(der: &[u8]) -> Result<X509Certificate<'_>, String> {
    let parsed = X509Certificate::from_der(der);
    parsed
        .map(|(_, certificate)| certificate)
        .map_err(|error| error.to_string())
}

/// Returns the current time in seconds since 1970.
fn now() -> i64 {
    // If the clock shows a time before 1970, the result is 0. Comparisons with the expiry of a
    // certificate have the same result for both times: the certificate has not expired.
    crate::clock::now().as_second().max(0)
}
