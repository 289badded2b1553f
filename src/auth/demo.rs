//! Authentication and authorization where there is no cluster to ask: whoever holds the
//! token is an administrator, and nobody else gets in. For a server that listens on
//! loopback only, which every user of the machine can reach.

use super::authenticate::{anonymous, bearer_token};
use super::{
    AccessDecision, Attributes, Authenticate, Authorize, PeerCertificates, Unauthenticated,
    Undecided, User,
};
use futures::future::{BoxFuture, ready};
use http::HeaderMap;
use sha2::{Digest, Sha256};

/// The group that may do everything.
const MASTERS: &str = "system:masters";

/// Takes whoever holds the token for an administrator.
#[derive(Clone)]
pub struct TokenHolder([u8; 32]);

impl TokenHolder {
    /// Knows `token` by its hash, so that comparing takes the same time whatever is sent.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }
}

impl std::fmt::Debug for TokenHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenHolder").finish_non_exhaustive()
    }
}

impl Authenticate for TokenHolder {
    fn authenticate<'a>(
        &'a self,
        _peer: &'a PeerCertificates,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<User, Unauthenticated>> {
        let user = match bearer_token(headers) {
            None => Ok(anonymous()),
            Some(token) if <[u8; 32]>::from(Sha256::digest(token)) == self.0 => Ok(User {
                name: "demo".to_owned(),
                groups: vec![MASTERS.to_owned(), "system:authenticated".to_owned()],
                ..User::default()
            }),
            Some(_) => Err(Unauthenticated),
        };
        Box::pin(ready(user))
    }
}

/// Allows everything to administrators, and nothing to anybody else.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdministratorsOnly;

impl Authorize for AdministratorsOnly {
    fn authorize<'a>(
        &'a self,
        user: &'a User,
        _attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<AccessDecision, Undecided>> {
        let decision = if user.groups.iter().any(|group| group == MASTERS) {
            AccessDecision::Allow
        } else {
            AccessDecision::Deny {
                reason: String::new(),
            }
        };
        Box::pin(ready(Ok(decision)))
    }
}
