//! Watches the namespaces and nodes of the cluster, and reports them to the tracker.
//!
//! - Each existing namespace and node has an activity. (An activity tells whether a part of the
//!   cluster is idle.)
//! - The tracker deletes the completed operations in deleted namespaces. If a namespace is deleted and
//!   created again while the watch does not run, this module also reports the namespace as deleted.

use crate::persist::ListedNamespaces;
use futures::{Stream, StreamExt as _};
use ifo_api::Text;
use ifo_engine::track::{Existing, Message};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::collections::{HashMap, HashSet};
use std::pin::pin;
use tokio::sync::{mpsc, oneshot, watch};

/// Watches the namespaces until the leadership term ends. Publishes the namespaces that exist on
/// `existing`, because the leader needs them to restore operations. Then waits for `unlisted`: the
/// namespaces of the restored operations, if the leader has restored them without the list.
pub(super) async fn watch_namespaces(
    client: Client,
    existing: watch::Sender<Option<ListedNamespaces>>,
    unlisted: oneshot::Receiver<HashSet<Text>>,
    tracker: mpsc::Sender<Message>,
) {
    let mut changes = pin!(changes::<Namespace>(client));
    let Some(mut change) = changes.next().await else {
        return;
    };
    publish(&existing, &change);
    let mut seen = SeenNamespaces::new(unlisted.await.unwrap_or_default());
    loop {
        for message in seen.messages(change) {
            if tracker.send(message).await.is_err() {
                return;
            }
        }
        let Some(next) = changes.next().await else {
            return;
        };
        publish(&existing, &next);
        change = next;
    }
}

/// Publishes the namespaces that exist after a change.
fn publish(existing: &watch::Sender<Option<ListedNamespaces>>, change: &Change) {
    let created = |it: &ObjectMeta| Some((it.name.clone()?, it.creation_timestamp.as_ref()?.0));
    existing.send_modify(|existing| match change {
        Change::Listed(all) => *existing = Some(all.iter().filter_map(created).collect()),
        Change::Applied(one) => existing.get_or_insert_default().extend(created(one)),
        Change::Deleted(one) => {
            let name = one.name.as_deref().unwrap_or_default();
            existing.get_or_insert_default().remove(name);
        }
    });
}

/// Watches the nodes until the leadership term ends.
pub(super) async fn watch_nodes(client: Client, tracker: mpsc::Sender<Message>) {
    let mut changes = pin!(changes::<Node>(client));
    while let Some(change) = changes.next().await {
        let message = Message::Existing(match change {
            Change::Listed(nodes) => Existing::Nodes(nodes.iter().map(name).collect()),
            Change::Applied(node) => Existing::Node(name(&node), true),
            Change::Deleted(node) => Existing::Node(name(&node), false),
        });
        if tracker.send(message).await.is_err() {
            return;
        }
    }
}

/// A change of the watched objects.
#[derive(Debug)]
enum Change {
    /// All objects.
    Listed(Vec<ObjectMeta>),
    Applied(ObjectMeta),
    Deleted(ObjectMeta),
}

fn name(object: &ObjectMeta) -> Text {
    object.name.as_deref().unwrap_or_default().into()
}

/// Watches the objects of the kind `K`. The first change is a list. The stream never ends. If the server
/// may not list the objects, the stream has no changes. Then a namespace or a node has an activity only
/// while operations are in flight there.
fn changes<K>(client: Client) -> impl Stream<Item = Change>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let api: Api<PartialObjectMeta<K>> = Api::all(client);
    let mut listed = Vec::new();
    let events = watcher(api, watcher::Config::default()).default_backoff();
    events.filter_map(move |event| {
        let change = match event {
            Ok(Event::Init) => {
                listed.clear();
                None
            }
            Ok(Event::InitApply(object)) => {
                listed.push(object.metadata);
                None
            }
            Ok(Event::InitDone) => Some(Change::Listed(std::mem::take(&mut listed))),
            Ok(Event::Apply(object)) => Some(Change::Applied(object.metadata)),
            Ok(Event::Delete(object)) => Some(Change::Deleted(object.metadata)),
            Err(error) => {
                tracing::warn!(kind = %K::kind(&()), %error, "objects cannot be watched");
                None
            }
        };
        std::future::ready(change)
    })
}

/// The namespaces that exist according to the changes so far, with their UIDs. The UID distinguishes a
/// namespace from an earlier or later namespace with the same name. It is None before the first list.
#[derive(Debug)]
struct SeenNamespaces(HashMap<Text, Option<String>>);

impl SeenNamespaces {
    /// Creates the state before the first list, in which these namespaces are known.
    fn new(known: HashSet<Text>) -> Self {
        Self(known.into_iter().map(|name| (name, None)).collect())
    }

    /// Records a change. Returns the resulting messages to the tracker: the deletions and creations,
    /// and then the namespaces that exist.
    fn messages(&mut self, change: Change) -> Vec<Message> {
        match change {
            Change::Listed(namespaces) => {
                let listed: HashSet<Text> = namespaces.iter().map(name).collect();
                let gone = self.0.extract_if(|name, _| !listed.contains(name));
                let mut messages: Vec<_> = gone.map(|(name, _)| gone_for_good(name)).collect();
                messages.extend(namespaces.iter().filter_map(|it| self.record(it)));
                let listed = listed.into_iter().collect();
                messages.push(Message::Existing(Existing::Namespaces(listed)));
                messages
            }
            Change::Applied(namespace) => {
                let existing = Existing::Namespace(name(&namespace), true);
                let mut messages: Vec<_> = self.record(&namespace).into_iter().collect();
                messages.push(Message::Existing(existing));
                messages
            }
            Change::Deleted(namespace) => {
                let name = name(&namespace);
                self.0.remove(&name);
                let existing = Existing::Namespace(name.clone(), false);
                vec![gone_for_good(name), Message::Existing(existing)]
            }
        }
    }

