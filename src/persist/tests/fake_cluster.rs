//! A fake cluster in memory that stores custom resources. The fake cluster replaces the
//! kube-apiserver in the tests of persistence mode and in the tests with simulated replicas. In
//! persistence mode, the leader writes each operation as a custom resource.
//!
//! The fake implements server-side apply, uid, resourceVersion and conflicts. It processes a
//! request even if the client has stopped waiting for the answer, as a kube-apiserver does.

use super::*;
use futures::FutureExt as _;
use futures::stream::BoxStream;
use ifo_api::live::Phase;
use ifo_api::persisted::InFlightOperation;
use ifo_observe::{GapReason, Raw};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use tokio::sync::mpsc;

/// A client of the fake cluster. Clones share the cluster.
#[derive(Clone, Default)]
pub struct FakeCluster(Arc<Mutex<ClusterState>>);

#[derive(Default)]
pub struct ClusterState {
    pub objects: BTreeMap<String, InFlightOperation>,
    /// The writes that created, changed or deleted an object, each as verb and name: `create a`.
    pub changes: Vec<String>,
    /// All requests, including failed requests, each as verb and name.
    pub requests: Vec<String>,
    /// If set, every request fails with this failure.
    pub failure: Option<StoreFailure>,
    /// If true, the cluster processes requests, but the client gets an error instead of the answer.
    pub answers_get_lost: bool,
    /// If set, the cluster forbids each request whose text (verb and name) starts with this prefix.
    /// For example, the prefix `create a` forbids the creation of objects whose names start with
    /// `a`.
    pub forbidden_prefix: Option<&'static str>,
    /// The time that a request needs to reach the cluster. None means 5 ms.
    pub latency: Option<Duration>,
    /// The open watches.
    watches: Vec<mpsc::UnboundedSender<Raw>>,
    version: u64,
}

impl ClusterState {
    /// Stores `cr` with a new resourceVersion. If `cr` has no uid, adds a random uid.
    fn put(&mut self, mut cr: InFlightOperation) -> Revision {
        self.version += 1;
        cr.metadata.resource_version = Some(self.version.to_string());
        cr.metadata
            .uid
            .get_or_insert_with(|| Uuid::new_v4().to_string());
        let revision = Revision::of(&cr.metadata).unwrap();
        self.notify(&Raw::Applied(json(&cr)));
        self.objects.insert(cr.metadata.name.clone().unwrap(), cr);
        revision
    }

    /// Deletes an object. Returns false if it does not exist.
    pub fn remove(&mut self, name: &str) -> bool {
        let removed = self.objects.remove(name);
        if let Some(cr) = &removed {
            self.notify(&Raw::Deleted(json(cr)));
        }
        removed.is_some()
    }

    fn notify(&mut self, event: &Raw) {
        self.watches
            .retain(|watch| watch.send(event.clone()).is_ok());
    }

    /// Returns the events with which a watch begins: all objects.
    fn list(&self) -> Vec<Raw> {
        let objects = self.objects.values().map(|cr| Raw::Applied(json(cr)));
        let all = std::iter::once(Raw::Reset).chain(objects);
        all.chain([Raw::Synced]).collect()
    }

    /// Creates or changes an object by server-side apply. All labels and annotations stay. (A
    /// kube-apiserver would remove obsolete labels of the server.) Returns the new revision, and
    /// true if the object has changed.
    fn apply(&mut self, cr: &InFlightOperation) -> Result<(Revision, bool), StoreFailure> {
        let name = cr.metadata.name.clone().unwrap();
        let mut new = cr.clone();
        if let Some(stored) = self.objects.get(&name) {
            let state = Revision::of(&stored.metadata).unwrap();
            if Revision::of(&cr.metadata).is_some_and(|expected| expected != state) {
                return Err(StoreFailure::Conflict);
            }
            let mut labels = stored.metadata.labels.clone().unwrap_or_default();
            labels.extend(cr.metadata.labels.clone().unwrap_or_default());
            new.metadata = stored.metadata.clone();
            new.metadata.labels = Some(labels).filter(|labels| !labels.is_empty());
            let annotations = new.metadata.annotations.get_or_insert_default();
            annotations.extend(cr.metadata.annotations.clone().unwrap_or_default());
            if new == *stored {
                return Ok((state, false));
            }
        } else if cr.metadata.uid.is_some() {
            return Err(StoreFailure::Conflict);
        }
        Ok((self.put(new), true))
    }

    /// Creates an object, as another client would do.
    pub fn create(&mut self, cr: &InFlightOperation) {
        let mut new = cr.clone();
        new.metadata.uid = None;
        self.put(new);
    }

    /// Applies `change` to each object, as another client would do. The field `changes` lists only
    /// writes of the server, so it does not contain this change.
    pub fn edit(&mut self, change: impl Fn(&mut InFlightOperation)) {
        for mut cr in self.objects.clone().into_values() {
            change(&mut cr);
            self.put(cr);
        }
    }
}

