//! Tests of the changes that watches return, also after errors.

use super::{FollowedNamespace, OperationChange, watch_with_relist};
use crate::api_client::ApiClient;
use crate::filter::Filters;
use crate::operation::{InFlightOperation, OperationFacts as _};
use crate::operation_source::OperationSource;
use crate::problem::Problem;
use crate::test_fixtures::OperationFixture as _;
use crate::test_snapshots;
use futures::StreamExt as _;
use http::{Request, Response};
use ifo_api::{LIVE_GROUP, VERSION, live};
use kube::api::ApiResource;
use kube::client::Body;
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client};
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[tokio::test]
async fn a_watch_lists_again_after_an_error() {
    let watches = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&watches);
    let service = tower::service_fn(move |request: Request<Body>| {
        let watch = request.uri().query().unwrap_or_default().contains("watch");
        let (code, body) = if !watch {
            let list = r#"{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":"7"},"items":[]}"#;
            (200, list)
        } else if seen.fetch_add(1, Ordering::SeqCst) == 0 {
            let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","code":503}"#;
            (503, status)
        } else {
            (200, "")
        };
        let response = Response::builder().status(code);
        let response = response.body(Body::from(body.as_bytes().to_vec()));
        async move { Ok::<_, Infallible>(response.expect("status and body are valid")) }
    });
    let kind = GroupVersionKind::gvk(LIVE_GROUP, VERSION, live::KIND);
    let resource = ApiResource::from_gvk_with_plural(&kind, live::PLURAL);
    let api = Api::all_with(Client::new(service, "default"), &resource);
    let mut events = std::pin::pin!(watch_with_relist(api, Config::default()));
    let mut received = Vec::new();
    for _ in 0..5 {
        received.push(match events.next().await.expect("the watch never ends") {
            Ok(Event::Init) => "list begins",
            Ok(Event::InitDone) => "list ends",
            Ok(_) => "change",
            Err(_) => "error",
        });
    }
    let expected = [
        "list begins",
        "list ends",
        "error",
        "list begins",
        "list ends",
    ];
    assert_eq!(received, expected);
    assert_eq!(watches.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_permission_error_is_not_retried() {
    let service = tower::service_fn(|request: Request<Body>| {
        let watch = request.uri().query().unwrap_or_default().contains("watch");
        let (code, body) = if watch {
            let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","code":403}"#;
            (403, status)
        } else {
            let list = r#"{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":"7"},"items":[]}"#;
            (200, list)
        };
        let response = Response::builder().status(code);
        let response = response.body(Body::from(body.as_bytes().to_vec()));
        async move { Ok::<_, Infallible>(response.expect("status and body are valid")) }
    });
    let server = ApiClient::new(Client::new(service, "default"), "https://192.0.2.1");
    let found = OperationSource::find(server, Filters::default(), false).await;
    let (source, listed) = found.expect("the answers are an empty list");
    let mut follower = source
        .follow(listed)
        .expect("all namespaces need only one watch");
    assert!(matches!(follower.next().await, Ok(OperationChange::Synced)));
    let refused = follower.next().await;
    assert!(
        matches!(refused, Err(Problem::Forbidden { .. })),
        "{refused:?}"
    );
}

fn active(name: &str, version: &str) -> InFlightOperation {
    let subject = format!("VirtualMachine/{name}");
    let more = json!({"metadata": {"resourceVersion": version}});
    test_snapshots::operation("shop", &subject, "Migrating", 65, more)
}

fn completed(name: &str, version: &str) -> InFlightOperation {
    active(name, version).state("Succeeded", None)
}

/// Returns the state of a watch whose caller has already listed `operations`.
fn listed(operations: &[InFlightOperation]) -> FollowedNamespace {
    let known = operations.iter().map(|it| (it.key(), it.clone()));
    FollowedNamespace {
        known: known.collect(),
        skips_completed: true,
        ..FollowedNamespace::default()
    }
}

/// Sends a new list to the watch, and returns the resulting changes as text.
fn relist(watch: &mut FollowedNamespace, operations: &[InFlightOperation]) -> Vec<String> {
    assert!(watch.take(Event::Init).is_empty());
    for operation in operations {
        let event = Event::InitApply(operation.clone());
        assert!(watch.take(event).is_empty());
    }
    described(watch.take(Event::InitDone))
}

fn described(changes: Vec<OperationChange>) -> Vec<String> {
    let texts = changes.into_iter().map(|change| match change {
        OperationChange::Applied(it) => format!("{} {}", it.spec.subject.name, it.marked_state()),
        OperationChange::Deleted {
            operation,
            was_active: true,
        } => format!("{} deleted while active", operation.spec.subject.name),
        OperationChange::Deleted { operation, .. } => {
            format!("{} deleted after completion", operation.spec.subject.name)
        }
        change => format!("{change:?}"),
    });
    texts.collect()
}

#[test]
fn listed_and_already_completed_operations_are_not_reported() {
    let mut watch = listed(&[active("a", "1")]);
    let changes = relist(
        &mut watch,
        &[active("a", "1"), completed("b", "2"), active("c", "3")],
    );
    assert_eq!(changes, ["c Progressing"]);
    assert_eq!(
        described(watch.take(Event::Apply(completed("c", "4")))),
        ["c Succeeded"]
    );
    // The completion was already returned, so the operation was not active before the deletion.
    assert_eq!(
        described(watch.take(Event::Delete(completed("c", "4")))),
        ["c deleted after completion"]
    );
    // A completed operation that is new in a later list may have started and ended while the watch
    // was interrupted. So the operation is returned.
    let changes = relist(
        &mut watch,
        &[active("a", "1"), completed("b", "2"), completed("d", "5")],
    );
    assert_eq!(changes, ["d Succeeded"]);
}

#[test]
fn operations_that_end_between_list_and_watch_are_reported() {
    let mut watch = listed(&[active("a", "1"), active("b", "1")]);
    let changes = relist(&mut watch, &[completed("a", "2")]);
    assert_eq!(changes, ["b deleted while active", "a Succeeded"]);
    assert!(relist(&mut watch, &[completed("a", "2")]).is_empty());
}

#[test]
fn deleted_operations_are_reported_once() {
    let mut watch = listed(&[active("a", "1")]);
    assert!(relist(&mut watch, &[active("a", "1")]).is_empty());
    assert_eq!(
        described(watch.take(Event::Delete(active("a", "1")))),
        ["a deleted while active"]
    );
    assert!(watch.take(Event::Delete(active("a", "1"))).is_empty());
}
