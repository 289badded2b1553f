//! Watches the namespaces and nodes of the cluster, and reports them to the tracker.
//!
//! - Each existing namespace and node has an activity. (An activity tells whether a part of the
//!   cluster is idle.)
//! - The tracker deletes the completed operations in deleted namespaces. If a namespace is deleted and
//!   created again while the watch does not run, this module also reports the namespace as deleted.

use crate::takeover::KnownNamespaces;
use futures::StreamExt as _;
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
use tokio::sync::{mpsc, oneshot};

/// Watches the namespaces until the leadership term ends. `first` contains the namespaces that the
/// new leader knew when it took over.
pub(super) async fn watch_namespaces(
    client: Client,
    first: oneshot::Receiver<KnownNamespaces>,
    tracker: mpsc::Sender<Message>,
) {
    let mut seen = SeenNamespaces::new(first.await.unwrap_or_default());
    watch::<Namespace>(client, tracker, move |change| seen.messages(change)).await;
}

/// Watches the nodes until the leadership term ends.
pub(super) async fn watch_nodes(client: Client, tracker: mpsc::Sender<Message>) {
    watch::<Node>(client, tracker, move |change| {
        vec![Message::Existing(match change {
            Change::Listed(nodes) => Existing::Nodes(nodes.iter().map(name).collect()),
            Change::Applied(node) => Existing::Node(name(&node), true),
            Change::Deleted(node) => Existing::Node(name(&node), false),
        })]
    })
    .await;
}

/// A change of the watched objects.
enum Change {
    /// All objects.
    Listed(Vec<ObjectMeta>),
    Applied(ObjectMeta),
    Deleted(ObjectMeta),
}

fn name(object: &ObjectMeta) -> Text {
    object.name.as_deref().unwrap_or_default().into()
}

/// Watches the objects of the kind `K`, and sends the messages of each change to the tracker. If the
/// server may not list the objects, sends nothing. Then a namespace or a node has an activity only
/// while operations are in flight there.
async fn watch<K>(
    client: Client,
    tracker: mpsc::Sender<Message>,
    mut messages_of: impl FnMut(Change) -> Vec<Message>,
) where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let api: Api<PartialObjectMeta<K>> = Api::all(client);
    let events = watcher(api, watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(events);
    let mut listed = Vec::new();
    while let Some(event) = events.next().await {
        let messages = match event {
            Ok(Event::Init) => {
                listed.clear();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                listed.push(object.metadata);
                continue;
            }
            Ok(Event::InitDone) => messages_of(Change::Listed(std::mem::take(&mut listed))),
            Ok(Event::Apply(object)) => messages_of(Change::Applied(object.metadata)),
            Ok(Event::Delete(object)) => messages_of(Change::Deleted(object.metadata)),
            Err(error) => {
                tracing::warn!(kind = %K::kind(&()), %error, "objects cannot be watched");
                continue;
            }
        };
        for message in messages {
            if tracker.send(message).await.is_err() {
                return;
            }
        }
    }
}

/// The namespaces that exist according to the events of the watch so far. Before the first event,
/// these are the namespaces that the new leader knew when it took over.
#[derive(Debug)]
struct SeenNamespaces(HashMap<Text, NamespaceIdentity>);

/// Distinguishes a namespace from an earlier or later namespace with the same name:
///
/// - If both UIDs are known, the UIDs are compared. Creation times are less exact, because they
///   have a resolution of one second.
/// - If a UID is unknown, the creation times are compared.
/// - If a creation time is also unknown, the namespaces count as the same.
#[derive(Debug)]
struct NamespaceIdentity {
    uid: Option<String>,
    created: Option<Timestamp>,
}

impl NamespaceIdentity {
    fn of(namespace: &ObjectMeta) -> Self {
        Self {
            uid: namespace.uid.clone(),
            created: namespace.creation_timestamp.as_ref().map(|time| time.0),
        }
    }

    fn differs_from(&self, before: &Self) -> bool {
        if self.uid.is_some() && before.uid.is_some() {
            return self.uid != before.uid;
        }
        self.created.is_some() && before.created.is_some() && self.created != before.created
    }
}

impl SeenNamespaces {
    /// Creates the state before the first event. `first` contains the namespaces that the new
    /// leader knew when it took over.
    fn new(first: KnownNamespaces) -> Self {
        let identity = |created| NamespaceIdentity { uid: None, created };
        let known = first.into_iter();
        Self(
            known
                .map(|(name, created)| (name.as_str().into(), identity(created)))
                .collect(),
        )
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
        let identity = NamespaceIdentity::of(namespace);
        let created = identity.created;
        let before = self
            .0
            .get(&name)
            .map(|before| identity.differs_from(before));
        self.0.insert(name.clone(), identity);
        match before {
            Some(false) => None,
            Some(true) => Some(Message::NamespaceDeleted {
                name,
                again: created,
            }),
            None => created.map(|created| Message::NamespaceCreated { name, created }),
        }
    }
}

fn gone_for_good(name: Text) -> Message {
    Message::NamespaceDeleted { name, again: None }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn seen_at_takeover(all: &[(&str, i64)]) -> SeenNamespaces {
        let time = |second| {
            Timestamp::from_second(second).expect("the test uses small numbers of seconds")
        };
        let all = all
            .iter()
            .map(|(name, second)| ((*name).to_owned(), Some(time(*second))));
        SeenNamespaces::new(all.collect())
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
    fn a_namespace_recreated_before_the_watch_counts_as_deleted() {
        let mut seen = seen_at_takeover(&[("a", 1), ("b", 1), ("c", 1)]);
        let list = [("a", 1), ("b", 2), ("d", 2)];
        assert_eq!(take_list(&mut seen, &list), ["+d+2", "-b+2", "-c"]);
        assert!(
            take_list(&mut seen, &list).is_empty(),
            "an unchanged list must not yield messages"
        );
    }

    #[test]
    fn a_deleted_namespace_is_detected_even_if_its_creation_time_is_unknown() {
        let mut seen = SeenNamespaces::new([("a".to_owned(), None), ("b".to_owned(), None)].into());
        assert_eq!(take_list(&mut seen, &[("a", 1)]), ["-b"]);
        assert_eq!(
            take_list(&mut seen, &[("a", 2)]),
            ["-a+2"],
            "the first list must record the creation time"
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
        let mut seen = seen_at_takeover(&[("a", 1)]);
        let mut twin = namespace("a", 1);
        assert!(take_list(&mut seen, &[("a", 1)]).is_empty());
        twin.uid = Some("another".to_owned());
        assert_eq!(as_texts(seen.messages(Change::Applied(twin))), ["-a+1"]);
    }

    #[test]
    fn the_watch_reports_each_deletion_once() {
        let mut seen = seen_at_takeover(&[("a", 1)]);
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
