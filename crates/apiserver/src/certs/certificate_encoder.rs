//! Writes certificates (X.509 version 3, RFC 5280) as DER, and signs them.
//!
//! The crate `rcgen` also writes certificates. This module does not use `rcgen`, because `rcgen`
//! does not work with every CA that previous releases of ifo accepted:
//!
//! - `rcgen` encodes the name of the CA again, and loses attributes that occur twice. The name must
//!   have the same bytes as in the certificate of the CA, because clients compare the bytes.
//! - `rcgen` panics if the type of an attribute in the name is an OID such as 2.999.1.
//! - With the crate `ring`, `rcgen` reads only keys in PKCS #8.

use super::CertsError;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::SignatureScheme;
use rustls::pki_types::{AlgorithmIdentifier, CertificateDer, alg_id};
use rustls::sign::SigningKey;
use std::net::IpAddr;
use x509_parser::oid_registry::{
    OID_X509_COMMON_NAME, OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER, OID_X509_EXT_BASIC_CONSTRAINTS,
    OID_X509_EXT_EXTENDED_KEY_USAGE, OID_X509_EXT_KEY_USAGE, OID_X509_EXT_SUBJECT_ALT_NAME,
    OID_X509_EXT_SUBJECT_KEY_IDENTIFIER, Oid,
};

/// The tags of ASN.1. The context-specific tag N has the name `CONTEXT_N`. If the content of the
/// element consists of other elements, the name is `CONTEXT_N_CONSTRUCTED`.
mod tag {
    pub(super) const BOOLEAN: u8 = 0x01;
    pub(super) const INTEGER: u8 = 0x02;
    pub(super) const BIT_STRING: u8 = 0x03;
    pub(super) const OCTET_STRING: u8 = 0x04;
    pub(super) const OID: u8 = 0x06;
    pub(super) const UTF8_STRING: u8 = 0x0c;
    pub(super) const UTC_TIME: u8 = 0x17;
    pub(super) const GENERALIZED_TIME: u8 = 0x18;
    pub(super) const SEQUENCE: u8 = 0x30;
    pub(super) const SET: u8 = 0x31;
    pub(super) const CONTEXT_0: u8 = 0x80;
    pub(super) const CONTEXT_2: u8 = 0x82;
    pub(super) const CONTEXT_7: u8 = 0x87;
    pub(super) const CONTEXT_0_CONSTRUCTED: u8 = 0xa0;
    pub(super) const CONTEXT_3_CONSTRUCTED: u8 = 0xa3;
}

/// The OID of the extended key usage of servers: 1.3.6.1.5.5.7.3.1.
const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];

/// The algorithms with which a CA can sign. Each type of key supports at most one of them.
const SIGNATURES: [(SignatureScheme, AlgorithmIdentifier); 4] = [
    (SignatureScheme::ECDSA_NISTP256_SHA256, alg_id::ECDSA_SHA256),
    (SignatureScheme::ECDSA_NISTP384_SHA384, alg_id::ECDSA_SHA384),
    (SignatureScheme::RSA_PKCS1_SHA256, alg_id::RSA_PKCS1_SHA256),
    (SignatureScheme::ED25519, alg_id::ED25519),
];

/// The fields of a certificate.
pub(super) struct CertificateFields<'a> {
    /// The subject, as DER.
    pub(super) subject: &'a [u8],
    /// The subject of the CA, as DER.
    pub(super) issuer: &'a [u8],
    /// The public key of the subject, as DER (`SubjectPublicKeyInfo`).
    pub(super) public_key: &'a [u8],
    /// The start of the validity period, in seconds since 1970.
    pub(super) not_before: i64,
    /// The end of the validity period, in seconds since 1970.
    pub(super) not_after: i64,
    pub(super) extensions: Vec<Extension>,
}

