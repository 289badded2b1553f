//! Serves the objects of the demo to get, list and watch requests, as a kube-apiserver does. So
//! `kubectl get vm -A` works, and the plugin can check if a namespace exists. The server also answers
//! the dry run of an eviction, so `kubectl ifo impact` works.

use super::columns::{COLUMNS, RULE_SET_COLUMNS};
use super::evictions;
use super::kinds::RULE_SETS;
use super::model::{DemoModel, collection};
use super::objects::ObjectStore;
use aggregated_apiserver::serve::{
    self, ErrorStatus, Resource, ResourceInfo, SelectableField, ServerParameters,
};
use axum::Router;
use axum::extract::{Path, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use http::header::CONTENT_TYPE;
use http::{StatusCode, Uri};
use kube::core::DynamicObject;
use schemars::{Schema, SchemaGenerator, json_schema};
use std::sync::Arc;
use tower::ServiceExt as _;

/// The only subresource that the demo serves, and only as a dry run.
const EVICTION: &str = "/api/v1/namespaces/{namespace}/pods/{name}/eviction";

/// Returns a router that serves the objects of these kinds, and passes all other requests to `router`.
pub fn in_front_of(
    router: Router,
    objects: &ObjectStore,
    rule_sets: &ObjectStore,
    kinds: &[ResourceInfo],
    mut server: ServerParameters,
) -> Router {
    server.routes = Router::new()
        .route(EVICTION, post(evict))
        .with_state(objects.clone());
    server.readiness.set_synced();
    let resources = kinds.iter().map(|kind| {
        if *kind == RULE_SETS {
            let columns = RULE_SET_COLUMNS;
            return Resource {
                columns,
                ..resource(RULE_SETS, rule_sets)
            };
        }
        resource(*kind, objects)
    });
    let own = serve::router(server, resources.collect());
    let paths: Arc<[String]> = kinds.iter().map(path).collect();
    router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let path = request.uri().path();
        let is_own = paths.iter().any(|own| path.starts_with(&**own));
        let own = is_own.then(|| own.clone());
        async move {
            match own {
                Some(own) => own.oneshot(request).await.into_response(),
                None => next.run(request).await,
            }
        }
    }))
}

/// Returns the beginning of the paths of the objects. The path of the discovery document does not have
/// the slash at the end.
fn path(kind: &ResourceInfo) -> String {
    let root = if kind.group.is_empty() { "api" } else { "apis" };
    format!("/{root}/{}/", kind.api_version())
}

type FieldText = for<'a> fn(&'a DynamicObject) -> Option<&'a str>;

fn resource(info: ResourceInfo, objects: &ObjectStore) -> Resource<DemoModel> {
    // As in a kube-apiserver, the access check for the Namespace object `a` has the namespace `a`.
    let namespaced = info.namespaced || info.kind == "Namespace";
    let field = |path, text: FieldText| (path, SelectableField::Text(text));
    let fields = match info.kind {
        "Pod" => vec![
            field("spec.nodeName", |it| it.data["spec"]["nodeName"].as_str()),
            field("status.phase", |it| it.data["status"]["phase"].as_str()),
        ],
        _ => Vec::new(),
    };
    Resource {
        columns: COLUMNS,
        fields,
        collection: collection(&info.api_version(), info.kind),
        ..Resource::new(
            ResourceInfo { namespaced, ..info },
            any_object,
            objects.reader.clone(),
        )
    }
}

/// Returns the schema of the kinds. No client can request it, because the other router serves `OpenAPI`.
fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object"})
}

/// Answers the dry run of an eviction.
async fn evict(
    State(objects): State<ObjectStore>,
    Path((namespace, name)): Path<(String, String)>,
    uri: Uri,
) -> Result<Response, ErrorStatus> {
    let mut options = uri.query().unwrap_or_default().split('&');
    if !options.any(|it| it == "dryRun=All") {
        return Err(ErrorStatus::not_supported("create", "", "pods"));
    }
    let pods = objects.in_namespace("v1", "Pod", &namespace);
    let mut pods = pods.iter().filter(|it| it["metadata"]["name"] == *name);
    let pod = pods.next();
    let pod = pod.ok_or_else(|| ErrorStatus::no_object("", "pods", &name))?;
    evictions::dry_run(pod, &objects)?;
    let success = r#"{"kind":"Status","apiVersion":"v1","status":"Success"}"#;
    let content_type = [(CONTENT_TYPE, "application/json")];
    Ok((StatusCode::CREATED, content_type, success).into_response())
}
