//! Copies each change of the live resource to the custom resource, in order, so that both have the
//! same history. Changes that a watch gap of the server causes are also copied.

use super::definition::TWIN;
use super::side::Side;
use crate::harness::{Events, Folded, Kind, OPERATION, World, eventually, so, text};
use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Number of changes that are copied at the same time.
const AT_ONCE: usize = 32;

/// The watches of both resources, and the progress of the copies.
pub struct Mirror {
    world: &'static World,
    /// The label selector for the operations that are copied, as an option of a path.
    selector: String,
    /// The namespace with many operations.
    many: String,
    live: Events,
    custom: Events,
    /// Number of changes of the live resource that were copied.
    copied: usize,
    /// The state of the live resource after these changes.
    told: Folded,
    /// By UID of the original: the number of its copies, and the last resourceVersion of its copy.
    copies: BTreeMap<String, (usize, Value)>,
}

impl Mirror {
    /// Watches operations whose label `twin` is the name of one of these rule sets. The second rule
    /// set belongs to a namespace with many operations, and has its name.
    pub async fn start(world: &'static World, few: &str, many: &str) -> Self {
        let selector = format!("labelSelector=twin%20in%20({few},{many})");
        let watch = async |kind: &Kind| {
            let path = format!("{}?watch=1&{selector}", kind.path(None));
            let events = Events::of(&world.admin, &path).await;
            events.expect("an administrator may watch")
        };
        Self {
            world,
            live: watch(&OPERATION).await,
            custom: watch(&TWIN).await,
            selector,
            many: many.to_owned(),
            copied: 0,
            told: Folded::default(),
            copies: BTreeMap::new(),
        }
    }

    /// Waits until the operations are as expected, by UID, and copies all changes until then.
    pub async fn until(
        &mut self,
        sides: [&Side; 2],
        what: &str,
        is: impl Fn(&BTreeMap<String, Value>) -> bool,
    ) {
        eventually(what, async || {
            self.catch_up(sides).await;
            so(is(&self.told.objects), &self.told.objects)
        })
        .await;
    }

    /// Waits until the copies equal a list of the live resource. Returns the number of changes.
    pub async fn in_step(&mut self, sides: [&Side; 2]) -> usize {
        let path = format!("{}?{}", OPERATION.path(None), self.selector);
        eventually("the copies are as the originals", async || {
            let list = self.world.admin.get(&path).await.ok();
            self.catch_up(sides).await;
            let items = list["items"].as_array().expect("a list has items");
            let listed = items
                .iter()
                .map(|item| (text(item, "/metadata/uid"), item))
                .collect::<BTreeMap<&str, &Value>>();
            let told = self.told.objects.iter();
            let same = told.map(|(uid, object)| (uid.as_str(), object)).eq(listed);
            so(same, (items.len(), self.told.objects.len()))?;
            Ok(self.copied)
        })
        .await
    }

    /// Copies the changes that the watch has delivered so far.
    pub async fn catch_up(&mut self, sides: [&Side; 2]) {
        let new = self.live.now(|events| events[self.copied..].to_vec());
        let mut rest = new.as_slice();
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(self.batch(rest));
            rest = after;
            let copies = batch.iter().map(|event| self.copy(event));
            join_all(copies).await;
            let (from, to) = (self.copied, self.copied + batch.len());
            let copies = self
                .custom
                .until("the copies", |all| all.get(from..to).map(<[_]>::to_vec))
                .await;
            for event in batch {
                let name = &event["object"]["metadata"]["name"];
                let copy = copies
                    .iter()
                    .find(|it| it["object"]["metadata"]["name"] == *name);
                let copy = copy.expect("these are the copies");
                self.note(sides, event, &copy["object"]);
            }
        }
    }

    /// Number of these changes that can be copied at the same time. The order matters, except
    /// between different objects in the namespace with many operations.
    fn batch(&self, events: &[Value]) -> usize {
        let mut names = BTreeSet::new();
        let independent = events.iter().take(AT_ONCE).take_while(|event| {
            let metadata = &event["object"]["metadata"];
            metadata["namespace"] == self.many && names.insert(text(metadata, "/name"))
        });
        independent.count().max(1)
    }

    /// Records the change to which the versions of an original and its copy belong.
    fn note(&mut self, sides: [&Side; 2], event: &Value, custom: &Value) {
        self.told.add(event);
        let live = &event["object"];
        let name = text(live, "/metadata/name");
        let uid = text(live, "/metadata/uid").to_owned();
        let version = custom["metadata"]["resourceVersion"].clone();
        let (nth, last) = self.copies.entry(uid).or_default();
        for (side, object) in sides.into_iter().zip([live, custom]) {
            let version = text(object, "/metadata/resourceVersion");
            side.note(version, format!("{name}#{nth}"));
            side.note(text(object, "/metadata/uid"), format!("uid of {name}"));
        }
        *nth += 1;
        *last = version;
        self.copied += 1;
    }

    /// Copies a change to the custom resource.
    async fn copy(&self, event: &Value) {
        let admin = &self.world.admin;
        let object = &event["object"];
        let all = TWIN.path(Some(text(object, "/metadata/namespace")));
        let one = format!("{all}/{}", text(object, "/metadata/name"));
        if event["type"] == "DELETED" {
            admin.delete(&one).await.ok();
            return;
        }
        let mut copy = object.clone();
        copy["apiVersion"] = json!(TWIN.api_version);
        let metadata = copy["metadata"]
            .as_object_mut()
            .expect("objects have metadata");
        for own in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
            metadata.remove(own);
        }
        if event["type"] == "ADDED" {
            admin.post(&all, &copy).await.ok();
        } else {
            let (_, last) = &self.copies[text(object, "/metadata/uid")];
            copy["metadata"]["resourceVersion"] = last.clone();
            let kind = "application/json";
            let put = admin.send(Method::PUT, &one, kind, copy.to_string());
            put.await.ok();
        }
    }

    /// Returns the first result of the search in the changes so far.
    pub fn find<T>(&self, find: impl FnMut(&Value) -> Option<T>) -> Option<T> {
        self.live.now(|events| events.iter().find_map(find))
    }
}
