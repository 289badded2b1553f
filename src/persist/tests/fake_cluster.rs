//! A fake cluster in memory that stores custom resources. It replaces the kube-apiserver in the
//! tests of persistence mode (the leader writes each operation as a custom resource) and in the
//! tests with simulated replicas.
//!
//! The fake implements uid, resourceVersion, managedFields and conflicts. It processes a request
//! even if the client has stopped waiting for the answer, as a kube-apiserver does.

use super::*;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard};

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
    /// For example, `create a` forbids to create objects whose names start with `a`.
    pub forbidden_prefix: Option<&'static str>,
    /// The time that a request needs to reach the cluster. None means 5 ms.
    pub latency: Option<Duration>,
    /// The creation times of the namespaces, by name.
    pub namespaces: BTreeMap<String, Timestamp>,
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
        self.objects.insert(cr.metadata.name.clone().unwrap(), cr);
        revision
    }

    /// Creates an object. If `ours` is true, its managedFields name this server as the manager of
    /// the labels and of the annotation `ifo.kubevirt.io/live`. If `ours` is false, the object has
    /// no managedFields. The server then treats the object as created by another client.
    pub fn create(&mut self, cr: &InFlightOperation, ours: bool) -> Result<Revision, StoreFailure> {
        if self
            .objects
            .contains_key(cr.metadata.name.as_ref().unwrap())
        {
            return Err(StoreFailure::Conflict("it exists".into()));
        }
        let mut new = cr.clone();
        new.metadata.uid = None;
        let labels = cr
            .metadata
            .labels
            .iter()
            .flat_map(|all| all.keys().cloned());
        new.metadata.managed_fields = ours.then(|| managed(&labels.collect(), true));
        Ok(self.put(new))
    }

    fn patch(&mut self, name: &str, patch: &Value) -> Result<Option<Revision>, StoreFailure> {
        let conflict = || StoreFailure::Conflict("another state".into());
        let stored = self.objects.get(name).ok_or_else(conflict)?;
        let state = Revision::of(&stored.metadata).unwrap();
        let of = |field: &str| patch["metadata"][field].as_str().map(str::to_owned);
        if of("uid") != Some(state.uid.to_string())
            || of("resourceVersion").as_deref() != Some(&state.resource_version)
        {
            return Err(conflict());
        }
        let before = serde_json::to_value(stored).unwrap();
        let mut after = before.clone();
        merge(&mut after, patch);
        if after == before {
            return Ok(None);
        }
        // The client that changes a field becomes the manager of the field, as in Kubernetes.
        let label = |of: &Value, key: &str| of["metadata"]["labels"].get(key).cloned();
        let mut managed_keys = managed_labels(stored);
        let changed = patch["metadata"]["labels"]
            .as_object()
            .into_iter()
            .flatten();
        let changed = changed.filter(|(key, _)| label(&before, key) != label(&after, key));
        managed_keys.extend(changed.map(|(key, _)| key.clone()));
        managed_keys.retain(|key| label(&after, key).is_some());
        let manages_annotations = stored.metadata.managed_fields.is_some();
        let mut after: InFlightOperation = serde_json::from_value(after).unwrap();
        after.metadata.managed_fields = Some(managed(&managed_keys, manages_annotations));
        Ok(Some(self.put(after)))
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

/// Applies a JSON merge patch (RFC 7396) to `into`.
fn merge(into: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        into.clone_from(patch);
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    let into = into.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            into.remove(key);
        } else {
            merge(into.entry(key).or_insert(Value::Null), value);
        }
    }
}

type Managed = k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

