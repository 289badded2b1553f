//! Serves the objects of the demo to get, list and watch requests, as a kube-apiserver does. So
//! `kubectl get vm -A` works, and the plugin can check if a namespace exists. The server also answers
//! the dry run of an eviction, so `kubectl ifo impact` works.

use super::columns::{COLUMNS, RULE_SET_COLUMNS};
use super::evictions;
use super::kinds::RULE_SETS;
use super::model::{DemoModel, collection};
use super::objects::ObjectStore;
use aggregated_apiserver::serve::{
    AnyResource, Column, ErrorStatus, Resource, ResourceInfo, SelectableField,
};
use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use http::header::CONTENT_TYPE;
use http::{StatusCode, Uri};
use kube::core::DynamicObject;
use schemars::{Schema, SchemaGenerator, json_schema};

/// The only subresource that the demo serves, and only as a dry run.
const EVICTION: &str = "/api/v1/namespaces/{namespace}/pods/{name}/eviction";

/// Returns the resources of these kinds.
pub fn resources(
    kinds: &[ResourceInfo],
    objects: &ObjectStore,
    rule_sets: &ObjectStore,
) -> Vec<AnyResource> {
    let resources = kinds.iter().map(|kind| {
        if *kind == RULE_SETS {
            return resource(RULE_SETS, rule_sets, RULE_SET_COLUMNS);
        }
        resource(*kind, objects, COLUMNS)
    });
    resources.map(AnyResource::from).collect()
}

/// Returns the route of the eviction subresource.
pub fn routes(objects: ObjectStore) -> Router {
    Router::new()
        .route(EVICTION, post(evict))
        .with_state(objects)
}

type PodField = for<'a> fn(&'a DynamicObject) -> Option<&'a str>;

fn resource(
    info: ResourceInfo,
    objects: &ObjectStore,
    columns: &'static [Column<DemoModel>],
) -> Resource<DemoModel> {
    let field = |path, text: PodField| (path, SelectableField::Text(text));
    let fields = match info.kind {
        "Pod" => vec![
            field("spec.nodeName", |it| it.data["spec"]["nodeName"].as_str()),
            field("status.phase", |it| it.data["status"]["phase"].as_str()),
        ],
        _ => Vec::new(),
    };
    Resource {
        columns,
        fields,
        collection: collection(&info.api_version(), info.kind),
        ..Resource::new(info, any_object, objects.reader.clone())
    }
}

/// Returns a schema that allows any object, because the demo does not know the fields of the kinds.
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
