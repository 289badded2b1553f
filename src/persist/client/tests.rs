//! Tests of the requests for custom resources, and of the [`StoreFailure`] that each failed request
//! returns.

use super::*;
use futures::StreamExt as _;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use ifo_api::persisted::InFlightOperationSpec;
use ifo_api::testing;
use kube::client::Body;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;
use tower::service_fn;

/// A feed that sends nothing, because these tests are about writes.
struct NoFeed;

impl Feed for NoFeed {
    fn follow(&self, _: Source, _: Option<&str>) -> BoxStream<'static, Raw> {
        futures::stream::pending().boxed()
    }
}

/// The method, the URI and the body of each received request.
type Requests = Arc<Mutex<Vec<(Method, String, String)>>>;

/// Returns a store and the requests that its simulated kube-apiserver receives. The simulated
/// kube-apiserver gives the same answer to each request.
fn store(code: u16, body: &'static str) -> (ClusterStore, Requests) {
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
            let answer = Response::builder().status(code);
            Ok::<_, Infallible>(answer.body(Body::from(body.as_bytes().to_vec())).unwrap())
        }
    });
    let client = Client::new(service, "default");
    (ClusterStore::new(client, Arc::new(NoFeed)), requests)
}

fn cr() -> InFlightOperation {
    InFlightOperation::new(
        "a",
        InFlightOperationSpec {
            live: testing::operation(&json!({})).spec,
        },
    )
}

/// The answer of a kube-apiserver to a write. It contains only the metadata of the object.
const METADATA: &str = r#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":
    {"name":"a","uid":"6f1d3b8e-52c4-5f0a-9c61-2a7e84d0b35f","resourceVersion":"42"}}"#;

fn revision() -> Revision {
    Revision {
        uid: "6f1d3b8e-52c4-5f0a-9c61-2a7e84d0b35f".to_owned(),
        resource_version: "42".to_owned(),
    }
}

#[tokio::test]
async fn an_apply_has_a_field_manager_and_returns_the_new_state() {
    let (store, requests) = store(201, METADATA);
    let mut sent = cr();
    sent.metadata.resource_version = Some("41".to_owned());
    assert_eq!(store.apply(&sent).await, Ok(revision()));
    let (method, uri, body) = requests.lock().unwrap()[0].clone();
    let path = "/apis/ifo.kubevirt.io/v1alpha1/inflightoperations/a?";
    let query = "&force=true&fieldManager=ifo-persistence&fieldValidation=Strict";
    assert_eq!((method, uri), (Method::PATCH, format!("{path}{query}")));
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["apiVersion"], "ifo.kubevirt.io/v1alpha1");
    assert_eq!(body["kind"], "InFlightOperation");
    assert_eq!(body["metadata"]["resourceVersion"], "41");
}

#[tokio::test]
async fn answers_are_classified_by_status_code() {
    // In this answer, `of the object` is a placeholder for a secret value, such as a label. No
    // failure may contain a secret value.
    let status = r#"{"kind":"Status","message":"said why","details":{"causes":[
        {"field":"spec.subject","message":"of the object"},{"field":"of the object"},
        {"field":"metadata.labels[of.the.object]"},{"field":"status.x: of the object"}],
        "retryAfterSeconds":7}}"#;
    let other_uid = r#"{"kind":"Status","message":"immutable","reason":"Invalid","details":
        {"causes":[{"reason":"FieldValueInvalid","message":"no","field":"metadata.uid"}]}}"#;
    let why = |code: u16| {
        format!("the kube-apiserver answers {code}, about metadata.labels, spec.subject")
    };
    let (without_crd, throttled) = ("404 page not found", "Too many requests");
    for (code, body, want) in [
        (404, without_crd, StoreFailure::CrdMissing),
        (405, status, StoreFailure::CrdMissing),
        (403, status, StoreFailure::Forbidden(why(403))),
        (409, status, StoreFailure::Conflict),
        (422, status, StoreFailure::Invalid(why(422))),
        (422, other_uid, StoreFailure::Conflict),
        (429, status, StoreFailure::Throttled(Duration::from_secs(7))),
        (
            429,
            throttled,
            StoreFailure::Throttled(Duration::from_secs(1)),
        ),
        (500, status, StoreFailure::Unreachable(why(500))),
    ] {
        let code_field = format!(r#"{{"code":{code},"kind""#);
        let body = body.replacen(r#"{"kind""#, &code_field, 1).leak();
        let (store, _) = store(code, body);
        assert!(
            !want.to_string().contains("object"),
            "{want} quotes the answer"
        );
        assert_eq!(store.apply(&cr()).await, Err(want));
    }
}

#[tokio::test]
async fn the_deletion_of_a_missing_object_succeeds() {
    let not_found = r#"{"kind":"Status","message":"not found","reason":"NotFound","code":404}"#;
    let (store, _) = store(404, not_found);
    assert_eq!(store.delete("a", &revision()).await, Ok(()));
}

#[tokio::test]
async fn a_deletion_is_conditional_on_the_state_of_the_object() {
    let (store, requests) = store(200, r#"{"kind":"Status","status":"Success"}"#);
    store.delete("a", &revision()).await.unwrap();
    let sent: Value = serde_json::from_str(&requests.lock().unwrap()[0].2).unwrap();
    let want = json!({"preconditions": {
        "uid": "6f1d3b8e-52c4-5f0a-9c61-2a7e84d0b35f", "resourceVersion": "42",
    }});
    assert_eq!(sent, want);
}
