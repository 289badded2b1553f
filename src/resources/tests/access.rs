//! The simulated authenticator and authorizer of the tests.

use aggregated_apiserver::auth::{
    AccessDecision, Attributes, Authenticate, Authorize, PeerCertificates, Unauthenticated,
    Undecided, User,
};
use futures::future::BoxFuture;
use http::HeaderMap;
use std::sync::Mutex;

/// A simulated authenticator:
///
/// - The header `x-user` contains the name of the user.
/// - The header `x-group` contains a group of the user.
/// - A client certificate that contains the text `front-proxy` belongs to the front proxy (the
///   kube-apiserver that forwards requests).
/// - The bearer token `bad` is invalid.
/// - The verification of the bearer token `slow` never ends.
pub(super) struct HeaderAuthenticator;

impl Authenticate for HeaderAuthenticator {
    fn authenticate<'a>(
        &'a self,
        _: &'a PeerCertificates,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<User, Unauthenticated>> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap());
        let answer = if text("authorization") == Some("Bearer bad") {
            Err(Unauthenticated)
        } else {
            Ok(User {
                name: text("x-user").unwrap_or("system:anonymous").to_owned(),
                groups: text("x-group").map(str::to_owned).into_iter().collect(),
                ..User::default()
            })
        };
        let is_slow = text("authorization") == Some("Bearer slow");
        Box::pin(async move {
            if is_slow {
                std::future::pending::<()>().await;
            }
            answer
        })
    }

    fn is_front_proxy(&self, peer: &PeerCertificates) -> bool {
        let name = b"front-proxy";
        let names = |der: &[u8]| der.windows(name.len()).any(|part| part == name);
        peer.0.iter().any(|certificate| names(certificate))
    }
}

/// A simulated authorizer, which records the attributes of all requests. Its answer
/// depends on the user:
///
/// - The user `nobody` may send no request.
/// - The user `tenant` is denied access to rule sets.
/// - The answer for the user `unsure` is an error.
/// - For the user `briefly`, the first request is allowed, the second answer is an error, and
///   later requests are denied.
/// - For the user `once`, only the first request is allowed.
///
/// All other requests are allowed.
#[derive(Default)]
pub struct RecordingAuthorizer(Mutex<Vec<Attributes>>);

impl RecordingAuthorizer {
    pub fn last(&self) -> Attributes {
        self.0.lock().unwrap().last().unwrap().clone()
    }

    pub fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl Authorize for RecordingAuthorizer {
    fn authorize<'a>(
        &'a self,
        user: &'a User,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<AccessDecision, Undecided>> {
        self.0.lock().unwrap().push(attributes.clone());
        let answer = match user.name.as_str() {
            "nobody" => Ok(AccessDecision::Deny {
                reason: String::new(),
            }),
            "tenant" if is_for_rule_sets(attributes) => Ok(AccessDecision::Deny {
                reason: String::new(),
            }),
            "briefly" if self.count() == 2 => Err(Undecided("no connection".to_owned())),
            "once" if self.count() > 1 => Ok(AccessDecision::Deny {
                reason: String::new(),
            }),
            "briefly" if self.count() > 2 => Ok(AccessDecision::Deny {
                reason: String::new(),
            }),
            "unsure" => Err(Undecided("no connection".to_owned())),
            _ => Ok(AccessDecision::Allow),
        };
        Box::pin(async { answer })
    }
}

fn is_for_rule_sets(attributes: &Attributes) -> bool {
    matches!(attributes, Attributes::Resource(it) if it.resource == "operationrulesets")
}
