//! Client certificates in the TLS handshake. Input: the certificate of a client. Output: proof that
//! the client has its key.
//!
//! The handshake does not verify the CA of the certificate. Each request does (see
//! [`super::Trust`]), for two reasons. Kubernetes answers a certificate of an unknown CA with 401,
//! but a failed handshake would close the connection. And if a CA is removed, requests on open
//! connections must be refused.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use std::sync::Arc;

/// Requests a certificate from every client but does not require one. It accepts any certificate
/// whose key the client has.
///
/// It sends no list of CAs. Upstream's extension servers send both CAs, so that clients with
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
