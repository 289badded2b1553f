//! Stores the rule sets of the demo. The store also writes them to an index (objects in memory that
//! the server serves), which contains only rule sets. Clients can only read the rule sets. The
//! rule-set controller writes the status of the rule sets.

use crate::clock;
use crate::index::{Key, Object, VersionAssignment, Write, Writer};
use crate::rules::{RuleSetEvent, StatusAnswer, StatusSink, StatusWrite};
use futures::future::{BoxFuture, ready};
use ifo_api::ruleset::{OperationRuleSet, OperationRuleSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

/// The rule sets of the demo, and the writer of their index. All clones share the same rule sets.
#[derive(Clone)]
pub struct RuleSetStore(Arc<Mutex<StoredRuleSets>>);

struct StoredRuleSets {
    writer: Writer,
    objects: BTreeMap<String, OperationRuleSet>,
    /// The names of the rule sets that were applied since the event `Reset`. The event `Synced`
    /// removes all other rule sets. The value is `None` before `Reset` and after `Synced`.
    applied: Option<BTreeSet<String>>,
}

impl RuleSetStore {
    /// Creates a store without rule sets. `writer` writes the index of the rule sets.
    pub fn new(writer: Writer) -> Self {
        Self(Arc::new(Mutex::new(StoredRuleSets {
            writer,
            objects: BTreeMap::new(),
            applied: None,
        })))
    }

    /// Stores the change that an event reports. Returns the event as a cluster would send it. A
    /// rule set in the returned event has a UID, its current status, and a generation that
    /// increases when the spec changes.
    pub fn store_event(&self, event: RuleSetEvent) -> RuleSetEvent {
        let mut stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            RuleSetEvent::Applied(object) => RuleSetEvent::Applied(Box::new(stored.put(*object))),
            RuleSetEvent::Deleted(name) => {
                stored.remove(&name);
                RuleSetEvent::Deleted(name)
            }
            RuleSetEvent::Unreadable(name) => {
                stored.remove(&name);
                RuleSetEvent::Unreadable(name)
            }
            event @ (RuleSetEvent::UnknownFields { .. } | RuleSetEvent::OutdatedDefinition(_)) => {
                event
            }
            RuleSetEvent::Reset => {
                stored.applied = Some(BTreeSet::new());
                RuleSetEvent::Reset
            }
            RuleSetEvent::Synced => {
                let applied = stored.applied.take().unwrap_or_default();
                let gone: Vec<String> = stored
                    .objects
                    .keys()
                    .filter(|name| !applied.contains(*name))
                    .cloned()
                    .collect();
                for name in gone {
                    stored.remove(&name);
                }
                RuleSetEvent::Synced
            }
        }
    }
}

impl StoredRuleSets {
    fn put(&mut self, mut object: OperationRuleSet) -> OperationRuleSet {
        let name = object.metadata.name.clone().unwrap_or_default();
        if let Some(applied) = &mut self.applied {
            applied.insert(name.clone());
        }
        let before = self.objects.get(&name);
        let generation = before
            .and_then(|before| before.metadata.generation)
            .unwrap_or(0);
        let changed = before.is_none_or(|before| before.spec != object.spec);
        object.metadata.generation = Some(if changed { generation + 1 } else { generation });
        object.metadata.uid = Some(Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).to_string());
        object.metadata.creation_timestamp = before
            .and_then(|before| before.metadata.creation_timestamp.clone())
            .or_else(|| Some(Time(clock::now())));
        // The index assigns the resourceVersion. A file can contain another one.
        object.metadata.resource_version = None;
        object.status = before.and_then(|before| before.status.clone());
        self.objects.insert(name, object.clone());
        self.publish(&object);
        object
    }

    fn remove(&mut self, name: &str) {
        if self.objects.remove(name).is_some() {
            self.write(Write::Delete {
                key: Key::new("", name),
            });
        }
    }

    fn set_status(&mut self, name: &str, status: OperationRuleSetStatus) {
        if let Some(object) = self.objects.get_mut(name) {
            object.status = Some(status);
            let object = object.clone();
            self.publish(&object);
        }
    }

    fn publish(&mut self, object: &OperationRuleSet) {
        let key = Key::new("", object.metadata.name.as_deref().unwrap_or_default());
        let object = Object::RuleSet(Arc::new(object.clone()));
        self.write(Write::Put { key, object });
    }

    fn write(&mut self, write: Write) {
        if let Err(error) = self.writer.commit(vec![write], VersionAssignment::Mint) {
            tracing::error!(%error, "a rule set could not be written to the index");
        }
    }
}

impl StatusSink for RuleSetStore {
    fn write<'a>(&'a self, write: &'a StatusWrite) -> BoxFuture<'a, StatusAnswer> {
        let mut stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stored.set_status(&write.name, write.status.clone());
        // The result contains no resourceVersion. A resourceVersion would be needed only to detect
        // conflicts, and there are no conflicts because only this server writes the status.
        Box::pin(ready(StatusAnswer::Written(None)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::shipped_rules;
    use crate::index::{Bounds, index};
    use std::time::Duration;

    #[test]
    fn a_rule_set_has_only_the_resource_version_of_the_index() {
        let (writer, reader) = index(Bounds {
            bytes: 1 << 20,
            age: Duration::from_mins(1),
        });
        let mut rule_set = shipped_rules::shipped()[0].clone();
        let key = Key::new("", rule_set.metadata.name.as_deref().unwrap());
        rule_set.metadata.resource_version = Some("7".to_owned());
        RuleSetStore::new(writer).store_event(RuleSetEvent::Applied(Box::new(rule_set)));
        let entry = reader.get(&key).1.unwrap();
        let json = String::from_utf8(entry.json()).unwrap();
        assert_eq!(json.matches("\"resourceVersion\":").count(), 1);
        assert!(json.contains(&format!("\"resourceVersion\":\"{}\"", entry.rv())));
    }
}
