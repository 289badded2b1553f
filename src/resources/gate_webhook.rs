//! A validating admission webhook that refuses requests while something is in flight. It has the
//! same rules as the policies in `deploy/gates`. A policy reads a cache of the kube-apiserver,
//! which can be outdated. The webhook reads the newest state. If the webhook does not answer, the
//! kube-apiserver refuses the request.
//!
//! A kube-apiserver sends no credentials to a webhook. So the route has no authentication, and limits
//! of its own. An answer says if a namespace, a node or a component is idle, and why not, but names no
//! operation.

use super::OperationHooks;
use super::hooks::OUTDATED;
use crate::index::{self, ReadVersion};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{StatusCode, header};
use ifo_api::activity;
use ifo_api::completeness::Gap;
use serde::Deserialize;
use serde_json::{Value, json};
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

/// Members of this group are never refused.
const BREAK_GLASS: &str = "ifo:break-glass";

/// The end of the user name of KubeVirt's controller. It starts migrations to empty a node that is
/// drained. These migrations are never refused, because the eviction that causes them is itself in
/// flight.
const KUBEVIRT: &str = ":kubevirt-controller";

/// The fields of an `AdmissionReview` (`admission.k8s.io/v1`) that the webhook needs.
#[derive(Debug, Deserialize)]
struct AdmissionReview {
    request: Request,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    resource: GroupResource,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    operation: String,
    user_info: UserInfo,
    object: Option<Object>,
    old_object: Option<Object>,
}

#[derive(Debug, Deserialize)]
struct GroupResource {
    #[serde(default)]
    group: String,
    resource: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UserInfo {
    username: String,
    groups: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Object {
    spec: Spec,
}

/// The fields that start a cordon (of a Node) or an upgrade (of a `ClusterVersion`).
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    unschedulable: bool,
    desired_update: Option<Value>,
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
    /// Returns the part of the cluster that must be idle before this request. Returns None if the
    /// webhook does not refuse such requests.
    fn scope(&self) -> Option<Scope<'_>> {
        let now = self.object.as_ref().map(|object| &object.spec);
        let before = self.old_object.as_ref().map(|object| &object.spec);
        let is_cordoned = |spec: Option<&Spec>| spec.is_some_and(|it| it.unschedulable);
        let update = |spec: Option<&Spec>| spec.and_then(|it| it.desired_update.clone());
        let GroupResource { group, resource } = &self.resource;
        match (&**group, &**resource, &*self.sub_resource, &*self.operation) {
            ("", "pods", "eviction", "CREATE")
            | ("kubevirt.io", "virtualmachineinstancemigrations", "", "CREATE")
            | (
                "snapshot.kubevirt.io",
                "virtualmachinesnapshots" | "virtualmachinerestores",
                "",
                "CREATE",
            )
            | ("export.kubevirt.io", "virtualmachineexports", "", "CREATE") => {
                Some(Scope::Namespace(&self.namespace))
            }
            ("", "namespaces", "", "DELETE") => Some(Scope::Namespace(&self.name)),
            ("", "nodes", "", "UPDATE") => {
                let starts = is_cordoned(now) && !is_cordoned(before);
                starts.then_some(Scope::Node(&self.name))
            }
            ("config.openshift.io", "clusterversions", "", "UPDATE") => {
                let starts = update(now).is_some() && update(now) != update(before);
                starts.then_some(Scope::Component("kubevirt"))
            }
            _ => None,
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
    let scope = request.scope()?;
    let UserInfo { username, groups } = &request.user_info;
    let is_evacuation = request.resource.resource == "virtualmachineinstancemigrations"
        && username.ends_with(KUBEVIRT);
    if is_evacuation || groups.iter().any(|group| group == BREAK_GLASS) {
        return None;
    }
    let unknown = |why: &str| {
        Some(format!(
            "it is unknown whether anything is in flight: {why}"
        ))
    };
    if !hooks.readiness.synced() {
        return unknown("the server is starting");
    }
    hooks.replica_status.wait_until_current().await;
    if hooks.replica_status.is_stale() {
        return unknown(OUTDATED);
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

    fn request(fields: &Value) -> Request {
        let mut request = json!({
            "uid": "u", "resource": {"group": "", "version": "v1", "resource": "pods"},
            "operation": "CREATE", "userInfo": {"username": "jane"}, "object": null,
        });
        for (field, value) in fields.as_object().expect("the test passes an object") {
            request[field] = value.clone();
        }
        serde_json::from_value(request).expect("the request is valid")
    }

    #[test]
    fn only_requests_that_disturb_operations_have_a_scope() {
        let node = |before: bool, after: bool| {
            json!({
                "resource": {"resource": "nodes"}, "operation": "UPDATE", "name": "n",
                "oldObject": {"spec": {"unschedulable": before}},
                "object": {"spec": {"unschedulable": after}, "status": {"phase": 1}},
            })
        };
        let version = |before: Value, after: Value| {
            json!({
                "resource": {"group": "config.openshift.io", "resource": "clusterversions"},
                "operation": "UPDATE", "oldObject": before, "object": after,
            })
        };
        let update = json!({"spec": {"desiredUpdate": {"version": "1"}}});
        for (fields, scope) in [
            (
                json!({"subResource": "eviction", "namespace": "a"}),
                Some(Scope::Namespace("a")),
            ),
            (json!({"namespace": "a"}), None),
            (
                json!({"resource": {"resource": "namespaces"}, "operation": "DELETE", "name": "a"}),
                Some(Scope::Namespace("a")),
            ),
            (
                json!({
                    "resource": {"group": "kubevirt.io", "resource": "virtualmachineinstancemigrations"},
                    "namespace": "a",
                }),
                Some(Scope::Namespace("a")),
            ),
            (node(false, true), Some(Scope::Node("n"))),
            (node(true, true), None),
            (node(true, false), None),
            (
                version(json!({}), update.clone()),
                Some(Scope::Component("kubevirt")),
            ),
            (version(update.clone(), update.clone()), None),
            (version(update, json!({"spec": {}})), None),
        ] {
            assert_eq!(request(&fields).scope(), scope, "{fields}");
        }
    }

    #[test]
    fn only_refused_evictions_can_be_repeated() {
        assert_eq!(request(&json!({})).refusal(), StatusCode::FORBIDDEN);
        let eviction = request(&json!({"subResource": "eviction"}));
        assert_eq!(eviction.refusal(), StatusCode::TOO_MANY_REQUESTS);
    }
}
