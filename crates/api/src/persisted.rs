//! The type `ifo.kubevirt.io/v1alpha1` `InFlightOperation`: an operation that persistence mode
//! stores as a custom resource. `make manifests` generates the CRD in `deploy/crd-persistence/`
//! from this type.
//!
//! The custom resource has the same content as the live object, which the server serves from
//! memory, with two exceptions:
//!
//! - The custom resource is cluster-scoped. An annotation contains the namespace of the live
//!   object.
//! - The kube-apiserver sets the UID and the creationTimestamp of the custom resource. The status
//!   contains the UID and the creationTimestamp of the live object.

use crate::live::{Expected, Phase, StartTimeSource, State, SubjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of the custom resources.
pub const KIND: &str = "InFlightOperation";
/// Plural of the custom resources.
pub const PLURAL: &str = "inflightoperations";

/// Annotation with `namespace/name` of the live object.
pub const LIVE_ANNOTATION: &str = "ifo.kubevirt.io/live";

/// The operation and its subject.
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
        description = "Time since the last detection, if the operation is completed.",
        json_path = ".status.completed"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct InFlightOperationSpec {
    /// Name of the operation, as in the rule that detected it.
    pub operation: String,
    /// Name of the OperationRuleSet that yields the values of the operation, such as the message.
    /// If this rule set no longer detects the operation, the name changes to another rule set that
    /// detects it.
    pub rule_set: String,
    /// Component that the rule set belongs to, such as `kubevirt`.
    pub component: String,
    /// The object on which the operation was detected.
    pub subject: SubjectReference,
    /// For a rule with `forEach`: the key of the list element. It distinguishes several operations
    /// of the same name on one subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// Key of the piece of work that the operation belongs to, if the rule yields one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<String>,
}

/// The state of the operation at the last write, and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InFlightOperationStatus {
    /// `Active` while the operation is in flight, `Completed` after its end.
    pub phase: Phase,
    /// Start of the operation: metadata.creationTimestamp of the live object.
    pub started: Time,
    /// metadata.uid of the live object.
    #[serde(rename = "liveUID")]
    pub live_uid: String,
    /// Time of the last detection, if the phase is Completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Time>,
    /// Time at which the operation was last known to be detected, as of the last write.
    pub last_detected: Time,
    /// Names of all rule sets that detect the operation. If no rule set detects it any more, the
    /// names of the rule sets that detected it last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub detected_by: Vec<String>,
    /// metadata.generation of the subject as of the last write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_generation: Option<i64>,
    /// `Progressing`, `Detected` and `Completed`, and `Overdue` and `Stalled` where they apply, as
    /// in the live object.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// The state of the operation, or its result.
    pub state: State,
    /// CamelCase reason. While Active: the reason that the rule yields, or else the name of the
    /// operation. Once Completed: the reason for the end.
    pub reason: String,
    /// Message for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Progress in whole percent from 0 to 100. Absent if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // Kubernetes knows no smaller integer format than `int32`, and warns about unknown formats.
    #[schemars(range(max = 100), extend("format" = "int32"))]
    pub progress: Option<u8>,
    /// Names of the nodes that the operation touches, if the rule set yields them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Time since which the operation has had this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_since: Option<Time>,
    /// Time at which the progress rose last, as of the last write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_progress: Option<Time>,
    /// The usual duration of this operation, as of the last write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Expected>,
    /// Time at which the operation will probably complete, as of the last write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_completion: Option<Time>,
    /// Duration of a completed operation in seconds, from its start to its last detection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "int64"))]
    pub duration_seconds: Option<u64>,
    /// Source of the start time.
    pub start_time_source: StartTimeSource,
    /// Identity of this run of the operation, such as the UID of a migration, if the rule yields
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}
