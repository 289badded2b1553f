//! Converts live operations (the operations in memory) to custom resources, and custom resources to
//! live operations. Every replica converts the same live operation to the same custom resource.

use ifo_api::live;
use ifo_api::metadata::{Metadata, UnknownFields, api_version, shared_text};
use ifo_api::persisted;
use std::collections::BTreeMap;

/// Maximum number of characters in the name of a Kubernetes object
/// (validation.DNS1123SubdomainMaxLength).
const MAX_NAME: usize = 253;

/// The name of a custom resource ends with this number of characters of the live operation's uid.
const UID_CHARACTERS: usize = 8;

/// Maximum number of characters that a custom resource's name takes from the name of the live
/// operation. In the custom resource's name, a dash and [`UID_CHARACTERS`] characters follow.
const LIVE_NAME_CHARACTERS: usize = MAX_NAME - UID_CHARACTERS - 1;

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
pub(super) fn cr_name(live_name: &str, live_uid: &str) -> String {
    let head = format!("{live_name:.LIVE_NAME_CHARACTERS$}");
    // The shortened name can end with a dot or a dash. With the dash that follows, the result would
    // contain `.-`, which is not valid in a name, or `--`.
    let head = head.trim_end_matches(['.', '-']);
    format!("{head}-{live_uid:.UID_CHARACTERS$}")
}

/// Returns the custom resource for a live operation.
pub fn to_cr(live: &live::InFlightOperation) -> persisted::InFlightOperation {
    let metadata = &live.metadata;
    // The CRD of this release does not have the fields of a newer release, so the kube-apiserver
    // would refuse these fields.
    let (mut spec, mut status) = (live.spec.clone(), live.status.clone());
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
        cr.metadata.owner_references = Some(metadata.owner_references.clone());
    }
    cr.status = Some(persisted::InFlightOperationStatus {
        started: metadata.creation_timestamp,
        live_uid: metadata.uid.clone(),
        live: status,
    });
    cr
}

/// Returns the live operation for which a custom resource was written. Returns None in these cases,
/// because another client has created or edited the custom resource:
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
    // The custom resource does not show which client has set a label. So the returned operation
    // also has the labels of other clients, until the next detection replaces the labels.
    let labels = cr.metadata.labels.iter().flatten();
    let labels = labels.map(|(key, value)| (shared_text(key), value.as_str().into()));
    Some(live::InFlightOperation {
        api_version: api_version(),
        kind: shared_text(live::KIND),
        metadata: Metadata {
            creation_timestamp: status.started,
            generation: Some(1),
            labels: labels.collect(),
            name: name.into(),
            namespace: namespace.into(),
            owner_references: cr.spec.live.subject.as_owner().into_iter().collect(),
            resource_version: None,
            uid: status.live_uid.clone(),
            unknown: UnknownFields::new(),
        },
        spec: cr.spec.live.clone(),
        status: status.live.clone(),
    })
}

/// Returns true if both operations have the same content. Only a change of the content or of the
/// labels causes a write.
///
/// The content excludes the labels, and these fields:
///
/// - `lastDetected` and the conditions, because an interruption of a watch changes them for all
///   operations on the watched resource at once.
/// - `subjectGeneration`, because this field changes with each change of the subject's spec. The
///   subject is the object on which the operation runs.
/// - `startTimeSource`, because a restart of the server changes it.
/// - Fields of a newer release in the status, because a custom resource does not contain them.
/// - The name and the owner references, because they follow from other fields.
pub(super) fn has_same_content(
    one: &live::InFlightOperation,
    other: &live::InFlightOperation,
) -> bool {
    let status = live::Status {
        last_detected: one.status.last_detected,
        subject_generation: one.status.subject_generation,
        conditions: one.status.conditions.clone(),
        start_time_source: one.status.start_time_source,
        unknown: one.status.unknown.clone(),
        ..other.status.clone()
    };
    let (metadata, others) = (&one.metadata, &other.metadata);
    metadata.namespace == others.namespace
        && metadata.uid == others.uid
        && metadata.creation_timestamp == others.creation_timestamp
        && one.spec == other.spec
        && one.status == status
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_api::live::StartTimeSource;
    use ifo_api::testing;
    use serde_json::json;

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
        testing::operation(&fields)
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
            "0a1b2c3d-52c4-5f0a-9c61-2a7e84d0b35f",
        );
        assert_eq!(name, "vm-migrating-3f9c2a1b5e6d7f80-0a1b2c3d");
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

    #[test]
    fn detections_watch_interruptions_and_restarts_do_not_change_the_content() {
        let is_changed = |change: fn(&mut live::InFlightOperation)| {
            let mut operation = live(None, None);
            change(&mut operation);
            !has_same_content(&operation, &live(None, None))
        };
        assert!(is_changed(|it| it.status.progress = Some(6)));
        assert!(is_changed(|it| it.status.message = "m".into()));
        assert!(is_changed(|it| it.status.state = live::State::Settling));
        assert!(is_changed(|it| it.spec.component = "other".into()));
        assert!(!is_changed(|it| {
            it.status.subject_generation = Some(9);
            it.status.last_detected.0 += jiff::SignedDuration::from_secs(9);
            it.status.start_time_source = StartTimeSource::Restored;
            it.status.conditions.clear();
        }));
    }
}
