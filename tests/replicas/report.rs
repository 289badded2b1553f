//! The observations of the clients: counts, failed reads and violations, each with the
//! disturbance during which it happened.

use crate::cluster::Replicas;
use crate::disturbance::Disturbance;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of violations that are printed.
const PRINTED: usize = 20;

/// The report of a run.
#[derive(Debug, Default)]
pub struct Report(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Each phase of the run is a disturbance or None, the calm before, between and after
    /// them.
    phases: Vec<Option<Disturbance>>,
    counts: BTreeMap<String, u64>,
    violations: Vec<String>,
}

impl State {
    /// The phases since this one, which is the first of them.
    fn since(&self, phase: Phase) -> &[Option<Disturbance>] {
        &self.phases[phase.0.saturating_sub(1)..]
    }
}

/// A phase of the run, by its number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Phase(usize);

impl Report {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the beginning of a disturbance.
    pub fn begin(&self, disturbance: Disturbance) {
        self.state().phases.push(Some(disturbance));
    }

    /// Records that the replicas have recovered.
    pub fn end(&self) {
        self.state().phases.push(None);
    }

    /// Returns the current phase.
    pub fn phase(&self) -> Phase {
        Phase(self.state().phases.len())
    }

    /// Returns true if no disturbance began since the beginning of that phase.
    pub fn is_calm_since(&self, phase: Phase) -> bool {
        self.state().since(phase).iter().all(Option::is_none)
    }

    /// Counts an event.
    pub fn count(&self, what: &str) {
        *self.state().counts.entry(what.to_owned()).or_default() += 1;
    }

    /// Returns the number of an event.
    pub fn counted(&self, what: &str) -> u64 {
        self.state().counts.get(what).copied().unwrap_or_default()
    }

    /// Records an observation that must not happen.
    pub fn violation(&self, text: &str) {
        let mut state = self.state();
        let phase = state.phases.last().copied().flatten();
        state.violations.push(format!("[{phase:?}] {text}"));
    }

    /// Records a failed read through the aggregator. It began in this phase.
    pub fn read_failed(&self, begun: Phase, failure: &str, retried: &Result<(), String>) {
        let mut state = self.state();
        let phases = state.since(begun);
        let allowed = |phase: &Option<Disturbance>| {
            phase.is_some_and(|disturbance| disturbance.allows(retried.is_ok()))
        };
        let allowed = phases.iter().any(allowed);
        let line = format!("reads that failed during {phases:?}: {failure}");
        if !allowed {
            let violation = format!("{line}; the retry: {retried:?}");
            state.violations.push(violation);
        }
        *state.counts.entry(line).or_default() += 1;
    }

    /// Fails if there are violations.
    pub fn check(&self, replicas: &Replicas<'_>) {
        let state = self.state();
        if !state.violations.is_empty() {
            let some = &state.violations[..state.violations.len().min(PRINTED)];
            let count = state.violations.len();
            let logs = replicas.logs();
            panic!("{count} violations:\n{}\n{logs}", some.join("\n"));
        }
    }

    /// Prints the counts.
    pub fn summarize(&self) {
        for (what, count) in &self.state().counts {
            eprintln!("{count:>8} {what}");
        }
    }
}
