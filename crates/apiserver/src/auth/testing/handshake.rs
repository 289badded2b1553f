//! TLS handshakes in memory, for tests.

use crate::auth::client_certificate_verifier;
use crate::certs::{Authority, ServingCertificate, TlsSettings, server_config};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConnection, SupportedProtocolVersion,
};
use std::sync::Arc;

/// A TLS client.
pub(crate) struct TlsClient {
    pub(crate) version: &'static SupportedProtocolVersion,
    /// The certificates that the client presents.
    pub(crate) certificate: Option<CertifiedKey>,
}

impl TlsClient {
    pub(crate) fn new(version: &'static SupportedProtocolVersion) -> Self {
        Self {
            version,
            certificate: None,
        }
    }

    /// Connects to a server with these settings. Returns both ends of the connection, or the error
    /// with which the handshake ends.
    pub(crate) fn connect(
        self,
        settings: &TlsSettings,
    ) -> Result<(ClientConnection, ServerConnection), rustls::Error> {
        let authority = Authority::create().unwrap();
        let issued = authority.issue(&["localhost".to_owned()]).unwrap();
        let serving = ServingCertificate::new(&issued.chain, &issued.key, Arc::default()).unwrap();
        let server = server_config(Arc::new(serving), client_certificate_verifier(), settings);
        let mut server = ServerConnection::new(Arc::new(server))?;

        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.bundle().as_bytes()).unwrap())?;
        let client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[self.version])?
            .with_root_certificates(roots);
        let mut client = match self.certificate {
            None => client.with_no_client_auth(),
            Some(key) => client.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key))),
        };
        client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let mut client = ClientConnection::new(Arc::new(client), "localhost".try_into().unwrap())?;

        while client.is_handshaking() || server.is_handshaking() {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut wire.as_slice()).unwrap();
            server.process_new_packets()?;
            wire.clear();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut wire.as_slice()).unwrap();
            client.process_new_packets()?;
        }
        Ok((client, server))
    }
}
