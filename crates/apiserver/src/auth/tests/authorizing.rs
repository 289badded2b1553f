//! Tests which `SubjectAccessReview`s the authorizer sends, how often it sends them, and what it
//! decides.

use super::super::testing::Cluster;
use super::super::{
    AccessDecision, Attributes, Authorize, ClusterAuthorizer, ResourceAttributes, SelectorOperator,
    SelectorRequirement, User,
};
use crate::metrics::Metrics;
use http::Method;
use serde_json::json;
use std::time::Duration;

fn jane() -> User {
    User {
        name: "jane".to_owned(),
        uid: Some("7".to_owned()),
        groups: vec!["dev".to_owned(), "system:authenticated".to_owned()],
        extra: [("scope".to_owned(), vec!["a".to_owned()])].into(),
    }
}

fn list(namespace: &str) -> Attributes {
    Attributes::Resource(ResourceAttributes {
        verb: "list",
        group: "live.ifo.kubevirt.io".to_owned(),
        version: "v1alpha1".to_owned(),
        resource: "inflightoperations".to_owned(),
        namespace: namespace.to_owned(),
        ..ResourceAttributes::default()
    })
}

fn path(path: &str) -> Attributes {
    Attributes::NonResource {
        path: path.to_owned(),
        verb: "get",
    }
}

/// Returns a cluster that allows only requests in the namespace `ns`.
fn cluster() -> Cluster {
    Cluster::reviewing(|question| {
        if question["spec"]["resourceAttributes"]["namespace"] == "ns" {
            (201, json!({"allowed": true}))
        } else {
            (201, json!({"allowed": false, "reason": "no role"}))
        }
    })
}

