//! Authorizes requests with `SubjectAccessReview` requests to the kube-apiserver. Decisions are
//! cached for 10 seconds.

use super::review_cache::{self, ReviewCache, digest};
use super::{AccessDecision, Attributes, Authorize, SelectorRequirement, Undecided, User};
use crate::metrics::{Metrics, ReviewKind};
use futures::future::BoxFuture;
use k8s_openapi::api::authorization::v1::{
    FieldSelectorAttributes, LabelSelectorAttributes, NonResourceAttributes, ResourceAttributes,
    SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    FieldSelectorRequirement, LabelSelectorRequirement,
};
use kube::{Api, Client};
use std::sync::Arc;
use std::time::Duration;

/// Paths that every client may read, because kubelets probe without credentials. These are the
/// `AlwaysAllowPaths` of Kubernetes' own extension API servers. Paths below them, such as
/// `/readyz/ping`, are not public.
const PROBE_PATHS: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// Time for which a decision is cached, as in Kubernetes' delegated authorization. After an
/// administrator revokes a permission, the server still accepts it for at most this time.
const DECISION_CACHE_TTL: Duration = Duration::from_secs(10);

/// Maximum number of cached decisions. A full cache evicts its oldest decision. The next request
/// that needs this decision causes a new review.
///
/// Each combination of user and attributes (such as verb, namespace and selector) has its own
/// decision. A decision takes about 400 bytes, so 4,096 decisions take 1.6 MB.
const MAX_DECISIONS: usize = 4096;

/// Maximum length of the reason of a denial, in bytes. The server truncates a longer reason before
/// it caches the decision. An authorization webhook may return a reason of any length.
const MAX_REASON: usize = 1024;

/// Authorizes with `SubjectAccessReview`.
#[derive(Debug)]
pub struct ClusterAuthorizer {
    api: Arc<Api<SubjectAccessReview>>,
    metrics: Arc<Metrics>,
    reviews: ReviewCache<AccessDecision>,
}

impl ClusterAuthorizer {
    /// Creates an authorizer that sends reviews with `client`. The user of `client` needs the
    /// `ClusterRole` `system:auth-delegator`.
    pub fn new(client: Client, metrics: Arc<Metrics>) -> Self {
        Self {
            api: Arc::new(Api::all(client)),
            metrics,
            reviews: ReviewCache::new(DECISION_CACHE_TTL, MAX_DECISIONS),
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
        if let Attributes::NonResource { path, .. } = attributes
            && PROBE_PATHS.contains(&path.as_str())
        {
            return Ok(AccessDecision::Allow);
        }
        let request = SubjectAccessReview {
            spec: review_spec(user, attributes),
            ..SubjectAccessReview::default()
        };
        let text = serde_json::to_vec(&request.spec)
            .map_err(|error| Undecided(format!("cannot encode the review: {error}")))?;
        let (api, metrics) = (Arc::clone(&self.api), Arc::clone(&self.metrics));
        let ask = move || {
            let (api, metrics) = (Arc::clone(&api), Arc::clone(&metrics));
            let request = request.clone();
            async move {
                let answer =
                    review_cache::send(&api, &request, ReviewKind::SubjectAccess, &metrics).await?;
                Ok(decision(answer))
            }
        };
        self.reviews
            .ask(digest([text.as_slice()]), ask)
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

fn review_spec(user: &User, attributes: &Attributes) -> SubjectAccessReviewSpec {
    let mut spec = SubjectAccessReviewSpec {
        user: non_empty(&user.name),
        uid: user.uid.clone(),
        groups: (!user.groups.is_empty()).then(|| user.groups.clone()),
        extra: (!user.extra.is_empty()).then(|| user.extra.clone()),
        ..SubjectAccessReviewSpec::default()
    };
    match attributes {
        Attributes::Resource {
            verb,
            group,
            version,
            resource,
            subresource,
            namespace,
            name,
            fields,
            labels,
        } => {
            spec.resource_attributes = Some(ResourceAttributes {
                verb: non_empty(verb),
                group: non_empty(group),
                version: non_empty(version),
                resource: non_empty(resource),
                subresource: non_empty(subresource),
                namespace: non_empty(namespace),
                name: non_empty(name),
                field_selector: convert_all(fields, |requirement| FieldSelectorRequirement {
                    key: requirement.key.clone(),
                    operator: requirement.operator.to_owned(),
                    values: values(requirement),
                })
                .map(|requirements| FieldSelectorAttributes {
                    requirements: Some(requirements),
                    ..FieldSelectorAttributes::default()
                }),
                label_selector: convert_all(labels, |requirement| LabelSelectorRequirement {
                    key: requirement.key.clone(),
                    operator: requirement.operator.to_owned(),
                    values: values(requirement),
                })
                .map(|requirements| LabelSelectorAttributes {
                    requirements: Some(requirements),
                    ..LabelSelectorAttributes::default()
                }),
            });
        }
        Attributes::NonResource { path, verb } => {
            spec.non_resource_attributes = Some(NonResourceAttributes {
                path: non_empty(path),
                verb: non_empty(verb),
            });
        }
    }
    spec
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Converts the requirements. Returns `None` if there are no requirements, because an empty
/// selector is invalid in a review.
fn convert_all<T>(
    requirements: &[SelectorRequirement],
    convert: impl Fn(&SelectorRequirement) -> T,
) -> Option<Vec<T>> {
    (!requirements.is_empty()).then(|| requirements.iter().map(convert).collect())
}

fn values(requirement: &SelectorRequirement) -> Option<Vec<String>> {
    (!requirement.values.is_empty()).then(|| requirement.values.clone())
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
