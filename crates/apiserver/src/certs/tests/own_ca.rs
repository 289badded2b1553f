//! Tests the server's own CA and the certificates that it issues.

use super::super::own_ca::Authority;
use super::super::{CertsError, now, parse};
use super::serving_files::der;
use crate::auth::testing;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, KeyUsagePurpose};
use rustls::RootCertStore;
use rustls::client::{WebPkiServerVerifier, danger::ServerCertVerifier as _};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, UnixTime, pem::PemObject};
use std::sync::Arc;
use std::time::Duration;
use x509_parser::prelude::{ParsedExtension, X509Certificate};

const YEAR: i64 = 365 * 86_400;

/// The name of this CA is `DC=com, DC=corp, CN=ca`. OpenSSL created it with these arguments:
/// `req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /DC=com/DC=corp/CN=ca -days 36500`
const CA_WITH_A_REPEATED_ATTRIBUTE: &[u8] = b"\
-----BEGIN CERTIFICATE-----
MIIByDCCAW2gAwIBAgIUGB5HJthiVIhV468Nrzt6UXyf1zgwCgYIKoZIzj0EAwIw
ODETMBEGCgmSJomT8ixkARkWA2NvbTEUMBIGCgmSJomT8ixkARkWBGNvcnAxCzAJ
BgNVBAMMAmNhMCAXDTI2MTEzMDA4NTIwOFoYDzIxMjYxMTA2MDg1MjA4WjA4MRMw
EQYKCZImiZPyLGQBGRYDY29tMRQwEgYKCZImiZPyLGQBGRYEY29ycDELMAkGA1UE
AwwCY2EwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASpl/yPgDsRczQ4ck02ijKW
aOen1J/IAIEZDScx/T3Jyo2auBxK7Gx27nCwYNmC22pOiw1zOZUkT8lrnOWX+QF/
o1MwUTAdBgNVHQ4EFgQUF0HKlWwy95wJNE4FFGMbMQHg8ZkwHwYDVR0jBBgwFoAU
F0HKlWwy95wJNE4FFGMbMQHg8ZkwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQD
AgNJADBGAiEA2wfriMl2A4dWOZbWIdDyfx4VKqIVeBNphAEdsIscKBoCIQDnCQ3f
CavfZnkzqCI2QKkNXRbobX0iBFLypD+BlF7LDQ==
-----END CERTIFICATE-----
";

/// The name of this CA is `C=DE, DC=corp, O=Example Ltd, OU=Platform, CN=ca`. The attributes have
/// three types of strings. The certificate has the same key as [`CA_WITH_A_REPEATED_ATTRIBUTE`], and
/// its signature has the algorithm `ecdsa-with-SHA512`.
const CA_WITH_FIVE_ATTRIBUTES: &[u8] = b"\
-----BEGIN CERTIFICATE-----
MIICCDCCAa+gAwIBAgIUUQPP3Gj3HfVmR/PsiLwXP509apQwCgYIKoZIzj0EAwQw
WTELMAkGA1UEBhMCREUxFDASBgoJkiaJk/IsZAEZFgRjb3JwMRQwEgYDVQQKDAtF
eGFtcGxlIEx0ZDERMA8GA1UECwwIUGxhdGZvcm0xCzAJBgNVBAMMAmNhMCAXDTI2
MTEzMDA4NTIwOFoYDzIxMjYxMTA2MDg1MjA4WjBZMQswCQYDVQQGEwJERTEUMBIG
CgmSJomT8ixkARkWBGNvcnAxFDASBgNVBAoMC0V4YW1wbGUgTHRkMREwDwYDVQQL
DAhQbGF0Zm9ybTELMAkGA1UEAwwCY2EwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AASpl/yPgDsRczQ4ck02ijKWaOen1J/IAIEZDScx/T3Jyo2auBxK7Gx27nCwYNmC
22pOiw1zOZUkT8lrnOWX+QF/o1MwUTAdBgNVHQ4EFgQUF0HKlWwy95wJNE4FFGMb
MQHg8ZkwHwYDVR0jBBgwFoAUF0HKlWwy95wJNE4FFGMbMQHg8ZkwDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDBANHADBEAiBChriQ6F1chepixsyktgS/sBcQXjl4
WgWHX0i9rmvyVwIgaQoLirxJyjjpZeaNaGIXAkrjfIzYd5m9ERaKLRscGRM=
-----END CERTIFICATE-----
";

