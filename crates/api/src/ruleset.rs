//! The type `ifo.kubevirt.io/v1alpha1` `OperationRuleSet`: rules that detect operations on the
//! objects of one resource. `make manifests` generates the CRD in `deploy/crd/` from this type.
//!
//! The kube-apiserver checks each rule set against the schema of the CRD. For example, the schema
//! limits names and sizes. The server (`ifo-apiserver`) makes further checks. For example, the
//! server compiles the expressions. It reports errors in [`OperationRuleSetStatus::conditions`].
//!
//! If a rule set exceeds a size limit such as [`MAX_RULES`], the kube-apiserver refuses the rule
//! set. The limits bound the work that one rule set can cause in the server. They also keep the
//! validation rules of the schema below the cost limit of the kube-apiserver.

pub(crate) mod constraints;
use crate::Gvr;
use constraints::{
    DNS_LABEL, DURATION, IDENTIFIER, KEY_IS_QUALIFIED, KEY_IS_UNRESERVED, KEY_NEEDS_LIST,
    KEYS_ARE_QUALIFIED, KEYS_ARE_UNRESERVED, MAX_KEY, NOT_QUALIFIED, OPERATION_OR_ALL,
    OPTIONAL_VALUE, OWN_GROUP, RESERVED_KEY, STALL_NEEDS_PROGRESS, TEXT_NEEDS_OUTCOME, VALUE,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Kind of rule sets.
pub const KIND: &str = "OperationRuleSet";
/// Reason of the condition `InvalidTarget` if the cluster serves the API group of the target (the
/// resource that the rule set watches), but not the version or the resource. The condition has the
/// same reason if the cluster does not serve the group, but a group with a similar name.
pub const NOT_SERVED: &str = "NotServed";
/// Reason of the condition [`NOT_INSTALLED`].
pub const GROUP_NOT_SERVED: &str = "GroupNotServed";
/// Type of the condition of a rule set whose product is not installed: the cluster does not serve
/// the target's API group. `Ready` then has this reason, and the column READY this value.
pub const NOT_INSTALLED: &str = "NotInstalled";
/// Reason of the condition `Ready=False` if an expression failed on an object. The server then does
/// not know whether an operation is in flight on this object.
pub const EVALUATION_FAILED: &str = "EvaluationFailed";

/// Reason of the condition `Ready` of a rule set if the server does not show all its operations,
/// because a bound is reached.
pub const TOO_MANY_OPERATIONS: &str = "TooManyOperations";
/// Plural of rule sets.
pub const PLURAL: &str = "operationrulesets";
/// Key of the label of each `ClusterRole` that allows the server to watch targets. The value is
/// `true`. The aggregated ClusterRole in `deploy/rbac/targets.yaml` selects this label.
pub const AGGREGATE_LABEL: &str = "ifo.kubevirt.io/aggregate-to-targets";

/// Maximum number of rules in one rule set. The server evaluates every rule on every change of an
/// object.
pub const MAX_RULES: usize = 64;
/// Maximum number of characters in one expression. The longest expression in the shipped rule sets
/// has about 800 characters.
pub const MAX_EXPRESSION: usize = 4096;
/// Maximum number of namespaces in one rule set. Each namespace can need its own watch.
pub const MAX_NAMESPACES: usize = 64;
/// Maximum number of `labels` in one rule set, and also of `labelExpressions`. So an operation can
/// have up to 64 labels from its rule set.
pub const MAX_LABELS: usize = 32;

/// Maximum number of variables in one rule set.
pub const MAX_VARIABLES: usize = 32;
/// Maximum of `debounce`, `appearAfter`, `stateAfter` and a fixed `stalledAfter`, in seconds. The
/// server reports a longer time as an error of the rule set. While `debounce`, `appearAfter` or
/// `stateAfter` runs, the server keeps the operation or its next state in memory.
pub const MAX_WAIT_SECONDS: u64 = 24 * 60 * 60;

/// Rules that detect operations on one resource. The server watches the resource and evaluates the
/// rules on every change of an object. While a rule detects its operation, the server shows an
/// `InFlightOperation` (`live.ifo.kubevirt.io`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "ifo.kubevirt.io",
    version = "v1alpha1",
    kind = "OperationRuleSet",
    plural = "operationrulesets",
    shortname = "ors",
    status = "OperationRuleSetStatus",
    derive = "PartialEq",
    doc = "OperationRuleSet contains rules that detect operations on one resource. The server watches the resource, evaluates the rules on every change of an object, and shows an InFlightOperation (live.ifo.kubevirt.io) for as long as a rule finds its operation under way.",
    printcolumn = r#"{"name": "Component", "type": "string", "jsonPath": ".spec.component", "description": "The component that owns these rules."}"#,
    printcolumn = r#"{"name": "Target", "type": "string", "jsonPath": ".spec.target.resource", "description": "The resource that is watched."}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.ready", "description": "True if operations are detected on every object of the target. NotInstalled if the cluster does not serve the API group of the target."}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason", "description": "Reason of the condition Ready."}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": "Time since the rule set was created."}"#,
    printcolumn = r#"{"name": "Group", "type": "string", "priority": 1, "jsonPath": ".spec.target.group", "description": "API group of the resource that is watched; empty is the core group."}"#,
    printcolumn = r#"{"name": "Watch Active", "type": "boolean", "priority": 1, "jsonPath": ".status.watchActive", "description": "Whether the target is being watched for this rule set."}"#
)]
#[serde(rename_all = "camelCase", expecting = "an object")]
pub struct OperationRuleSetSpec {
    /// The component that these rules belong to, such as `kubevirt`. Rule sets of different
    /// components do not change each other's operations. The server sets the label
    /// `ifo.kubevirt.io/component` of the operations to this component. So the component must be a
    /// label value: at most 63 letters, digits, `-`, `_` or `.`, with a letter or digit first and
    /// last.
    #[schemars(length(min = 1, max = 63), regex(pattern = VALUE))]
    pub component: String,
    /// The resource that the server watches for this rule set.
    #[schemars(extend("x-kubernetes-validations" = [
        {"rule": "!(self.group in ['ifo.kubevirt.io', 'live.ifo.kubevirt.io'])", "message": OWN_GROUP, "fieldPath": ".group", "reason": "FieldValueForbidden"}
    ]))]
    pub target: Gvr,
    /// Selects objects of the target by their labels. Without a selector, the server evaluates the
    /// rules on all objects. If an object no longer matches the selector, the rules no longer
    /// detect operations on this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Values that several expressions share, at most 32, with different names. For example,
    /// expressions read the variable `phase` as `variables.phase`. In each evaluation of an object,
    /// a variable is evaluated at most once, when an expression first reads it. A variable can read
    /// the variables that come before it in the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_VARIABLES),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub variables: Vec<Variable>,
    /// The rules. Each rule has the name of an operation, and the expression that detects this
    /// operation. There must be 1 to 64 rules, with different operations.
    #[schemars(
        length(min = 1, max = MAX_RULES),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["operation"])
    )]
    pub rules: Vec<Rule>,
    /// The namespaces whose objects the server watches, at most 64. Without this list, the server
    /// watches all namespaces. If the target is cluster-scoped, this list is not allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_NAMESPACES),
        extend("x-kubernetes-list-type" = "set", "items" = {
            "type": "string", "minLength": 1, "maxLength": 63, "pattern": DNS_LABEL,
            "description": "Name of a namespace: at most 63 lowercase letters, digits or `-`, with a letter or digit first and last."
        })
    )]
    pub namespaces: Vec<String>,
    /// Labels for every operation of this rule set, at most 32. The keys under `ifo.kubevirt.io/`
    /// are reserved for the server, except `ifo.kubevirt.io/correlation-group` and
    /// `ifo.kubevirt.io/correlation-role`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = MAX_LABELS,
        "additionalProperties" = {
            "type": "string", "maxLength": 63, "pattern": OPTIONAL_VALUE,
            "description": "Label value: at most 63 letters, digits, `-`, `_` or `.`, with a letter or digit first and last."
        },
        "x-kubernetes-validations" = [
            {"rule": KEYS_ARE_QUALIFIED, "message": NOT_QUALIFIED},
            {"rule": KEYS_ARE_UNRESERVED, "message": RESERVED_KEY, "reason": "FieldValueForbidden"}
        ]
    ))]
    pub labels: BTreeMap<String, String>,
    /// Labels whose values are computed from the object, at most 32, with different keys. If a key
    /// is also in `labels`, the server uses the value in `labels`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_LABELS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"])
    )]
    pub label_expressions: Vec<LabelExpression>,
    /// CEL expression on `object` that yields a list of strings: the names of the nodes that the
    /// operations of this rule set touch. The server ignores empty strings, and shows only the
    /// first 16 nodes. If the expression fails, the operations show no nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub nodes: Option<String>,
}

