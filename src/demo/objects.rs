//! Stores the objects of the demo in memory. The scenes (recorded sequences of changes) or a folder of
//! manifests write them. Detection receives them through a [`Feed`], and
//! [`object_server`](super::object_server) serves them to kubectl.

use super::kinds::{Kinds, RULE_SETS};
use super::model::{DemoModel, complete_rule_set, prefix};
use super::world;
use crate::rules::{StatusAnswer, StatusSink, StatusWrite};
use aggregated_apiserver::serve::ResourceInfo;
use aggregated_apiserver::store::{
    self, Bounds, Change, Cursor, Entry, Key, ReadVersion, Reader, Scope, VersionAssignment, Write,
    Writer,
};
use futures::future::{self, BoxFuture};
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use ifo_api::{Gvr, Resolution, Source};
use ifo_client::manifest::Object;
use ifo_observe::{Feed, Raw, Resolve, ResolvedTarget};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Limits of the changes that the store keeps. The scenes have about ten changes of 4 KB per
/// second. If a watch or a feed needs a change that the store no longer has, it reads all objects
/// again.
const BOUNDS: Bounds = Bounds {
    bytes: 4 << 20,
    age: Duration::from_mins(5),
};

/// The objects of the demo. All clones share the same objects.
#[derive(Clone)]
pub struct ObjectStore {
    writer: Arc<Mutex<Writer<DemoModel>>>,
    /// Reads the objects.
    pub reader: Reader<DemoModel>,
    kinds: watch::Sender<Kinds>,
}

impl ObjectStore {
    /// Creates a store without objects. `kinds` are the kinds of the objects that callers will add.
    pub fn new(kinds: Kinds) -> Self {
        Self::with_bounds(BOUNDS, kinds)
    }

    fn with_bounds(bounds: Bounds, kinds: Kinds) -> Self {
        let (writer, reader) = store::open(bounds);
        Self {
            writer: Arc::new(Mutex::new(writer)),
            reader,
            kinds: watch::Sender::new(kinds),
        }
    }

    /// Creates or replaces an object.
    pub fn put(&self, key: &Key, object: Value) {
        commit(&mut self.lock(), put(key.clone(), object));
    }

    /// Applies a JSON merge patch (RFC 7386) to an object, if the object exists.
    pub fn patch(&self, key: &Key, patch: &Value) {
        let mut writer = self.lock();
        if let Some(entry) = writer.get(key) {
            let mut object = json!(entry.object());
            json_patch::merge(&mut object, patch);
            commit(&mut writer, put(key.clone(), object));
        }
    }

    /// Deletes an object, if it exists.
    pub fn delete(&self, key: &Key) {
        commit(&mut self.lock(), [Write::Delete { key: key.clone() }]);
    }

