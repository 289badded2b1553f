//! Tests of the conversion of the Lease.

use crate::replicate::lease::{LeaseRecord, whole_seconds};
use crate::replicate::{Leases, Term};
use http::{Request, Response};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::time::Duration;

fn lease(json: Value) -> Lease {
    serde_json::from_value(json).unwrap()
}

#[test]
fn invalid_values_in_a_lease_are_ignored() {
    let broken = lease(json!({
        "metadata": {"annotations": {"ifo.kubevirt.io/election": "{\"reservedVersion\": -1}"}},
        "spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 2_000_000_000},
    }));
    let record = LeaseRecord::read(&broken);
    assert_eq!(record.holder(), Some(Term::from("somebody")));
    assert_eq!(
        (record.note.reserved_version, record.final_version()),
        (None, None)
    );
    assert_eq!(record.duration(), Duration::from_mins(1));

    for duration in [-5, 0] {
        let broken = lease(json!({"spec": {"leaseDurationSeconds": duration}}));
        assert_eq!(
            LeaseRecord::read(&broken).duration(),
            Duration::from_secs(1)
        );
    }
    assert_eq!(LeaseRecord::read(&Lease::default()).holder(), None);
    let rounded_up = whole_seconds(Duration::from_millis(2_500));
    assert_eq!(rounded_up, 3);
}

#[test]
fn a_renewal_changes_the_record_even_if_the_clock_stands_still() {
    let _clock = crate::clock::simulated::begin("2026-01-01T00:00:00Z".parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let _runtime = runtime.enter();
    let held = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"holderIdentity": "pod_1"}});
    let contents = LeaseRecord::read(&lease(held.clone()));
    let first = contents.write(lease(held));
    let second = contents.write(first.clone());
    let (before, after) = (LeaseRecord::read(&first), LeaseRecord::read(&second));
    assert_ne!(before, after);
    // Another client edits labels of the Lease. The record stays the same, so the edit does not
    // count as a renewal. A renewal keeps labels: `second` still has the label of the first Lease.
    let mut edited = second.clone();
    edited.metadata.labels.as_mut().unwrap().clear();
    assert_eq!(LeaseRecord::read(&edited), after);
    assert_eq!(second.metadata.labels.unwrap()["a"], "b");
}

/// The path of the request for the owner of a new Lease.
const OWNER_PATH: &str =
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/ifo-apiserver-registration";

/// Creates a Lease through a kube-apiserver that answers the request for the owner with the status
/// code `code`. Returns the owners of the Lease that was sent.
async fn owners_of_a_new_lease(code: u16) -> Value {
    let answer = move |request: Request<Body>| async move {
        let is_owner = request.uri().path() == OWNER_PATH;
        let (code, body) = if is_owner && code < 300 {
            (
                code,
                json!({"metadata": {"name": "ifo-apiserver-registration", "uid": "u-1"}}),
            )
        } else if is_owner {
            (
                code,
                json!({"kind": "Status", "status": "Failure", "code": code}),
            )
        } else {
            let sent = request.into_body().collect_bytes().await.unwrap();
            (201, serde_json::from_slice(&sent).unwrap())
        };
        let body = Body::from(body.to_string().into_bytes());
        Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
    };
    let client = Client::new(tower::service_fn(answer), "default");
    let leases = Leases::new(client, "ifo-system", "ifo-apiserver");
    let created = leases.write(Lease::default()).await.unwrap();
    serde_json::to_value(created.metadata.owner_references).unwrap()
}

#[tokio::test]
async fn the_garbage_collector_deletes_a_lease_with_the_rights_of_the_server() {
    let owner = json!([{
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "name": "ifo-apiserver-registration", "uid": "u-1",
    }]);
    assert_eq!(owners_of_a_new_lease(200).await, owner);
    // If the server lacks the right to read the owner, it creates the Lease without an owner.
    assert_eq!(owners_of_a_new_lease(403).await, Value::Null);
}