/// The name of an operation, with the CEL expressions that detect and describe the operation.
///
/// All expressions can read `object`, `now` (the time of the evaluation) and `variables`. If the
/// rule has `forEach`, its other expressions can also read `item`, which is an element of the list.
///
/// If an expression fails, the effect depends on the field:
///
/// - `expression`, `continueWhile`, `forEach` and `itemKey`: If the object lacks a field that the
///   expression reads, the rule does not match. After any other failure, the operation stays as it
///   was.
/// - All other fields: The field has no value.
///
/// The server counts each failure, except missing fields, and shows the failure in the status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "an object")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": KEY_NEEDS_LIST, "message": "itemKey needs forEach, which is missing", "fieldPath": ".itemKey"},
    {"rule": STALL_NEEDS_PROGRESS, "message": "stalledAfter needs progress, which is missing", "fieldPath": ".stalledAfter"},
    {"rule": TEXT_NEEDS_OUTCOME, "message": "outcomeMessage needs outcome, which is missing", "fieldPath": ".outcomeMessage"}
]))]
#[schemars(transform = constraints::limit_expressions)]
pub struct Rule {
    /// Name of the operation, such as `Migrating`. The server sets the label
    /// `ifo.kubevirt.io/operation` to this name. So the name must be a label value: at most 63
    /// letters, digits, `-`, `_` or `.`, with a letter or digit first and last.
    #[schemars(length(min = 1, max = 63), regex(pattern = VALUE))]
    pub operation: String,
    /// CEL expression, of at most 4096 characters, that is true while the operation is in flight.
    /// If the expression reads a field that the object does not have, the result is false. After
    /// any other failure, the operation stays as it was.
    pub expression: String,
    /// CEL expression that yields a list of at most 1,000 elements. The server evaluates the rule
    /// for each element. The other expressions of the rule can read the element as `item`. Each
    /// element has a separate operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_each: Option<String>,
    /// CEL expression on `item` that yields a string or an int. This key identifies the element, so
    /// it must stay the same when the object changes. The default is the element itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_key: Option<String>,
    /// CEL expression that yields the message for people, a string. The server shows the first
    /// 1,024 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// CEL expression that yields the reason for scripts, a CamelCase string. The default is the
    /// name of the operation. The server also uses the default if the string is not CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// CEL expression that yields `Progressing` (the default), `Blocked` (the operation waits for
    /// another component or for a person), `Held` (a person has deliberately put the subject on
    /// hold) or `Failing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// CEL expression that yields the progress in percent: a number from 0 to 100 or a string such
    /// as `45.20%`. If the string is not a number, such as `N/A`, the progress is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// CEL expression that yields the start time of the operation: a timestamp or an RFC 3339
    /// string. It is evaluated once, when the operation is first detected. A time in the future is
    /// ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// CEL expression that yields the time since which the operation waited for its start, such as
    /// the time of the request: a timestamp or an RFC 3339 string. It is evaluated once, when the
    /// operation starts. A time after the start is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<String>,
    /// CEL expression that yields the identity of this run of the operation, a string such as the
    /// UID of a migration. When the identity changes, the operation ends and a new one starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// CEL expression that keeps a detected operation in flight: the operation continues while this
    /// expression is true, even if `expression` is false. `continueWhile` never starts an
    /// operation. If it reads a field that the object does not have, its result is false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continue_while: Option<String>,
    /// CEL expression that yields the result of the operation. The server evaluates it when
    /// `expression` and `continueWhile` are no longer true. With the result `Succeeded`, `Failed`
    /// or `Superseded`, the operation ends at once. With an empty string, the operation ends after
    /// its debounce period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// CEL expression that yields a text about the end of the operation, such as the cause of a
    /// failure. The server evaluates it when `outcome` ends the operation. The last message of the
    /// operation is this text, followed by the last `message` while the operation was in flight.
    /// If the outcome is `Failed` or `Superseded`, the default is the expression in `message`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome_message: Option<String>,
    /// True if the purpose of the operation is that the object is deleted. When the object is
    /// deleted, the operation then completes as `Succeeded`. All other operations on the object
    /// complete as `Ended`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deletes_subject: bool,
    /// Names of other operations of the same component on the same object; `*` means all of them.
    /// When this operation starts, the other operations end. While this operation is in flight, the
    /// other operations cannot start.
    ///
    /// Two operations can supersede each other. If only one of them is detected, it ends the other.
    /// If both are detected, only the operation whose rule comes first in the list is in flight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_RULES),
        extend("x-kubernetes-list-type" = "set", "items" = {
            "type": "string", "minLength": 1, "maxLength": 63, "pattern": OPERATION_OR_ALL,
            "description": "`*` for all operations, or the name of an operation: at most 63 letters, digits, `-`, `_` or `.`, with a letter or digit first and last."
        })
    )]
    pub supersedes: Vec<String>,
    /// Debounce period: if the operation is not detected for this time, it ends. The value is a
    /// duration such as `30s` or `1h30m`, of at most 24 hours. The default is a setting of the
    /// server, or 0 if the last state of the operation was `Held`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), regex(pattern = DURATION))]
    pub debounce: Option<String>,
    /// Time for which the operation must be detected without interruption before the server shows
    /// it: a duration of at most 24 hours, 0 by default. The start of the operation is still its
    /// first detection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), regex(pattern = DURATION))]
    pub appear_after: Option<String>,
    /// Time for which `state` must yield `Blocked` or `Failing` without interruption before the
    /// operation shows that state: a duration of at most 24 hours, 0 by default. Until then, the
    /// operation shows its previous state. A new operation shows `Progressing`. If `state` yields
    /// `Progressing` or `Held`, the operation shows it at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), regex(pattern = DURATION))]
    pub state_after: Option<String>,
    /// Time after which the operation counts as overdue: a duration such as `30m`, or a CEL
    /// expression that yields a duration. Without this time, the server compares the operation with
    /// earlier runs. Only time in the state `Progressing` counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_duration: Option<String>,
    /// If `progress` has not risen for this time, the operation counts as stalled. The value is a
    /// duration of at most 24 hours, or a CEL expression that yields a duration. Only time in the
    /// state `Progressing` counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_after: Option<String>,
    /// CEL expression that yields the amount of work, such as the size of a disk: a number or a
    /// quantity above 0. Before the server compares the durations of runs, it divides each duration
    /// by the amount of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// CEL expression that yields the key of the piece of work that this operation belongs to, a
    /// string such as the UID of a migration. Operations of one component with the same key, on any
    /// objects, are one piece of work. `kubectl ifo` shows one line for them. If the rule set has
    /// `namespaces`, the server puts `@NAMESPACE/` before the key, so that the operations of
    /// different namespaces are different pieces of work.
    ///
    /// A key that ends with `/` is only the beginning of a key. The operation then joins a piece of
    /// work whose key has this beginning, and that was in flight at the same time. For example, an
    /// operation with the key `migration/shop/web/` joins the piece `migration/shop/web/UID`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<String>,
    /// CEL expression that yields who or what started the operation, a string of at most 253 bytes
    /// such as the name of a user or of a controller. It is evaluated once, when the operation
    /// starts. Never yield a token or an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiator: Option<String>,
    /// CEL expression that yields the words of a command with which a person can stop the
    /// operation, a list of strings such as `['kubectl', 'delete', 'pod', object.metadata.name]`.
    /// The server quotes the words for a shell, and never executes the command. An empty list means
    /// that the operation cannot be stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<String>,
}

