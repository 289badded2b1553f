//! The usual durations of operations, learned from completed runs. A run is one occurrence of an
//! operation, from its start to its end. The tracker compares operations in flight with the usual
//! duration to find overdue operations.
//!
//! A baseline contains the durations of the last 200 runs of one operation of one rule set. One
//! baseline covers all namespaces together. In addition, each namespace has its own baseline.
//!
//! Each rule has a timing hash, a hash of the fields that affect the durations. If the timing hash
//! changes, new durations are not comparable with earlier durations. So the next run removes all
//! earlier runs from the baselines of this rule.

use ifo_api::Text;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Maximum number of runs in a baseline. A new run replaces the oldest one. So the usual duration
/// follows a lasting change of the cluster, such as faster storage.
const MAX_RUNS: usize = 200;

/// Minimum number of runs in the baseline of one namespace. If there are fewer runs, the tracker
/// uses the baseline of all namespaces together.
const ENOUGH_IN_NAMESPACE: u64 = 20;

/// Minimum number of earlier runs from which the tracker decides that an operation is overdue. With
/// fewer runs, an operation can be overdue only if its rule has an `expectedDuration`. The reason:
/// after only a few runs, the next normal run is often longer than all earlier runs.
pub(super) const ENOUGH_TO_JUDGE: u64 = 20;

/// Maximum number of baselines. A baseline takes about 2 KB at most. If there are more baselines,
/// [`Baselines::remove_surplus`] removes some of them.
const MAX_BASELINES: usize = 1_000;

/// Maximum length of all baselines as text, in bytes. `ifo-apiserver` stores the text in a
/// ConfigMap, which can have 1 MiB. If the text would be longer, [`SharedBaselines::encode`] leaves
/// out some baselines: those that `Baselines::remove_surplus` removes first.
pub const MAX_ENCODED_BYTES: usize = 512 * 1024;

/// Version of the format of the text that [`SharedBaselines::encode`] returns.
/// [`SharedBaselines::load`] refuses a text with another version.
const FORMAT: u32 = 2;

/// Identity of a baseline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BaselineKey {
    rule_set: Text,
    operation: Text,
    /// Namespace of the runs. None for the baseline of all namespaces together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<Text>,
}

/// The facts about an operation whose duration is learned or compared.
#[derive(Clone, Copy, Debug)]
pub struct RunKind<'a> {
    /// Name of the rule set.
    pub rule_set: &'a Text,
    /// Name of the operation.
    pub operation: &'a Text,
    /// Timing hash of the rule. Durations of runs with different hashes are not comparable.
    pub timing_hash: &'a str,
    /// Namespace of the subject. None for a cluster-scoped subject.
    pub namespace: Option<&'a Text>,
    /// Amount of work. It is 1 if the rule has no `size`.
    pub size: f64,
}

/// The usual duration of an operation, or of one unit of its `size`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsualDuration {
    /// Median, in seconds.
    pub typical: f64,
    /// The duration that 95 of 100 runs did not exceed, in seconds.
    pub p95: f64,
    /// Number of runs from which the usual duration was computed.
    pub runs: u64,
}

/// The reason why a text cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum BaselinesError {
    /// The text is not JSON with the expected fields.
    #[error("not a list of baselines: {0}")]
    Json(#[from] serde_json::Error),
    /// The format has another version.
    #[error("format {0} is unknown, expected {FORMAT}")]
    Format(u32),
}

/// The JSON of all baselines.
#[derive(Deserialize, Serialize)]
struct StoredBaselines {
    format: u32,
    baselines: Vec<StoredBaseline>,
}

/// A baseline with its identity, as one JSON object.
#[derive(Deserialize, Serialize)]
struct StoredBaseline {
    #[serde(flatten)]
    key: BaselineKey,
    #[serde(flatten)]
    baseline: Baseline,
}

/// The baselines of all operations.
#[derive(Clone, Debug, Default)]
struct Baselines {
    all: BTreeMap<BaselineKey, Baseline>,
    /// True if a run was learned since the last call of [`SharedBaselines::encode_changed`].
    is_changed: bool,
}

