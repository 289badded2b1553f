//! Tests of the requests for custom resources, and of the [`StoreFailure`] that each failed request
//! returns.

use super::super::store_failure::DEFAULT_RETRY_AFTER;
use super::*;
use http::StatusCode;
use ifo_api::example;
use ifo_api::persisted::InFlightOperationSpec;
use serde_json::json;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tower::service_fn;

/// The method, the URI and the body of each received request. In the test of namespaces, the third
/// member is the header `Accept` instead.
type Requests = Arc<Mutex<Vec<(Method, String, String)>>>;

/// Returns a store and the requests that its simulated kube-apiserver receives. The simulated
/// kube-apiserver gives the same answer to each request.
fn store(
    code: u16,
    retry_after: Option<&'static str>,
    body: &'static str,
) -> (ClusterStore, Requests) {
    let requests = Requests::default();
    let received = requests.clone();
    let service = service_fn(move |request: Request<Body>| {
        let received = received.clone();
        async move {
            let (parts, sent) = request.into_parts();
            let sent = sent
                .collect()
                .await
                .map(http_body_util::Collected::to_bytes);
            let sent = String::from_utf8(sent.unwrap_or_default().to_vec()).unwrap();
            received
                .lock()
                .unwrap()
                .push((parts.method, parts.uri.to_string(), sent));
            let mut answer = Response::builder().status(code);
            if let Some(after) = retry_after {
                answer = answer.header(header::RETRY_AFTER, after);
            }
            Ok::<_, Infallible>(answer.body(Body::from(body.as_bytes().to_vec())).unwrap())
        }
    });
    (ClusterStore::new(Client::new(service, "default")), requests)
}

fn cr() -> InFlightOperation {
    InFlightOperation::new(
        "a",
        InFlightOperationSpec {
            live: example::operation(&json!({})).spec,
        },
    )
}

/// The answer of a kube-apiserver to a write. It contains only the metadata of the object.
const METADATA: &str = r#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":
    {"name":"a","uid":"6f1d3b8e-52c4-5f0a-9c61-2a7e84d0b35f","resourceVersion":"42"}}"#;

fn revision() -> Revision {
    Revision {
        uid: "6f1d3b8e-52c4-5f0a-9c61-2a7e84d0b35f".parse().unwrap(),
        resource_version: "42".into(),
    }
}

#[tokio::test]
async fn writes_have_a_field_manager_and_return_the_new_state() {
    let (store, requests) = store(201, None, METADATA);
    assert_eq!(store.create(&cr()).await, Ok(revision()));
    let patch = json!({"metadata": {"resourceVersion": "41"}});
    assert_eq!(store.patch("a", &patch).await, Ok(revision()));
    let requests = requests.lock().unwrap();
    let path = "/apis/ifo.kubevirt.io/v1alpha1/inflightoperations";
    let query = "?fieldManager=ifo-persistence&fieldValidation=Strict";
    let (method, uri, sent) = &requests[0];
    assert_eq!((method, uri), (&Method::POST, &format!("{path}{query}")));
    let sent: Value = serde_json::from_str(sent).unwrap();
    assert_eq!(sent["apiVersion"], "ifo.kubevirt.io/v1alpha1");
    assert_eq!(sent["kind"], "InFlightOperation");
    let (method, uri, sent) = &requests[1];
    assert_eq!((method, uri), (&Method::PATCH, &format!("{path}/a{query}")));
    assert_eq!(*sent, patch.to_string());
}

