//! Tests which user a client certificate authenticates.

use super::super::client_certificate::{CertificateSubject, ClientCaBundle};
use super::*;
use openssl::asn1::Asn1Type;
use openssl::nid::Nid;
use openssl::x509::X509NameBuilder;
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
        (Asn1Type::BMPSTRING, "\0j\0a\x20\x14", None),
        (Asn1Type::UTF8STRING, "admin\0.example", None),
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

#[test]
fn damaged_certificates_cause_no_panic() {
    let authority = ca("ca");
    let der = authority.der();
    for at in 0..der.len() {
        let cut = CertificateDer::from(der[..at].to_vec());
        assert_eq!(CertificateSubject::of(&cut), None);
        for mask in [0x01, 0x20, 0x80, 0xff] {
            let mut damaged = der.to_vec();
            damaged[at] ^= mask;
            let bundle = pem::encode(&pem::Pem::new("CERTIFICATE", damaged.clone()));
            if let Ok(damaged) = ClientCaBundle::from_pem(&bundle) {
                let _ = damaged.verifies_chain(std::slice::from_ref(&der));
            }
            let _ = CertificateSubject::of(&CertificateDer::from(damaged));
        }
    }
}
