//! The type `live.ifo.kubevirt.io/v1alpha1` `InFlightOperation`: an operation in flight on one
//! object. The server keeps operations in memory as this type, and serves them as this type.
//! `kubectl explain` prints the descriptions of the fields.
//!
//! Texts are shared ([`Text`]), so that the tracker, the index and the records share them. Each object
//! below `metadata`, `spec` and `status` keeps the fields of a newer release in `unknown`, and each enum
//! keeps a new value in `Unknown`. So a follower serves them like the leader.

use crate::Text;
use crate::metadata::{Condition, Metadata, Time, UnknownFields};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self, OwnerReference};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Kind of the resource that the server serves.
pub const KIND: &str = "InFlightOperation";
/// Plural of the resource that the server serves.
pub const PLURAL: &str = "inflightoperations";

/// Maximum length of an operation's message, in characters. Every watch event contains the message,
/// and a table shows only one line of it.
pub const MAX_MESSAGE: usize = 1024;

/// The last message of an operation that failed, if its rule yields no text about the failure.
pub const FAILED_WITHOUT_CAUSE: &str = "The subject reports that the operation failed.";

/// Cuts a message after [`MAX_MESSAGE`] characters, including the `…` at the end.
pub fn cut_message(text: &str) -> Cow<'_, str> {
    // A message has at most as many characters as bytes, so a short message need not be counted.
    if text.len() <= MAX_MESSAGE || text.chars().nth(MAX_MESSAGE).is_none() {
        return text.into();
    }
    text.chars().take(MAX_MESSAGE - 1).chain(['…']).collect()
}

/// An operation that is in flight on one subject: the object that the operation is about. A rule of
/// an OperationRuleSet has detected it. The server keeps it in memory, and never stores it in etcd.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InFlightOperation {
    /// Always `live.ifo.kubevirt.io/v1alpha1`.
    #[serde(deserialize_with = "crate::metadata::frequent_text")]
    pub api_version: Text,
    /// Always `InFlightOperation`.
    #[serde(deserialize_with = "crate::metadata::frequent_text")]
    pub kind: Text,
    /// Standard object metadata. creationTimestamp is the start of the operation.
    #[schemars(with = "v1::ObjectMeta")]
    pub metadata: Metadata,
    /// The operation and its subject.
    pub spec: Spec,
    /// The state of the operation.
    pub status: Status,
}

/// The operation and its subject.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "InFlightOperationSpec")]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// Name of the operation, as in the rule that detected it.
    pub operation: Text,
    /// Name of the OperationRuleSet that yields the values of the operation, such as the message.
    /// If this rule set no longer detects the operation, the name changes to another rule set that
    /// detects it.
    pub rule_set: Text,
    /// Component that the rule set belongs to, such as `kubevirt`.
    pub component: Text,
    /// The object on which the operation was detected.
    pub subject: SubjectReference,
    /// For a rule with `forEach`: the key of the list element. It distinguishes several operations
    /// of the same name on one subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<Text>,
    /// Key of the piece of work that the operation belongs to, if the rule yields one. Operations
    /// of one component with the same key are one piece of work, such as the operations of one
    /// migration on several objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Text>,
    /// Who or what started the operation, if the product writes it to the subject: the name of a
    /// user, of a controller or of another object. The server sets it at the start of the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiator: Option<Text>,
    /// Fields that only a newer release knows.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: UnknownFields,
}

/// A reference to one object of the cluster, with that object's owners.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubjectReference {
    /// Group and version of the subject, such as `kubevirt.io/v1`.
    pub api_version: Text,
    /// Kind of the subject, such as `VirtualMachine`.
    pub kind: Text,
    /// Name of the subject.
    pub name: Text,
    /// Namespace of the subject; absent for a cluster-scoped subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Text>,
    /// UID of the subject; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Text>,
    /// All owners of the subject, from its metadata.ownerReferences.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub owner_references: Arc<[OwnerReference]>,
    /// Fields that only a newer release knows.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: UnknownFields,
}

impl SubjectReference {
    /// Returns the subject as the owner of its operation. Returns None if its UID is unknown.
    pub fn as_owner(&self) -> Option<OwnerReference> {
        Some(OwnerReference {
            api_version: self.api_version.to_string(),
            block_owner_deletion: Some(false),
            controller: Some(true),
            kind: self.kind.to_string(),
            name: self.name.to_string(),
            uid: self.uid.as_ref()?.to_string(),
        })
    }
}

