//! The server's own self-signed CA, which issues serving certificates. Before the CA expires, this
//! module creates a new CA, its successor. The module does no I/O itself, but OpenSSL reads random
//! numbers.

use super::{CertsError, now, unix_time};
use openssl::asn1::{Asn1Integer, Asn1Time};
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, PKeyRef, Private};
use openssl::stack::Stack;
use openssl::x509::extension::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName,
    SubjectKeyIdentifier,
};
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::verify::X509VerifyFlags;
use openssl::x509::{
    X509, X509Builder, X509Name, X509NameBuilder, X509StoreContext, X509StoreContextRef,
};
use std::net::IpAddr;

const DAY: i64 = 86_400;

/// Lifetime of a CA in seconds: ten years, which is also the lifetime of kubeadm's CAs.
const CA_LIFETIME: i64 = 3650 * DAY;

/// Lifetime of a serving certificate in seconds: one year, which is also the lifetime of kubeadm's
/// certificates.
const SERVING_LIFETIME: i64 = 365 * DAY;

/// A CA is replaced when its remaining lifetime in seconds is less than this value (two years).
///
/// The old CA must stay valid until all serving certificates that it has issued have expired. The
/// lifetime of one serving certificate (one year) is enough for this purpose. The second year is a
/// reserve, because the server may not be running when the CA should be replaced.
const CA_RENEW_BEFORE: i64 = 2 * SERVING_LIFETIME;

/// A certificate is valid from this many seconds before its creation, because the clocks of clients
/// can be slow.
const BACKDATE_SECONDS: i64 = 300;

/// Maximum number of previous CAs that are read from the Secret. Further certificates are ignored.
///
/// With the lifetimes above, at most one previous CA has not expired. There are more previous CAs
/// only if users add certificates to the Secret.
const MAX_PREVIOUS: usize = 64;

/// A CA with its key, and the previous CAs whose certificates clients must still accept.
#[derive(Clone)]
pub struct Authority {
    certificate: X509,
    key: PKey<Private>,
    /// Certificates of the previous CAs that have not expired.
    previous: Vec<X509>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority")
            .field("subject", &self.certificate.subject_name())
            .field("former", &self.previous.len())
            .finish_non_exhaustive()
    }
}

/// A serving certificate and its private key.
#[derive(Clone)]
pub struct IssuedCertificate {
    /// The certificate as PEM, without the CA.
    pub chain: Vec<u8>,
    /// The private key as PEM (PKCS #8). Secret.
    pub key: Vec<u8>,
    /// The time at which the certificate should be renewed, in seconds since 1970. At this time,
    /// two thirds of its lifetime are over.
    pub renew_at: i64,
}

impl Authority {
    /// Creates a CA that is valid for ten years. Its key is an ECDSA P-256 key.
    pub fn create() -> Result<Self, CertsError> {
        Self::create_until(now() + CA_LIFETIME)
    }

    /// Creates a CA that expires at `not_after`, in seconds since 1970.
    pub(super) fn create_until(not_after: i64) -> Result<Self, CertsError> {
        let key = new_key()?;
        // The name contains the time, so that a person who reads the bundle can distinguish two
        // CAs.
        let name = format!("ifo-apiserver-ca@{}", now());
        let (mut builder, name) = builder(&name, &key, not_after)?;
        builder.set_issuer_name(&name)?;
        builder.append_extension(BasicConstraints::new().critical().ca().pathlen(0).build()?)?;
        builder.append_extension(
            KeyUsage::new()
                .critical()
                .digital_signature()
                .key_cert_sign()
                .crl_sign()
                .build()?,
        )?;
        let id = SubjectKeyIdentifier::new().build(&builder.x509v3_context(None, None))?;
        builder.append_extension(id)?;
        builder.sign(&key, MessageDigest::sha256())?;
        Ok(Self {
            certificate: builder.build(),
            key,
            previous: Vec::new(),
        })
    }

