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

/// The verbs of a user who may read one namespace.
pub(super) const READ_VERBS: [&str; 3] = ["get", "list", "watch"];

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

impl DemoUsers {
    /// Returns the user with this token.
    pub(super) fn with_token(&self, token: &[u8]) -> Option<&DemoUser> {
        self.0.iter().find(|user| user.token.as_bytes() == token)
    }
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
                let known = self.with_token(token);
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

    /// Returns true if the user may send a request with this verb in this namespace. The namespace is
    /// empty for all namespaces, and for a request about no resource.
    pub(super) fn may(&self, verb: &str, namespace: &str) -> bool {
        let is_read = READ_VERBS.contains(&verb);
        self.namespace.is_none_or(|own| own == namespace && is_read)
    }
}

impl Authorize for DemoUsers {
    fn authorize<'a>(
        &'a self,
        user: &'a User,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<AccessDecision, Undecided>> {
        let known = self.0.iter().find(|known| known.name == user.name);
        let (verb, namespace) = match attributes {
            Attributes::Resource(asked) => (asked.verb, &*asked.namespace),
            Attributes::NonResource { verb, .. } => (*verb, ""),
        };
        let decision = match known {
            Some(known) if known.may(verb, namespace) => AccessDecision::Allow,
            _ => AccessDecision::Deny {
                reason: String::new(),
            },
        };
        Box::pin(ready(Ok(decision)))
    }
}
