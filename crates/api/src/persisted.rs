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

use crate::Text;
use crate::live;
use crate::metadata::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind and plural of the custom resources. The live resource has the same ones.
pub use crate::live::{KIND, PLURAL};

/// Annotation with `namespace/name` of the live object.
pub const LIVE_ANNOTATION: &str = "ifo.kubevirt.io/live";

/// The operation and its subject.
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
    selectable = ".spec.initiator",
    selectable = ".spec.subject.namespace",
    printcolumn = r#"{"name": "Kind", "type": "string", "jsonPath": ".spec.subject.kind", "description": "Kind of the subject."}"#,
    printcolumn = r#"{"name": "Namespace", "type": "string", "jsonPath": ".spec.subject.namespace", "description": "Namespace of the subject."}"#,
    printcolumn = r#"{"name": "Subject", "type": "string", "jsonPath": ".spec.subject.name", "description": "Name of the subject."}"#,
    printcolumn = r#"{"name": "Operation", "type": "string", "jsonPath": ".spec.operation", "description": "Name of the operation."}"#,
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase", "description": "Whether the operation is under way."}"#,
    printcolumn = r#"{"name": "Started", "type": "date", "jsonPath": ".status.started", "description": "Time since the operation started."}"#,
    printcolumn = r#"{"name": "Completed", "type": "date", "jsonPath": ".status.completed", "description": "Time since the last detection, if the operation is completed."}"#
)]
#[serde(rename_all = "camelCase")]
pub struct InFlightOperationSpec {
    /// The operation and its subject, as in the live object.
    #[serde(flatten)]
    pub live: live::Spec,
}

/// The state of the operation at the last write, and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InFlightOperationStatus {
    /// Start of the operation: metadata.creationTimestamp of the live object.
    pub started: Time,
    /// metadata.uid of the live object.
    #[serde(rename = "liveUID")]
    pub live_uid: Text,
    /// The state of the operation, as in the live object.
    #[serde(flatten)]
    pub live: live::Status,
}
