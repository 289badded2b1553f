//! Tests the certificate that clients receive when the server reads it from files.

use super::super::{Authority, CertsError, IssuedCertificate, ServingCertificate, now};
use crate::auth::testing::{self, eventually};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Returns the leaf certificate that `serving` presents, as DER.
pub(super) fn presented(serving: &ServingCertificate) -> Vec<u8> {
    serving.current.load().cert[0].to_vec()
}

pub(super) fn der(chain: &[u8]) -> Vec<u8> {
    CertificateDer::from_pem_slice(chain).unwrap().to_vec()
}

fn issue() -> IssuedCertificate {
    let authority = Authority::create().unwrap();
    authority.issue(&["a".to_owned()]).unwrap()
}

fn write(folder: &TempDir, pair: &IssuedCertificate) {
    std::fs::write(folder.path().join("tls.crt"), &pair.chain).unwrap();
    std::fs::write(folder.path().join("tls.key"), &pair.key).unwrap();
}

#[tokio::test]
async fn a_changed_key_pair_is_served_and_an_invalid_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let first = issue();
    write(&folder, &first);
    let serving = ServingCertificate::load(&certificate, &key, Arc::default())
        .await
        .unwrap();
    let serving = Arc::new(serving);
    assert_eq!(presented(&serving), der(&first.chain));
    let following = tokio::spawn({
        let (serving, certificate, key) = (Arc::clone(&serving), certificate.clone(), key.clone());
        async move {
            serving
                .follow(certificate, key, Duration::from_millis(5))
                .await;
        }
    });

    // The test writes the second certificate without its key, and later deletes the first key. In
    // both cases, the files contain no valid pair, so the first certificate stays in use. At last
    // the test writes both files of the second pair.
    let second = issue();
    std::fs::write(&certificate, &second.chain).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(presented(&serving), der(&first.chain));
    std::fs::remove_file(&key).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(presented(&serving), der(&first.chain));
    write(&folder, &second);
    eventually("the second pair", || {
        presented(&serving) == der(&second.chain)
    })
    .await;
    following.abort();
}

#[test]
fn an_unusable_key_pair_is_an_error_and_replaces_nothing() {
    let (good, other) = (issue(), issue());
    let serving = ServingCertificate::new(&good.chain, &good.key, Arc::default()).unwrap();
    for (chain, key) in [
        (b"".as_slice(), good.key.as_slice()),
        (&good.chain, b""),
        (&good.chain, &other.key),
        (
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            &good.key,
        ),
    ] {
        let error = serving.replace(chain, key).unwrap_err();
        assert!(matches!(error, CertsError::BadServing(_)), "{error}");
        assert!(ServingCertificate::new(chain, key, Arc::default()).is_err());
    }
    assert_eq!(presented(&serving), der(&good.chain));
}

#[test]
fn an_expired_certificate_does_not_replace_a_valid_one() {
    let until = |seconds| {
        let authority = Authority::create_until(now() + seconds).unwrap();
        authority.issue(&["a".to_owned()]).unwrap()
    };
    let (valid, expired, other) = (issue(), until(-10), until(-20));
    let serving = ServingCertificate::new(&valid.chain, &valid.key, Arc::default()).unwrap();
    let error = serving.replace(&expired.chain, &expired.key).unwrap_err();
    assert!(error.to_string().contains("it has expired"), "{error}");
    assert_eq!(presented(&serving), der(&valid.chain));

    // Without a valid certificate, the server presents an expired one.
    let serving = ServingCertificate::new(&expired.chain, &expired.key, Arc::default()).unwrap();
    serving.replace(&other.chain, &other.key).unwrap();
    assert_eq!(presented(&serving), der(&other.chain));
    serving.replace(&valid.chain, &valid.key).unwrap();
    assert_eq!(presented(&serving), der(&valid.chain));
}

#[test]
fn a_complete_chain_is_read() {
    let ca = testing::ca("ca");
    let between = ca.intermediate("between");
    let leaf = between.server("a");
    let chain = leaf.pem() + &between.pem();
    let serving = ServingCertificate::new(chain.as_bytes(), &leaf.key_pem(), Arc::default());
    let presented = serving.unwrap().current.load_full();
    assert_eq!(presented.cert, [leaf.der(), between.der()]);
}

#[tokio::test]
async fn a_missing_or_invalid_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for content in [None, Some("")] {
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        let error = ServingCertificate::load(&path, &path, Arc::default()).await;
        let text = error.unwrap_err().to_string();
        assert!(text.contains(path.to_str().unwrap()), "{text}");
    }
}
