//! Issues valid and invalid certificates, with their private keys, for tests.

use crate::auth::PeerCertificates;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use std::sync::Arc;
use std::time::Duration;

/// A certificate with its private key.
pub(crate) struct CertificateAndKey(CertifiedIssuer<'static, KeyPair>);

/// A validity period from one hour ago until one hour from now.
const DEFAULT_VALIDITY: (i64, i64) = (-3600, 3600);

/// Creates a self-signed CA.
pub(crate) fn ca(name: &str) -> CertificateAndKey {
    ca_living(name, DEFAULT_VALIDITY)
}

/// Creates a self-signed CA. `validity` is the start and the end of its validity period, in seconds
/// from now.
pub(crate) fn ca_living(name: &str, validity: (i64, i64)) -> CertificateAndKey {
    let key = KeyPair::generate().unwrap();
    CertificateAndKey(CertifiedIssuer::self_signed(ca_params(name, validity), key).unwrap())
}

fn ca_params(name: &str, validity: (i64, i64)) -> CertificateParams {
    let mut params = params(&[("CN", name)], validity);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn params(subject: &[(&str, &str)], validity: (i64, i64)) -> CertificateParams {
    let now = crate::clock::now().as_second();
    let time = |from_now: i64| {
        date_time_ymd(1970, 1, 1) + Duration::from_secs((now + from_now).unsigned_abs())
    };
    let mut params = CertificateParams::default();
    params.not_before = time(validity.0);
    params.not_after = time(validity.1);
    params.distinguished_name = DistinguishedName::new();
    let name = &mut params.distinguished_name;
    for (field, value) in subject {
        // A `DistinguishedName` has only one value for each `DnType`. So the second organization
        // gets a `DnType` that consists of the object identifier of organizations.
        let (known, oid) = match *field {
            "CN" => (Some(DnType::CommonName), "2.5.4.3"),
            "O" => (Some(DnType::OrganizationName), "2.5.4.10"),
            oid => (None, oid),
        };
        let oid = oid.split('.').map(|arc| arc.parse().unwrap()).collect();
        let known = known.filter(|known| name.get(known).is_none());
        name.push(known.unwrap_or(DnType::CustomDnType(oid)), *value);
    }
    params
}

impl CertificateAndKey {
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn key_pem(&self) -> Vec<u8> {
        self.0.key().serialize_pem().into_bytes()
    }

    /// Returns the private key in the format PKCS #8.
    pub(crate) fn key_der(&self) -> &[u8] {
        self.0.key().serialized_der()
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// Returns the certificate in the form in which the TLS listener passes it to requests.
    pub(crate) fn peer(&self) -> PeerCertificates {
        PeerCertificates(Arc::new([self.der()]))
    }

    /// Returns the credentials of a TLS client that presents the certificates of `chain`, and signs
    /// with the key of this certificate.
    pub(crate) fn signing_for(&self, chain: &[&Self]) -> CertifiedKey {
        let key = PrivatePkcs8KeyDer::from(self.key_der().to_vec());
        let key = default_provider().key_provider.load_private_key(key.into());
        CertifiedKey::new(chain.iter().map(|it| it.der()).collect(), key.unwrap())
    }

    /// Issues a client certificate for a subject such as `&[("CN", "jane"), ("O", "dev")]`. The
    /// name of a field other than `CN` and `O` is its object identifier.
    pub(crate) fn client(&self, subject: &[(&str, &str)]) -> Self {
        self.client_living(subject, DEFAULT_VALIDITY)
    }

    /// Issues a client certificate. `validity` is the start and the end of its validity period, in
    /// seconds from now.
    pub(crate) fn client_living(&self, subject: &[(&str, &str)], validity: (i64, i64)) -> Self {
        let mut params = params(subject, validity);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// Issues a certificate that is valid for servers only. A server must refuse the certificate if
    /// a client presents it.
    pub(crate) fn server(&self, name: &str) -> Self {
        let mut params = params(&[("CN", name)], DEFAULT_VALIDITY);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// Issues the certificate of an intermediate CA.
    pub(crate) fn intermediate(&self, name: &str) -> Self {
        self.sign(ca_params(name, DEFAULT_VALIDITY))
    }

    fn sign(&self, params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::signed_by(params, key, &self.0).unwrap())
    }
}
