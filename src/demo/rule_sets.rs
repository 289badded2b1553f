//! Stores the rule sets of the demo. The store also writes them to an index (objects in memory that
//! the server serves), which contains only rule sets. Clients can only read the rule sets. The
//! rule-set controller writes the status of the rule sets.

use crate::clock;
use crate::index::{Key, Object, VersionAssignment, Write, Writer};
use crate::rules::{RuleSetEvent, StatusAnswer, StatusSink, StatusWrite};
use futures::future::{BoxFuture, ready};
use ifo_api::ruleset::OperationRuleSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uuid::Uuid;

/// The writer of the index with the rule sets of the demo. All clones share it.
#[derive(Clone)]
pub struct RuleSetStore(Arc<Mutex<StoredRuleSets>>);

struct StoredRuleSets {
    writer: Writer,
    /// The names of the stored rule sets.
    names: BTreeSet<String>,
    /// The names of the rule sets that were not applied since the event `Reset`. The event `Synced`
    /// removes them.
    unapplied: BTreeSet<String>,
}

impl RuleSetStore {
    /// Creates a store without rule sets. `writer` writes the index of the rule sets.
    pub fn new(writer: Writer) -> Self {
        Self(Arc::new(Mutex::new(StoredRuleSets {
            writer,
            names: BTreeSet::new(),
            unapplied: BTreeSet::new(),
        })))
    }

    /// Stores the change that an event reports. Returns the event as a cluster would send it. A
    /// rule set in the returned event has a UID, its current status, and a generation that
    /// increases when the spec changes.
    pub fn store_event(&self, event: RuleSetEvent) -> RuleSetEvent {
        let mut stored = self.lock();
        match &event {
            RuleSetEvent::Applied {
                rule_set,
                unknown_fields,
            } => {
                return RuleSetEvent::Applied {
                    rule_set: Box::new(stored.put((**rule_set).clone())),
                    unknown_fields: unknown_fields.clone(),
                };
            }
            RuleSetEvent::Deleted(name) | RuleSetEvent::Unreadable(name) => stored.remove(name),
            RuleSetEvent::Reset => {
                let stored = &mut *stored;
                stored.unapplied.clone_from(&stored.names);
            }
            RuleSetEvent::Synced => {
                for name in std::mem::take(&mut stored.unapplied) {
                    stored.remove(&name);
                }
            }
            RuleSetEvent::OutdatedDefinition(_) => {}
        }
        event
    }

    fn lock(&self) -> MutexGuard<'_, StoredRuleSets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoredRuleSets {
    fn get(&self, name: &str) -> Option<Arc<OperationRuleSet>> {
        match self.writer.get(&Key::new("", name))?.object() {
            Object::RuleSet(rule_set) => Some(rule_set.clone()),
            _ => None,
        }
    }

    fn put(&mut self, mut object: OperationRuleSet) -> OperationRuleSet {
        let name = object.metadata.name.clone().unwrap_or_default();
        self.unapplied.remove(&name);
        let before = self.get(&name);
        let before = before.as_deref();
        let generation = before.and_then(|before| before.metadata.generation);
        let is_changed = before.is_none_or(|before| before.spec != object.spec);
        object.metadata.generation = Some(generation.unwrap_or(0) + i64::from(is_changed));
        object.metadata.uid = Some(Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).to_string());
        object.metadata.creation_timestamp = before
            .and_then(|before| before.metadata.creation_timestamp.clone())
            .or_else(|| Some(Time(clock::now())));
        // The index assigns the resourceVersion. A file can contain another one.
        object.metadata.resource_version = None;
        object.status = before.and_then(|before| before.status.clone());
        self.publish(name, object.clone());
        object
    }

    fn remove(&mut self, name: &str) {
        if self.names.remove(name) {
            let key = Key::new("", name);
            self.write(Write::Delete { key });
        }
    }

    fn publish(&mut self, name: String, object: OperationRuleSet) {
        let key = Key::new("", name.as_str());
        self.names.insert(name);
        let object = Object::RuleSet(Arc::new(object));
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
        let mut stored = self.lock();
        if let Some(rule_set) = stored.get(&write.name) {
            let status = Some(write.status.clone());
            let rule_set = (*rule_set).clone();
            stored.publish(write.name.clone(), OperationRuleSet { status, ..rule_set });
        }
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
        RuleSetStore::new(writer).store_event(RuleSetEvent::Applied {
            rule_set: Box::new(rule_set),
            unknown_fields: Vec::new(),
        });
        let entry = reader.get(&key).1.unwrap();
        let json = String::from_utf8(entry.json()).unwrap();
        assert_eq!(json.matches("\"resourceVersion\":").count(), 1);
        assert!(json.contains(&format!("\"resourceVersion\":\"{}\"", entry.rv())));
    }
}
