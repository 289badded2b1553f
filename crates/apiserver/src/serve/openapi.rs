//! Serves `OpenAPI` documents, for `kubectl explain` and for clients that validate objects or
//! generate code. Input: the descriptions of the resources, whose schemas come from Rust types.
//! Output: these HTTP paths:
//!
//! - `/openapi/v2`: one document for all resources.
//! - `/openapi/v3`: an index of the following documents.
//! - `/openapi/v3/apis/GROUP/VERSION`: one document for each version of an API group.
//!
//! The documents are computed once, at the start. The document of `OpenAPI` version 2 is converted
//! from the documents of `OpenAPI` version 3.

mod paths;
mod schemas;
mod v2;

use super::VersionInfo;
use super::accept_header::{AcceptClause, clauses};
use super::resource::ResourceInfo;
use super::static_document::Document;
use axum::Router;
use axum::extract::RawQuery;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, json};

const JSON: &str = "application/json";

/// The media type of documents of version 2 in protobuf.
const PROTOBUF_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// A document of version 2 in protobuf. It contains only the field `swagger`, with the value `2.0`.
const EMPTY_PROTOBUF_V2: &[u8] = b"\x0a\x032.0";

/// The start of references to schemas in a document of `OpenAPI` version 3.
const SCHEMAS_V3: &str = "#/components/schemas/";

/// A resource, and the fields that field selectors support.
pub type Documented<'a> = (&'a ResourceInfo, Vec<&'static str>);

/// Creates the routes of both versions of `OpenAPI` for `resources`.
///
/// `title` and `version` are the information about the API in the documents.
///
/// `without_cluster` is true for a server that its clients use without a kube-apiserver. Before `kubectl apply` and `kubectl create` send an object,
/// they request the document of version 2 in protobuf. In a cluster, the kube-apiserver answers this
/// request. Without a cluster, this server answers it with an empty document, so kubectl does not validate
/// the object and sends it. If this server did not answer, the user would see an error about
/// `OpenAPI`, and not that the resource is read-only.
pub fn routes(
    title: &str,
    version: &VersionInfo,
    resources: &[Documented<'_>],
    without_cluster: bool,
) -> Router {
    let info = json!({
        "title": title,
        "version": format!("v{}", version.version.trim_start_matches('v')),
    });
    let mut index = Map::new();
    let mut router = Router::new();
    let mut all_paths = Map::new();
    let mut all_schemas = Map::new();
    for group_version in group_versions(resources) {
        let resources_of_version: Vec<Documented<'_>> = resources
            .iter()
            .filter(|(resource, _)| resource.api_version() == group_version)
            .cloned()
            .collect();
        let paths = paths::describe(&resources_of_version);
        let schemas = schemas::describe(&resources_of_version);
        let document = Document::json(
            &json!({
                "openapi": "3.0.0",
                "info": info,
                "paths": paths,
                "components": {"schemas": schemas},
            }),
            JSON,
        )
        .with_gzip();
        all_paths.extend(paths);
        all_schemas.extend(schemas);
        let name = format!("apis/{group_version}");
        let path = format!("/openapi/v3/{name}");
        let url = format!("{path}?hash={}", document.hash());
        index.insert(name, json!({"serverRelativeURL": url}));
        router = router.route(
            &path,
            get(async move |RawQuery(query): RawQuery, headers: HeaderMap| {
                group_version_document(&document, query.as_deref(), &headers)
            }),
        );
    }
    let index = Document::json(&json!({"paths": index}), JSON);
    let v2 = Document::json(&v2::document(&info, &all_paths, &all_schemas), JSON).with_gzip();
    router
        .route(
            "/openapi/v3",
            get(async move |headers: HeaderMap| document(&index, &headers)),
        )
        .route(
            "/openapi/v2",
            get(async move |headers: HeaderMap| {
                if without_cluster && clauses(&headers).iter().any(AcceptClause::is_protobuf) {
                    return ([(CONTENT_TYPE, PROTOBUF_V2)], EMPTY_PROTOBUF_V2).into_response();
                }
                document(&v2, &headers)
            }),
        )
}

/// Returns the distinct `group/version` of the resources.
fn group_versions(resources: &[Documented<'_>]) -> Vec<String> {
    let mut all: Vec<String> = resources.iter().map(|it| it.0.api_version()).collect();
    all.sort();
    all.dedup();
    all
}

/// Returns the document, or a 304 if the client already has the document. If the client does not
/// accept JSON, the answer is a 406 without a body, as in the kube-apiserver. Parameters of the
/// media types in `Accept` are ignored.
fn document(document: &Document, request: &HeaderMap) -> Response {
    if !clauses(request).iter().any(AcceptClause::allows_json) {
        return StatusCode::NOT_ACCEPTABLE.into_response();
    }
    let mut response = document.answer(request);
    response
        .headers_mut()
        .append(VARY, HeaderValue::from_static("Accept"));
    response
}

/// Returns the document of one group-version. The index of documents contains the URL of this
/// document, and the URL contains the document's hash. If the request contains this hash, the
/// header `Cache-Control` allows the client to cache the document for a year.
///
/// If the hash is wrong, the kube-apiserver redirects to the right URL. This server returns the
/// document without `Cache-Control` instead. The aggregator (the part of the kube-apiserver that
/// forwards requests to this server) would turn a redirect into a 502.
fn group_version_document(this: &Document, query: Option<&str>, request: &HeaderMap) -> Response {
    let mut response = document(this, request);
    let hash = form_urlencoded::parse(query.unwrap_or_default().as_bytes())
        .find_map(|(key, value)| (key == "hash").then_some(value));
    if response.status() != StatusCode::NOT_ACCEPTABLE
        && hash.is_some_and(|hash| hash == this.hash())
    {
        // One year, as in the header `Expires` of the kube-apiserver.
        response.headers_mut().insert(
            CACHE_CONTROL,
            HeaderValue::from_static("public, immutable, max-age=31536000"),
        );
    }
    response
}
