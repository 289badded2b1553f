//! Copies each change of an operation from the live resource to the custom resource. So both
//! resources have the same objects, and the same history of changes in the same order.

use super::definition::TWIN;
use super::side::Side;
use crate::harness::{Events, Kind, OPERATION, TestCluster, eventually, ok_if, text};
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The watches of both resources, and the changes that have been copied so far.
pub struct Mirror {
    cluster: &'static TestCluster,
    /// The query option that selects the copied operations (`labelSelector=…`).
    selector: String,
    live: Events,
    custom: Events,
    /// Number of events of the watch `live` whose changes have been copied.
    copied: usize,
    /// The operations of the live resource after the copied changes, by UID.
    operations: BTreeMap<String, Value>,
    /// For each operation, by its UID: the number of copied changes, and the last resourceVersion
    /// of the custom object.
    copies: BTreeMap<String, (usize, Value)>,
}

impl Mirror {
    /// Starts the watches. `few` and `many` are the names of two rule sets. The label `twin` of an
    /// operation is the name of its rule set. Only the operations of these two rule sets are
    /// copied.
    pub async fn start(cluster: &'static TestCluster, few: &str, many: &str) -> Self {
        let selector = format!("labelSelector=twin%20in%20({few},{many})");
        let watch = async |kind: &Kind| {
            let path = format!("{}?watch=1&{selector}", kind.path(None));
            let events = Events::of(&cluster.admin, &path).await;
            events.expect("an administrator must be allowed to watch")
        };
        Self {
            cluster,
            live: watch(&OPERATION).await,
            custom: watch(&TWIN).await,
            selector,
            copied: 0,
            operations: BTreeMap::new(),
            copies: BTreeMap::new(),
        }
    }

    /// Copies changes until `is` returns true. The argument of `is` contains the copied operations
    /// by UID. `what` describes the expectation in the error message.
    pub async fn until(
        &mut self,
        sides: [&Side; 2],
        what: &str,
        is: impl Fn(&BTreeMap<String, Value>) -> bool,
    ) {
        eventually(what, async || {
            self.copy_changes(sides).await;
            ok_if(is(&self.operations), &self.operations)
        })
        .await;
    }

    /// Copies changes until the copied operations equal a list of the live resource. Returns the
    /// number of changes that have been copied so far.
    pub async fn wait_until_equal(&mut self, sides: [&Side; 2]) -> usize {
        let path = format!("{}?{}", OPERATION.path(None), self.selector);
        eventually("both resources have the same objects", async || {
            let list = self.cluster.admin.get(&path).await.ok();
            self.copy_changes(sides).await;
            let items = list["items"].as_array().expect("a list has items");
            let listed = items
                .iter()
                .map(|item| (text(item, "/metadata/uid"), item))
                .collect::<BTreeMap<&str, &Value>>();
            let copied = self.operations.iter();
            let same = copied
                .map(|(uid, object)| (uid.as_str(), object))
                .eq(listed);
            ok_if(same, (items.len(), self.operations.len()))?;
            Ok(self.copied)
        })
        .await
    }

    /// Copies the changes that the watch of the live resource has received so far.
    pub async fn copy_changes(&mut self, sides: [&Side; 2]) {
        let new = self.live.inspect(|events| events[self.copied..].to_vec());
        for event in new {
            self.copy(&event).await;
            let copied = self.copied;
            let copy = self
                .custom
                .until("the copy", |all| all.get(copied).cloned());
            let copy = copy.await;
            self.record(sides, &event, &copy["object"]);
        }
    }

    /// Records that the object `custom` is the copy of the object in `event`. The two objects have
    /// different resourceVersions and UIDs. So both sides record the same name for the two
    /// resourceVersions, such as `a#2`, and the same name for the two UIDs, such as `uid of a`.
    /// With these names, the test can compare answers that contain the objects.
    fn record(&mut self, sides: [&Side; 2], event: &Value, custom: &Value) {
        let live = &event["object"];
        let name = text(live, "/metadata/name");
        let uid = text(live, "/metadata/uid").to_owned();
        if event["type"] == "DELETED" {
            self.operations.remove(&uid);
        } else {
            self.operations.insert(uid.clone(), live.clone());
        }
        let version = custom["metadata"]["resourceVersion"].clone();
        let (nth, last) = self.copies.entry(uid).or_default();
        for (side, object) in sides.into_iter().zip([live, custom]) {
            let version = text(object, "/metadata/resourceVersion");
            side.record_name(version, format!("{name}#{nth}"));
            side.record_name(text(object, "/metadata/uid"), format!("uid of {name}"));
        }
        *nth += 1;
        *last = version;
        self.copied += 1;
    }

    /// Applies the change in an event of the live resource to the custom resource. Fails if the event
    /// contradicts the earlier events: an object is added twice, or one that does not exist is changed
    /// or deleted.
    async fn copy(&self, event: &Value) {
        let admin = &self.cluster.admin;
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
            .expect("an object has metadata");
        for own in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
            metadata.remove(own);
        }
        if event["type"] == "ADDED" {
            admin.post(&all, &copy).await.ok();
        } else {
            let (_, last) = &self.copies[text(object, "/metadata/uid")];
            copy["metadata"]["resourceVersion"] = last.clone();
            let put = admin.send(Method::PUT, &one, "application/json", copy.to_string());
            put.await.ok();
        }
    }

    /// Calls `find` with each event of the live resource so far, the oldest event first. Returns
    /// the first value that `find` returns, or None if `find` returns no value.
    pub fn find<T>(&self, find: impl FnMut(&Value) -> Option<T>) -> Option<T> {
        self.live.inspect(|events| events.iter().find_map(find))
    }
}
