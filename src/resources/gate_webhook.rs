//! A validating admission webhook that refuses requests while something is in flight. The webhook
//! has the same rules as the policies in `deploy/gates`. A policy reads a cache of the
//! kube-apiserver, which can be outdated. The webhook reads the newest state. If the webhook does
//! not answer, the kube-apiserver refuses the request.
//!
//! The `ValidatingWebhookConfiguration` in `deploy/components/gate-webhook` selects the requests. For
//! example, it does not send the requests of users who are never refused.
//!
//! A kube-apiserver sends no credentials to a webhook. So the route has no authentication, but it
//! has its own limits. An answer states whether a namespace, a node or a component is idle, and why
//! not. It does not name operations.

use super::OperationHooks;
use crate::index;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::IntoResponse;
use axum::routing::post;
use http::{StatusCode, header};
use ifo_api::activity;
use ifo_api::completeness::Gap;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower_http::timeout::TimeoutLayer;

/// The path of the webhook.
const PATH: &str = "/gate";

/// Largest request, in bytes. The kube-apiserver sends the old and the new object, and an object has
/// at most 1.5 MiB. A larger request is refused.
const MAX_REQUEST: usize = 4 << 20;

/// Largest number of requests that are read and answered at the same time. The memory of all requests
/// together is at most 16 MiB. Further requests wait.
const MAX_REQUESTS: usize = 4;

/// Time limit of a request, including the time in which it waits for others. The kube-apiserver waits
/// for at most 10 s.
const TIMEOUT: Duration = Duration::from_secs(9);

/// The fields of an `AdmissionReview` (`admission.k8s.io/v1`) that the webhook needs.
#[derive(Debug, Deserialize)]
struct AdmissionReview {
    request: Request,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    resource: RequestedResource,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Debug, Deserialize)]
struct RequestedResource {
    resource: String,
}

/// The part of the cluster that must be idle.
#[derive(Debug, PartialEq)]
struct Scope<'a> {
    /// `namespace`, `node` or `component`.
    kind: &'static str,
    name: &'a str,
}

impl Scope<'_> {
    /// Returns the key of the activity of this scope.
    fn activity(&self, cluster_namespace: &str) -> index::Key {
        match self.kind {
            "namespace" => index::collection::ACTIVITIES.key(self.name, "namespace"),
            kind => {
                let name = format!("{kind}.{}", self.name);
                index::collection::ACTIVITIES.key(cluster_namespace, name)
            }
        }
    }

    /// Returns true if an operation in this scope may be missing because of the gap.
    fn is_affected(&self, gap: &Gap) -> bool {
        match self.kind {
            "namespace" => gap.affects(Some(self.name), false),
            "component" => gap.component.is_empty() || *gap.component == *self.name,
            _ => !gap.lacks_nodes,
        }
    }
}

impl Request {
    /// Returns the part of the cluster that must be idle before this request.
    fn scope(&self) -> Scope<'_> {
        let (kind, name) = match &*self.resource.resource {
            "nodes" => ("node", &*self.name),
            "clusterversions" => ("component", "kubevirt"),
            "namespaces" => ("namespace", &*self.name),
            _ => ("namespace", &*self.namespace),
        };
        Scope { kind, name }
    }

    /// Returns the code and the reason of a refusal. `kubectl drain` repeats an eviction only after
    /// a 429.
    fn refusal(&self) -> (u16, &'static str) {
        if self.sub_resource == "eviction" {
            (429, "TooManyRequests")
        } else {
            (403, "Forbidden")
        }
    }
}