    fn record(&mut self, namespace: &ObjectMeta) -> Option<Message> {
        let name = name(namespace);
        let created = namespace.creation_timestamp.as_ref().map(|time| time.0);
        match self.0.insert(name.clone(), namespace.uid.clone()) {
            None => created.map(|created| Message::NamespaceCreated { name, created }),
            Some(before) if before.is_none() || before == namespace.uid => None,
            Some(_) => Some(Message::NamespaceDeleted {
                name,
                again: created,
            }),
        }
    }
}

fn gone_for_good(name: Text) -> Message {
    Message::NamespaceDeleted { name, again: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    /// Returns a namespace that was created `second` seconds after 1970. The UID of the namespace
    /// consists of its name and `second`.
    fn namespace(name: &str, second: i64) -> ObjectMeta {
        let created =
            Timestamp::from_second(second).expect("the test uses small numbers of seconds");
        let metadata = serde_json::json!({
            "name": name, "uid": format!("{name}-{second}"), "creationTimestamp": created,
        });
        serde_json::from_value(metadata).expect("the test builds valid metadata")
    }

    fn seen_at_takeover(all: &[&str]) -> SeenNamespaces {
        SeenNamespaces::new(all.iter().map(|name| (*name).into()).collect())
    }

    /// Formats the deletions and creations as `-name` (deleted), `-name+second` (deleted and created again) or
    /// `+name+second` (created). Returns the sorted texts.
    fn as_texts(messages: Vec<Message>) -> Vec<String> {
        let mut texts: Vec<String> = messages
            .into_iter()
            .filter(|message| !matches!(message, Message::Existing(_)))
            .map(|message| match message {
                Message::NamespaceDeleted { name, again: None } => format!("-{name}"),
                Message::NamespaceDeleted {
                    name,
                    again: Some(again),
                } => format!("-{name}+{}", again.as_second()),
                Message::NamespaceCreated { name, created } => {
                    format!("+{name}+{}", created.as_second())
                }
                other => panic!("{other:?}"),
            })
            .collect();
        texts.sort();
        texts
    }

    fn take_list(seen: &mut SeenNamespaces, all: &[(&str, i64)]) -> Vec<String> {
        let all = all.iter().map(|(name, second)| namespace(name, *second));
        as_texts(seen.messages(Change::Listed(all.collect())))
    }

    #[test]
    fn the_namespaces_that_exist_are_reported_after_a_list_and_with_each_change() {
        let mut seen = seen_at_takeover(&[]);
        let mut reported = Vec::new();
        let mut last = |change| seen.messages(change).pop();
        let listed = last(Change::Listed(vec![namespace("a", 1)]));
        assert!(
            matches!(listed, Some(Message::Existing(Existing::Namespaces(names))) if names == [Text::from("a")])
        );
        for change in [Change::Applied, Change::Deleted] {
            let Some(Message::Existing(Existing::Namespace(name, exists))) =
                last(change(namespace("b", 1)))
            else {
                panic!("each change of a namespace is reported");
            };
            reported.push((name.to_string(), exists));
        }
        let expected = [("b".to_owned(), true), ("b".to_owned(), false)];
        assert_eq!(reported, expected);
    }

    #[test]
    fn the_first_list_shows_which_namespaces_were_deleted_before() {
        let mut seen = seen_at_takeover(&["a", "b", "c"]);
        let list = [("a", 1), ("b", 2), ("d", 2)];
        assert_eq!(take_list(&mut seen, &list), ["+d+2", "-c"]);
        assert!(
            take_list(&mut seen, &list).is_empty(),
            "an unchanged list must not yield messages"
        );
        let list = [("a", 2), ("b", 2), ("d", 2)];
        assert_eq!(
            take_list(&mut seen, &list),
            ["-a+2"],
            "the first list must record the UID"
        );
    }

    #[test]
    fn a_namespace_recreated_while_the_watch_was_broken_counts_as_deleted() {
        let mut seen = seen_at_takeover(&[]);
        take_list(&mut seen, &[("a", 1), ("b", 1)]);
        assert_eq!(take_list(&mut seen, &[("a", 7), ("b", 1)]), ["-a+7"]);
    }

    #[test]
    fn a_namespace_recreated_within_a_second_is_recognized_by_its_uid() {
        let mut seen = seen_at_takeover(&["a"]);
        let mut twin = namespace("a", 1);
        assert!(take_list(&mut seen, &[("a", 1)]).is_empty());
        twin.uid = Some("another".to_owned());
        assert_eq!(as_texts(seen.messages(Change::Applied(twin))), ["-a+1"]);
    }

    #[test]
    fn the_watch_reports_each_deletion_once() {
        let mut seen = seen_at_takeover(&["a"]);
        take_list(&mut seen, &[("a", 1)]);
        let mut apply = |second| as_texts(seen.messages(Change::Applied(namespace("a", second))));
        assert!(
            apply(1).is_empty(),
            "a changed label must not yield a message"
        );
        assert_eq!(
            apply(3),
            ["-a+3"],
            "a new namespace must be reported, even if the watch missed the deletion"
        );
        assert_eq!(
            as_texts(seen.messages(Change::Deleted(namespace("a", 3)))),
            ["-a"]
        );
        assert!(
            take_list(&mut seen, &[]).is_empty(),
            "a deletion must be reported once"
        );
        let mut apply = |second| as_texts(seen.messages(Change::Applied(namespace("a", second))));
        assert_eq!(apply(5), ["+a+5"]);
        assert!(apply(5).is_empty());
    }
}
