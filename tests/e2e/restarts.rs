//! Tests of restarts of the kube-apiserver and of the server under test. After a restart, all
//! operations in flight must still exist, and clients must receive the current state again. In one
//! test without a restart, the server must restore the CA that is missing in its registration.

use crate::harness::{
    Caller, Events, OPERATION, TestCluster, VM, alone, columns, event_types, eventually, migrating,
    ok_if, text,
};
use crate::kubectl::{Kubectl, is_log, wait_for_watch};
use futures::StreamExt as _;
use kube::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, watcher};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;

/// A client that watches the operations of a namespace. After a failure, it watches again, as
/// controllers and dashboards do.
struct WatchingClient {
    /// The names of the subjects of the operations that the client knows.
    subjects: Arc<Mutex<BTreeSet<String>>>,
    task: JoinHandle<()>,
}

impl Drop for WatchingClient {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl WatchingClient {
    fn start(cluster: &TestCluster, namespace: &str) -> Self {
        let kind = GroupVersionKind::gvk("live.ifo.kubevirt.io", "v1alpha1", OPERATION.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, OPERATION.plural);
        let client = cluster.admin.client.clone();
        let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
        let subjects = Arc::new(Mutex::new(BTreeSet::new()));
        let shown = subjects.clone();
        let task = tokio::spawn(async move {
            let mut events = watcher(api, watcher::Config::default())
                .default_backoff()
                .boxed();
            while let Some(event) = events.next().await {
                let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
                let name = |it: &DynamicObject| text(&it.data, "/spec/subject/name").to_owned();
                match event {
                    Ok(watcher::Event::Init) => shown.clear(),
                    Ok(watcher::Event::InitApply(it) | watcher::Event::Apply(it)) => {
                        shown.insert(name(&it));
                    }
                    Ok(watcher::Event::Delete(it)) => {
                        shown.remove(&name(&it));
                    }
                    // After an error, the watcher connects again by itself.
                    Ok(watcher::Event::InitDone) | Err(_) => {}
                }
            }
        });
        Self { subjects, task }
    }

