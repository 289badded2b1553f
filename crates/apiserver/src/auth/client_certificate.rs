//! Verifies client certificates against a bundle of CAs, and reads the user from the subject of a
//! certificate.

use super::User;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, crypto::CryptoProvider};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::sync::Arc;
use x509_parser::asn1_rs::{Any, Tag, oid};
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::oid_registry::Oid;
use x509_parser::prelude::{FromDer, X509Certificate, X509Name};

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
#[derive(Clone)]
pub(super) struct ClientCaBundle {
    known: Vec<KnownAuthority>,
    provider: Arc<CryptoProvider>,
}

#[derive(Clone)]
struct KnownAuthority {
    der: CertificateDer<'static>,
    /// The times at which the certificate is valid, in seconds since 1970.
    validity_period: RangeInclusive<i64>,
}

impl std::fmt::Debug for ClientCaBundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} authorities", self.known.len())
    }
}

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
            let (_, parsed) = X509Certificate::from_der(&der)
                .map_err(|error| format!("certificate {nth}: {error}"))?;
            let validity = parsed.validity();
            let validity_period = validity.not_before.timestamp()..=validity.not_after.timestamp();
            RootCertStore::empty()
                .add(der.clone())
                .map_err(|error| format!("certificate {nth}: {error}"))?;
            known.push(KnownAuthority {
                der,
                validity_period,
            });
        }
        if known.is_empty() {
            return Err("the bundle contains no certificate".to_owned());
        }
        Ok(Self {
            known,
            provider: Arc::new(rustls::crypto::ring::default_provider()),
        })
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
        let now = UnixTime::now();
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        for KnownAuthority {
            der,
            validity_period,
        } in &self.known
        {
            // webpki does not check the validity period of a trust anchor, but Go's crypto/x509
            // does. So this loop leaves out the CAs that are not valid now.
            if validity_period.contains(&seconds) {
                // `add` cannot fail here, because `from_pem` has already added this certificate to
                // a store.
                let _ = roots.add(der.clone());
            }
        }
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
            .build()
            .is_ok_and(|verifier| {
                verifier
                    .verify_client_cert(leaf, intermediates, now)
                    .is_ok()
            })
    }

    /// Returns the names of the CAs in `others` that the CAs in `self` cover. A CA is covered if a
    /// server that trusts only the CAs in `self` also accepts its client certificates ([`covers`]).
    pub(super) fn names_of_covered(&self, others: &Self) -> Vec<String> {
        let (own, others) = (self.parsed(), others.parsed());
        let is_covered = |other: &&X509Certificate| own.iter().any(|own| covers(own, other));
        let covered = others.iter().filter(is_covered);
        covered.map(|other| name(other.subject())).collect()
    }

    fn parsed(&self) -> Vec<X509Certificate<'_>> {
        // `from_pem` has already parsed each certificate, so none is left out.
        let parsed = self
            .known
            .iter()
            .filter_map(|it| X509Certificate::from_der(&it.der).ok());
        parsed.map(|(_, certificate)| certificate).collect()
    }
}

/// Returns true if a server that trusts `authority` also accepts certificates that the CA `other`
/// has issued. There are two cases:
///
/// - `authority` and `other` have the same name and key.
/// - `authority` has issued the certificate of `other`. Then a client can send the certificate of
///   `other`, which is public, as an intermediate certificate.
fn covers(authority: &X509Certificate<'_>, other: &X509Certificate<'_>) -> bool {
    // Names are compared byte by byte, as in webpki.
    let is_named = |name: &X509Name<'_>| name.as_raw() == authority.subject().as_raw();
    let key = authority.public_key();
    (is_named(other.subject()) && other.public_key().subject_public_key == key.subject_public_key)
        || (is_named(other.issuer()) && other.verify_signature(Some(key)).is_ok())
}

/// Formats a name as `CN=kubernetes, O=example`.
fn name(name: &X509Name<'_>) -> String {
    let attributes = name.iter_attributes().map(|attribute| {
        let kind = oid2abbrev(attribute.attr_type(), oid_registry()).unwrap_or("?");
        format!(
            "{kind}={}",
            text(attribute.attr_value()).unwrap_or_default()
        )
    });
    attributes.collect::<Vec<_>>().join(", ")
}

/// The values in a client certificate from which the server derives the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CertificateSubject {
    pub(super) common_name: String,
    organizations: Vec<String>,
    uid: Option<String>,
    fingerprint: String,
}

impl CertificateSubject {
    /// Parses the certificate `leaf`. Returns `None` in these cases:
    ///
    /// - `leaf` is not a certificate.
    /// - The last common name, an organization or a UID cannot be decoded.
    /// - The subject has an empty UID or several UIDs.
    pub(super) fn of(leaf: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
        let name = certificate.subject();
        let mut subject = Self::default();
        // If there are several common names, the last common name is the user, as in Go's
        // crypto/x509. So the kube-apiserver and this server derive the same user.
        if let Some(attribute) = name.iter_common_name().last() {
            subject.common_name = text(attribute.attr_value())?;
        }
        for attribute in name.iter_organization() {
            subject.organizations.push(text(attribute.attr_value())?);
        }
        for attribute in name.iter_by_oid(&UID_OID) {
            let uid = text(attribute.attr_value())?;
            if uid.is_empty() || subject.uid.replace(uid).is_some() {
                return None;
            }
        }
        for byte in Sha256::digest(leaf) {
            let _ = write!(subject.fingerprint, "{byte:02x}");
        }
        Some(subject)
    }

    /// Returns the user that the subject names, or `None` if the subject has no common name.
    pub(super) fn user(&self) -> Option<User> {
        (!self.common_name.is_empty()).then(|| User {
            name: self.common_name.clone(),
            uid: self.uid.clone(),
            groups: self.organizations.clone(),
            extra: [(
                CREDENTIAL_ID.to_owned(),
                vec![format!("X509SHA256={}", self.fingerprint)],
            )]
            .into(),
        })
    }
}

/// Decodes an ASN.1 string. Returns `None` in these cases:
///
/// - The type of `value` is not one of the string types below.
/// - The bytes are invalid for this type.
/// - The string contains NUL. Some libraries would read only the part before NUL.
fn text(value: &Any<'_>) -> Option<String> {
    let bytes = value.data;
    let text = match value.tag() {
        Tag::Utf8String => String::from_utf8(bytes.to_vec()).ok()?,
        // A TeletexString (T.61) is read as ISO 8859-1, as in OpenSSL and Go.
        Tag::NumericString | Tag::PrintableString | Tag::T61String | Tag::Ia5String => {
            bytes.iter().copied().map(char::from).collect()
        }
        Tag::BmpString => characters(bytes, |unit: [u8; 2]| u16::from_be_bytes(unit).into())?,
        Tag::UniversalString => characters(bytes, u32::from_be_bytes)?,
        _ => return None,
    };
    (!text.contains('\0')).then_some(text)
}

/// Decodes a string whose characters have a fixed length. Returns `None` if a character is
/// incomplete or does not exist in Unicode.
fn characters<const LENGTH: usize>(
    bytes: &[u8],
    code_point: impl Fn([u8; LENGTH]) -> u32,
) -> Option<String> {
    let (units, rest) = bytes.as_chunks();
    let characters = units.iter().map(|unit| char::from_u32(code_point(*unit)));
    rest.is_empty().then(|| characters.collect())?
}
