//! A small API server in memory: objects go in, followers see them change.
//!
//! In: whole objects from the scenario, each with the name of the controller that
//! "wrote" it. Out: a [`Feed`]. It promises what an API server promises: a follower
//! gets the whole state and then every change in order, or, if it is too slow, the
//! whole state again; `metadata.resourceVersion` rises with each change, and
//! `generation`, `uid`, `creationTimestamp` and `managedFields` look as they do in a
//! cluster.

use super::kinds::{self, Generation, Kind};
use super::random::Dice;
use super::time::WorldTime;
use crate::observe::{Feed, Raw, Resolve};
use bytes::Bytes;
use futures::future::{self, BoxFuture};
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use ifo_api::Gvr;
use ifo_api::{Resolution, Source};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;

/// Changes that a follower may be behind before it is given the whole state again.
/// The scenario writes some 20 in a second, so this is most of a minute; at 4 KB
/// each it holds 4 MB.
const BACKLOG: usize = 1024;

/// Identifies one object: its kind, namespace (empty in cluster scope) and name.
type Key = (Gvr, String, String);

/// The objects of the demo, shared: clones are the same world.
#[derive(Clone)]
pub struct World {
    inner: Arc<Inner>,
}

struct Inner {
    time: WorldTime,
    objects: Mutex<Objects>,
    changes: broadcast::Sender<Change>,
}

struct Objects {
    by_key: BTreeMap<Key, Stored>,
    resource_version: u64,
    dice: Dice,
}

struct Stored {
    value: Value,
    json: Bytes,
}

#[derive(Clone)]
struct Change {
    key: Arc<Key>,
    json: Bytes,
    deleted: bool,
}

impl World {
    /// An empty world. `seed` decides the uids.
    pub fn new(seed: u64, time: WorldTime) -> Self {
        Self::with_backlog(seed, time, BACKLOG)
    }

    fn with_backlog(seed: u64, time: WorldTime, backlog: usize) -> Self {
        let mut dice = Dice::new(seed);
        // A cluster that has lived for a while.
        let resource_version = dice.between(1_000_000, 9_000_000);
        Self {
            inner: Arc::new(Inner {
                time,
                objects: Mutex::new(Objects {
                    by_key: BTreeMap::new(),
                    resource_version,
                    dice,
                }),
                changes: broadcast::Sender::new(backlog),
            }),
        }
    }

    /// The time that this world's timestamps come from.
    pub fn time(&self) -> WorldTime {
        self.inner.time
    }

    /// Creates an object or replaces it, written by `manager`. Its `metadata` needs a
    /// `name`, and a `namespace` if the kind has them; `uid`, `creationTimestamp` and
    /// what the API server counts are filled in, `creationTimestamp` only if it is
    /// not given.
    pub fn put(&self, kind: &'static Kind, manager: &str, object: Value) {
        let mut objects = self.lock();
        let key = key_of(kind, &object);
        self.write(&mut objects, kind, manager, key, object);
    }

    /// Changes an object in place; false if there is none. A write that changes
    /// nothing is no change, as in a cluster.
    pub fn edit(
        &self,
        kind: &'static Kind,
        namespace: &str,
        name: &str,
        manager: &str,
        change: impl FnOnce(&mut Value),
    ) -> bool {
        let key = (kind.gvr(), namespace.to_owned(), name.to_owned());
        let mut objects = self.lock();
        let Some(stored) = objects.by_key.get(&key) else {
            return false;
        };
        let mut object = stored.value.clone();
        change(&mut object);
        self.write(&mut objects, kind, manager, key, object);
        true
    }

    /// Removes an object at once; false if there is none.
    pub fn delete(&self, kind: &'static Kind, namespace: &str, name: &str) -> bool {
        let key = (kind.gvr(), namespace.to_owned(), name.to_owned());
        let mut objects = self.lock();
        let Some(mut stored) = objects.by_key.remove(&key) else {
            return false;
        };
        // As in a cluster, the deletion has a resourceVersion of its own.
        objects.resource_version += 1;
        stored.value["metadata"]["resourceVersion"] = json!(objects.resource_version.to_string());
        let json = encode(&stored.value);
        self.tell(key, json, true);
        true
    }

