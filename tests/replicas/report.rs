//! The report of a test under load: how many requests the clients sent, which reads failed, and
//! which guarantees were violated. For each failure, the report names the disturbance (such as a
//! SIGKILL of one replica) during which it happened.

use crate::cluster::Replicas;
use crate::disturbance::Disturbance;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Largest number of violations that [`Report::check`] prints with their text. It also prints how
/// many violations there are in total.
const PRINTED: usize = 20;

/// A report to which all clients of a test add their observations.
#[derive(Debug, Default)]
pub struct Report(Mutex<ReportContent>);

#[derive(Debug, Default)]
struct ReportContent {
    /// The phases of the test since the beginning of the first disturbance. A phase is a
    /// disturbance, or None between the end of a disturbance and the next one.
    phases: Vec<Option<Disturbance>>,
    counts: BTreeMap<String, u64>,
    violations: Vec<String>,
}

impl ReportContent {
    /// Returns the phase `phase` and all later phases.
    fn since(&self, phase: Phase) -> &[Option<Disturbance>] {
        &self.phases[phase.0.saturating_sub(1)..]
    }
}

/// The number of a phase. 0 is the time before the first disturbance, 1 is the first disturbance,
/// and 2 is the time after it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Phase(usize);

impl Report {
    fn state(&self) -> MutexGuard<'_, ReportContent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the beginning of a disturbance.
    pub fn begin(&self, disturbance: Disturbance) {
        self.state().phases.push(Some(disturbance));
    }

    /// Records that the replicas have recovered from the disturbance.
    pub fn end(&self) {
        self.state().phases.push(None);
    }

    /// Returns the current phase.
    pub fn phase(&self) -> Phase {
        Phase(self.state().phases.len())
    }

    /// Returns true if there was no disturbance in the phase `phase` and since then.
    pub fn is_calm_since(&self, phase: Phase) -> bool {
        self.state().since(phase).iter().all(Option::is_none)
    }

    /// Increments the count with this name.
    pub fn count(&self, what: &str) {
        *self.state().counts.entry(what.to_owned()).or_default() += 1;
    }

    /// Returns the count with this name.
    pub fn count_of(&self, what: &str) -> u64 {
        self.state().counts.get(what).copied().unwrap_or_default()
    }

    /// Records that a guarantee was violated in the current phase.
    pub fn violation(&self, text: &str) {
        let mut state = self.state();
        let phase = state.phases.last().copied().flatten();
        state.violations.push(format!("[{phase:?}] {text}"));
    }

    /// Records that a read through the kube-apiserver has failed. `begun` is the phase in which the
    /// read began. `retried` is the result of a second attempt.
    ///
    /// The report counts each failed read. If no disturbance since `begun` allows the failure (see
    /// [`Disturbance::allows`]), the failure is also a violation.
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

    /// Fails if there are violations, and prints them with the logs of the replicas.
    pub fn check(&self, replicas: &Replicas<'_>) {
        let state = self.state();
        if !state.violations.is_empty() {
            let some = &state.violations[..state.violations.len().min(PRINTED)];
            let count = state.violations.len();
            let logs = replicas.logs();
            panic!("{count} violations:\n{}\n{logs}", some.join("\n"));
        }
    }

    /// Prints all counts.
    pub fn summarize(&self) {
        for (what, count) in &self.state().counts {
            eprintln!("{count:>8} {what}");
        }
    }
}
