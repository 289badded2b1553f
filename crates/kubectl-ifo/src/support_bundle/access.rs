//! Checks the access rights of the server (`ifo-apiserver`) and of the user, for a support bundle.
//! The kube-apiserver reviews the rights of the server's ServiceAccount with a
//! `SubjectAccessReview`, and the rights of the user with a `SelfSubjectAccessReview`.
//!
//! The server needs the rights in the shipped roles (`deploy/rbac`). For each rule set, the server
//! also needs the rights to list and watch its target (the watched resource).

use super::SERVER_NAME;
use super::limits::REVIEWS;
use super::redact::Redactor;
use super::send_requests::{BundleClient, FetchFailure};
use futures::StreamExt as _;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The shipped roles of the server.
const ROLES: &str = include_str!("../../../../deploy/rbac/server.yaml");

/// Largest number of concurrent reviews. Further reviews wait.
const CONCURRENCY: usize = 16;

/// A right: a verb on a resource, or on a URL path such as `/peer`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CheckedRight {
    verb: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

impl CheckedRight {
    fn on(verb: &str, group: &str, resource: &str, namespace: Option<&str>) -> Self {
        Self {
            verb: verb.to_owned(),
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            name: None,
            namespace: namespace.map(str::to_owned),
            path: None,
        }
    }

    /// Returns the part of a review's `spec` that describes this right.
    fn attributes(&self) -> Value {
        if let Some(path) = &self.path {
            return json!({"nonResourceAttributes": {"path": path, "verb": self.verb}});
        }
        let resource = self.resource.as_deref().unwrap_or_default();
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        json!({"resourceAttributes": {
            "verb": self.verb, "group": self.group, "resource": resource,
            "subresource": subresource, "name": self.name, "namespace": self.namespace,
        }})
    }
}

/// The result of one review.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewedRight {
    #[serde(flatten)]
    right: CheckedRight,
    /// None if the review failed.
    allowed: Option<bool>,
    /// The reason or the error in the answer, or the error of the request.
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

/// The results of the reviews.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AccessReport {
    /// The reviewed service account.
    server: String,
    /// The rights that the server lacks.
    missing: Vec<CheckedRight>,
    server_rights: Vec<ReviewedRight>,
    user_rights: Vec<ReviewedRight>,
}

/// The outcome of all reviews.
pub(super) struct ReviewOutcome {
    pub(super) report: AccessReport,
    /// The first failed review of a right of the server. None if all of these reviews succeeded.
    pub(super) server_failure: Option<FetchFailure>,
    /// The first failed review of a right of the user. None if all of these reviews succeeded.
    pub(super) user_failure: Option<FetchFailure>,
    /// True if the server needs more than [`REVIEWS`] rights. The further rights were not reviewed.
    pub(super) is_truncated: bool,
}

/// Returns the rights that a server in `namespace` needs, except for the rights to list and watch
/// targets.
pub(super) fn shipped_rights(namespace: &str) -> BTreeSet<CheckedRight> {
    let documents = ifo_client::manifest::documents(ROLES, false)
        .expect("the tests parse the shipped manifest, too");
    let mut rights = BTreeSet::new();
    for document in documents {
        let namespace = match document["kind"].as_str() {
            Some("ClusterRole") => None,
            Some("Role") => Some(namespace),
            _ => continue,
        };
        let rules: Vec<PolicyRule> =
            serde_json::from_value(document["rules"].clone()).unwrap_or_default();
        for rule in rules {
            add_rule(&mut rights, &rule, namespace);
        }
    }
    // The shipped manifest also binds the server to two roles that are part of Kubernetes:
    // `system:auth-delegator` and `extension-apiserver-authentication-reader`. The rights in these
    // roles are not in the manifest, so this code adds the rights that the server uses.
    for resource in ["tokenreviews", "subjectaccessreviews"] {
        let group = if resource == "tokenreviews" {
            "authentication"
        } else {
            "authorization"
        };
        rights.insert(CheckedRight::on(
            "create",
            &format!("{group}.k8s.io"),
            resource,
            None,
        ));
    }
    for verb in ["get", "list", "watch"] {
        let mut right = CheckedRight::on(verb, "", "configmaps", Some("kube-system"));
        right.name = Some("extension-apiserver-authentication".to_owned());
        rights.insert(right);
    }
    rights
}

