//! Tests of restarts of the kube-apiserver and of the server under test. After a restart, all
//! operations in flight must still exist, and clients must receive the current state again. In one
//! test without a restart, the server must restore the CA that is missing in its registration.

use crate::harness::{
    API_SERVICE, AS_ADMINISTRATOR, Caller, Cluster, Events, OPERATION, VM, alone, columns,
    eventually, is, items, ok_if, text,
};
use crate::kubectl::{Kubectl, is_log, wait_for_watch};
use futures::StreamExt as _;
use futures::future::ready;
use kube::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::reflector::{Store, store::Writer};
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use serde_json::Value;
use std::collections::BTreeSet;
use tokio::task::JoinHandle;

/// A client that watches the operations of a namespace. After a failure, it watches again, as
/// controllers and dashboards do.
struct WatchingClient {
    operations: Store<DynamicObject>,
    task: JoinHandle<()>,
}

impl Drop for WatchingClient {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl WatchingClient {
    fn start(cluster: &Cluster, namespace: &str) -> Self {
        let kind = GroupVersionKind::gvk("live.ifo.kubevirt.io", "v1alpha1", OPERATION.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, OPERATION.plural);
        let client = cluster.admin.client.clone();
        let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
        let writer = Writer::new(resource);
        let operations = writer.as_reader();
        let events = watcher(api, watcher::Config::default()).default_backoff();
        // After an error, the watcher connects again by itself.
        let task = tokio::spawn(reflector(writer, events).for_each(|_| ready(())));
        Self { operations, task }
    }

