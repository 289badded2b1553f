//! The usual durations of operations, learned from completed runs. A run is one occurrence of an
//! operation, from its start to its end. The tracker compares operations in flight with the usual
//! duration to find overdue operations.
//!
//! A baseline contains the durations of the last 200 runs of one operation of one rule set. One
//! baseline covers all namespaces together. In addition, each namespace has its own baseline.
//!
//! Each rule has a timing hash, a hash of the fields that affect the durations. If the timing hash
//! changes, new durations are not comparable with earlier durations. So the baselines of the rule's
//! operation start again without runs.

mod encoding;
mod shared_baselines;

use ifo_api::Text;
pub use shared_baselines::SharedBaselines;

pub use encoding::{BaselinesError, MAX_ENCODED_BYTES};

use jiff::Timestamp;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Maximum number of runs in a baseline. A new run replaces the oldest one. So the usual duration
/// follows a lasting change of the cluster, such as faster storage.
const MAX_RUNS: usize = 200;

/// Minimum number of runs for using the baseline of one namespace. If the namespace has fewer runs,
/// the baseline for all namespaces together is used.
const ENOUGH_IN_NAMESPACE: u64 = 20;

/// Minimum number of earlier runs from which the tracker decides that an operation is overdue. With
/// fewer runs, an operation can be overdue only if its rule has an `expectedDuration`. The reason:
/// after only a few runs, the next normal run is often longer than all earlier runs.
pub(super) const ENOUGH_TO_JUDGE: u64 = 20;

/// Maximum number of baselines. A baseline takes about 2 KB at most. If there are more baselines,
/// [`Baselines::remove_surplus`] removes some of them.
const MAX_BASELINES: usize = 1_000;

/// Identity of a baseline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BaselineKey {
    rule_set: Text,
    operation: Text,
    /// Namespace of the runs. None for the baseline of all namespaces together.
    namespace: Option<Text>,
}

/// The rule and the namespace of an operation whose duration is learned or compared.
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
}

/// The usual duration of an operation. If the rule has a `size`, the durations are for one unit of
/// `size`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsualDuration {
    /// Median, in seconds.
    pub typical: f64,
    /// The duration that 95 of 100 runs did not exceed, in seconds.
    pub p95: f64,
    /// Number of runs from which the usual duration was computed.
    pub runs: u64,
}

/// The baselines of all operations.
#[derive(Clone, Debug, Default)]
pub struct Baselines {
    all: BTreeMap<BaselineKey, Baseline>,
    /// True if a run was learned since the last call of [`Baselines::encode_changed`].
    is_changed: bool,
}

/// The durations of one operation, in one namespace or in all namespaces together.
#[derive(Clone, Debug)]
struct Baseline {
    timing_hash: Text,
    /// Durations of the last [`MAX_RUNS`] runs in seconds, the oldest run first.
    durations: VecDeque<f64>,
    last_run: Timestamp,
    /// The usual duration, computed from `durations`. None if there are no runs.
    usual: Option<UsualDuration>,
}

impl Baseline {
    fn new(timing_hash: &str, last_run: Timestamp) -> Self {
        Self {
            timing_hash: timing_hash.into(),
            durations: VecDeque::new(),
            last_run,
            usual: None,
        }
    }

    /// Adds the durations of runs that are newer than the known runs.
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
        self.usual = quantile(50)
            .zip(quantile(95))
            .map(|(typical, p95)| UsualDuration {
                typical,
                p95,
                runs: sorted.len() as u64,
            });
    }
}

impl Baselines {
    /// Returns the number of baselines.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns true if there are no baselines.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds the duration of a successful run. `size` is the amount of work of the run, or 1 if the
    /// rule yields no amount.
    ///
    /// Returns true if a baseline has reached 20 runs with this run. From then on, operations in
    /// flight can be overdue, so the caller must refresh them.
    pub fn learn(
        &mut self,
        kind: RunKind<'_>,
        duration: Duration,
        size: f64,
        now: Timestamp,
    ) -> bool {
        let seconds = duration.as_secs_f64() / size;
        if !seconds.is_finite() {
            return false;
        }
        let mut can_judge = false;
        let namespaces = [None, kind.namespace];
        let namespaces = namespaces
            .into_iter()
            .take(1 + usize::from(kind.namespace.is_some()));
        for namespace in namespaces {
            let key = kind.key(namespace);
            let baseline = match self.all.entry(key) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(Baseline::new(kind.timing_hash, now)),
            };
            if *baseline.timing_hash != *kind.timing_hash {
                *baseline = Baseline::new(kind.timing_hash, now);
            }
            baseline.learn([seconds], now);
            can_judge |= baseline
                .usual
                .is_some_and(|usual| usual.runs == ENOUGH_TO_JUDGE);
        }
        self.is_changed = true;
        self.remove_surplus();
        can_judge
    }

    /// Returns the usual duration of an operation in its namespace, if at least 20 runs in this
    /// namespace are known. Otherwise returns the usual duration in all namespaces together. Only
    /// runs with the timing hash of `kind` count. Returns None if no such run is known.
    pub fn usual(&self, kind: RunKind<'_>) -> Option<UsualDuration> {
        if self.all.is_empty() {
            return None;
        }
        let of = |namespace| {
            let baseline = self.all.get(&kind.key(namespace))?;
            baseline
                .usual
                .filter(|_| *baseline.timing_hash == *kind.timing_hash)
        };
        let own = kind.namespace.and_then(|namespace| of(Some(namespace)));
        own.filter(|own| own.runs >= ENOUGH_IN_NAMESPACE)
            .or_else(|| of(None))
    }

    /// Adds the runs of `stored`, which are older than the known runs. If two baselines have the
    /// same identity but different timing hashes, they belong to different versions of the rule and
    /// cannot be merged. In this case, the baseline whose last run is newer stays.
    pub fn merge(&mut self, stored: Self) {
        for (key, mut theirs) in stored.all {
            match self.all.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(theirs);
                }
                Entry::Occupied(mut entry) => {
                    let own = entry.get_mut();
                    if own.timing_hash == theirs.timing_hash {
                        theirs.learn(own.durations.iter().copied(), own.last_run);
                        *own = theirs;
                    } else if own.last_run < theirs.last_run {
                        *own = theirs;
                    }
                }
            }
        }
        self.remove_surplus();
    }

    /// Removes baselines until there are at most [`MAX_BASELINES`]. Baselines of single namespaces
    /// are removed first. Among these, the baseline whose last run is the oldest is removed first.
    fn remove_surplus(&mut self) {
        while self.all.len() > MAX_BASELINES {
            let oldest = self
                .all
                .iter()
                .min_by_key(|(key, baseline)| (key.namespace.is_none(), baseline.last_run));
            let Some(key) = oldest.map(|(key, _)| key.clone()) else {
                return;
            };
            self.all.remove(&key);
        }
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
