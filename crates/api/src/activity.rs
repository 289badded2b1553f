//! The type `live.ifo.kubevirt.io/v1alpha1` `Activity`: whether a namespace, a node, a component or
//! the cluster is idle. The server keeps activities in memory. `kubectl explain` prints the
//! descriptions of the fields.

use crate::Text;
use crate::metadata::{Condition, Metadata, Time, UnknownFields, shared_text};
use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of activities.
pub const KIND: &str = "Activity";
/// Plural of activities.
pub const PLURAL: &str = "activities";
/// Key of the label with the sort of an activity: `namespace`, `cluster`, `component` or `node`.
pub const LABEL: &str = "ifo.kubevirt.io/activity";
/// Type of the condition that tells whether anything is in flight.
pub const IDLE: &str = "Idle";
/// Reason of `Idle=True`.
pub const NOTHING_IN_FLIGHT: &str = "NothingInFlight";
/// Message of `Idle=True` if no operation is on hold.
pub const IDLE_MESSAGE: &str = "No operation is in flight.";
/// Reason of `Idle=False`.
pub const OPERATIONS_IN_FLIGHT: &str = "OperationsInFlight";
/// Reason of `Idle=Unknown` while a new leader has not read all targets yet. A target is a resource
/// that rule sets watch.
pub const NOT_YET_READ: &str = "NotYetRead";
/// Reason of `Idle=Unknown` if a rule set does not work, so that operations may be missing.
pub const RULE_SETS_NOT_WORKING: &str = "RuleSetsNotWorking";
/// Reason of `Idle=Unknown` if the server hides operations from the user (`--visibility=subject`).
pub const FILTERED: &str = "Filtered";

/// The answer to the question whether anything is in flight in one namespace, on one node, in one
/// component or in the whole cluster. At no resourceVersion is an activity idle while one of its
/// operations is in flight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    /// Always `live.ifo.kubevirt.io/v1alpha1`.
    #[serde(deserialize_with = "crate::metadata::frequent_text")]
    pub api_version: Text,
    /// Always `Activity`.
    #[serde(deserialize_with = "crate::metadata::frequent_text")]
    pub kind: Text,
    /// Standard object metadata. The name is `namespace` for the namespace of the object. In the
    /// namespace of operations on cluster-scoped objects, there are also `cluster`,
    /// `component.NAME` and `node.NAME`.
    #[schemars(with = "v1::ObjectMeta")]
    pub metadata: Metadata,
    /// The operations in flight.
    pub status: ActivityStatus,
}

/// The operations in flight.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActivityStatus {
    /// The condition `Idle`. True: nothing is in flight. False: operations are in flight. Unknown:
    /// no operation is known, but operations may be missing, because targets have not been read yet
    /// or rule sets do not work, or operations may be hidden from you. lastTransitionTime is the time since which the status has been the
    /// same.
    #[schemars(with = "Vec<v1::Condition>")]
    pub conditions: Vec<Condition>,
    /// Number of operations in flight. Operations that a person has put on hold do not count. If
    /// the condition `Idle` stays the same, the status is updated at most once a second.
    pub operations: u32,
    /// Number of operations in flight that are blocked.
    pub blocked: u32,
    /// Number of operations in flight that are failing.
    pub failing: u32,
    /// Number of operations in flight that are overdue.
    pub overdue: u32,
    /// The operation in flight that started first. Absent if none is in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<OldestOperation>,
    /// Fields that only a newer release knows.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: UnknownFields,
}

/// The operation in flight that started first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OldestOperation {
    /// Namespace of the InFlightOperation.
    pub namespace: Text,
    /// Name of the InFlightOperation.
    pub name: Text,
    /// Start of the operation.
    pub started: Time,
}

impl Activity {
    /// Returns the condition `Idle`.
    pub fn idle(&self) -> Option<&Condition> {
        let mut conditions = self.status.conditions.iter();
        conditions.find(|condition| *condition.type_ == *IDLE)
    }

    /// Returns the activity for a user from whom operations can be hidden. `seen` has the numbers of
    /// the operations that the user sees, or is None if the user sees none. No field depends on other
    /// operations.
    #[must_use]
    pub fn filtered(&self, seen: Option<&ActivityStatus>) -> Self {
        let seen = seen.cloned().unwrap_or_default();
        let message = format!(
            "{} in flight on objects that you may get. Others may be hidden.",
            match seen.operations {
                1 => "1 operation is".to_owned(),
                count => format!("{count} operations are"),
            }
        );
        let idle = Condition {
            last_transition_time: self.metadata.creation_timestamp,
            message: message.into(),
            reason: shared_text(FILTERED),
            status: shared_text("Unknown"),
            type_: shared_text(IDLE),
            ..Condition::default()
        };
        Self {
            status: ActivityStatus {
                conditions: vec![idle],
                ..seen
            },
            ..self.clone()
        }
    }
}
