//! Stores the objects of the demo in memory, and sends their changes to subscribers. The scenes
//! (recorded sequences of changes) write, patch and delete objects. Detection receives the changes
//! through a [`Feed`], and `kubectl get` reads the objects.
//!
//! A subscriber of the feed receives all objects of one resource, and then every change of these
//! objects in order. If the subscriber is more than [`BACKLOG`] changes behind, it receives all
//! objects again.

use super::kinds;
use crate::clock;
use crate::observe::{Feed, Raw, Resolve};
use aggregated_apiserver::serve::ResourceInfo;
use bytes::Bytes;
use futures::future::{self, BoxFuture};
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use ifo_api::{Gvr, Resolution, Source};
use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;
use uuid::Uuid;

/// The objects that an [`ObjectServer`](super::ObjectServer) serves.
pub trait ServedObjects: Send + Sync {
    /// Returns the resources of the objects.
    fn resources(&self) -> &'static [ResourceInfo];

    /// Returns the current resourceVersion, and the objects of a resource sorted by namespace and
    /// name. An empty `namespace` means all namespaces.
    fn list(&self, resource: &Gvr, namespace: &str) -> (u64, Vec<Value>);
}

/// Maximum number of changes, of all resources together, that a subscriber may be behind. The
/// scenes have about ten changes per second, so the backlog covers more than a minute. A change has
/// about 4 KB, so the backlog takes about 4 MB.
const BACKLOG: usize = 1024;

/// The identity of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectId {
    /// The resource of the object.
    pub resource: Gvr,
    /// The namespace of the object. Empty for cluster-scoped objects.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
}

impl ObjectId {
    /// Reads the identity of an object from `apiVersion`, `kind` and `metadata`. Returns `None` if
    /// the object has no name, or a kind that does not exist in the demo.
    pub fn of(object: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let kind = kinds::of_object(object["apiVersion"].as_str()?, object["kind"].as_str()?)?;
        Some(Self {
            resource: kinds::gvr(kind),
            namespace: text(&object["metadata"]["namespace"]).unwrap_or_default(),
            name: text(&object["metadata"]["name"])?,
        })
    }
}

/// The objects of the demo. All clones share the same objects.
#[derive(Clone)]
pub struct ObjectStore(Arc<SharedObjects>);

struct SharedObjects {
    objects: Mutex<Objects>,
    changes: broadcast::Sender<ObjectChange>,
}

#[derive(Default)]
struct Objects {
    by_id: BTreeMap<ObjectId, Value>,
    resource_version: u64,
}

#[derive(Clone)]
struct ObjectChange {
    id: Arc<ObjectId>,
    raw: Raw,
}

impl ObjectStore {
    fn with_backlog(backlog: usize) -> Self {
        Self(Arc::new(SharedObjects {
            objects: Mutex::default(),
            changes: broadcast::Sender::new(backlog),
        }))
    }

    /// Creates or replaces an object. An object with the same UID keeps its `creationTimestamp`.
    pub fn put(&self, id: &ObjectId, mut object: Value) {
        let mut objects = self.lock();
        if let Some(before) = objects.by_id.get(id)
            && before["metadata"]["uid"] == object["metadata"]["uid"]
        {
            object["metadata"]["creationTimestamp"] =
                before["metadata"]["creationTimestamp"].clone();
        }
        self.write(&mut objects, id, object);
    }

    /// Creates a Namespace if it does not exist.
    pub fn put_namespace(&self, name: &str) {
        let mut namespace = active_namespace(name);
        namespace["metadata"]["creationTimestamp"] = json!(whole_second(clock::now()));
        if let Some(id) = ObjectId::of(&namespace)
            && self.get(&id).is_none()
        {
            self.put(&id, namespace);
        }
    }

    /// Applies a JSON merge patch (RFC 7386) to an object, if the object exists.
    pub fn patch(&self, id: &ObjectId, patch: &Value) {
        let mut objects = self.lock();
        if let Some(mut object) = objects.by_id.get(id).cloned() {
            json_patch::merge(&mut object, patch);
            self.write(&mut objects, id, object);
        }
    }

    /// Deletes an object, if it exists. As in a cluster, the deletion gets a new resourceVersion.
    pub fn delete(&self, id: &ObjectId) {
        let mut objects = self.lock();
        if let Some(mut object) = objects.by_id.remove(id) {
            stamp(&mut objects, &mut object);
            self.publish(id, Raw::Deleted(encode(&object)));
        }
    }

    /// Returns an object, or `None` if it does not exist.
    pub fn get(&self, id: &ObjectId) -> Option<Value> {
        self.lock().by_id.get(id).cloned()
    }

