//! Verifies client certificates against a bundle of CAs, and reads the user from the subject of a
//! certificate.

use super::User;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use x509_parser::asn1_rs::oid;
use x509_parser::oid_registry::Oid;
use x509_parser::prelude::{AttributeTypeAndValue, FromDer, X509Certificate};

/// Key of an extra attribute of a user. The value is the hash of the client certificate, such as
/// `X509SHA256=8f43…`. The kube-apiserver adds the same attribute.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// OID of the attribute that contains the UID of the user. The attribute is in the subject of a
/// client certificate. Kubernetes defines this OID. The kube-apiserver reads the attribute since
/// 1.33 (feature `AllowParsingUserUIDFromCertAuth`).
const UID_OID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// Maximum number of CAs in a bundle. Clusters have one or two CAs, and a few more during a
/// rotation. A bundle with more CAs is invalid, because each CA can add a signature check to each
/// verification.
const MAX_AUTHORITIES: usize = 256;

/// A bundle of CAs. The server accepts client certificates that one of these CAs has issued.
#[derive(Clone, Debug)]
pub(super) struct ClientCaBundle(Vec<CertificateDer<'static>>);

impl ClientCaBundle {
    /// Parses a PEM bundle. The bundle must have at least one certificate, and every certificate in
    /// it must be valid DER.
    pub(super) fn from_pem(bundle: &str) -> Result<Self, String> {
        let mut known = Vec::new();
        for der in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            if known.len() == MAX_AUTHORITIES {
                return Err(format!("more than {MAX_AUTHORITIES} certificates"));
            }
            let nth = known.len() + 1;
            let der = der.map_err(|error| format!("certificate {nth}: {error}"))?;
            X509Certificate::from_der(&der)
                .map_err(|error| format!("certificate {nth}: {error}"))?;
            RootCertStore::empty()
                .add(der.clone())
                .map_err(|error| format!("certificate {nth}: {error}"))?;
            known.push(der);
        }
        if known.is_empty() {
            return Err("the bundle contains no certificate".to_owned());
        }
        Ok(Self(known))
    }

    /// Verifies `chain` (leaf first). Returns true if all these conditions are met:
    ///
    /// - One of these CAs has issued the leaf, directly or through the intermediate certificates in
    ///   `chain`.
    /// - The current time is in the validity periods of all certificates, including that of the CA.
    /// - The leaf may be used for client authentication. A leaf without an extended key usage may
    ///   be used for every purpose.
    pub(super) fn verifies_chain(&self, chain: &[CertificateDer<'static>]) -> bool {
        let Some((leaf, intermediates)) = chain.split_first() else {
            return false;
        };
        let mut roots = RootCertStore::empty();
        // Go's crypto/x509 checks the validity periods of CAs, but webpki does not. So this code
        // leaves out the CAs that are not valid now.
        roots.add_parsable_certificates(
            self.0
                .iter()
                .filter(|authority| {
                    let parsed = X509Certificate::from_der(authority);
                    parsed.is_ok_and(|(_, parsed)| parsed.validity().is_valid())
                })
                .cloned(),
        );
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .is_ok_and(|verifier| {
                verifier
                    .verify_client_cert(leaf, intermediates, UnixTime::now())
                    .is_ok()
            })
    }
}

/// Returns the user in the subject of the certificate `leaf`. The name of the user is empty if the
/// subject has no common name. Returns `None` in these cases:
///
/// - `leaf` is not a certificate.
/// - The last common name, an organization or a UID cannot be decoded.
/// - The subject has an empty UID or several UIDs.
pub(super) fn user_of(leaf: &CertificateDer<'_>) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let name = certificate.subject();
    let mut user = User::default();
    // If there are several common names, the last one is the name of the user, as in Go's
    // crypto/x509. So the kube-apiserver and this server derive the same user.
    if let Some(attribute) = name.iter_common_name().last() {
        user.name = text(attribute)?;
    }
    for attribute in name.iter_organization() {
        user.groups.push(text(attribute)?);
    }
    for attribute in name.iter_by_oid(&UID_OID) {
        let uid = text(attribute)?;
        if uid.is_empty() || user.uid.replace(uid).is_some() {
            return None;
        }
    }
    let id = format!("X509SHA256={:x}", Sha256::digest(leaf));
    user.extra.insert(CREDENTIAL_ID.to_owned(), vec![id]);
    Some(user)
}

/// Decodes an attribute. Returns `None` for the string types that are not compatible with UTF-8,
/// and for a text with NUL.
fn text(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    let text = attribute.as_str().ok()?;
    (!text.contains('\0')).then(|| text.to_owned())
}