    /// Replaces all objects and kinds by the objects and kinds of manifest files. [`world::served`]
    /// completes the objects.
    pub(super) fn replace<'a>(
        &self,
        files: impl Iterator<Item = (&'a Path, &'a Object)> + Clone,
        namespaces: &[String],
    ) {
        let (objects, kinds) = world::served(files, namespaces);
        let mut writer = self.lock();
        // The feeds of a new kind must know the kind before they receive its first object.
        self.kinds.send_replace(kinds);
        let is_gone = |entry: &Arc<Entry<DemoModel>>| {
            let new = objects.get(entry.key());
            let uid = entry.object().metadata.uid.as_deref();
            new.is_none_or(|new| new["metadata"]["uid"].as_str() != uid)
        };
        let before = self.list(&Scope::Everything).into_iter().filter(is_gone);
        let mut writes: Vec<_> = before
            .map(|entry| Write::Delete {
                key: entry.key().clone(),
            })
            .collect();
        // The store creates no change for an object that is equal to the stored object.
        writes.extend(objects.into_iter().filter_map(|(key, mut object)| {
            if object["kind"] == RULE_SETS.kind {
                let before = writer.get(&key).map(|entry| json!(entry.object()));
                complete_rule_set(&mut object, &before.unwrap_or_default());
            }
            put(key, object)
        }));
        commit(&mut writer, writes);
    }

    /// Looks up a resource among the kinds of the objects.
    pub fn kind_of(&self, resource: &Gvr) -> Resolution {
        self.kinds.borrow().resolve(resource)
    }

    /// Returns the kinds of the objects, and the kind of rule sets. The caller must call this function
    /// only at the start, because it leaks memory.
    pub fn served_kinds(&self) -> Vec<ResourceInfo> {
        self.kinds.borrow().served()
    }

    /// Returns the objects of a kind in one namespace.
    pub fn in_namespace(&self, api_version: &str, kind: &str, namespace: &str) -> Vec<Value> {
        let namespace = [&*prefix(api_version, kind), namespace].concat();
        let found = self.list(&Scope::Namespace(namespace.into()));
        found.iter().map(|entry| json!(entry.object())).collect()
    }

    fn list(&self, scope: &Scope) -> Vec<Arc<Entry<DemoModel>>> {
        let listed = self.reader.list(scope, ReadVersion::Latest);
        listed.map(|(_, entries)| entries).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Writer<DemoModel>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the write of an object. Returns None if the metadata is not valid, for example because a
/// label is a number.
fn put(key: Key, object: Value) -> Option<Write<DemoModel>> {
    match serde_json::from_value(object) {
        Ok(object) => Some(Write::Put { key, object }),
        Err(error) => {
            tracing::warn!(%key, %error, "an object of the demo is not valid");
            None
        }
    }
}

fn commit(writer: &mut Writer<DemoModel>, writes: impl IntoIterator<Item = Write<DemoModel>>) {
    let writes = Vec::from_iter(writes);
    if let Err(error) = writer.commit(writes, VersionAssignment::Mint) {
        tracing::error!(%error, "objects of the demo could not be stored");
    }
}

impl StatusSink for ObjectStore {
    fn write<'a>(&'a self, write: &'a StatusWrite) -> BoxFuture<'a, StatusAnswer> {
        let key = Key::new(
            prefix(&RULE_SETS.api_version(), RULE_SETS.kind),
            &*write.name,
        );
        self.patch(&key, &json!({"status": write.status}));
        // The answer contains no resourceVersion, because the controller needs it only to detect
        // conflicting writes. In the demo, no other client writes the status.
        future::ready(StatusAnswer::Written(None)).boxed()
    }
}

impl Resolve for ObjectStore {
    fn resolve(&self, targets: Vec<Arc<Gvr>>) -> BoxFuture<'static, Vec<ResolvedTarget>> {
        let targets = targets.into_iter();
        let results = targets.map(|target| (target.clone(), self.kind_of(&target)));
        future::ready(results.collect()).boxed()
    }

    fn resolution_changes(&self) -> BoxStream<'static, ()> {
        // The stream does not end: the store contains the sender, and the caller keeps the store.
        let changes = stream::unfold(self.kinds.subscribe(), |mut kinds| async move {
            kinds.changed().await.ok()?;
            Some(((), kinds))
        });
        changes.boxed()
    }
}

/// Streams the objects of a source. The stream never ends. While the store has no kind for the
/// resource of the source, the stream contains no objects.
impl Feed for ObjectStore {
    fn follow(&self, source: Source, _: Option<&str>) -> BoxStream<'static, Raw> {
        let feed = StoreFeed {
            store: self.clone(),
            source,
            prefix: None,
            cursor: None,
        };
        stream::unfold(feed, |mut feed| async {
            let events = feed.next_events().await;
            Some((stream::iter(events), feed))
        })
        .flatten()
        .boxed()
    }
}

/// A feed of the objects in a store.
struct StoreFeed {
    store: ObjectStore,
    source: Source,
    /// The prefix of the keys of the objects. `None` until a kind with the resource of the source exists.
    prefix: Option<String>,
    /// The position of the feed in the changes. `None` before the first list.
    cursor: Option<Cursor<DemoModel>>,
}

