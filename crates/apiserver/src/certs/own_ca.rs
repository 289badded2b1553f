//! The server's own self-signed CA, which issues serving certificates. The module also creates the
//! successor of a CA: the new CA that replaces the old CA before the old CA expires. The module
//! does no I/O, except that the crate `ring` reads random numbers from the operating system.

use super::certificate_encoder::{CertificateFields, Extension, distinguished_name};
use super::{COMMON_NAME, CertsError, now, parse};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring::default_provider;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::sign::SigningKey;
use sha2::{Digest as _, Sha256};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{X509Certificate, X509Version};

const DAY: i64 = 86_400;

/// Lifetime of a CA in seconds: ten years, which is also the lifetime of kubeadm's CAs.
const CA_LIFETIME: i64 = 3650 * DAY;

/// Lifetime of a serving certificate in seconds: one year, which is also the lifetime of kubeadm's
/// certificates.
const SERVING_LIFETIME: i64 = 365 * DAY;

/// The server replaces a CA when its remaining lifetime in seconds is less than this value (two
/// years).
///
/// The old CA must stay valid until all serving certificates that it has issued have expired. The
/// lifetime of one serving certificate (one year) is enough for this purpose. The second year is a
/// reserve, because the server may not be running when the CA should be replaced.
const CA_RENEW_BEFORE: i64 = 2 * SERVING_LIFETIME;

/// A certificate is valid from this many seconds before its creation, because the clocks of clients
/// can be slow.
const BACKDATE_SECONDS: i64 = 300;

/// Maximum number of previous CAs that the server reads from the Secret. It ignores further
/// certificates.
///
/// With the lifetimes above, at most one previous CA has not expired. There are more previous CAs
/// only if users add certificates to the Secret.
const MAX_PREVIOUS: usize = 64;

/// A CA with its key, and the previous CAs whose certificates clients must still accept.
#[derive(Clone, Debug)]
pub struct Authority {
    certificate: CaCertificate,
    key: Arc<PrivateKey>,
    /// Certificates of the previous CAs that have not expired.
    previous: Vec<CaCertificate>,
}

/// The certificate of a CA, and the decoded values that the other functions need.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CaCertificate {
    der: CertificateDer<'static>,
    /// The name of the CA, as DER.
    subject: Vec<u8>,
    /// The identifier of the CA's key. `None` if the certificate has no key identifier.
    key_id: Option<Vec<u8>>,
    /// The end of the validity period, in seconds since 1970.
    not_after: i64,
}

impl CaCertificate {
    fn read(der: CertificateDer<'static>) -> Result<Self, String> {
        let parsed = parse(&der)?;
        let key_id =
            parsed
                .iter_extensions()
                .find_map(|extension| match extension.parsed_extension() {
                    ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
                    _ => None,
                });
        Ok(Self {
            subject: parsed.subject().as_raw().to_vec(),
            key_id,
            not_after: parsed.validity().not_after.timestamp(),
            der,
        })
    }

    fn has_expired(&self) -> bool {
        self.not_after <= now()
    }
}

/// A private key.
struct PrivateKey {
    der: PrivateKeyDer<'static>,
    signing: Arc<dyn SigningKey>,
}

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrivateKey").finish_non_exhaustive()
    }
}

impl PrivateKey {
    /// Creates an ECDSA P-256 key.
    fn create() -> Result<Self, CertsError> {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random)
            .map_err(|error| CertsError::Create(error.to_string()))?;
        let key = PrivatePkcs8KeyDer::from(key.as_ref().to_vec());
        Self::read(key.into()).map_err(|error| CertsError::Create(error.to_string()))
    }

    fn read(der: PrivateKeyDer<'static>) -> Result<Self, rustls::Error> {
        let signing = any_supported_type(&der)?;
        Ok(Self { der, signing })
    }

    /// Returns the public key as DER (`SubjectPublicKeyInfo`).
    fn public_key(&self) -> Result<Vec<u8>, CertsError> {
        let key = self.signing.public_key();
        let key = key.ok_or_else(|| CertsError::Create("the key has no public key".to_owned()))?;
        Ok(key.to_vec())
    }

    /// Returns the key as PEM. The result must stay secret.
    fn pem(&self) -> Vec<u8> {
        let label = match self.der {
            PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
            PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        pem(label, self.der.secret_der()).into_bytes()
    }
}