/// The key of both CAs. Only these tests use it.
const KEY_OF_BOTH_CAS: &[u8] = b"\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgaoqzP6C3G57vhWR/
rmoYJsEj5smA+jdHVqiaTZZ2tmmhRANCAASpl/yPgDsRczQ4ck02ijKWaOen1J/I
AIEZDScx/T3Jyo2auBxK7Gx27nCwYNmC22pOiw1zOZUkT8lrnOWX+QF/
-----END PRIVATE KEY-----
";

fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    let all = CertificateDer::pem_slice_iter(pem);
    all.map(Result::unwrap).collect()
}

/// Calls `read` with the first certificate of a PEM text.
fn read<T>(pem: impl AsRef<[u8]>, read: impl Fn(&X509Certificate<'_>) -> T) -> T {
    read(&parse(&certificates(pem.as_ref())[0]).unwrap())
}

/// Returns true if a client with the CAs `bundle` accepts the certificate `leaf` (DER) for the
/// server name `name`.
pub(super) fn accepts(bundle: &str, leaf: &[u8], name: &str) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(bundle.as_bytes()));
    let provider = Arc::new(default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let time = UnixTime::since_unix_epoch(Duration::from_secs(now().unsigned_abs()));
    let name = name.try_into().unwrap();
    let verified = verifier
        .unwrap()
        .verify_server_cert(&leaf.into(), &[], &name, &[], time);
    verified.is_ok()
}

#[test]
fn a_new_ca_lives_ten_years_and_may_only_sign_leaves() {
    let authority = Authority::create().unwrap();
    assert!(!authority.is_near_end());
    read(authority.bundle(), |ca| {
        assert!((ca.validity.not_after.timestamp() - now() - 10 * YEAR).abs() < 100);
        assert!((now() - ca.validity.not_before.timestamp() - 300).abs() < 100);
        let limits = ca.basic_constraints().unwrap().unwrap();
        assert!(limits.critical && limits.value.ca);
        assert_eq!(limits.value.path_len_constraint, Some(0));
        let usage = ca.key_usage().unwrap().unwrap();
        assert!(usage.critical);
        let expected = "Digital Signature, Key Cert Sign, CRL Sign";
        assert_eq!(usage.value.to_string(), expected);
    });
}

#[test]
fn issued_certificates_are_valid_only_for_their_names() {
    let authority = Authority::create().unwrap();
    let long = format!("{}.{}.svc", "a".repeat(63), "b".repeat(63));
    let dns = "ifo-apiserver.ifo-system.svc";
    let names = [dns, "localhost", &long, "127.0.0.1", "::1"].map(str::to_owned);
    let leaf = der(&authority.issue(&names).unwrap().chain);
    let accepts = |authority: &Authority, name| accepts(&authority.bundle(), &leaf, name);
    for name in &names {
        assert!(accepts(&authority, name), "{name}");
    }
    assert!(!accepts(&authority, "example.com"));
    assert!(!accepts(&authority, "10.0.0.1"));
    assert!(!accepts(&Authority::create().unwrap(), "localhost"));
    assert!(matches!(authority.issue(&[]), Err(CertsError::NoName)));
}

#[test]
fn a_serving_certificate_lives_a_year_and_is_renewed_after_two_thirds() {
    let authority = Authority::create().unwrap();
    let issued = authority.issue(&["a".to_owned()]).unwrap();
    assert!((issued.renew_at - now() - YEAR / 3 * 2).abs() < 400);
    let (subject, issuer) = read(&issued.chain, |leaf| {
        assert!((leaf.validity.not_after.timestamp() - now() - YEAR).abs() < 100);
        let limits = leaf.basic_constraints().unwrap().unwrap();
        assert!(limits.critical && !limits.value.ca);
        let usage = leaf.key_usage().unwrap().unwrap();
        assert!(usage.critical);
        assert_eq!(usage.value.to_string(), "Digital Signature");
        let usage = leaf.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.server_auth && !usage.client_auth && !usage.any);
        key_ids(leaf)
    });
    let (ca, _) = read(authority.bundle(), key_ids);
    assert!(issuer == ca && ca.is_some());
    assert!(subject != ca && subject.is_some());
    let serial = |chain: &Vec<u8>| read(chain, |leaf| leaf.raw_serial().to_vec());
    let again = authority.issue(&["a".to_owned()]).unwrap();
    assert_ne!(serial(&issued.chain), serial(&again.chain));
    assert!(
        serial(&issued.chain)[0] < 0x80,
        "the number must be positive"
    );
}

