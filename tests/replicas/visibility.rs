//! Test of `--visibility=subject` with two replicas: on both, a user sees exactly their own operations,
//! also after the leader was killed and after the rights of the user have changed.

use crate::TURNS;
use crate::cluster::{Replicas, as_user};
use crate::harness::{
    Caller, Events, MANIFEST_FOLDERS, OPERATION, VM, apart, eventually, items, ok_if, text,
};
use serde_json::{Value, json};
use std::sync::PoisonError;

const USER: &str = "jane";

/// Returns a client of one replica, which the user sends requests to through the kube-apiserver.
fn user_of(replicas: &Replicas<'_>, replica: usize) -> Caller {
    let config = replicas.all[replica].server.stranger();
    let config = as_user(config, USER, "system:authenticated");
    replicas.cluster.front_proxy_of(config)
}

/// Waits until the user sees operations in exactly these namespaces, on all replicas.
async fn until_seen(replicas: &Replicas<'_>, namespaces: &[&str]) {
    for replica in 0..replicas.all.len() {
        let user = user_of(replicas, replica);
        let what = format!("replica {replica} shows operations in {namespaces:?}");
        let is_seen = |list: &Value| {
            let found = items(list).iter().map(namespace);
            found.eq(namespaces.iter().copied())
        };
        let path = OPERATION.path(None);
        user.until_object(&what, &path, is_seen).await;
    }
}

fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

#[test]
fn a_user_sees_their_own_operations_on_all_replicas() {
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    apart("replicas-visibility", async |cluster| {
        let settings = ["--visibility=subject"];
        let mut replicas = Replicas::start(cluster, &MANIFEST_FOLDERS, &settings, 2).await;
        let roles = "deploy/components/subject-visibility/rbac.yaml";
        cluster.kubectl(&format!("apply -f {roles}")).await;
        let (mine, _) = cluster.migrations("mine", &["a", "b"]).await;
        let (other, _) = cluster.migrations("other", &["a", "b"]).await;
        let get_machines = json!([{
            "apiGroups": [VM.group_version().0], "resources": [VM.plural], "verbs": ["get"],
        }]);
        let binding = cluster.grant(USER, Some(mine), &get_machines).await;
        until_seen(&replicas, &[mine, mine]).await;

        // A watch of the follower stays open while the leader is killed and the follower leads.
        let leader = replicas.leader().await;
        let watch = format!("{}?watch=1", OPERATION.path(None));
        let events = Events::of(&user_of(&replicas, 1 - leader), &watch).await;
        let mut events = events.expect("the user may watch");
        replicas.all[leader].endpoint.disturb();
        replicas.all[leader].server.kill().await;
        eventually("the other replica leads", async || {
            let now = replicas.leader().await;
            ok_if(now != leader, now)
        })
        .await;
        replicas.all[leader].start_again().await;
        replicas.wait_until_recovered().await;
        until_seen(&replicas, &[mine, mine]).await;
        cluster.machine(other, "c", "Migrating").await;
        cluster.machine(mine, "c", "Migrating").await;
        let third = |events: &[Value]| {
            let subject = |event: &&Value| text(event, "/object/spec/subject/name") == "c";
            events.iter().find(subject).cloned()
        };
        let third = events.until("the third own operation", third).await;
        assert_eq!(namespace(&third["object"]), mine);
        events.inspect(|events| {
            let mut seen = events.iter().map(|event| namespace(&event["object"]));
            assert!(seen.all(|namespace| namespace == mine), "{events:?}");
        });

        // A change of the rights reaches both replicas.
        cluster.grant(USER, Some(other), &get_machines).await;
        cluster.admin.delete(&binding).await.ok();
        until_seen(&replicas, &[other, other, other]).await;
    });
}
