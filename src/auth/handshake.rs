//! What the TLS handshake asks of clients. Enters: the certificate a client presents.
//! Leaves: proof that the client holds its key, and nothing else.
//!
//! Whether a CA vouches for it is left to each request (see [`super::Trust`]). A
//! verifier that failed here would answer an unknown CA with a broken connection, where
//! Kubernetes answers 401, and one that succeeded would go on trusting an open
//! connection after its CA was taken away.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use std::sync::Arc;

/// Asks every client for a certificate, requires none, and accepts any whose key the
/// client holds.
///
/// It advertises no CA. Upstream's extension servers advertise the subjects of both
/// CAs, so that clients with several certificates can choose; but the list would be
/// frozen into the verifier, and a client whose CA came later would then send nothing.
/// With an empty list a Go client (kube-apiserver's proxy, kubectl) does send its
/// certificate: `CertificateRequestInfo.SupportsCertificate` in crypto/tls accepts any
/// when `AcceptableCAs` is empty, as RFC 5246, 7.4.4 and RFC 8446, 4.2.4 have it.
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
