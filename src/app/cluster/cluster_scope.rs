//! Watches the namespaces and nodes of the cluster, and reports them to the tracker.
//!
//! - Each existing namespace and node has an activity. (An activity tells whether a part of the
//!   cluster is idle.)
//! - The tracker deletes the completed operations in deleted namespaces.

use crate::telemetry::FailureLog;
use futures::{Stream, StreamExt as _};
use ifo_api::Text;
use ifo_client::backoff::WatchBackoff;
use ifo_client::error_text::chain;
use ifo_engine::track::{Existing, Message, Namespaces};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// Watches the namespaces until the leadership term ends. Also sends the existing namespaces to
/// `existing`, because the leader needs the namespaces to restore operations.
pub(super) async fn watch_namespaces(
    client: Client,
    existing: watch::Sender<Option<Arc<Namespaces>>>,
    tracker: mpsc::Sender<Message>,
) {
    let found = found::<Namespace>(events(client), "namespaces can be watched again");
    report_namespaces(found, existing, tracker).await;
}

async fn report_namespaces(
    found: impl Stream<Item = Namespaces>,
    existing: watch::Sender<Option<Arc<Namespaces>>>,
    tracker: mpsc::Sender<Message>,
) {
    let mut found = pin!(found.map(Arc::new));
    while let Some(namespaces) = found.next().await {
        existing.send_replace(Some(namespaces.clone()));
        let message = Message::Existing(Existing::Namespaces(namespaces));
        if tracker.send(message).await.is_err() {
            return;
        }
    }
}

/// Watches the nodes until the leadership term ends.
pub(super) async fn watch_nodes(client: Client, tracker: mpsc::Sender<Message>) {
    let mut found = pin!(found::<Node>(events(client), "nodes can be watched again"));
    while let Some(nodes) = found.next().await {
        let existing = Existing::Nodes(nodes.into_keys().collect());
        if tracker.send(Message::Existing(existing)).await.is_err() {
            return;
        }
    }
}

type WatchEvent<K> = Result<Event<PartialObjectMeta<K>>, watcher::Error>;

/// Watches the objects of the kind `K`. The stream never ends. If the server lacks the permission
/// to list the objects, the stream has only errors. Then a namespace or a node has an activity only
/// while operations are in flight there.
fn events<K>(client: Client) -> impl Stream<Item = WatchEvent<K>>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let api: Api<PartialObjectMeta<K>> = Api::all(client);
    watcher(api, watcher::Config::default()).backoff(WatchBackoff::default())
}

/// Returns all existing objects after each list, and after each creation or deletion of an object.
/// Logs failures. `recovered` is the log message after a recovery.
fn found<K>(
    events: impl Stream<Item = WatchEvent<K>>,
    recovered: &'static str,
) -> impl Stream<Item = Namespaces>
where
    K: Resource<DynamicType = ()>,
{
    let mut failures = FailureLog::new(recovered);
    let (mut listed, mut found) = (Namespaces::new(), Namespaces::new());
    events.filter_map(move |event| {
        // `Init` is no success: it comes before each list, even if the list then fails.
        if !matches!(event, Ok(Event::Init))
            && let Some(error) = failures.record(&event)
        {
            tracing::warn!(kind = %K::kind(&()), error = chain(error), "objects cannot be watched");
        }
        let has_changed = match event {
            Ok(Event::Init) => {
                listed.clear();
                false
            }
            Ok(Event::InitApply(object)) => {
                listed.extend(entry(object.metadata));
                false
            }
            Ok(Event::InitDone) => {
                found = std::mem::take(&mut listed);
                true
            }
            Ok(Event::Apply(object)) => entry(object.metadata)
                .is_some_and(|(name, created)| found.insert(name, created) != Some(created)),
            Ok(Event::Delete(object)) => {
                let name = object.metadata.name.unwrap_or_default();
                found.remove(&*name).is_some()
            }
            Err(_) => false,
        };
        std::future::ready(has_changed.then(|| found.clone()))
    })
}

/// Returns the entry of an object in [`Namespaces`]. Returns None if the name or the creation time
/// is missing. A kube-apiserver always sends both.
fn entry(object: ObjectMeta) -> Option<(Text, Timestamp)> {
    Some((object.name?.into(), object.creation_timestamp?.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::testing::CapturedLog;
    use aggregated_apiserver::auth::testing::Cluster;
    use http::Method;

    #[tokio::test(start_paused = true)]
    async fn a_lasting_failure_is_retried_slowly_and_logged_once() {
        let captured = CapturedLog::default();
        let log = captured.begin();
        let cluster = Cluster::new();
        for _ in 0..1_000 {
            cluster.refuse(Method::GET, "/nodes", 403);
        }
        let (tracker, _messages) = mpsc::channel(16);
        let watching = watch_nodes(cluster.client(), tracker);
        let _ = tokio::time::timeout(std::time::Duration::from_mins(10), watching).await;
        drop(log);
        let requests = cluster.seen(&Method::GET).len();
        assert!((60..=130).contains(&requests), "{requests} requests");
        let lines = captured.lines();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(lines[0]["message"], "objects cannot be watched");
        assert_eq!(lines[0]["kind"], "Node");
    }

    #[tokio::test(start_paused = true)]
    async fn each_change_of_a_namespace_is_reported_once() {
        let object = |name: &str, label: &str| {
            let metadata = serde_json::json!({
                "name": name, "uid": name, "creationTimestamp": "1970-01-01T00:00:01Z",
                "labels": {"a": label},
            });
            let object: PartialObjectMeta<Namespace> =
                serde_json::from_value(serde_json::json!({"metadata": metadata})).unwrap();
            object
        };
        let (sender, received) = futures::channel::mpsc::unbounded();
        let send = |event| sender.unbounded_send(Ok(event)).unwrap();
        let (existing, listed) = watch::channel(None);
        let (tracker, mut messages) = mpsc::channel(16);
        let found = found::<Namespace>(received, "namespaces can be watched again");
        tokio::spawn(report_namespaces(found, existing, tracker));
        let mut next = async || {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            let mut lists = Vec::new();
            while let Ok(Message::Existing(Existing::Namespaces(all))) = messages.try_recv() {
                let mut names: Vec<&str> = all.keys().map(|name| &**name).collect();
                names.sort_unstable();
                lists.push(names.join(" "));
            }
            lists
        };
        send(Event::Init);
        send(Event::InitApply(object("a", "1")));
        send(Event::InitDone);
        assert_eq!(next().await, ["a"]);
        assert!(listed.borrow().as_ref().unwrap().contains_key("a"));
        send(Event::Apply(object("b", "1")));
        assert_eq!(next().await, ["a b"]);
        send(Event::Apply(object("b", "2")));
        assert_eq!(next().await, [""; 0], "the label does not matter");
        send(Event::Delete(object("b", "2")));
        assert_eq!(next().await, ["a"]);
        assert!(!listed.borrow().as_ref().unwrap().contains_key("b"));
    }
}
