//! Tests the accepted TLS versions and cipher suites.

use super::super::{TlsCipherSuite, TlsSettings, TlsVersion};
use crate::auth::testing::TlsClient;
use rustls::version::{TLS12, TLS13};

#[test]
fn only_the_chosen_versions_and_cipher_suites_are_accepted() {
    // If the server accepts all suites, a TLS 1.2 client that offers all suites gets this suite.
    let preferred = TlsCipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
    let other = TlsCipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    let of_tls13 = TlsCipherSuite::TLS_AES_128_GCM_SHA256;
    for (min_version, cipher_suites, expected) in [
        (TlsVersion::Tls12, vec![], Some(preferred)),
        (TlsVersion::Tls13, vec![], None),
        (TlsVersion::Tls12, vec![other], Some(other)),
        (TlsVersion::Tls12, vec![of_tls13], None),
    ] {
        let settings = TlsSettings {
            min_version,
            cipher_suites,
        };
        let negotiated = |version| {
            let (client, _) = TlsClient::new(version).connect(&settings).ok()?;
            client.negotiated_cipher_suite().map(|suite| suite.suite())
        };
        let tls12 = negotiated(&TLS12).map(|suite| format!("{suite:?}"));
        assert_eq!(tls12, expected.map(|suite| format!("{suite:?}")));
        // The settings do not limit the suites of TLS 1.3.
        let preferred = rustls::CipherSuite::TLS13_AES_256_GCM_SHA384;
        assert_eq!(negotiated(&TLS13), Some(preferred));
    }
}