/// A serving certificate and its private key.
#[derive(Clone)]
pub struct IssuedCertificate {
    /// The certificate as PEM, without the certificate of the CA.
    pub chain: Vec<u8>,
    /// The private key as PEM (PKCS #8). It must stay secret.
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
        let key = PrivateKey::create()?;
        // A bundle can contain several CAs. The name contains the time, so that a person who reads
        // the bundle can distinguish them.
        let name = distinguished_name(&format!("{COMMON_NAME}-ca@{}", now()));
        let public_key = key.public_key()?;
        let certificate = CertificateFields {
            subject: &name,
            issuer: &name,
            public_key: &public_key,
            not_before: now() - BACKDATE_SECONDS,
            not_after,
            extensions: vec![
                Extension::ca_of_leaves(),
                Extension::ca_key_usage(),
                Extension::subject_key(&key_id(&public_key)),
            ],
        };
        let certificate = certificate.sign(&*key.signing)?;
        Ok(Self {
            certificate: CaCertificate::read(certificate).map_err(CertsError::Create)?,
            key: Arc::new(key),
            previous: Vec::new(),
        })
    }

    /// Reads a CA from PEM.
    ///
    /// `certificates` contains the certificate of the CA, followed by the certificates of the
    /// previous CAs. Previous CAs that have expired are left out. The CA itself may have expired.
    /// The caller checks the expiry with [`Self::is_near_end`].
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, CertsError> {
        let bad = |why: String| CertsError::BadAuthority(why);
        let mut read = Vec::new();
        for der in CertificateDer::pem_slice_iter(certificates).take(1 + MAX_PREVIOUS) {
            let der = der.map_err(|error| bad(format!("the certificate is not PEM: {error}")))?;
            let one = CaCertificate::read(der);
            read.push(one.map_err(|error| bad(format!("the certificate is not valid: {error}")))?);
        }
        let mut read = read.into_iter();
        let no_certificate = || bad("there is no certificate".to_owned());
        let certificate = read.next().ok_or_else(no_certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| bad(format!("the key is not PEM: {error}")))?;
        let key = PrivateKey::read(key)
            .map_err(|error| bad(format!("the key is not usable: {error}")))?;
        let parsed = parse(&certificate.der).map_err(bad)?;
        if parsed.public_key().raw != key.public_key()? {
            let why = "the key does not belong to the first certificate";
            return Err(bad(why.to_owned()));
        }
        if !may_issue(&parsed) {
            return Err(bad("the certificate does not belong to a CA".to_owned()));
        }
        let authority = Self {
            key: Arc::new(key),
            previous: read.filter(|one| !one.has_expired()).collect(),
            certificate: certificate.clone(),
        };
        authority.verify_trial().map_err(|error| {
            bad(format!(
                "clients do not accept certificates that this CA issues: {error}"
            ))
        })?;
        Ok(authority)
    }

    /// Issues a trial certificate, and verifies the certificate as clients do. Does not check the
    /// expiry of the CA.
    fn verify_trial(&self) -> Result<(), String> {
        let name = "trial.invalid";
        let names = [name.to_owned()];
        let leaf = self.sign_leaf(&names, &[], (now(), now() + SERVING_LIFETIME));
        let (leaf, _) = leaf.map_err(|error| error.to_string())?;
        let mut roots = RootCertStore::empty();
        let added = roots.add(self.certificate.der.clone());
        added.map_err(|error| error.to_string())?;
        let provider = Arc::new(default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| error.to_string())?;
        let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
        let time = UnixTime::since_unix_epoch(Duration::from_secs(now().unsigned_abs()));
        let verified = verifier.verify_server_cert(&leaf, &[], &name, &[], time);
        verified.map(drop).map_err(|error| error.to_string())
    }

    /// Creates the next CA. The bundle of the next CA also contains this CA and the previous CAs.
    pub(super) fn create_successor(&self) -> Result<Self, CertsError> {
        let mut next = Self::create()?;
        next.previous = std::iter::once(&self.certificate)
            .chain(&self.previous)
            .filter(|one| !one.has_expired())
            .cloned()
            .collect();
        Ok(next)
    }

    /// Returns true if the CA expires in less than two years, so that a successor is needed.
    pub fn is_near_end(&self) -> bool {
        self.certificate.not_after - now() < CA_RENEW_BEFORE
    }

    /// Returns true if the CA has expired. Then all certificates that it has issued have also
    /// expired.
    pub(super) fn has_expired(&self) -> bool {
        self.certificate.has_expired()
    }

    /// Returns the bundle as PEM: the certificate of this CA, followed by the certificates of the
    /// previous CAs.
    pub fn bundle(&self) -> String {
        let all = std::iter::once(&self.certificate).chain(&self.previous);
        all.map(|one| pem("CERTIFICATE", &one.der)).collect()
    }

    /// Returns the bundle of this CA, plus the certificate of `other`. The server publishes this
    /// bundle while it still presents a certificate that `other` has issued.
    pub(super) fn bundle_with(&self, other: &Self) -> String {
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

    /// Returns the private key as PEM. The result must stay secret. A key that was read keeps its
    /// format. A key that this module has created has the format PKCS #8.
    pub fn key_pem(&self) -> Vec<u8> {
        self.key.pem()
    }

    /// Issues a serving certificate for these names, with a new key. The certificate is valid for
    /// one year, but not longer than the CA.
    pub fn issue(
        &self,
        dns_names: &[String],
        ips: &[IpAddr],
    ) -> Result<IssuedCertificate, CertsError> {
        let start = now() - BACKDATE_SECONDS;
        let end = self.certificate.not_after.min(now() + SERVING_LIFETIME);
        let (leaf, key) = self.sign_leaf(dns_names, ips, (start, end))?;
        Ok(IssuedCertificate {
            chain: pem("CERTIFICATE", &leaf).into_bytes(),
            key: key.pem(),
            renew_at: start + (end - start) / 3 * 2,
        })
    }

    fn sign_leaf(
        &self,
        dns_names: &[String],
        ips: &[IpAddr],
        (not_before, not_after): (i64, i64),
    ) -> Result<(CertificateDer<'static>, PrivateKey), CertsError> {
        if dns_names.is_empty() && ips.is_empty() {
            return Err(CertsError::NoName);
        }
        let key = PrivateKey::create()?;
        let public_key = key.public_key()?;
        let mut extensions = vec![
            Extension::leaf(),
            Extension::leaf_key_usage(),
            Extension::server(),
            Extension::names(dns_names, ips),
            Extension::subject_key(&key_id(&public_key)),
        ];
        // A CA that other software has created may have no key identifier.
        if let Some(id) = &self.certificate.key_id {
            extensions.push(Extension::authority_key(id));
        }
        let leaf = CertificateFields {
            // The common name is fixed, because its length is limited to 64 characters. Clients
            // verify only the alternative names.
            subject: &distinguished_name(COMMON_NAME),
            issuer: &self.certificate.subject,
            public_key: &public_key,
            not_before,
            not_after,
            extensions,
        };
        Ok((leaf.sign(&*self.key.signing)?, key))
    }
}

