//! Tests which user a client certificate authenticates.

use super::super::client_certificate::{CertificateSubject, ClientCaBundle};
use super::*;
use openssl::asn1::Asn1Type;
use openssl::nid::Nid;
use openssl::x509::{X509, X509NameBuilder, X509Ref};
use rustls::pki_types::CertificateDer;

#[tokio::test]
async fn a_certificate_yields_user_groups_and_credential_id() {
    let setup = Setup::new();
    let user = setup.authenticate(&setup.jane(), &[]).await.unwrap();
    assert_eq!(user.name, "jane");
    assert_eq!(user.uid, None);
    assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
    let ids = &user.extra["authentication.kubernetes.io/credential-id"];
    assert_eq!(ids.len(), 1);
    let digest = ids[0].strip_prefix("X509SHA256=").unwrap();
    assert_eq!(digest.len(), 64);
}

#[tokio::test]
async fn the_last_of_several_common_names_is_the_user() {
    let setup = Setup::new();
    let peer = setup.client_ca.client(&[("CN", "admin"), ("CN", "jane")]);
    assert_eq!(setup.user_name(&peer.peer(), &[]).await, "jane");
}

#[tokio::test]
async fn a_certificate_without_a_common_name_authenticates_no_user() {
    let setup = Setup::new();
    let peer = setup.client_ca.client(&[("O", "dev")]).peer();
    assert_eq!(setup.user_name(&peer, &[]).await, "401");
}

#[test]
fn a_uid_in_the_subject_is_read_and_two_are_refused() {
    let ca = ca("ca");
    let one = ca.client(&[("CN", "jane"), ("1.3.6.1.4.1.57683.2", "u-1")]);
    let user = CertificateSubject::of(&one.der()).unwrap().user().unwrap();
    assert_eq!(user.uid.as_deref(), Some("u-1"));
    let two = ca.client(&[
        ("1.3.6.1.4.1.57683.2", "u-1"),
        ("CN", "jane"),
        ("1.3.6.1.4.1.57683.2", "u-2"),
    ]);
    assert_eq!(CertificateSubject::of(&two.der()), None);
}

#[tokio::test]
async fn without_a_client_ca_no_certificate_is_accepted() {
    let setup = Setup::changed(|data| {
        data.remove("client-ca-file");
    });
    assert_eq!(setup.user_name(&setup.jane(), &[]).await, "401");
    let headers = [("X-Remote-User", "bob")];
    assert_eq!(setup.user_name(&setup.proxy(), &headers).await, "bob");
}

/// Issues a client certificate whose subject has these attributes, in this order. Each attribute
/// has a value and an ASN.1 type.
fn with_types(attributes: &[(Nid, &str, Asn1Type)]) -> CertificateDer<'static> {
    let mut name = X509NameBuilder::new().unwrap();
    for (attribute, value, kind) in attributes {
        name.append_entry_by_nid_with_type(*attribute, value, *kind)
            .unwrap();
    }
    ca("ca").client_named(&name.build()).der()
}

#[test]
fn names_of_all_string_types_are_decoded() {
    let cases = [
        (Asn1Type::UTF8STRING, "jané", Some("jané")),
        (Asn1Type::PRINTABLESTRING, "jane", Some("jane")),
        // A PrintableString must not contain an underscore or an at sign, but some tools write
        // them.
        (Asn1Type::PRINTABLESTRING, "j_ane@x", Some("j_ane@x")),
        (Asn1Type::IA5STRING, "jane@x", Some("jane@x")),
        (Asn1Type::NUMERICSTRING, "12 3", Some("12 3")),
        // The value has two bytes, because it is `é` in UTF-8. A TeletexString is read as ISO
        // 8859-1, in which each byte is one character.
        (Asn1Type::TELETEXSTRING, "\u{e9}", Some("\u{c3}\u{a9}")),
        (Asn1Type::BMPSTRING, "\0j\0a\x20\x14", Some("ja\u{2014}")),
        (
            Asn1Type::UNIVERSALSTRING,
            "\0\0\0j\0\x01\x20\x14",
            Some("j\u{12014}"),
        ),
        (Asn1Type::UTF8STRING, "admin\0.example", None),
        (Asn1Type::BMPSTRING, "\0a\0\0", None),
    ];
    for (kind, value, expected) in cases {
        for attribute in [Nid::COMMONNAME, Nid::ORGANIZATIONNAME] {
            let cn = (Nid::COMMONNAME, "first", Asn1Type::UTF8STRING);
            let leaf = with_types(&[cn, (attribute, value, kind)]);
            let user = CertificateSubject::of(&leaf).map(|it| it.user().unwrap());
            let read = user.map(|mut user| user.groups.pop().unwrap_or(user.name));
            assert_eq!(read.as_deref(), expected, "{value:?} as {kind:?}");
        }
    }
}

