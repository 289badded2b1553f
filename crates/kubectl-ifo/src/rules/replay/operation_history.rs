//! Collects the history of each operation in a replay: its start, its end, and the changes between
//! them.
//!
//! A replay evaluates rules on a stream, which is the recording of a watch. Each event of the
//! recording has a time in seconds. These are the seconds of the stream. [`TimeScale`] converts
//! them to clock times.
//!
//! The changes come from the tracker, the state machine that turns detections into operations. A
//! change is in the history if a client that watches the operations would receive it.

use super::recorded_time::TimeScale;
use crate::listed_operation::{JsonField, ListedOperation, ListedSubject, OperationJson};
use crate::rules::expected_operations;
use ifo_api::Key;
use ifo_api::Text;
use ifo_client::manifest::Object;
use ifo_engine::track::Write;
use serde::{Serialize, Serializer};
use std::collections::HashMap;

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
    /// The first state of the operation that the server would show.
    first: ReplayedState,
    /// The later states that the server would show, including the completed state.
    later: Vec<ReplayedState>,
    /// Time since which the operation has not been detected, in seconds of the stream. None while
    /// the operation is detected.
    settling_since: Option<f64>,
}

/// A state of an operation that the server would show, from the time `t` on.
#[derive(Debug, Serialize)]
struct ReplayedState {
    /// Time in seconds of the stream.
    t: f64,
    #[serde(flatten, serialize_with = "serialize_state")]
    operation: ListedOperation,
}

/// The fields of a state in JSON and YAML, in order.
const STATE_FIELDS: &[JsonField] = &[
    JsonField::State,
    JsonField::Reason,
    JsonField::Message,
    JsonField::Progress,
    JsonField::Overdue,
    JsonField::Stalled,
];

fn serialize_state<S: Serializer>(
    operation: &ListedOperation,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    operation
        .json_with_empty_fields(STATE_FIELDS)
        .serialize(serializer)
}

/// The JSON and YAML form of a history.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OperationHistoryData<'a> {
    #[serde(flatten)]
    identity: OperationJson<'a>,
    rule_set: &'a str,
    started: f64,
    completed: Option<f64>,
    #[serde(flatten)]
    end: OperationJson<'a>,
    /// The messages of the operation, in order.
    messages: Vec<&'a str>,
    /// Number of visible changes, including the appearance and the end.
    changes: usize,
    /// The states, in order.
    timeline: Vec<&'a ReplayedState>,
}

/// The value of `startTimeSource` for a start that the rule computes.
const EXPRESSION: &str = "Expression";

/// The fields of the JSON and YAML form that precede `ruleSet`.
const FIRST_FIELDS: &[JsonField] = &[JsonField::Subject, JsonField::Operation, JsonField::Item];

/// The fields of the JSON and YAML form that follow the times.
const LAST_FIELDS: &[JsonField] = &[JsonField::State, JsonField::Reason];

impl Serialize for OperationHistory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let last = self.last_operation();
        let data = OperationHistoryData {
            identity: self.first.operation.json_with_empty_fields(FIRST_FIELDS),
            rule_set: &last.rule_set,
            started: self.started,
            completed: self.completed,
            end: last.json_with_empty_fields(LAST_FIELDS),
            messages: self.messages(),
            changes: self.states().count(),
            timeline: self.states().collect(),
        };
        data.serialize(serializer)
    }
}

impl OperationHistory {
    /// Begins the history of an operation that the server would show from `t` on.
    fn begin(operation: ListedOperation, started: f64, t: f64) -> Self {
        Self {
            started,
            completed: (!operation.active).then_some(t),
            settling_since: operation.is_settling().then_some(t),
            first: ReplayedState { t, operation },
            later: Vec::new(),
        }
    }

    /// Adds a state that the server would show from `t` on. With `hindsight`, the completed state
    /// gets the time from which on the operation was not detected.
    fn show(&mut self, operation: ListedOperation, t: f64, hindsight: bool) {
        let settling_since = self.settling_since.filter(|_| hindsight);
        let t = if operation.active {
            self.settling_since = operation
                .is_settling()
                .then(|| self.settling_since.unwrap_or(t));
            t
        } else {
            let end = settling_since.unwrap_or(t);
            self.completed = Some(end);
            end
        };
        self.later.push(ReplayedState { t, operation });
    }

    fn states(&self) -> impl Iterator<Item = &ReplayedState> {
        std::iter::once(&self.first).chain(&self.later)
    }

    /// Returns the last state of the operation.
    fn last_operation(&self) -> &ListedOperation {
        let last = self.later.last().unwrap_or(&self.first);
        &last.operation
    }

    /// Returns the messages of the operation while it was active. If successive states have the
    /// same message, this message occurs once.
    fn messages(&self) -> Vec<&str> {
        let active = self.states().map(|it| &it.operation);
        let active = active.filter(|it| it.active && !it.message.is_empty());
        let mut messages: Vec<&str> = active.map(|it| it.message.as_str()).collect();
        messages.dedup();
        messages
    }