/// Defines an enum of the API. A value that only a newer release knows stays in `Unknown`.
macro_rules! tolerant_enum {
    ($(#[$meta:meta])* pub enum $name:ident: $count:literal { $($(#[$doc:meta])* $value:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema)]
        pub enum $name {
            $($(#[$doc])* $value,)*
            /// A value that only a newer release knows.
            #[schemars(skip)]
            Unknown(UnknownValue),
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = Cow::<str>::deserialize(deserializer)?;
                let known = Self::ALL.into_iter().find(|it| it.name() == value);
                Ok(known.unwrap_or_else(|| Self::Unknown(UnknownValue::keep(&value))))
            }
        }

        /// The first value.
        impl Default for $name {
            fn default() -> Self {
                Self::ALL[0]
            }
        }

        impl $name {
            /// All values that this release knows.
            pub const ALL: [Self; $count] = [$(Self::$value),*];

            /// Returns the value in JSON.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$value => stringify!($value),)*
                    Self::Unknown(value) => value.0,
                }
            }
        }
    };
}

/// A value of an enum that only a newer release knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnknownValue(&'static str);

/// Maximum number of unknown values, and maximum length of one in bytes. Other values become `Unknown`.
/// A newer release has only a few new values, but a custom resource can contain any text.
const MAX_UNKNOWN_VALUES: usize = 64;

impl UnknownValue {
    /// Keeps a value. It is never freed, so that the enums can be copied.
    fn keep(value: &str) -> Self {
        static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = kept.get(value) {
            return Self(kept);
        }
        if kept.len() >= MAX_UNKNOWN_VALUES || value.len() > MAX_UNKNOWN_VALUES {
            return Self("Unknown");
        }
        let value = String::leak(value.to_owned());
        kept.insert(value);
        Self(value)
    }
}

tolerant_enum! {
    /// The phase of an operation.
    pub enum Phase: 2 {
        /// In flight. A rule detects the operation, or the debounce period after the last detection is
        /// not over.
        Active,
        /// Ended.
        Completed,
    }
}

tolerant_enum! {
    /// The state of an operation, or its result.
    pub enum State: 9 {
        /// Active, without a problem.
        Progressing,
        /// Active. The operation waits for another component or for a person.
        Blocked,
        /// Active. A person has deliberately put the subject on hold, so no work is in flight.
        Held,
        /// Active, with a problem.
        Failing,
        /// Active. No rule detects the operation any more. If no rule detects it again, the operation
        /// completes at the end of the debounce period.
        Settling,
        /// Completed successfully.
        Succeeded,
        /// Completed with a failure.
        Failed,
        /// Completed because another operation of the same subject replaced it.
        Superseded,
        /// Completed with an unknown result.
        Ended,
    }
}

impl State {
    /// Returns true if this is a state of completed operations.
    pub fn is_completed(self) -> bool {
        use State::{Ended, Failed, Succeeded, Superseded};
        matches!(self, Succeeded | Failed | Superseded | Ended)
    }
}

tolerant_enum! {
    /// The source of the start time of an operation.
    pub enum StartTimeSource: 4 {
        /// The expression `startedAt` of the rule.
        Expression,
        /// The time of the first detection. If the newest time in the managedFields of the subject is
        /// at most 10 s older, the operation starts at that time.
        Detected,
        /// The newest time in the managedFields of the subject. This time is used for an operation that
        /// was already in flight when the server first listed the subject.
        ManagedFields,
        /// An earlier leader detected the start, as for `Detected`. A new leader has restored the
        /// operation from the operations in its memory, or from a custom resource.
        Restored,
    }
}

/// The usual duration of an operation. If fewer than five earlier runs are known, the server uses
/// the `expectedDuration` of the rule, which is a limit. The time for which an operation is
/// `Blocked`, `Held`, `Failing` or `Settling` does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Expected {
    /// Duration in seconds: the median of earlier runs, or the `expectedDuration` of the rule.
    pub typical_seconds: u64,
    /// The duration in seconds that 95 of 100 earlier runs did not exceed. Absent if the source is
    /// the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_seconds: Option<u64>,
    /// Number of earlier runs. Absent if the source is the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<u64>,
    /// `Rule` or `History`.
    pub source: ExpectedSource,
    /// Fields that only a newer release knows.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: UnknownFields,
}

