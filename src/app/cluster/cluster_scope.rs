//! Watches the namespaces and nodes of the cluster, and reports them to the tracker.
//!
//! - Each existing namespace and node has an activity. (An activity tells whether a part of the
//!   cluster is idle.)
//! - The tracker deletes the completed operations in deleted namespaces. If a namespace is deleted and
//!   created again while the watch does not run, this module also reports the namespace as deleted.

use crate::takeover::KnownNamespaces;
use futures::StreamExt as _;
use ifo_engine::track::{Existing, Message};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use tokio::sync::{mpsc, oneshot};

/// Watches the namespaces until the leadership term ends. `first` contains the namespaces that the
/// new leader knew when it took over.
pub(super) async fn watch_namespaces(
    client: Client,
    first: oneshot::Receiver<KnownNamespaces>,
    tracker: mpsc::Sender<Message>,
) {
    let mut seen = SeenNamespaces::new(first.await.unwrap_or_default());
    watch::<Namespace>(client, tracker, move |event| {
        let existing = seen.existing(&event);
        let mut messages = seen.process_event(event);
        messages.extend(existing.map(Message::Existing));
        messages
    })
    .await;
}

/// Watches the nodes until the leadership term ends.
pub(super) async fn watch_nodes(client: Client, tracker: mpsc::Sender<Message>) {
    let mut listed = Vec::new();
    watch::<Node>(client, tracker, move |event| {
        let existing = match event {
            Event::Init => {
                listed.clear();
                return Vec::new();
            }
            Event::InitApply(node) => {
                listed.push(node.name_any().into());
                return Vec::new();
            }
            Event::InitDone => Existing::Nodes(std::mem::take(&mut listed)),
            Event::Apply(node) => Existing::Node(node.name_any().into(), true),
            Event::Delete(node) => Existing::Node(node.name_any().into(), false),
        };
        vec![Message::Existing(existing)]
    })
    .await;
}