#[tokio::test]
async fn the_review_has_all_attributes_of_the_request() {
    let cluster = cluster();
    let authorizer = ClusterAuthorizer::new(cluster.client(), &Metrics::default());
    let mut what = list("ns");
    if let Attributes::Resource(list) = &mut what {
        list.field_selector.requirements.push(SelectorRequirement {
            key: "spec.operation".to_owned(),
            operator: SelectorOperator::In,
            values: vec!["Migrating".to_owned()],
        });
        list.label_selector.requirements.push(SelectorRequirement {
            key: "app".to_owned(),
            operator: SelectorOperator::Exists,
            values: Vec::new(),
        });
    }
    let decision = authorizer.authorize(&jane(), &what).await.unwrap();
    assert_eq!(decision, AccessDecision::Allow);
    let asked = cluster.seen(&Method::POST);
    assert_eq!(
        asked[0].path,
        "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    );
    assert_eq!(
        asked[0].body["spec"],
        json!({
            "user": "jane", "uid": "7",
            "groups": ["dev", "system:authenticated"],
            "extra": {"scope": ["a"]},
            "resourceAttributes": {
                "verb": "list", "group": "live.ifo.kubevirt.io", "version": "v1alpha1",
                "resource": "inflightoperations", "namespace": "ns", "name": "", "subresource": "",
                "fieldSelector": {"requirements": [
                    {"key": "spec.operation", "operator": "In", "values": ["Migrating"]}]},
                "labelSelector": {"requirements": [
                    {"key": "app", "operator": "Exists", "values": []}]},
            },
        })
    );
}

#[tokio::test]
async fn a_denial_carries_the_reason() {
    let authorizer = ClusterAuthorizer::new(cluster().client(), &Metrics::default());
    for what in [list("elsewhere"), list(""), path("/metrics")] {
        let decision = authorizer.authorize(&jane(), &what).await.unwrap();
        let reason = "no role".to_owned();
        assert_eq!(decision, AccessDecision::Deny { reason });
    }
}

#[tokio::test]
async fn a_review_that_is_allowed_and_denied_is_denied() {
    let cluster = Cluster::reviewing(|_| (201, json!({"allowed": true, "denied": true})));
    let authorizer = ClusterAuthorizer::new(cluster.client(), &Metrics::default());
    let decision = authorizer.authorize(&jane(), &list("ns")).await.unwrap();
    assert!(matches!(decision, AccessDecision::Deny { .. }));
}

#[tokio::test]
async fn system_masters_are_allowed_without_a_review() {
    let cluster = cluster();
    let authorizer = ClusterAuthorizer::new(cluster.client(), &Metrics::default());
    let mut admin = jane();
    admin.groups.push("system:masters".to_owned());
    let allowed = authorizer.authorize(&admin, &list("elsewhere")).await;
    assert_eq!(allowed.unwrap(), AccessDecision::Allow);
    assert!(cluster.seen(&Method::POST).is_empty());
}

#[tokio::test]
async fn allowed_and_denied_decisions_are_cached_for_ten_seconds() {
    let cluster = cluster();
    let authorizer = ClusterAuthorizer::new(cluster.client(), &Metrics::default());
    for (at, what) in [list("ns"), list("elsewhere")].iter().enumerate() {
        for _ in 0..3 {
            authorizer.authorize(&jane(), what).await.unwrap();
        }
        assert_eq!(cluster.seen(&Method::POST).len(), at + 1);
    }
    let policy = authorizer.reviews.answers.policy();
    assert_eq!(policy.time_to_live(), Some(Duration::from_secs(10)));
    assert_eq!(policy.max_capacity(), Some(4096));
}

#[tokio::test]
async fn a_decision_is_not_shared_between_different_requests() {
    let cluster = cluster();
    let authorizer = ClusterAuthorizer::new(cluster.client(), &Metrics::default());
    let mut other = jane();
    other.extra.clear();
    let mut third = jane();
    third.groups.pop();
    for user in [jane(), other, third] {
        authorizer.authorize(&user, &list("ns")).await.unwrap();
    }
    authorizer.authorize(&jane(), &list("")).await.unwrap();
    assert_eq!(cluster.seen(&Method::POST).len(), 4);
}

#[tokio::test]
async fn concurrent_equal_requests_share_one_review() {
    let cluster = cluster();
    let authorizer = ClusterAuthorizer::new(cluster.client(), &Metrics::default());
    let (user, what) = (jane(), list("ns"));
    let all = (0..50).map(|_| authorizer.authorize(&user, &what));
    for decision in futures::future::join_all(all).await {
        assert_eq!(decision.unwrap(), AccessDecision::Allow);
    }
    assert_eq!(cluster.seen(&Method::POST).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_review_that_the_kube_apiserver_throttles_is_retried() {
    let cluster = cluster();
    for code in [503, 429, 500] {
        cluster.refuse(Method::POST, "subjectaccessreviews", code);
    }
    let authorizer = ClusterAuthorizer::new(cluster.client(), &Metrics::default());
    let decision = authorizer.authorize(&jane(), &list("ns")).await.unwrap();
    assert_eq!(decision, AccessDecision::Allow);
    assert_eq!(cluster.seen(&Method::POST).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_no_decision_is_cached() {
    let cluster = cluster();
    cluster.refuse(Method::POST, "subjectaccessreviews", 403);
    let authorizer = ClusterAuthorizer::new(cluster.client(), &Metrics::default());
    let (user, what) = (jane(), list("ns"));
    let error = authorizer.authorize(&user, &what).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot authorize: refused with 403 (a ClusterRoleBinding must grant the ClusterRole \
         system:auth-delegator to the ServiceAccount of this server)"
    );
    assert!(authorizer.authorize(&user, &what).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_review_without_an_answer_times_out_after_ten_seconds() {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>(
        )
    });
    let authorizer =
        ClusterAuthorizer::new(kube::Client::new(service, "default"), &Metrics::default());
    let start = tokio::time::Instant::now();
    assert!(authorizer.authorize(&jane(), &list("ns")).await.is_err());
    assert_eq!(start.elapsed().as_secs(), 10);
}
