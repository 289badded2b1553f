//! The watcher and reflector of the kube crate.

use super::{Belief, Informer, Objects, key};
use crate::harness::{Caller, OPERATION, text};
use futures::StreamExt as _;
use kube::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt as _, reflector as reflect};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;

/// A running reflector, which recovers from errors.
pub struct KubeRs {
    name: String,
    store: Store<DynamicObject>,
    witness: Arc<Mutex<Witness>>,
    task: JoinHandle<()>,
}

impl Drop for KubeRs {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl KubeRs {
    /// Starts a reflector that streams its initial state, or lists it.
    pub fn start(caller: &Caller, streaming: bool) -> Self {
        let (group, version) = OPERATION.group_version();
        let kind = GroupVersionKind::gvk(group, version, OPERATION.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, OPERATION.plural);
        let api: Api<DynamicObject> = Api::all_with(caller.client.clone(), &resource);
        let config = watcher::Config::default();
        let (name, config) = if streaming {
            ("streaming", config.streaming_lists())
        } else {
            // The list has several pages.
            ("listing", config.page_size(7))
        };
        let writer = reflector::store::Writer::new(resource);
        let store = writer.as_reader();
        let witness = Arc::new(Mutex::new(Witness::default()));
        let told = witness.clone();
        let task = tokio::spawn(async move {
            let mut events = reflect(writer, watcher(api, config))
                .default_backoff()
                .boxed();
            while let Some(event) = events.next().await {
                // The watcher continues after an error.
                if let Ok(event) = event {
                    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                    told.hear(event);
                }
            }
        });
        Self {
            name: format!("kube-rs' reflector, {name}"),
            store,
            witness,
            task,
        }
    }
}

impl Informer for KubeRs {
    fn name(&self) -> &str {
        &self.name
    }

    async fn belief(&mut self) -> Belief {
        let store = self.store.state();
        let witness = self.witness.lock().unwrap_or_else(PoisonError::into_inner);
        Belief {
            synced: witness.synced,
            store: store.iter().map(|it| by_key(it)).collect(),
            told: witness.told.clone(),
            deleted: witness.deleted.clone(),
            broken: witness.broken.clone(),
        }
    }
}

fn by_key(object: &DynamicObject) -> (String, Value) {
    let object = serde_json::to_value(object).expect("it came as JSON");
    (key(&object), object)
}

/// Applies all events to its state, and records events that violate a guarantee.
#[derive(Default)]
struct Witness {
    synced: bool,
    told: Objects,
    /// The initial state while it is being received.
    coming: Option<Objects>,
    deleted: BTreeSet<String>,
    /// The highest resourceVersion of each key, including deleted objects.
    newest: BTreeMap<String, u64>,
    broken: Vec<String>,
}

impl Witness {
    fn hear(&mut self, event: Event<DynamicObject>) {
        match event {
            Event::Init => self.coming = Some(Objects::new()),
            Event::InitApply(object) => {
                let (key, object) = self.see(&object);
                match &mut self.coming {
                    Some(coming) => {
                        coming.insert(key, object);
                    }
                    None => self.broken.push(format!("{key} is of no initial state")),
                }
            }
            Event::InitDone => match self.coming.take() {
                Some(coming) => {
                    self.told = coming;
                    self.synced = true;
                }
                None => self.broken.push("the end of no initial state".to_owned()),
            },
            Event::Apply(object) => {
                let (key, object) = self.see(&object);
                self.told.insert(key, object);
            }
            Event::Delete(object) => {
                let (key, object) = self.see(&object);
                if self.told.remove(&key).is_none() {
                    self.broken.push(format!("{key} ends and never was"));
                }
                self.deleted
                    .insert(text(&object, "/metadata/uid").to_owned());
            }
        }
    }

    fn see(&mut self, object: &DynamicObject) -> (String, Value) {
        let (key, object) = by_key(object);
        let version = text(&object, "/metadata/resourceVersion");
        let version: u64 = version.parse().expect("a resourceVersion is a number");
        let newest = self.newest.entry(key.clone()).or_default();
        if version < *newest {
            let complaint = format!("{key} is at {version} after it was at {newest}");
            self.broken.push(complaint);
        }
        *newest = version;
        (key, object)
    }
}
