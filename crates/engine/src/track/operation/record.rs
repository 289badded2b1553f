//! Builds the `OperationRecord` of a completed operation: a short object with the result of the
//! operation.

use super::Operation;
use ifo_api::metadata::{Metadata, UnknownFields, shared_text};
use ifo_api::record::{KIND, MAX_MESSAGE, OperationRecord, RecordStatus};
use ifo_api::{Collection, Key, labels};

/// The labels of a record, without [`labels::PREFIX`].
const LABELS: [&str; 6] = [
    "component",
    "operation",
    "ruleset",
    "state",
    "subject-kind",
    "subject-name",
];

impl Operation {
    /// Returns the key of the record of this operation.
    pub fn record_key(&self) -> Key {
        let metadata = &self.object.metadata;
        Collection::Records.key(&metadata.namespace, metadata.name.clone())
    }

    /// Returns the record of this operation. Returns None if the operation is not completed. To
    /// save memory, a record has no conditions, and only some labels of the server.
    pub fn record(&self) -> Option<OperationRecord> {
        let (metadata, status) = (&self.object.metadata, &self.object.status);
        let is_kept = |key: &str| {
            let suffix = key.strip_prefix(labels::PREFIX);
            suffix.is_some_and(|suffix| LABELS.contains(&suffix))
        };
        let kept = metadata.labels.iter().filter(|(key, _)| is_kept(key));
        let message = &*status.message;
        Some(OperationRecord {
            api_version: self.object.api_version.clone(),
            kind: shared_text(KIND),
            metadata: Metadata {
                generation: None,
                labels: kept
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect(),
                owner_references: Vec::new(),
                ..metadata.clone()
            },
            spec: self.object.spec.clone(),
            status: RecordStatus {
                outcome: status.state,
                reason: status.reason.clone(),
                message: message[..message.floor_char_boundary(MAX_MESSAGE)].into(),
                progress: status.progress,
                nodes: status.nodes.clone(),
                queued_at: status.queued_at,
                started: metadata.creation_timestamp,
                start_time_source: status.start_time_source,
                completed: status.completed?,
                duration_seconds: status.duration_seconds?,
                expected: status.expected.clone(),
                unknown: UnknownFields::new(),
            },
        })
    }
}
