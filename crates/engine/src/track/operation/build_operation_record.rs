//! Builds the `OperationRecord` of a completed operation: a short object with the result of the
//! operation.

use super::{Operation, SubjectView};
use crate::track::end_reason::End;
use ifo_api::live::{Spec, State, SubjectReference};
use ifo_api::record::{KIND, MAX_MESSAGE, OperationRecord, RecordStatus};
use ifo_api::{Key, LIVE_GROUP, VERSION, labels};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use std::collections::BTreeMap;

impl Operation {
    /// Returns the key of the record of this operation.
    pub fn record_key(&self) -> Key {
        Key::of_record(&self.key.namespace, self.key.name.clone())
    }

    /// Encodes the record of this operation, which ended at `ended_at`, as JSON. To save memory, a
    /// record has no conditions. It also omits the labels that the author of the rule set defined,
    /// and has only some labels of the server (see [`Self::record_labels`]).
    pub fn record(&self, view: &SubjectView, end: &End, ended_at: Timestamp) -> Vec<u8> {
        let (values, rule_set) = (&self.primary.values, &self.primary.rule_set);
        let subject = &view.subject;
        let until = self.detected_until(ended_at);
        let outcome = end.state();
        let mut message = end.message(&values.message);
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        let record = OperationRecord {
            api_version: format!("{LIVE_GROUP}/{VERSION}"),
            kind: KIND.to_owned(),
            metadata: ObjectMeta {
                name: Some(self.key.name.to_string()),
                namespace: Some(self.key.namespace.to_string()),
                uid: Some(self.uid.to_string()),
                creation_timestamp: Some(Time(self.start)),
                labels: Some(self.record_labels(view, outcome)),
                ..ObjectMeta::default()
            },
            spec: Spec {
                operation: self.what.operation.to_string(),
                rule_set: rule_set.name.to_string(),
                component: rule_set.component.to_string(),
                subject: SubjectReference {
                    api_version: view.api_version.to_string(),
                    kind: view.kind.to_string(),
                    name: subject.name.to_string(),
                    namespace: subject.namespace.as_deref().map(str::to_owned),
                    uid: subject.uid.as_deref().map(str::to_owned),
                    owner_references: subject.owners.clone(),
                },
                item: self.what.item.as_deref().map(str::to_owned),
                work: values.work.as_deref().map(str::to_owned),
            },
            status: RecordStatus {
                outcome,
                reason: end.reason().to_owned(),
                message,
                progress: match outcome {
                    State::Succeeded => values.progress.map(|_| 100),
                    _ => values.progress,
                },
                nodes: values.nodes.iter().map(ToString::to_string).collect(),
                started: Time(self.start),
                start_time_source: self.start_source,
                completed: Time(until),
                duration_seconds: self.shown_duration(until),
                expected: self.timing.expected(),
            },
        };
        serde_json::to_vec(&record).expect("a record can always be encoded")
    }

    /// Returns the seconds from the start to `until`. Both times are first rounded down to whole
    /// seconds, because clients see whole seconds.
    pub(super) fn shown_duration(&self, until: Timestamp) -> u64 {
        u64::try_from(until.as_second() - self.start.as_second()).unwrap_or_default()
    }

    /// Returns the labels of the record.
    fn record_labels(&self, view: &SubjectView, outcome: State) -> BTreeMap<String, String> {
        let rule_set = &self.primary.rule_set;
        let all = [
            ("component", &*rule_set.component),
            ("operation", &*self.what.operation),
            ("ruleset", &*rule_set.name),
            ("state", outcome.name()),
            ("subject-kind", &*view.kind),
            ("subject-name", &*view.subject.name),
        ];
        let all = all.into_iter().filter(|(_, value)| !value.is_empty());
        all.map(|(suffix, value)| ([labels::PREFIX, suffix].concat(), labels::to_value(value)))
            .collect()
    }
}
