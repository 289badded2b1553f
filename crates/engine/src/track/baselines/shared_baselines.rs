//! Baselines that the tracker shares with the task that stores them.

use super::{Baselines, RunKind, UsualDuration};
use ifo_api::Text;
use jiff::Timestamp;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Baselines that several tasks use. Clones share the same baselines.
#[derive(Clone, Debug, Default)]
pub struct SharedBaselines(Arc<Mutex<Baselines>>);

impl SharedBaselines {
    fn lock(&self) -> MutexGuard<'_, Baselines> {
        self.0
            .lock()
            .expect("no code panics while it holds this lock")
    }

    /// Adds the duration of a successful run ([`Baselines::learn`]).
    pub fn learn(&self, kind: RunKind<'_>, duration: Duration, size: f64, now: Timestamp) -> bool {
        self.lock().learn(kind, duration, size, now)
    }

    /// Returns the usual duration of an operation ([`Baselines::usual`]).
    pub fn usual(&self, kind: RunKind<'_>) -> Option<UsualDuration> {
        self.lock().usual(kind)
    }

    /// Adds the runs of stored baselines. Usually, the tracker compares an operation with earlier
    /// runs only when its subject changes. So after this call, the caller must send
    /// [`Message::BaselinesLoaded`](crate::track::Message::BaselinesLoaded). Then the tracker
    /// compares all operations in flight with the added runs.
    pub fn merge(&self, stored: Baselines) {
        self.lock().merge(stored);
    }

    /// Returns the baselines as text. Returns None if no run was learned since the last call
    /// ([`Baselines::encode_changed`]).
    pub fn encode_changed(&self) -> Option<String> {
        self.lock().encode_changed()
    }

    /// Returns the baselines as text ([`Baselines::encode`]).
    pub fn encode(&self) -> String {
        self.lock().encode()
    }

    /// Removes all baselines.
    pub fn clear(&self) {
        *self.lock() = Baselines::default();
    }

    /// Returns name of the rule set, name of the operation, and usual duration of each baseline
    /// that covers all namespaces together. Baselines of single namespaces are left out.
    pub fn of_all_namespaces(&self) -> Vec<(Text, Text, UsualDuration)> {
        let baselines = self.lock();
        let all = baselines.all.iter();
        let all = all.filter(|(key, _)| key.namespace.is_none());
        all.filter_map(|(key, baseline)| {
            Some((key.rule_set.clone(), key.operation.clone(), baseline.usual?))
        })
        .collect()
    }

    /// Returns the number of baselines.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns true if there are no baselines.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