/// Returns the reason why a request must be refused. Returns None if the request is admitted.
async fn reason(hooks: &OperationHooks, scope: Scope<'_>) -> Option<String> {
    let unknown = |why: &str| {
        Some(format!(
            "it is unknown whether anything is in flight: {why}"
        ))
    };
    if !hooks.readiness.synced() {
        return unknown("the server is starting");
    }
    if !hooks.replica_status.wait_until_current().await {
        return unknown("no leader answers, or this replica lacks its newest changes");
    }
    let what = format!("{} {}", scope.kind, scope.name);
    let (_, entry) = hooks.reader.get(&scope.activity(&hooks.cluster_namespace));
    let activity = entry.as_ref().and_then(|entry| entry.object().activity());
    let Some(idle) = activity.and_then(|activity| activity.idle()) else {
        return unknown(&format!("{what} has no activity"));
    };
    if *idle.status != *"True" {
        return Some(format!("{what} is not idle ({})", idle.reason));
    }
    // A long evaluation of rules blocks the thread that writes gaps to the index. The activity in
    // the index then lacks the newest gaps, so the webhook also checks the current gaps.
    let gaps = (hooks.read_gaps)();
    let is_incomplete = gaps.rule_sets.iter().any(|gap| scope.is_affected(gap));
    is_incomplete.then(|| format!("{what} is not idle ({})", activity::RULE_SETS_NOT_WORKING))
}

async fn answer(
    State(hooks): State<Arc<OperationHooks>>,
    body: Bytes,
) -> Result<impl IntoResponse, StatusCode> {
    let review = serde_json::from_slice::<AdmissionReview>(&body);
    let request = review.map_err(|_| StatusCode::BAD_REQUEST)?.request;
    let mut response = json!({"uid": request.uid, "allowed": true});
    if let Some(message) = reason(&hooks, request.scope()).await {
        let (code, reason) = request.refusal();
        response["allowed"] = json!(false);
        response["status"] = json!({"code": code, "reason": reason, "message": message});
    }
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response,
    });
    let content_type = [(header::CONTENT_TYPE, "application/json")];
    Ok((content_type, review.to_string()))
}

/// Creates the route of the webhook.
pub fn routes(hooks: Arc<OperationHooks>) -> Router {
    // A request waits for its turn before its body is read.
    Router::new()
        .route(PATH, post(answer))
        .with_state(hooks)
        .layer(DefaultBodyLimit::max(MAX_REQUEST))
        .layer(GlobalConcurrencyLimitLayer::new(MAX_REQUESTS))
        .layer(TimeoutLayer::with_status_code(
            StatusCode::SERVICE_UNAVAILABLE,
            TIMEOUT,
        ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scope_of_a_request_depends_on_its_resource_and_only_evictions_can_be_repeated() {
        for (resource, sub_resource, kind, name, code) in [
            ("pods", "eviction", "namespace", "a", 429),
            ("virtualmachinesnapshots", "", "namespace", "a", 403),
            ("namespaces", "", "namespace", "n", 403),
            ("nodes", "", "node", "n", 403),
            ("clusterversions", "", "component", "kubevirt", 403),
        ] {
            let request = json!({
                "uid": "u", "resource": {"group": "", "version": "v1", "resource": resource},
                "subResource": sub_resource, "name": "n", "namespace": "a", "object": {"spec": 1},
            });
            let request: Request = serde_json::from_value(request).expect("the request is valid");
            assert_eq!(request.scope(), Scope { kind, name });
            assert_eq!(request.refusal().0, code, "{resource}");
        }
    }

    #[test]
    fn a_broken_rule_set_without_nodes_does_not_affect_the_cordon_of_a_node() {
        for lacks_nodes in [false, true] {
            let gap = Gap {
                rule_set: "a".into(),
                reason: "does not compile".to_owned(),
                is_being_read: false,
                component: "kubevirt".into(),
                kind: None,
                operations: Vec::new(),
                namespaces: None,
                cluster_scoped: true,
                lacks_nodes,
            };
            let affects = |kind, name| Scope { kind, name }.is_affected(&gap);
            assert_eq!(affects("node", "n"), !lacks_nodes);
            assert!(affects("namespace", "n") && affects("component", "kubevirt"));
            assert!(!affects("component", "tekton"));
        }
    }
}
