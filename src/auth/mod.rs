//! Who asks, and whether they may. Enters: the peer's certificates, request headers,
//! what is asked. Leaves: a user and a decision.
//!
//! Two traits, [`Authenticate`] and [`Authorize`], are all that serving knows. In a
//! cluster they are [`ClusterAuthenticator`] and [`ClusterAuthorizer`], which delegate
//! to the kube-apiserver as its own extension servers do; the demo, which has no
//! cluster, uses [`DemoUsers`] for both.
//!
//! Promises: a header names a user only if it came with the front proxy's
//! certificate; certificates are checked against the CAs of now, not those at the
//! time of the handshake; what is not understood is refused.

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

pub use authenticate::{ANONYMOUS, ClusterAuthenticator};
pub use authorize::ClusterAuthorizer;
pub use demo::{DemoUser, DemoUsers};
pub use handshake::client_certificate_verifier;
pub use trust::{Trust, TrustError};

use futures::future::BoxFuture;
use http::HeaderMap;
use rustls::pki_types::CertificateDer;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The certificates that the TLS peer presented and proved to hold the key of, leaf
/// first; empty for none. Not verified against any CA. Set as a request extension.
#[derive(Clone, Debug, Default)]
pub struct PeerCertificates(pub Arc<[CertificateDer<'static>]>);

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// Name, such as `jane` or `system:serviceaccount:ns:name`.
    pub name: String,
    /// UID, if known.
    pub uid: Option<String>,
    /// Groups, `system:authenticated` or `system:unauthenticated` included.
    pub groups: Vec<String>,
    /// Extra attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Whether the user is a member of `system:masters`, and so may do everything.
    pub fn is_administrator(&self) -> bool {
        self.groups.iter().any(|group| group == "system:masters")
    }
}

/// Finds out who asks.
pub trait Authenticate: Send + Sync + 'static {
    /// `Err` is a 401: credentials were presented and are not valid.
    fn authenticate<'a>(
        &'a self,
        peer: &'a PeerCertificates,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<User, Unauthenticated>>;

    /// Whose certificate it is, by the CAs of now. No cluster is asked.
    fn certificate_holder(&self, _peer: &PeerCertificates) -> CertificateHolder {
        CertificateHolder::Unknown
    }
}

/// Whose certificate a peer has presented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateHolder {
    /// The front proxy, which speaks for its users.
    FrontProxy,
    /// This user.
    User(User),
    /// Nobody's that a CA vouches for, or there is none.
    Unknown,
}

/// Credentials were presented and are not valid.
#[derive(Clone, Debug, thiserror::Error)]
#[error("Unauthorized")]
pub struct Unauthenticated;

/// What is asked for, as a `SubjectAccessReview` says it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attributes {
    /// Something of a resource.
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
    /// A path outside the resources.
    NonResource {
        /// The path.
        path: String,
        /// HTTP method in lower case.
        verb: String,
    },
}

/// One requirement of a selector, as `authorization.k8s.io/v1` has them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SelectorRequirement {
    /// Label key or field path.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: &'static str,
    /// Values of `In` and `NotIn`.
    pub values: Vec<String>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessDecision {
    /// Yes.
    Allow,
    /// No, and why, if that is known.
    Deny {
        /// The authorizer's reason, or empty.
        reason: String,
    },
}

/// Decides whether a user may.
pub trait Authorize: Send + Sync + 'static {
    /// `Err` when no decision could be had (a 500).
    fn authorize<'a>(
        &'a self,
        user: &'a User,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<AccessDecision, Undecided>>;
}

/// No decision could be had.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Undecided(pub String);
