//! Authentication in a cluster. Input: the client certificate of the TLS handshake, and the headers
//! of a request. Output: a user in `system:authenticated`, or `system:anonymous`, or a refusal.
//!
//! The methods are those of Kubernetes' delegated authentication, in the same order: front proxy,
//! client certificate, bearer token. The first method that knows the user decides. A bad credential
//! refuses the request only if no method knows the user.

use super::reviews::{self, Reviews, digest};
use super::{Authenticate, CertificateHolder, PeerCertificates, Trust, Unauthenticated, User};
use crate::replicate::peer::{AUDIENCE, TERM_HEADER};
use crate::telemetry::{Metrics, ReviewKind};
use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use http::{HeaderMap, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{Api, Client};
use std::sync::Arc;
use std::time::Duration;

/// The user of a request without credentials.
pub const ANONYMOUS_USER: &str = "system:anonymous";
const AUTHENTICATED_GROUP: &str = "system:authenticated";
const UNAUTHENTICATED_GROUP: &str = "system:unauthenticated";

/// Time for which the user of a token is cached (`CacheTTL` of upstream's delegated
/// authentication). A revoked token is accepted for at most this time.
const TOKEN_CACHE_TTL: Duration = Duration::from_secs(10);

/// Number of cached tokens, bad ones included. Most requests come through the front proxy without a
/// token. The clients with tokens, such as metrics scrapers, are few. If invented tokens replace a
/// cached token, it costs one review.
const MAX_TOKENS: usize = 1024;

/// Asks the cluster for the user of a request.
#[derive(Debug)]
pub struct ClusterAuthenticator {
    trust: Arc<ArcSwap<Trust>>,
    tokens: Arc<Api<TokenReview>>,
    metrics: Arc<Metrics>,
    /// None if the token is not valid.
    reviews: Reviews<Option<User>>,
}

impl ClusterAuthenticator {
    /// Verifies certificates with the current content of `trust`, and tokens with `client`.
    pub fn new(client: Client, trust: Arc<ArcSwap<Trust>>, metrics: Arc<Metrics>) -> Self {
        Self {
            trust,
            tokens: Arc::new(Api::all(client)),
            metrics,
            reviews: Reviews::new(TOKEN_CACHE_TTL, MAX_TOKENS),
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
                && let Some(names) = trust.headers()
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
            // Replicas authenticate with tokens that are valid only for this server.
            Some(token) if headers.contains_key(TERM_HEADER) => {
                self.review(token, Some(AUDIENCE)).await.map(Some)
            }
            Some(token) => self.review(token, None).await.map(Some),
            None if bad_certificate => Err(Unauthenticated),
            None => Ok(None),
        }
    }

    /// The user of a token for `audience`. None stands for the audience of the kube-apiserver.
    async fn review(&self, token: &[u8], audience: Option<&str>) -> Result<User, Unauthenticated> {
        // A token becomes a part of JSON, so it must be text. All real tokens are.
        let token = str::from_utf8(token).map_err(|_| Unauthenticated)?;
        let question = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                audiences: audience.map(|audience| vec![audience.to_owned()]),
            },
            ..TokenReview::default()
        };
        let (api, metrics) = (Arc::clone(&self.tokens), Arc::clone(&self.metrics));
        let ask = move || {
            let (api, metrics) = (Arc::clone(&api), Arc::clone(&metrics));
            let question = question.clone();
            async move {
                let audiences = question.spec.audiences.clone();
                let answer = reviews::send(&api, &question, ReviewKind::Token, &metrics).await?;
                Ok(user_of(answer, audiences.as_deref()))
            }
        };
        let audience = audience.unwrap_or_default().as_bytes();
        match self
            .reviews
            .ask(digest([token.as_bytes(), audience]), ask)
            .await
        {
            Ok(user) => user.ok_or(Unauthenticated),
            Err(why) => {
                tracing::warn!(error = %why.0, "token could not be reviewed");
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
            Ok(user.map_or_else(anonymous, in_authenticated))
        })
    }

    fn certificate_holder(&self, peer: &PeerCertificates) -> CertificateHolder {
        if peer.0.is_empty() {
            return CertificateHolder::Unknown;
        }
        let verdict = self.trust.load().verdict(peer);
        match &verdict.user {
            _ if verdict.is_proxy => CertificateHolder::FrontProxy,
            Some(user) => CertificateHolder::User(user.clone()),
            None => CertificateHolder::Unknown,
        }
    }
}

pub(super) fn anonymous() -> User {
    User {
        name: ANONYMOUS_USER.to_owned(),
        groups: vec![UNAUTHENTICATED_GROUP.to_owned()],
        ..User::default()
    }
}

/// Adds the group of authenticated users. The front proxy sends this group for its users, but not
/// for itself. Anonymous users stay anonymous.
fn in_authenticated(mut user: User) -> User {
    let said = |group: &String| group == AUTHENTICATED_GROUP || group == UNAUTHENTICATED_GROUP;
    if user.name != ANONYMOUS_USER && !user.groups.iter().any(said) {
        user.groups.push(AUTHENTICATED_GROUP.to_owned());
    }
    user
}

/// The token of an `Authorization: Bearer` header. Another scheme is not a credential, and neither
/// is a token after two spaces, as in Kubernetes' `bearertoken`.
pub(super) fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes().trim_ascii();
    let mut parts = value.splitn(3, |&byte| byte == b' ');
    let scheme = parts.next()?;
    let token = parts.next()?;
    (scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty()).then_some(token)
}

/// The user of an answer. None if the token is not valid for one of `audiences`. A kube-apiserver
/// that does not support audiences does not return them.
fn user_of(answer: TokenReview, audiences: Option<&[String]>) -> Option<User> {
    let status = answer.status?;
    if status.authenticated != Some(true) {
        return None;
    }
    let confirmed = status.audiences.unwrap_or_default();
    if audiences.is_some_and(|asked| !asked.iter().any(|it| confirmed.contains(it))) {
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
