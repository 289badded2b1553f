//! Authorizes requests with `SubjectAccessReview` requests to the kube-apiserver. Decisions are
//! cached for 10 seconds.

use super::review_cache::{Reviews, digest};
use super::{AccessDecision, Attributes, Authorize, Undecided, User};
use crate::metrics::Metrics;
use futures::future::BoxFuture;
use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, Client};
use serde_json::json;

/// Maximum number of cached decisions. A full cache evicts the least recently used decision. The
/// next request that needs this decision causes a new review.
///
/// Each combination of user and attributes (such as verb, namespace and selector) has its own
/// decision. A decision takes about 400 bytes, so 4,096 decisions take 1.6 MB.
const MAX_DECISIONS: u64 = 4096;

/// Maximum length of the reason of a denial, in bytes. The server truncates a longer reason before
/// it caches the decision. An authorization webhook may return a reason of any length.
const MAX_REASON: usize = 1024;

/// Authorizes requests with `SubjectAccessReview`, and caches the decisions.
#[derive(Debug)]
pub struct ClusterAuthorizer {
    pub(super) reviews: Reviews<SubjectAccessReview, AccessDecision>,
}

impl ClusterAuthorizer {
    /// Creates an authorizer that sends reviews with `client`. The user of `client` needs the
    /// `ClusterRole` `system:auth-delegator`.
    pub fn new(client: Client, metrics: &Metrics) -> Self {
        Self::with_cache_of(MAX_DECISIONS, client, metrics)
    }

    /// Creates an authorizer that caches no decisions, and sends a review for each request. Callers
    /// with their own cache, such as [`super::Decisions`], use this authorizer.
    pub fn without_cache(client: Client, metrics: &Metrics) -> Self {
        Self::with_cache_of(0, client, metrics)
    }

    fn with_cache_of(capacity: u64, client: Client, metrics: &Metrics) -> Self {
        Self {
            reviews: Reviews::new(Api::all(client), &metrics.access_reviews, capacity),
        }
    }

    async fn decide(
        &self,
        user: &User,
        attributes: &Attributes,
    ) -> Result<AccessDecision, Undecided> {
        // As in Kubernetes' own extension API servers, requests of administrators are allowed
        // without a review. So administrators have access even if an authorization webhook is down.
        if user.is_administrator() {
            return Ok(AccessDecision::Allow);
        }
        let encoding = |error| Undecided(format!("cannot encode the review: {error}"));
        let request = SubjectAccessReview {
            spec: review_spec(user, attributes).map_err(encoding)?,
            ..SubjectAccessReview::default()
        };
        let text = serde_json::to_vec(&request.spec).map_err(encoding)?;
        let key = digest([text.as_slice()]);
        self.reviews
            .ask(key, &request, decision)
            .await
            .map_err(|why| Undecided(format!("cannot authorize: {}", why.0)))
    }
}

impl Authorize for ClusterAuthorizer {
    fn authorize<'a>(
        &'a self,
        user: &'a User,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<AccessDecision, Undecided>> {
        Box::pin(self.decide(user, attributes))
    }
}

/// Returns the content of a review.
fn review_spec(
    user: &User,
    attributes: &Attributes,
) -> serde_json::Result<SubjectAccessReviewSpec> {
    let mut spec = json!({
        "user": user.name,
        "uid": user.uid,
        "groups": user.groups,
        "extra": user.extra,
    });
    match attributes {
        Attributes::Resource(attributes) => spec["resourceAttributes"] = json!(attributes),
        Attributes::NonResource { path, verb } => {
            spec["nonResourceAttributes"] = json!({"path": path, "verb": verb});
        }
    }
    serde_json::from_value(spec)
}

/// Returns the decision in an answered review. Access is allowed if the answer has `allowed: true`
/// and not `denied: true`. Otherwise access is denied.
fn decision(answer: SubjectAccessReview) -> AccessDecision {
    let status = answer.status.unwrap_or_default();
    if status.allowed && status.denied != Some(true) {
        return AccessDecision::Allow;
    }
    let mut reason = status.reason.unwrap_or_default();
    reason.truncate(reason.floor_char_boundary(MAX_REASON));
    AccessDecision::Deny { reason }
}