/// Reads the subject of a certificate with OpenSSL. Returns the last common name (empty if there is
/// none) and the organizations. Returns `None` if OpenSSL cannot decode one of these values, or if
/// one of them contains NUL.
fn subject_by_openssl(certificate: &X509Ref) -> Option<(String, Vec<String>)> {
    let texts = |attribute| {
        let entries = certificate.subject_name().entries_by_nid(attribute);
        let texts = entries.map(|entry| entry.data().to_string().ok());
        texts.collect::<Vec<Option<String>>>()
    };
    let common_name = texts(Nid::COMMONNAME)
        .pop()
        .unwrap_or(Some(String::new()))?;
    let organizations: Vec<String> = texts(Nid::ORGANIZATIONNAME)
        .into_iter()
        .collect::<Option<_>>()?;
    let all = organizations.iter().chain([&common_name]);
    let is_text = all.into_iter().all(|text| !text.contains('\0'));
    is_text.then_some((common_name, organizations))
}

#[test]
fn damaged_names_are_read_as_openssl_reads_them() {
    let leaf = with_types(&[
        (Nid::COMMONNAME, "first", Asn1Type::PRINTABLESTRING),
        (Nid::ORGANIZATIONNAME, "dev", Asn1Type::UTF8STRING),
        (Nid::ORGANIZATIONNAME, "\0o\0p", Asn1Type::BMPSTRING),
        (Nid::COMMONNAME, "jane", Asn1Type::TELETEXSTRING),
    ]);
    let subject = X509::from_der(&leaf).unwrap();
    let subject = subject.subject_name().to_der().unwrap();
    let start = leaf.windows(subject.len()).position(|it| it == subject);
    let start = start.unwrap();
    let mut equal = 0;
    for at in start..start + subject.len() {
        for mask in [0x01, 0x02, 0x04, 0x0c, 0x10, 0x12, 0x40, 0x80, 0xff] {
            let mut damaged = leaf.to_vec();
            damaged[at] ^= mask;
            let damaged = CertificateDer::from(damaged);
            let read = CertificateSubject::of(&damaged);
            // The test leaves out certificates that webpki cannot parse, because the TLS handshake
            // refuses such certificates.
            let is_parsed = rustls::server::ParsedCertificate::try_from(&damaged).is_ok();
            if let (true, Ok(certificate)) = (is_parsed, X509::from_der(&damaged)) {
                let read = read.map(|it| {
                    let groups = it.user().map(|user| user.groups).unwrap_or_default();
                    (it.common_name.clone(), groups)
                });
                let expected = subject_by_openssl(&certificate);
                // `CertificateSubject::user` returns no user if the common name is empty. Then the
                // list of groups in `read` is empty.
                let expected = expected.map(|(name, groups)| {
                    let groups = if name.is_empty() { Vec::new() } else { groups };
                    (name, groups)
                });
                assert_eq!(read, expected, "byte {at} changed by {mask:#x}");
                equal += 1;
            }
        }
    }
    assert!(equal > 200, "{equal}");
}

#[test]
fn damaged_certificates_cause_no_panic() {
    let authority = ca("ca");
    let good = ClientCaBundle::from_pem(&authority.pem()).unwrap();
    let der = authority.der();
    for at in 0..der.len() {
        let cut = CertificateDer::from(der[..at].to_vec());
        assert_eq!(CertificateSubject::of(&cut), None);
        for mask in [0x01, 0x20, 0x80, 0xff] {
            let mut damaged = der.to_vec();
            damaged[at] ^= mask;
            let bundle = pem::encode(&pem::Pem::new("CERTIFICATE", damaged.clone()));
            if let Ok(damaged) = ClientCaBundle::from_pem(&bundle) {
                let _ = damaged.names_of_covered(&good);
                let _ = good.names_of_covered(&damaged);
                let _ = damaged.verifies_chain(std::slice::from_ref(&der));
            }
            let _ = CertificateSubject::of(&CertificateDer::from(damaged));
        }
    }
}
