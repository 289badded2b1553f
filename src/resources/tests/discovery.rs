//! Tests of the discovery paths, of the choice of the media type of an answer, and of entity tags.

use crate::index;
use crate::resources::{inflight_operations, operation_rule_sets};
use aggregated_apiserver::serve::ResourceInfo;
use aggregated_apiserver::serve::discovery::{JSON, V2, V2_BETA1, routes};
use axum::body::Body;
use http::StatusCode;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::time::Duration;
use tower::ServiceExt as _;

const LIVE: &str = "live.ifo.kubevirt.io";

fn resources() -> Vec<ResourceInfo> {
    let bounds = index::Bounds {
        bytes: 1 << 20,
        age: Duration::from_mins(1),
    };
    let (_, live) = index::index(bounds);
    let (_, rules) = index::index(bounds);
    vec![
        inflight_operations(live).info,
        operation_rule_sets(rules).info,
    ]
}

async fn ask(
    served_by_other_router: Option<&[ResourceInfo]>,
    path: &str,
    headers: &[(http::HeaderName, &str)],
) -> Response<Body> {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    routes(&resources(), served_by_other_router)
        .oneshot(request.body(Body::empty()).unwrap())
        .await
        .unwrap()
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn body(response: Response<Body>) -> Value {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    assert!(bytes.ends_with(b"\n"));
    serde_json::from_slice(&bytes).unwrap()
}

/// The expected media types are the same as in kube-apiserver 1.36, with two differences:
///
/// - The kube-apiserver no longer supports v2beta1.
/// - The kube-apiserver prefers aggregated discovery, even if plain discovery has a higher weight.
#[tokio::test]
async fn the_media_type_that_the_client_prefers_is_served() {
    let v3 = V2.replace("v=v2", "v=v3");
    for (accept, content_type) in [
        (format!("text/html,{v3},{V2_BETA1},{V2}"), V2_BETA1),
        (format!("{V2_BETA1};q=0.9,{V2}"), V2),
        (format!("application/json;q=0.1,{V2}"), V2),
        (format!("{V2};q=0.1,application/json;q=0.5"), JSON),
        (format!("*/*,{V2}"), V2),
        (format!("{V2},application/json"), V2),
        (format!("{v3},application/json"), JSON),
        (V2.replace("application/json", "*/*"), V2),
        (format!("{V2};profile=nopeer;stream=watch"), V2),
        ("application/json;q=0".to_owned(), JSON),
        ("*".to_owned(), JSON),
        ("application/yaml,application/json".to_owned(), JSON),
    ] {
        let response = ask(None, "/apis", &[(ACCEPT, &accept)]).await;
        let headers = response.headers();
        assert_eq!(headers[CONTENT_TYPE], content_type, "{accept}");
        assert_eq!(headers[VARY], "Accept");
        let public = headers.get(CACHE_CONTROL).is_some();
        assert_eq!(public, content_type.contains(";as="), "{accept}");
    }
}

#[tokio::test]
async fn a_client_with_the_current_etag_gets_304() {
    let first = ask(None, "/apis", &[(ACCEPT, V2)]).await;
    let etag = first.headers()[ETAG].to_str().unwrap().to_owned();
    for known in [etag.clone(), format!("\"other\", W/{etag}")] {
        let again = ask(None, "/apis", &[(ACCEPT, V2), (IF_NONE_MATCH, &known)]).await;
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{known}");
        assert_eq!(again.headers()[ETAG], etag);
        let bytes = again.into_body().collect().await.unwrap().to_bytes();
        assert!(bytes.is_empty());
    }
    // Plain discovery is a different document, so the entity tag of aggregated discovery does not
    // match.
    let plain = ask(None, "/apis", &[(IF_NONE_MATCH, etag.as_str())]).await;
    assert_eq!(plain.status(), StatusCode::OK);
}

#[tokio::test]
async fn an_unsupported_media_type_is_406() {
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for path in ["/apis", "/apis/live.ifo.kubevirt.io/v1alpha1"] {
        for accept in [
            "application/vnd.kubernetes.protobuf",
            table,
            "text/html",
            "application/json;v=v1",
            "application/json;stream=other",
            "application/yaml;stream=watch",
        ] {
            let response = ask(None, path, &[(ACCEPT, accept)]).await;
            assert_eq!(response.status(), StatusCode::NOT_ACCEPTABLE, "{accept}");
            assert!(response.headers().get(ETAG).is_none());
            let status = text(response).await;
            assert!(status.contains("\"reason\":\"NotAcceptable\""), "{status}");
        }
    }
}

#[tokio::test]
async fn the_core_group_exists_only_in_a_server_without_a_kube_apiserver() {
    let absent = ask(None, "/api", &[]).await;
    assert_eq!(absent.status(), StatusCode::NOT_FOUND);

    let empty = ask(Some(&[]), "/api", &[]).await;
    assert_eq!(empty.status(), StatusCode::OK);
    assert_eq!(body(empty).await["versions"], json!([]));

    let aggregated = ask(Some(&[]), "/api", &[(ACCEPT, V2)]).await;
    assert_eq!(body(aggregated).await["items"], json!([]));
}

#[tokio::test]
async fn resources_of_another_router_are_listed_in_their_groups() {
    let resource = |group, plural, kind| ResourceInfo {
        group,
        version: "v1",
        plural,
        kind,
        namespaced: !group.is_empty(),
        short_names: &[],
        categories: &[],
        verbs: &["get", "list"],
    };
    let more = [
        resource("", "namespaces", "Namespace"),
        resource("apps", "deployments", "Deployment"),
    ];
    let plain = ask(Some(&more), "/api", &[]).await;
    assert_eq!(body(plain).await["versions"], json!(["v1"]));

    let core = body(ask(Some(&more), "/api/v1", &[]).await).await;
    assert_eq!(core["groupVersion"], "v1");
    assert_eq!(core["resources"][0]["name"], "namespaces");
    let apps = body(ask(Some(&more), "/apis/apps/v1", &[]).await).await;
    assert_eq!(apps["groupVersion"], "apps/v1");
    assert_eq!(apps["resources"][0]["singularName"], "deployment");

    let aggregated = ask(Some(&more), "/api", &[(ACCEPT, V2)]).await;
    let resource = body(aggregated).await["items"][0]["versions"][0]["resources"][0].clone();
    assert_eq!(resource["resource"], "namespaces");
    assert_eq!(resource["verbs"], json!(["get", "list"]));
    let aggregated = body(ask(Some(&more), "/apis", &[(ACCEPT, V2)]).await).await;
    let groups = aggregated["items"].as_array().unwrap().iter();
    let names: Vec<_> = groups.map(|group| &group["metadata"]["name"]).collect();
    assert_eq!(names, [LIVE, "ifo.kubevirt.io", "apps"]);
}
