//! Collects the visible history of operations.
//!
//! Input: changes by the tracker, as a watch would deliver them. Output: one line for each
//! operation.

use super::time_scale::TimeScale;
use crate::operation::{Field, ListedOperation, ListedSubject, OperationData};
use crate::rules::expect;
use ifo_api::Key;
use ifo_client::manifest::Object;
use ifo_engine::track::Write;
use serde::{Serialize, Serializer};
use std::collections::HashMap;
use std::sync::Arc;

/// One operation from its start to its end.
#[derive(Debug)]
pub(super) struct Run {
    /// Start in seconds of the stream. It can be negative if the rule yields an earlier time.
    started: f64,
    /// Time at which the server shows the end. With `--hindsight`, the time at which the operation
    /// was not detected any more. None for an operation that is active at the end of the stream.
    completed: Option<f64>,
    /// The operation as the server shows it first.
    first: ReplayedState,
    /// Each later visible change, including the end.
    later: Vec<ReplayedState>,
    /// Time of the last detection, while the operation is settling.
    settling: Option<f64>,
}

/// The visible fields of an operation from this time on.
#[derive(Debug, Serialize)]
struct ReplayedState {
    /// Time in seconds of the stream.
    t: f64,
    #[serde(flatten, serialize_with = "shown")]
    operation: ListedOperation,
}

/// The fields of a moment, in order.
const MOMENT_FIELDS: &[Field] = &[Field::State, Field::Reason, Field::Message, Field::Progress];

fn shown<S: Serializer>(operation: &ListedOperation, serializer: S) -> Result<S::Ok, S::Error> {
    operation.whole_data(MOMENT_FIELDS).serialize(serializer)
}

/// The history of an operation in JSON and YAML.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RunData<'a> {
    #[serde(flatten)]
    identity: OperationData<'a>,
    rule_set: &'a str,
    started: f64,
    completed: Option<f64>,
    #[serde(flatten)]
    end: OperationData<'a>,
    /// Its messages, in order.
    messages: Vec<&'a str>,
    /// Number of visible changes, including the appearance and the end.
    changes: usize,
    /// The changes.
    timeline: Vec<&'a ReplayedState>,
}

/// The `startTimeSource` of a start that the rule yields.
const EXPRESSION: &str = "Expression";

/// The fields before the rule set.
const FIRST_FIELDS: &[Field] = &[Field::Subject, Field::Operation, Field::Item];

/// The fields after the times.
const LAST_FIELDS: &[Field] = &[Field::State, Field::Reason];

impl Serialize for Run {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let last = self.operation();
        let data = RunData {
            identity: self.first.operation.whole_data(FIRST_FIELDS),
            rule_set: &last.rule_set,
            started: self.started,
            completed: self.completed,
            end: last.whole_data(LAST_FIELDS),
            messages: self.messages(),
            changes: self.moments().count(),
            timeline: self.moments().collect(),
        };
        data.serialize(serializer)
    }
}

impl Run {
    /// The server shows an operation for the first time, at `t`.
    fn begin(operation: ListedOperation, started: f64, t: f64) -> Self {
        Self {
            started,
            completed: (!operation.active).then_some(t),
            settling: operation.is_settling().then_some(t),
            first: ReplayedState { t, operation },
            later: Vec::new(),
        }
    }

    /// The server shows this state since `t`.
    fn show(&mut self, operation: ListedOperation, t: f64, hindsight: bool) {
        let settling = self.settling.filter(|_| hindsight);
        let t = if operation.active {
            self.settling = operation.is_settling().then(|| self.settling.unwrap_or(t));
            t
        } else {
            let end = settling.unwrap_or(t);
            self.completed = Some(end);
            end
        };
        self.later.push(ReplayedState { t, operation });
    }

    fn moments(&self) -> impl Iterator<Item = &ReplayedState> {
        std::iter::once(&self.first).chain(&self.later)
    }

    /// The last visible state of the operation.
    fn operation(&self) -> &ListedOperation {
        let last = self.later.last().unwrap_or(&self.first);
        &last.operation
    }

    /// The messages of the active operation, without repetitions.
    fn messages(&self) -> Vec<&str> {
        let active = self.moments().map(|it| &it.operation);
        let active = active.filter(|it| it.active && !it.message.is_empty());
        let mut messages: Vec<&str> = active.map(|it| it.message.as_str()).collect();
        messages.dedup();
        messages
    }

    pub(super) fn row(&self) -> [String; 8] {
        let seconds = |t: f64| format!("{t:.3}");
        let last = self.operation();
        [
            seconds(self.started),
            self.completed.map_or_else(|| "-".to_owned(), seconds),
            self.first.operation.subject.path(),
            expect::name(&self.first.operation),
            last.state.clone(),
            last.reason.clone(),
            self.moments().count().to_string(),
            self.messages().join("; "),
        ]
    }
}