#[tokio::test]
async fn an_answer_to_a_write_without_metadata_is_a_failure() {
    for answer in ["{}", r#"{"metadata":{"name":"a"}}"#, "<html>"] {
        let (store, _) = store(200, None, answer);
        let answer = store.create(&cr()).await;
        assert!(
            matches!(answer, Err(StoreFailure::Unreachable(..))),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn answers_are_classified_by_status_code() {
    // In this answer, `of the object` is a placeholder for a secret value, such as a label. No
    // failure may contain a secret value.
    let status = r#"{"kind":"Status","message":"said why","details":{"causes":[
        {"field":"spec.subject","message":"of the object"},{"field":"of the object"},
        {"field":"metadata.labels[of.the.object]"},{"field":"status.x: of the object"}]}}"#;
    let why = |code| {
        let code = StatusCode::from_u16(code).unwrap();
        RedactedFailure::of_answer(code, ["metadata.labels", "spec.subject"].into_iter())
    };
    for (code, retry_after, want) in [
        (404, None, StoreFailure::CrdMissing),
        // The kube-apiserver answers 405 while the CRD is being deleted.
        (405, None, StoreFailure::CrdMissing),
        (403, None, StoreFailure::Forbidden(why(403))),
        (409, None, StoreFailure::Conflict(why(409))),
        // The kube-apiserver answers 410 if the continue token has expired.
        (410, None, StoreFailure::Conflict(why(410))),
        (422, None, StoreFailure::Invalid(why(422))),
        (
            429,
            Some("7"),
            StoreFailure::Throttled(Duration::from_secs(7)),
        ),
        (429, None, StoreFailure::Throttled(DEFAULT_RETRY_AFTER)),
        (500, None, StoreFailure::Unreachable(why(500), None)),
        (
            503,
            Some("3"),
            StoreFailure::Unreachable(why(503), Some(Duration::from_secs(3))),
        ),
    ] {
        let (store, _) = store(code, retry_after, status);
        assert_eq!(store.create(&cr()).await, Err(want.clone()));
        assert!(
            !want.to_string().contains("object"),
            "{want} quotes the answer"
        );
        assert_eq!(store.patch("a", &json!({})).await, Err(want));
    }
}

/// The answer of a kube-apiserver if the requested object does not exist.
const NOT_FOUND: &str = r#"{"kind":"Status","message":"not found","reason":"NotFound","details":
    {"name":"a","group":"ifo.kubevirt.io","kind":"inflightoperations"}}"#;

#[tokio::test]
async fn a_missing_object_is_distinguished_from_a_missing_crd() {
    let (without_object, requests) = store(404, None, NOT_FOUND);
    assert_eq!(without_object.delete("a", &revision()).await, Ok(()));
    assert_eq!(without_object.get("a").await, Ok(None));
    let answer = without_object.patch("a", &json!({})).await;
    assert_eq!(answer, Err(StoreFailure::ObjectDeleted));
    assert_eq!(requests.lock().unwrap()[0].0, Method::DELETE);
    let (without_crd, _) = store(404, None, "404 page not found");
    assert_eq!(without_crd.get("a").await, Err(StoreFailure::CrdMissing));
    assert_eq!(
        without_crd.patch("a", &json!({})).await,
        Err(StoreFailure::CrdMissing)
    );
}

#[tokio::test]
async fn a_deletion_is_conditional_on_the_state_of_the_object() {
    let (store, requests) = store(200, None, "{}");
    store.delete("a", &revision()).await.unwrap();
    let sent: Value = serde_json::from_str(&requests.lock().unwrap()[0].2).unwrap();
    let want = json!({"preconditions": {
        "uid": "6f1d3b8e-52c4-5f0a-9c61-2a7e84d0b35f", "resourceVersion": "42",
    }});
    assert_eq!(sent, want);
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_is_a_failure() {
    let (store, _) = store(200, None, r#"{"metadata":{"name":"a"},"spec":{"other":1}}"#);
    let answer = store.get("a").await;
    assert!(
        matches!(answer, Err(StoreFailure::Invalid(_))),
        "{answer:?}"
    );
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_is_left_out_of_the_page() {
    let body = r#"{"metadata":{"continue":"next/page="},"items":[
        {"apiVersion":"ifo.kubevirt.io/v1alpha1","kind":"InFlightOperation",
         "metadata":{"name":"foreign"},"spec":{"other":1}},
        {"apiVersion":"ifo.kubevirt.io/v1alpha1","kind":"InFlightOperation",
         "metadata":{"name":"ours"},"spec":{"operation":"o","ruleSet":"r","component":"c",
         "subject":{"apiVersion":"v1","kind":"VM","name":"vm"}}}]}"#;
    let (store, requests) = store(200, None, body);
    let page = store.page("", Some("token=1")).await.unwrap();
    assert_eq!(page.items.len(), 1);
    assert_eq!(page.next.as_deref(), Some("next/page="));
    let requests = requests.lock().unwrap();
    assert!(
        requests[0].1.ends_with("?limit=500&continue=token%3D1"),
        "{}",
        requests[0].1
    );
}

#[tokio::test]
async fn a_refused_uid_means_that_the_object_was_replaced() {
    let body = r#"{"kind":"Status","message":"immutable","reason":"Invalid","details":
        {"causes":[{"reason":"FieldValueInvalid","message":"no","field":"metadata.uid"}]}}"#;
    let (store, _) = store(422, None, body);
    let answer = store.patch("a", &json!({})).await;
    assert_eq!(answer, Err(StoreFailure::ObjectDeleted));
}