    fn write(&self, objects: &mut Objects, id: &ObjectId, mut object: Value) {
        stamp(objects, &mut object);
        self.publish(id, Raw::Applied(encode(&object)));
        objects.by_id.insert(id.clone(), object);
    }

    /// Sends a change to the subscribers. The caller must hold the lock of the objects. A new
    /// subscriber reads the objects and subscribes under the same lock. So the subscriber receives
    /// each later change exactly once.
    fn publish(&self, id: &ObjectId, raw: Raw) {
        let id = Arc::new(id.clone());
        // `send` returns an error if there are no subscribers.
        let _ = self.0.changes.send(ObjectChange { id, raw });
    }

    /// Returns all objects of a source as messages, and a receiver of later changes. A source is a
    /// resource in one namespace or in all namespaces.
    fn subscribe(&self, source: &Source) -> (VecDeque<Raw>, broadcast::Receiver<ObjectChange>) {
        let objects = self.lock();
        let receiver = self.0.changes.subscribe();
        let state = objects.by_id.iter().filter(|(id, _)| is_in(source, id));
        let messages = std::iter::once(Raw::Reset)
            .chain(state.map(|(_, object)| Raw::Applied(encode(object))))
            .chain([Raw::Synced])
            .collect();
        (messages, receiver)
    }

    fn lock(&self) -> MutexGuard<'_, Objects> {
        // If a thread panics while it holds the lock, the lock is poisoned. The data is still
        // consistent, because no code panics between two writes that belong together.
        self.0
            .objects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a store without objects.
impl Default for ObjectStore {
    fn default() -> Self {
        Self::with_backlog(BACKLOG)
    }
}

/// Returns an active Namespace without a creation time.
pub fn active_namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "uid": Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes())},
        "status": {"phase": "Active"},
    })
}

impl ServedObjects for ObjectStore {
    fn resources(&self) -> &'static [ResourceInfo] {
        kinds::KINDS
    }

    fn list(&self, resource: &Gvr, namespace: &str) -> (u64, Vec<Value>) {
        let objects = self.lock();
        let items = objects.by_id.iter().filter(|(id, _)| {
            id.resource == *resource && (namespace.is_empty() || id.namespace == namespace)
        });
        let items = items.map(|(_, object)| object.clone()).collect();
        (objects.resource_version, items)
    }
}

/// Sets the next resourceVersion on an object.
fn stamp(objects: &mut Objects, object: &mut Value) {
    objects.resource_version += 1;
    object["metadata"]["resourceVersion"] = json!(objects.resource_version.to_string());
}

/// Rounds a time down to whole seconds, so that the result is not in the future.
pub(super) fn whole_second(time: Timestamp) -> Timestamp {
    let floor = TimestampRound::new()
        .smallest(Unit::Second)
        .mode(RoundMode::Floor);
    time.round(floor).unwrap_or(time)
}

fn encode(object: &Value) -> Bytes {
    Bytes::from(object.to_string())
}

fn is_in(source: &Source, id: &ObjectId) -> bool {
    let namespace = source.namespace.as_deref();
    id.resource == *source.target && namespace.is_none_or(|wanted| wanted == id.namespace)
}

/// Finds the resources in [`kinds::KINDS`]. No other resource exists in the demo. The answers never
/// change.
impl Resolve for ObjectStore {
    fn resolve<'a>(&'a self, gvr: &'a Gvr) -> BoxFuture<'a, Resolution> {
        let resolution = match kinds::of_resource(gvr) {
            Some(kind) => Resolution::Served {
                kind: kind.kind.to_owned(),
                namespaced: kind.namespaced,
            },
            None => Resolution::NotServed {
                message: format!("the demo has no {gvr}"),
                group_served: kinds::KINDS.iter().any(|kind| has_group(kind, gvr)),
                similar_group: ifo_client::similar_group(
                    &gvr.group,
                    kinds::KINDS.iter().map(|kind| kind.group),
                )
                .map(str::to_owned),
            },
        };
        future::ready(resolution).boxed()
    }

    fn resolution_changes(&self) -> BoxStream<'static, ()> {
        stream::pending().boxed()
    }
}

fn has_group(kind: &ResourceInfo, gvr: &Gvr) -> bool {
    kind.group == gvr.group
}

