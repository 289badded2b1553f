//! Tests of the changes that a follower returns. `crates/kubectl-ifo/tests/cli/watches.rs` has the
//! interruptions of a watch.

use super::{OperationChange, OperationFollower};
use crate::cluster::problem::Problem;
use crate::filters::filter::Filters;
use crate::operations::operation::OperationFacts as _;
use crate::operations::operation_source::{AnyOperation, ObjectChange, OperationSource};
use crate::test_fixtures::client;
use kube::api::DynamicObject;
use serde_json::{Value, json};

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
