//! Tests the accepted TLS versions and cipher suites. The client is OpenSSL.

use super::super::{Authority, ServingCertificate, TlsCipherSuite, TlsSettings, TlsVersion};
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode, SslVersion};
use rustls::ServerConnection;
use std::sync::Arc;

/// Connects with the TLS version `version`. For TLS 1.2, the client offers only the cipher suite
/// `suite` (in OpenSSL's notation), or OpenSSL's default suites if `suite` is `None`. Returns the
/// negotiated suite (in the RFCs' notation), or `None` if the server refuses the client.
fn handshake(settings: &TlsSettings, version: SslVersion, suite: Option<&str>) -> Option<String> {
    let authority = Authority::create().unwrap();
    let issued = authority.issue(&["localhost".to_owned()], &[]).unwrap();
    let serving = ServingCertificate::new(&issued.chain, &issued.key, Arc::default()).unwrap();
    let verifier = crate::auth::client_certificate_verifier();
    let config = super::super::server_config(Arc::new(serving), verifier, settings);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut server = ServerConnection::new(Arc::new(config)).unwrap();
        // If the server refuses the client, this call returns an error, and the client's handshake
        // fails.
        let _ = server.complete_io(&mut stream);
    });
    let mut connector = SslConnector::builder(SslMethod::tls_client()).unwrap();
    connector.set_verify(SslVerifyMode::NONE);
    connector.set_min_proto_version(Some(version)).unwrap();
    connector.set_max_proto_version(Some(version)).unwrap();
    if let Some(suite) = suite {
        connector.set_cipher_list(suite).unwrap();
    }
    let stream = std::net::TcpStream::connect(address).unwrap();
    let stream = connector.build().connect("localhost", stream);
    let suite = stream.ok().map(|stream| {
        let suite = stream.ssl().current_cipher().unwrap();
        suite.standard_name().unwrap().to_owned()
    });
    server.join().unwrap();
    suite
}

#[test]
fn tls_1_2_and_1_3_are_accepted_by_default() {
    let settings = TlsSettings::default();
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        assert!(handshake(&settings, version, None).is_some());
    }
}

#[test]
fn the_minimum_version_refuses_older_clients() {
    let settings = TlsSettings {
        min_version: TlsVersion::Tls13,
        cipher_suites: Vec::new(),
    };
    assert_eq!(handshake(&settings, SslVersion::TLS1_2, None), None);
    assert!(handshake(&settings, SslVersion::TLS1_3, None).is_some());
}

#[test]
fn only_the_chosen_cipher_suites_are_accepted_and_those_of_tls_1_3_always() {
    let chosen = TlsCipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
    let settings = TlsSettings {
        cipher_suites: vec![chosen],
        ..TlsSettings::default()
    };
    let tls12 = |suite| handshake(&settings, SslVersion::TLS1_2, suite);
    assert_eq!(tls12(None), Some(format!("{chosen:?}")));
    assert_eq!(tls12(Some("ECDHE-ECDSA-AES128-GCM-SHA256")), None);
    assert!(handshake(&settings, SslVersion::TLS1_3, None).is_some());
}

#[test]
fn without_a_suite_of_tls_1_2_only_tls_1_3_is_accepted() {
    let settings = TlsSettings {
        cipher_suites: vec![TlsCipherSuite::TLS_AES_128_GCM_SHA256],
        ..TlsSettings::default()
    };
    assert_eq!(handshake(&settings, SslVersion::TLS1_2, None), None);
    assert!(handshake(&settings, SslVersion::TLS1_3, None).is_some());
}
