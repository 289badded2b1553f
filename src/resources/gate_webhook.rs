//! A validating admission webhook that refuses requests while something is in flight. It has the
//! same rules as the policies in `deploy/gates`. A policy reads a cache of the kube-apiserver,
//! which can be outdated. The webhook reads the newest state. If the webhook does not answer, the
//! kube-apiserver refuses the request.
//!
//! The `ValidatingWebhookConfiguration` in `deploy/components/gate-webhook` selects the requests. For
//! example, it does not send the requests of users who are never refused.
//!
//! A kube-apiserver sends no credentials to a webhook. So the route has no authentication, and limits
//! of its own. An answer says if a namespace, a node or a component is idle, and why not, but names no
//! operation.

use super::OperationHooks;
use crate::index::{self, ReadVersion};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{StatusCode, header};
use ifo_api::activity;
use ifo_api::completeness::Gap;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

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
enum Scope<'a> {
    Namespace(&'a str),
    Node(&'a str),
    Component(&'static str),
}

impl Scope<'_> {
    /// Returns true if an operation in this scope may be missing because of the gap.
    fn is_affected(&self, gap: &Gap) -> bool {
        match self {
            Self::Namespace(name) => gap.affects(Some(name), false),
            Self::Node(_) => true,
            Self::Component(name) => gap.component.is_empty() || *gap.component == **name,
        }
    }
}

impl Request {
    /// Returns the part of the cluster that must be idle before this request.
    fn scope(&self) -> Scope<'_> {
        match &*self.resource.resource {
            "nodes" => Scope::Node(&self.name),
            "clusterversions" => Scope::Component("kubevirt"),
            "namespaces" => Scope::Namespace(&self.name),
            _ => Scope::Namespace(&self.namespace),
        }
    }

    /// Returns the status of a refusal. `kubectl drain` repeats an eviction only after a 429.
    fn refusal(&self) -> StatusCode {
        if self.sub_resource == "eviction" {
            StatusCode::TOO_MANY_REQUESTS
        } else {
            StatusCode::FORBIDDEN
        }
    }
}

/// Returns the reason why a request must be refused. Returns None if the request is admitted.
async fn reason(hooks: &OperationHooks, request: &Request) -> Option<String> {
    let scope = request.scope();
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
    let cluster = &*hooks.cluster_namespace;
    let (namespace, name, what) = match scope {
        Scope::Namespace(name) => (name, "namespace".to_owned(), format!("namespace {name}")),
        Scope::Node(name) => (cluster, format!("node.{name}"), format!("node {name}")),
        Scope::Component(name) => {
            let what = format!("component {name}");
            (cluster, format!("component.{name}"), what)
        }
    };
    let key = index::collection::ACTIVITIES.key(namespace, &*name);
    let listed = hooks
        .reader
        .list(&index::Scope::Object(key), ReadVersion::Latest);
    let entries = listed.map(|(_, entries)| entries).unwrap_or_default();
    let activity = entries.first().and_then(|entry| entry.object().activity());
    let Some(idle) = activity.and_then(|activity| activity.idle()) else {
        return unknown(&format!("{what} has no activity"));
    };
    if *idle.status != *"True" {
        return Some(format!("{what} is not idle ({})", idle.reason));
    }
    // While the evaluation of rules takes long, the index does not have the newest gaps.
    let gaps = (hooks.read_gaps)();
    let is_incomplete = gaps.rule_sets.iter().any(|gap| scope.is_affected(gap));
    is_incomplete.then(|| format!("{what} is not idle ({})", activity::RULE_SETS_NOT_WORKING))
}

async fn answer(hooks: &OperationHooks, body: Body) -> Result<Response, StatusCode> {
    let body = to_bytes(body, MAX_REQUEST).await;
    let body = body.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
    let review = serde_json::from_slice::<AdmissionReview>(&body);
    let request = review.map_err(|_| StatusCode::BAD_REQUEST)?.request;
    let mut response = json!({"uid": request.uid, "allowed": true});
    if let Some(message) = reason(hooks, &request).await {
        let code = request.refusal();
        let reason = match code {
            StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
            _ => "Forbidden",
        };
        response["allowed"] = json!(false);
        response["status"] = json!({"code": code.as_u16(), "reason": reason, "message": message});
    }
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response,
    });
    let content_type = [(header::CONTENT_TYPE, "application/json")];
    Ok((content_type, review.to_string()).into_response())
}

/// Creates the route of the webhook.
pub fn routes(hooks: Arc<OperationHooks>) -> Router {
    let slots = Arc::new(Semaphore::new(MAX_REQUESTS));
    let answer = move |request: http::Request<Body>| {
        let (hooks, slots) = (Arc::clone(&hooks), Arc::clone(&slots));
        async move {
            let answer = async {
                let _slot = slots.acquire().await;
                answer(&hooks, request.into_body()).await
            };
            match tokio::time::timeout(TIMEOUT, answer).await {
                Ok(answer) => answer.unwrap_or_else(IntoResponse::into_response),
                Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            }
        }
    };
    Router::new().route(PATH, post(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scope_of_a_request_depends_on_its_resource_and_only_evictions_can_be_repeated() {
        for (resource, sub_resource, scope, code) in [
            ("pods", "eviction", Scope::Namespace("a"), 429),
            ("virtualmachinesnapshots", "", Scope::Namespace("a"), 403),
            ("namespaces", "", Scope::Namespace("n"), 403),
            ("nodes", "", Scope::Node("n"), 403),
            ("clusterversions", "", Scope::Component("kubevirt"), 403),
        ] {
            let request = json!({
                "uid": "u", "resource": {"group": "", "version": "v1", "resource": resource},
                "subResource": sub_resource, "name": "n", "namespace": "a", "object": {"spec": 1},
            });
            let request: Request = serde_json::from_value(request).expect("the request is valid");
            assert_eq!(request.scope(), scope);
            assert_eq!(request.refusal().as_u16(), code, "{resource}");
        }
    }
}