impl FakeCluster {
    pub fn lock(&self) -> MutexGuard<'_, ClusterState> {
        self.0.lock().unwrap()
    }

    /// Returns a future that sends a request when it is first polled. Once the request is sent, the
    /// cluster processes it even if the caller drops the future.
    ///
    /// `request` is the verb and the name. `work` processes the request in the cluster.
    fn request<T: Send + 'static>(
        &self,
        request: String,
        work: impl FnOnce(&mut ClusterState) -> Result<T, StoreFailure> + Send + 'static,
    ) -> Pending<'static, T> {
        let cluster = self.clone();
        async move {
            let latency = {
                let mut cluster = cluster.lock();
                cluster.requests.push(request.clone());
                cluster.latency.unwrap_or(Duration::from_millis(5))
            };
            let processing = async move {
                tokio::time::sleep(latency).await;
                let mut cluster = cluster.lock();
                if let Some(failure) = cluster.failure.clone() {
                    return Err(failure);
                }
                if cluster
                    .forbidden_prefix
                    .is_some_and(|it| request.starts_with(it))
                {
                    return Err(StoreFailure::Forbidden(
                        "the test forbids this request".into(),
                    ));
                }
                let answer = work(&mut cluster);
                if cluster.answers_get_lost {
                    return Err(StoreFailure::Unreachable("lost".into()));
                }
                answer
            };
            tokio::spawn(processing).await.unwrap()
        }
        .boxed()
    }

    /// Lets all later requests fail with `failure`, or succeed if it is None. A failure that
    /// concerns all objects also ends the watches.
    pub fn set_failure(&self, failure: Option<StoreFailure>) {
        let mut cluster = self.lock();
        if failure.as_ref().is_some_and(|it| !it.is_of_one_object()) {
            cluster.watches.clear();
        }
        cluster.failure = failure;
    }

    /// Lists and watches the objects until the watch ends. Then continues with a new list.
    async fn watch(self, out: mpsc::UnboundedSender<Raw>) {
        while !out.is_closed() {
            let failure = self.lock().failure.clone();
            if let Some(failure) = failure.filter(|it| !it.is_of_one_object()) {
                let _ = out.send(Raw::Lost(gap(&failure)));
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
            let (watch, mut events) = mpsc::unbounded_channel();
            let mut all = {
                let mut cluster = self.lock();
                cluster.watches.push(watch);
                cluster.list().into_iter()
            };
            let mut is_open = all.all(|event| out.send(event).is_ok());
            while is_open && let Some(event) = events.recv().await {
                is_open = out.send(event).is_ok();
            }
        }
    }

    /// Returns the name of the subject and the phase of each custom resource.
    pub fn phases(&self) -> Vec<(String, Phase)> {
        let phase = |cr: &InFlightOperation| cr.status.as_ref().unwrap().live.phase;
        let of = |cr: &InFlightOperation| (cr.spec.live.subject.name.to_string(), phase(cr));
        self.lock().objects.values().map(of).collect()
    }

    /// Returns the only custom resource. Panics if there is none, or more than one.
    pub fn only(&self) -> InFlightOperation {
        let cluster = self.lock();
        assert_eq!(cluster.objects.len(), 1);
        cluster.objects.values().next().unwrap().clone()
    }
}

impl Store for FakeCluster {
    fn apply<'a>(&'a self, cr: &'a InFlightOperation) -> Pending<'a, Revision> {
        let (cr, name) = (cr.clone(), cr.metadata.name.clone().unwrap());
        let verb = if cr.metadata.uid.is_none() {
            "create"
        } else {
            "change"
        };
        self.request(format!("{verb} {name}"), move |cluster| {
            let (revision, is_changed) = cluster.apply(&cr)?;
            if is_changed {
                cluster.changes.push(format!("{verb} {name}"));
            }
            Ok(revision)
        })
    }

    fn delete<'a>(&'a self, name: &'a str, revision: &'a Revision) -> Pending<'a, ()> {
        let (name, revision) = (name.to_owned(), revision.clone());
        self.request(format!("delete {name}"), move |cluster| {
            let stored = cluster.objects.get(&name);
            if stored.is_some_and(|cr| Revision::of(&cr.metadata).unwrap() != revision) {
                return Err(StoreFailure::Conflict);
            }
            if cluster.remove(&name) {
                cluster.changes.push(format!("delete {name}"));
            }
            Ok(())
        })
    }

    fn follow(&self) -> BoxStream<'static, Raw> {
        let (out, mut events) = mpsc::unbounded_channel();
        tokio::spawn(self.clone().watch(out));
        stream::poll_fn(move |context| events.poll_recv(context)).boxed()
    }
}

fn json(cr: &InFlightOperation) -> bytes::Bytes {
    serde_json::to_vec(cr).unwrap().into()
}

fn gap(failure: &StoreFailure) -> GapReason {
    match failure {
        StoreFailure::CrdMissing => GapReason::Refused {
            code: 404,
            message: String::new(),
        },
        other => GapReason::Unreachable(other.to_string()),
    }
}
