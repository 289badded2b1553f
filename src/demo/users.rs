//! Authenticates and authorizes the users of the demo, without a cluster. Each user has a token. An
//! administrator may do everything, and a viewer may read one namespace. The demo listens on
//! loopback, which every user of the host can reach. So a request without a token may read no
//! objects.

use aggregated_apiserver::auth::{
    AccessDecision, Attributes, Authenticate, Authorize, PeerCertificates, Unauthenticated,
    Undecided, User, anonymous, bearer_token,
};
use futures::future::{BoxFuture, ready};
use http::HeaderMap;
use sha2::{Digest, Sha256};

/// A user of the demo. The kubeconfig has a context with the name of each user.
pub struct DemoUser {
    /// The user name.
    pub name: &'static str,
    /// The only namespace that the user may read. `None` for an administrator, who may do
    /// everything.
    pub namespace: Option<&'static str>,
    /// The bearer token.
    pub token: String,
}

/// The users of the demo.
pub struct DemoUsers(pub Vec<DemoUser>);

/// Returns the hash of a token. The demo compares hashes, because the duration of a comparison of
/// tokens could reveal a part of the token.
fn hash(token: impl AsRef<[u8]>) -> [u8; 32] {
    Sha256::digest(token).into()
}

impl Authenticate for DemoUsers {
    fn authenticate<'a>(
        &'a self,
        _peer: &'a PeerCertificates,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<User, Unauthenticated>> {
        let user = match bearer_token(headers) {
            None => Ok(anonymous()),
            Some(token) => {
                let hash = hash(token);
                let known = self.0.iter().find(|user| self::hash(&user.token) == hash);
                known.map(DemoUser::as_user).ok_or(Unauthenticated)
            }
        };
        Box::pin(ready(user))
    }
}

impl DemoUser {
    fn as_user(&self) -> User {
        let mut groups = vec!["system:authenticated".to_owned()];
        if self.namespace.is_none() {
            groups.push("system:masters".to_owned());
        }
        User {
            name: self.name.to_owned(),
            groups,
            ..User::default()
        }
    }

    fn may(&self, asked: &Attributes) -> bool {
        match (self.namespace, asked) {
            (None, _) => true,
            (Some(_), Attributes::NonResource { .. }) => false,
            (Some(own), Attributes::Resource(asked)) => {
                asked.namespace == own && matches!(asked.verb, "get" | "list" | "watch")
            }
        }
    }
}

impl Authorize for DemoUsers {
    fn authorize<'a>(
        &'a self,
        user: &'a User,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<AccessDecision, Undecided>> {
        let known = self.0.iter().find(|known| known.name == user.name);
        let decision = match known {
            Some(known) if known.may(attributes) => AccessDecision::Allow,
            _ => AccessDecision::Deny {
                reason: String::new(),
            },
        };
        Box::pin(ready(Ok(decision)))
    }
}