/// A value that several expressions share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "an object")]
pub struct Variable {
    /// Name of the variable: a letter or underscore, followed by letters, digits and underscores.
    #[schemars(length(min = 1, max = 63), regex(pattern = IDENTIFIER))]
    pub name: String,
    /// CEL expression that yields the value, of any type. The expression can read `object`, `now`
    /// and the variables that come before it in the list.
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub expression: String,
}

/// A label whose value is computed from the object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "an object")]
pub struct LabelExpression {
    /// The key of the label, a qualified name. The keys under `ifo.kubevirt.io/` are reserved for
    /// the server, except `ifo.kubevirt.io/correlation-group` and
    /// `ifo.kubevirt.io/correlation-role`.
    #[schemars(
        length(min = 1, max = MAX_KEY),
        extend("x-kubernetes-validations" = [
            {"rule": KEY_IS_QUALIFIED, "message": NOT_QUALIFIED},
            {"rule": KEY_IS_UNRESERVED, "message": RESERVED_KEY, "reason": "FieldValueForbidden"}
        ])
    )]
    pub key: String,
    /// CEL expression on `object`, of at most 4096 characters, that yields the value of the label,
    /// a string. If the expression fails, the operation does not get this label.
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub expression: String,
}

/// The state of a rule set as the server reports it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationRuleSetStatus {
    /// The value of the column READY: `NotInstalled` if the cluster does not serve the API group of
    /// the target, otherwise the status of the condition `Ready`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ready: String,
    /// `Ready` and `Validated` are always present. All other conditions, such as `InvalidRule`,
    /// `NotInstalled` and `WatchFailed`, are present only while they are true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// True if the server watches the target for this rule set, and the watch is up to date.
    #[serde(default)]
    pub watch_active: bool,
    /// Time of the last evaluation of the rules. The server updates this time together with other
    /// changes of the status. Without other changes, the server updates it at most once per requeue
    /// interval (60 s by default).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_evaluation_time: Option<Time>,
    /// metadata.generation of the rule set from which the server computed this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