fn add_rule(rights: &mut BTreeSet<CheckedRight>, rule: &PolicyRule, namespace: Option<&str>) {
    let names = rule.resource_names.clone().unwrap_or_default();
    let names: Vec<Option<String>> = if names.is_empty() {
        vec![None]
    } else {
        names.into_iter().map(Some).collect()
    };
    for verb in &rule.verbs {
        for path in rule.non_resource_urls.iter().flatten() {
            rights.insert(CheckedRight {
                path: Some(path.clone()),
                group: None,
                resource: None,
                ..CheckedRight::on(verb, "", "", None)
            });
        }
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for name in &names {
                    let mut right = CheckedRight::on(verb, group, resource, namespace);
                    right.name.clone_from(name);
                    rights.insert(right);
                }
            }
        }
    }
}

/// Returns the rights to list and watch the targets of rule sets.
pub(super) fn target_rights(rule_sets: &[Value]) -> BTreeSet<CheckedRight> {
    let mut rights = BTreeSet::new();
    for rule_set in rule_sets {
        let target = &rule_set["spec"]["target"];
        let Some(resource) = target["resource"].as_str() else {
            continue;
        };
        let group = target["group"].as_str().unwrap_or_default();
        let namespaces = rule_set["spec"]["namespaces"].as_array();
        let mut namespaces: Vec<Option<&str>> = namespaces
            .into_iter()
            .flatten()
            .map(Value::as_str)
            .collect();
        if namespaces.is_empty() {
            namespaces.push(None);
        }
        for namespace in namespaces {
            for verb in ["list", "watch"] {
                rights.insert(CheckedRight::on(verb, group, resource, namespace));
            }
        }
    }
    rights
}

/// Returns the rights that the user needs for a complete bundle.
fn user_rights(namespace: &str) -> BTreeSet<CheckedRight> {
    let here = Some(namespace);
    [
        CheckedRight::on("list", "live.ifo.kubevirt.io", "inflightoperations", None),
        CheckedRight::on("list", "live.ifo.kubevirt.io", "operationrecords", None),
        CheckedRight::on("list", "ifo.kubevirt.io", "operationrulesets", None),
        CheckedRight::on("get", "apiregistration.k8s.io", "apiservices", None),
        CheckedRight::on(
            "get",
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            None,
        ),
        CheckedRight::on(
            "create",
            "authorization.k8s.io",
            "subjectaccessreviews",
            None,
        ),
        CheckedRight::on("list", "apps", "deployments", here),
        CheckedRight::on("list", "", "pods", here),
        CheckedRight::on("get", "", "pods/log", here),
        CheckedRight::on("get", "", "pods/proxy", here),
        CheckedRight::on("get", "", "services/proxy", here),
        CheckedRight::on("list", "", "events", here),
        CheckedRight::on("get", "coordination.k8s.io", "leases", here),
        CheckedRight::on("list", "policy", "poddisruptionbudgets", here),
    ]
    .into()
}

/// Reviews the rights of the server and of the user. `account` is the name of the server's
/// ServiceAccount. None stands for the default name ([`SERVER_NAME`]).
pub(super) async fn review(
    client: &BundleClient,
    redactor: &Redactor,
    namespace: &str,
    account: Option<&str>,
    rule_sets: &[Value],
) -> ReviewOutcome {
    let account = account.unwrap_or(SERVER_NAME);
    let user = format!("system:serviceaccount:{namespace}:{account}");
    let mut rights = shipped_rights(namespace);
    rights.extend(target_rights(rule_sets));
    let is_truncated = rights.len() > REVIEWS;
    let rights: Vec<CheckedRight> = rights.into_iter().take(REVIEWS).collect();
    let groups = json!([
        "system:authenticated",
        "system:serviceaccounts",
        format!("system:serviceaccounts:{namespace}"),
    ]);
    let of_server = |right: &CheckedRight| {
        let mut spec = right.attributes();
        spec["user"] = json!(user);
        spec["groups"] = groups.clone();
        review_of("SubjectAccessReview", &spec)
    };
    let of_user = |right: &CheckedRight| review_of("SelfSubjectAccessReview", &right.attributes());
    let (mut server_failure, mut user_failure) = (None, None);
    let server_rights = send_all(client, rights, &of_server, &mut server_failure).await;
    let own = user_rights(namespace).into_iter().collect();
    let user_rights = send_all(client, own, &of_user, &mut user_failure).await;
    let hide = |reviewed: Vec<ReviewedRight>| {
        let hidden = reviewed.into_iter().map(|mut it| {
            it.message = redactor.text(&it.message);
            it.right.namespace = it.right.namespace.map(|it| redactor.name(&it));
            it
        });
        hidden.collect::<Vec<_>>()
    };
    let server_rights = hide(server_rights);
    let missing = server_rights.iter().filter(|it| it.allowed == Some(false));
    ReviewOutcome {
        report: AccessReport {
            server: redactor.name(&user),
            missing: missing.map(|it| it.right.clone()).collect(),
            user_rights: hide(user_rights),
            server_rights,
        },
        server_failure,
        user_failure,
        is_truncated,
    }
}

