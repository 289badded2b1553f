//! Converts live operations (the operations in memory) to custom resources, and custom resources to
//! live operations. Every replica converts the same live operation to the same custom resource.

use super::client::Revision;
use ifo_api::live::{self, Phase, State};
use ifo_api::metadata::Time;
use ifo_api::metadata::{Metadata, OwnerReference, UnknownFields, api_version, shared_text};
use ifo_api::persisted;
use jiff::Timestamp;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Maximum number of characters in the name of a Kubernetes object
/// (validation.DNS1123SubdomainMaxLength).
const MAX_NAME: usize = 253;

/// The name of a custom resource ends with this number of characters of the live operation's uid.
const UID_CHARACTERS: usize = 8;

/// Returns the name of the custom resource for a live operation.
///
/// The name of a live operation is unique in its namespace, but custom resources are
/// cluster-scoped. So the name of the custom resource also contains the first 8 hexadecimal digits
/// of the operation's uid. For example, the name `vm-migrating-3f9c2a1b5e6d7f80` and the uid
/// `0a1b2c3d-52c4-5f0a-9c61-2a7e84d0b35f` give `vm-migrating-3f9c2a1b5e6d7f80-0a1b2c3d`.
///
/// The live name ends with 64 bits of a hash, and the first 8 digits of the uid are 32 bits of
/// another hash. So two custom resources get the same name only if these 96 bits are equal.
///
/// A live name of more than 244 characters is shortened, which can remove its hash. Then only the
/// 32 bits of the uid distinguish two operations whose shortened names are equal.
fn cr_name(live_name: &str, live_uid: &str) -> String {
    let tail: String = live_uid
        .chars()
        .filter(char::is_ascii_hexdigit)
        .map(|c| c.to_ascii_lowercase())
        .take(UID_CHARACTERS)
        .collect();
    // Live names contain only ASCII characters, so each character is one byte.
    let head: String = live_name
        .chars()
        .take(MAX_NAME - UID_CHARACTERS - 1)
        .collect();
    // The shortened name can end with a dot or a dash. With the dash that follows, the result would
    // contain `.-`, which is not valid in a name, or `--`.
    let head = head.trim_end_matches(['.', '-']);
    format!("{head}-{tail}")
}

/// Returns the custom resource for a live operation.
pub fn to_cr(live: &live::InFlightOperation) -> persisted::InFlightOperation {
    let live::InFlightOperation {
        api_version: _,
        kind: _,
        metadata,
        spec,
        status,
    } = live;
    // The CRD of this release does not have fields of a newer release, so the kube-apiserver would
    // refuse them.
    let (mut spec, mut status) = (spec.clone(), status.clone());
    spec.unknown.clear();
    spec.subject.unknown.clear();
    status.unknown.clear();
    let name = cr_name(&metadata.name, &metadata.uid);
    let spec = persisted::InFlightOperationSpec { live: spec };
    let mut cr = persisted::InFlightOperation::new(&name, spec);
    let labels = metadata.labels.iter();
    let labels = labels.map(|(key, value)| (key.to_string(), value.to_string()));
    cr.metadata.labels =
        Some(labels.collect()).filter(|labels: &BTreeMap<_, _>| !labels.is_empty());
    let live_reference = format!("{}/{}", metadata.namespace, metadata.name);
    cr.metadata.annotations =
        Some([(persisted::LIVE_ANNOTATION.to_owned(), live_reference)].into());
    // A namespaced subject cannot own a cluster-scoped custom resource.
    if live.spec.subject.namespace.is_none() && !metadata.owner_references.is_empty() {
        cr.metadata.owner_references =
            Some(metadata.owner_references.iter().map(Into::into).collect());
    }
    cr.status = Some(persisted::InFlightOperationStatus {
        started: metadata.creation_timestamp,
        live_uid: metadata.uid.clone(),
        live: status,
    });
    cr
}

