//! Builds the `OperationRecord` of a completed operation: a short object with the result of the
//! operation.

use super::object::{label_key, label_value};
use super::{Operation, SubjectView};
use crate::track::end_reason::End;
use ifo_api::live::State;
use ifo_api::metadata::{Labels, UnknownFields, api_version, shared_text, whole_second};
use ifo_api::record::{KIND, MAX_MESSAGE, OperationRecord, RecordStatus};
use ifo_api::{Collection, Key};
use jiff::Timestamp;

impl Operation {
    /// Returns the key of the record of this operation.
    pub fn record_key(&self) -> Key {
        Collection::Records.key(&self.key.namespace, self.key.name.clone())
    }

    /// Returns the record of this operation, which ended at `ended_at`. To save memory, a record has
    /// no conditions. It also omits the labels that the author of the rule set defined, and has only
    /// some labels of the server (see [`Self::record_labels`]).
    pub fn record(&self, view: &SubjectView, end: &End, ended_at: Timestamp) -> OperationRecord {
        let values = &self.primary.values;
        let until = self.detected_until(ended_at);
        let outcome = end.state();
        let mut message = end.message(&values.message);
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        OperationRecord {
            api_version: api_version(),
            kind: shared_text(KIND),
            metadata: self.metadata(self.record_labels(view, outcome)),
            spec: self.spec(view),
            status: RecordStatus {
                outcome,
                reason: end.reason().into(),
                message: message.into(),
                progress: match outcome {
                    State::Succeeded => values.progress.map(|_| 100),
                    _ => values.progress,
                },
                nodes: values.nodes.clone(),
                queued_at: self.queued.map(whole_second),
                started: whole_second(self.start),
                start_time_source: self.start_source,
                completed: whole_second(until),
                duration_seconds: self.shown_duration(until),
                expected: self.timing.expected.clone(),
                unknown: UnknownFields::new(),
            },
        }
    }

    /// Returns the seconds from the start to `until`. Both times are first rounded down to whole
    /// seconds, because clients see whole seconds.
    pub(super) fn shown_duration(&self, until: Timestamp) -> u64 {
        u64::try_from(until.as_second() - self.start.as_second()).unwrap_or_default()
    }

    /// Returns the labels of the record.
    fn record_labels(&self, view: &SubjectView, outcome: State) -> Labels {
        let rule_set = &self.primary.rule_set;
        let all = [
            ("component", &rule_set.component),
            ("operation", &self.what.operation),
            ("ruleset", &rule_set.name),
            ("state", &shared_text(outcome.name())),
            ("subject-kind", &view.kind),
            ("subject-name", &view.subject.name),
        ];
        let all = all.into_iter().filter(|(_, value)| !value.is_empty());
        all.map(|(suffix, value)| (label_key(suffix), label_value(value)))
            .collect()
    }
}
