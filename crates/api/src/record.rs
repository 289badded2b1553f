//! The type `live.ifo.kubevirt.io/v1alpha1` `OperationRecord`: the record of one completed
//! operation. The server keeps the records of the last completed operations in memory.
//! `kubectl explain` prints the descriptions of the fields.

use crate::Text;
use crate::live::{Expected, Spec, StartTimeSource, State};
use crate::metadata::{Metadata, Time, UnknownFields};
use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Kind of the records.
pub const KIND: &str = "OperationRecord";
/// Plural of the records.
pub const PLURAL: &str = "operationrecords";

/// Maximum length of the message of a record, in bytes. A longer message is cut.
pub const MAX_MESSAGE: usize = 200;

/// The record of one operation that has completed. The server keeps the record in memory. The
/// record never changes. When there are too many records, the server removes the records of the
/// operations that ended first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationRecord {
    /// Always `live.ifo.kubevirt.io/v1alpha1`.
    #[serde(deserialize_with = "crate::metadata::frequent_text")]
    pub api_version: Text,
    /// Always `OperationRecord`.
    #[serde(deserialize_with = "crate::metadata::frequent_text")]
    pub kind: Text,
    /// Standard object metadata. Name, namespace, uid and creationTimestamp are those of the
    /// operation.
    #[schemars(with = "v1::ObjectMeta")]
    pub metadata: Metadata,
    /// The operation and its subject.
    pub spec: Spec,
    /// The result of the operation.
    pub status: RecordStatus,
}

/// The result of a completed operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OperationRecordStatus")]
#[serde(rename_all = "camelCase")]
pub struct RecordStatus {
    /// The result: `Succeeded`, `Failed`, `Superseded`, or `Ended` if the result is not known.
    pub outcome: State,
    /// CamelCase reason for the result.
    pub reason: Text,
    /// Message for people.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub message: Text,
    /// Last known progress in percent. Absent if no progress was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100), extend("format" = "int32"))]
    pub progress: Option<u8>,
    /// Names of the nodes that the operation touched, if the rule set yields them.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub nodes: Arc<[Text]>,
    /// Time since which the operation waited for its start, if the product distinguishes the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<Time>,
    /// Start of the operation.
    pub started: Time,
    /// Source of the start time.
    pub start_time_source: StartTimeSource,
    /// End of the operation: the time of its last detection.
    pub completed: Time,
    /// Duration in seconds, from the start to the last detection.
    pub duration_seconds: u64,
    /// The usual duration of the operation, as it was known at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Expected>,
    /// Fields that only a newer release knows.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: UnknownFields,
}
