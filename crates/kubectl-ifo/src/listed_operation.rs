//! Defines [`ListedOperation`], the type in which all commands of the plugin `kubectl ifo` handle
//! an operation. An operation is something that happens to an object, such as a migration. Rule
//! sets define how `ifo-apiserver` detects operations.
//!
//! In a cluster, an operation is an object of the kind `InFlightOperation`. There are two sorts of
//! these objects:
//!
//! - Live objects: `ifo-apiserver` serves these objects from its memory, as an aggregated API.
//! - Custom resources: `ifo-apiserver` writes these objects in persistence mode. The older Go
//!   operator, which this project replaces, also writes such custom resources.
//!
//! This module decodes the JSON of both sorts. It also decodes the records of completed operations
//! (`OperationRecord`). If a field is missing, this module uses a default value. So an object from
//! another release of `ifo-apiserver` causes no error.
//!
//! The commands `rules replay` and `rules test` read no operations from a cluster. In these
//! commands, the plugin itself evaluates the rules.

mod encode;
mod timing;

pub(super) use encode::{JsonField, OperationJson, serialize_subject};
pub(super) use timing::seconds_text;

use super::plain_text::one_line;
use ifo_api::live::{self, Expected, State, SubjectReference};
use ifo_api::metadata::Condition;
use ifo_api::{Text, record};
use ifo_client::manifest::Object;
use ifo_client::short_names::ShortNames;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Prefix of the correlation labels. A rule set sets these labels to connect related operations
/// (see `docs/rules.md`).
const CORRELATION: &str = "ifo.kubevirt.io/correlation-";

/// The identity of an operation: namespace and name of its InFlightOperation.
pub(super) type OperationKey = (Option<String>, String);

/// The identity of a piece of work: the component and the key (`spec.work`) of its operations.
pub(super) type WorkKey<'a> = (&'a str, &'a str);

/// An operation, with the fields that commands print or compare.
#[allow(
    clippy::struct_field_names,
    reason = "the API has the field name `operation`"
)]
#[derive(Clone, Debug, Default)]
pub(super) struct ListedOperation {
    /// Namespace of the InFlightOperation. None for a custom resource, which is cluster-scoped.
    pub(super) namespace: Option<String>,
    /// Name of the InFlightOperation.
    pub(super) name: String,
    /// resourceVersion of the InFlightOperation.
    pub(super) resource_version: String,
    /// UID of the live object. A custom resource of `ifo-apiserver` has this UID in its status. A
    /// custom resource of the Go operator has no live object, so the field has the UID of the
    /// custom resource. Empty if the UID is unknown.
    pub(super) uid: String,
    /// Labels of the InFlightOperation.
    pub(super) labels: BTreeMap<String, String>,
    /// Name of the operation, such as `Migrating`.
    pub(super) operation: String,
    /// The part of the subject, such as one disk, if the operation is about only this part. None if
    /// the operation is about the whole subject.
    pub(super) item: Option<String>,
    /// Key of the piece of work: operations of one component with the same key belong together. A key
    /// that ends with `/` has another meaning (see `work_groups`). None if the operation has no key.
    /// Such an operation is a piece of work of its own.
    pub(super) work: Option<String>,
    /// Component to which the rule set belongs, such as `kubevirt`.
    pub(super) component: String,
    /// Who or what started the operation. Empty if it is unknown.
    pub(super) initiator: String,
    /// Command line with which a person can stop the operation. Empty if there is none.
    pub(super) cancel: String,
    /// Name of the rule set that detected the operation first.
    pub(super) rule_set: String,
    /// The subject: the object that the operation is about.
    pub(super) subject: SubjectReference,
    /// True while the operation is in flight. False after its completion.
    pub(super) active: bool,
    /// State, as the API names it: `Progressing`, `Failed`, …
    pub(super) state: String,
    /// Reason of the state, in CamelCase.
    pub(super) reason: String,
    /// Message about the state.
    pub(super) message: String,
    /// Progress in percent. None if the progress is unknown.
    pub(super) progress: Option<u8>,
    /// Start time. If the object has no start time, this field has its creation time. None if both
    /// are missing.
    pub(super) started: Option<Timestamp>,
    /// Seconds for which the operation waited for its start. None if they are unknown.
    pub(super) in_queue: Option<u64>,
    /// Completion time. None for an operation in flight.
    pub(super) completed: Option<Timestamp>,
    /// Names of the nodes that the operation touches.
    pub(super) nodes: Vec<String>,
    /// Time since which the operation has had its state.
    pub(super) state_since: Option<Timestamp>,
    /// Time at which the progress rose last.
    pub(super) last_progress: Option<Timestamp>,
    /// The usual duration: the median of earlier runs, or the `expectedDuration` of the rule. None
    /// if the usual duration is unknown.
    pub(super) expected: Option<Expected>,
    /// Time at which the operation will probably complete. The time can be past.
    pub(super) estimated_completion: Option<Timestamp>,
    /// Duration in seconds. None for an operation in flight, or if the object does not contain the
    /// duration.
    pub(super) duration_seconds: Option<u64>,
    /// True if this is the row of a member of a piece of work. `--expand` shows these rows below
    /// the line of the piece.
    pub(super) is_member_row: bool,
    /// Conditions of the operation.
    pub(super) conditions: Vec<Condition>,
    /// JSON of the InFlightOperation as the server sent it. None if the command does not need the
    /// JSON.
    pub(super) raw: Option<Box<RawValue>>,
}