/// Returns the live operation for which a custom resource was written. Returns None if another
/// client created the custom resource. This is the case if at least one of these conditions is met:
///
/// - The custom resource has no status, or the status does not contain the uid of a live operation.
/// - The annotation with the namespace and the name of the live operation is missing or invalid.
/// - The custom resource does not have the name that this server chooses for the live operation.
///   For example, the custom resource is a copy under another name.
pub fn from_cr(cr: &persisted::InFlightOperation) -> Option<live::InFlightOperation> {
    let status = cr.status.as_ref()?;
    let annotations = cr.metadata.annotations.as_ref()?;
    let live_reference = annotations.get(persisted::LIVE_ANNOTATION)?;
    let (namespace, name) = live_reference.split_once('/')?;
    if namespace.is_empty() || name.is_empty() || status.live_uid.is_empty() {
        return None;
    }
    if cr.metadata.name.as_deref() != Some(&cr_name(name, &status.live_uid)) {
        return None;
    }
    let labels = own_labels(cr).into_iter().flatten();
    let labels = labels.map(|(key, value)| (shared_text(&key), value.into()));
    Some(live::InFlightOperation {
        api_version: api_version(),
        kind: shared_text(live::KIND),
        metadata: Metadata {
            creation_timestamp: status.started,
            generation: Some(1),
            labels: labels.collect(),
            name: name.into(),
            namespace: namespace.into(),
            owner_references: owner_reference(&cr.spec.live.subject).into_iter().collect(),
            resource_version: None,
            uid: status.live_uid.clone(),
            unknown: UnknownFields::new(),
        },
        spec: cr.spec.live.clone(),
        status: status.live.clone(),
    })
}

/// The names of all fields in these parts of a custom resource, according to the schema of the CRD.
/// Each element contains the JSON pointer of the part.
static FIELDS: LazyLock<[(&str, Vec<String>); 4]> = LazyLock::new(|| {
    let crd = json!(persisted::InFlightOperation::crd());
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    ["/spec", "/spec/subject", "/status", "/status/expected"].map(|parent| {
        let properties = parent.replace('/', "/properties/") + "/properties";
        let properties = schema.pointer(&properties).and_then(Value::as_object);
        let names = properties
            .into_iter()
            .flat_map(|properties| properties.keys());
        (parent, names.cloned().collect())
    })
});

/// Returns the JSON merge patch that changes a custom resource to `cr`. The kube-apiserver refuses
/// the patch if the custom resource does not have the state `revision`.
///
/// A merge patch does not change the fields that are missing in the patch. So each field of the CRD
/// that `cr` does not have is null in the patch, which removes the field.
///
/// The patch removes the labels whose keys are in `obsolete`, and keeps the labels of other
/// clients. The patch contains no owner references, because a merge patch would replace the owner
/// references of other clients. This server sets owner references only when it creates a custom
/// resource.
pub(super) fn merge_patch(
    cr: &persisted::InFlightOperation,
    revision: &Revision,
    obsolete: &[String],
) -> Value {
    let mut patch = json!({"spec": cr.spec, "status": cr.status});
    for (parent, fields) in &*FIELDS {
        // The parent `expected` is optional.
        let parent = patch.pointer_mut(parent).and_then(Value::as_object_mut);
        if let Some(parent) = parent {
            for field in fields {
                parent.entry(field.as_str()).or_insert(Value::Null);
            }
        }
    }
    let mut labels = json!(cr.metadata.labels.clone().unwrap_or_default());
    for key in obsolete {
        labels[key] = Value::Null;
    }
    patch["metadata"] = json!({
        "uid": revision.uid,
        "resourceVersion": revision.resource_version,
        "labels": labels,
        "annotations": cr.metadata.annotations,
    });
    patch
}

/// Returns the keys of the labels that must be removed from `stored`. These are the labels that
/// this server has set and that `wanted` does not have.
pub(super) fn obsolete_labels(
    stored: &persisted::InFlightOperation,
    wanted: &persisted::InFlightOperation,
) -> Vec<String> {
    let labels = |cr: &persisted::InFlightOperation| cr.metadata.labels.clone().unwrap_or_default();
    let (mut obsolete, wanted) = (labels(stored), labels(wanted));
    let managed = managed_keys(stored, "f:labels");
    obsolete.retain(|key, _| managed.contains(key.as_str()) && !wanted.contains_key(key));
    obsolete.into_keys().collect()
}

/// Returns the labels of `cr` that this server has set, or None if there are none. managedFields
/// shows which client has set a label.
///
/// If managedFields does not show this server as the manager of [`persisted::LIVE_ANNOTATION`],
/// returns all labels. This is the case, for example, if another client has restored the custom
/// resource from a backup: managedFields then shows the other client as the manager.
pub(super) fn own_labels(cr: &persisted::InFlightOperation) -> Option<BTreeMap<String, String>> {
    let mut own = cr.metadata.labels.clone()?;
    if managed_keys(cr, "f:annotations").contains(persisted::LIVE_ANNOTATION) {
        let managed = managed_keys(cr, "f:labels");
        own.retain(|key, _| managed.contains(key.as_str()));
    }
    (!own.is_empty()).then_some(own)
}

