//! Finds deleted and new namespaces in the events of a watch, and returns messages about them for
//! the tracker. The tracker turns detections into operations, and deletes the completed operations
//! in deleted namespaces. If a namespace is deleted and created again while the watch does not run,
//! this module also reports the namespace as deleted.

use crate::takeover::KnownNamespaces;
use ifo_engine::track::Message;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use std::collections::HashMap;

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
