//! Simulates discovery, the compiler, and the cluster that stores statuses.

use super::*;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use ifo_observe::{Resolve, ResolvedTarget};

/// A simulated discovery.
#[derive(Default)]
pub(super) struct FakeDiscovery {
    /// The results of look-ups, by resource. A resource without an entry is served.
    pub(super) answers: Mutex<HashMap<String, Resolution>>,
    pub(super) looked_up: Mutex<Vec<String>>,
    /// The duration of a look-up. A look-up returns the result that was set when it began.
    pub(super) lookup_duration: Mutex<Duration>,
    pub(super) changes: Mutex<Option<mpsc::UnboundedReceiver<()>>>,
}

impl Resolve for FakeDiscovery {
    fn resolve(&self, targets: Vec<Arc<Gvr>>) -> BoxFuture<'static, Vec<ResolvedTarget>> {
        let answers = self.answers.lock().unwrap();
        let resolve = |target: Arc<Gvr>| {
            self.looked_up.lock().unwrap().push(target.resource.clone());
            let answer = answers.get(&target.resource).cloned();
            (target, answer.unwrap_or_else(served))
        };
        let results = targets.into_iter().map(resolve).collect();
        let lookup_duration = *self.lookup_duration.lock().unwrap();
        async move {
            tokio::time::sleep(lookup_duration).await;
            results
        }
        .boxed()
    }

    fn resolution_changes(&self) -> BoxStream<'static, ()> {
        let changes = self
            .changes
            .lock()
            .unwrap()
            .take()
            .expect("the controller must call `changes` only once");
        UnboundedReceiverStream::new(changes).boxed()
    }
}

pub(super) fn served() -> Resolution {
    Resolution::Served {
        kind: "Thing".into(),
        namespaced: true,
    }
}

pub(super) fn not_served() -> Resolution {
    Resolution::NotServed {
        message: "nobody serves it".into(),
        group_served: true,
        similar_group: None,
    }
}

pub(super) fn unknown() -> Resolution {
    Resolution::Unknown {
        message: "503".into(),
    }
}

/// A simulated compiler. It compiles a rule set at once. If `held` contains the rule set, it waits
/// until the rule set is removed from `held`.
#[derive(Default)]
pub(super) struct FakeCompiler {
    pub(super) held: watch::Sender<BTreeSet<String>>,
    /// The names of the rule sets whose compilation has begun.
    pub(super) begun: Mutex<Vec<String>>,
}

impl FakeCompiler {
    pub(super) fn hold(&self, names: &[&str]) {
        let names = names.iter().map(ToString::to_string);
        self.held.send_replace(names.collect());
    }

    /// Returns the names of the rule sets whose compilation has begun since the last call.
    pub(super) fn begun(&self) -> Vec<String> {
        std::mem::take(&mut *self.begun.lock().unwrap())
    }
}

impl FakeCompiler {
    pub(super) fn compile(
        &self,
        name: String,
        spec: Arc<OperationRuleSetSpec>,
    ) -> BoxFuture<'static, CompileResult> {
        self.begun.lock().unwrap().push(name.clone());
        let mut held = self.held.subscribe();
        async move {
            let released = held.wait_for(|held| !held.contains(&name)).await;
            drop(released.expect("the fixture has the sender"));
            compile(&name, &spec)
        }
        .boxed()
    }
}

/// A simulated cluster that stores statuses. It records every write, also the writes that fail.
#[derive(Default)]
pub(super) struct Sink {
    pub(super) written: Mutex<Vec<StatusWrite>>,
    /// The names of the rule sets whose writes fail.
    pub(super) failing_writes: Mutex<BTreeSet<String>>,
    /// The duration of a write.
    pub(super) write_duration: Mutex<Duration>,
    /// The resourceVersion of each rule set in the cluster. A rule set without an entry has no
    /// version, like a rule set from a file.
    pub(super) versions: Mutex<HashMap<String, u64>>,
}

impl Sink {
    /// Answers a write as the kube-apiserver does. An accepted write creates a new version.
    fn answer(&self, write: &StatusWrite) -> StatusAnswer {
        if self.failing_writes.lock().unwrap().contains(&write.name) {
            return StatusAnswer::Failed;
        }
        let mut versions = self.versions.lock().unwrap();
        let Some(version) = versions.get_mut(&write.name) else {
            return StatusAnswer::Written(None);
        };
        if write.version != Some(version.to_string()) {
            return StatusAnswer::Failed;
        }
        *version += 1;
        StatusAnswer::Written(Some(version.to_string()))
    }
}

impl StatusSink for Sink {
    fn write<'a>(&'a self, write: &'a StatusWrite) -> BoxFuture<'a, StatusAnswer> {
        self.written.lock().unwrap().push(write.clone());
        let answer = self.answer(write);
        let write_duration = *self.write_duration.lock().unwrap();
        async move {
            tokio::time::sleep(write_duration).await;
            answer
        }
        .boxed()
    }
}