/// Returns the keys that this server has set in one map of the metadata, according to
/// managedFields. `map` is `f:labels` or `f:annotations`.
///
/// managedFields can have two entries of this server: an administrator can write a custom resource
/// with server-side apply and our field manager.
fn managed_keys<'a>(cr: &'a persisted::InFlightOperation, map: &str) -> BTreeSet<&'a str> {
    let entries = cr.metadata.managed_fields.iter().flatten();
    let ours = entries.filter(|entry| {
        entry.manager.as_deref() == Some(super::FIELD_MANAGER) && entry.subresource.is_none()
    });
    let fields = ours.filter_map(|entry| {
        let metadata = entry.fields_v1.as_ref()?.0.get("f:metadata")?;
        metadata.get(map)?.as_object()
    });
    let keys = fields.flat_map(|fields| fields.keys());
    keys.filter_map(|key| key.strip_prefix("f:")).collect()
}

/// Returns the last time at which the subject of an operation is known to have existed. The
/// namespace of the subject existed at this time, too.
///
/// - If the operation is completed, returns the time of its end. Returns None if the status does
///   not contain this time.
/// - If the operation is active, returns the later of two times: its last detection and its start.
pub(super) fn subject_last_seen(operation: &live::InFlightOperation) -> Option<Timestamp> {
    let status = &operation.status;
    match status.phase {
        Phase::Completed => status.completed.as_ref().map(|time| time.0),
        Phase::Active => {
            let started = operation.metadata.creation_timestamp.0;
            Some(started.max(status.last_detected.0))
        }
    }
}

/// Returns the custom resource `cr` with the phase `Completed`. `cr` belongs to an operation that
/// ended while no leader was detecting operations. `now` is the time at which the new leader
/// notices the end. Returns None if another client created the custom resource.
pub(super) fn completed_cr(
    cr: &persisted::InFlightOperation,
    now: Timestamp,
) -> Option<persisted::InFlightOperation> {
    const REASON: &str = "NotDetected";
    const MESSAGE: &str = "The operation ended while no server was detecting operations.";
    let mut live = from_cr(cr)?;
    let status = &mut live.status;
    // An operation in the state `Settling` was already undetected at the last write. So the
    // operation ended when it was last detected.
    let completed = match status.state {
        State::Settling => status.last_detected.0.min(now),
        _ => now,
    };
    status.phase = Phase::Completed;
    status.state = State::Ended;
    status.reason = REASON.into();
    status.message = MESSAGE.into();
    status.completed = Some(Time(completed));
    status.state_since = Some(Time(completed));
    status.estimated_completion = None;
    let seconds = completed.as_second() - live.metadata.creation_timestamp.0.as_second();
    status.duration_seconds = Some(u64::try_from(seconds).unwrap_or_default());
    // A completed operation is neither overdue nor stalled.
    let conditions = &mut status.conditions;
    conditions.retain(|condition| !matches!(&*condition.type_, "Overdue" | "Stalled"));
    for condition in conditions {
        let is_completion = *condition.type_ == *"Completed";
        let value = shared_text(if is_completion { "True" } else { "False" });
        if condition.status != value {
            condition.status = value;
            condition.last_transition_time = Time(now);
        }
        condition.reason = status.reason.clone();
        // If a leader observes the end of an operation, it sets no message of the condition
        // `Detected`. This function does the same.
        condition.message = match &*condition.type_ {
            "Detected" => "".into(),
            _ => status.message.clone(),
        };
    }
    Some(to_cr(&live))
}