    pub(super) fn row(&self) -> [String; 8] {
        let seconds = |t: f64| format!("{t:.3}");
        let last = self.last_operation();
        [
            seconds(self.started),
            self.completed.map_or_else(|| "-".to_owned(), seconds),
            self.first.operation.subject.path(),
            expected_operations::name(&self.first.operation),
            last.marked_state(),
            last.reason.clone(),
            self.states().count().to_string(),
            self.messages().join("; "),
        ]
    }
}

/// Kind, namespace and name of a subject (the object that an operation is about).
type SubjectNames = (String, Option<String>, String);

fn subject_names(kind: &str, namespace: Option<&str>, name: &str) -> SubjectNames {
    (
        kind.to_owned(),
        namespace.map(str::to_owned),
        name.to_owned(),
    )
}

/// An event of the stream, which is about one object.
#[derive(Debug)]
struct HistoryEvent {
    /// Time in seconds of the stream.
    t: f64,
    /// The names of the operations that rules detected on the object.
    detected: Vec<Text>,
}

/// The histories of all operations in a replay.
#[derive(Debug, Default)]
pub(super) struct History {
    /// True if an operation ends when it is no longer detected (`--hindsight`). This end is known
    /// only after the debounce period, because the operation can be detected again until then.
    hindsight: bool,
    operations: Vec<OperationHistory>,
    /// The operations that the server would show now: the index in `operations`, and the JSON.
    open: HashMap<Key, (usize, ifo_api::Object)>,
    /// The events of each subject, in order.
    events: HashMap<SubjectNames, Vec<HistoryEvent>>,
    /// True after the end of the stream. From then on, only debounce periods end, and no operation
    /// appears.
    closed: bool,
}

impl History {
    /// Creates an empty history.
    pub(super) fn new(hindsight: bool) -> Self {
        Self {
            hindsight,
            ..Self::default()
        }
    }

    /// Records an event about `object`. `detected` are the operations that rules detected on the
    /// object.
    pub(super) fn add_event(&mut self, object: &Object, t: f64, detected: Vec<Text>) {
        let subject = subject_names(&object.kind, object.namespace.as_deref(), &object.name);
        let events = self.events.entry(subject).or_default();
        events.push(HistoryEvent { t, detected });
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
            .filter_map(|(index, _)| self.operations.get(*index));
        open.any(|it| it.completed.is_none() && it.settling_since.is_some())
    }

    /// Records a change that the tracker made at `t` seconds of the stream.
    pub(super) fn changed(&mut self, change: Write, t: f64, scale: &TimeScale) {
        let (key, object) = match change {
            Write::Put { key, object } => (key, object),
            Write::Delete { key } => {
                self.open.remove(&key);
                return;
            }
        };
        let json = object.operation().map(serde_json::to_string);
        let json = json.and_then(Result::ok).unwrap_or_default();
        let Ok(operation) = ListedOperation::read(&json, false) else {
            return;
        };
        let Some((index, before)) = self.open.get_mut(&key) else {
            if !self.closed {
                let started = self.started(&operation, t, scale);
                self.open.insert(key, (self.operations.len(), object));
                self.operations
                    .push(OperationHistory::begin(operation, started, t));
            }
            return;
        };
        // A watch sends no event for an unchanged object.
        if *before == object {
            return;
        }
        *before = object;
        let Some(history) = self.operations.get_mut(*index) else {
            return;
        };
        if self.closed && history.settling_since.is_none() {
            return;
        }
        history.show(operation, t, self.hindsight);
    }

    /// Returns the start of an operation that appears at `t`, in seconds of the stream. The start
    /// time in the JSON has only whole seconds. If an event in the same second can be the start,
    /// returns the time of this event, because this time is more exact.
    fn started(&self, operation: &ListedOperation, t: f64, scale: &TimeScale) -> f64 {
        let Some(created) = operation.started else {
            return t;
        };
        let second = created.as_second();
        let second_of = |t: f64| scale.at(t).wall.as_second();
        if second >= second_of(t) {
            return t;
        }
        let ListedSubject {
            kind,
            namespace,
            name,
            ..
        } = &operation.subject;
        let events = self
            .events
            .get(&subject_names(kind, namespace.as_deref(), name));
        let events = events.into_iter().flatten();
        let mut events = events.filter(|event| second_of(event.t) == second);
        // If the rule computes the start, this is the first event in the second of the start.
        // Otherwise, this is the first event in this second on which rules detected the operation.
        let event = if operation.start_time_source == EXPRESSION {
            events.next()
        } else {
            let name = operation.operation.as_str();
            events.find(|event| event.detected.iter().any(|it| **it == *name))
        };
        if let Some(event) = event {
            return event.t;
        }
        let second_start = scale.seconds_at_wall(created);
        // The second of the start has no suitable event. For example, a controller reads the clock
        // at 10.9 s, and writes this start to the object at 11.1 s. The start in the JSON is 10 s,
        // and the operation appears at 11.1 s. In this case, the result is 11 s: the end of the
        // second of the start.
        let second_end = second_start + 1.0;
        if t < second_end + 1.0 {
            t.min(second_end)
        } else {
            second_start
        }
    }

    /// Returns all operations, sorted by start.
    pub(super) fn into_operations(mut self) -> Vec<OperationHistory> {
        self.operations
            .sort_by(|a, b| a.started.total_cmp(&b.started));
        self.operations
    }
}
