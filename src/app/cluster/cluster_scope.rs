//! Watches the namespaces and nodes of the cluster, and reports them to the tracker.
//!
//! - Each existing namespace and node has an activity. (An activity tells whether a part of the
//!   cluster is idle.)
//! - The tracker deletes the completed operations in deleted namespaces. If a namespace is deleted and
//!   created again while the watch does not run, this module also reports the namespace as deleted.

use crate::takeover::ListedNamespaces;
use futures::{Stream, StreamExt as _};
use ifo_api::Text;
use ifo_engine::track::{Existing, Message};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::collections::{HashMap, HashSet};
use std::pin::pin;
use tokio::sync::{mpsc, oneshot, watch};

/// The objects of one kind that exist: their names, their UIDs, and their creation times. The UID
/// distinguishes an object from an earlier or later object with the same name.
type Found = HashMap<Text, (String, Timestamp)>;

/// Watches the namespaces until the leadership term ends. Publishes the namespaces that exist on
/// `existing`, because the leader needs them to restore operations. Then waits for `unlisted`: the
/// namespaces of the restored operations, if the leader has restored them without the list.
pub(super) async fn watch_namespaces(
    client: Client,
    existing: watch::Sender<Option<ListedNamespaces>>,
    unlisted: oneshot::Receiver<HashSet<Text>>,
    tracker: mpsc::Sender<Message>,
) {
    let found = found::<Namespace>(events(client));
    report_namespaces(found, existing, unlisted, tracker).await;
}

async fn report_namespaces(
    found: impl Stream<Item = Found>,
    existing: watch::Sender<Option<ListedNamespaces>>,
    unlisted: oneshot::Receiver<HashSet<Text>>,
    tracker: mpsc::Sender<Message>,
) {
    let mut found = pin!(found);
    let mut before = Found::new();
    let mut unlisted = Some(unlisted);
    while let Some(now) = found.next().await {
        let created = now.iter().map(|(name, (_, at))| (name.to_string(), *at));
        existing.send_replace(Some(created.collect()));
        let mut messages = differences(&before, &now);
        if let Some(unlisted) = unlisted.take() {
            let restored = unlisted.await.unwrap_or_default().into_iter();
            let deleted = restored.filter(|name| !now.contains_key(name));
            messages.extend(deleted.map(|name| Message::NamespaceDeleted { name, again: None }));
        }
        let names = now.keys().cloned().collect();
        messages.push(Message::Existing(Existing::Namespaces(names)));
        for message in messages {
            if tracker.send(message).await.is_err() {
                return;
            }
        }
        before = now;
    }
}

/// Watches the nodes until the leadership term ends.
pub(super) async fn watch_nodes(client: Client, tracker: mpsc::Sender<Message>) {
    let mut found = pin!(found::<Node>(events(client)));
    while let Some(nodes) = found.next().await {
        let existing = Existing::Nodes(nodes.into_keys().collect());
        if tracker.send(Message::Existing(existing)).await.is_err() {
            return;
        }
    }
}

type WatchEvent<K> = Result<Event<PartialObjectMeta<K>>, watcher::Error>;

/// Watches the objects of the kind `K`. The stream never ends. If the server may not list the objects,
/// the stream has only errors. Then a namespace or a node has an activity only while operations are in
/// flight there.
fn events<K>(client: Client) -> impl Stream<Item = WatchEvent<K>>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let api: Api<PartialObjectMeta<K>> = Api::all(client);
    watcher(api, watcher::Config::default()).default_backoff()
}

/// Returns the objects that exist after each list, and after each creation or deletion.
fn found<K>(events: impl Stream<Item = WatchEvent<K>>) -> impl Stream<Item = Found>
where
    K: Resource<DynamicType = ()>,
{
    let (mut listed, mut found) = (Found::new(), Found::new());
    events.filter_map(move |event| {
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
            Ok(Event::Apply(object)) => entry(object.metadata).is_some_and(|(name, object)| {
                let before = found.insert(name, object.clone());
                before != Some(object)
            }),
            Ok(Event::Delete(object)) => {
                let name = object.metadata.name.unwrap_or_default();
                found.remove(&*name).is_some()
            }
            Err(error) => {
                tracing::warn!(kind = %K::kind(&()), %error, "objects cannot be watched");
                false
            }
        };
        std::future::ready(has_changed.then(|| found.clone()))
    })
}

