//! Serves `OpenAPI` documents, for `kubectl explain` and for clients that validate objects or
//! generate code. Input: the descriptions of the resources, whose schemas come from Rust types.
//! Output: these HTTP paths:
//!
//! - `/openapi/v2`: a document without schemas. `kubectl apply` and `kubectl create` request this
//!   document before they send an object. If the request fails, they send no object.
//! - `/openapi/v3`: an index of the following documents.
//! - `/openapi/v3/apis/GROUP/VERSION`: one document for each version of an API group.
//!
//! The documents are computed once, at the start.

mod paths;
mod schemas;

use super::discovery::JSON;
use crate::serve::answer::document::Document;
use crate::serve::request::negotiation::{AcceptClause, clauses};
use crate::serve::resource::AnyResource;
use axum::Router;
use axum::extract::RawQuery;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, VARY};
use http::{HeaderMap, StatusCode};
use serde_json::{Map, json};
use std::collections::BTreeMap;

/// Returns the routes of the documents. `title` is the title in the documents.
pub fn routes(title: &str, version: &str, resources: &[AnyResource]) -> Router {
    let info = json!({
        "title": title,
        "version": format!("v{}", version.trim_start_matches('v')),
    });
    let mut by_version: BTreeMap<String, Vec<&AnyResource>> = BTreeMap::new();
    for resource in resources {
        let root = resource.info.root();
        by_version.entry(root).or_default().push(resource);
    }
    let mut index = Map::new();
    let mut router = Router::new();
    for (root, resources) in by_version {
        let content = json!({
            "openapi": "3.0.0",
            "info": info,
            "paths": paths::describe(&resources),
            "components": {"schemas": schemas::describe(&resources)},
        });
        let content = Document::json(&content, JSON);
        let path = format!("/openapi/v3{root}");
        let url = format!("{path}?hash={}", content.hash());
        let name = root.trim_start_matches('/');
        index.insert(name.to_owned(), json!({"serverRelativeURL": url}));
        let answer = async move |RawQuery(query): RawQuery, headers: HeaderMap| {
            let hash = query.unwrap_or_default();
            document(&content, hash.ends_with(content.hash()), &headers)
        };
        router = router.route(&path, get(answer));
    }
    let index = Document::json(&json!({ "paths": index }), JSON);
    let answer = async move |headers: HeaderMap| document(&index, false, &headers);
    let swagger = Document::json(&json!({"swagger": "2.0", "info": info, "paths": {}}), JSON);
    let v2 = async move |headers: HeaderMap| {
        let accepted = headers.get(ACCEPT).and_then(|it| it.to_str().ok());
        if accepted.is_some_and(|it| it.replace('@', ".").contains(V2_PROTOBUF)) {
            return ([(CONTENT_TYPE, V2_PROTOBUF)], EMPTY_V2_PROTOBUF).into_response();
        }
        document(&swagger, false, &headers)
    };
    router
        .route("/openapi/v3", get(answer))
        .route("/openapi/v2", get(v2))
}

/// The media type of `/openapi/v2` in Protocol Buffers. In requests, kubectl writes `@` in place of
/// a dot. In answers, kubectl accepts only this form, with a dot.
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// A document in Protocol Buffers whose only field is the version `2.0`.
const EMPTY_V2_PROTOBUF: &[u8] = b"\n\x032.0";

/// Returns the answer with a document. If the URL has the hash of the document, the content at the
/// URL never changes. So clients may cache this answer without a time limit.
fn document(document: &Document, has_hash: bool, request: &HeaderMap) -> Response {
    if !clauses(request).iter().any(AcceptClause::allows_json) {
        return StatusCode::NOT_ACCEPTABLE.into_response();
    }
    let forever = [(CACHE_CONTROL, "public, immutable, max-age=31536000")];
    let cache = has_hash.then_some(forever);
    ([(VARY, "Accept")], cache, document.answer(request)).into_response()
}
