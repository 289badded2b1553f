//! Tests the server's own CA and the certificates that it issues.

use super::super::own_ca::Authority;
use super::super::{CertsError, now};
use crate::auth::testing;
use openssl::asn1::{Asn1Time, Asn1TimeRef};
use openssl::ec::{EcGroup, EcKey};
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::stack::Stack;
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::verify::X509VerifyParam;
use openssl::x509::{X509, X509NameBuilder, X509PurposeId, X509Ref, X509StoreContext};
use std::net::IpAddr;

const YEAR: i64 = 365 * 86_400;

fn bundle(authority: &Authority) -> Vec<X509> {
    X509::stack_from_pem(authority.bundle().as_bytes()).unwrap()
}

/// Returns a time in seconds since 1970.
fn unix_time(time: &Asn1TimeRef) -> i64 {
    let since = Asn1Time::from_unix(0).unwrap().diff(time).unwrap();
    i64::from(since.days) * 86_400 + i64::from(since.secs)
}

/// Returns true if a client with the CAs `roots` accepts `leaf` for the server name `name`.
fn accepts(roots: &[X509], leaf: &X509Ref, name: &str) -> bool {
    let mut store = X509StoreBuilder::new().unwrap();
    for root in roots {
        store.add_cert(root.clone()).unwrap();
    }
    store.set_purpose(X509PurposeId::SSL_SERVER).unwrap();
    let mut param = X509VerifyParam::new().unwrap();
    match name.parse::<IpAddr>() {
        Ok(ip) => param.set_ip(ip).unwrap(),
        Err(_) => param.set_host(name).unwrap(),
    }
    store.set_param(&param).unwrap();
    X509StoreContext::new()
        .unwrap()
        .init(&store.build(), leaf, &Stack::new().unwrap(), |context| {
            context.verify_cert()
        })
        .unwrap()
}

#[test]
fn a_new_ca_lives_ten_years_and_may_only_sign_leaves() {
    let authority = Authority::create().unwrap();
    let certificate = &bundle(&authority)[0];
    let end = unix_time(certificate.not_after());
    assert!((end - now() - 10 * YEAR).abs() < 100);
    let start = unix_time(certificate.not_before());
    assert!((now() - start - 300).abs() < 100);
    assert_eq!(certificate.pathlen(), Some(0));
    assert_eq!(certificate.version(), 2);
    assert!(!authority.is_near_end());
}