/// Returns the entry of an object in [`Found`]. A kube-apiserver always sends all parts of it.
fn entry(object: ObjectMeta) -> Option<(Text, (String, Timestamp))> {
    let created = object.creation_timestamp?.0;
    Some((object.name?.into(), (object.uid?, created)))
}

/// Returns the deletions and creations of namespaces between two states.
fn differences(before: &Found, now: &Found) -> Vec<Message> {
    let deleted = before.keys().filter(|name| !now.contains_key(*name));
    let deleted = deleted.map(|name| Message::NamespaceDeleted {
        name: name.clone(),
        again: None,
    });
    let created = now.iter().filter_map(|(name, (uid, created))| {
        let (name, created) = (name.clone(), *created);
        match before.get(&name) {
            None => Some(Message::NamespaceCreated { name, created }),
            Some((old, _)) if old != uid => Some(Message::NamespaceDeleted {
                name,
                again: Some(created),
            }),
            Some(_) => None,
        }
    });
    deleted.chain(created).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats a deletion as `-name` or `-name+second` (created again), a creation as `+name+second`,
    /// and the namespaces that exist as their names.
    fn as_text(message: Message) -> String {
        match message {
            Message::NamespaceDeleted { name, again: None } => format!("-{name}"),
            Message::NamespaceDeleted {
                name,
                again: Some(again),
            } => format!("-{name}+{}", again.as_second()),
            Message::NamespaceCreated { name, created } => {
                format!("+{name}+{}", created.as_second())
            }
            Message::Existing(Existing::Namespaces(mut names)) => {
                names.sort();
                names.join(" ")
            }
            other => panic!("{other:?}"),
        }
    }

    /// Returns the namespaces with these names and creation times, in seconds after 1970.
    fn namespaces<const N: usize>(all: [(&str, i64); N]) -> Found {
        let entry = |(name, second): (&str, i64)| {
            let created = Timestamp::from_second(second).unwrap();
            (name.into(), (format!("{name}-{second}"), created))
        };
        all.map(entry).into()
    }

    #[test]
    fn a_namespace_recreated_while_the_watch_was_broken_counts_as_deleted() {
        let before = namespaces([("a", 1), ("b", 1), ("c", 1)]);
        let now = namespaces([("a", 7), ("b", 1), ("d", 2)]);
        let mut texts: Vec<_> = differences(&before, &now)
            .into_iter()
            .map(as_text)
            .collect();
        texts.sort();
        assert_eq!(texts, ["+d+2", "-a+7", "-c"]);
        assert!(differences(&now, &now).is_empty());
        // Both namespaces were created in the same second.
        let mut twin = now.clone();
        twin.get_mut("a").unwrap().0 = "other".to_owned();
        let texts: Vec<_> = differences(&now, &twin).into_iter().map(as_text).collect();
        assert_eq!(texts, ["-a+7"]);
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
        let (unlisted, receiver) = oneshot::channel();
        let (tracker, mut messages) = mpsc::channel(16);
        let found = found::<Namespace>(received);
        tokio::spawn(report_namespaces(found, existing, receiver, tracker));
        let mut next = async || {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            let mut texts = Vec::new();
            while let Ok(message) = messages.try_recv() {
                texts.push(as_text(message));
            }
            texts
        };
        send(Event::Init);
        send(Event::InitApply(object("a", "1")));
        send(Event::InitDone);
        assert_eq!(next().await, [""; 0]);
        assert!(listed.borrow().as_ref().unwrap().contains_key("a"));
        // Operations of the deleted namespace `old` were restored without the list.
        unlisted.send(["a".into(), "old".into()].into()).unwrap();
        assert_eq!(next().await, ["+a+1", "-old", "a"]);
        send(Event::Apply(object("b", "1")));
        assert_eq!(next().await, ["+b+1", "a b"]);
        send(Event::Apply(object("b", "2")));
        assert_eq!(next().await, [""; 0], "the label does not matter");
        send(Event::Delete(object("b", "2")));
        assert_eq!(next().await, ["-b", "a"]);
        assert!(!listed.borrow().as_ref().unwrap().contains_key("b"));
    }
}
