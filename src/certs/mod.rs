//! The serving certificate of this server.
//!
//! Input: certificate files, or the Secret with our own CA. Output: the TLS configuration of the
//! server, and the CA bundle with which the kube-apiserver verifies this server.
//!
//! ```text
//! --tls-cert-file ──poll──────────────▶ ServingCertificate ──▶ server_config
//! Secret ──▶ Authority ──issue, renew──▶        "
//!                └── bundle ──▶ CaBundle ──▶ APIService spec.caBundle
//! ```
//!
//! Guarantees:
//!
//! - The certificate and its key change together, without a restart and without closing
//!   connections.
//! - An invalid certificate never replaces a valid one.
//! - A Secret whose content this server cannot read as a CA is not overwritten.

mod authority;
mod bundle;
mod own_certificate;
mod secret;
mod serving;
mod tls;

#[cfg(test)]
mod tests;

pub use authority::{Authority, IssuedCertificate};
pub use bundle::CaBundle;
pub use own_certificate::OwnCertificate;
pub use secret::{FORMER_SECRET_NAME, SECRET_NAME, load_authority};
pub use serving::{ServingCertificate, server_config};
pub use tls::{TlsCipherSuite, TlsSettings, TlsVersion};

use std::path::PathBuf;
use std::time::Duration;

/// Errors of this module.
#[derive(Debug, thiserror::Error)]
pub enum CertsError {
    /// OpenSSL returned an error.
    #[error("cannot make a certificate: {0}")]
    OpenSsl(#[from] openssl::error::ErrorStack),
    /// A certificate was requested without any name.
    #[error("a serving certificate needs a DNS name or an IP address")]
    NoName,
    /// The certificate and key of a CA are not usable.
    #[error("not a usable CA: {0}")]
    BadAuthority(String),
    /// The Secret does not contain a CA.
    #[error(
        "Secret {secret} does not hold a CA that can be used ({why}); \
         it is not changed; delete it, and the server creates a new one"
    )]
    BadSecret {
        /// `NAMESPACE/NAME` of the Secret.
        secret: String,
        /// The reason.
        why: String,
    },
    /// The Secret of the CA cannot be read or written.
    #[error("cannot {doing} Secret {secret}: {source}")]
    Secret {
        /// `read`, `create` or `update`.
        doing: &'static str,
        /// `NAMESPACE/NAME` of the Secret.
        secret: String,
        /// The reason.
        source: Box<kube::Error>,
    },
    /// The Secret does not exist.
    #[error(
        "there is no Secret {secret}, which `kubectl apply -k deploy` creates; \
         create it, or name another namespace with --namespace"
    )]
    NoSecret {
        /// `NAMESPACE/NAME` of the Secret.
        secret: String,
    },
    /// The kube-apiserver did not answer in time.
    #[error("the kube-apiserver did not answer within {} s", CYCLE_TIMEOUT.as_secs())]
    Late,
    /// The write failed repeatedly, because other replicas changed the Secret each time.
    #[error("Secret {secret} changed each time it was read")]
    Contended {
        /// `NAMESPACE/NAME` of the Secret.
        secret: String,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The serving certificate and its key are not usable.
    #[error("not a usable serving certificate: {0}")]
    BadServing(String),
}

/// The field manager of our writes, shown in `managedFields`.
const FIELD_MANAGER: &str = "ifo-apiserver";

/// Time limit for one cycle of reading and writing in the cluster. After it, the cycle is tried
/// again later.
///
/// The value is the default of `K8S_API_TIMEOUT`. The client itself can have a longer limit or
/// none, and an update loop that hangs would leave certificates to expire.
const CYCLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Converts an ASN.1 time to seconds since 1970.
fn unix_time(time: &openssl::asn1::Asn1TimeRef) -> Result<i64, openssl::error::ErrorStack> {
    let since = openssl::asn1::Asn1Time::from_unix(0)?.diff(time)?;
    Ok(i64::from(since.days) * 86_400 + i64::from(since.secs))
}

/// The current time in seconds since 1970.
fn now() -> i64 {
    // The clock is before 1970. Then no certificate is valid, and none has expired.
    crate::clock::now().as_second().max(0)
}