/// Returns managedFields with one entry, which shows this server as the manager of `labels`. If
/// `manages_annotations` is true, the entry also shows this server as the manager of the annotation
/// that identifies our custom resources.
fn managed(labels: &BTreeSet<String>, manages_annotations: bool) -> Vec<Managed> {
    let fields: serde_json::Map<String, Value> = labels
        .iter()
        .map(|key| (format!("f:{key}"), json!({})))
        .collect();
    let mut metadata = json!({"f:labels": fields});
    if manages_annotations {
        metadata["f:annotations"] = json!({"f:ifo.kubevirt.io/live": {}});
    }
    let entry = json!({
        "manager": FIELD_MANAGER, "operation": "Update", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": metadata},
    });
    vec![serde_json::from_value(entry).unwrap()]
}

fn managed_labels(cr: &InFlightOperation) -> BTreeSet<String> {
    let entry = cr.metadata.managed_fields.iter().flatten().next();
    let fields = entry.and_then(|entry| entry.fields_v1.as_ref());
    let labels = fields.and_then(|fields| fields.0["f:metadata"]["f:labels"].as_object());
    let keys = labels.into_iter().flatten().map(|(key, _)| key);
    keys.map(|key| key["f:".len()..].to_owned()).collect()
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
                    return Err(StoreFailure::Unreachable("lost".into(), None));
                }
                answer
            };
            tokio::spawn(processing).await.unwrap()
        }
        .boxed()
    }

    pub fn set_failure(&self, failure: Option<StoreFailure>) {
        self.lock().failure = failure;
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
    fn create<'a>(&'a self, cr: &'a InFlightOperation) -> Pending<'a, Revision> {
        let (cr, name) = (cr.clone(), cr.metadata.name.clone().unwrap());
        self.request(format!("create {name}"), move |cluster| {
            let revision = cluster.create(&cr, true)?;
            cluster.changes.push(format!("create {name}"));
            Ok(revision)
        })
    }

    fn patch<'a>(&'a self, name: &'a str, patch: &'a Value) -> Pending<'a, Revision> {
        let (name, patch) = (name.to_owned(), patch.clone());
        self.request(format!("patch {name}"), move |cluster| {
            if let Some(revision) = cluster.patch(&name, &patch)? {
                cluster.changes.push(format!("patch {name}"));
                return Ok(revision);
            }
            Ok(Revision::of(&cluster.objects[&name].metadata).unwrap())
        })
    }

    fn delete<'a>(&'a self, name: &'a str, revision: &'a Revision) -> Pending<'a, ()> {
        let (name, revision) = (name.to_owned(), revision.clone());
        self.request(format!("delete {name}"), move |cluster| {
            let stored = cluster.objects.get(&name);
            if stored.is_some_and(|cr| Revision::of(&cr.metadata).unwrap() != revision) {
                return Err(StoreFailure::Conflict("another state".into()));
            }
            if cluster.objects.remove(&name).is_some() {
                cluster.changes.push(format!("delete {name}"));
            }
            Ok(())
        })
    }

    fn get<'a>(&'a self, name: &'a str) -> Pending<'a, Option<InFlightOperation>> {
        let name = name.to_owned();
        self.request(format!("get {name}"), move |cluster| {
            Ok(cluster.objects.get(&name).cloned())
        })
    }

    fn page<'a>(&'a self, _selector: &'a str, token: Option<&'a str>) -> Pending<'a, StoredPage> {
        let token = token.map(str::to_owned);
        self.request("list".to_owned(), move |cluster| {
            // A page has at most two objects. The continue token is the name of the last object of
            // the previous page.
            let objects = cluster.objects.iter();
            let mut rest = objects.filter(|(name, _)| token.as_ref() < Some(name));
            let items: Vec<_> = rest.by_ref().take(2).collect();
            let last = items.last().map(|(name, _)| (*name).clone());
            Ok(StoredPage {
                next: rest.next().and(last),
                items: items.into_iter().map(|(_, cr)| cr.clone()).collect(),
            })
        })
    }

    fn namespaces(&self) -> Pending<'_, HashMap<String, Timestamp>> {
        let all = self.lock().namespaces.clone();
        std::future::ready(Ok(all.into_iter().collect())).boxed()
    }
}
