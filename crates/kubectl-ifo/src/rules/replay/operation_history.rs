//! Collects the history of each operation in a replay: its start, its end, and the changes between
//! them. A change is in the history if a client that watches the operations would receive it.
//!
//! Each event of the recording has a time in seconds. These are the seconds of the stream.
//! [`TimeScale`] converts them to clock times.

use super::recorded_time::TimeScale;
use crate::operation::{InFlightOperation, OperationFacts as _, subject_path};
use crate::rules::test_command::name_with_item;
use ifo_api::Key;
use ifo_api::live::{State, SubjectReference};
use ifo_engine::ClockReading;
use ifo_engine::detect::Evaluation;
use ifo_engine::replay::ReplayObserver;
use ifo_engine::track::Write;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Largest number of failures that are reported. Further failures are left out.
const MAX_FAILURES: usize = 100;

/// The history of one operation.
#[derive(Debug)]
pub(super) struct OperationHistory {
    /// Start, in seconds of the stream. If the rule computes the start, it can be before the first
    /// event.
    started: f64,
    /// End, in seconds of the stream: the time at which the server would show the end. With
    /// `--hindsight`, this is the time from which on the operation was not detected. None while the
    /// operation is active.
    completed: Option<f64>,
    /// The states that the server would show. The list is not empty.
    states: Vec<ReplayedState>,
    /// Time since which the operation has not been detected, in seconds of the stream. None while
    /// the operation is detected.
    settling_since: Option<f64>,
}

/// A state of an operation that the server would show, from the time `t` on.
#[derive(Debug)]
struct ReplayedState {
    /// Time in seconds of the stream.
    t: f64,
    operation: Arc<InFlightOperation>,
}

impl OperationHistory {
    /// Adds a state that the server would show from `t` on. With `hindsight`, the completed state
    /// gets the time from which on the operation was not detected.
    fn show(&mut self, operation: Arc<InFlightOperation>, mut t: f64, hindsight: bool) {
        if operation.is_active() {
            let since = self.settling_since.unwrap_or(t);
            self.settling_since = (operation.status.state == State::Settling).then_some(since);
        } else {
            t = self.settling_since.filter(|_| hindsight).unwrap_or(t);
            self.completed = Some(t);
        }
        self.states.push(ReplayedState { t, operation });
    }

    /// Returns the JSON and YAML form.
    pub(super) fn document(&self) -> Value {
        let timeline = self.states.iter().map(|it| {
            let status = &it.operation.status;
            json!({
                "t": it.t,
                "state": status.state,
                "reason": status.reason,
                "message": status.message,
                "progress": status.progress,
                "overdue": it.operation.is_overdue(),
                "stalled": it.operation.is_stalled(),
            })
        });
        let InFlightOperation { spec, status, .. } = self.last();
        let subject = SubjectReference {
            owner_references: Arc::default(),
            ..spec.subject.clone()
        };
        json!({
            "subject": subject,
            "operation": spec.operation,
            "item": spec.item,
            "ruleSet": spec.rule_set,
            "started": self.started,
            "completed": self.completed,
            "state": status.state,
            "reason": status.reason,
            "messages": self.messages(),
            // Including the appearance and the end.
            "changes": self.states.len(),
            "timeline": timeline.collect::<Vec<_>>(),
        })
    }

    /// Returns the last state of the operation.
    fn last(&self) -> &InFlightOperation {
        let last = self.states.last().expect("a history has a state");
        &last.operation
    }

    /// Returns the messages of the operation while it was active, without repetitions.
    fn messages(&self) -> Vec<&str> {
        let operations = self.states.iter().map(|it| &it.operation);
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
            self.completed.map_or_else(|| "-".to_owned(), seconds),
            subject_path(&last.spec.subject),
            name_with_item(&last.spec.operation, last.spec.item.as_deref()),
            last.marked_state(),
            last.status.reason.to_string(),
            self.states.len().to_string(),
            self.messages().join("; "),
        ]
    }
}