tolerant_enum! {
    /// The source of the usual duration of an operation.
    pub enum ExpectedSource: 2 {
        /// The `expectedDuration` of the rule, which is a limit. The operation usually takes less time.
        Rule,
        /// Earlier successful runs.
        History,
    }
}

/// The state of an operation, or its result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "InFlightOperationStatus")]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// `Active` while the operation is in flight, `Completed` after its end.
    pub phase: Phase,
    /// While Active: `Progressing`, `Blocked`, `Held` (put on hold by a person), `Failing` or
    /// `Settling` (no longer detected, within the debounce period). Once Completed: `Succeeded`, `Failed`, `Superseded` or `Ended` (the
    /// result is unknown).
    pub state: State,
    /// CamelCase reason. While Active: the reason that the rule yields, or else the name of the
    /// operation. Once Completed: the reason for the end, such as `NotDetected`, `SubjectDeleted`
    /// or `RuleRemoved`.
    pub reason: Text,
    /// Message for people.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub message: Text,
    /// Progress in whole percent from 0 to 100. Absent if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100), extend("format" = "int32"))]
    pub progress: Option<u8>,
    /// Names of the nodes that the operation touches, if the rule set yields them.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub nodes: Arc<[Text]>,
    /// Command line with which a person can stop the operation, quoted for a shell. Absent if the
    /// rule yields none, and once Completed. The server never executes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<Text>,
    /// Time since which the operation has had this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_since: Option<Time>,
    /// Time at which the progress rose last. Absent if the progress is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_progress: Option<Time>,
    /// The usual duration of this operation, if the rule gives one or at least five earlier runs
    /// are known. The server updates this field only together with other fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Expected>,
    /// Time at which the operation will probably complete, from the recent rate of its progress, or
    /// from the duration of earlier runs. The server updates this time only together with other
    /// fields. So the time can be past, and clients must then ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_completion: Option<Time>,
    /// Duration of a completed operation in seconds, from its start to its last detection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<u64>,
    /// Time since which the operation waited for its start (metadata.creationTimestamp), if the
    /// product distinguishes the two. The server sets it at the start of the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<Time>,
    /// Source of the start time (metadata.creationTimestamp).
    pub start_time_source: StartTimeSource,
    /// Time of the last known detection of the operation. The server updates this time when the
    /// operation starts, when it changes visibly, and when no rule detects it any more. Other
    /// events of the subject do not update this time.
    pub last_detected: Time,
    /// Time of the last detection, if the phase is Completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Time>,
    /// Identity of this run of the operation, such as the UID of a migration, if the rule yields
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<Text>,
    /// Names of all rule sets that detect the operation. If no rule set detects it any more, the
    /// names of the rule sets that detected it last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub detected_by: Vec<Text>,
    /// metadata.generation of the subject at the last change of this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_generation: Option<i64>,
    /// The conditions `Progressing`, `Detected` and `Completed` are always present. `Overdue` and
    /// `Stalled` can be present only while the operation is Active. `Overdue` is present if the
    /// rule gives `expectedDuration` or at least 20 earlier runs are known. `Stalled` is present if
    /// the rule gives `stalledAfter` and the progress is known. The messages of `Overdue` and
    /// `Stalled` explain their status. observedGeneration is the generation of the subject.
    #[serde(default)]
    #[schemars(with = "Vec<v1::Condition>")]
    pub conditions: Vec<Condition>,
    /// Fields that only a newer release knows.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: UnknownFields,
}

impl Status {
    /// Returns the condition with this type.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|own| own.type_ == *type_)
    }

    /// Returns the status of the condition with this type. Empty if there is no such condition.
    pub fn status_of(&self, type_: &str) -> &str {
        self.condition(type_).map_or("", |own| &own.status)
    }

    /// Returns true if the status of the condition with this type is `True`.
    pub fn is_true(&self, type_: &str) -> bool {
        self.status_of(type_) == "True"
    }
}
