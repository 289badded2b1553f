//! The metadata and conditions of operations and records. The wire format is that of
//! `metav1.ObjectMeta` and `metav1.Condition`. These types differ from the types of `k8s_openapi` in one
//! point: they share their texts (`Text`), because the server has them in memory for each operation.

use crate::Text;
use crate::{LIVE_GROUP, VERSION};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self, OwnerReference};
use litemap::LiteMap;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{PoisonError, RwLock};

/// The labels of an object, sorted by key.
pub type Labels = LiteMap<Text, Text>;

/// The fields that this release does not know, by their names in JSON.
pub type UnknownFields = BTreeMap<String, Value>;

/// A time. In JSON, it has whole seconds (`metav1.Time`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Time(#[schemars(with = "v1::Time")] pub Timestamp);

/// Unlike `k8s_openapi`, this code does not interpret a format string for each time.
impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&whole_second(self.0).0)
    }
}

/// The metadata of an operation or of a record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Start of the operation, in whole seconds.
    pub creation_timestamp: Time,
    /// The generation. None for a record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// The labels.
    #[serde(
        default,
        skip_serializing_if = "LiteMap::is_empty",
        deserialize_with = "labels_with_frequent_keys"
    )]
    pub labels: Labels,
    /// Name of the object.
    pub name: Text,
    /// Namespace of the object.
    pub namespace: Text,
    /// The owner of the object: the subject of the operation, if its UID is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
    /// The resourceVersion, if the object was decoded from JSON. None for an object in the index,
    /// because the index has the version beside the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// UID of the object.
    pub uid: Text,
    /// Fields that only a newer release knows.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// A condition (`metav1.Condition`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Time since which the condition has had this status, in whole seconds.
    pub last_transition_time: Time,
    /// Message for people.
    pub message: Text,
    /// The generation of the subject at the last change of the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Reason in CamelCase.
    #[serde(deserialize_with = "frequent_text")]
    pub reason: Text,
    /// `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "frequent_text")]
    pub status: Text,
    /// Type of the condition, such as `Completed`.
    #[serde(rename = "type", deserialize_with = "frequent_text")]
    pub type_: Text,
    /// Fields that only a newer release knows.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// Maximum number of texts that [`shared_text`] shares. The server itself has fewer than 100. Rule
/// sets add the reasons of conditions and the keys of labels.
const MAX_SHARED_TEXTS: usize = 1_000;

/// Maximum length of a text that [`shared_text`] shares, in bytes.
const MAX_SHARED_BYTES: usize = 128;

/// The texts that [`shared_text`] has returned.
static SHARED_TEXTS: RwLock<BTreeSet<Text>> = RwLock::new(BTreeSet::new());

/// Returns a text that many objects share, such as the type of a condition. Equal texts share one
/// copy, except if 1,000 texts are shared already, or if the text has more than 128 bytes.
pub fn shared_text(text: &str) -> Text {
    let shared = SHARED_TEXTS.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = shared.get(text) {
        return known.clone();
    }
    let own = Text::from(text);
    if shared.len() < MAX_SHARED_TEXTS && text.len() <= MAX_SHARED_BYTES {
        drop(shared);
        let mut shared = SHARED_TEXTS.write().unwrap_or_else(PoisonError::into_inner);
        shared.insert(own.clone());
    }
    own
}

/// Returns the `apiVersion` of operations and records.
pub fn api_version() -> Text {
    shared_text(&format!("{LIVE_GROUP}/{VERSION}"))
}

/// Rounds a time down to a whole second. JSON has whole seconds, so an object that was decoded from
/// JSON equals the object that was encoded.
pub fn whole_second(time: Timestamp) -> Time {
    let before = i64::from(time.subsec_nanosecond() < 0);
    Time(Timestamp::from_second(time.as_second() - before).unwrap_or(time))
}

/// Decodes a text that many operations share.
pub(crate) fn frequent_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
    let text = Cow::<str>::deserialize(deserializer)?;
    Ok(shared_text(&text))
}

/// Decodes labels, whose keys many operations share.
fn labels_with_frequent_keys<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Labels, D::Error> {
    let labels = BTreeMap::<Cow<'de, str>, Text>::deserialize(deserializer)?;
    let labels = labels.into_iter();
    Ok(labels
        .map(|(key, value)| (shared_text(&key), value))
        .collect())
}
