//! The namespaces of the scenario, as a kube-apiserver serves them: get and list, as JSON.
//! Enters: the world, and who may read it. Leaves: the router of the server with the two
//! paths in front. The plugin checks `--namespace` against them.

use super::kinds::NAMESPACE;
use super::store::World;
use crate::auth::{Authenticate, PeerCertificates};
use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;

/// The group that may read everything.
const MASTERS: &str = "system:masters";

/// Whose namespaces, and who finds out who asks.
#[derive(Clone)]
struct Namespaces {
    world: World,
    /// The one in which operations on cluster-scoped objects are shown; the scenario has
    /// none of that name.
    own: Value,
    authenticate: Arc<dyn Authenticate>,
}

/// `router` with the namespaces of `world`, and the one in which operations on
/// cluster-scoped objects are shown.
pub fn serve(
    router: Router,
    world: World,
    cluster_operations: &str,
    authenticate: Arc<dyn Authenticate>,
) -> Router {
    let own = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": cluster_operations, "creationTimestamp": world.time().stamp()},
        "status": {"phase": "Active"},
    });
    let namespaces = Namespaces {
        world,
        own,
        authenticate,
    };
    Router::new()
        .route("/api/v1/namespaces", get(list))
        .route("/api/v1/namespaces/{name}", get(one))
        .with_state(namespaces)
        .fallback_service(router)
}

async fn list(
    State(namespaces): State<Namespaces>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    if let Err(refused) = namespaces.admit("list", &headers).await {
        return refused;
    }
    let query = query.unwrap_or_default();
    let is_on = |value: &str| !matches!(value, "0" | "false");
    if form_urlencoded::parse(query.as_bytes()).any(|(key, it)| key == "watch" && is_on(&it)) {
        return status(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the demo cannot watch namespaces",
            "",
        );
    }
    let list = json!({
        "kind": "NamespaceList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": ""},
        "items": namespaces.all(),
    });
    answer(StatusCode::OK, &list)
}

async fn one(
    State(namespaces): State<Namespaces>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    if let Err(refused) = namespaces.admit("get", &headers).await {
        return refused;
    }
    let mut all = namespaces.all().into_iter();
    match all.find(|it| it["metadata"]["name"] == name.as_str()) {
        Some(namespace) => answer(StatusCode::OK, &namespace),
        None => status(
            StatusCode::NOT_FOUND,
            "NotFound",
            &format!("namespaces {name:?} not found"),
            &name,
        ),
    }
}

impl Namespaces {
    /// Lets administrators in.
    async fn admit(&self, verb: &str, headers: &HeaderMap) -> Result<(), Response> {
        let peer = PeerCertificates::default();
        let Ok(user) = self.authenticate.authenticate(&peer, headers).await else {
            let code = StatusCode::UNAUTHORIZED;
            return Err(status(code, "Unauthorized", "Unauthorized", ""));
        };
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        let name = &user.name;
        let message = format!(
            "namespaces is forbidden: User {name:?} cannot {verb} resource \"namespaces\" in API \
             group \"\" at the cluster scope"
        );
        Err(status(StatusCode::FORBIDDEN, "Forbidden", &message, ""))
    }

    /// Those of the world, by name, and the one that the server itself uses.
    fn all(&self) -> Vec<Value> {
        let name = |it: &Value| it["metadata"]["name"].clone();
        let mut all = self.world.all(&NAMESPACE);
        if all.iter().all(|it| name(it) != name(&self.own)) {
            all.push(self.own.clone());
        }
        all
    }
}

/// A `v1` `Status` about namespaces.
fn status(code: StatusCode, reason: &str, message: &str, name: &str) -> Response {
    let mut details = json!({"kind": "namespaces"});
    if !name.is_empty() {
        details["name"] = name.into();
    }
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": details, "code": code.as_u16(),
    });
    answer(code, &status)
}

fn answer(code: StatusCode, object: &Value) -> Response {
    let json = [(CONTENT_TYPE, "application/json")];
    (code, json, object.to_string()).into_response()
}
