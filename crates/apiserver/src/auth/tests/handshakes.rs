//! Tests TLS handshakes with our verifier of client certificates. The client is OpenSSL over
//! loopback, or rustls in memory.

use super::super::client_certificate_verifier;
use super::super::testing::{CertificateAndKey, ca};
use crate::certs::{Authority, ServingCertificate, TlsSettings, server_config};
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode, SslVersion};
use openssl::x509::X509;
use rustls::pki_types::CertificateDer;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// The result of a handshake. `peer` contains the client's certificates that the server has
/// received. `alpn` is the negotiated application protocol, and `version` is the TLS version. The
/// client reports both.
struct HandshakeResult {
    peer: Vec<CertificateDer<'static>>,
    alpn: Option<Vec<u8>>,
    version: &'static str,
}

/// Opens a connection with this TLS version. The client presents `chain` (leaf first) and signs
/// with the key of the leaf. If `chain` is empty, the client presents no certificate.
async fn handshake(chain: &[&CertificateAndKey], version: SslVersion) -> HandshakeResult {
    let authority = Authority::create().unwrap();
    let issued = authority.issue(&["localhost".to_owned()], &[]).unwrap();
    let serving = ServingCertificate::new(&issued.chain, &issued.key, Arc::default()).unwrap();
    let config = server_config(
        Arc::new(serving),
        client_certificate_verifier(),
        &TlsSettings::default(),
    );
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = acceptor.accept(stream).await.unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).await.unwrap();
        stream.write_all(&byte).await.unwrap();
        stream.shutdown().await.unwrap();
        let peer = stream.get_ref().1.peer_certificates();
        peer.map(|chain| chain.iter().map(|it| it.clone().into_owned()).collect())
            .unwrap_or_default()
    });
    let mut connector = SslConnector::builder(SslMethod::tls_client()).unwrap();
    connector.set_min_proto_version(Some(version)).unwrap();
    connector.set_max_proto_version(Some(version)).unwrap();
    connector.set_alpn_protos(b"\x02h2\x08http/1.1").unwrap();
    connector.set_verify(SslVerifyMode::PEER);
    let known = X509::from_pem(authority.bundle().as_bytes()).unwrap();
    connector.cert_store_mut().add_cert(known).unwrap();
    if let Some((leaf, rest)) = chain.split_first() {
        connector.set_certificate(&leaf.certificate).unwrap();
        connector.set_private_key(&leaf.key).unwrap();
        for one in rest {
            connector
                .add_extra_chain_cert(one.certificate.clone())
                .unwrap();
        }
    }
    let connector = connector.build();
    let client = tokio::task::spawn_blocking(move || {
        let stream = TcpStream::connect(address).unwrap();
        let mut stream = connector.connect("localhost", stream).unwrap();
        stream.write_all(b"x").unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
        let ssl = stream.ssl();
        (
            ssl.selected_alpn_protocol().map(<[u8]>::to_vec),
            ssl.version_str(),
        )
    });
    let (alpn, version) = client.await.unwrap();
    let peer = server.await.unwrap();
    HandshakeResult {
        peer,
        alpn,
        version,
    }
}

#[tokio::test]
async fn a_handshake_accepts_any_certificate_and_passes_its_chain_on() {
    let (known, unknown) = (ca("known"), ca("unknown"));
    let between = known.intermediate("between");
    let good = between.client(&[("CN", "jane")]);
    let strange = unknown.client(&[("CN", "mallory")]);
    let expired = unknown.client_living(&[("CN", "late")], (-100, -1));
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        for chain in [
            vec![],
            vec![&strange],
            vec![&expired],
            vec![&good, &between],
        ] {
            let result = handshake(&chain, version).await;
            let presented: Vec<_> = chain.iter().map(|one| one.der()).collect();
            assert_eq!(result.peer, presented);
            assert_eq!(result.alpn.as_deref(), Some(b"h2".as_slice()));
            let expected = if version == SslVersion::TLS1_2 {
                "TLSv1.2"
            } else {
                "TLSv1.3"
            };
            assert_eq!(result.version, expected);
        }
    }
}

/// The client presents the certificate of the victim. The handshake succeeds if the client signs
/// with the victim's key, and fails if the client signs with the thief's key.
#[test]
fn a_stolen_certificate_without_its_key_fails_the_handshake() {
    use rustls::client::ResolvesClientCert;
    use rustls::crypto::ring::default_provider;
    use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
    use rustls::sign::CertifiedKey;
    use rustls::{
        ClientConfig, ClientConnection, RootCertStore, ServerConnection, SignatureScheme,
    };

    #[derive(Debug)]
    struct Thief(Arc<CertifiedKey>);
    impl ResolvesClientCert for Thief {
        fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
            Some(Arc::clone(&self.0))
        }
        fn has_certs(&self) -> bool {
            true
        }
    }

    let ca = ca("known");
    let (victim, thief) = (ca.client(&[("CN", "jane")]), ca.client(&[("CN", "thief")]));
    let provider = default_provider();
    for (key, succeeds) in [(&victim, true), (&thief, false)] {
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let authority = Authority::create().unwrap();
            let issued = authority.issue(&["localhost".to_owned()], &[]).unwrap();
            let serving =
                ServingCertificate::new(&issued.chain, &issued.key, Arc::default()).unwrap();
            let config = server_config(
                Arc::new(serving),
                client_certificate_verifier(),
                &TlsSettings::default(),
            );
            let mut server = ServerConnection::new(Arc::new(config)).unwrap();
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(
                CertificateDer::pem_slice_iter(authority.bundle().as_bytes()).map(Result::unwrap),
            );
            let key = PrivateKeyDer::from_pem_slice(&key.key_pem()).unwrap();
            let key = provider.key_provider.load_private_key(key).unwrap();
            let shown = CertifiedKey::new(vec![victim.der()], key);
            let config = ClientConfig::builder_with_provider(Arc::new(provider.clone()))
                .with_protocol_versions(&[version])
                .unwrap()
                .with_root_certificates(roots)
                .with_client_cert_resolver(Arc::new(Thief(Arc::new(shown))));
            let name = "localhost".try_into().unwrap();
            let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
            let mut result = Ok(());
            while result.is_ok() && (client.is_handshaking() || server.is_handshaking()) {
                let mut wire = Vec::new();
                client.write_tls(&mut wire).unwrap();
                server.read_tls(&mut wire.as_slice()).unwrap();
                result = server.process_new_packets().map(|_| ());
                let mut wire = Vec::new();
                server.write_tls(&mut wire).unwrap();
                client.read_tls(&mut wire.as_slice()).unwrap();
                let _ = client.process_new_packets();
            }
            assert_eq!(result.is_ok(), succeeds);
        }
    }
}
