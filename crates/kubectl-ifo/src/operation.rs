//! An operation, as all commands of the plugin use it.
//!
//! Input: an object of the live API, a custom resource of persistence mode, or a custom resource of
//! the older Go operator. The commands `rules replay` and `rules test` create operations
//! themselves. A field that an object does not have is empty, so an unexpected object causes no
//! error.

mod data;

pub(super) use data::{Field, OperationData};

use ifo_api::live::{self, State};
use ifo_client::manifest::Object;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Prefix of the correlation labels (see `docs/rules.md`).
const CORRELATION: &str = "ifo.kubevirt.io/correlation-";

/// The identity of an operation: namespace and name of its object.
pub(super) type OperationKey = (Option<String>, String);

/// One operation.
#[allow(
    clippy::struct_field_names,
    reason = "the field with the name of the operation has this name in the API"
)]
#[derive(Clone, Debug, Default)]
pub(super) struct ListedOperation {
    /// Namespace of the object. None for a custom resource.
    pub(super) namespace: Option<String>,
    /// Name of the object.
    pub(super) name: String,
    /// resourceVersion of the object.
    pub(super) version: String,
    /// Labels of the object.
    pub(super) labels: BTreeMap<String, String>,
    /// Name of the operation, such as `Migrating`.
    pub(super) operation: String,
    /// Item, which distinguishes operations of the same name on one subject.
    pub(super) item: Option<String>,
    /// Component that the rule set belongs to.
    pub(super) component: String,
    /// Rule set that detected the operation first.
    pub(super) rule_set: String,
    /// The subject.
    pub(super) subject: ListedSubject,
    /// True if the operation is in flight.
    pub(super) active: bool,
    /// State as in the object: `Progressing`, `Failed`, …
    pub(super) state: String,
    /// CamelCase reason.
    pub(super) reason: String,
    /// Message for people.
    pub(super) message: String,
    /// Progress in percent.
    pub(super) progress: Option<u8>,
    /// Start time.
    pub(super) started: Option<Timestamp>,
    /// Source of the start time as in the object: `Expression`, `Detected`, …
    pub(super) start_time_source: String,
    /// End time.
    pub(super) completed: Option<Timestamp>,
    /// Its conditions.
    pub(super) conditions: Vec<ConditionView>,
    /// The object as the server sent it, if the command asked for it.
    pub(super) raw: Option<Box<RawValue>>,
}

/// The subject of an operation.
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
    /// Its owners. No command prints them.
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
    /// CamelCase reason.
    pub(super) reason: String,
    /// Message for people.
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
    /// Decodes one object. With `keep`, the object is kept as well.
    pub(super) fn read(json: &str, keep: bool) -> Result<Self, serde_json::Error> {
        let object: OperationObject = serde_json::from_str(json)?;
        let raw = keep.then(|| RawValue::from_string(json.to_owned()));
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

    /// Formats `Kind/name`, with the item if there is one.
    pub(super) fn subject_name(&self) -> String {
        let ListedSubject { kind, name, .. } = &self.subject;
        match &self.item {
            Some(item) => format!("{kind}/{name}/{item}"),
            None => format!("{kind}/{name}"),
        }
    }

    /// Formats the subject for narrow screens. A kind of several words is replaced by its initials:
    /// `VMI/web` for `VirtualMachineInstance/web`.
    pub(super) fn short_subject_name(&self) -> String {
        let kind = &self.subject.kind;
        let initials: String = kind.chars().filter(char::is_ascii_uppercase).collect();
        let name = self.subject_name();
        // A single letter is not understandable.
        match name.strip_prefix(kind.as_str()) {
            Some(rest) if initials.len() > 1 => format!("{initials}{rest}"),
            _ => name,
        }
    }

    /// Formats kind and name with the namespace, for a sentence.
    pub(super) fn place_name(&self) -> String {
        match &self.subject.namespace {
            Some(namespace) => format!("{} in {namespace}", self.subject_name()),
            None => self.subject_name(),
        }
    }

    /// Returns its phase as in the object.
    pub(super) fn phase(&self) -> &'static str {
        if self.active { "Active" } else { "Completed" }
    }

    /// Returns the seconds since its start.
    pub(super) fn age(&self, now: Timestamp) -> Option<i64> {
        Some(now.as_second() - self.started?.as_second())
    }

    /// Formats its progress in percent after `before`. Empty if the progress is unknown.
    pub(super) fn percent(&self, before: &str) -> String {
        let percent = self.progress.map(|it| format!("{before}{it}%"));
        percent.unwrap_or_default()
    }

    /// Returns the value of the label `ifo.kubevirt.io/correlation-…`.
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

    /// Returns true if it is not detected any more but its debounce period is not over.
    pub(super) fn is_settling(&self) -> bool {
        self.state == State::Settling.name()
    }

    /// Formats `inflightoperation.GROUP/name`, like kubectl's `-o name`.
    pub(super) fn resource_name(&self, group: &str) -> String {
        format!("{}.{group}/{}", live::KIND.to_lowercase(), self.name)
    }

    /// Returns its identity.
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

    /// Formats `Kind namespace/name`.
    pub(super) fn path(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} {namespace}/{}", self.kind, self.name),
            None => format!("{} {}", self.kind, self.name),
        }
    }
}

/// Returns the name of the operation in an argument. The argument is `NAME` or `RESOURCE/NAME`, as
/// `-o name` prints it, where the resource can also be `ifo`, `ifos` or the kind. None if the
/// argument names another resource.
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