#[test]
fn issued_certificates_are_valid_only_for_their_names() {
    let authority = Authority::create().unwrap();
    let names = ["ifo-apiserver.ifo-system.svc", "localhost"].map(str::to_owned);
    let ips = ["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
    let issued = authority.issue(&names, &ips).unwrap();
    let leaf = X509::from_pem(&issued.chain).unwrap();
    let roots = bundle(&authority);
    for name in [
        "ifo-apiserver.ifo-system.svc",
        "localhost",
        "127.0.0.1",
        "::1",
    ] {
        assert!(accepts(&roots, &leaf, name), "{name}");
    }
    assert!(!accepts(&roots, &leaf, "example.com"));
    assert!(!accepts(&roots, &leaf, "10.0.0.1"));
    let other = Authority::create().unwrap();
    assert!(!accepts(&bundle(&other), &leaf, "localhost"));
}

#[test]
fn a_serving_certificate_lives_a_year_and_is_renewed_after_two_thirds() {
    let authority = Authority::create().unwrap();
    let issued = authority.issue(&["a".to_owned()], &[]).unwrap();
    let leaf = X509::from_pem(&issued.chain).unwrap();
    let end = unix_time(leaf.not_after());
    assert!((end - now() - YEAR).abs() < 100);
    assert!((issued.renew_at - now() - YEAR / 3 * 2).abs() < 400);
    let id = |leaf: &X509Ref| leaf.authority_key_id().unwrap().as_slice().to_vec();
    let ca = &bundle(&authority)[0];
    assert_eq!(id(&leaf), ca.subject_key_id().unwrap().as_slice());
    assert_ne!(
        leaf.subject_key_id().unwrap().as_slice(),
        ca.subject_key_id().unwrap().as_slice()
    );
    let again = authority.issue(&["a".to_owned()], &[]).unwrap();
    let again = X509::from_pem(&again.chain).unwrap();
    let serial = |leaf: &X509Ref| leaf.serial_number().to_bn().unwrap();
    assert_ne!(serial(&leaf), serial(&again));
    assert!(!serial(&leaf).is_negative());
}

#[test]
fn a_certificate_does_not_outlive_its_ca() {
    let authority = Authority::create_until(now() + 1000).unwrap();
    assert!(authority.is_near_end());
    let issued = authority.issue(&["a".to_owned()], &[]).unwrap();
    let leaf = X509::from_pem(&issued.chain).unwrap();
    assert!(unix_time(leaf.not_after()) <= now() + 1000);
}

#[test]
fn long_dns_names_work_and_an_empty_list_is_an_error() {
    let authority = Authority::create().unwrap();
    let long = format!("{}.{}.svc", "a".repeat(63), "b".repeat(63));
    let issued = authority.issue(std::slice::from_ref(&long), &[]).unwrap();
    let leaf = X509::from_pem(&issued.chain).unwrap();
    assert!(accepts(&bundle(&authority), &leaf, &long));
    assert!(matches!(authority.issue(&[], &[]), Err(CertsError::NoName)));
}

#[test]
fn a_ca_survives_a_round_trip_through_pem() {
    let authority = Authority::create().unwrap();
    let read = Authority::from_pem(authority.bundle().as_bytes(), &authority.key_pem()).unwrap();
    assert!(read.is(&authority));
    let issued = read.issue(&["a".to_owned()], &[]).unwrap();
    let leaf = X509::from_pem(&issued.chain).unwrap();
    assert!(accepts(&bundle(&authority), &leaf, "a"));
}

#[test]
fn the_bundle_of_a_successor_trusts_both_cas_until_they_expire() {
    let expired = Authority::create_until(now() - 10).unwrap();
    let old = Authority::create_until(now() + 1000).unwrap();
    let chained = [
        expired.create_successor().unwrap(),
        old.create_successor().unwrap(),
    ];
    assert_eq!(bundle(&chained[0]).len(), 1);
    let roots = bundle(&chained[1]);
    assert_eq!(roots.len(), 2);
    for authority in [&old, &chained[1]] {
        let issued = authority.issue(&["a".to_owned()], &[]).unwrap();
        let leaf = X509::from_pem(&issued.chain).unwrap();
        assert!(accepts(&roots, &leaf, "a"));
    }
}

#[test]
fn a_certificate_that_is_no_ca_is_rejected() {
    let ca = testing::ca("other");
    let leaf = ca.client(&[("CN", "leaf")]);
    let good = Authority::create().unwrap();
    let good_pem = good.bundle().into_bytes();
    let good_key = good.key_pem();
    let cases = [
        (b"".to_vec(), good_key.clone(), "no certificate"),
        (good_pem.clone(), b"".to_vec(), "key is not usable"),
        (
            good_pem,
            ca.key_pem(),
            "does not belong to the first certificate",
        ),
        (
            leaf.pem().into_bytes(),
            leaf.key_pem(),
            "does not belong to a CA",
        ),
    ];
    for (certificate, key, expected) in cases {
        let error = Authority::from_pem(&certificate, &key).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(Authority::from_pem(ca.pem().as_bytes(), &ca.key_pem()).is_ok());
}

fn elliptic(curve: Nid) -> PKey<Private> {
    let curve = EcGroup::from_curve_name(curve).unwrap();
    PKey::from_ec_key(EcKey::generate(&curve).unwrap()).unwrap()
}

fn common_name() -> openssl::x509::X509Name {
    let mut name = X509NameBuilder::new().unwrap();
    name.append_entry_by_text("CN", "openssl").unwrap();
    name.build()
}

#[test]
fn a_ca_of_openssl_is_read_with_each_kind_of_key() {
    let p256 = elliptic(Nid::X9_62_PRIME256V1);
    let rsa = PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap();
    let pkcs8 = |key: &PKey<Private>| key.private_key_to_pem_pkcs8().unwrap();
    let p384 = elliptic(Nid::SECP384R1);
    for (key, pem) in [
        (&p256, pkcs8(&p256)),
        (&p384, pkcs8(&p384)),
        (&rsa, pkcs8(&rsa)),
    ] {
        let ca = testing::ca_with(&common_name(), key.clone());
        let authority = Authority::from_pem(ca.pem().as_bytes(), &pem).unwrap();
        assert_eq!(authority.bundle(), ca.pem());
        assert_eq!(authority.key_pem(), pem);
        let issued = authority.issue(&["a".to_owned()], &[]).unwrap();
        let leaf = X509::from_pem(&issued.chain).unwrap();
        assert!(accepts(&bundle(&authority), &leaf, "a"));
        let subject = ca.certificate.subject_name().to_der().unwrap();
        assert_eq!(leaf.issuer_name().to_der().unwrap(), subject);
    }
    let p521 = testing::ca_with(&common_name(), elliptic(Nid::SECP521R1));
    let error = Authority::from_pem(p521.pem().as_bytes(), &p521.key_pem()).unwrap_err();
    assert!(
        error.to_string().contains("the key is not usable"),
        "{error}"
    );
}

#[test]
fn the_extensions_are_those_of_the_previous_releases() {
    let authority = Authority::create().unwrap();
    let issued = authority.issue(&["a".to_owned()], &[]).unwrap();
    let leaf = X509::from_pem(&issued.chain).unwrap();
    let text = |certificate: &X509Ref| {
        let text = String::from_utf8(certificate.to_text().unwrap()).unwrap();
        let (_, extensions) = text.split_once("X509v3 extensions:").unwrap();
        let lines = extensions.lines().map(str::trim);
        let lines = lines.take_while(|line| !line.starts_with("Signature Algorithm"));
        lines.map(|line| line.to_owned() + "\n").collect::<String>()
    };
    let ca = text(&bundle(&authority)[0]);
    for expected in [
        "X509v3 Basic Constraints: critical\nCA:TRUE, pathlen:0\n",
        "X509v3 Key Usage: critical\nDigital Signature, Certificate Sign, CRL Sign\n",
    ] {
        assert!(ca.contains(expected), "{ca}");
    }
    let leaf = text(&leaf);
    for expected in [
        "X509v3 Basic Constraints: critical\nCA:FALSE\n",
        "X509v3 Key Usage: critical\nDigital Signature\n",
        "X509v3 Extended Key Usage:\nTLS Web Server Authentication\n",
        "X509v3 Subject Alternative Name:\nDNS:a\n",
    ] {
        assert!(leaf.contains(expected), "{leaf}");
    }
}

#[test]
fn a_year_after_2049_is_written_in_four_digits() {
    let end = 2_600_000_000;
    let authority = Authority::create_until(end).unwrap();
    assert_eq!(unix_time(bundle(&authority)[0].not_after()), end);
    assert!(!authority.is_near_end());
}

#[test]
fn a_damaged_ca_is_an_error_without_a_panic() {
    let key = elliptic(Nid::X9_62_PRIME256V1);
    let ca = testing::ca_with(&common_name(), key);
    let der = ca.der();
    for at in 0..der.len() {
        for mask in [0x01, 0x20, 0x80, 0xff] {
            let mut damaged = der.to_vec();
            damaged[at] ^= mask;
            let pem = pem::encode(&pem::Pem::new("CERTIFICATE", damaged));
            if let Ok(damaged) = Authority::from_pem(pem.as_bytes(), &ca.key_pem()) {
                damaged.issue(&["a".to_owned()], &[]).unwrap();
            }
        }
    }
    let key = ca.key.private_key_to_der().unwrap();
    for at in 0..key.len() {
        let mut damaged = key.clone();
        damaged[at] ^= 0xff;
        for label in ["PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY"] {
            let pem = pem::encode(&pem::Pem::new(label, damaged.clone()));
            let _ = Authority::from_pem(ca.pem().as_bytes(), pem.as_bytes());
        }
    }
}