fn review_of(kind: &str, spec: &Value) -> Value {
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec})
}

/// Sends the first review, and if it succeeds, all other reviews. If the first review fails, the
/// user probably may not create reviews, so all other reviews would fail too.
async fn send_all(
    client: &BundleClient,
    mut rights: Vec<CheckedRight>,
    review_for: &dyn Fn(&CheckedRight) -> Value,
    failure: &mut Option<FetchFailure>,
) -> Vec<ReviewedRight> {
    let rest = rights.split_off(rights.len().min(1));
    let mut reviewed = send_concurrently(client, rights, review_for, failure).await;
    if reviewed.iter().all(|it| it.allowed.is_some()) {
        reviewed.extend(send_concurrently(client, rest, review_for, failure).await);
    }
    reviewed
}

async fn send_concurrently(
    client: &BundleClient,
    rights: Vec<CheckedRight>,
    review_for: &dyn Fn(&CheckedRight) -> Value,
    failure: &mut Option<FetchFailure>,
) -> Vec<ReviewedRight> {
    let requests: Vec<(CheckedRight, Value)> = rights
        .into_iter()
        .map(|right| {
            let review = review_for(&right);
            (right, review)
        })
        .collect();
    let answers = futures::stream::iter(requests).map(async |(right, review)| {
        let plural = format!(
            "{}s",
            review["kind"].as_str().unwrap_or_default().to_lowercase()
        );
        let uri = format!("/apis/authorization.k8s.io/v1/{plural}");
        (right, client.review(&uri, &review).await)
    });
    let answers: Vec<_> = answers.buffered(CONCURRENCY).collect().await;
    let mut reviewed = Vec::new();
    for (right, answer) in answers {
        let (allowed, message) = match answer {
            Ok(answer) => {
                let status = &answer["status"];
                let text = |field: &str| status[field].as_str().unwrap_or_default();
                let message = match text("evaluationError") {
                    "" => text("reason"),
                    error => error,
                };
                (status["allowed"].as_bool(), message.to_owned())
            }
            Err(error) => {
                let message = error.message.clone();
                failure.get_or_insert(error);
                (None, message)
            }
        };
        reviewed.push(ReviewedRight {
            right,
            allowed,
            message,
        });
    }
    reviewed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rights_are_those_of_the_shipped_roles() {
        let rights = shipped_rights("here");
        let lease = |verb: &str, name: Option<&str>| {
            let mut right = CheckedRight::on(verb, "coordination.k8s.io", "leases", Some("here"));
            right.name = name.map(str::to_owned);
            right
        };
        assert!(rights.contains(&lease("update", Some("ifo-apiserver"))));
        assert!(rights.contains(&lease("create", None)));
        assert!(rights.iter().any(|it| it.path.as_deref() == Some("/peer")));
        assert!(
            rights
                .iter()
                .any(|it| it.resource.as_deref() == Some("operationrulesets/status"))
        );
        assert!(rights.len() > 20, "{rights:?}");
    }

    #[test]
    fn each_target_needs_list_and_watch() {
        let rule_sets = [json!({"spec": {
            "target": {"group": "apps", "version": "v1", "resource": "deployments"},
            "namespaces": ["a", "b"],
        }})];
        let rights = target_rights(&rule_sets);
        assert_eq!(rights.len(), 4);
        let attributes = CheckedRight::on("get", "", "pods/log", Some("a")).attributes();
        assert_eq!(attributes["resourceAttributes"]["subresource"], "log");
    }
}