    /// Waits until the client knows operations on exactly these objects.
    async fn until(&self, want: &[&str]) {
        eventually(&format!("a client has received {want:?}"), async || {
            let operations = self.operations.state();
            let subjects = operations
                .iter()
                .map(|it| text(&it.data, "/spec/subject/name"));
            let subjects: BTreeSet<&str> = subjects.collect();
            ok_if(subjects.iter().eq(want), &subjects)
        })
        .await;
    }
}

async fn command(cluster: &Cluster, command: &str) {
    let done = cluster.control_plane.command(command).await;
    done.unwrap_or_else(|error| panic!("{command}: {error}"));
}

#[test]
fn operations_survive_an_outage_of_the_kube_apiserver_and_detection_goes_on() {
    alone(async |cluster| {
        let (namespace, before) = cluster.migrations("outage", &["a", "b", "d"]).await;
        let client = WatchingClient::start(cluster, namespace);
        client.until(&["a", "b", "d"]).await;
        // Below, the test stops the kube-apiserver. The server must still serve the operations in
        // its memory. To read these operations, the test connects directly to the server.
        let proxy = cluster.front_proxy();
        let path = OPERATION.path(Some(namespace));
        let watch = format!("{path}?watch=1");
        let direct = Events::with(&proxy, &watch, &AS_ADMINISTRATOR).await;
        let mut direct = direct.expect("an administrator must be allowed to watch");

        command(cluster, "stop kube-apiserver").await;
        let list = proxy.get_with(&path, &AS_ADMINISTRATOR).await.ok();
        let uids = |operations: &[Value]| -> Vec<String> {
            let uid = |it: &Value| text(it, "/metadata/uid").to_owned();
            operations.iter().map(uid).collect()
        };
        assert_eq!(uids(items(&list)), uids(&before));
        let stranger = Caller::new(cluster.direct());
        for path in [
            "/readyz?exclude=informer-sync",
            "/apis/live.ifo.kubevirt.io/v1alpha1",
        ] {
            stranger.get(path).await.ok();
        }
        command(cluster, "start kube-apiserver").await;
        // The server watches again before or after this deletion. In both cases, it must notice the
        // deletion.
        eventually("the machine is deleted", async || {
            let request = http::Request::delete(VM.one(Some(namespace), "d"))
                .body(kube::client::Body::empty())
                .expect("the request is valid");
            let answer = cluster.admin.try_send(request).await?;
            ok_if(matches!(answer.code, 200 | 404), answer)
        })
        .await;
        cluster.until_served().await;

        cluster.machine(namespace, "c", "Migrating").await;
        cluster.set_status(namespace, "b", "Running").await;
        let left = [("a", "Migrating"), ("c", "Migrating")];
        let after = cluster.until_operations(namespace, &left).await;
        assert_eq!(after[0]["metadata"]["uid"], before[0]["metadata"]["uid"]);
        assert!(is(&after[0], "Detected", "True"), "{}", after[0]);
        client.until(&["a", "c"]).await;
        let name = text(&before[1], "/metadata/name");
        let is_deleted = |all: &[Value]| {
            let mut deleted = all.iter().filter(|it| it["type"] == "DELETED");
            let is_it = |it: &Value| text(it, "/object/metadata/name") == name;
            deleted.any(is_it).then_some(())
        };
        direct
            .until("DELETED on the direct watch", is_deleted)
            .await;
    });
}

#[test]
fn operations_in_flight_are_restored_after_a_restart_of_the_server() {
    alone(async |cluster| {
        let (namespace, _) = cluster.migrations("restarted", &["a", "b"]).await;
        let subject = cluster.admin.get(&VM.one(Some(namespace), "a")).await.ok();
        let client = WatchingClient::start(cluster, namespace);
        client.until(&["a", "b"]).await;
        let version = async || -> u64 {
            let list = cluster
                .admin
                .get(&OPERATION.path(Some(namespace)))
                .await
                .ok();
            let version = text(&list, "/metadata/resourceVersion");
            version.parse().expect("a resourceVersion must be a number")
        };
        let before = version().await;
        let bundle = async || cluster.admin.get(API_SERVICE).await.ok()["spec"]["caBundle"].take();
        let registered = bundle().await;

        let mut open = cluster.watch(namespace).await;
        let args = ["get", "ifos", "-n", namespace, "-w"];
        let mut kubectl = Kubectl::new(cluster).follow(&args);
        wait_for_watch(&mut kubectl).await;
        let mut server = cluster.server.lock().await;
        let status = server.terminate().await;
        assert!(status.success(), "{status}");
        open.wait_for_end().await;
        // kubectl must end without an error.
        kubectl.wait_for_end().await;
        let lines = kubectl.until("all lines", |all| Some(all.to_vec())).await;
        // While the server stops, its answer can contain the warning that operations may be
        // missing. kubectl prints this warning. If the server's own watch is interrupted (a watch gap),
        // kubectl prints rows again. So the test collects the rows in a set.
        let is_warning = |line: &str| line.contains("operations may be missing");
        let rows = lines
            .iter()
            .filter(|line| !is_log(line) && !is_warning(line));
        let subjects: BTreeSet<_> = rows
            .filter_map(|line| columns(line).first().copied())
            .collect();
        let expected = ["SUBJECT", "VirtualMachine/a", "VirtualMachine/b"];
        assert!(subjects.into_iter().eq(expected), "{lines:?}");
        cluster.set_status(namespace, "b", "Running").await;
        cluster.machine(namespace, "c", "Migrating").await;
        server.start_again().await;
        drop(server);
        cluster.until_served().await;

        let left = [("a", "Migrating"), ("c", "Migrating")];
        let after = cluster.until_operations(namespace, &left).await;
        let fields = subject["metadata"]["managedFields"].as_array();
        let changed = fields.into_iter().flatten().map(|it| text(it, "/time"));
        let started = text(&after[0], "/metadata/creationTimestamp");
        assert_eq!(Some(started), changed.max());
        assert_eq!(after[0]["status"]["startTimeSource"], "ManagedFields");
        let after = version().await;
        assert!(after > before, "{after} after {before}");
        client.until(&["a", "c"]).await;
        assert_eq!(bundle().await, registered, "the CA must stay the same");
        cluster.set_status(namespace, "a", "Running").await;
        cluster.until_operations(namespace, &left[1..]).await;
        client.until(&["c"]).await;
    });
}