/// Returns a store and the requests that its simulated kube-apiserver receives. Each listed object
/// has slightly more than `bytes` bytes. Each page has as many objects as the request allows.
fn store_with_large_objects(bytes: usize) -> (ClusterStore, Requests) {
    let requests = Requests::default();
    let received = requests.clone();
    let service = service_fn(move |request: Request<Body>| {
        let uri = request.uri().to_string();
        let limit = uri.split("limit=").nth(1).unwrap_or_default();
        let limit: usize = limit.split('&').next().unwrap().parse().unwrap();
        received
            .lock()
            .unwrap()
            .push((Method::GET, uri, String::new()));
        let object = format!(r#"{{"metadata":{{"name":"{}"}}}}"#, "x".repeat(bytes));
        let items = vec![object; limit].join(",");
        let body = format!(r#"{{"metadata":{{"continue":"more"}},"items":[{items}]}}"#);
        async move { Ok::<_, Infallible>(Response::new(Body::from(body.into_bytes()))) }
    });
    (ClusterStore::new(Client::new(service, "default")), requests)
}

#[tokio::test]
async fn a_page_that_is_too_large_is_read_as_smaller_pages() {
    let (store, requests) = store_with_large_objects(MAX_ANSWER_BYTES / PAGE_OBJECTS);
    assert!(store.page("", None).await.is_ok());
    assert!(store.page("", Some("more")).await.is_ok());
    assert!(store.page("", None).await.is_ok());
    let requests = requests.lock().unwrap();
    let limits: Vec<&str> = requests
        .iter()
        .map(|(_, uri, _)| uri.split("limit=").nth(1).unwrap())
        .collect();
    assert_eq!(limits, ["500", "10", "10&continue=more", "500", "10"]);
}

#[tokio::test]
async fn namespaces_are_read_page_by_page_with_their_metadata_only() {
    let page = |name: &str, token: &str| {
        json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"continue": token}, "items": [{
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"name": name, "creationTimestamp": "2026-01-02T03:04:05Z"},
            }],
        })
    };
    let requests = Requests::default();
    let received = requests.clone();
    let service = service_fn(move |request: Request<Body>| {
        let uri = request.uri().to_string();
        let accept = request.headers()[header::ACCEPT]
            .to_str()
            .unwrap()
            .to_owned();
        let body = if uri.contains("continue") {
            page("b", "")
        } else {
            page("a", "next")
        };
        received.lock().unwrap().push((Method::GET, uri, accept));
        let answer = Response::new(Body::from(body.to_string().into_bytes()));
        async move { Ok::<_, Infallible>(answer) }
    });
    let store = ClusterStore::new(Client::new(service, "default"));
    let created: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
    let want = HashMap::from([("a".to_owned(), created), ("b".to_owned(), created)]);
    assert_eq!(store.namespaces().await, Ok(want));
    let requests = requests.lock().unwrap();
    let uris: Vec<&str> = requests.iter().map(|(_, uri, _)| &**uri).collect();
    let path = "/api/v1/namespaces?limit=500";
    assert_eq!(uris, [path, &format!("{path}&continue=next")]);
    assert!(
        requests
            .iter()
            .all(|(_, _, accept)| accept == METADATA_LIST)
    );
}