/// Returns the owner reference to the subject. Returns None if the uid of the subject is unknown.
fn owner_reference(subject: &live::SubjectReference) -> Option<OwnerReference> {
    Some(OwnerReference {
        api_version: subject.api_version.clone(),
        block_owner_deletion: Some(false),
        controller: Some(true),
        kind: subject.kind.clone(),
        name: subject.name.clone(),
        uid: subject.uid.clone()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_api::example;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

    fn live(namespace: Option<&str>, progress: Option<u8>) -> live::InFlightOperation {
        let mut fields = json!({
            "metadata": {
                "name": "vm-migrating-3f9c2a1b5e6d7f80", "namespace": namespace.unwrap_or("ifo-system"),
                "uid": "0a1b2c3d-52c4-5f0a-9c61-2a7e84d0b35f", "generation": 1,
                "labels": {"ifo.kubevirt.io/operation": "Migrating", "a": "b"},
                "ownerReferences": [{
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm",
                    "uid": "u-1", "controller": true, "blockOwnerDeletion": false,
                }],
            },
            "spec": {
                "subject": {
                    "namespace": namespace, "uid": "u-1",
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Pool", "name": "p", "uid": "u-2"},
                    ],
                },
                "item": "disk-1",
            },
            "status": {
                "state": "Blocked", "reason": "Waits", "message": "For a node",
                "instance": "run-1", "lastDetected": "2026-01-02T03:04:06Z",
                "detectedBy": ["rules", "other"], "subjectGeneration": 7,
                "conditions": [{
                    "type": "Progressing", "status": "True", "reason": "Waits",
                    "message": "For a node", "lastTransitionTime": "2026-01-02T03:04:05Z",
                    "observedGeneration": 7,
                }],
            },
        });
        if let Some(progress) = progress {
            fields["status"]["progress"] = json!(progress);
            fields["status"]["completed"] = json!("2026-01-02T03:05:05Z");
            fields["status"]["phase"] = json!("Completed");
            fields["status"]["state"] = json!("Succeeded");
        }
        example::operation(&fields)
    }

    #[test]
    fn a_live_operation_is_unchanged_after_conversion_to_a_custom_resource_and_back() {
        for object in [
            live(Some("default"), None),
            live(None, None),
            live(Some("a"), Some(100)),
        ] {
            let cr = to_cr(&object);
            let wire = serde_json::to_vec(&cr).unwrap();
            let read: persisted::InFlightOperation = serde_json::from_slice(&wire).unwrap();
            assert_eq!(from_cr(&cr).as_ref(), Some(&object));
            assert_eq!(from_cr(&read).as_ref(), Some(&object));
        }
    }

    #[test]
    fn only_custom_resources_of_cluster_scoped_subjects_have_an_owner() {
        let owned = to_cr(&live(None, None)).metadata.owner_references;
        assert_eq!(owned.unwrap()[0].uid, "u-1");
        let cr = to_cr(&live(Some("default"), None));
        assert_eq!(cr.metadata.owner_references, None);
        assert_eq!(cr.metadata.namespace, None);
    }

    #[test]
    fn names_are_valid_and_differ_if_the_uids_differ() {
        let long = format!("{}.{}", "a".repeat(243), "b".repeat(9));
        for name in ["vm-migrating-3f9c2a1b5e6d7f80", &long] {
            let one = cr_name(name, "0a1b2c3d-52c4-5f0a-9c61-2a7e84d0b35f");
            let other = cr_name(name, "1a1b2c3d-52c4-5f0a-9c61-2a7e84d0b35f");
            assert_ne!(one, other);
            assert!(ifo_api::labels::is_subdomain(&one), "{one}");
        }
        let name = cr_name(
            "vm-migrating-3f9c2a1b5e6d7f80",
            "0A1b2c3d-52c4-5f0a-9c61-2a7e84d0b35f",
        );
        assert_eq!(name, "vm-migrating-3f9c2a1b5e6d7f80-0a1b2c3d");
    }

    #[test]
    fn an_operation_that_ended_without_a_server_is_completed_in_all_fields() {
        let now: Timestamp = "2026-02-03T04:05:06Z".parse().unwrap();
        let mut in_flight = live(Some("default"), None);
        in_flight.status.estimated_completion = Some(Time(now));
        let mut overdue = in_flight.status.conditions[0].clone();
        overdue.type_ = "Overdue".into();
        in_flight.status.conditions.push(overdue);
        let ended = completed_cr(&to_cr(&in_flight), now).unwrap();
        let started = in_flight.metadata.creation_timestamp.0;
        let status = ended.status.unwrap().live;
        assert_eq!(status.phase, Phase::Completed);
        assert_eq!(status.state, State::Ended);
        assert_eq!(status.completed, Some(Time(now)));
        let progressing = &status.conditions[0];
        assert_eq!(progressing.status, "False");
        assert_eq!(progressing.reason, status.reason);
        assert_eq!(progressing.last_transition_time, Time(now));
        assert_eq!(status.state_since, Some(Time(now)));
        assert_eq!(status.estimated_completion, None);
        let seconds = now.duration_since(started).as_secs();
        assert_eq!(status.duration_seconds, u64::try_from(seconds).ok());
        let conditions = in_flight.status.conditions.len();
        assert_eq!(status.conditions.len(), conditions - 1);
    }

    /// Returns an entry of managedFields.
    fn entry(manager: &str, operation: &str, metadata: &Value) -> ManagedFieldsEntry {
        let entry = json!({
            "manager": manager, "operation": operation, "fieldsType": "FieldsV1",
            "apiVersion": "ifo.kubevirt.io/v1alpha1",
            "fieldsV1": {"f:metadata": metadata, "f:status": {}},
        });
        serde_json::from_value(entry).unwrap()
    }

    #[test]
    fn labels_of_other_clients_are_not_removed() {
        let mut cr = to_cr(&live(Some("default"), None));
        let before = own_labels(&cr);
        assert_eq!(before, cr.metadata.labels);
        let annotations = json!({".": {}, "f:ifo.kubevirt.io/live": {}});
        let operation = json!({"f:annotations": annotations.clone(),
            "f:labels": {".": {}, "f:ifo.kubevirt.io/operation": {}, "f:removed": {}}});
        let others = entry("somebody", "Update", &json!({"f:labels": {"f:team": {}}}));
        let labels = cr.metadata.labels.as_mut().unwrap();
        labels.insert("team".to_owned(), "a".to_owned());
        // One label was set with server-side apply, and the other label with an update.
        cr.metadata.managed_fields = Some(vec![
            others.clone(),
            entry("ifo-persistence", "Apply", &operation),
            entry(
                "ifo-persistence",
                "Update",
                &json!({"f:labels": {"f:a": {}}}),
            ),
        ]);
        assert_eq!(own_labels(&cr), before);
        let mut wanted = to_cr(&live(Some("default"), None));
        assert_eq!(obsolete_labels(&cr, &wanted), [""; 0]);
        wanted.metadata.labels.as_mut().unwrap().remove("a");
        assert_eq!(obsolete_labels(&cr, &wanted), ["a"]);
        // Another client has changed the label `a`, so managedFields no longer shows that this
        // server has set this label.
        let operation = entry("ifo-persistence", "Apply", &operation);
        cr.metadata.managed_fields = Some(vec![others.clone(), operation]);
        assert_ne!(own_labels(&cr), before);
        assert_eq!(obsolete_labels(&cr, &wanted), [""; 0]);
        // managedFields shows that this server has set only the status. This is the case if another
        // client has created the custom resource.
        let status = entry("ifo-persistence", "Update", &json!({}));
        cr.metadata.managed_fields = Some(vec![others, status]);
        assert_eq!(own_labels(&cr), cr.metadata.labels);
        assert_eq!(obsolete_labels(&cr, &wanted), [""; 0]);
    }

    #[test]
    fn a_merge_patch_contains_every_field_of_the_crd() {
        let minimal = example::operation(&json!({"metadata": {"labels": {"a": "b"}}}));
        let revision = Revision {
            uid: uuid::Uuid::from_u128(7),
            resource_version: "42".into(),
        };
        let patch = merge_patch(&to_cr(&minimal), &revision, &["b".to_owned()]);
        let crd = serde_json::to_value(persisted::InFlightOperation::crd()).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        for path in ["/spec", "/spec/subject", "/status"] {
            let properties = path.replace('/', "/properties/") + "/properties";
            let properties = schema.pointer(&properties).unwrap().as_object().unwrap();
            let sent = patch.pointer(path).unwrap().as_object().unwrap();
            assert!(properties.keys().eq(sent.keys()), "{path}: {sent:?}");
        }
        assert_eq!(patch["status"]["progress"], Value::Null);
        assert_eq!(patch["metadata"]["uid"], revision.uid.to_string());
        assert_eq!(patch["metadata"]["resourceVersion"], "42");
        let labels = json!({"a": "b", "b": null});
        assert_eq!(patch["metadata"]["labels"], labels);
        // If the patch contained owner references, it would remove the owner references of other
        // clients.
        assert!(patch["metadata"].get("ownerReferences").is_none());
    }

    #[test]
    fn custom_resources_of_other_clients_are_ignored() {
        let ours = to_cr(&live(Some("default"), None));
        let mut without_status = ours.clone();
        without_status.status = None;
        let mut without_annotation = ours.clone();
        without_annotation.metadata.annotations = None;
        let mut without_uid = ours.clone();
        without_uid.status.as_mut().unwrap().live_uid = "".into();
        let mut copy = ours;
        copy.metadata.name = Some("aaa".to_owned());
        for cr in [without_status, without_annotation, without_uid, copy] {
            assert_eq!(from_cr(&cr), None);
        }
    }
}
