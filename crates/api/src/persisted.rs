//! `ifo.kubevirt.io/v1alpha1` `InFlightOperation`: an operation as a real object, which
//! persistence mode writes. Its CRD under `deploy/crd-persistence/` is generated from
//! these types (`make manifests`).
//!
//! It says what the live object says, but for three things that a custom resource cannot
//! choose: its namespace (it has none), its uid and its creationTimestamp. Those of the
//! live object stand in an annotation and in the status.

use crate::live::{Phase, StartTimeSource, State, SubjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of the persisted operations.
pub const KIND: &str = "InFlightOperation";
/// Plural of the persisted operations.
pub const PLURAL: &str = "inflightoperations";

/// Annotation that tells where the live object is: `namespace/name`.
pub const LIVE_ANNOTATION: &str = "ifo.kubevirt.io/live";

/// What is under way, and on which object.
#[allow(
    clippy::duplicated_attributes,
    reason = "columns of one type repeat the attribute that says so"
)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "ifo.kubevirt.io",
    version = "v1alpha1",
    kind = "InFlightOperation",
    plural = "inflightoperations",
    status = "InFlightOperationStatus",
    derive = "PartialEq",
    doc = "InFlightOperation is the record of an operation that is or was in flight on one subject, written by a server that runs with --persistence=crs. The live list is inflightoperations.live.ifo.kubevirt.io.",
    selectable = ".spec.operation",
    selectable = ".status.phase",
    selectable = ".spec.subject.namespace",
    printcolumn(
        name = "Kind",
        type_ = "string",
        description = "Kind of the subject.",
        json_path = ".spec.subject.kind"
    ),
    printcolumn(
        name = "Namespace",
        type_ = "string",
        description = "Namespace of the subject.",
        json_path = ".spec.subject.namespace"
    ),
    printcolumn(
        name = "Subject",
        type_ = "string",
        description = "Name of the subject.",
        json_path = ".spec.subject.name"
    ),
    printcolumn(
        name = "Operation",
        type_ = "string",
        description = "Name of the operation.",
        json_path = ".spec.operation"
    ),
    printcolumn(
        name = "Phase",
        type_ = "string",
        description = "Whether the operation is under way.",
        json_path = ".status.phase"
    ),
    printcolumn(
        name = "Started",
        type_ = "date",
        description = "Time since the operation started.",
        json_path = ".status.started"
    ),
    printcolumn(
        name = "Completed",
        type_ = "date",
        description = "Time since it was no longer detected, if it is over.",
        json_path = ".status.completed"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct InFlightOperationSpec {
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

/// How the operation goes, as of the last write, and how it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InFlightOperationStatus {
    /// `Active` while the operation is under way, `Completed` once it is over.
    pub phase: Phase,
    /// When the operation started: metadata.creationTimestamp of the live object.
    pub started: Time,
    /// metadata.uid of the live object.
    #[serde(rename = "liveUID")]
    pub live_uid: String,
    /// The moment it stopped being detected, once it is Completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Time>,
    /// When it was last known to be detected, as of the last write.
    pub last_detected: Time,
    /// Names of all rule sets that detect it, or last did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub detected_by: Vec<String>,
    /// metadata.generation of the subject as of the last write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_generation: Option<i64>,
    /// `Progressing`, `Detected` and `Completed`, as the live object has them.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// How the operation goes, or how it ended.
    pub state: State,
    /// CamelCase reason: the rule's own or the operation's name; at the end why it
    /// ended.
    pub reason: String,
    /// What to tell a person about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// How far it is, in whole percent from 0 to 100; absent when not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // Kubernetes knows no smaller format, and warns of what it does not know.
    #[schemars(range(max = 100), extend("format" = "int32"))]
    pub progress: Option<u8>,
    /// Where the start time comes from.
    pub start_time_source: StartTimeSource,
    /// Which run of the operation it is, such as a migration's UID, for rules that tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}