impl CertificateFields<'_> {
    /// Returns a certificate with these fields and a random serial number. The certificate is
    /// signed with `key`, which is the key of the CA.
    pub(super) fn sign(&self, key: &dyn SigningKey) -> Result<CertificateDer<'static>, CertsError> {
        let failed = |why: &dyn ToString| CertsError::Create(why.to_string());
        let signer = key.choose_scheme(&SIGNATURES.map(|(scheme, _)| scheme));
        let signer = signer.ok_or_else(|| {
            failed(&"the key of the CA supports none of the signature algorithms of this server")
        })?;
        let algorithm = SIGNATURES.iter().find(|it| it.0 == signer.scheme());
        let (_, algorithm) = algorithm.ok_or_else(|| failed(&"unknown signature algorithm"))?;
        let algorithm = element(tag::SEQUENCE, &[algorithm]);
        // The serial number is random, positive and has 20 octets, which is the maximum (RFC 5280,
        // 4.1.2.2). The first bit is 0, so the number is positive. The second bit is 1, because DER
        // does not allow an integer whose first nine bits are all 0.
        let mut serial = [0; 20];
        SystemRandom::new()
            .fill(&mut serial)
            .map_err(|_| failed(&"the system has no random numbers"))?;
        serial[0] = (serial[0] & 0x7f) | 0x40;
        // The field is the version minus one, so 2 means v3.
        let version = element(tag::INTEGER, &[&[2]]);
        let extensions = concat(self.extensions.iter().map(|it| &it.0));
        let extensions = element(tag::SEQUENCE, &[&extensions]);
        let unsigned = element(
            tag::SEQUENCE,
            &[
                &element(tag::CONTEXT_0_CONSTRUCTED, &[&version]),
                &element(tag::INTEGER, &[&serial]),
                &algorithm,
                self.issuer,
                &element(
                    tag::SEQUENCE,
                    &[&time(self.not_before)?, &time(self.not_after)?],
                ),
                self.subject,
                self.public_key,
                &element(tag::CONTEXT_3_CONSTRUCTED, &[&extensions]),
            ],
        );
        let signature = signer.sign(&unsigned).map_err(|error| failed(&error))?;
        let signature = element(tag::BIT_STRING, &[&[0], &signature]);
        Ok(element(tag::SEQUENCE, &[&unsigned, &algorithm, &signature]).into())
    }
}

/// Returns a distinguished name with the common name `name` as its only attribute, as DER.
pub(super) fn distinguished_name(name: &str) -> Vec<u8> {
    let attribute = element(
        tag::SEQUENCE,
        &[
            &oid(&OID_X509_COMMON_NAME),
            &element(tag::UTF8_STRING, &[name.as_bytes()]),
        ],
    );
    element(tag::SEQUENCE, &[&element(tag::SET, &[&attribute])])
}

/// An extension of a certificate, as DER.
pub(super) struct Extension(Vec<u8>);

impl Extension {
    fn new(id: &Oid<'_>, critical: bool, value: &[u8]) -> Self {
        let critical = if critical {
            element(tag::BOOLEAN, &[&[0xff]])
        } else {
            Vec::new()
        };
        let value = element(tag::OCTET_STRING, &[value]);
        Self(element(tag::SEQUENCE, &[&oid(id), &critical, &value]))
    }

    /// Basic constraints: the subject is a CA that can issue leaf certificates only.
    pub(super) fn ca_of_leaves() -> Self {
        let is_ca = element(tag::BOOLEAN, &[&[0xff]]);
        let path_length = element(tag::INTEGER, &[&[0]]);
        let value = element(tag::SEQUENCE, &[&is_ca, &path_length]);
        Self::new(&OID_X509_EXT_BASIC_CONSTRAINTS, true, &value)
    }

    /// Basic constraints: the subject is not a CA.
    pub(super) fn leaf() -> Self {
        let value = element(tag::SEQUENCE, &[]);
        Self::new(&OID_X509_EXT_BASIC_CONSTRAINTS, true, &value)
    }