    /// Waits until the client knows operations on exactly these objects.
    async fn until(&self, want: &[&str]) {
        eventually(&format!("a client has received {want:?}"), async || {
            let seen = self.subjects.lock().unwrap_or_else(PoisonError::into_inner);
            ok_if(seen.iter().eq(want), &*seen)
        })
        .await;
    }
}

#[test]
fn operations_survive_a_restart_of_kube_apiserver_and_detection_goes_on() {
    alone(async |cluster| {
        let namespace = cluster.namespace("outage").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        for name in ["a", "b"] {
            cluster.machine(namespace, name, "Migrating").await;
        }
        let both = [("a", "Migrating"), ("b", "Migrating")];
        let before = cluster.until_operations(namespace, &both).await;
        let client = WatchingClient::start(cluster, namespace);
        client.until(&["a", "b"]).await;
        // Below, the test stops the kube-apiserver. The server must still serve the operations in
        // its memory. To read these operations, the test connects directly to the server.
        let proxy = cluster.front_proxy();
        let identity = [
            ("X-Remote-User", "test"),
            ("X-Remote-Group", "system:masters"),
        ];
        let path = OPERATION.path(Some(namespace));
        let watch = format!("{path}?watch=1");
        let mut direct = Events::with(&proxy, &watch, &identity)
            .await
            .expect("an administrator must be allowed to watch");

        cluster
            .control_plane
            .command("stop kube-apiserver")
            .await
            .expect("the kube-apiserver must stop");
        let list = proxy.get_with(&path, &identity).await.ok();
        let uids = |operations: &[serde_json::Value]| -> Vec<String> {
            let uid = |it: &serde_json::Value| text(it, "/metadata/uid").to_owned();
            operations.iter().map(uid).collect()
        };
        let items = list["items"].as_array().expect("a list has items");
        assert_eq!(uids(items), uids(&before));
        let stranger = Caller::new(cluster.direct());
        stranger.get("/readyz?exclude=informer-sync").await.ok();
        stranger
            .get("/apis/live.ifo.kubevirt.io/v1alpha1")
            .await
            .ok();
        cluster
            .control_plane
            .command("start kube-apiserver")
            .await
            .expect("the kube-apiserver must start");
        cluster.wait_until_served().await;

        cluster.machine(namespace, "c", "Migrating").await;
        cluster.set_status(namespace, "b", "Running").await;
        let after = cluster
            .until_operations(namespace, &[("a", "Migrating"), ("c", "Migrating")])
            .await;
        assert_eq!(after[0]["metadata"]["uid"], before[0]["metadata"]["uid"]);
        assert_eq!(
            crate::harness::condition(&after[0], "Detected")["status"],
            "True",
            "{}",
            after[0]
        );
        client.until(&["a", "c"]).await;
        let name = text(&before[1], "/metadata/name").to_owned();
        direct
            .until("DELETED on the direct watch", |all| {
                (event_types(all, &name).last() == Some(&"DELETED")).then_some(())
            })
            .await;
    });
}

#[test]
fn a_subject_that_is_deleted_during_an_outage_ends_its_operation() {
    alone(async |cluster| {
        let namespace = cluster.namespace("missed").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        for name in ["a", "b"] {
            cluster.machine(namespace, name, "Migrating").await;
        }
        cluster
            .until_operations(namespace, &[("a", "Migrating"), ("b", "Migrating")])
            .await;
        // The kill ends the watches of the server. The server starts new watches before or after
        // the deletion below. In both cases, it must notice the deletion.
        cluster
            .control_plane
            .command("kill kube-apiserver")
            .await
            .expect("the kube-apiserver must be running");
        cluster
            .control_plane
            .command("start kube-apiserver")
            .await
            .expect("the kube-apiserver must start");
        let path = format!("{}/a", VM.path(Some(namespace)));
        eventually("the machine is deleted", async || {
            let request = http::Request::delete(&path)
                .body(kube::client::Body::empty())
                .expect("the request is valid");
            let answer = cluster.admin.try_send(request).await?;
            ok_if(matches!(answer.code, 200 | 404), answer)
        })
        .await;
        cluster.wait_until_served().await;
        cluster
            .until_operations(namespace, &[("b", "Migrating")])
            .await;
    });
}

#[test]
fn operations_in_flight_are_restored_after_a_restart_of_the_server() {
    alone(async |cluster| {
        let namespace = cluster.namespace("restarted").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        let subject = cluster.machine(namespace, "a", "Migrating").await;
        cluster.machine(namespace, "b", "Migrating").await;
        cluster
            .until_operations(namespace, &[("a", "Migrating"), ("b", "Migrating")])
            .await;
        let client = WatchingClient::start(cluster, namespace);
        client.until(&["a", "b"]).await;
        let path = OPERATION.path(Some(namespace));
        let list = cluster.admin.get(&path).await.ok();
        let version = |list: &serde_json::Value| -> u64 {
            let version = text(list, "/metadata/resourceVersion");
            version.parse().expect("a resourceVersion must be a number")
        };
        let before = version(&list);
        let api_service_path =
            "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.live.ifo.kubevirt.io";
        let registered = cluster.admin.get(api_service_path).await.ok();

        let mut open = cluster.watch(namespace).await;
        let mut kubectl = Kubectl::new(cluster).follow(&["get", "ifos", "-n", namespace, "-w"]);
        wait_for_watch(&mut kubectl).await;
        let mut server = cluster.server.lock().await;
        let status = server.terminate().await;
        assert!(status.success(), "{status}");
        open.wait_for_end().await;
        // kubectl must end without an error.
        kubectl.wait_for_end().await;
        let lines = kubectl.until("all lines", |all| Some(all.to_vec())).await;
        // While the server stops, its answer can contain the warning that operations may be
        // missing. kubectl prints this warning.
        let is_warning = |line: &str| line.contains("operations may be missing");
        let is_row = |line: &&String| !is_log(line) && !is_warning(line);
        let lines: Vec<&String> = lines.iter().filter(is_row).collect();
        assert!(lines[0].starts_with("SUBJECT "), "{lines:?}");
        // If the server's own watch is interrupted (a watch gap), kubectl prints rows again. So the
        // test collects the rows in a set.
        let subjects: BTreeSet<Option<&str>> = lines[1..]
            .iter()
            .map(|line| columns(line).first().copied())
            .collect();
        assert!(
            subjects
                .into_iter()
                .eq([Some("VirtualMachine/a"), Some("VirtualMachine/b")]),
            "{lines:?}"
        );
        cluster.set_status(namespace, "b", "Running").await;
        cluster.machine(namespace, "c", "Migrating").await;
        server.start_again(&cluster.kubeconfig).await;
        drop(server);
        cluster.wait_until_served().await;

        let after = cluster
            .until_operations(namespace, &[("a", "Migrating"), ("c", "Migrating")])
            .await;
        let fields = subject["metadata"]["managedFields"].as_array();
        let changed = fields
            .into_iter()
            .flatten()
            .map(|it| text(it, "/time"))
            .max();
        assert_eq!(
            Some(text(&after[0], "/metadata/creationTimestamp")),
            changed
        );
        assert_eq!(after[0]["status"]["startTimeSource"], "ManagedFields");
        let list = cluster.admin.get(&path).await.ok();
        assert!(version(&list) > before, "{} after {before}", version(&list));
        client.until(&["a", "c"]).await;
        let still = cluster.admin.get(api_service_path).await.ok();
        assert_eq!(
            still["spec"]["caBundle"], registered["spec"]["caBundle"],
            "the CA must stay the same after a restart"
        );
        cluster.set_status(namespace, "a", "Running").await;
        cluster
            .until_operations(namespace, &[("c", "Migrating")])
            .await;
        client.until(&["c"]).await;
    });
}