/// Fields of the JSON of an object. A field that is missing, or that has another form in another
/// release of `ifo-apiserver`, has the default value.
struct Fields(Value);

impl Fields {
    fn get<T: DeserializeOwned + Default>(&self, pointer: &str) -> T {
        let value = self.0.pointer(pointer);
        value
            .and_then(|it| T::deserialize(it).ok())
            .unwrap_or_default()
    }

    fn subject(&self) -> SubjectReference {
        SubjectReference {
            api_version: self.get("/spec/subject/apiVersion"),
            kind: self.get("/spec/subject/kind"),
            name: self.get("/spec/subject/name"),
            namespace: self.get("/spec/subject/namespace"),
            uid: self.get("/spec/subject/uid"),
            owner_references: self.get("/spec/subject/ownerReferences"),
            ..SubjectReference::default()
        }
    }

    fn conditions(&self) -> Vec<Condition> {
        let all: Vec<Value> = self.get("/status/conditions");
        let decoded = all.into_iter().map(serde_json::from_value);
        decoded.filter_map(Result::ok).collect()
    }
}

impl ListedOperation {
    /// Decodes the JSON of an InFlightOperation or of a record. If `keep_raw` is true, the JSON is
    /// also kept in `raw`.
    pub(super) fn read(json: &str, keep_raw: bool) -> Result<Self, serde_json::Error> {
        let object = Fields(serde_json::from_str(json)?);
        let raw = keep_raw.then(|| RawValue::from_string(json.to_owned()));
        // Records have an outcome instead of a state. Custom resources of the Go operator have only
        // a phase.
        let states = ["/status/state", "/status/outcome", "/status/phase"];
        let states: [String; 3] = states.map(|it| object.get(it));
        let active = states[2] != "Completed" && states[1].is_empty();
        let state = states.into_iter().find(|it| !it.is_empty());
        let live_uid: Option<String> = object.get("/status/liveUID");
        let started: Option<Timestamp> = object.get("/status/started");
        let started = started.or_else(|| object.get("/metadata/creationTimestamp"));
        let queued: Option<Timestamp> = object.get("/status/queuedAt");
        let in_queue = queued.zip(started);
        let in_queue = in_queue.map(|(from, to)| to.as_second() - from.as_second());
        let work: Option<String> = object.get("/spec/work");
        Ok(Self {
            namespace: object.get("/metadata/namespace"),
            name: object.get("/metadata/name"),
            resource_version: object.get("/metadata/resourceVersion"),
            uid: live_uid.unwrap_or_else(|| object.get("/metadata/uid")),
            labels: object.get("/metadata/labels"),
            operation: object.get("/spec/operation"),
            item: object.get("/spec/item"),
            work: work.filter(|it| !it.is_empty()),
            component: object.get("/spec/component"),
            initiator: object.get("/spec/initiator"),
            cancel: object.get("/status/cancel"),
            rule_set: object.get("/spec/ruleSet"),
            subject: object.subject(),
            active,
            state: state.unwrap_or_default(),
            reason: object.get("/status/reason"),
            message: object.get("/status/message"),
            progress: object.get("/status/progress"),
            started,
            in_queue: in_queue.and_then(|it| it.try_into().ok()),
            completed: object.get("/status/completed"),
            nodes: object.get("/status/nodes"),
            state_since: object.get("/status/stateSince"),
            last_progress: object.get("/status/lastProgress"),
            expected: object.get("/status/expected"),
            estimated_completion: object.get("/status/estimatedCompletion"),
            duration_seconds: object.get("/status/durationSeconds"),
            is_member_row: false,
            conditions: object.conditions(),
            raw: raw.transpose()?,
        })
    }