/// Watches the objects of the kind `K`, and sends the messages of each event to the tracker. If the
/// server may not list the objects, sends nothing. Then a namespace or a node has an activity only
/// while operations are in flight there.
async fn watch<K>(
    client: Client,
    tracker: mpsc::Sender<Message>,
    mut messages_of: impl FnMut(Event<PartialObjectMeta<K>>) -> Vec<Message>,
) where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let api: Api<PartialObjectMeta<K>> = Api::all(client);
    let events = watcher(api, watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let messages = match event {
            Ok(event) => messages_of(event),
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
pub(super) struct SeenNamespaces {
    known: HashMap<String, NamespaceIdentity>,
    /// The namespaces of a list that is still being received.
    listed: HashMap<String, NamespaceIdentity>,
}

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
    fn of(namespace: &PartialObjectMeta<Namespace>) -> Self {
        Self {
            uid: namespace.uid(),
            created: namespace.creation_timestamp().map(|time| time.0),
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
    pub(super) fn new(first: KnownNamespaces) -> Self {
        let identity = |created| NamespaceIdentity { uid: None, created };
        let known = first.into_iter();
        Self {
            known: known
                .map(|(name, created)| (name, identity(created)))
                .collect(),
            listed: HashMap::new(),
        }
    }

    /// Returns the report of the namespaces that exist after an event.
    fn existing(&self, event: &Event<PartialObjectMeta<Namespace>>) -> Option<Existing> {
        match event {
            Event::Init | Event::InitApply(_) => None,
            Event::InitDone => {
                let names = self.listed.keys().map(|name| name.as_str().into());
                Some(Existing::Namespaces(names.collect()))
            }
            Event::Apply(object) => Some(Existing::Namespace(object.name_any().into(), true)),
            Event::Delete(object) => Some(Existing::Namespace(object.name_any().into(), false)),
        }
    }

    /// Processes one event of the watch. Returns the resulting messages to the tracker.
    pub(super) fn process_event(
        &mut self,
        event: Event<PartialObjectMeta<Namespace>>,
    ) -> Vec<Message> {
        match event {
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            Event::InitApply(namespace) => {
                self.listed
                    .insert(namespace.name_any(), NamespaceIdentity::of(&namespace));
                Vec::new()
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let gone = self.known.keys().filter(|name| !listed.contains_key(*name));
                let mut messages: Vec<Message> = gone.map(|name| gone_for_good(name)).collect();
                self.known.retain(|name, _| listed.contains_key(name));
                for (name, identity) in listed {
                    messages.extend(self.record(name, identity));
                }
                messages
            }
            Event::Apply(namespace) => {
                let messages = self.record(namespace.name_any(), NamespaceIdentity::of(&namespace));
                messages.into_iter().collect()
            }
            Event::Delete(namespace) => {
                let name = namespace.name_any();
                self.known.remove(&name);
                vec![gone_for_good(&name)]
            }
        }
    }

    fn record(&mut self, name: String, identity: NamespaceIdentity) -> Option<Message> {
        let created = identity.created;
        let replaced = self
            .known
            .get(&name)
            .map(|before| identity.differs_from(before));
        let shared = name.as_str().into();
        self.known.insert(name, identity);
        match (replaced, created) {
            (Some(false), _) | (None, None) => None,
            (Some(true), created) => Some(Message::NamespaceDeleted {
                name: shared,
                again: created,
            }),
            (None, Some(created)) => Some(Message::NamespaceCreated {
                name: shared,
                created,
            }),
        }
    }
}

fn gone_for_good(name: &str) -> Message {
    Message::NamespaceDeleted {
        name: name.into(),
        again: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a namespace that was created `second` seconds after 1970. The UID of the namespace
    /// consists of its name and `second`.
    fn namespace(name: &str, second: i64) -> PartialObjectMeta<Namespace> {
        let created =
            Timestamp::from_second(second).expect("the test uses small numbers of seconds");
        let object = serde_json::json!({"metadata": {
            "name": name, "uid": format!("{name}-{second}"), "creationTimestamp": created,
        }});
        serde_json::from_value(object).expect("the test builds a valid namespace")
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

    /// Formats the messages as `-name` (deleted), `-name+second` (deleted and created again) or
    /// `+name+second` (created). Returns the sorted texts.
    fn as_texts(messages: Vec<Message>) -> Vec<String> {
        let mut texts: Vec<String> = messages
            .into_iter()
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
        assert!(seen.process_event(Event::Init).is_empty());
        for (name, second) in all {
            assert!(
                seen.process_event(Event::InitApply(namespace(name, *second)))
                    .is_empty()
            );
        }
        as_texts(seen.process_event(Event::InitDone))
    }

    #[test]
    fn the_namespaces_that_exist_are_reported_after_a_list_and_with_each_change() {
        let mut seen = seen_at_takeover(&[]);
        assert!(seen.existing(&Event::Init).is_none());
        seen.process_event(Event::InitApply(namespace("a", 1)));
        let listed = seen.existing(&Event::InitDone);
        assert!(
            matches!(listed, Some(Existing::Namespaces(names)) if names == [ifo_api::Text::from("a")])
        );
        for exists in [true, false] {
            let event = namespace("b", 1);
            let event = if exists {
                Event::Apply(event)
            } else {
                Event::Delete(event)
            };
            let Some(Existing::Namespace(name, reported)) = seen.existing(&event) else {
                panic!("each change of a namespace is reported");
            };
            assert_eq!((&*name, reported), ("b", exists));
        }
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
        // This list has no `InitDone`, so it is incomplete. The next list replaces this list, and
        // the namespace `z` is not reported.
        seen.process_event(Event::Init);
        seen.process_event(Event::InitApply(namespace("z", 9)));
        assert_eq!(take_list(&mut seen, &[("a", 7), ("b", 1)]), ["-a+7"]);
    }

    #[test]
    fn a_namespace_recreated_within_a_second_is_recognized_by_its_uid() {
        let mut seen = seen_at_takeover(&[("a", 1)]);
        let mut twin = namespace("a", 1);
        assert!(take_list(&mut seen, &[("a", 1)]).is_empty());
        twin.metadata.uid = Some("another".to_owned());
        assert_eq!(as_texts(seen.process_event(Event::Apply(twin))), ["-a+1"]);
    }

    #[test]
    fn the_watch_reports_each_deletion_once() {
        let mut seen = seen_at_takeover(&[("a", 1)]);
        take_list(&mut seen, &[("a", 1)]);
        let mut apply = |second| as_texts(seen.process_event(Event::Apply(namespace("a", second))));
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
            as_texts(seen.process_event(Event::Delete(namespace("a", 3)))),
            ["-a"]
        );
        assert!(
            take_list(&mut seen, &[]).is_empty(),
            "a deletion must be reported once"
        );
        let mut apply = |second| as_texts(seen.process_event(Event::Apply(namespace("a", second))));
        assert_eq!(apply(5), ["+a+5"]);
        assert!(apply(5).is_empty());
    }
}
