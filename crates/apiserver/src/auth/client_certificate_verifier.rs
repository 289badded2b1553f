//! Requests client certificates in TLS handshakes. A handshake proves that the client has the
//! private key of its certificate.
//!
//! The handshake does not verify the CA of the certificate. [`super::AuthenticationConfig`]
//! verifies the CA at each request, for two reasons:
//!
//! - If the CA of the client is unknown, the server must answer 401, as Kubernetes does. If the
//!   handshake failed, the connection would be closed without an answer.
//! - If the cluster removes a CA from its configuration, the server must no longer accept the
//!   certificates of this CA. This also applies to further requests on open connections.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use std::sync::Arc;

/// Returns a verifier that requests a certificate from every client, but does not require a
/// certificate. The verifier accepts every certificate whose private key the client has.
///
/// In a handshake, a server sends the client a list of the CAs that it accepts. Kubernetes' own
/// extension API servers send all their CAs, so that a client with several certificates can choose
/// one of them. This verifier sends an empty list, because it could not change the list while the
/// server runs. If the cluster added a CA later, the list would not contain this CA. Then a client
/// with a certificate of this CA would send no certificate.
///
/// If the list is empty, Go clients such as kubectl and the kube-apiserver send their certificate:
/// `CertificateRequestInfo.SupportsCertificate` in crypto/tls then accepts every certificate. This
/// agrees with RFC 5246, 7.4.4 and RFC 8446, 4.2.4.
pub fn client_certificate_verifier() -> Arc<dyn ClientCertVerifier> {
    Arc::new(ProofOfKey {
        algorithms: rustls::crypto::ring::default_provider().signature_verification_algorithms,
    })
}

#[derive(Debug)]
struct ProofOfKey {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for ProofOfKey {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
