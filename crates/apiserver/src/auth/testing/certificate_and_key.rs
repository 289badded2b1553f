//! Issues valid and invalid certificates, with their private keys, for tests.

use crate::auth::PeerCertificates;
use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, ExtendedKeyUsage, KeyUsage};
use openssl::x509::{X509, X509Builder, X509NameBuilder, X509NameRef};
use rustls::pki_types::CertificateDer;
use std::sync::Arc;

/// A certificate with its private key.
pub(crate) struct CertificateAndKey {
    pub(crate) certificate: X509,
    pub(crate) key: PKey<Private>,
}

impl CertificateAndKey {
    pub(crate) fn pem(&self) -> String {
        String::from_utf8(self.certificate.to_pem().unwrap()).unwrap()
    }

    pub(crate) fn key_pem(&self) -> Vec<u8> {
        self.key.private_key_to_pem_pkcs8().unwrap()
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.certificate.to_der().unwrap().into()
    }

    /// Returns the certificate in the form in which the TLS listener passes it to requests.
    pub(crate) fn peer(&self) -> PeerCertificates {
        PeerCertificates(Arc::new([self.der()]))
    }

    fn sign(template: Template<'_>, issuer: Option<&Self>) -> Self {
        Self::sign_key(template, new_key(), issuer)
    }

    fn sign_key(template: Template<'_>, key: PKey<Private>, issuer: Option<&Self>) -> Self {
        let mut name = X509NameBuilder::new().unwrap();
        for (field, value) in template.subject {
            name.append_entry_by_text(field, value).unwrap();
        }
        Self::sign_named(template, &name.build(), key, issuer)
    }

    fn sign_named(
        template: Template<'_>,
        name: &X509NameRef,
        key: PKey<Private>,
        issuer: Option<&Self>,
    ) -> Self {
        let mut builder = X509Builder::new().unwrap();
        builder.set_version(2).unwrap();
        let mut serial = BigNum::new().unwrap();
        serial.rand(64, MsbOption::MAYBE_ZERO, false).unwrap();
        builder
            .set_serial_number(&serial.to_asn1_integer().unwrap())
            .unwrap();
        builder.set_subject_name(name).unwrap();
        builder
            .set_issuer_name(issuer.map_or(name, |ca| ca.certificate.subject_name()))
            .unwrap();
        builder.set_pubkey(&key).unwrap();
        let now = crate::clock::now().as_second();
        let (from, to) = template.validity;
        builder
            .set_not_before(&Asn1Time::from_unix(now + from).unwrap())
            .unwrap();
        builder
            .set_not_after(&Asn1Time::from_unix(now + to).unwrap())
            .unwrap();
        if template.ca {
            builder
                .append_extension(BasicConstraints::new().critical().ca().build().unwrap())
                .unwrap();
            builder
                .append_extension(KeyUsage::new().critical().key_cert_sign().build().unwrap())
                .unwrap();
        } else if template.server {
            builder
                .append_extension(ExtendedKeyUsage::new().server_auth().build().unwrap())
                .unwrap();
        } else {
            builder
                .append_extension(ExtendedKeyUsage::new().client_auth().build().unwrap())
                .unwrap();
        }
        builder
            .sign(issuer.map_or(&key, |ca| &ca.key), MessageDigest::sha256())
            .unwrap();
        Self {
            certificate: builder.build(),
            key,
        }
    }
}

#[derive(Clone, Copy)]
struct Template<'a> {
    subject: &'a [(&'a str, &'a str)],
    /// The start and the end of the validity period, in seconds from now.
    validity: (i64, i64),
    ca: bool,
    server: bool,
}

fn new_key() -> PKey<Private> {
    let curve = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    PKey::from_ec_key(EcKey::generate(&curve).unwrap()).unwrap()
}

/// A validity period from one hour ago until one hour from now.
const DEFAULT_VALIDITY: (i64, i64) = (-3600, 3600);

/// Creates a self-signed CA.
pub(crate) fn ca(name: &str) -> CertificateAndKey {
    ca_living(name, DEFAULT_VALIDITY)
}

/// Creates a self-signed CA. `validity` is the start and the end of its validity period, in seconds
/// from now.
pub(crate) fn ca_living(name: &str, validity: (i64, i64)) -> CertificateAndKey {
    CertificateAndKey::sign(ca_template(&[("CN", name)], validity), None)
}

/// Creates a self-signed CA with this name and key.
pub(crate) fn ca_with(name: &X509NameRef, key: PKey<Private>) -> CertificateAndKey {
    CertificateAndKey::sign_named(ca_template(&[], DEFAULT_VALIDITY), name, key, None)
}

fn ca_template<'a>(subject: &'a [(&'a str, &'a str)], validity: (i64, i64)) -> Template<'a> {
    Template {
        subject,
        validity,
        ca: true,
        server: false,
    }
}

impl CertificateAndKey {
    /// Issues a client certificate for a subject such as `&[("CN", "jane"), ("O", "dev")]`.
    pub(crate) fn client(&self, subject: &[(&str, &str)]) -> Self {
        self.client_living(subject, DEFAULT_VALIDITY)
    }

    /// Issues a client certificate with the subject `name`.
    pub(crate) fn client_named(&self, name: &X509NameRef) -> Self {
        let template = Template {
            subject: &[],
            validity: DEFAULT_VALIDITY,
            ca: false,
            server: false,
        };
        Self::sign_named(template, name, new_key(), Some(self))
    }

    /// Issues a client certificate. `validity` is the start and the end of its validity period, in
    /// seconds from now.
    pub(crate) fn client_living(&self, subject: &[(&str, &str)], validity: (i64, i64)) -> Self {
        let template = Template {
            subject,
            validity,
            ca: false,
            server: false,
        };
        Self::sign(template, Some(self))
    }

    /// Issues a certificate that is valid for servers only. A server must refuse the certificate if
    /// a client presents it.
    pub(crate) fn server(&self, name: &str) -> Self {
        let template = Template {
            subject: &[("CN", name)],
            validity: DEFAULT_VALIDITY,
            ca: false,
            server: true,
        };
        Self::sign(template, Some(self))
    }

    /// Issues the certificate of an intermediate CA.
    pub(crate) fn intermediate(&self, name: &str) -> Self {
        let template = Template {
            subject: &[("CN", name)],
            validity: DEFAULT_VALIDITY,
            ca: true,
            server: false,
        };
        Self::sign(template, Some(self))
    }
}