    /// Key usage of a CA: the key may sign data, certificates and certificate revocation lists.
    pub(super) fn ca_key_usage() -> Self {
        // The first octet is the number of unused bits in the second octet: one. The second octet
        // has the bits 0 (digitalSignature), 5 (keyCertSign) and 6 (cRLSign), where bit 0 is the
        // highest.
        let value = element(tag::BIT_STRING, &[&[1, 0b1000_0110]]);
        Self::new(&OID_X509_EXT_KEY_USAGE, true, &value)
    }

    /// Key usage of a leaf: the key may sign data.
    pub(super) fn leaf_key_usage() -> Self {
        // Seven bits of the second octet are unused. Its highest bit is bit 0 (digitalSignature).
        let value = element(tag::BIT_STRING, &[&[7, 0b1000_0000]]);
        Self::new(&OID_X509_EXT_KEY_USAGE, true, &value)
    }

    /// Extended key usage: the certificate is valid for servers.
    pub(super) fn server() -> Self {
        let value = element(tag::SEQUENCE, &[&element(tag::OID, &[SERVER_AUTH])]);
        Self::new(&OID_X509_EXT_EXTENDED_KEY_USAGE, false, &value)
    }

    /// Subject alternative name: the DNS names and IP addresses of the server.
    pub(super) fn names(dns_names: &[String], ips: &[IpAddr]) -> Self {
        let dns = dns_names.iter();
        let dns = dns.map(|name| element(tag::CONTEXT_2, &[name.as_bytes()]));
        let ips = ips.iter().map(|ip| match ip {
            IpAddr::V4(ip) => element(tag::CONTEXT_7, &[&ip.octets()]),
            IpAddr::V6(ip) => element(tag::CONTEXT_7, &[&ip.octets()]),
        });
        let value = element(tag::SEQUENCE, &[&concat(dns.chain(ips))]);
        Self::new(&OID_X509_EXT_SUBJECT_ALT_NAME, false, &value)
    }

    /// Subject key identifier: the identifier of the subject's key.
    pub(super) fn subject_key(id: &[u8]) -> Self {
        let value = element(tag::OCTET_STRING, &[id]);
        Self::new(&OID_X509_EXT_SUBJECT_KEY_IDENTIFIER, false, &value)
    }

    /// Authority key identifier: the identifier of the CA's key.
    pub(super) fn authority_key(id: &[u8]) -> Self {
        let value = element(tag::SEQUENCE, &[&element(tag::CONTEXT_0, &[id])]);
        Self::new(&OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER, false, &value)
    }
}

fn oid(id: &Oid<'_>) -> Vec<u8> {
    element(tag::OID, &[id.as_bytes()])
}

/// Encodes a time in seconds since 1970. From 1950 to 2049, the year has two digits (RFC 5280,
/// 4.1.2.5).
fn time(seconds: i64) -> Result<Vec<u8>, CertsError> {
    let time = Timestamp::from_second(seconds)
        .map_err(|error| CertsError::Create(error.to_string()))?
        .to_zoned(TimeZone::UTC);
    let (tag, format) = if (1950..2050).contains(&time.year()) {
        (tag::UTC_TIME, "%y%m%d%H%M%SZ")
    } else {
        (tag::GENERALIZED_TIME, "%Y%m%d%H%M%SZ")
    };
    Ok(element(
        tag,
        &[time.strftime(format).to_string().as_bytes()],
    ))
}

fn concat<T: AsRef<[u8]>>(parts: impl Iterator<Item = T>) -> Vec<u8> {
    let mut all = Vec::new();
    for part in parts {
        all.extend_from_slice(part.as_ref());
    }
    all
}

/// Encodes an element with its tag and its length. The content is the concatenation of `parts`.
fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut element = vec![tag];
    if let Ok(short @ 0..0x80) = u8::try_from(content.len()) {
        element.push(short);
    } else {
        let length = content.len().to_be_bytes();
        let zeros = length.iter().take_while(|byte| **byte == 0).count();
        let length = &length[zeros..];
        // A length has at most 8 octets, so the conversion does not fail.
        element.push(0x80 | u8::try_from(length.len()).unwrap_or(8));
        element.extend_from_slice(length);
    }
    element.extend(content);
    element
}