    /// Returns the identity of the piece of work that the operation belongs to. None if the operation
    /// has no key.
    pub(super) fn work_key(&self) -> Option<WorkKey<'_>> {
        Some((&self.component, self.work.as_deref()?))
    }

    /// Formats the subject as `Kind/name`, or as `Kind/name/item` if the operation has an item.
    pub(super) fn subject_name(&self) -> String {
        self.subject_name_with(&self.subject.kind)
    }

    /// Formats the subject for narrow terminals, with the short name of its kind if the cluster
    /// serves one: `vmi/web` for `VirtualMachineInstance/web`.
    pub(super) fn short_subject_name(&self, short_names: &ShortNames) -> String {
        let subject = &self.subject;
        self.subject_name_with(short_names.name(&subject.api_version, &subject.kind))
    }

    fn subject_name_with(&self, kind: &str) -> String {
        let name = &self.subject.name;
        match &self.item {
            Some(item) => format!("{kind}/{name}/{item}"),
            None => format!("{kind}/{name}"),
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

    /// Formats the progress, such as `45%`, with the text `before` in front. Empty if the progress
    /// is unknown.
    pub(super) fn percent(&self, before: &str) -> String {
        let percent = self.progress.map(|it| format!("{before}{it}%"));
        percent.unwrap_or_default()
    }

    /// Returns the value of a correlation label. The suffix `group` stands for the label
    /// `ifo.kubevirt.io/correlation-group`.
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

    /// Returns true if a person has put the subject on hold.
    pub(super) fn is_held(&self) -> bool {
        self.state == State::Held.name()
    }

    /// Returns true if no rule detects the operation any more, but its debounce period is not over.
    /// At the end of this period, `ifo-apiserver` completes the operation.
    pub(super) fn is_settling(&self) -> bool {
        self.state == State::Settling.name()
    }

    /// Formats `inflightoperation.GROUP/name`, as kubectl does with `-o name`.
    pub(super) fn resource_name(&self, group: &str) -> String {
        let name = one_line(&self.name);
        format!("{}.{group}/{name}", live::KIND.to_lowercase())
    }

    /// Returns the identity of the operation.
    pub(super) fn key(&self) -> OperationKey {
        (self.namespace.clone(), self.name.clone())
    }
}

/// Returns the reference to `object`, without its owners.
pub(super) fn subject_of(object: &Object) -> SubjectReference {
    SubjectReference {
        api_version: object.api_version.as_str().into(),
        kind: object.kind.as_str().into(),
        name: object.name.as_str().into(),
        namespace: object.namespace.as_deref().map(Text::from),
        uid: object.uid().map(Text::from),
        ..SubjectReference::default()
    }
}

/// Formats `Kind namespace/name`, or `Kind name` for a cluster-scoped object.
pub(super) fn subject_path(subject: &SubjectReference) -> String {
    let SubjectReference { kind, name, .. } = subject;
    match &subject.namespace {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// Returns the rank by which operations need attention. The worst operations have the rank 0. The
/// page of `ui` has the same ranks (`attentionRank` in `ui/model.js`).
pub(super) fn attention(operation: &ListedOperation) -> u8 {
    match operation.state.as_str() {
        _ if !operation.active => 5,
        "Failing" => 0,
        "Blocked" => 1,
        _ if operation.is_stalled() => 2,
        _ if operation.is_overdue() => 3,
        _ => 4,
    }
}

/// Returns the name of an InFlightOperation or of a record from a command-line argument. None if the
/// argument names an object of another kind.
///
/// The argument is `NAME`, or `RESOURCE/NAME` as `-o name` prints it. `RESOURCE` can also be the
/// kind, or one of the short names `ifo`, `ifos` and `opr`. A record has the name of its operation.
pub(super) fn operation_name_in(text: &str) -> Option<&str> {
    let Some((kind, name)) = text.split_once('/') else {
        return Some(text);
    };
    let kind = kind.split('.').next().unwrap_or_default();
    let own = [
        live::KIND,
        live::PLURAL,
        "ifo",
        "ifos",
        record::KIND,
        record::PLURAL,
        "opr",
    ];
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