    /// Reads a CA from PEM.
    ///
    /// `certificates` contains the certificate of the CA, followed by the certificates of the
    /// previous CAs. Previous CAs that have expired are left out. The CA itself may have expired.
    /// The caller checks this with [`Self::is_near_end`].
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, CertsError> {
        let bad = |why: &str| CertsError::BadAuthority(why.to_owned());
        let mut read = X509::stack_from_pem(certificates)
            .map_err(|_| bad("the certificate is not PEM"))?
            .into_iter();
        let certificate = read.next().ok_or_else(|| bad("there is no certificate"))?;
        let key =
            PKey::private_key_from_pem(key).map_err(|_| bad("the key is not PEM of a key"))?;
        if !certificate.public_key()?.public_eq(&key) {
            return Err(bad("the key is not that of the first certificate"));
        }
        let now = now();
        let previous = read
            .take(MAX_PREVIOUS)
            .filter(|one| unix_time(one.not_after()).is_ok_and(|end| end > now))
            .collect();
        let authority = Self {
            certificate,
            key,
            previous,
        };
        if !authority.is_valid_ca()? {
            return Err(bad("the certificate is not that of a CA"));
        }
        Ok(authority)
    }

    /// Returns true if clients can verify certificates that this CA issues. The expiry of the CA is
    /// not checked.
    fn is_valid_ca(&self) -> Result<bool, CertsError> {
        let trial = self.sign_leaf(&["trial.invalid".to_owned()], &[])?.0;
        let mut store = X509StoreBuilder::new()?;
        store.add_cert(self.certificate.clone())?;
        store.set_flags(X509VerifyFlags::NO_CHECK_TIME | X509VerifyFlags::PARTIAL_CHAIN)?;
        let (store, none) = (store.build(), Stack::new()?);
        Ok(X509StoreContext::new()?.init(
            &store,
            &trial,
            &none,
            X509StoreContextRef::verify_cert,
        )?)
    }

    /// Creates the next CA. The bundle of the next CA also contains this CA and the previous CAs.
    pub(super) fn create_successor(&self) -> Result<Self, CertsError> {
        let mut next = Self::create()?;
        let now = now();
        next.previous = std::iter::once(&self.certificate)
            .chain(&self.previous)
            .filter(|one| unix_time(one.not_after()).is_ok_and(|end| end > now))
            .cloned()
            .collect();
        Ok(next)
    }

    /// Returns true if the CA expires in less than two years, so that a successor is needed.
    pub fn is_near_end(&self) -> bool {
        unix_time(self.certificate.not_after()).is_ok_and(|end| end - now() < CA_RENEW_BEFORE)
    }

    /// Returns true if the CA has expired. No certificate that it has issued is valid any more.
    pub(super) fn has_expired(&self) -> bool {
        unix_time(self.certificate.not_after()).is_ok_and(|end| end <= now())
    }

    /// Returns the bundle as PEM: the certificate of this CA, followed by the certificates of the
    /// previous CAs.
    pub fn bundle(&self) -> Result<String, CertsError> {
        let mut bundle = Vec::new();
        for one in std::iter::once(&self.certificate).chain(&self.previous) {
            bundle.extend(one.to_pem()?);
        }
        String::from_utf8(bundle).map_err(|error| CertsError::BadAuthority(error.to_string()))
    }

    /// Returns the bundle of this CA, plus the certificate of `other`. The server publishes this
    /// bundle while it still presents a certificate that `other` has issued.
    pub(super) fn bundle_with(&self, other: &Self) -> Result<String, CertsError> {
        let mut both = self.clone();
        if !self.is(other) && !self.previous.contains(&other.certificate) {
            both.previous.push(other.certificate.clone());
        }
        both.bundle()
    }

