//! Authenticates and authorizes requests. Input: the client certificates, the headers and the
//! attributes of a request. Output: a user and an access decision.
//!
//! The HTTP API uses only the traits [`Authenticate`] and [`Authorize`]. In a cluster,
//! [`ClusterAuthenticator`] and [`ClusterAuthorizer`] implement these traits. They send reviews
//! (`TokenReview`, `SubjectAccessReview`) to the kube-apiserver, as other aggregated API servers
//! do.
//!
//! Guarantees:
//!
//! - The server uses the user in the headers of a request only if the client has the certificate of
//!   the front proxy. The front proxy is the kube-apiserver that forwards the request.
//! - At each request, the server checks the client certificate with the CAs that are configured at
//!   this time. The server caches the verdict on a certificate for at most 1 minute. A change of
//!   the configuration removes all cached verdicts.
//! - The server tries the credentials of a request in this order: the headers of the front proxy,
//!   the client certificate, the bearer token. The first credential that gives a user determines
//!   the user of the request. So if the client certificate gives a user, the server does not review
//!   the token.
//! - If a request has a client certificate or a token, and none of them gives a user, the server
//!   refuses the request.
//! - A request without credentials has the user [`ANONYMOUS_USER`].

mod authenticate;
mod authentication_config;
mod authorize;
mod client_certificate;
mod client_certificate_verifier;
mod decisions;
mod front_proxy;
mod review_cache;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use authenticate::{ANONYMOUS_USER, ClusterAuthenticator, Peers, anonymous, bearer_token};
pub use authentication_config::{AuthenticationConfig, AuthenticationConfigError};
pub use authorize::ClusterAuthorizer;
pub use client_certificate_verifier::client_certificate_verifier;
pub use decisions::{Decisions, Period};

use futures::future::BoxFuture;
use http::HeaderMap;
use rustls::pki_types::CertificateDer;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The certificate chain of a TLS client, leaf first. The chain is empty if the client has
/// presented no certificate. The client has proved that it has the private key of the leaf. The
/// listener has not checked which CA issued the chain.
///
/// The listener adds this value to the extensions of each request ([`http::Extensions`]).
#[derive(Clone, Debug, Default)]
pub struct PeerCertificates(pub Arc<[CertificateDer<'static>]>);

/// The user of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// Name, such as `jane` or `system:serviceaccount:ns:name`.
    pub name: String,
    /// UID. `None` if the credentials contain no UID.
    pub uid: Option<String>,
    /// Groups, such as `system:authenticated` or `system:unauthenticated`.
    pub groups: Vec<String>,
    /// Extra attributes, such as scopes.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Returns true if the user is a member of `system:masters`. Members of this group may do
    /// everything.
    pub fn is_administrator(&self) -> bool {
        self.groups.iter().any(|group| group == "system:masters")
    }
}

/// Authenticates requests.
pub trait Authenticate: Send + Sync + 'static {
    /// Returns the user of a request. An error means that the credentials are invalid or cannot be
    /// verified. Then the caller answers the request with 401.
    fn authenticate<'a>(
        &'a self,
        peer: &'a PeerCertificates,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<User, Unauthenticated>>;

    /// Returns true if the client certificate belongs to the front proxy, which names the users of
    /// its requests in headers.
    fn is_front_proxy(&self, _peer: &PeerCertificates) -> bool {
        false
    }
}

/// The error for invalid credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Unauthorized")]
pub struct Unauthenticated;

/// The attributes of a request: the values from its method and its URL that determine its
/// authorization, as in a `SubjectAccessReview`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attributes {
    /// A request for a resource. Its path is below `/apis/GROUP/VERSION/`, or below `/api/VERSION/`
    /// for the core group.
    Resource(ResourceAttributes),
    /// A request for a path that names no resource, such as `/metrics`.
    NonResource {
        /// The path, percent-decoded.
        path: String,
        /// HTTP method in lower case.
        verb: &'static str,
    },
}

/// The attributes of a request for a resource. An attribute that does not apply to the request is
/// empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceAttributes {
    /// `get`, `list`, `watch`, `create` … Empty if the HTTP method, such as OPTIONS, has no
    /// Kubernetes verb.
    pub verb: &'static str,
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Subresource, such as `status`, and the rest of the path after the subresource.
    pub subresource: String,
    /// Namespace. Empty for a request in all namespaces, and for a cluster-scoped resource.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// The field selector of a list, watch or deletecollection. The parser of requests leaves it
    /// empty. The server sets it before it authorizes the request.
    #[serde(skip_serializing_if = "SelectorAttributes::is_empty")]
    pub field_selector: SelectorAttributes,
    /// The label selector of a list, watch or deletecollection. The parser of requests leaves it
    /// empty. The server sets it before it authorizes the request.
    #[serde(skip_serializing_if = "SelectorAttributes::is_empty")]
    pub label_selector: SelectorAttributes,
    /// True for the deprecated paths with `/watch/`, such as `/apis/GROUP/VERSION/watch/things`.
    #[serde(skip)]
    pub legacy_watch: bool,
}

/// The requirements of a selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct SelectorAttributes {
    /// An object must fulfil all requirements.
    pub requirements: Vec<SelectorRequirement>,
}

impl SelectorAttributes {
    /// Returns true if there are no requirements. A review must omit such a selector, because the
    /// kube-apiserver refuses a review with an empty selector.
    fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

/// One requirement of a selector, as in `authorization.k8s.io/v1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct SelectorRequirement {
    /// Label key or field path.
    pub key: String,
    /// The comparison.
    pub operator: SelectorOperator,
    /// The values for `In` and `NotIn`. For `GreaterThan` and `LessThan`, one number. Empty for
    /// `Exists` and `DoesNotExist`.
    pub values: Vec<String>,
}

/// The comparison of a [`SelectorRequirement`] with the label or the field of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum SelectorOperator {
    /// The object has one of the values.
    In,
    /// The object has none of the values, or does not have the label or the field.
    NotIn,
    /// The object has the label or the field.
    Exists,
    /// The object does not have the label or the field.
    DoesNotExist,
    /// The object has a number above the number of the requirement. Reviews do not support this
    /// operator.
    GreaterThan,
    /// The object has a number below the number of the requirement. Reviews do not support this
    /// operator.
    LessThan,
}

/// The decision of an authorizer on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessDecision {
    /// Allowed.
    Allow,
    /// Denied.
    Deny {
        /// The authorizer's reason, or empty if there is none.
        reason: String,
    },
}

/// Authorizes requests.
pub trait Authorize: Send + Sync + 'static {
    /// Decides whether `user` may send a request with these attributes. An error means that no
    /// decision was possible. Then the caller answers the request with 500.
    fn authorize<'a>(
        &'a self,
        user: &'a User,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<AccessDecision, Undecided>>;
}

/// The error of an authorizer that could not decide. The value is the reason.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Undecided(pub String);
