//! Tests of a watch that continues after errors.

use super::{FollowedNamespace, OperationChange, watched};
use crate::api_client::ApiClient;
use crate::filter::Filters;
use crate::operation::ListedOperation;
use crate::problem::Problem;
use crate::snapshots;
use crate::source::OperationSource;
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
async fn a_resumed_watch_reports_the_complete_state() {
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
        async move { Ok::<_, Infallible>(response.expect("it is one")) }
    });
    let kind = GroupVersionKind::gvk(LIVE_GROUP, VERSION, live::KIND);
    let resource = ApiResource::from_gvk_with_plural(&kind, live::PLURAL);
    let api = Api::all_with(Client::new(service, "default"), &resource);
    let mut events = std::pin::pin!(watched(api, Config::default()));
    let mut told = Vec::new();
    for _ in 0..5 {
        told.push(match events.next().await.expect("it never ends") {
            Ok(Event::Init) => "from the start",
            Ok(Event::InitDone) => "that is all",
            Ok(_) => "a change",
            Err(_) => "broken",
        });
    }
    let expected = [
        "from the start",
        "that is all",
        "broken",
        "from the start",
        "that is all",
    ];
    assert_eq!(told, expected);
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
        async move { Ok::<_, Infallible>(response.expect("it is one")) }
    });
    let server = ApiClient {
        client: Client::new(service, "default"),
        address: "https://192.0.2.1".to_owned(),
        default_namespace: "default".to_owned(),
        timeout: None,
    };
    let found = OperationSource::find(server, Filters::default(), false).await;
    let (source, listed) = found.expect("there are none");
    let mut follower = source.follow(Some(listed)).expect("it is one watch");
    assert!(matches!(follower.next().await, Ok(OperationChange::Synced)));
    let refused = follower.next().await;
    assert!(
        matches!(refused, Err(Problem::Forbidden { .. })),
        "{refused:?}"
    );
}

fn at(name: &str, version: &str) -> ListedOperation {
    let subject = format!("VirtualMachine/{name}");
    let more = json!({"metadata": {"resourceVersion": version}});
    snapshots::operation("shop", &subject, "Migrating", 65, more)
}

fn over(name: &str, version: &str) -> ListedOperation {
    ListedOperation {
        active: false,
        state: "Succeeded".to_owned(),
        ..at(name, version)
    }
}

/// A namespace in which these operations were listed, without completed ones.
fn listed(operations: &[ListedOperation]) -> FollowedNamespace {
    let known = operations.iter().map(|it| (it.key(), it.clone()));
    FollowedNamespace {
        known: known.collect(),
        skips_ended: true,
        ..FollowedNamespace::default()
    }
}

/// The changes that follow from a list: each name with its state, or that it was deleted.
fn relist(place: &mut FollowedNamespace, operations: &[ListedOperation]) -> Vec<String> {
    assert!(place.take(Event::Init).is_empty());
    for operation in operations {
        let event = Event::InitApply(operation.clone());
        assert!(place.take(event).is_empty());
    }
    told(place.take(Event::InitDone))
}

fn told(changes: Vec<OperationChange>) -> Vec<String> {
    let told = changes.into_iter().map(|change| match change {
        OperationChange::Applied(it) => format!("{} {}", it.subject.name, it.state),
        OperationChange::Deleted {
            operation,
            was_active: true,
        } => format!("{} gone", operation.subject.name),
        OperationChange::Deleted { operation, .. } => {
            format!("{} forgotten", operation.subject.name)
        }
        change => format!("{change:?}"),
    });
    told.collect()
}

#[test]
fn listed_and_already_completed_operations_are_not_reported() {
    let mut place = listed(&[at("a", "1")]);
    let news = relist(&mut place, &[at("a", "1"), over("b", "2"), at("c", "3")]);
    assert_eq!(news, ["c Progressing"]);
    assert_eq!(
        told(place.take(Event::Apply(over("c", "4")))),
        ["c Succeeded"]
    );
    // Its end was reported.
    assert_eq!(
        told(place.take(Event::Delete(over("c", "4")))),
        ["c forgotten"]
    );
    // After a gap, a completed operation may have started and ended within it.
    let news = relist(&mut place, &[at("a", "1"), over("b", "2"), over("d", "5")]);
    assert_eq!(news, ["d Succeeded"]);
}

#[test]
fn operations_that_end_between_list_and_watch_are_reported() {
    let mut place = listed(&[at("a", "1"), at("b", "1")]);
    let news = relist(&mut place, &[over("a", "2")]);
    assert_eq!(news, ["b gone", "a Succeeded"]);
    assert!(relist(&mut place, &[over("a", "2")]).is_empty());
}

#[test]
fn deleted_operations_are_reported_once() {
    let mut place = listed(&[at("a", "1")]);
    assert!(relist(&mut place, &[at("a", "1")]).is_empty());
    assert_eq!(told(place.take(Event::Delete(at("a", "1")))), ["a gone"]);
    assert!(place.take(Event::Delete(at("a", "1"))).is_empty());
}
