//! Tests of the negotiation and the contents of discovery, and of the `OpenAPI` document without
//! schemas. `tests/e2e/compare_with_custom_resource` compares the descriptions with those of the
//! kube-apiserver.

use super::discovery::{V2, routes};
use super::openapi;
use crate::serve::resource::ResourceInfo;
use axum::body::Body;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

const NOTES: ResourceInfo = ResourceInfo {
    short_names: &["no"],
    ..ResourceInfo::namespaced(("example.com", "v1"), "notes", "Note")
};

/// Sends a GET request to a server that serves [`NOTES`] in several versions. Returns the status code, the headers, and the body as JSON.
async fn get(path: &str, headers: &[(&str, &str)]) -> (StatusCode, HeaderMap, Value) {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::empty()).unwrap();
    let versions = ["v1alpha1", "v1beta1", "v10", "v1", "v2"];
    let resources = versions.map(|version| ResourceInfo { version, ..NOTES });
    let answer = routes(&resources).oneshot(request).await.unwrap();
    let (head, body) = answer.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    (head.status, head.headers, body)
}

#[tokio::test]
async fn the_accept_header_selects_plain_or_aggregated_discovery() {
    let old = V2.replace("v2", "v2beta1") + ",application/json";
    let both = format!("{V2},{old}");
    for (accept, content_type, version) in [
        ("*/*", "application/json", "v1"),
        ("application/json", "application/json", "v1"),
        (V2, V2, "apidiscovery.k8s.io/v2"),
        (&old, "application/json", "v1"),
        (&both, V2, "apidiscovery.k8s.io/v2"),
    ] {
        let (code, headers, body) = get("/apis", &[("accept", accept)]).await;
        assert_eq!(code, StatusCode::OK, "{accept}");
        assert_eq!(headers["content-type"], content_type, "{accept}");
        assert_eq!(headers["vary"], "Accept");
        let is_aggregated = version.starts_with("apidiscovery");
        let cached = is_aggregated.then_some("public");
        let cache = headers.get("cache-control").map(|it| it.to_str().unwrap());
        assert_eq!(cache, cached, "{accept}");
        assert_eq!(body["apiVersion"], version, "{accept}");
    }
    for path in ["/apis", "/apis/example.com", "/apis/example.com/v1"] {
        let protobuf = [("accept", "application/vnd.kubernetes.protobuf")];
        assert_eq!(get(path, &protobuf).await.0, StatusCode::NOT_ACCEPTABLE);
    }
}

#[tokio::test]
async fn a_client_that_has_the_document_gets_a_304() {
    for (path, accept) in [("/apis", V2), ("/apis/example.com/v1", "application/json")] {
        let (_, headers, _) = get(path, &[("accept", accept)]).await;
        let etag = headers["etag"].to_str().unwrap();
        let known = format!("W/\"other\", {etag}");
        let (code, headers, body) =
            get(path, &[("accept", accept), ("if-none-match", &known)]).await;
        assert_eq!((code, body), (StatusCode::NOT_MODIFIED, Value::Null));
        assert_eq!(headers["etag"], etag);
        let other = [("accept", accept), ("if-none-match", "\"other\"")];
        assert_eq!(get(path, &other).await.0, StatusCode::OK);
    }
}

#[tokio::test]
async fn plain_and_aggregated_discovery_have_the_names_of_a_resource() {
    let names = json!({
        "verbs": ["get", "list", "watch"], "shortNames": ["no"],
    });
    let (_, _, plain) = get("/apis/example.com/v1", &[]).await;
    let (_, _, aggregated) = get("/apis", &[("accept", V2)]).await;
    let aggregated = &aggregated["items"][0]["versions"][0]["resources"][0];
    assert_eq!(plain["resources"][0]["name"], "notes");
    assert_eq!(aggregated["resource"], "notes");
    for resource in [&plain["resources"][0], aggregated] {
        for (field, value) in names.as_object().unwrap() {
            assert_eq!(resource[field], *value, "{field}: {resource}");
        }
    }
}

#[tokio::test]
async fn the_versions_of_a_group_are_in_the_order_of_kubernetes() {
    let (_, _, plain) = get("/apis/example.com", &[]).await;
    assert_eq!(plain["preferredVersion"]["version"], "v10");
    let (_, _, aggregated) = get("/apis", &[("accept", V2)]).await;
    for group in [&plain, &aggregated["items"][0]] {
        let versions = group["versions"].as_array().unwrap().iter();
        let versions: Vec<&Value> = versions.map(|it| &it["version"]).collect();
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta1", "v1alpha1"]);
    }
}

/// `kubectl apply` and `kubectl create` request the document in Protocol Buffers before they send
/// an object. If the request fails, they do not send the object, and the user does not see the
/// refusal.
#[tokio::test]
async fn kubectl_gets_an_empty_document_of_openapi_v2() {
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    for (accept, expected) in [
        (protobuf, "\n\u{3}2.0"),
        ("application/json", "\"swagger\":\"2.0\""),
    ] {
        let router = openapi::routes("notes", "", &[]);
        let request = Request::get("/openapi/v2").header("accept", accept);
        let answer = router
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        // kubectl refuses a media type with `@`.
        assert_eq!(answer.headers()["content-type"], accept.replace('@', "."));
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        assert!(body.contains(expected), "{body}");
    }
}