    /// Returns true if `self` and `other` are the same CA.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.certificate == other.certificate
    }

    /// Returns the private key as PEM (PKCS #8). Secret.
    pub fn key_pem(&self) -> Result<Vec<u8>, CertsError> {
        Ok(self.key.private_key_to_pem_pkcs8()?)
    }

    /// Issues a serving certificate for these names, with a new key. The certificate is valid for
    /// one year, or until the CA expires.
    pub fn issue(
        &self,
        dns_names: &[String],
        ips: &[IpAddr],
    ) -> Result<IssuedCertificate, CertsError> {
        let (leaf, key) = self.sign_leaf(dns_names, ips)?;
        let (start, end) = (unix_time(leaf.not_before())?, unix_time(leaf.not_after())?);
        Ok(IssuedCertificate {
            chain: leaf.to_pem()?,
            key: key.private_key_to_pem_pkcs8()?,
            renew_at: start + (end - start) / 3 * 2,
        })
    }

    fn sign_leaf(
        &self,
        dns_names: &[String],
        ips: &[IpAddr],
    ) -> Result<(X509, PKey<Private>), CertsError> {
        if dns_names.is_empty() && ips.is_empty() {
            return Err(CertsError::NoName);
        }
        let key = new_key()?;
        let end = unix_time(self.certificate.not_after())?.min(now() + SERVING_LIFETIME);
        // The common name is fixed, because its length is limited to 64 characters. Clients verify
        // only the alternative names.
        let (mut builder, _) = builder("ifo-apiserver", &key, end)?;
        builder.set_issuer_name(self.certificate.subject_name())?;
        let mut names = SubjectAlternativeName::new();
        for name in dns_names {
            names.dns(name);
        }
        for ip in ips {
            names.ip(&ip.to_string());
        }
        builder.append_extension(BasicConstraints::new().critical().build()?)?;
        builder.append_extension(KeyUsage::new().critical().digital_signature().build()?)?;
        builder.append_extension(ExtendedKeyUsage::new().server_auth().build()?)?;
        let extensions = {
            let context = builder.x509v3_context(Some(&self.certificate), None);
            let mut extensions = vec![
                names.build(&context)?,
                SubjectKeyIdentifier::new().build(&context)?,
            ];
            // A CA that other software has created may have no key identifier.
            if self.certificate.subject_key_id().is_some() {
                extensions.push(AuthorityKeyIdentifier::new().keyid(true).build(&context)?);
            }
            extensions
        };
        for extension in extensions {
            builder.append_extension(extension)?;
        }
        builder.sign(&self.key, MessageDigest::sha256())?;
        Ok((builder.build(), key))
    }
}

fn new_key() -> Result<PKey<Private>, ErrorStack> {
    let curve = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
    PKey::from_ec_key(EcKey::generate(&curve)?)
}

/// Sets the fields that all certificates have: version, serial number, subject, key and lifetime.
fn builder(
    common_name: &str,
    key: &PKeyRef<Private>,
    not_after: i64,
) -> Result<(X509Builder, X509Name), ErrorStack> {
    let mut name = X509NameBuilder::new()?;
    name.append_entry_by_nid(Nid::COMMONNAME, common_name)?;
    let name = name.build();
    let mut builder = X509Builder::new()?;
    // The field is the version minus one, so 2 means v3.
    builder.set_version(2)?;
    // The serial number is random, positive and has at most 20 octets (RFC 5280, 4.1.2.2).
    let mut serial = BigNum::new()?;
    serial.rand(159, MsbOption::MAYBE_ZERO, false)?;
    let serial: Asn1Integer = serial.to_asn1_integer()?;
    builder.set_serial_number(&serial)?;
    builder.set_subject_name(&name)?;
    builder.set_pubkey(key)?;
    builder.set_not_before(Asn1Time::from_unix(now() - BACKDATE_SECONDS)?.as_ref())?;
    builder.set_not_after(Asn1Time::from_unix(not_after)?.as_ref())?;
    Ok((builder, name))
}
