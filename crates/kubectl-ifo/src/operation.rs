//! The form in which all commands of the plugin handle an operation.
//!
//! An operation is decoded from an object of the live API, or from a custom resource that
//! persistence mode or the older Go operator has written. `rules replay` and `rules test` take
//! operations from the engine instead. A field that is missing in the object is left empty, so an
//! unexpected object causes no error.

mod data;

pub(super) use data::{Field, OperationData};

use ifo_api::live::{self, State};
use ifo_client::manifest::Object;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Prefix of the correlation labels, with which rule sets connect related operations (see
/// `docs/rules.md`).
const CORRELATION: &str = "ifo.kubevirt.io/correlation-";

/// The identity of an operation: namespace and name of its InFlightOperation.
pub(super) type OperationKey = (Option<String>, String);

/// One operation.
#[allow(
    clippy::struct_field_names,
    reason = "the field with the name of the operation has this name in the API"
)]
#[derive(Clone, Debug, Default)]
pub(super) struct ListedOperation {
    /// Namespace of the InFlightOperation. None for a custom resource.
    pub(super) namespace: Option<String>,
    /// Name of the InFlightOperation.
    pub(super) name: String,
    /// resourceVersion of the InFlightOperation.
    pub(super) version: String,
    /// Labels of the InFlightOperation.
    pub(super) labels: BTreeMap<String, String>,
    /// Name of the operation, such as `Migrating`.
    pub(super) operation: String,
    /// Item of the rule, such as a disk. It distinguishes operations with the same name on one
    /// object.
    pub(super) item: Option<String>,
    /// Component to which the rule set belongs.
    pub(super) component: String,
    /// Name of the rule set that detected the operation first.
    pub(super) rule_set: String,
    /// The subject: the object that the operation is about.
    pub(super) subject: ListedSubject,
    /// True if the operation is in flight.
    pub(super) active: bool,
    /// State, as the API names it: `Progressing`, `Failed`, …
    pub(super) state: String,
    /// Reason of the state, in CamelCase.
    pub(super) reason: String,
    /// Message about the state.
    pub(super) message: String,
    /// Progress in percent.
    pub(super) progress: Option<u8>,
    /// Start time.
    pub(super) started: Option<Timestamp>,
    /// Source of the start time, as the API names it: `Expression`, `Detected`, …
    pub(super) start_time_source: String,
    /// Completion time.
    pub(super) completed: Option<Timestamp>,
    /// Conditions of the operation.
    pub(super) conditions: Vec<ConditionView>,
    /// JSON of the InFlightOperation as the server sent it. None if the command does not need the
    /// JSON.
    pub(super) raw: Option<Box<RawValue>>,
}

/// The subject of an operation: the object that the operation is about.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListedSubject {
    /// Group and version.
    pub(super) api_version: String,
    /// Kind.
    pub(super) kind: String,
    /// Namespace. None for a cluster-scoped subject.
    pub(super) namespace: Option<String>,
    /// Name.
    pub(super) name: String,
    /// UID.
    pub(super) uid: Option<String>,
    /// Owner references of the object. JSON and YAML output does not contain them.
    #[serde(skip_serializing)]
    pub(super) owner_references: Vec<OwnerReference>,
}

