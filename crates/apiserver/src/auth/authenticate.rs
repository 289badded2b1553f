//! Authenticates requests in a cluster. The credentials are the client certificate of the TLS
//! handshake and the headers of the request. The result is a user in the group
//! `system:authenticated`, the user `system:anonymous`, or a refusal.
//!
//! The authenticator tries these methods in the order of Kubernetes' delegated authentication, and
//! returns the first user that it finds:
//!
//! 1. Front proxy: the kube-apiserver forwards a request, and names the user in headers.
//! 2. Client certificate.
//! 3. Bearer token.
//!
//! A request without credentials is anonymous. If the client certificate is invalid and the request
//! has no token, the authenticator refuses the request.

use super::review_cache::{Reviews, digest};
use super::{Authenticate, AuthenticationConfig, PeerCertificates, Unauthenticated, User};
use crate::metrics::Metrics;
use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use http::{HeaderMap, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{Api, Client};
use std::sync::Arc;

/// The user of a request without credentials.
pub const ANONYMOUS_USER: &str = "system:anonymous";
const AUTHENTICATED_GROUP: &str = "system:authenticated";
const UNAUTHENTICATED_GROUP: &str = "system:unauthenticated";

/// Maximum number of cached reviews of tokens, including invalid tokens. A full cache evicts the
/// review of a token, and the server reviews this token again at its next use. Only a few clients,
/// such as metrics scrapers, send tokens. Most requests come through the front proxy.
const MAX_TOKENS: u64 = 1024;

/// How the server recognizes requests of other replicas. The tokens of these requests are valid
/// only for a special audience, so the kube-apiserver does not accept these tokens.
#[derive(Clone, Copy, Debug)]
pub struct Peers {
    /// The header that marks a request of another replica. Any client can send this header, so the
    /// server also authorizes the user.
    pub header: &'static str,
    /// The audience of the tokens in requests of other replicas.
    pub audience: &'static str,
}

/// Authenticates clients with the CAs of a cluster and with `TokenReview` requests.
#[derive(Debug)]
pub struct ClusterAuthenticator {
    trust: Arc<ArcSwap<AuthenticationConfig>>,
    peers: Option<Peers>,
    reviews: Reviews<TokenReview, Option<User>>,
}

impl ClusterAuthenticator {
    /// Creates an authenticator, which verifies certificates with the current content of `trust`
    /// and sends token reviews with `client`. `peers` is None for a server with one replica.
    pub fn new(
        client: Client,
        trust: Arc<ArcSwap<AuthenticationConfig>>,
        peers: Option<Peers>,
        metrics: &Metrics,
    ) -> Self {
        Self {
            trust,
            peers,
            reviews: Reviews::new(Api::all(client), &metrics.token_reviews, MAX_TOKENS),
        }
    }

    async fn find_user(
        &self,
        peer: &PeerCertificates,
        headers: &HeaderMap,
    ) -> Result<Option<User>, Unauthenticated> {
        let mut bad_certificate = false;
        if !peer.0.is_empty() {
            let trust = self.trust.load();
            let verdict = trust.verdict(peer);
            if verdict.is_proxy
                && let Some(names) = trust.user_headers()
                && let Some(user) = names.user(headers)?
            {
                return Ok(Some(user));
            }
            if let Some(user) = &verdict.user {
                return Ok(Some(user.clone()));
            }
            bad_certificate = true;
        }
        match bearer_token(headers) {
            Some(token) => {
                let mut peers = self.peers.iter();
                let peer = peers.find(|peers| headers.contains_key(peers.header));
                let audience = peer.map(|peers| peers.audience);
                self.review(token, audience).await.map(Some)
            }
            None if bad_certificate => Err(Unauthenticated),
            None => Ok(None),
        }
    }

    /// Returns the user of a token that is valid for `audience`. If `audience` is `None`, the token
    /// must be valid for the kube-apiserver. Returns an error if the token is invalid or cannot be
    /// reviewed.
    async fn review(&self, token: &[u8], audience: Option<&str>) -> Result<User, Unauthenticated> {
        // A token that is not UTF-8 cannot be sent in the JSON of a review. Every valid token is
        // UTF-8.
        let token = str::from_utf8(token).map_err(|_| Unauthenticated)?;
        let request = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                audiences: audience.map(|audience| vec![audience.to_owned()]),
            },
            ..TokenReview::default()
        };
        let key = digest([token.as_bytes(), audience.unwrap_or_default().as_bytes()]);
        let read = |answer| user_of(answer, request.spec.audiences.as_deref());
        match self.reviews.ask(key, &request, read).await {
            Ok(user) => user.ok_or(Unauthenticated),
            Err(why) => {
                tracing::warn!(
                    error = %why.0,
                    "a bearer token could not be reviewed; the request gets a 401"
                );
                Err(Unauthenticated)
            }
        }
    }
}

impl Authenticate for ClusterAuthenticator {
    fn authenticate<'a>(
        &'a self,
        peer: &'a PeerCertificates,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<User, Unauthenticated>> {
        Box::pin(async move {
            let user = self.find_user(peer, headers).await?;
            Ok(user.map_or_else(anonymous, with_authenticated_group))
        })
    }

    fn is_front_proxy(&self, peer: &PeerCertificates) -> bool {
        !peer.0.is_empty() && self.trust.load().verdict(peer).is_proxy
    }
}

/// Returns the user of a request without credentials.
pub fn anonymous() -> User {
    User {
        name: ANONYMOUS_USER.to_owned(),
        groups: vec![UNAUTHENTICATED_GROUP.to_owned()],
        ..User::default()
    }
}

/// Adds the group `system:authenticated` to a user. Does not change the anonymous user. Does not
/// change users who already have this group or the group `system:unauthenticated`.
fn with_authenticated_group(mut user: User) -> User {
    let is_present =
        |group: &String| group == AUTHENTICATED_GROUP || group == UNAUTHENTICATED_GROUP;
    if user.name != ANONYMOUS_USER && !user.groups.iter().any(is_present) {
        user.groups.push(AUTHENTICATED_GROUP.to_owned());
    }
    user
}

/// Returns the token of an `Authorization: Bearer` header. As in Kubernetes' `bearertoken` package,
/// the header is ignored if it has another scheme, or if two spaces precede the token.
pub fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes().trim_ascii();
    let mut parts = value.splitn(3, |&byte| byte == b' ');
    let scheme = parts.next()?;
    let token = parts.next()?;
    (scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty()).then_some(token)
}

/// Returns the user in the answer to a token review. Returns `None` if the token is invalid, or if
/// the answer confirms none of the requested `audiences`. A kube-apiserver that does not support
/// audiences confirms no audience.
fn user_of(answer: TokenReview, audiences: Option<&[String]>) -> Option<User> {
    let status = answer.status?;
    if status.authenticated != Some(true) {
        return None;
    }
    let confirmed = status.audiences.unwrap_or_default();
    if audiences.is_some_and(|wanted| !wanted.iter().any(|it| confirmed.contains(it))) {
        return None;
    }
    let user = status.user?;
    Some(User {
        name: user.username.filter(|name| !name.is_empty())?,
        uid: user.uid.filter(|uid| !uid.is_empty()),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    })
}