/// Kind, namespace and name of a subject.
type SubjectNames = (String, Option<String>, String);

fn names(kind: &str, namespace: Option<&str>, name: &str) -> SubjectNames {
    (
        kind.to_owned(),
        namespace.map(str::to_owned),
        name.to_owned(),
    )
}

/// An event of the stream.
#[derive(Debug)]
struct HistoryEvent {
    t: f64,
    /// The operations that rules detected on its object.
    detected: Vec<Arc<str>>,
}

/// Collects the histories.
#[derive(Debug, Default)]
pub(super) struct History {
    /// True if an operation ends at its last detection, which is known only after its debounce
    /// period.
    hindsight: bool,
    runs: Vec<Run>,
    /// The visible operations by key: the index in `runs`, and the object.
    open: HashMap<Key, (usize, Vec<u8>)>,
    /// The times of all events by subject, in order.
    heard: HashMap<SubjectNames, Vec<HistoryEvent>>,
    /// True after the end of the stream. Then only the debounce periods end.
    closed: bool,
}

impl History {
    /// Creates a collector without operations.
    pub(super) fn new(hindsight: bool) -> Self {
        Self {
            hindsight,
            ..Self::default()
        }
    }

    /// Records an event about `object`, on which rules `detected` these operations.
    pub(super) fn heard(&mut self, object: &Object, t: f64, detected: Vec<Arc<str>>) {
        let subject = names(&object.kind, object.namespace.as_deref(), &object.name);
        let events = self.heard.entry(subject).or_default();
        events.push(HistoryEvent { t, detected });
    }

    /// Records the end of the stream.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Returns true if an operation is settling.
    pub(super) fn is_settling(&self) -> bool {
        let mut open = self
            .open
            .values()
            .filter_map(|(run, _)| self.runs.get(*run));
        open.any(|run| run.completed.is_none() && run.settling.is_some())
    }

    /// Records a change of an operation at `t`.
    pub(super) fn changed(&mut self, change: Write, t: f64, scale: &TimeScale) {
        let (key, json) = match change {
            Write::Show { key, operation } => (key, operation.json),
            Write::Put { key, json } => (key, json),
            Write::Delete { key } => {
                self.open.remove(&key);
                return;
            }
        };
        let text = std::str::from_utf8(&json).ok();
        let Some(operation) = text.and_then(|text| ListedOperation::read(text, false).ok()) else {
            return;
        };
        let Some((run, before)) = self.open.get_mut(&key) else {
            if !self.closed {
                let started = self.started(&operation, t, scale);
                self.open.insert(key, (self.runs.len(), json));
                self.runs.push(Run::begin(operation, started, t));
            }
            return;
        };
        // A watch sends no event for an unchanged object.
        if *before == json {
            return;
        }
        *before = json;
        let Some(run) = self.runs.get_mut(*run) else {
            return;
        };
        if self.closed && run.settling.is_none() {
            return;
        }
        run.show(operation, t, self.hindsight);
    }

    /// Returns the start of an operation that appears at `t`. Its object has whole seconds. If an
    /// event of the subject is in that second, its time is the start.
    fn started(&self, operation: &ListedOperation, t: f64, scale: &TimeScale) -> f64 {
        let Some(created) = operation.started else {
            return t;
        };
        let second = created.as_second();
        let within = |t: f64| scale.at(t).wall.as_second();
        if second >= within(t) {
            return t;
        }
        let ListedSubject {
            kind,
            namespace,
            name,
            ..
        } = &operation.subject;
        let heard = self.heard.get(&names(kind, namespace.as_deref(), name));
        let heard = heard.into_iter().flatten();
        let mut events = heard.filter(|event| within(event.t) == second);
        // A start time that the rule yields is in the object from its first change on.
        let event = if operation.start_time_source == EXPRESSION {
            events.next()
        } else {
            let name = operation.operation.as_str();
            events.find(|event| event.detected.iter().any(|it| **it == *name))
        };
        if let Some(event) = event {
            return event.t;
        }
        let begins = scale.seconds_of(created);
        // Some controllers write some time after they read the clock. Then there is no event in
        // that second, but one soon after it.
        let ends = begins + 1.0;
        if t < ends + 1.0 { t.min(ends) } else { begins }
    }

    /// Returns all operations, sorted by start.
    pub(super) fn into_runs(mut self) -> Vec<Run> {
        self.runs.sort_by(|a, b| a.started.total_cmp(&b.started));
        self.runs
    }
}