/// The fields of a condition that are printed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ConditionView {
    /// Type, such as `Detected`.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// Status: `True`, `False` or `Unknown`.
    pub(super) status: String,
    /// Reason of the status, in CamelCase.
    pub(super) reason: String,
    /// Message about the status.
    pub(super) message: String,
    /// Time of the last change of the status.
    pub(super) last_transition_time: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OperationObject {
    metadata: ObjectMeta,
    spec: OperationSpec,
    status: OperationStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OperationSpec {
    operation: String,
    item: Option<String>,
    component: String,
    rule_set: String,
    subject: ListedSubject,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OperationStatus {
    phase: String,
    state: String,
    reason: String,
    message: String,
    progress: Option<u8>,
    started: Option<Timestamp>,
    start_time_source: String,
    completed: Option<Timestamp>,
    conditions: Vec<ConditionView>,
}

impl ListedOperation {
    /// Decodes the JSON of an InFlightOperation. If `keep_raw` is true, the JSON is also kept in
    /// `raw`.
    pub(super) fn read(json: &str, keep_raw: bool) -> Result<Self, serde_json::Error> {
        let object: OperationObject = serde_json::from_str(json)?;
        let raw = keep_raw.then(|| RawValue::from_string(json.to_owned()));
        let OperationObject {
            metadata,
            spec,
            status,
        } = object;
        let active = status.phase != "Completed";
        // Custom resources of the Go operator have no state.
        let state = if status.state.is_empty() {
            status.phase
        } else {
            status.state
        };
        Ok(Self {
            namespace: metadata.namespace,
            name: metadata.name.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default(),
            operation: spec.operation,
            item: spec.item,
            component: spec.component,
            rule_set: spec.rule_set,
            subject: spec.subject,
            active,
            state,
            reason: status.reason,
            message: status.message,
            progress: status.progress,
            started: status
                .started
                .or(metadata.creation_timestamp.map(|it| it.0)),
            start_time_source: status.start_time_source,
            completed: status.completed,
            conditions: status.conditions,
            raw: raw.transpose()?,
        })
    }

    /// Formats the subject as `Kind/name`, or as `Kind/name/item` if the operation has an item.
    pub(super) fn subject_name(&self) -> String {
        let ListedSubject { kind, name, .. } = &self.subject;
        match &self.item {
            Some(item) => format!("{kind}/{name}/{item}"),
            None => format!("{kind}/{name}"),
        }
    }

    /// Formats the subject for narrow terminals. The initials replace a kind of several words:
    /// `VMI/web` for `VirtualMachineInstance/web`.
    pub(super) fn short_subject_name(&self) -> String {
        let kind = &self.subject.kind;
        let initials: String = kind.chars().filter(char::is_ascii_uppercase).collect();
        let name = self.subject_name();
        // A kind of one word has only one initial, which is not understandable.
        match name.strip_prefix(kind.as_str()) {
            Some(rest) if initials.len() > 1 => format!("{initials}{rest}"),
            _ => name,
        }
    }

    /// Formats the subject for a sentence: `VirtualMachine/web in shop`.
    pub(super) fn place_name(&self) -> String {
        match &self.subject.namespace {
            Some(namespace) => format!("{} in {namespace}", self.subject_name()),
            None => self.subject_name(),
        }
    }

    /// Returns the phase, as the API names it.
    pub(super) fn phase(&self) -> &'static str {
        if self.active { "Active" } else { "Completed" }
    }

    /// Returns the seconds since the start. None if the start is unknown.
    pub(super) fn age(&self, now: Timestamp) -> Option<i64> {
        Some(now.as_second() - self.started?.as_second())
    }

    /// Formats the progress in percent, with `before` in front. Empty if the progress is unknown.
    pub(super) fn percent(&self, before: &str) -> String {
        let percent = self.progress.map(|it| format!("{before}{it}%"));
        percent.unwrap_or_default()
    }

    /// Returns the value of the correlation label with this suffix.
    pub(super) fn correlation(&self, suffix: &str) -> Option<&str> {
        self.labels
            .iter()
            .find(|(key, _)| key.strip_prefix(CORRELATION) == Some(suffix))
            .map(|(_, value)| value.as_str())
    }

    /// Returns true if the operation is failing or has failed.
    pub(super) fn is_failing_or_failed(&self) -> bool {
        matches!(self.state.as_str(), "Failing" | "Failed")
    }

    /// Returns true if the operation is blocked.
    pub(super) fn is_blocked(&self) -> bool {
        self.state == "Blocked"
    }

    /// Returns true if the operation is no longer detected, but its debounce period is not over.
    pub(super) fn is_settling(&self) -> bool {
        self.state == State::Settling.name()
    }

    /// Formats `inflightoperation.GROUP/name`, like kubectl's `-o name`.
    pub(super) fn resource_name(&self, group: &str) -> String {
        format!("{}.{group}/{}", live::KIND.to_lowercase(), self.name)
    }

    /// Returns the identity of the operation.
    pub(super) fn key(&self) -> OperationKey {
        (self.namespace.clone(), self.name.clone())
    }
}

impl ListedSubject {
    /// Returns the identity of an object in a file, without its owners.
    pub(super) fn of(object: &Object) -> Self {
        Self {
            api_version: object.api_version.clone(),
            kind: object.kind.clone(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            uid: object.uid().map(str::to_owned),
            owner_references: Vec::new(),
        }
    }

    /// Formats `Kind namespace/name`, or `Kind name` for a cluster-scoped object.
    pub(super) fn path(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} {namespace}/{}", self.kind, self.name),
            None => format!("{} {}", self.kind, self.name),
        }
    }
}

/// Returns the name of the InFlightOperation that an argument names. None if the argument names an
/// object of another resource.
///
/// The argument is `NAME`, or `RESOURCE/NAME` as `-o name` prints it. `RESOURCE` can also be `ifo`,
/// `ifos` or the kind.
pub(super) fn operation_name_in(text: &str) -> Option<&str> {
    let Some((kind, name)) = text.split_once('/') else {
        return Some(text);
    };
    let kind = kind.split('.').next().unwrap_or_default();
    let own = [live::KIND, live::PLURAL, "ifo", "ifos"];
    own.iter()
        .any(|it| it.eq_ignore_ascii_case(kind))
        .then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_with_few_fields_is_parsed() {
        let operation = ListedOperation::read(
            r#"{"metadata":{"name":"a","creationTimestamp":"2026-01-01T00:00:00Z"},
                "spec":{"operation":"Migrating","subject":{"kind":"VM","name":"x"}},
                "status":{"phase":"Active"}}"#,
            false,
        )
        .unwrap();
        assert!(operation.active);
        assert_eq!(operation.state, "Active");
        assert_eq!(operation.subject_name(), "VM/x");
        let later = "2026-01-01T00:01:00Z".parse().unwrap();
        assert_eq!(operation.age(later), Some(60));
        assert!(ListedOperation::read("{}", true).unwrap().raw.is_some());
    }
}
