//! Asks the cluster whether a user may. Enters: a user, and what is asked for. Leaves:
//! the decision of a `SubjectAccessReview`, kept for some seconds.

use super::reviews::{Reviews, digest};
use super::{AccessDecision, Attributes, Authorize, SelectorRequirement, Undecided, User};
use futures::future::BoxFuture;
use k8s_openapi::api::authorization::v1::{
    FieldSelectorAttributes, LabelSelectorAttributes, NonResourceAttributes, ResourceAttributes,
    SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    FieldSelectorRequirement, LabelSelectorRequirement,
};
use kube::api::PostParams;
use kube::{Api, Client};
use std::sync::Arc;
use std::time::Duration;

/// Paths everybody may read: kubelets probe without credentials. Exactly these, not
/// what is below them, as upstream's `AlwaysAllowPaths` of extension servers.
const PROBES: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// How long a decision is kept, allowed or denied; upstream's numbers for delegated
/// authorization. A right that was taken away works for so much longer at most.
const KEEP: Duration = Duration::from_secs(10);

/// How many decisions are kept: one for each user, verb, namespace and selector within
/// 10 s. Each is some 400 bytes whatever was asked, so 4,096 are 1.6 MB; a burst of
/// more different questions costs reviews, not memory.
const MAX_DECISIONS: usize = 4096;

/// Longest reason that is kept and shown, in bytes; a webhook may give any.
const MAX_REASON: usize = 1024;

/// Authorizes with `SubjectAccessReview`.
#[derive(Debug)]
pub struct ClusterAuthorizer {
    api: Arc<Api<SubjectAccessReview>>,
    reviews: Reviews<AccessDecision>,
}

impl ClusterAuthorizer {
    /// Asks with `client`, whose user needs the `ClusterRole` `system:auth-delegator`.
    pub fn new(client: Client) -> Self {
        Self {
            api: Arc::new(Api::all(client)),
            reviews: Reviews::new(KEEP, MAX_DECISIONS),
        }
    }

    async fn decide(
        &self,
        user: &User,
        attributes: &Attributes,
    ) -> Result<AccessDecision, Undecided> {
        // Upstream's extension servers let them pass, too, so that an administrator gets in
        // while the webhook is down.
        if user.is_administrator() {
            return Ok(AccessDecision::Allow);
        }
        if let Attributes::NonResource { path, .. } = attributes
            && PROBES.contains(&path.as_str())
        {
            return Ok(AccessDecision::Allow);
        }
        let question = SubjectAccessReview {
            spec: question(user, attributes),
            ..SubjectAccessReview::default()
        };
        let text = serde_json::to_vec(&question.spec)
            .map_err(|error| Undecided(format!("cannot encode the review: {error}")))?;
        let api = Arc::clone(&self.api);
        let ask = move || {
            let (api, question) = (Arc::clone(&api), question.clone());
            async move {
                let answer = api.create(&PostParams::default(), &question).await?;
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

/// `None` for no requirements: an empty selector is not valid in a review.
fn each<T>(
    requirements: &[SelectorRequirement],
    one: impl Fn(&SelectorRequirement) -> T,
) -> Option<Vec<T>> {
    (!requirements.is_empty()).then(|| requirements.iter().map(one).collect())
}

fn values(requirement: &SelectorRequirement) -> Option<Vec<String>> {
    (!requirement.values.is_empty()).then(|| requirement.values.clone())
}

/// What an answer means. Denied wins over allowed; no opinion is a no.
fn decision(answer: SubjectAccessReview) -> AccessDecision {
    let status = answer.status.unwrap_or_default();
    if status.allowed && status.denied != Some(true) {
        return AccessDecision::Allow;
    }
    let mut reason = status.reason.unwrap_or_default();
    reason.truncate(reason.floor_char_boundary(MAX_REASON));
    AccessDecision::Deny { reason }
}
