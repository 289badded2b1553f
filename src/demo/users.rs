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

/// A user of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemoUser {
    /// The user name.
    pub name: &'static str,
    /// The only namespace that the user may read. `None` for an administrator, who may do
    /// everything.
    pub namespace: Option<&'static str>,
}

/// The users of the demo, each with the hash of its token. The demo compares the hashes instead of
/// the tokens. The duration of a comparison of tokens could reveal a part of the token. The
/// duration of a comparison of hashes reveals nothing about the token.
#[derive(Clone)]
pub struct DemoUsers(Vec<([u8; 32], DemoUser)>);

impl DemoUsers {
    /// Creates the list from tokens and their users.
    pub fn new<'a>(users: impl IntoIterator<Item = (&'a str, DemoUser)>) -> Self {
        let users = users.into_iter();
        Self(users.map(|(token, user)| (hash(token), user)).collect())
    }
}

fn hash(token: impl AsRef<[u8]>) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// Prints the users without their tokens.
impl std::fmt::Debug for DemoUsers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(_, user)| user))
            .finish()
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
                let hash = hash(token);
                let known = self.0.iter().find(|(known_hash, _)| *known_hash == hash);
                known.map(|(_, user)| user.as_user()).ok_or(Unauthenticated)
            }
        };
        Box::pin(ready(user))
    }
}

impl DemoUser {
    fn as_user(self) -> User {
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

    fn may(self, asked: &Attributes) -> bool {
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
        let known = self.0.iter().find(|(_, known)| known.name == user.name);
        let decision = match known {
            Some((_, known)) if known.may(attributes) => AccessDecision::Allow,
            _ => AccessDecision::Deny {
                reason: String::new(),
            },
        };
        Box::pin(ready(Ok(decision)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aggregated_apiserver::auth::ResourceAttributes;
    use http::HeaderValue;

    const USERS: [(&str, DemoUser); 2] = [
        (
            "secret-1",
            DemoUser {
                name: "admin",
                namespace: None,
            },
        ),
        (
            "secret-2",
            DemoUser {
                name: "viewer",
                namespace: Some("team-a"),
            },
        ),
    ];

    async fn user(token: Option<&str>) -> Result<User, Unauthenticated> {
        let mut headers = HeaderMap::new();
        // In a cluster, the front proxy (a kube-apiserver that forwards requests) names users in
        // this header. The demo has no front proxy, so it must ignore the header.
        headers.insert("x-remote-user", HeaderValue::from_static("ifo-demo"));
        if let Some(token) = token {
            let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
            headers.insert("authorization", value);
        }
        let peer = PeerCertificates::default();
        DemoUsers::new(USERS).authenticate(&peer, &headers).await
    }

    async fn may(token: Option<&str>, verb: &'static str, namespace: &str) -> bool {
        let user = user(token).await.unwrap();
        let asked = Attributes::Resource(ResourceAttributes {
            verb,
            group: "live.ifo.kubevirt.io".to_owned(),
            version: "v1alpha1".to_owned(),
            resource: "inflightoperations".to_owned(),
            namespace: namespace.to_owned(),
            ..ResourceAttributes::default()
        });
        let decision = DemoUsers::new(USERS).authorize(&user, &asked).await;
        decision.unwrap() == AccessDecision::Allow
    }

    #[tokio::test]
    async fn the_administrator_may_do_everything_and_the_viewer_may_read_one_namespace() {
        let (admin, viewer) = (Some("secret-1"), Some("secret-2"));
        for (token, verb, namespace, expected) in [
            (admin, "list", "", true),
            (admin, "list", "team-b", true),
            (viewer, "list", "team-a", true),
            (viewer, "watch", "team-a", true),
            (viewer, "list", "", false),
            (viewer, "list", "team-b", false),
            (viewer, "create", "team-a", false),
            (None, "list", "team-a", false),
        ] {
            let allowed = may(token, verb, namespace).await;
            assert_eq!(allowed, expected, "{token:?} {verb} {namespace:?}");
        }
        assert!(user(Some("guessed")).await.is_err());
        assert_eq!(user(None).await.unwrap().name, "system:anonymous");
    }

    #[tokio::test]
    async fn a_viewer_may_read_no_path_outside_the_resources() {
        let viewer = user(Some("secret-2")).await.unwrap();
        let metrics = Attributes::NonResource {
            path: "/metrics".to_owned(),
            verb: "get",
        };
        let decision = DemoUsers::new(USERS).authorize(&viewer, &metrics).await;
        assert_ne!(decision.unwrap(), AccessDecision::Allow);
    }

    #[test]
    fn debugging_the_users_shows_no_token() {
        let shown = format!("{:?}", DemoUsers::new(USERS));
        assert!(
            shown.contains("viewer") && !shown.contains("secret"),
            "{shown}"
        );
    }
}
