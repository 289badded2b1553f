//! Verifies client certificates against a bundle of CAs, and reads the user from the subject of a
//! certificate.

use super::User;
use openssl::asn1::{Asn1StringRef, Asn1Time};
use openssl::nid::Nid;
use openssl::pkey::{PKey, Public};
use openssl::x509::{X509, X509NameRef};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, crypto::CryptoProvider};
use sha2::{Digest as _, Sha256};
use std::cmp::Ordering;
use std::fmt::Write as _;
use std::sync::Arc;

/// Key of the extra attribute of a user that contains the hash of the client certificate. The
/// kube-apiserver uses the same key.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// OID of the attribute in the subject that contains the UID of the user. Kubernetes defines this
/// OID. The kube-apiserver reads the attribute since 1.33 (feature
/// `AllowParsingUserUIDFromCertAuth`).
const UID_OID: &str = "1.3.6.1.4.1.57683.2";

/// Maximum number of CAs in a bundle. Clusters have one or two CAs, and a few more during a
/// rotation. A bundle with more CAs is invalid, because each CA can add a signature check to each
/// verification.
const MAX_AUTHORITIES: usize = 256;

/// The CAs whose client certificates are accepted.
#[derive(Clone)]
pub(super) struct Authorities {
    known: Vec<(CertificateDer<'static>, X509)>,
    provider: Arc<CryptoProvider>,
}

impl std::fmt::Debug for Authorities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} authorities", self.known.len())
    }
}

impl Authorities {
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
            let parsed =
                X509::from_der(&der).map_err(|error| format!("certificate {nth}: {error}"))?;
            RootCertStore::empty()
                .add(der.clone())
                .map_err(|error| format!("certificate {nth}: {error}"))?;
            known.push((der, parsed));
        }
        if known.is_empty() {
            return Err("no certificate in it".to_owned());
        }
        Ok(Self {
            known,
            provider: Arc::new(rustls::crypto::ring::default_provider()),
        })
    }

    /// Returns true if one of these CAs has issued `chain` (leaf first) for a client, and all
    /// certificates are currently valid.
    pub(super) fn has_issued(&self, chain: &[CertificateDer<'static>]) -> bool {
        let Some((leaf, intermediates)) = chain.split_first() else {
            return false;
        };
        let mut roots = RootCertStore::empty();
        for (der, parsed) in &self.known {
            // webpki does not check the validity period of a trust anchor, but Go does.
            if in_force(parsed) {
                // `add` cannot fail here, because `from_pem` has already added this certificate to
                // a store.
                let _ = roots.add(der.clone());
            }
        }
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
            .build()
            .is_ok_and(|verifier| {
                verifier
                    .verify_client_cert(leaf, intermediates, UnixTime::now())
                    .is_ok()
            })
    }
}

impl Authorities {
    /// Returns the names of CAs in `others`. The result contains a CA if a server that trusts the
    /// CAs in `self` also accepts the certificates of this CA. There are two cases:
    ///
    /// - A CA in `self` has the same name and key.
    /// - A CA in `self` has issued the certificate of this CA.
    pub(super) fn covering(&self, others: &Self) -> Vec<String> {
        let covered = |other: &X509| self.known.iter().any(|(_, own)| covers(own, other));
        let others = others.known.iter().map(|(_, other)| other);
        let covered = others.filter(|other| covered(other));
        covered.map(|other| name(other.subject_name())).collect()
    }
}

/// Returns true if a server that trusts `authority` also accepts certificates that the CA `other`
/// has issued. For example, `authority` may have issued the certificate of `other`. The certificate
/// of a CA is public, so any client can send the certificate of `other` as an intermediate
/// certificate.
fn covers(authority: &X509, other: &X509) -> bool {
    let is_named = |name: &X509NameRef| {
        let equal = name.try_cmp(authority.subject_name());
        equal.is_ok_and(Ordering::is_eq)
    };
    let has_its_key = |key: &PKey<Public>| other.public_key().is_ok_and(|it| it.public_eq(key));
    let key = || authority.public_key().ok();
    (is_named(other.subject_name()) && key().is_some_and(|key| has_its_key(&key)))
        || (is_named(other.issuer_name())
            && key().is_some_and(|key| other.verify(&key).unwrap_or(false)))
}

/// Formats a name as `CN=kubernetes, O=example`.
fn name(name: &X509NameRef) -> String {
    let entries = name.entries().map(|entry| {
        let attribute = entry.object().nid().short_name().unwrap_or("?");
        format!("{attribute}={}", text(entry.data()).unwrap_or_default())
    });
    entries.collect::<Vec<_>>().join(", ")
}

fn in_force(certificate: &X509) -> bool {
    Asn1Time::days_from_now(0).is_ok_and(|now| {
        certificate.not_before() <= now.as_ref() && certificate.not_after() >= now.as_ref()
    })
}

/// The values in a client certificate from which its user is derived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CertificateSubject {
    pub(super) common_name: String,
    organizations: Vec<String>,
    uid: Option<String>,
    fingerprint: String,
}

impl CertificateSubject {
    /// Parses `leaf`. Returns `None` if `leaf` is not a certificate, or if a name in it cannot be
    /// decoded.
    pub(super) fn of(leaf: &CertificateDer<'_>) -> Option<Self> {
        let certificate = X509::from_der(leaf).ok()?;
        let name = certificate.subject_name();
        let mut subject = Self::default();
        // If there are several common names, the last common name is the user, as in Go's
        // crypto/x509. So the kube-apiserver and this server derive the same user.
        if let Some(entry) = name.entries_by_nid(Nid::COMMONNAME).last() {
            subject.common_name = text(entry.data())?;
        }
        for entry in name.entries_by_nid(Nid::ORGANIZATIONNAME) {
            subject.organizations.push(text(entry.data())?);
        }
        for entry in name.entries() {
            if entry.object().to_string() == UID_OID {
                let uid = text(entry.data())?;
                if uid.is_empty() || subject.uid.replace(uid).is_some() {
                    return None;
                }
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

/// Decodes an ASN.1 string of any type. Returns `None` if the string contains NUL, because some
/// libraries would read only the part before NUL.
fn text(value: &Asn1StringRef) -> Option<String> {
    value.to_string().ok().filter(|text| !text.contains('\0'))
}