/// Returns the subject key identifier and the authority key identifier.
fn key_ids(certificate: &X509Certificate<'_>) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let (mut subject, mut issuer) = (None, None);
    for extension in certificate.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => subject = Some(id.0.to_vec()),
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                issuer = id.key_identifier.as_ref().map(|id| id.0.to_vec());
            }
            _ => {}
        }
    }
    (subject, issuer)
}

#[test]
fn a_certificate_does_not_outlive_its_ca() {
    let authority = Authority::create_until(now() + 1000).unwrap();
    assert!(authority.is_near_end());
    let issued = authority.issue(&["a".to_owned()]).unwrap();
    let end = read(&issued.chain, |leaf| leaf.validity.not_after.timestamp());
    assert!(end <= now() + 1000);
}

#[test]
fn a_certificate_that_is_no_ca_is_rejected() {
    let ca = testing::ca("other");
    let leaf = ca.client(&[("CN", "leaf")]);
    let good = Authority::create().unwrap();
    let (pem, key) = (good.bundle().into_bytes(), good.key_pem());
    // A CA whose key may not sign certificates.
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let signing = KeyPair::generate().unwrap();
    let without_right = params.self_signed(&signing).unwrap().pem().into_bytes();
    let signing_key = signing.serialize_pem().into_bytes();
    for (certificate, key, expected) in [
        (vec![], key, "no items found"),
        (pem.clone(), vec![], "key is not usable"),
        (
            pem,
            ca.key_pem(),
            "the key does not belong to the certificate",
        ),
        (
            leaf.pem().into_bytes(),
            leaf.key_pem(),
            "does not belong to a CA",
        ),
        (without_right, signing_key, "does not belong to a CA"),
        (
            CA_WITH_A_REPEATED_ATTRIBUTE.to_vec(),
            KEY_OF_BOTH_CAS.to_vec(),
            "an attribute occurs twice",
        ),
    ] {
        let error = Authority::from_pem(&certificate, &key).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_ca_of_another_tool_is_used() {
    let between = testing::ca("ca").intermediate("between");
    for (certificate, key) in [
        (CA_WITH_FIVE_ATTRIBUTES.to_vec(), KEY_OF_BOTH_CAS.to_vec()),
        (between.pem().into_bytes(), between.key_pem()),
    ] {
        let authority = Authority::from_pem(&certificate, &key).unwrap();
        let leaf = der(&authority.issue(&["a".to_owned()]).unwrap().chain);
        assert!(accepts(&authority.bundle(), &leaf, "a"));
    }
}

#[test]
fn a_damaged_ca_is_an_error_without_a_panic() {
    let ca = testing::ca("ca");
    let der = ca.der();
    let mut usable = 0;
    for at in 0..der.len() {
        for mask in [0x01, 0x20, 0x80, 0xff] {
            let mut damaged = der.to_vec();
            damaged[at] ^= mask;
            let pem = pem::encode(&pem::Pem::new("CERTIFICATE", damaged));
            if let Ok(damaged) = Authority::from_pem(pem.as_bytes(), &ca.key_pem()) {
                damaged.issue(&["a".to_owned()]).unwrap();
                usable += 1;
            }
        }
    }
    // For example, damage of the serial number, of the validity or of the signature has no effect.
    assert!(usable > der.len(), "{usable}");
    for at in 0..ca.key_der().len() {
        let mut damaged = ca.key_der().to_vec();
        damaged[at] ^= 0xff;
        for label in ["PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY"] {
            let pem = pem::encode(&pem::Pem::new(label, damaged.clone()));
            let _ = Authority::from_pem(ca.pem().as_bytes(), pem.as_bytes());
        }
    }
}
