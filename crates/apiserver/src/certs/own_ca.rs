//! The server's own self-signed CA, which issues serving certificates.

use super::{COMMON_NAME, CertsError, now, parse};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::sync::Arc;
use std::time::Duration;
use x509_parser::prelude::X509Name;

const DAY: i64 = 86_400;

/// Lifetime of a CA in seconds: ten years, which is also the lifetime of kubeadm's CAs.
const CA_LIFETIME: i64 = 3650 * DAY;

/// Lifetime of a serving certificate in seconds: one year, which is also the lifetime of kubeadm's
/// certificates.
const SERVING_LIFETIME: i64 = 365 * DAY;

/// The server replaces a CA when its remaining lifetime in seconds is less than this value (two
/// years).
///
/// A serving certificate does not outlive its CA. In the last year of the CA, new serving
/// certificates would live for less than a year, so the server replaces the CA before that year.
/// The first of the two years is a reserve for the case that the replacement fails for a long time.
/// For example, the server is not running, or has no right to write the Secret.
const CA_RENEW_BEFORE: i64 = 2 * SERVING_LIFETIME;

/// The validity period of a certificate starts this many seconds before its creation, because the
/// clocks of clients can be behind.
const BACKDATE_SECONDS: i64 = 300;

/// A CA with its key.
#[derive(Clone, Debug)]
pub struct Authority {
    certificate: CertificateDer<'static>,
    /// The name and the key of the CA.
    issuer: Arc<Issuer<'static, KeyPair>>,
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
        let name = format!("{COMMON_NAME}-ca@{}", now());
        let start = now() - BACKDATE_SECONDS;
        let mut params = certificate_params(name, Vec::new(), (start, not_after))?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
        ];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.der().clone();
        Ok(Self {
            certificate,
            issuer: Arc::new(Issuer::new(params, key)),
        })
    }

    /// Reads a CA from PEM. The first certificate in `certificate` is that of the CA. `key` has the
    /// format PKCS #8. This function also accepts a CA that has expired. The caller must check the
    /// expiry.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, CertsError> {
        Self::read(certificate, key).map_err(|error| CertsError::BadAuthority(error.to_string()))
    }

    fn read(certificate: &[u8], key: &[u8]) -> Result<Self, Box<dyn std::error::Error>> {
        let certificate = CertificateDer::from_pem_slice(certificate)?;
        let parsed = parse(&certificate)?;
        let usage = parsed.key_usage().ok().flatten();
        if !parsed.is_ca() || usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
            return Err("the certificate does not belong to a CA".into());
        }
        let key = KeyPair::from_pem(&String::from_utf8_lossy(key))
            .map_err(|error| format!("the key is not usable: {error}"))?;
        if key.subject_public_key_info() != parsed.public_key().raw {
            return Err("the key does not belong to the certificate".into());
        }
        let unusable_name = "the name of the CA cannot be used: an attribute occurs twice, or the \
                             name has an unusual encoding";
        if !rcgen_accepts(parsed.subject()) {
            return Err(unusable_name.into());
        }
        let authority = Self {
            certificate: certificate.clone(),
            issuer: Arc::new(Issuer::from_ca_cert_der(&certificate, key)?),
        };
        // Clients compare the issuer in the serving certificate with the name of the CA, byte by
        // byte. rcgen parses the name of the CA and encodes it again as the issuer. The bytes can
        // then differ, for example because rcgen keeps each attribute only once.
        let trial = authority.issue(&["localhost".to_owned()])?;
        let trial = CertificateDer::from_pem_slice(&trial.chain)?;
        if parse(&trial)?.issuer().as_raw() != parsed.subject().as_raw() {
            return Err(unusable_name.into());
        }
        Ok(authority)
    }

    /// Returns true if the CA expires in less than two years, so that a new CA is needed.
    pub fn is_near_end(&self) -> bool {
        not_after(&self.certificate) - now() < CA_RENEW_BEFORE
    }

    /// Returns true if the CA has expired. Then all certificates that it has issued have also
    /// expired.
    pub(super) fn has_expired(&self) -> bool {
        not_after(&self.certificate) <= now()
    }

    /// Returns the bundle with which clients verify this server, as PEM: the certificate of the CA.
    pub fn bundle(&self) -> String {
        certificate_pem(&self.certificate)
    }

    /// Returns true if `self` and `other` are the same CA.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.certificate == other.certificate
    }

    /// Returns the private key as PEM (PKCS #8). The result must stay secret.
    pub fn key_pem(&self) -> Vec<u8> {
        self.issuer.key().serialize_pem().into_bytes()
    }

    /// Issues a serving certificate for these DNS names and IP addresses, with a new key. The
    /// certificate is valid for one year, but not longer than the CA.
    pub fn issue(&self, names: &[String]) -> Result<IssuedCertificate, CertsError> {
        if names.is_empty() {
            return Err(CertsError::NoName);
        }
        let start = now() - BACKDATE_SECONDS;
        let end = not_after(&self.certificate).min(now() + SERVING_LIFETIME);
        let mut params = certificate_params(COMMON_NAME.to_owned(), names.to_vec(), (start, end))?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let leaf = params.signed_by(&key, &self.issuer)?;
        Ok(IssuedCertificate {
            chain: certificate_pem(leaf.der()).into_bytes(),
            key: key.serialize_pem().into_bytes(),
            renew_at: start + (end - start) / 3 * 2,
        })
    }
}

/// Returns false if rcgen would panic on the name: if a part of the name has no attribute, or if the
/// first number of an object identifier is above 2.
fn rcgen_accepts(name: &X509Name<'_>) -> bool {
    name.iter().all(|part| {
        let first = part.iter().next();
        let number = first.and_then(|attribute| attribute.attr_type().iter()?.next());
        number.is_some_and(|number| number <= 2)
    })
}

/// Returns the parameters of a certificate for these alternative names. `validity` has its start
/// and its end in seconds since 1970.
fn certificate_params(
    common_name: String,
    names: Vec<String>,
    validity: (i64, i64),
) -> Result<CertificateParams, CertsError> {
    let time =
        |seconds: i64| date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds.unsigned_abs());
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params.not_before = time(validity.0);
    params.not_after = time(validity.1);
    Ok(params)
}

/// Returns the end of the validity period, in seconds since 1970. Returns 0 for data that is not a
/// certificate.
pub(super) fn not_after(certificate: &[u8]) -> i64 {
    parse(certificate).map_or(0, |parsed| parsed.validity().not_after.timestamp())
}

/// Encodes a certificate as PEM, with the same line ends as OpenSSL.
fn certificate_pem(der: &CertificateDer<'_>) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new("CERTIFICATE", der.as_ref()), config)
}