/// The durations of one operation, in one namespace or in all namespaces together.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Baseline {
    rule_hash: Text,
    last_run: Timestamp,
    /// Durations of the last [`MAX_RUNS`] runs in seconds, the oldest run first.
    durations: VecDeque<f64>,
    /// The usual duration, computed from `durations`. None if there are no runs.
    #[serde(skip)]
    usual: Option<UsualDuration>,
}

impl Baseline {
    fn new(timing_hash: &str, last_run: Timestamp) -> Self {
        Self {
            rule_hash: timing_hash.into(),
            last_run,
            durations: VecDeque::new(),
            usual: None,
        }
    }

    /// Adds the durations of runs that are newer than the known runs, and computes the usual
    /// duration.
    fn learn(&mut self, seconds: impl IntoIterator<Item = f64>, last_run: Timestamp) {
        self.durations.extend(seconds);
        let surplus = self.durations.len().saturating_sub(MAX_RUNS);
        self.durations.drain(..surplus);
        self.last_run = self.last_run.max(last_run);
        let mut sorted: Vec<f64> = self.durations.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        // The nearest-rank method: `percent` of the runs do not exceed the result.
        let quantile = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100);
            sorted.get(rank.checked_sub(1)?).copied()
        };
        let quantiles = quantile(50).zip(quantile(95));
        self.usual = quantiles.map(|(typical, p95)| UsualDuration {
            typical,
            p95,
            runs: sorted.len() as u64,
        });
    }
}

impl Baselines {
    /// Removes baselines until there are at most `most`. Baselines of single namespaces are removed
    /// first. Among these, the baseline whose last run is the oldest is removed first.
    fn remove_surplus(&mut self, most: usize) {
        let surplus = self.all.len().saturating_sub(most);
        if surplus == 0 {
            return;
        }
        let mut keys: Vec<BaselineKey> = self.all.keys().cloned().collect();
        keys.sort_by_cached_key(|key| (key.namespace.is_none(), self.all[key].last_run));
        for key in &keys[..surplus] {
            self.all.remove(key);
        }
    }
}

/// Rounds a duration to three significant digits, such as 83.2. So a baseline of 200 runs takes
/// about 1 KB of text.
fn rounded(seconds: f64) -> f64 {
    let text = format!("{seconds:.2e}");
    text.parse().expect("a formatted number can be parsed")
}

/// Baselines that several tasks use. Clones share the same baselines.
#[derive(Clone, Debug, Default)]
pub struct SharedBaselines(Arc<Mutex<Baselines>>);