/// Receives the results of a replay, and records the failures and the operations.
pub(super) struct Recorder {
    /// True if an operation ends when it is no longer detected (`--hindsight`). This end is known
    /// only after the debounce period, because the operation can be detected again until then.
    hindsight: bool,
    scale: TimeScale,
    /// The failed expressions, each with the first object on which it failed with this message.
    failures: Vec<String>,
    operations: Vec<OperationHistory>,
    /// The operations that the server would show now: the index in `operations`, and the object.
    open: HashMap<Key, (usize, ifo_api::Object)>,
    /// True after the end of the stream. From then on, only debounce periods end, and no operation
    /// appears.
    closed: bool,
}

impl Recorder {
    pub(super) fn new(hindsight: bool, scale: TimeScale) -> Self {
        Self {
            hindsight,
            scale,
            failures: Vec::new(),
            operations: Vec::new(),
            open: HashMap::new(),
            closed: false,
        }
    }

    /// Records the end of the stream.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Returns true if an operation is settling (no longer detected, but within its debounce
    /// period).
    pub(super) fn is_settling(&self) -> bool {
        let mut open = self
            .open
            .values()
            .map(|(index, _)| &self.operations[*index]);
        open.any(|it| it.completed.is_none() && it.settling_since.is_some())
    }

    /// Returns all operations, sorted by start, and the failures.
    pub(super) fn into_results(mut self) -> (Vec<OperationHistory>, Vec<String>) {
        self.operations
            .sort_by(|a, b| a.started.total_cmp(&b.started));
        (self.operations, self.failures)
    }

    /// Returns the start of an operation that appears at `t`, in seconds of the stream. The start in
    /// the object has only whole seconds. So the time `t` is more exact, if it is in this second. If
    /// the operation appears in the following second, the result is the end of the second of the
    /// start.
    fn started(&self, operation: &InFlightOperation, t: f64) -> f64 {
        let second_of_t = self.scale.at(t).wall.as_second();
        let created = operation.started();
        if created.as_second() >= second_of_t {
            return t;
        }
        let second_start = self.scale.seconds_at_wall(created);
        let second_end = second_start + 1.0;
        if t < second_end + 1.0 {
            t.min(second_end)
        } else {
            second_start
        }
    }
}

impl ReplayObserver for Recorder {
    fn evaluated(&mut self, evaluation: &Evaluation) {
        for failure in &evaluation.failures {
            let begin = format!("{}: {}: ", failure.rule_set, failure.field);
            let end = format!(": {}", failure.error);
            let mut reported = self.failures.iter();
            let is_reported = reported.any(|it| it.starts_with(&begin) && it.ends_with(&end));
            if !is_reported && self.failures.len() < MAX_FAILURES {
                let subject = evaluation.subject.path();
                self.failures.push(format!("{begin}{subject}{end}"));
            }
        }
    }

    fn changed(&mut self, change: Write, at: ClockReading) {
        let (key, object) = match change {
            Write::Put { key, object } => (key, object),
            Write::Delete { key } => {
                self.open.remove(&key);
                return;
            }
        };
        let Some(operation) = object.operation().cloned() else {
            return;
        };
        let t = self.scale.seconds_at_steady(at.steady);
        match self.open.get_mut(&key) {
            None if self.closed => {}
            None => {
                let mut history = OperationHistory {
                    started: self.started(&operation, t),
                    completed: None,
                    states: Vec::new(),
                    settling_since: None,
                };
                history.show(operation, t, false);
                self.open.insert(key, (self.operations.len(), object));
                self.operations.push(history);
            }
            // A watch sends no event for an unchanged object.
            Some((_, before)) if *before == object => {}
            Some((index, before)) => {
                *before = object;
                let history = &mut self.operations[*index];
                if !self.closed || history.settling_since.is_some() {
                    history.show(operation, t, self.hindsight);
                }
            }
        }
    }
}
