//! Tests of the `OpenAPI` documents: their paths, their schemas, caching and compression.

use crate::index::{self, Resource};
use crate::resources::{inflight_operations, operation_rule_sets};
use aggregated_apiserver::serve::VersionInfo;
use aggregated_apiserver::serve::openapi;
use axum::body::Body;
use http::StatusCode;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::Value;
use std::time::Duration;
use tower::ServiceExt as _;

const LIVE_V3: &str = "/openapi/v3/apis/live.ifo.kubevirt.io/v1alpha1";
const LIVE_OBJECT: &str = "io.kubevirt.ifo.live.v1alpha1.InFlightOperation";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

fn resources() -> Vec<Resource> {
    let bounds = index::Bounds {
        bytes: 1 << 20,
        age: Duration::from_mins(1),
    };
    let (_, live) = index::index(bounds);
    let (_, rules) = index::index(bounds);
    vec![inflight_operations(live), operation_rule_sets(rules)]
}

fn router() -> axum::Router {
    let version = VersionInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..VersionInfo::default()
    };
    openapi::routes("ifo", &version, &resources())
}

async fn send(path: &str, headers: &[(http::HeaderName, &str)]) -> Response<Body> {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    router()
        .oneshot(request.body(Body::empty()).unwrap())
        .await
        .unwrap()
}

async fn json_of(path: &str) -> Value {
    let response = send(path, &[]).await;
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap()
}

/// Collects every value below `value`, with its path.
fn collect<'a>(path: &str, value: &'a Value, found: &mut Vec<(String, &'a Value)>) {
    found.push((path.to_owned(), value));
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                collect(&format!("{path}/{key}"), value, found);
            }
        }
        Value::Array(items) => {
            for (at, value) in items.iter().enumerate() {
                collect(&format!("{path}/{at}"), value, found);
            }
        }
        _ => {}
    }
}

#[tokio::test]
async fn the_index_leads_to_the_document_of_each_group_version() {
    let index = json_of("/openapi/v3").await;
    let paths = index["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 2);
    for (name, entry) in paths {
        let url = entry["serverRelativeURL"].as_str().unwrap();
        assert!(url.starts_with(&format!("/openapi/v3/{name}?hash=")));
        let response = send(url, &[]).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(
            response.headers()[CACHE_CONTROL],
            "public, immutable, max-age=31536000"
        );
        assert_eq!(
            response.headers()[ETAG],
            format!("\"{}\"", url.split_once('=').unwrap().1)
        );
    }
}

#[tokio::test]
async fn a_request_with_a_wrong_hash_is_served_without_caching_headers() {
    for query in ["", "?hash=00", "?hash", "?x=%zz"] {
        let response = send(&format!("{LIVE_V3}{query}"), &[]).await;
        assert_eq!(response.status(), StatusCode::OK, "{query}");
        assert!(response.headers().get(CACHE_CONTROL).is_none());
    }
}

#[tokio::test]
async fn a_client_with_a_current_openapi_document_gets_304() {
    for path in ["/openapi/v3", LIVE_V3] {
        let first = send(path, &[(ACCEPT, "application/json")]).await;
        let etag = first.headers()[ETAG].to_str().unwrap().to_owned();
        let again = send(path, &[(IF_NONE_MATCH, &etag)]).await;
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{path}");
        assert_eq!(again.headers()[ETAG], etag);
        let other = send(path, &[(IF_NONE_MATCH, "\"0\"")]).await;
        assert_eq!(other.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_media_type_other_than_json_is_406_without_a_body() {
    let protobuf = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    for path in ["/openapi/v3", LIVE_V3] {
        let response = send(path, &[(ACCEPT, protobuf)]).await;
        assert_eq!(response.status(), StatusCode::NOT_ACCEPTABLE);
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        assert!(bytes.is_empty());
        for accept in [
            format!("{protobuf}, application/json"),
            "application/json;as=Table;g=meta.k8s.io;v=v1".to_owned(),
            "application/*;q=0.1".to_owned(),
        ] {
            let response = send(path, &[(ACCEPT, &accept)]).await;
            assert_eq!(response.status(), StatusCode::OK, "{accept}");
        }
    }
}

#[tokio::test]
async fn every_field_has_a_type_and_a_description() {
    for (document, root) in [
        (LIVE_V3, LIVE_OBJECT),
        (
            "/openapi/v3/apis/ifo.kubevirt.io/v1alpha1",
            "io.kubevirt.ifo.v1alpha1.OperationRuleSet",
        ),
    ] {
        let document = json_of(document).await;
        let schemas = &document["components"]["schemas"];
        for (name, schema) in schemas.as_object().unwrap() {
            assert!(schema["description"].is_string(), "{name}");
        }
        let mut found = Vec::new();
        collect("", schemas, &mut found);
        let mut fields = 0;
        for (path, value) in found.iter().filter(|(path, _)| {
            path.rsplit('/').nth(1) == Some("properties") && !path.contains("FieldsV1")
        }) {
            fields += 1;
            assert!(
                value["description"].is_string(),
                "{path} has no description"
            );
            assert!(
                value["type"].is_string() || value["allOf"][0]["$ref"].is_string(),
                "{path} has no type: {value}"
            );
        }
        assert!(fields > 40, "{fields}");
        let metadata = &schemas[root]["properties"]["metadata"];
        assert!(metadata.to_string().contains(OBJECT_META), "{metadata}");
    }
}

#[tokio::test]
async fn schemas_use_only_keywords_of_kubernetes() {
    for path in [LIVE_V3, "/openapi/v3/apis/ifo.kubevirt.io/v1alpha1"] {
        let document = json_of(path).await;
        let mut found = Vec::new();
        collect("", &document, &mut found);
        for (at, value) in found {
            let key = at.rsplit('/').next().unwrap();
            assert!(
                ![
                    "oneOf", "anyOf", "const", "$defs", "$schema", "nullable", "title"
                ]
                .contains(&key)
                    || at == "/info/title",
                "{path}{at}"
            );
            if key == "type" && value.is_string() {
                let types = ["object", "array", "string", "integer", "boolean"];
                assert!(types.contains(&value.as_str().unwrap()), "{at}: {value}");
            }
            if key == "format" {
                let formats = ["int32", "int64", "date-time"];
                assert!(formats.contains(&value.as_str().unwrap()), "{at}: {value}");
            }
            if key == "$ref" {
                let target = value.as_str().unwrap().strip_prefix('#').unwrap();
                assert!(document.pointer(target).is_some(), "{at}: {target}");
            }
        }
    }
}
