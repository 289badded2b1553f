//! Client certificates in the TLS handshake. Input: the certificate of a client. Output: proof that
//! the client has its key.
//!
//! Each request verifies whether a CA has issued the certificate (see [`super::Trust`]). If the
//! handshake verified it, an unknown CA would break the connection, and Kubernetes answers with 401
//! instead. It would also trust an open connection after its CA was removed.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use std::sync::Arc;

/// Asks every client for a certificate, requires none, and accepts any certificate whose key the
/// client has.
///
/// It advertises no CA. Upstream's extension servers advertise both CAs, so that clients with
/// several certificates can choose. But the list could not change later, and a client with a new CA
/// would then send no certificate. With an empty list, Go clients (kube-apiserver's proxy, kubectl)
/// send their certificate: `CertificateRequestInfo.SupportsCertificate` in crypto/tls accepts any
/// certificate if `AcceptableCAs` is empty, as in RFC 5246, 7.4.4 and RFC 8446, 4.2.4.
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
