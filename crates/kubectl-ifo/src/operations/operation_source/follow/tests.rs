//! Tests of the changes that a follower returns. `crates/kubectl-ifo/tests/cli/watches.rs` has the
//! interruptions of a watch.

use super::{OperationChange, OperationFollower};
use crate::cluster::api_client::ApiClient;
use crate::cluster::problem::Problem;
use crate::filters::filter::Filters;
use crate::operations::operation::OperationFacts as _;
use crate::operations::operation_source::{AnyOperation, ObjectChange, OperationSource};
use crate::test_fixtures::client;
use kube::api::DynamicObject;
use kube::client::Body;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::Instant;

fn active(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperation",
        "metadata": {"name": name, "namespace": "shop", "resourceVersion": version},
        "spec": {"subject": {"name": name}},
        "status": {"phase": "Active", "state": "Progressing"},
    })
}

fn completed(name: &str, version: &str) -> Value {
    let mut object = active(name, version);
    object["status"] = json!({"phase": "Completed", "state": "Succeeded"});
    object
}

fn dynamic(object: &Value) -> DynamicObject {
    serde_json::from_value(object.clone()).expect("the JSON is an object")
}

fn source() -> OperationSource {
    let mut source = OperationSource::new(client(|_| None), Filters::default());
    source.namespaces = Some(["other", "shop"].map(str::to_owned).to_vec());
    source
}

/// Returns a follower whose caller has already listed `operations`, all in the namespace `shop`.
fn listed<'a>(source: &'a OperationSource, operations: &[Value]) -> OperationFollower<'a> {
    let decoded = operations
        .iter()
        .map(|it| AnyOperation::try_from(it.clone()));
    let decoded = decoded.map(|it| it.expect("the JSON is an operation").0);
    let followed = source.follow(decoded.collect());
    followed.expect("two namespaces can be watched")
}

/// Sends a change of the namespace `shop` to the follower, and returns the resulting changes as
/// text.
fn take(follower: &mut OperationFollower<'_>, change: ObjectChange) -> Vec<String> {
    follower.take(1, change);
    let texts = follower.pending.drain(..).map(|change| match change {
        OperationChange::Applied(it) => format!("{} {}", it.spec.subject.name, it.marked_state()),
        OperationChange::Deleted(it) => {
            format!("{} deleted {}", it.spec.subject.name, it.marked_state())
        }
        change => format!("{change:?}"),
    });
    texts.collect()
}

fn relist(follower: &mut OperationFollower<'_>, operations: &[Value]) -> Vec<String> {
    let objects = operations.iter().map(dynamic).collect();
    take(follower, ObjectChange::Listed(objects))
}

#[tokio::test]
async fn only_changes_since_the_list_of_the_caller_are_returned() {
    let source = source();
    let mut watch = listed(&source, &[active("a", "1")]);
    let changes = relist(
        &mut watch,
        &[active("a", "1"), completed("b", "2"), active("c", "3")],
    );
    assert_eq!(changes, ["c Progressing"]);
    let end = |name, version| ObjectChange::Applied(dynamic(&completed(name, version)));
    assert_eq!(take(&mut watch, end("c", "4")), ["c Succeeded"]);
    // The completion was already returned.
    let delete = |object| ObjectChange::Deleted(dynamic(&object));
    let deleted = take(&mut watch, delete(completed("c", "4")));
    assert_eq!(deleted, ["c deleted Succeeded"]);
    assert!(take(&mut watch, delete(completed("c", "4"))).is_empty());
    // A completed operation that is new in a later list may have started and ended while the watch
    // was interrupted. So the operation is returned.
    let changes = relist(&mut watch, &[completed("b", "2"), completed("d", "5")]);
    assert_eq!(changes, ["a deleted Progressing", "d Succeeded"]);
    // The watch has missed the completion of this operation.
    take(
        &mut watch,
        ObjectChange::Applied(dynamic(&active("e", "6"))),
    );
    let deleted = take(&mut watch, delete(completed("e", "7")));
    assert_eq!(deleted, ["e Succeeded", "e deleted Succeeded"]);
    // The list of another namespace says nothing about this one.
    watch.take(0, ObjectChange::Listed(Vec::new()));
    let changes: Vec<_> = watch.pending.drain(..).collect();
    assert!(
        matches!(changes.as_slice(), [OperationChange::Synced]),
        "{changes:?}"
    );
}

/// Returns the next change as text, and the seconds since `start`.
async fn next(follower: &mut OperationFollower<'_>, start: Instant) -> (String, u64) {
    let change = follower.next().await.expect("the user has all rights");
    (format!("{change:?}"), start.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_lost_until_it_answers() {
    let start = Instant::now();
    let service = tower::service_fn(move |request: http::Request<Body>| async move {
        let query = request.uri().query().unwrap_or_default().to_owned();
        if query.contains("watch=true") {
            std::future::pending::<()>().await;
        } else if query.contains("limit=1&") || query.ends_with("limit=1") {
            // The server hangs for 35 seconds. The first two probes come in this time.
            tokio::time::sleep_until(start + Duration::from_secs(35)).await;
        }
        let list = json!({"metadata": {"resourceVersion": "7"}, "items": []}).to_string();
        Ok::<_, Infallible>(http::Response::new(Body::from(list.into_bytes())))
    });
    let server = ApiClient::new(kube::Client::new(service, "default"), "https://192.0.2.1");
    let source = OperationSource::new(server, Filters::default());
    let mut follower = source
        .follow(Vec::new())
        .expect("one namespace can be watched");
    assert_eq!(next(&mut follower, start).await, ("Synced".to_owned(), 0));
    let lost = format!("Lost(TimedOut({:?}))", Duration::from_secs(10));
    assert_eq!(next(&mut follower, start).await, (lost, 20));
    let (found, at) = next(&mut follower, start).await;
    assert!(found.starts_with("Incomplete") && at == 35, "{at} {found}");
    assert_eq!(next(&mut follower, start).await, ("Synced".to_owned(), 35));
}

#[tokio::test]
async fn a_permission_error_is_not_retried() {
    let source = source();
    let mut follower = listed(&source, &[]);
    let message = "no".to_owned();
    follower.take(0, ObjectChange::Lost(Problem::Forbidden { message }));
    let refused = follower.next().await;
    assert!(
        matches!(refused, Err(Problem::Forbidden { .. })),
        "{refused:?}"
    );
    follower.take(0, ObjectChange::Lost(Problem::Expired));
    assert!(matches!(
        follower.next().await,
        Ok(OperationChange::Lost(_))
    ));
}
