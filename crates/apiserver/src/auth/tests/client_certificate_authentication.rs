//! Tests which user a client certificate authenticates.

use super::super::client_certificate::{ClientCaBundle, user_of};
use super::*;
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

/// Replaces the bytes `from` of a certificate, whose signature thereby becomes invalid.
fn patched(certificate: &[u8], from: &[u8], to: &[u8]) -> CertificateDer<'static> {
    let mut windows = certificate.windows(from.len());
    let at = windows.position(|window| window == from).unwrap();
    [&certificate[..at], to, &certificate[at + from.len()..]]
        .concat()
        .into()
}

#[test]
fn a_uid_in_the_subject_is_read_and_two_are_refused() {
    let ca = ca("ca");
    let one = ca.client(&[("CN", "jane"), ("1.3.6.1.4.1.57683.2", "u-1")]);
    let user = user_of(&one.der()).unwrap();
    assert_eq!(user.uid.as_deref(), Some("u-1"));
    let two = ca.client(&[
        ("1.3.6.1.4.1.57683.2", "u-1"),
        ("CN", "jane"),
        ("1.3.6.1.4.1.57683.3", "u-2"),
    ]);
    assert!(user_of(&two.der()).is_some());
    // The encoded object identifier, without its last number.
    let uid = [6, 9, 43, 6, 1, 4, 1, 0x83, 0xc2, 0x53];
    let two = patched(
        &two.der(),
        &[&uid[..], &[3]].concat(),
        &[&uid[..], &[2]].concat(),
    );
    assert_eq!(user_of(&two), None);
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

#[test]
fn names_of_all_string_types_are_decoded() {
    // The tags of the string types in ASN.1.
    let (utf8, numeric, printable, ia5, bmp) = (12, 18, 19, 22, 30);
    let cases = [
        (utf8, "jané", Some("jané")),
        (printable, "jane", Some("jane")),
        // A PrintableString must not contain an underscore or an at sign, but some tools write
        // them.
        (printable, "j_ane@x", Some("j_ane@x")),
        (ia5, "jane@x", Some("jane@x")),
        (numeric, "12 3", Some("12 3")),
        (bmp, "\0j\0a\x20\x14", None),
        (utf8, "admin\0.example", None),
    ];
    for (tag, value, expected) in cases {
        for field in ["CN", "O"] {
            let leaf = ca("ca").client(&[("CN", "first"), (field, value)]).der();
            let encoded = |tag: u8| {
                let length = u8::try_from(value.len()).unwrap();
                [&[tag, length], value.as_bytes()].concat()
            };
            let leaf = patched(&leaf, &encoded(utf8), &encoded(tag));
            let user = user_of(&leaf);
            let read = user.map(|mut user| user.groups.pop().unwrap_or(user.name));
            assert_eq!(read.as_deref(), expected, "{value:?} with the tag {tag}");
        }
    }
}

#[test]
fn damaged_certificates_cause_no_panic() {
    let authority = ca("ca");
    let der = authority.der();
    for at in 0..der.len() {
        let cut = CertificateDer::from(der[..at].to_vec());
        assert_eq!(user_of(&cut), None);
        for mask in [0x01, 0x20, 0x80, 0xff] {
            let mut damaged = der.to_vec();
            damaged[at] ^= mask;
            let bundle = pem::encode(&pem::Pem::new("CERTIFICATE", damaged.clone()));
            if let Ok(damaged) = ClientCaBundle::from_pem(&bundle) {
                let _ = damaged.verifies_chain(std::slice::from_ref(&der));
            }
            let _ = user_of(&CertificateDer::from(damaged));
        }
    }
}
