//! The TLS versions and cipher suites that the server accepts.
//!
//! Versions and suites have the same names as in the flags `--tls-min-version` and
//! `--tls-cipher-suites` of Kubernetes' components. These names come from Go's package
//! `crypto/tls`. The server accepts only names of versions and suites that rustls supports. rustls
//! does not support versions before TLS 1.2. For TLS 1.2, it supports only suites with ECDHE and
//! either AES-GCM or ChaCha20-Poly1305.

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

/// The accepted versions and cipher suites.
#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    /// The lowest accepted version.
    pub min_version: TlsVersion,
    /// The accepted cipher suites. If the list is empty, the server accepts all suites that rustls
    /// supports. The list limits only the suites of TLS 1.2, as in Go. The server always accepts
    /// the suites of TLS 1.3.
    pub cipher_suites: Vec<TlsCipherSuite>,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum TlsVersion {
    /// TLS 1.2
    #[default]
    #[cfg_attr(feature = "clap", value(name = "VersionTLS12"))]
    Tls12,
    /// TLS 1.3
    #[cfg_attr(feature = "clap", value(name = "VersionTLS13"))]
    Tls13,
}

/// A TLS cipher suite from [RFC 5289](https://www.rfc-editor.org/rfc/rfc5289), [RFC
/// 7905](https://www.rfc-editor.org/rfc/rfc7905) or [RFC
/// 8446](https://www.rfc-editor.org/rfc/rfc8446).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[cfg_attr(feature = "clap", value(rename_all = "verbatim"))]
#[allow(
    non_camel_case_types,
    missing_docs,
    reason = "the variants have the names from the RFCs"
)]
pub enum TlsCipherSuite {
    TLS_AES_128_GCM_SHA256,
    TLS_AES_256_GCM_SHA384,
    TLS_CHACHA20_POLY1305_SHA256,
    TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

impl TlsSettings {
    /// Returns a provider that has only the accepted cipher suites.
    pub(super) fn provider(&self) -> CryptoProvider {
        let mut provider = default_provider();
        if !self.cipher_suites.is_empty() {
            provider.cipher_suites.retain(|offered| {
                // For TLS 1.2, the suites in rustls have the same names as the variants of
                // [`TlsCipherSuite`].
                let name = format!("{:?}", offered.suite());
                let mut accepted = self.cipher_suites.iter();
                matches!(offered, SupportedCipherSuite::Tls13(_))
                    || accepted.any(|accepted| format!("{accepted:?}") == name)
            });
        }
        provider
    }

    /// Returns the accepted versions. Leaves out TLS 1.2 if `provider` has no cipher suite of TLS
    /// 1.2.
    pub(super) fn versions(
        &self,
        provider: &CryptoProvider,
    ) -> Vec<&'static SupportedProtocolVersion> {
        let mut versions = vec![&rustls::version::TLS13];
        let mut suites = provider.cipher_suites.iter();
        let has_tls12 = suites.any(|suite| matches!(suite, SupportedCipherSuite::Tls12(_)));
        if self.min_version == TlsVersion::Tls12 && has_tls12 {
            versions.push(&rustls::version::TLS12);
        }
        versions
    }
}