impl StoreFeed {
    /// Waits for changes, and returns the changes since the last call. Returns all objects if this
    /// is the first call, or if the store no longer has all changes since the last call.
    async fn next_events(&mut self) -> Vec<Raw> {
        let json = |entry: &Entry<DemoModel>| entry.json().into();
        let changes = match &mut self.cursor {
            Some(cursor) => cursor.next().await.ok(),
            None => None,
        };
        let target = &self.source.target;
        if let Resolution::Served { kind, .. } = self.store.kind_of(target) {
            self.prefix = Some(prefix(&target.api_version(), &kind));
        }
        let Some(changes) = changes else {
            let (entries, cursor) = self.store.reader.list_and_follow(Scope::Everything);
            self.cursor = Some(cursor);
            let entries = entries.iter().filter(|entry| self.contains(entry.key()));
            let objects = entries.map(|entry| Raw::Applied(json(entry)));
            let events = std::iter::once(Raw::Reset).chain(objects);
            return events.chain([Raw::Synced]).collect();
        };
        let own = |change: &&Change<DemoModel>| change.key().is_some_and(|it| self.contains(it));
        let changes = changes.iter().filter(own);
        let events = changes.filter_map(|change| match (&change.before, &change.after) {
            (_, Some(after)) => Some(Raw::Applied(json(after))),
            (Some(before), None) => Some(Raw::Deleted(json(before))),
            (None, None) => None,
        });
        events.collect()
    }

    fn contains(&self, key: &Key) -> bool {
        let prefix = self.prefix.as_deref();
        let own = prefix.and_then(|prefix| key.namespace.strip_prefix(prefix));
        let namespace = self.source.namespace.as_deref();
        own.is_some_and(|own| namespace.is_none_or(|namespace| namespace == own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::model::key;
    use ifo_client::manifest;

    fn node() -> Value {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})
    }

    /// Returns the kinds Node and Pod.
    fn kinds() -> Kinds {
        let text = "{apiVersion: v1, kind: Node, metadata: {name: a}}\n---\n\
                    {apiVersion: v1, kind: Pod, metadata: {name: a}}";
        let objects = manifest::read(text).unwrap();
        Kinds::of(objects.iter())
    }

    fn source(group: &str, resource: &str, namespace: Option<&str>) -> Source {
        let target = Gvr {
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
        };
        Source {
            target: target.into(),
            namespace: namespace.map(Into::into),
        }
    }

    /// Returns the next events of a feed as texts, such as `applied a` for the object `a`.
    async fn next(feed: &mut BoxStream<'static, Raw>, count: usize) -> Vec<String> {
        let brief = |raw| match raw {
            Raw::Reset => "reset".to_owned(),
            Raw::Synced => "synced".to_owned(),
            Raw::Applied(json) | Raw::Deleted(json) => {
                let object: Value = serde_json::from_slice(&json).unwrap();
                assert!(object["metadata"]["resourceVersion"].is_string());
                format!("{} {}", object["metadata"]["name"], object["spec"])
            }
            Raw::Lost(lost) => panic!("{lost:?}"),
        };
        feed.take(count).map(brief).collect().await
    }

    #[tokio::test]
    async fn a_feed_receives_the_objects_and_then_the_changes_of_its_source() {
        for bounds in [BOUNDS, Bounds { bytes: 0, ..BOUNDS }] {
            let store = ObjectStore::with_bounds(bounds, kinds());
            let put = |object: Value| store.put(&key(&object).unwrap(), object);
            let pod = |namespace: &str| {
                let metadata = json!({"name": "p", "namespace": namespace});
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
            };
            put(node());
            put(pod("x"));
            let mut nodes = store.follow(source("", "nodes", None), None);
            let mut pods = store.follow(source("", "pods", Some("y")), None);
            let mut unknown = store.follow(source("", "nothings", None), None);
            let initial = ["reset", "\"a\" null", "synced"];
            assert_eq!(next(&mut nodes, 3).await, initial);
            assert_eq!(next(&mut pods, 2).await, ["reset", "synced"]);
            assert_eq!(next(&mut unknown, 2).await, ["reset", "synced"]);
            let a = key(&node()).unwrap();
            store.patch(&a, &json!({"spec": 1}));
            store.delete(&a);
            // A patch or a deletion of a missing object changes nothing.
            store.patch(&a, &json!({}));
            store.delete(&a);
            put(pod("y"));
            // If the store no longer has the changes, the feed sends all objects again.
            let (changes, pod) = if bounds.bytes == 0 {
                (
                    vec!["reset", "synced"],
                    vec!["reset", "\"p\" null", "synced"],
                )
            } else {
                (vec!["\"a\" 1", "\"a\" 1"], vec!["\"p\" null"])
            };
            assert_eq!(next(&mut nodes, 2).await, changes);
            assert_eq!(next(&mut pods, pod.len()).await, pod);
            assert!(unknown.next().now_or_never().is_none() || bounds.bytes == 0);
        }
    }
}
