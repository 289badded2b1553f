//! The serving certificate. Enters: files, or the cluster's Secret that holds our own
//! CA. Leaves: the TLS configuration of the server, and the CA bundle by which the
//! kube-apiserver knows it.
//!
//! ```text
//! --tls-cert-file ──poll──────────────▶ ServingCertificate ──▶ server_config
//! Secret ──▶ Authority ──issue, renew──▶        "
//!                └── bundle ──▶ CaBundle ──▶ APIService spec.caBundle
//! ```
//!
//! Promises: the certificate and its key change together, without a restart and
//! without losing a connection; one that is bad never replaces one that is good; a
//! Secret that is not ours to understand is not overwritten.

mod authority;
mod bundle;
mod own;
mod secret;
mod serving;

#[cfg(test)]
mod tests;

pub use authority::{Authority, Certified};
pub use bundle::CaBundle;
pub use own::OwnCertificate;
pub use secret::{SECRET_NAME, load_or_create};
pub use serving::{ServingCertificate, server_config};

use std::path::PathBuf;
use std::time::Duration;

/// What can go wrong with certificates.
#[derive(Debug, thiserror::Error)]
pub enum CertsError {
    /// OpenSSL refused.
    #[error("cannot make a certificate: {0}")]
    OpenSsl(#[from] openssl::error::ErrorStack),
    /// A certificate was asked for that would be for nobody.
    #[error("a serving certificate needs a DNS name or an IP address")]
    NoName,
    /// A CA certificate and its key are not usable.
    #[error("not a usable CA: {0}")]
    BadAuthority(String),
    /// The Secret of the CA holds something else.
    #[error(
        "Secret {secret} does not hold a CA that can be used ({why}); \
         it is left as it is: delete it to have a new one made"
    )]
    BadSecret {
        /// `NAMESPACE/NAME` of the Secret.
        secret: String,
        /// What is wrong with it.
        why: String,
    },
    /// The Secret of the CA cannot be read or written.
    #[error("cannot {doing} Secret {secret}: {source}")]
    Secret {
        /// `read`, `create` or `update`.
        doing: &'static str,
        /// `NAMESPACE/NAME` of the Secret.
        secret: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// There is no place for the Secret of the CA.
    #[error(
        "cannot create Secret {secret}: there is no namespace {namespace}; \
         create it, or name another one with --namespace"
    )]
    NoNamespace {
        /// `NAMESPACE/NAME` of the Secret.
        secret: String,
        /// The namespace that is missing.
        namespace: String,
    },
    /// The kube-apiserver did not answer.
    #[error("the kube-apiserver did not answer within {} s", WITHIN.as_secs())]
    Late,
    /// Others kept changing the Secret.
    #[error("Secret {secret} changed each time it was read")]
    Contended {
        /// `NAMESPACE/NAME` of the Secret.
        secret: String,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A serving certificate and its key are not usable.
    #[error("not a usable serving certificate: {0}")]
    BadServing(String),
}

/// The name under which our writes stand in an object's `managedFields`.
const FIELD_MANAGER: &str = "ifo-apiserver";

/// How long one round of reading and writing in the cluster may take before it is given
/// up and tried again later: the default of `K8S_API_TIMEOUT`. The client may have a
/// longer one, or none, and a loop that hangs keeps nothing right.
const WITHIN: Duration = Duration::from_secs(30);

/// Seconds since 1970 of an ASN.1 time.
fn unix_time(time: &openssl::asn1::Asn1TimeRef) -> Result<i64, openssl::error::ErrorStack> {
    let since = openssl::asn1::Asn1Time::from_unix(0)?.diff(time)?;
    Ok(i64::from(since.days) * 86_400 + i64::from(since.secs))
}

/// Seconds since 1970.
fn now() -> i64 {
    // A clock before 1970: no certificate is valid, and none looks expired.
    crate::clock::now().as_second().max(0)
}
