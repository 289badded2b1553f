//! Tests of operations whose namespace is deleted, in persistence mode. The server must no longer
//! list these operations, and must delete their custom resources. This must also happen if the
//! namespace is created again.

use super::{Persisting, crs, persisting, within};
use crate::harness::{NAMESPACE, eventually, ok_if, text};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Creates a namespace with one active and one completed operation. Waits until both operations are
/// listed and have custom resources. Returns the namespace and the custom resources.
async fn populated(persisting: &Persisting) -> (&'static str, BTreeMap<String, Value>) {
    let cluster = persisting.cluster;
    let (namespace, _) = cluster.migrations("tenant", &["active", "completed"]).await;
    eventually("both operations are listed", async || {
        let listed = persisting.live_in(namespace).await;
        ok_if(listed.len() == 2, listed.len())
    })
    .await;
    cluster.set_status(namespace, "completed", "Running").await;
    let written = eventually("one operation has completed", async || {
        let written = within(namespace, persisting.wait_until_equal().await);
        let phases = written.values().map(|it| text(it, "/status/phase"));
        let mut phases: Vec<&str> = phases.collect();
        phases.sort_unstable();
        ok_if(phases == ["Active", "Completed"], &phases)?;
        Ok(written)
    })
    .await;
    (namespace, written)
}

#[test]
fn a_namespace_recreated_while_no_server_runs_has_no_operations_of_the_old_namespace() {
    persisting(async |persisting| {
        let cluster = persisting.cluster;
        let (again, old) = populated(persisting).await;
        let (gone, _) = populated(persisting).await;
        persisting.server.kill().await;
        for namespace in [again, gone] {
            let path = NAMESPACE.one(None, namespace);
            cluster.admin.delete_and_wait(&path).await;
        }
        let namespace = NAMESPACE.object(again, json!({}));
        cluster.create(&NAMESPACE, None, &namespace).await;
        cluster.machine(again, "active", "Migrating").await;
        let all = crs(cluster).await;
        let written = within(again, all.clone()).len() + within(gone, all).len();
        assert_eq!(
            written, 4,
            "without a server, the custom resources must still exist"
        );

        persisting.server.start_again().await;
        let left = eventually("the old custom resources are deleted", async || {
            // The server must never list an operation of the old namespace.
            let live = persisting.live().await;
            let listed = within(again, live.clone());
            assert!(
                !listed.keys().any(|uid| old.contains_key(uid)),
                "{listed:?}"
            );
            assert_eq!(within(gone, live), BTreeMap::new());
            let all = crs(cluster).await;
            let left = within(gone, all.clone());
            ok_if(left.is_empty(), left)?;
            let left = within(again, all);
            ok_if(!left.keys().any(|uid| old.contains_key(uid)), &left)?;
            ok_if(left.len() == 1, &left)?;
            Ok(left)
        })
        .await;
        let listed = persisting.live_in(again).await;
        assert!(listed.keys().eq(left.keys()), "{listed:?}");
    });
}
