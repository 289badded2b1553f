//! What is asked of a kube-apiserver, and what its answers are taken for.

use super::*;
use ifo_api::persisted::InFlightOperationSpec;
use serde_json::json;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tower::service_fn;

type Asked = Arc<Mutex<Vec<(Method, String, String)>>>;

/// A store whose server gives always this answer, and what it was asked.
fn store(
    code: u16,
    retry_after: Option<&'static str>,
    body: &'static str,
) -> (ClusterStore, Asked) {
    let asked = Asked::default();
    let log = asked.clone();
    let service = service_fn(move |request: Request<Body>| {
        let log = log.clone();
        async move {
            let (parts, sent) = request.into_parts();
            let sent = sent
                .collect()
                .await
                .map(http_body_util::Collected::to_bytes);
            let sent = String::from_utf8(sent.unwrap_or_default().to_vec()).unwrap();
            log.lock()
                .unwrap()
                .push((parts.method, parts.uri.to_string(), sent));
            let mut answer = Response::builder().status(code);
            if let Some(after) = retry_after {
                answer = answer.header(header::RETRY_AFTER, after);
            }
            Ok::<_, Infallible>(answer.body(Body::from(body.as_bytes().to_vec())).unwrap())
        }
    });
    let connection = Connection::through(Client::new(service, "default"));
    (ClusterStore::new(&connection), asked)
}

fn cr() -> InFlightOperation {
    InFlightOperation::new(
        "a",
        InFlightOperationSpec {
            operation: "Migrating".to_owned(),
            rule_set: "rules".to_owned(),
            component: "kubevirt".to_owned(),
            subject: serde_json::from_value(json!({
                "apiVersion": "v1", "kind": "VM", "name": "vm",
            }))
            .unwrap(),
            item: None,
        },
    )
}

#[tokio::test]
async fn writes_are_applied_by_a_manager_of_their_own_and_tell_the_uid() {
    let body = r#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":
        {"name":"a","uid":"6f1d3b8e-52c4-5f0a-9c61-2a7e84d0b35f"}}"#;
    let (store, asked) = store(200, None, body);
    let uid = store.apply(&cr()).await.unwrap().unwrap();
    assert_eq!(uid.to_string(), "6f1d3b8e-52c4-5f0a-9c61-2a7e84d0b35f");
    let asked = asked.lock().unwrap();
    let (method, uri, sent) = &asked[0];
    assert_eq!(method, Method::PATCH);
    assert_eq!(
        uri,
        "/apis/ifo.kubevirt.io/v1alpha1/inflightoperations/a?fieldManager=ifo-persistence&force=true"
    );
    let sent: serde_json::Value = serde_json::from_str(sent).unwrap();
    assert_eq!(sent["apiVersion"], "ifo.kubevirt.io/v1alpha1");
    assert_eq!(sent["kind"], "InFlightOperation");
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let status = r#"{"kind":"Status","message":"said why","details":{"causes":[
        {"field":"spec.subject","message":"of the object"},{"field":"of the object"},
        {"field":"metadata.labels[of.the.object]"},{"field":"status.x: of the object"}]}}"#;
    let why = |code| {
        let code = StatusCode::from_u16(code).unwrap();
        Explanation::Answer(code, vec!["metadata.labels".into(), "spec.subject".into()])
    };
    for (code, retry_after, want) in [
        (404, None, Failure::Missing),
        (403, None, Failure::Forbidden(why(403))),
        (409, None, Failure::Conflict(why(409))),
        (422, None, Failure::Invalid(why(422))),
        (429, Some("7"), Failure::Throttled(Duration::from_secs(7))),
        (429, None, Failure::Throttled(RETRY_AFTER)),
        (500, None, Failure::Unreachable(why(500), None)),
        (
            503,
            Some("3"),
            Failure::Unreachable(why(503), Some(Duration::from_secs(3))),
        ),
    ] {
        let (store, _) = store(code, retry_after, status);
        assert_eq!(store.apply(&cr()).await, Err(want));
    }
}