    /// The object as it is now.
    #[must_use]
    pub fn get(&self, kind: &'static Kind, namespace: &str, name: &str) -> Option<Value> {
        let key = (kind.gvr(), namespace.to_owned(), name.to_owned());
        Some(self.lock().by_key.get(&key)?.value.clone())
    }

    /// All objects of a kind as they are now, by namespace and name.
    #[must_use]
    pub fn all(&self, kind: &'static Kind) -> Vec<Value> {
        let objects = self.lock();
        let of_kind = objects.by_key.iter().filter(|((gvr, ..), _)| kind.is(gvr));
        of_kind.map(|(_, stored)| stored.value.clone()).collect()
    }

    /// How many objects there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().by_key.len()
    }

    fn write(
        &self,
        objects: &mut Objects,
        kind: &Kind,
        manager: &str,
        key: Key,
        mut object: Value,
    ) {
        let before = objects.by_key.get(&key).map(|stored| &stored.value);
        if before == Some(&object) {
            return;
        }
        let now = self.inner.time.stamp();
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.kind);
        let generation = next_generation(kind, before, &object);
        let fields = managed_fields(kind, before, &object, manager, &now);
        let uid = before.map(|object| object["metadata"]["uid"].clone());
        let created = before.map(|object| object["metadata"]["creationTimestamp"].clone());
        objects.resource_version += 1;

        let uid = uid.unwrap_or_else(|| json!(objects.dice.uuid()));
        let meta = &mut object["metadata"];
        meta["uid"] = uid;
        if let Some(created) = created {
            meta["creationTimestamp"] = created;
        } else if meta["creationTimestamp"].is_null() {
            meta["creationTimestamp"] = json!(now);
        }
        if let Some(generation) = generation {
            meta["generation"] = json!(generation);
        }
        meta["resourceVersion"] = json!(objects.resource_version.to_string());
        meta["managedFields"] = fields;

        let json = encode(&object);
        let stored = Stored {
            value: object,
            json: json.clone(),
        };
        objects.by_key.insert(key.clone(), stored);
        self.tell(key, json, false);
    }

    /// Must be called under the lock: followers subscribe and read the state under
    /// it, so none misses a change or sees one twice.
    fn tell(&self, key: Key, json: Bytes, deleted: bool) {
        // An error says that nobody follows.
        let _ = self.inner.changes.send(Change {
            key: Arc::new(key),
            json,
            deleted,
        });
    }

    /// The whole state of a source, and a receiver of what comes after it.
    fn open(&self, source: &Source) -> (VecDeque<Raw>, broadcast::Receiver<Change>) {
        let objects = self.lock();
        let receiver = self.inner.changes.subscribe();
        let mut steps = VecDeque::from([Raw::Reset]);
        let inside = objects
            .by_key
            .iter()
            .filter(|(key, _)| includes(source, key));
        steps.extend(inside.map(|(_, stored)| Raw::Applied(stored.json.clone())));
        steps.push_back(Raw::Synced);
        (steps, receiver)
    }

    fn lock(&self) -> MutexGuard<'_, Objects> {
        // Nothing panics under the lock but a scenario's closure, before it changed
        // anything: what a poisoned lock guards is whole.
        self.inner
            .objects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// What discovery says in a cluster; here it never changes.
impl Resolve for World {
    fn resolve<'a>(&'a self, gvr: &'a Gvr) -> BoxFuture<'a, Resolution> {
        let resolution = match kinds::ALL.iter().find(|kind| kind.is(gvr)) {
            Some(kind) => Resolution::Served {
                kind: kind.kind.to_owned(),
                namespaced: kind.namespaced,
            },
            None => Resolution::NotServed {
                message: format!("the scenario has no {gvr}"),
                group_served: kinds::ALL.iter().any(|kind| kind.has_group(&gvr.group)),
            },
        };
        future::ready(resolution).boxed()
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        stream::pending().boxed()
    }
}

