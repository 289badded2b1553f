//! Runs an informer of kube-rs, the Kubernetes library for Rust. Its reflector keeps a store of the
//! watched objects.

use super::{Informer, InformerState, Objects, key};
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

/// A running reflector. After an error, the reflector watches again.
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
    /// Starts a reflector (a cache of kube-rs) for the objects of the resource `operations` in all
    /// namespaces. The initial state is all objects that exist at the start. If `streaming` is
    /// true, the reflector receives the initial state from a watch. Otherwise it receives the
    /// initial state from a list.
    pub fn start(caller: &Caller, streaming: bool) -> Self {
        let (group, version) = OPERATION.group_version();
        let kind = GroupVersionKind::gvk(group, version, OPERATION.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, OPERATION.plural);
        let api: Api<DynamicObject> = Api::all_with(caller.client.clone(), &resource);
        let config = watcher::Config::default();
        let (name, config) = if streaming {
            ("streaming", config.streaming_lists())
        } else {
            // The page size is small, so that the list has several pages.
            ("listing", config.page_size(7))
        };
        let writer = reflector::store::Writer::new(resource);
        let store = writer.as_reader();
        let witness = Arc::new(Mutex::new(Witness::default()));
        let shared = witness.clone();
        let task = tokio::spawn(async move {
            let mut events = reflect(writer, watcher(api, config))
                .default_backoff()
                .boxed();
            while let Some(event) = events.next().await {
                // The watcher itself retries after an error, so an error is ignored here.
                if let Ok(event) = event {
                    let mut witness = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    witness.apply(event);
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

    async fn state(&mut self) -> InformerState {
        let store = self.store.state();
        let witness = self.witness.lock().unwrap_or_else(PoisonError::into_inner);
        InformerState {
            synced: witness.synced,
            store: store.iter().map(|it| by_key(it)).collect(),
            from_events: witness.objects.clone(),
            deleted_uids: witness.deleted_uids.clone(),
            violations: witness.violations.clone(),
        }
    }
}

fn by_key(object: &DynamicObject) -> (String, Value) {
    let object = serde_json::to_value(object).expect("the object was received as JSON");
    (key(&object), object)
}

/// Computes from the watcher's events which objects exist. Also records a violation in these cases:
///
/// - The resourceVersion of an object decreases.
/// - A deleted object did not exist.
/// - An event of an initial state arrives before the start of this state.
#[derive(Default)]
struct Witness {
    synced: bool,
    objects: Objects,
    /// The objects of the initial state that have been received so far. None if no initial state is
    /// being received.
    initial: Option<Objects>,
    deleted_uids: BTreeSet<String>,
    /// The last received resourceVersion of each key, also of deleted objects.
    last_version: BTreeMap<String, u64>,
    violations: Vec<String>,
}

impl Witness {
    fn apply(&mut self, event: Event<DynamicObject>) {
        match event {
            Event::Init => self.initial = Some(Objects::new()),
            Event::InitApply(object) => {
                let (key, object) = self.check_version(&object);
                match &mut self.initial {
                    Some(initial) => {
                        initial.insert(key, object);
                    }
                    None => self.violations.push(format!(
                        "{key} was sent as part of an initial state that had not begun"
                    )),
                }
            }
            Event::InitDone => match self.initial.take() {
                Some(initial) => {
                    self.objects = initial;
                    self.synced = true;
                }
                None => self
                    .violations
                    .push("an initial state ended that had not begun".to_owned()),
            },
            Event::Apply(object) => {
                let (key, object) = self.check_version(&object);
                self.objects.insert(key, object);
            }
            Event::Delete(object) => {
                let (key, object) = self.check_version(&object);
                if self.objects.remove(&key).is_none() {
                    self.violations
                        .push(format!("{key} was deleted, but did not exist"));
                }
                self.deleted_uids
                    .insert(text(&object, "/metadata/uid").to_owned());
            }
        }
    }

    fn check_version(&mut self, object: &DynamicObject) -> (String, Value) {
        let (key, object) = by_key(object);
        let version = text(&object, "/metadata/resourceVersion");
        let version: u64 = version.parse().expect("a resourceVersion must be a number");
        let last_version = self.last_version.entry(key.clone()).or_default();
        if version < *last_version {
            let complaint = format!("{key} is at {version} after it was at {last_version}");
            self.violations.push(complaint);
        }
        *last_version = version;
        (key, object)
    }
}