impl SharedBaselines {
    fn lock(&self) -> MutexGuard<'_, Baselines> {
        self.0
            .lock()
            .expect("no code panics while it holds this lock")
    }

    /// Adds the duration of a successful run, for one unit of its size.
    pub fn learn(&self, kind: RunKind<'_>, duration: Duration, now: Timestamp) {
        let seconds = duration.as_secs_f64() / kind.size;
        if !seconds.is_finite() {
            return;
        }
        let mut baselines = self.lock();
        let own = kind.namespace.map(Some);
        for namespace in [None].into_iter().chain(own) {
            let new = || Baseline::new(kind.timing_hash, now);
            let baseline = baselines.all.entry(kind.key(namespace)).or_insert_with(new);
            if *baseline.rule_hash != *kind.timing_hash {
                *baseline = new();
            }
            baseline.learn([rounded(seconds)], now);
        }
        baselines.is_changed = true;
        baselines.remove_surplus(MAX_BASELINES);
    }

    /// Returns the usual duration of an operation in its namespace, if at least 20 runs in this
    /// namespace are known. Otherwise returns the usual duration in all namespaces together. Only
    /// runs with the timing hash of `kind` count. Returns None if no such run is known. The
    /// durations are for the size of `kind`.
    pub fn usual(&self, kind: RunKind<'_>) -> Option<UsualDuration> {
        let baselines = self.lock();
        let of = |namespace| {
            let baseline = baselines.all.get(&kind.key(namespace))?;
            let is_comparable = *baseline.rule_hash == *kind.timing_hash;
            baseline.usual.filter(|_| is_comparable)
        };
        let own = kind.namespace.and_then(|namespace| of(Some(namespace)));
        let usual = own
            .filter(|own| own.runs >= ENOUGH_IN_NAMESPACE)
            .or_else(|| of(None))?;
        Some(UsualDuration {
            typical: usual.typical * kind.size,
            p95: usual.p95 * kind.size,
            ..usual
        })
    }

    /// Adds the runs of a text from [`SharedBaselines::encode`]. These runs count as older than the
    /// known runs. Returns the number of baselines in the text.
    ///
    /// A baseline of the text and a known baseline can have the same identity, but different timing
    /// hashes. They belong to different versions of the rule, and cannot be merged. So only the
    /// baseline with the newer last run stays.
    ///
    /// The caller must then send [`Message::BaselinesLoaded`](super::Message::BaselinesLoaded).
    pub fn load(&self, text: &str) -> Result<usize, BaselinesError> {
        let stored: StoredBaselines = serde_json::from_str(text)?;
        if stored.format != FORMAT {
            return Err(BaselinesError::Format(stored.format));
        }
        let count = stored.baselines.len();
        let mut baselines = self.lock();
        for StoredBaseline { key, mut baseline } in stored.baselines {
            // Limits the number of runs, and computes the usual duration.
            baseline.learn([], baseline.last_run);
            match baselines.all.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(baseline);
                }
                Entry::Occupied(mut entry) => {
                    let own = entry.get_mut();
                    if own.rule_hash == baseline.rule_hash {
                        baseline.learn(own.durations.iter().copied(), own.last_run);
                        *own = baseline;
                    } else if own.last_run < baseline.last_run {
                        *own = baseline;
                    }
                }
            }
        }
        baselines.remove_surplus(MAX_BASELINES);
        Ok(count)
    }

    /// Returns the baselines as text if a run was learned since the last call. Otherwise returns
    /// None.
    pub fn encode_changed(&self) -> Option<String> {
        let is_changed = std::mem::take(&mut self.lock().is_changed);
        is_changed.then(|| self.encode())
    }

    /// Returns the baselines as text, which [`SharedBaselines::load`] reads. The text has at most
    /// [`MAX_ENCODED_BYTES`].
    pub fn encode(&self) -> String {
        let mut baselines = self.lock().clone();
        loop {
            let all = baselines.all.clone().into_iter();
            let stored = StoredBaselines {
                format: FORMAT,
                baselines: all
                    .map(|(key, baseline)| StoredBaseline { key, baseline })
                    .collect(),
            };
            let text = serde_json::to_string(&stored).expect("a list can always be encoded");
            if text.len() <= MAX_ENCODED_BYTES {
                return text;
            }
            let most = baselines.all.len() * MAX_ENCODED_BYTES / text.len();
            baselines.remove_surplus(most);
        }
    }

    /// Removes all baselines.
    pub fn clear(&self) {
        *self.lock() = Baselines::default();
    }

    /// Returns rule set, operation and usual duration of each baseline of all namespaces together.
    /// If the rule has a `size`, the durations are for one unit of `size`.
    pub fn of_all_namespaces(&self) -> Vec<(Text, Text, UsualDuration)> {
        let baselines = self.lock();
        let all = baselines.all.iter();
        let all = all.filter(|(key, _)| key.namespace.is_none());
        all.filter_map(|(key, baseline)| {
            Some((key.rule_set.clone(), key.operation.clone(), baseline.usual?))
        })
        .collect()
    }
}

impl RunKind<'_> {
    fn key(self, namespace: Option<&Text>) -> BaselineKey {
        BaselineKey {
            rule_set: self.rule_set.clone(),
            operation: self.operation.clone(),
            namespace: namespace.cloned(),
        }
    }
}
