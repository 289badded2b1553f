//! Detects deleted namespaces.
//!
//! Input: the namespaces at the takeover, and a watch. Output: messages for the tracker. A
//! namespace that was deleted and created again between the takeover and the first list is also
//! reported.

use crate::restore::KnownNamespaces;
use ifo_engine::track::Message;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use std::collections::HashMap;

/// The current namespaces.
#[derive(Debug)]
pub(super) struct SeenNamespaces {
    known: HashMap<String, NamespaceIdentity>,
    /// The namespaces of a list that is still being received.
    listed: HashMap<String, NamespaceIdentity>,
}

/// Distinguishes a namespace from others of the same name. Times have a resolution of one second,
/// so the UID is compared if it is known.
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

    fn is_another(&self, before: &Self) -> bool {
        if self.uid.is_some() && before.uid.is_some() {
            return self.uid != before.uid;
        }
        self.created.is_some() && before.created.is_some() && self.created != before.created
    }
}

impl SeenNamespaces {
    /// Creates the detector. The namespaces in `first` existed before the watch began.
    pub(super) fn new(first: KnownNamespaces) -> Self {
        let mark = |created| NamespaceIdentity { uid: None, created };
        let known = first.into_iter();
        Self {
            known: known.map(|(name, created)| (name, mark(created))).collect(),
            listed: HashMap::new(),
        }
    }

    /// Returns the messages that follow from `event`.
    pub(super) fn take(&mut self, event: Event<PartialObjectMeta<Namespace>>) -> Vec<Message> {
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
                let mut told: Vec<Message> = gone.map(|name| gone_for_good(name)).collect();
                self.known.retain(|name, _| listed.contains_key(name));
                for (name, mark) in listed {
                    told.extend(self.is_there(name, mark));
                }
                told
            }
            Event::Apply(namespace) => {
                let told = self.is_there(namespace.name_any(), NamespaceIdentity::of(&namespace));
                told.into_iter().collect()
            }
            Event::Delete(namespace) => {
                let name = namespace.name_any();
                self.known.remove(&name);
                vec![gone_for_good(&name)]
            }
        }
    }

    fn is_there(&mut self, name: String, mark: NamespaceIdentity) -> Option<Message> {
        let again = mark.created;
        let replaced = self.known.get(&name).map(|before| mark.is_another(before));
        let shared = name.as_str().into();
        self.known.insert(name, mark);
        match (replaced, again) {
            (Some(false), _) | (None, None) => None,
            (Some(true), again) => Some(Message::NamespaceGone {
                name: shared,
                again,
            }),
            (None, Some(created)) => Some(Message::NamespaceMade {
                name: shared,
                created,
            }),
        }
    }
}

fn gone_for_good(name: &str) -> Message {
    Message::NamespaceGone {
        name: name.into(),
        again: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A namespace that was created at that second. Its UID is derived from name and second.
    fn namespace(name: &str, second: i64) -> PartialObjectMeta<Namespace> {
        let created = Timestamp::from_second(second).expect("a time");
        let object = serde_json::json!({"metadata": {
            "name": name, "uid": format!("{name}-{second}"), "creationTimestamp": created,
        }});
        serde_json::from_value(object).expect("a namespace")
    }

    fn first(all: &[(&str, i64)]) -> SeenNamespaces {
        let time = |second| Timestamp::from_second(second).expect("a time");
        let all = all
            .iter()
            .map(|(name, second)| ((*name).to_owned(), Some(time(*second))));
        SeenNamespaces::new(all.collect())
    }

    /// The reported messages as `-name`, `-name+second` or `+name+second`, sorted by name.
    fn told(messages: Vec<Message>) -> Vec<String> {
        let mut told: Vec<String> = messages
            .into_iter()
            .map(|message| match message {
                Message::NamespaceGone { name, again: None } => format!("-{name}"),
                Message::NamespaceGone {
                    name,
                    again: Some(again),
                } => format!("-{name}+{}", again.as_second()),
                Message::NamespaceMade { name, created } => {
                    format!("+{name}+{}", created.as_second())
                }
                other => panic!("{other:?}"),
            })
            .collect();
        told.sort();
        told
    }

    fn lists(seen: &mut SeenNamespaces, all: &[(&str, i64)]) -> Vec<String> {
        assert!(seen.take(Event::Init).is_empty());
        for (name, second) in all {
            assert!(
                seen.take(Event::InitApply(namespace(name, *second)))
                    .is_empty()
            );
        }
        told(seen.take(Event::InitDone))
    }

    #[test]
    fn a_namespace_recreated_before_the_watch_counts_as_deleted() {
        let mut seen = first(&[("a", 1), ("b", 1), ("c", 1)]);
        let list = [("a", 1), ("b", 2), ("d", 2)];
        assert_eq!(lists(&mut seen, &list), ["+d+2", "-b+2", "-c"]);
        assert!(lists(&mut seen, &list).is_empty(), "nothing changed");
    }

    #[test]
    fn a_namespace_with_unknown_creation_may_be_deleted() {
        let mut seen = SeenNamespaces::new([("a".to_owned(), None), ("b".to_owned(), None)].into());
        assert_eq!(lists(&mut seen, &[("a", 1)]), ["-b"]);
        assert_eq!(lists(&mut seen, &[("a", 2)]), ["-a+2"], "now it is known");
    }

    #[test]
    fn a_namespace_recreated_while_the_watch_was_broken_counts_as_deleted() {
        let mut seen = first(&[]);
        lists(&mut seen, &[("a", 1), ("b", 1)]);
        // An incomplete list is ignored.
        seen.take(Event::Init);
        seen.take(Event::InitApply(namespace("z", 9)));
        assert_eq!(lists(&mut seen, &[("a", 7), ("b", 1)]), ["-a+7"]);
    }

    #[test]
    fn a_namespace_recreated_within_a_second_is_recognized_by_its_uid() {
        let mut seen = first(&[("a", 1)]);
        let mut twin = namespace("a", 1);
        assert!(lists(&mut seen, &[("a", 1)]).is_empty());
        twin.metadata.uid = Some("another".to_owned());
        assert_eq!(told(seen.take(Event::Apply(twin))), ["-a+1"]);
    }

    #[test]
    fn the_watch_reports_each_deletion_once() {
        let mut seen = first(&[("a", 1)]);
        lists(&mut seen, &[("a", 1)]);
        let mut apply = |second| told(seen.take(Event::Apply(namespace("a", second))));
        assert!(apply(1).is_empty(), "a change of its labels");
        assert_eq!(apply(3), ["-a+3"], "its deletion was missed");
        assert_eq!(told(seen.take(Event::Delete(namespace("a", 3)))), ["-a"]);
        assert!(lists(&mut seen, &[]).is_empty(), "it is known to be gone");
        let mut apply = |second| told(seen.take(Event::Apply(namespace("a", second))));
        assert_eq!(apply(5), ["+a+5"]);
        assert!(apply(5).is_empty());
    }
}
