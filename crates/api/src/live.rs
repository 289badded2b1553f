//! `live.ifo.kubevirt.io/v1alpha1` InFlightOperation: one operation under way on one
//! subject, as this server shows it. Every field's description below is what
//! `kubectl explain` prints.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of the live resource.
pub const KIND: &str = "InFlightOperation";
/// Plural of the live resource.
pub const PLURAL: &str = "inflightoperations";

/// An operation that is in flight on one subject: detected by the rules of an
/// OperationRuleSet, kept in memory, never stored in etcd.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InFlightOperation {
    /// Always `live.ifo.kubevirt.io/v1alpha1`.
    pub api_version: String,
    /// Always `InFlightOperation`.
    pub kind: String,
    /// Standard object metadata. creationTimestamp is the start of the operation.
    pub metadata: ObjectMeta,
    /// What is under way, and on which object.
    pub spec: Spec,
    /// How far it is.
    pub status: Status,
}

/// The part of an operation that stays as it is for as long as the operation lasts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "InFlightOperationSpec")]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// Name of the operation, as the rule that detected it calls it.
    pub operation: String,
    /// Name of the OperationRuleSet that detected it first.
    pub rule_set: String,
    /// Component that the rule set belongs to, such as `kubevirt`.
    pub component: String,
    /// The object that the operation happens on.
    pub subject: SubjectReference,
    /// Which of several like operations on one subject, for rules that yield a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
}

/// A reference to one object of the cluster, with that object's owners.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubjectReference {
    /// Group and version of the subject, such as `kubevirt.io/v1`.
    pub api_version: String,
    /// Kind of the subject, such as `VirtualMachine`.
    pub kind: String,
    /// Name of the subject.
    pub name: String,
    /// Namespace of the subject; absent for a cluster-scoped one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// UID of the subject; absent when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The subject's own owners, all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
}

/// Whether the operation is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Under way, or no longer detected for less than the debounce.
    Active,
    /// Over.
    Completed,
}

impl Phase {
    /// As it is written in the object.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::Completed => "Completed",
        }
    }
}

/// How an operation goes, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum State {
    /// Active and moving.
    Progressing,
    /// Active; waits for someone or something else, or is held on purpose.
    Blocked,
    /// Active, and something is wrong.
    Failing,
    /// Active, no longer detected, inside the debounce.
    Settling,
    /// Completed well.
    Succeeded,
    /// Completed with a failure.
    Failed,
    /// Completed because another operation of the same subject took over.
    Superseded,
    /// Completed; no more is known.
    Ended,
}

impl State {
    /// As it is written in the object.
    pub fn name(self) -> &'static str {
        match self {
            Self::Progressing => "Progressing",
            Self::Blocked => "Blocked",
            Self::Failing => "Failing",
            Self::Settling => "Settling",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Superseded => "Superseded",
            Self::Ended => "Ended",
        }
    }
}

/// Where the start time of an operation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum StartTimeSource {
    /// The rule's own expression.
    Expression,
    /// The moment the operation was first detected.
    Detected,
    /// The newest time in the subject's managedFields, for an operation that was
    /// already under way when its watch first synced.
    ManagedFields,
    /// Carried over from before a restart.
    Restored,
}

/// The part of an operation that changes while the operation lasts, and says how it ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "InFlightOperationStatus")]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// `Active` while the operation is under way, `Completed` once it is over.
    pub phase: Phase,
    /// While Active: `Progressing`, `Blocked`, `Failing` or `Settling` (no longer
    /// detected, inside the debounce). Once Completed: `Succeeded`, `Failed`,
    /// `Superseded` or `Ended` (no more is known).
    pub state: State,
    /// CamelCase reason: the rule's own or the operation's name; at the end why it
    /// ended, such as `NotDetected`, `SubjectDeleted` or `RuleRemoved`.
    pub reason: String,
    /// What to tell a person about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// How far it is, in whole percent from 0 to 100; absent when not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100), extend("format" = "int32"))]
    pub progress: Option<u8>,
    /// Where the start time (metadata.creationTimestamp) comes from.
    pub start_time_source: StartTimeSource,
    /// When it was last known to be detected; refreshed at the start, with visible
    /// changes and when detection stops, not with every event of the subject.
    pub last_detected: Time,
    /// The moment it stopped being detected, once it is Completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Time>,
    /// Which run of the operation it is, such as a migration's UID, for rules that tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Names of all rule sets that detect it now, or last did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub detected_by: Vec<String>,
    /// metadata.generation of the subject as of the last change shown here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_generation: Option<i64>,
    /// `Progressing`, `Detected` and `Completed`; observedGeneration is the subject's
    /// generation.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// A field that no release has. With it, a test builds a release that knows one field
    /// more than its neighbour.
    #[cfg(feature = "neighbour-release")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour_field: Option<String>,
}