/// Returns true if the certificate belongs to a CA, and its key usage allows signing certificates.
/// A certificate without a key usage may also sign certificates.
///
/// A certificate belongs to a CA if its basic constraints say so. If the certificate has no basic
/// constraints, it belongs to a CA in these cases:
///
/// - It has a key usage.
/// - It has version 1 and is self-issued ([`is_self_issued_v1`]).
fn may_issue(certificate: &X509Certificate<'_>) -> bool {
    let (Ok(constraints), Ok(usage)) = (certificate.basic_constraints(), certificate.key_usage())
    else {
        return false;
    };
    let is_ca = match constraints {
        Some(constraints) => constraints.value.ca,
        None => usage.is_some() || is_self_issued_v1(certificate),
    };
    is_ca && usage.is_none_or(|usage| usage.value.key_cert_sign())
}

/// Returns true if the certificate has version 1, and if its issuer is its own subject. A
/// certificate of version 1 has no extensions, so it cannot say that it belongs to a CA.
fn is_self_issued_v1(certificate: &X509Certificate<'_>) -> bool {
    certificate.version() == X509Version::V1
        && certificate.issuer().as_raw() == certificate.subject().as_raw()
}

/// Returns the identifier of a public key: the first 160 bits of its SHA-256 hash. This is the
/// length of a SHA-1 hash, which other CAs use as the identifier.
fn key_id(public_key: &[u8]) -> Vec<u8> {
    Sha256::digest(public_key)[..20].to_vec()
}

/// Encodes as PEM, with the same line ends as OpenSSL.
fn pem(label: &str, der: &[u8]) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new(label, der), config)
}