/// Follows the world; never ends, and holds the world for as long as it is kept. A
/// resource that is not served here is an empty one: ask [`World::resolve`] first.
impl Feed for World {
    fn follow(&self, source: Source) -> BoxStream<'static, Raw> {
        struct Follower {
            world: World,
            source: Source,
            steps: VecDeque<Raw>,
            changes: broadcast::Receiver<Change>,
        }
        let (steps, changes) = self.open(&source);
        let follower = Follower {
            world: self.clone(),
            source,
            steps,
            changes,
        };
        stream::unfold(follower, |mut follower| async move {
            loop {
                if let Some(step) = follower.steps.pop_front() {
                    return Some((step, follower));
                }
                match follower.changes.recv().await {
                    Ok(change) if includes(&follower.source, &change.key) => {
                        let step = if change.deleted {
                            Raw::Deleted(change.json)
                        } else {
                            Raw::Applied(change.json)
                        };
                        return Some((step, follower));
                    }
                    Ok(_) => {}
                    Err(broadcast::error::RecvError::Lagged(_)) => {
                        (follower.steps, follower.changes) = follower.world.open(&follower.source);
                    }
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        })
        .boxed()
    }
}

fn includes(source: &Source, (gvr, namespace, _): &Key) -> bool {
    *gvr == *source.target
        && source
            .namespace
            .as_ref()
            .is_none_or(|wanted| **wanted == **namespace)
}

fn key_of(kind: &Kind, object: &Value) -> Key {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (
        kind.gvr(),
        text("namespace").to_owned(),
        text("name").to_owned(),
    )
}

fn encode(object: &Value) -> Bytes {
    Bytes::from(serde_json::to_vec(object).expect("a JSON value always encodes"))
}

fn next_generation(kind: &Kind, before: Option<&Value>, after: &Value) -> Option<u64> {
    if kind.generation == Generation::None {
        return None;
    }
    let Some(before) = before else {
        return Some(after["metadata"]["generation"].as_u64().unwrap_or(1));
    };
    let last = before["metadata"]["generation"].as_u64().unwrap_or(1);
    let raised = kind.generation == Generation::EveryWrite
        || before["spec"] != after["spec"]
        // A deletion that waits for finalizers counts as a change of the spec.
        || before["metadata"]["deletionTimestamp"] != after["metadata"]["deletionTimestamp"];
    Some(last + u64::from(raised))
}

/// The entry of `manager` is renewed with the fields that this write changed; with a
/// status subresource a manager has one entry for it and one for the rest.
fn managed_fields(
    kind: &Kind,
    before: Option<&Value>,
    after: &Value,
    manager: &str,
    now: &str,
) -> Value {
    let mut entries: Vec<Value> = before
        .and_then(|object| object["metadata"]["managedFields"].as_array())
        .cloned()
        .unwrap_or_default();
    let status_apart = kind.generation != Generation::EveryWrite;
    for section in ["metadata", "spec", "status"] {
        let Some(fields) = changed_fields(section, before, after) else {
            continue;
        };
        let subresource = if section == "status" && status_apart {
            "status"
        } else {
            ""
        };
        let mine = entries.iter().position(|entry| {
            entry["manager"] == manager
                && entry["subresource"].as_str().unwrap_or("") == subresource
        });
        let at = mine.unwrap_or_else(|| {
            let mut entry = json!({
                "apiVersion": kind.api_version(),
                "fieldsType": "FieldsV1",
                "fieldsV1": {},
                "manager": manager,
                "operation": "Update",
            });
            if !subresource.is_empty() {
                entry["subresource"] = json!(subresource);
            }
            entries.push(entry);
            entries.len() - 1
        });
        let entry = &mut entries[at];
        entry["time"] = json!(now);
        for field in fields {
            entry["fieldsV1"][format!("f:{section}")][format!("f:{field}")] = json!({});
        }
    }
    Value::Array(entries)
}

/// Names of the fields of a section that differ; `None` if none does.
fn changed_fields(section: &str, before: Option<&Value>, after: &Value) -> Option<Vec<String>> {
    // What the API server writes belongs to no manager.
    const OWNED_BY_SERVER: [&str; 8] = [
        "creationTimestamp",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "uid",
    ];
    let empty = Map::new();
    let old = before
        .and_then(|object| object[section].as_object())
        .unwrap_or(&empty);
    let new = after[section].as_object().unwrap_or(&empty);
    let changed: Vec<String> = new
        .iter()
        .filter(|(field, value)| old.get(*field) != Some(value))
        .map(|(field, _)| field.clone())
        .filter(|field| section != "metadata" || !OWNED_BY_SERVER.contains(&field.as_str()))
        .collect();
    (!changed.is_empty()).then_some(changed)
}

#[cfg(test)]
mod tests;
