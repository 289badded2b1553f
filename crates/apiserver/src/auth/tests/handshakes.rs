//! Tests TLS handshakes with our verifier of client certificates.

use super::super::testing::{CertificateAndKey, TlsClient, ca};
use crate::certs::TlsSettings;
use rustls::version::{TLS12, TLS13};
use rustls::{Error, ServerConnection};

/// Returns the server's end of a connection. The client presents `chain` (leaf first), and signs
/// with the key of `signer`.
fn accepted(
    chain: &[&CertificateAndKey],
    signer: Option<&&CertificateAndKey>,
    version: &'static rustls::SupportedProtocolVersion,
) -> Result<ServerConnection, Error> {
    let client = TlsClient {
        certificate: signer.map(|signer| signer.signing_for(chain)),
        ..TlsClient::new(version)
    };
    let (_, server) = client.connect(&TlsSettings::default())?;
    Ok(server)
}

#[test]
fn a_handshake_accepts_any_certificate_and_passes_its_chain_on() {
    let (known, unknown) = (ca("known"), ca("unknown"));
    let between = known.intermediate("between");
    let good = between.client(&[("CN", "jane")]);
    let strange = unknown.client(&[("CN", "mallory")]);
    let expired = unknown.client_living(&[("CN", "late")], (-100, -1));
    for version in [&TLS12, &TLS13] {
        for chain in [
            vec![],
            vec![&strange],
            vec![&expired],
            vec![&good, &between],
        ] {
            let server = accepted(&chain, chain.first(), version).unwrap();
            let presented: Vec<_> = chain.iter().map(|one| one.der()).collect();
            assert_eq!(server.peer_certificates().unwrap_or_default(), presented);
            assert_eq!(server.alpn_protocol(), Some(b"h2".as_slice()));
            assert_eq!(server.protocol_version(), Some(version.version));
        }
    }
}

#[test]
fn a_stolen_certificate_without_its_key_fails_the_handshake() {
    let ca = ca("known");
    let (victim, thief) = (ca.client(&[("CN", "jane")]), ca.client(&[("CN", "thief")]));
    for version in [&TLS12, &TLS13] {
        assert!(accepted(&[&victim], Some(&&victim), version).is_ok());
        let refused = accepted(&[&victim], Some(&&thief), version);
        assert!(matches!(refused, Err(Error::InvalidCertificate(_))));
    }
}