#[tokio::test]
async fn what_is_not_there_is_deleted_and_read_as_nothing() {
    let (store, asked) = store(404, None, r#"{"kind":"Status","message":"not found"}"#);
    assert_eq!(store.delete("a", None).await, Ok(()));
    assert_eq!(store.get("a").await, Ok(None));
    assert_eq!(asked.lock().unwrap()[0].0, Method::DELETE);
}

#[tokio::test]
async fn a_deletion_may_be_of_one_object_only() {
    let uid = Uuid::from_u128(7);
    let (store, asked) = store(200, None, "{}");
    for uid in [None, Some(uid)] {
        store.delete("a", uid).await.unwrap();
    }
    let asked = asked.lock().unwrap();
    let sent: Vec<&str> = asked.iter().map(|(.., sent)| &**sent).collect();
    assert_eq!(sent[0], "");
    let sent: serde_json::Value = serde_json::from_str(sent[1]).unwrap();
    assert_eq!(sent, json!({"preconditions": {"uid": uid.to_string()}}));
}

#[tokio::test]
async fn one_that_cannot_be_read_does_not_spoil_a_page() {
    let body = r#"{"metadata":{"continue":"next/page="},"items":[
        {"apiVersion":"ifo.kubevirt.io/v1alpha1","kind":"InFlightOperation",
         "metadata":{"name":"foreign"},"spec":{"other":1}},
        {"apiVersion":"ifo.kubevirt.io/v1alpha1","kind":"InFlightOperation",
         "metadata":{"name":"ours"},"spec":{"operation":"o","ruleSet":"r","component":"c",
         "subject":{"apiVersion":"v1","kind":"VM","name":"vm"}}}]}"#;
    let (store, asked) = store(200, None, body);
    let page = store.page(Some("token=1")).await.unwrap();
    assert_eq!(page.items.len(), 1);
    assert_eq!(page.next.as_deref(), Some("next/page="));
    let asked = asked.lock().unwrap();
    assert!(
        asked[0].1.ends_with("?limit=500&continue=token%3D1"),
        "{}",
        asked[0].1
    );
}

#[tokio::test]
async fn another_object_of_the_same_name_is_a_conflict() {
    let body = r#"{"kind":"Status","message":"immutable","reason":"Invalid","details":
        {"causes":[{"reason":"FieldValueInvalid","message":"no","field":"metadata.uid"}]}}"#;
    let (store, _) = store(422, None, body);
    let answer = store.apply(&cr()).await;
    assert!(matches!(answer, Err(Failure::Conflict(_))), "{answer:?}");
}

/// A store whose server gives such large objects in a list, as many as it is asked for.
fn large(bytes: usize) -> (ClusterStore, Asked) {
    let asked = Asked::default();
    let log = asked.clone();
    let service = service_fn(move |request: Request<Body>| {
        let uri = request.uri().to_string();
        let limit = uri.split("limit=").nth(1).unwrap_or_default();
        let limit: usize = limit.split('&').next().unwrap().parse().unwrap();
        log.lock().unwrap().push((Method::GET, uri, String::new()));
        let object = format!(r#"{{"metadata":{{"name":"{}"}}}}"#, "x".repeat(bytes));
        let items = vec![object; limit].join(",");
        let body = format!(r#"{{"metadata":{{"continue":"more"}},"items":[{items}]}}"#);
        async move { Ok::<_, Infallible>(Response::new(Body::from(body.into_bytes()))) }
    });
    let connection = Connection::through(Client::new(service, "default"));
    (ClusterStore::new(&connection), asked)
}

#[tokio::test]
async fn a_page_that_is_too_large_is_read_in_smaller_ones() {
    let (store, asked) = large(ANSWER / PAGE);
    assert!(store.page(None).await.is_ok());
    assert!(store.page(Some("more")).await.is_ok());
    assert!(store.page(None).await.is_ok());
    let asked = asked.lock().unwrap();
    let limits: Vec<&str> = asked
        .iter()
        .map(|(_, uri, _)| uri.split("limit=").nth(1).unwrap())
        .collect();
    assert_eq!(limits, ["500", "10", "10&continue=more", "500", "10"]);
}

#[tokio::test]
async fn namespaces_are_read_as_metadata() {
    let body = r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",
        "metadata":{"continue":"next"},"items":[
        {"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",
         "metadata":{"name":"a","creationTimestamp":"2026-01-02T03:04:05Z"}}]}"#;
    let (store, asked) = store(200, None, body);
    let page = store.namespaces(None).await.unwrap();
    let want = ("a".to_owned(), "2026-01-02T03:04:05Z".parse().unwrap());
    assert_eq!(page.items, [want]);
    assert_eq!(page.next.as_deref(), Some("next"));
    let asked = asked.lock().unwrap();
    assert_eq!(asked[0].1, "/api/v1/namespaces?limit=500");
}
