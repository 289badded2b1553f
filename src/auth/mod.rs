//! Authentication and authorization. Input: the certificates of the peer, and the headers and the
//! attributes of a request. Output: a user and a decision.
//!
//! The HTTP API uses only two traits, [`Authenticate`] and [`Authorize`]. In a cluster they are
//! [`ClusterAuthenticator`] and [`ClusterAuthorizer`], which ask the kube-apiserver, as every
//! aggregated API server does. The demo uses [`DemoUsers`] for both.
//!
//! Guarantees: a header names a user only if it arrived with the certificate of the front proxy.
//! Certificates are verified with the current CAs, and not with those at the time of the handshake.
//! Invalid credentials are refused. A request without credentials is that of [`ANONYMOUS_USER`].

mod authenticate;
mod authorize;
mod certificate;
mod demo;
mod handshake;
mod headers;
mod reviews;
mod trust;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use authenticate::{ANONYMOUS_USER, ClusterAuthenticator};
pub use authorize::ClusterAuthorizer;
pub use demo::{DemoUser, DemoUsers};
pub use handshake::client_certificate_verifier;
pub use trust::{Trust, TrustError};

use futures::future::BoxFuture;
use http::HeaderMap;
use rustls::pki_types::CertificateDer;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The certificates of the TLS peer, leaf first. Empty if the peer presented none. The peer has
/// proved that it has the private key, but no CA has been checked. The listener adds this value to
/// the extensions of each request ([`http::Extensions`]).
#[derive(Clone, Debug, Default)]
pub struct PeerCertificates(pub Arc<[CertificateDer<'static>]>);

/// A user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// Name, such as `jane` or `system:serviceaccount:ns:name`.
    pub name: String,
    /// UID, if known.
    pub uid: Option<String>,
    /// Groups, with `system:authenticated` or `system:unauthenticated`.
    pub groups: Vec<String>,
    /// Extra attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Returns true if the user is a member of `system:masters`, and so may do everything.
    pub fn is_administrator(&self) -> bool {
        self.groups.iter().any(|group| group == "system:masters")
    }
}

/// Authenticates requests.
pub trait Authenticate: Send + Sync + 'static {
    /// An error is a 401: the credentials are not valid.
    fn authenticate<'a>(
        &'a self,
        peer: &'a PeerCertificates,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<User, Unauthenticated>>;

    /// The owner of a certificate, according to the current CAs. No request is sent to the cluster.
    fn certificate_holder(&self, _peer: &PeerCertificates) -> CertificateHolder {
        CertificateHolder::Unknown
    }
}

/// The owner of a peer's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateHolder {
    /// The front proxy, which names its users in headers.
    FrontProxy,
    /// This user.
    User(User),
    /// There is no certificate, or no CA has issued it.
    Unknown,
}

/// The credentials are not valid.
#[derive(Clone, Debug, thiserror::Error)]
#[error("Unauthorized")]
pub struct Unauthenticated;

/// The attributes of a request, as in a `SubjectAccessReview`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attributes {
    /// A request for a resource.
    Resource {
        /// `get`, `list`, `watch`, `create` …
        verb: String,
        /// API group.
        group: String,
        /// API version.
        version: String,
        /// Plural resource name.
        resource: String,
        /// Subresource, or empty.
        subresource: String,
        /// Namespace, or empty for all namespaces and cluster-scoped resources.
        namespace: String,
        /// Object name, or empty.
        name: String,
        /// Requirements of the field selector, for list and watch.
        fields: Vec<SelectorRequirement>,
        /// Requirements of the label selector, for list and watch.
        labels: Vec<SelectorRequirement>,
    },
    /// A request for another path.
    NonResource {
        /// The path.
        path: String,
        /// HTTP method in lower case.
        verb: String,
    },
}

/// One requirement of a selector, as in `authorization.k8s.io/v1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SelectorRequirement {
    /// Label key or field path.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: &'static str,
    /// Values of `In` and `NotIn`.
    pub values: Vec<String>,
}

/// The decision of an authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessDecision {
    /// Allowed.
    Allow,
    /// Denied, with the reason if it is known.
    Deny {
        /// The authorizer's reason, or empty.
        reason: String,
    },
}

/// Authorizes requests.
pub trait Authorize: Send + Sync + 'static {
    /// An error means that no decision was possible (a 500).
    fn authorize<'a>(
        &'a self,
        user: &'a User,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<AccessDecision, Undecided>>;
}

/// No decision was possible.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Undecided(pub String);
