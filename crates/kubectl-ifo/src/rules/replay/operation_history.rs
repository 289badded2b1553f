//! Collects the history of each operation in a replay: its start, its end, and the changes between
//! them. A change is in the history if a client that watches the operations would receive it.
//!
//! The time of an event in the recording is a number of seconds. This module calls them seconds of
//! the stream. [`TimeScale`] converts them to clock times.

use super::recorded_time::TimeScale;
use crate::operations::operation::{InFlightOperation, OperationFacts as _, subject_path};
use crate::rules::test_command::name_with_item;
use ifo_api::live::State;
use ifo_api::{Key, Text};
use ifo_engine::ClockReading;
use ifo_engine::detect::Evaluation;
use ifo_engine::replay::ReplayObserver;
use ifo_engine::track::Write;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Largest number of failures that are reported. Further failures are left out.
const MAX_FAILURES: usize = 100;

/// The history of one operation.
#[derive(Debug)]
pub(super) struct OperationHistory {
    /// Start, in seconds of the stream. If the rule computes the start, it can be before the first
    /// event.
    started: f64,
    /// The states that the server would show, with their times in seconds of the stream. The list
    /// is not empty.
    pub(super) states: Vec<(f64, Arc<InFlightOperation>)>,
}

impl OperationHistory {
    /// Moves the end of the operation to the time from which on the operation was not detected.
    fn end_when_undetected(&mut self) {
        if self.completed().is_some()
            && let Some((end, active)) = self.states.split_last_mut()
        {
            let settling = |it: &&(f64, Arc<InFlightOperation>)| is_settling(&it.1);
            let since = active.iter().rev().take_while(settling).last();
            end.0 = since.map_or(end.0, |it| it.0);
        }
    }

    /// Returns the end, in seconds of the stream. None while the operation is in flight.
    fn completed(&self) -> Option<f64> {
        let last = self.states.last().filter(|it| !it.1.is_active());
        last.map(|it| it.0)
    }

    /// Returns the JSON and YAML form.
    pub(super) fn document(&self) -> Value {
        let timeline = self.states.iter().map(|(t, operation)| {
            let status = &operation.status;
            json!({
                "t": t,
                "state": status.state,
                "reason": status.reason,
                "message": status.message,
                "progress": status.progress,
                "overdue": operation.is_overdue(),
                "stalled": operation.is_stalled(),
            })
        });
        let InFlightOperation { spec, status, .. } = self.last();
        json!({
            "subject": spec.subject,
            "operation": spec.operation,
            "item": spec.item,
            "ruleSet": spec.rule_set,
            "started": self.started,
            "completed": self.completed(),
            "state": status.state,
            "reason": status.reason,
            "messages": self.messages(),
            // The number includes the first state and the end.
            "changes": self.states.len(),
            "timeline": timeline.collect::<Vec<_>>(),
        })
    }

    /// Returns the last state of the operation.
    fn last(&self) -> &InFlightOperation {
        &self.states.last().expect("a history has a state").1
    }

    /// Returns the messages of the operation while it was active, without repetitions.
    fn messages(&self) -> Vec<&str> {
        let operations = self.states.iter().map(|it| &it.1);
        let active = operations.filter(|it| it.is_active() && !it.status.message.is_empty());
        let mut messages: Vec<&str> = active.map(|it| &*it.status.message).collect();
        messages.dedup();
        messages
    }

    pub(super) fn row(&self) -> [String; 8] {
        let seconds = |t: f64| format!("{t:.3}");
        let last = self.last();
        [
            seconds(self.started),
            self.completed().map_or_else(|| "-".to_owned(), seconds),
            subject_path(&last.spec.subject),
            name_with_item(&last.spec.operation, last.spec.item.as_deref()),
            last.marked_state(),
            last.status.reason.to_string(),
            self.states.len().to_string(),
            self.messages().join("; "),
        ]
    }
}

/// Returns true if the operation is no longer detected, but within its debounce period.
fn is_settling(operation: &InFlightOperation) -> bool {
    operation.status.state == State::Settling
}

/// Receives the results of a replay, and records the failures and the operations.
pub(super) struct Recorder {
    scale: TimeScale,
    /// The failed expressions (rule set, field and error), each with the first object on which it
    /// failed.
    failures: BTreeMap<(Text, String, String), String>,
    operations: Vec<OperationHistory>,
    /// The operations that the server would show now, by their index in `operations`.
    open: HashMap<Key, usize>,
    /// True after the end of the stream. From then on, only debounce periods end, and no operation
    /// appears.
    pub(super) closed: bool,
}

impl Recorder {
    pub(super) fn new(scale: TimeScale) -> Self {
        Self {
            scale,
            failures: BTreeMap::new(),
            operations: Vec::new(),
            open: HashMap::new(),
            closed: false,
        }
    }

    /// Returns true if an operation is settling.
    pub(super) fn is_settling(&self) -> bool {
        let mut operations = self.operations.iter();
        operations.any(|it| is_settling(it.last()))
    }

    /// Returns all operations, sorted by start, and the failures. With `hindsight`, an operation
    /// ends when it is no longer detected.
    pub(super) fn into_results(mut self, hindsight: bool) -> (Vec<OperationHistory>, Vec<String>) {
        if hindsight {
            let operations = self.operations.iter_mut();
            operations.for_each(OperationHistory::end_when_undetected);
        }
        self.operations
            .sort_by(|a, b| a.started.total_cmp(&b.started));
        let failures = self.failures.into_iter();
        let failures = failures.map(|((rule_set, field, error), subject)| {
            format!("{rule_set}: {field}: {subject}: {error}")
        });
        (self.operations, failures.collect())
    }
}

impl ReplayObserver for Recorder {
    fn evaluated(&mut self, evaluation: &Evaluation) {
        for (rule_set, failure) in &evaluation.failures {
            let (field, error) = (failure.what.clone(), failure.error.to_string());
            let failure = (rule_set.clone(), field, error);
            if self.failures.len() < MAX_FAILURES {
                let subject = || evaluation.subject.path();
                self.failures.entry(failure).or_insert_with(subject);
            }
        }
    }

    fn changed(&mut self, change: Write, at: ClockReading) {
        let (key, operation) = match change {
            Write::Put { key, object } => (key, object.operation().cloned()),
            Write::Delete { key } => {
                self.open.remove(&key);
                return;
            }
        };
        // A record of a completed operation contains no `InFlightOperation`, and is skipped.
        let Some(operation) = operation else { return };
        let t = self.scale.seconds_at_steady(at.steady);
        if let Some(index) = self.open.get(&key) {
            let history = &mut self.operations[*index];
            // A watch sends no event for an unchanged object.
            let is_changed = *history.last() != *operation;
            if is_changed && (!self.closed || is_settling(history.last())) {
                history.states.push((t, operation));
            }
        } else if !self.closed {
            // The object contains the start as a whole second. If `t` is within this second, `t` is
            // the more exact start. If `t` is within the following second, the end of this second
            // is the start.
            let second = self.scale.seconds_at_wall(operation.started());
            let end = second + 1.0;
            let started = if t < end + 1.0 { t.min(end) } else { second };
            let states = vec![(t, operation)];
            self.open.insert(key, self.operations.len());
            self.operations.push(OperationHistory { started, states });
        }
    }
}
