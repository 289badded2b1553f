//! What could be seen of the operations. Enters: changes by the tracker, as a watch would
//! show them. Leaves: one line of history for each operation.

use super::time_scale::TimeScale;
use crate::rules::expect;
use crate::rules::test::Subject;
use ifo_api::Key;
use ifo_api::live::{InFlightOperation, Phase, StartTimeSource, State, Status};
use ifo_engine::track::Write;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// One operation from its start to its end.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Run {
    subject: Subject,
    operation: String,
    item: Option<String>,
    rule_set: String,
    /// Seconds of the stream; before the first event if the rule says so.
    started: f64,
    /// When the server shows its end, or in hindsight: when it stopped being detected. None
    /// for what is active when the stream ends.
    completed: Option<f64>,
    state: State,
    reason: String,
    /// What it said on the way, in order.
    messages: Vec<String>,
    /// How often something visible about it changed, its appearance and end included.
    changes: usize,
    /// These changes.
    timeline: Vec<Moment>,
    /// When it stopped being detected, as long as it is not.
    #[serde(skip)]
    settling: Option<f64>,
}

/// What an operation shows from this time on.
#[derive(Debug, Serialize)]
struct Moment {
    /// Seconds of the stream.
    t: f64,
    state: State,
    reason: String,
    message: String,
    progress: Option<u8>,
}

impl Run {
    pub(super) fn row(&self) -> [String; 8] {
        let seconds = |t: f64| format!("{t:.3}");
        [
            seconds(self.started),
            self.completed.map_or_else(|| "-".to_owned(), seconds),
            self.subject.path(),
            expect::name(&self.operation, self.item.as_deref()),
            format!("{:?}", self.state),
            self.reason.clone(),
            self.changes.to_string(),
            self.messages.join("; "),
        ]
    }

    /// The server shows this of it since `t`.
    fn show(&mut self, status: Status, t: f64, hindsight: bool) {
        let settling = self.settling.filter(|_| hindsight);
        let over = status.phase == Phase::Completed;
        let t = if over { settling.unwrap_or(t) } else { t };
        self.changes += 1;
        self.state = status.state;
        self.reason.clone_from(&status.reason);
        if over {
            self.completed = Some(t);
        } else {
            self.settling = match status.state {
                State::Settling => self.settling.or(Some(t)),
                _ => None,
            };
            let said = self.messages.last().map(String::as_str).unwrap_or_default();
            if !status.message.is_empty() && status.message != said {
                self.messages.push(status.message.clone());
            }
        }
        self.timeline.push(Moment {
            t,
            state: status.state,
            reason: status.reason,
            message: status.message,
            progress: status.progress,
        });
    }
}

/// An event.
#[derive(Debug)]
struct Heard {
    t: f64,
    /// The operations that rules detected on its object.
    detected: Vec<Arc<str>>,
}

/// The operations so far.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Whether an operation ended when it stopped being detected, which is only known once
    /// its debounce is over.
    hindsight: bool,
    runs: Vec<Run>,
    /// Those that are shown, by their key: the place in `runs`, and the object.
    open: HashMap<Key, (usize, Vec<u8>)>,
    /// The times of all events, by subject, in order.
    heard: HashMap<(String, Option<String>, String), Vec<Heard>>,
    /// Whether the stream is over: what settles ends, and nothing else happens.
    closed: bool,
}

impl History {
    /// Knows of no operation yet.
    pub(super) fn new(hindsight: bool) -> Self {
        Self {
            hindsight,
            ..Self::default()
        }
    }

    /// An event was about `subject`, and rules `detected` these operations on it.
    pub(super) fn heard(&mut self, subject: &Subject, t: f64, detected: Vec<Arc<str>>) {
        let key = (
            subject.kind.clone(),
            subject.namespace.clone(),
            subject.name.clone(),
        );
        self.heard
            .entry(key)
            .or_default()
            .push(Heard { t, detected });
    }

    /// The stream is over.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Whether an operation only waits for the end of its debounce.
    pub(super) fn is_settling(&self) -> bool {
        let mut open = self
            .open
            .values()
            .filter_map(|(run, _)| self.runs.get(*run));
        open.any(|run| run.completed.is_none() && run.settling.is_some())
    }

    /// Something about an operation changed at `t`.
    pub(super) fn changed(&mut self, change: Write, t: f64, scale: &TimeScale) {
        let (key, json) = match change {
            Write::Put { key, json } => (key, json),
            Write::Delete { key } => {
                self.open.remove(&key);
                return;
            }
        };
        let Ok(object) = serde_json::from_slice::<InFlightOperation>(&json) else {
            return;
        };
        let run = match self.open.get_mut(&key) {
            // What is the same as before is no change for a watch.
            Some((_, before)) if *before == json => return,
            Some((run, before)) => {
                *before = json;
                *run
            }
            None if self.closed => return,
            None => {
                let started = self.started(&object, t, scale);
                self.open.insert(key, (self.runs.len(), json));
                self.runs.push(begin(&object, started));
                self.runs.len() - 1
            }
        };
        let Some(run) = self.runs.get_mut(run) else {
            return;
        };
        if self.closed && run.settling.is_none() {
            return;
        }
        run.rule_set = object.spec.rule_set;
        run.show(object.status, t, self.hindsight);
    }

    /// When an operation that shows at `t` started. Its object has whole seconds; where
    /// an event of the subject falls into that second, it was the event.
    fn started(&self, object: &InFlightOperation, t: f64, scale: &TimeScale) -> f64 {
        let Some(created) = &object.metadata.creation_timestamp else {
            return t;
        };
        let second = created.0.as_second();
        let within = |t: f64| scale.at(t).wall.as_second();
        if second >= within(t) {
            return t;
        }
        let subject = &object.spec.subject;
        let key = (
            subject.kind.clone(),
            subject.namespace.clone(),
            subject.name.clone(),
        );
        let heard = self.heard.get(&key).into_iter().flatten();
        let mut events = heard.filter(|event| within(event.t) == second);
        let operation = object.spec.operation.as_str();
        let event = match object.status.start_time_source {
            // The time is in the object, as it is since the first of them.
            StartTimeSource::Expression => events.next(),
            _ => events.find(|event| event.detected.iter().any(|it| **it == *operation)),
        };
        if let Some(event) = event {
            return event.t;
        }
        let begins = scale.seconds_of(created.0);
        // Some controllers write a moment after they looked at the clock: nothing was
        // heard in that second, but soon after it.
        let ends = begins + 1.0;
        if t < ends + 1.0 { t.min(ends) } else { begins }
    }

    /// All operations, in the order of their starts.
    pub(super) fn into_runs(mut self) -> Vec<Run> {
        self.runs.sort_by(|a, b| a.started.total_cmp(&b.started));
        self.runs
    }
}

fn begin(object: &InFlightOperation, started: f64) -> Run {
    let subject = &object.spec.subject;
    Run {
        subject: Subject {
            api_version: subject.api_version.clone(),
            kind: subject.kind.clone(),
            namespace: subject.namespace.clone(),
            name: subject.name.clone(),
            uid: subject.uid.clone(),
        },
        operation: object.spec.operation.clone(),
        item: object.spec.item.clone(),
        rule_set: object.spec.rule_set.clone(),
        started,
        completed: None,
        state: object.status.state,
        reason: String::new(),
        messages: Vec::new(),
        changes: 0,
        timeline: Vec::new(),
        settling: None,
    }
}
