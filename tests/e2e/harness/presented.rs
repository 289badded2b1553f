//! Reads the certificate that a TLS server presents, without verifying it.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use std::sync::{Arc, Mutex};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Accepts each certificate, and stores it.
#[derive(Debug, Default)]
struct StoreCertificate(Mutex<Vec<u8>>);

impl ServerCertVerifier for StoreCertificate {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *self.0.lock().expect("no thread panicked") = certificate.to_vec();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// Returns the certificate (DER) that the server on this port of the loopback address presents.
pub async fn presented_certificate(port: u16) -> Vec<u8> {
    let stored = Arc::new(StoreCertificate::default());
    let config = ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(stored.clone())
        .with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", port)).await;
    let name = ServerName::try_from("localhost").expect("the name is valid");
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(name, stream.expect("the server must listen"));
    stream.await.expect("the TLS handshake must succeed");
    let certificate = stored.0.lock().expect("no thread panicked");
    certificate.clone()
}
