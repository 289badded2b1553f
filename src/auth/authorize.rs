//! Authorization in a cluster. Input: a user and the attributes of a request. Output: the decision
//! of a `SubjectAccessReview`, which is cached for some seconds.

use super::reviews::{self, Reviews, digest};
use super::{AccessDecision, Attributes, Authorize, SelectorRequirement, Undecided, User};
use crate::telemetry::{Metrics, ReviewKind};
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

/// Public paths, because kubelets probe without credentials. Paths below them are not public, as in
/// upstream's `AlwaysAllowPaths` of extension servers.
const PROBE_PATHS: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// Time for which a decision is cached, as in upstream's delegated authorization. A revoked right
/// is accepted for at most this time.
const DECISION_CACHE_TTL: Duration = Duration::from_secs(10);

/// Number of cached decisions: one for each user, verb, namespace and selector within 10 s. Each
/// takes some 400 bytes, so 4,096 take 1.6 MB. More different requests cost reviews and no memory.
const MAX_DECISIONS: usize = 4096;

/// Longest reason that is cached and shown, in bytes. A webhook may return any text.
const MAX_REASON: usize = 1024;

/// Authorizes with `SubjectAccessReview`.
#[derive(Debug)]
pub struct ClusterAuthorizer {
    api: Arc<Api<SubjectAccessReview>>,
    metrics: Arc<Metrics>,
    reviews: Reviews<AccessDecision>,
}

impl ClusterAuthorizer {
    /// Sends reviews with `client`, whose user needs the `ClusterRole` `system:auth-delegator`.
    pub fn new(client: Client, metrics: Arc<Metrics>) -> Self {
        Self {
            api: Arc::new(Api::all(client)),
            metrics,
            reviews: Reviews::new(DECISION_CACHE_TTL, MAX_DECISIONS),
        }
    }

    async fn decide(
        &self,
        user: &User,
        attributes: &Attributes,
    ) -> Result<AccessDecision, Undecided> {
        // Upstream's extension servers also let administrators pass, so that they get in while the
        // webhook is down.
        if user.is_administrator() {
            return Ok(AccessDecision::Allow);
        }
        if let Attributes::NonResource { path, .. } = attributes
            && PROBE_PATHS.contains(&path.as_str())
        {
            return Ok(AccessDecision::Allow);
        }
        let question = SubjectAccessReview {
            spec: question(user, attributes),
            ..SubjectAccessReview::default()
        };
        let text = serde_json::to_vec(&question.spec)
            .map_err(|error| Undecided(format!("cannot encode the review: {error}")))?;
        let (api, metrics) = (Arc::clone(&self.api), Arc::clone(&self.metrics));
        let ask = move || {
            let (api, metrics) = (Arc::clone(&api), Arc::clone(&metrics));
            let question = question.clone();
            async move {
                let answer =
                    reviews::send(&api, &question, ReviewKind::SubjectAccess, &metrics).await?;
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

fn question(user: &User, attributes: &Attributes) -> SubjectAccessReviewSpec {
    let mut spec = SubjectAccessReviewSpec {
        user: some(&user.name),
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
                verb: some(verb),
                group: some(group),
                version: some(version),
                resource: some(resource),
                subresource: some(subresource),
                namespace: some(namespace),
                name: some(name),
                field_selector: each(fields, |one| FieldSelectorRequirement {
                    key: one.key.clone(),
                    operator: one.operator.to_owned(),
                    values: values(one),
                })
                .map(|requirements| FieldSelectorAttributes {
                    requirements: Some(requirements),
                    ..FieldSelectorAttributes::default()
                }),
                label_selector: each(labels, |one| LabelSelectorRequirement {
                    key: one.key.clone(),
                    operator: one.operator.to_owned(),
                    values: values(one),
                })
                .map(|requirements| LabelSelectorAttributes {
                    requirements: Some(requirements),
                    ..LabelSelectorAttributes::default()
                }),
            });
        }
        Attributes::NonResource { path, verb } => {
            spec.non_resource_attributes = Some(NonResourceAttributes {
                path: some(path),
                verb: some(verb),
            });
        }
    }
    spec
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// None for no requirements, because an empty selector is not valid in a review.
fn each<T>(
    requirements: &[SelectorRequirement],
    one: impl Fn(&SelectorRequirement) -> T,
) -> Option<Vec<T>> {
    (!requirements.is_empty()).then(|| requirements.iter().map(one).collect())
}

fn values(requirement: &SelectorRequirement) -> Option<Vec<String>> {
    (!requirement.values.is_empty()).then(|| requirement.values.clone())
}

/// Interprets an answer. Denied wins over allowed. No opinion means no.
fn decision(answer: SubjectAccessReview) -> AccessDecision {
    let status = answer.status.unwrap_or_default();
    if status.allowed && status.denied != Some(true) {
        return AccessDecision::Allow;
    }
    let mut reason = status.reason.unwrap_or_default();
    reason.truncate(reason.floor_char_boundary(MAX_REASON));
    AccessDecision::Deny { reason }
}