/// Streams the objects of a source. The stream never ends, because it holds a clone of the store,
/// and the store contains the sender of the changes. If a resource does not exist in the demo, its
/// stream has no objects.
impl Feed for ObjectStore {
    fn follow(&self, source: Source) -> BoxStream<'static, Raw> {
        let (messages, changes) = self.subscribe(&source);
        let state = (self.clone(), source, messages, changes);
        stream::unfold(state, |(store, source, mut messages, mut changes)| async {
            loop {
                if let Some(message) = messages.pop_front() {
                    return Some((message, (store, source, messages, changes)));
                }
                match changes.recv().await {
                    Ok(change) if is_in(&source, &change.id) => messages.push_back(change.raw),
                    Ok(_) => {}
                    Err(broadcast::error::RecvError::Lagged(_)) => {
                        (messages, changes) = store.subscribe(&source);
                    }
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "uid": name}, "spec": spec,
        })
    }

    fn put(store: &ObjectStore, object: Value) {
        store.put(&ObjectId::of(&object).unwrap(), object);
    }

    fn nodes() -> Source {
        let node = ObjectId::of(&node("a", &json!({}))).unwrap();
        Source {
            target: node.resource.into(),
            namespace: None,
        }
    }

    /// Formats a message of the feed: its kind, and the name and resourceVersion of its object.
    fn brief(raw: Raw) -> String {
        let object = |json: Bytes| {
            let object: Value = serde_json::from_slice(&json).unwrap();
            let text = |field: &str| object["metadata"][field].as_str().unwrap().to_owned();
            format!("{}@{}", text("name"), text("resourceVersion"))
        };
        match raw {
            Raw::Reset => "reset".to_owned(),
            Raw::Synced => "synced".to_owned(),
            Raw::Applied(json) => format!("applied {}", object(json)),
            Raw::Deleted(json) => format!("deleted {}", object(json)),
            other => panic!("{other:?}"),
        }
    }

    async fn next(feed: &mut BoxStream<'static, Raw>, count: usize) -> Vec<String> {
        feed.take(count).map(brief).collect().await
    }

    #[tokio::test]
    async fn a_subscriber_receives_the_state_and_then_the_changes_of_its_resource() {
        let store = ObjectStore::default();
        put(&store, node("a", &json!({})));
        let mut feed = store.follow(nodes());
        assert_eq!(next(&mut feed, 3).await, ["reset", "applied a@1", "synced"]);
        put(
            &store,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}),
        );
        let id = ObjectId::of(&node("a", &json!({}))).unwrap();
        store.patch(&id, &json!({"spec": {"unschedulable": true}}));
        store.delete(&id);
        assert_eq!(next(&mut feed, 2).await, ["applied a@3", "deleted a@4"]);
        // A patch or a deletion of a missing object causes no change, so `b` gets the next
        // resourceVersion.
        store.patch(&id, &json!({}));
        store.delete(&id);
        put(&store, node("b", &json!({})));
        assert_eq!(next(&mut feed, 1).await, ["applied b@5"]);
    }

    #[tokio::test]
    async fn a_slow_subscriber_receives_the_state_again() {
        let store = ObjectStore::with_backlog(2);
        let mut feed = store.follow(nodes());
        assert_eq!(next(&mut feed, 2).await, ["reset", "synced"]);
        for name in ["a", "b", "c", "d"] {
            put(&store, node(name, &json!({})));
        }
        let again = ["reset", "applied a@1", "applied b@2", "applied c@3"];
        assert_eq!(next(&mut feed, 4).await, again);
    }

    #[test]
    fn a_replaced_object_keeps_its_creation_time_unless_its_uid_differs() {
        let store = ObjectStore::default();
        let created = |uid: &str, at: &str| {
            let mut node = node("a", &json!({}));
            node["metadata"]["uid"] = uid.into();
            node["metadata"]["creationTimestamp"] = at.into();
            put(&store, node);
            let id = ObjectId::of(
                &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}),
            );
            store.get(&id.unwrap()).unwrap()["metadata"]["creationTimestamp"].clone()
        };
        assert_eq!(created("1", "first"), "first");
        assert_eq!(created("1", "second"), "first");
        assert_eq!(created("2", "third"), "third");
    }

    #[tokio::test]
    async fn only_the_kinds_of_the_scenes_are_served() {
        let store = ObjectStore::default();
        let resolve = async |group: &str, resource: &str| {
            let gvr = Gvr {
                group: group.to_owned(),
                version: "v1".to_owned(),
                resource: resource.to_owned(),
            };
            store.resolve(&gvr).await
        };
        let served = resolve("apps", "deployments").await;
        assert!(
            matches!(served, Resolution::Served { kind, namespaced: true } if kind == "Deployment")
        );
        for (group, expected) in [("apps", true), ("batch", false)] {
            let answer = resolve(group, "jobs").await;
            let Resolution::NotServed { group_served, .. } = answer else {
                panic!("{group}: {answer:?}");
            };
            assert_eq!(group_served, expected, "{group}");
        }
    }
}
