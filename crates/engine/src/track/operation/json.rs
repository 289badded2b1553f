//! The JSON of an operation. Enters: its texts, borrowed. Leaves: the bytes of the
//! `InFlightOperation` that a client reads. The tests of the tracker compare them with those
//! of that type, which owns its texts and takes twice the time.

use crate::rules::Labels;
use ifo_api::live::{self, Phase, StartTimeSource, State};
use ifo_api::{LIVE_GROUP, VERSION};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use serde::{Serialize, Serializer};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of room for the JSON of one operation. Most operations are smaller.
const TYPICAL_SIZE: usize = 2048;

/// `metadata`, with its members in the order in which Kubernetes' types have them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MetadataJson<'a> {
    pub creation_timestamp: Time,
    pub generation: u8,
    #[serde(serialize_with = "map")]
    pub labels: &'a Labels,
    pub name: &'a str,
    pub namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_references: Option<[OwnerJson<'a>; 1]>,
    pub uid: &'a str,
}

/// The subject as the owner of the operation.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerJson<'a> {
    pub api_version: &'a str,
    pub block_owner_deletion: bool,
    pub controller: bool,
    pub kind: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
}

/// `spec`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpecJson<'a> {
    pub operation: &'a str,
    pub rule_set: &'a str,
    pub component: &'a str,
    pub subject: SubjectJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<&'a str>,
}

/// `spec.subject`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubjectJson<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub owner_references: &'a [OwnerReference],
}

/// `status`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusJson<'a> {
    pub phase: Phase,
    pub state: State,
    pub reason: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<u8>,
    pub start_time_source: StartTimeSource,
    pub last_detected: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty", serialize_with = "texts")]
    pub detected_by: &'a [Arc<str>],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_generation: Option<i64>,
    pub conditions: [ConditionJson<'a>; 3],
    #[cfg(feature = "neighbour-release")]
    pub neighbour_field: &'a str,
}

/// One of `status.conditions`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionJson<'a> {
    pub last_transition_time: Time,
    pub message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    pub reason: &'a str,
    pub status: &'a str,
    pub r#type: &'a str,
}

/// The whole object, and where its metadata is.
pub fn encode(
    metadata: &MetadataJson<'_>,
    spec: &SpecJson<'_>,
    status: &StatusJson<'_>,
) -> (Vec<u8>, Range<usize>) {
    let mut json = Vec::with_capacity(TYPICAL_SIZE);
    for text in [
        "{\"apiVersion\":\"",
        LIVE_GROUP,
        "/",
        VERSION,
        "\",\"kind\":\"",
        live::KIND,
        "\",\"metadata\":",
    ] {
        json.extend_from_slice(text.as_bytes());
    }
    let start = json.len();
    append(&mut json, metadata);
    let place = start..json.len();
    json.extend_from_slice(b",\"spec\":");
    append(&mut json, spec);
    json.extend_from_slice(b",\"status\":");
    append(&mut json, status);
    json.push(b'}');
    (json, place)
}

fn append(json: &mut Vec<u8>, part: &impl Serialize) {
    serde_json::to_writer(json, part).expect("maps with string keys always encode");
}

fn map<S: Serializer>(labels: &Labels, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(labels.iter().map(|(key, value)| (&**key, &**value)))
}

fn texts<S: Serializer>(texts: &[Arc<str>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(texts.iter().map(|text| &**text))
}
