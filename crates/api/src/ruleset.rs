//! The type `ifo.kubevirt.io/v1alpha1` `OperationRuleSet`: rules that detect operations on the
//! objects of one resource. `make manifests` generates the CRD in `deploy/crd/` from this type.
//!
//! The schema refuses all errors that can be found without compiling expressions and without
//! discovery. The server reports other errors in [`OperationRuleSetStatus::conditions`]. The size
//! limits bound the work that one rule set can cause in the server. They also keep the validation
//! rules of the schema below the cost limit of the kube-apiserver.

mod constraints;
use crate::duration;
use constraints::{
    DNS_1035_LABEL, DNS_LABEL, DURATION, FEEDS_BACK, GROUP, IDENTIFIER, KEY_IS_FREE,
    KEY_IS_QUALIFIED, KEY_NEEDS_LIST, KEYS_ARE_FREE, KEYS_ARE_QUALIFIED, MAX_KEY, NOT_FREE,
    NOT_QUALIFIED, OPERATION_OR_ALL, OPTIONAL_VALUE, STALL_NEEDS_PROGRESS, VALUE,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Kind of rule sets.
pub const KIND: &str = "OperationRuleSet";
/// Reason of the condition `InvalidTarget` if the cluster serves the API group of the target, but
/// not the version or the resource. The target is the resource that the rule set watches.
pub const NOT_SERVED: &str = "NotServed";
/// Reason of the condition `InvalidTarget` if the cluster does not serve the target's API group.
pub const GROUP_NOT_SERVED: &str = "GroupNotServed";
/// Reason of the condition `Ready=False` if an evaluation failed, so that it is unknown whether an
/// operation is in flight on an object.
pub const EVALUATION_FAILED: &str = "EvaluationFailed";
/// Plural of rule sets.
pub const PLURAL: &str = "operationrulesets";
/// Label of the `ClusterRole` objects that allow the server to watch targets. The aggregated
/// ClusterRole in `deploy/rbac/targets.yaml` selects those in which this label has the value
/// `true`.
pub const AGGREGATE_LABEL: &str = "ifo.kubevirt.io/aggregate-to-targets";

/// Maximum number of rules in one rule set. Every rule is evaluated on every change of an object.
pub const MAX_RULES: usize = 64;
/// Maximum number of characters in one expression. The longest expression in the shipped rule sets
/// has about 700 characters.
pub const MAX_EXPRESSION: usize = 4096;
/// Maximum number of namespaces in one rule set. Each namespace can need its own watch.
pub const MAX_NAMESPACES: usize = 64;
/// Maximum number of fixed labels in one rule set, and maximum number of computed labels. Each
/// operation of the rule set can have all these labels.
pub const MAX_LABELS: usize = 32;

/// Maximum number of variables in one rule set.
pub const MAX_VARIABLES: usize = 32;
/// Maximum of `debounce`, `appearAfter` and `stateAfter`, in seconds. While such a time runs, the
/// server keeps the operation or its next state in memory.
pub const MAX_WAIT_SECONDS: u64 = 24 * 60 * 60;

/// Rules that detect operations on one resource. The server watches the resource and evaluates the
/// rules on every change of an object. While a rule detects its operation, the server shows an
/// `InFlightOperation` (`live.ifo.kubevirt.io`).
#[allow(
    clippy::duplicated_attributes,
    reason = "columns of one type repeat the attribute that says so"
)]
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
    printcolumn(
        name = "Component",
        type_ = "string",
        description = "The component that owns these rules.",
        json_path = ".spec.component"
    ),
    printcolumn(
        name = "Target",
        type_ = "string",
        description = "The resource that is watched.",
        json_path = ".spec.target.resource"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        description = "Whether operations are detected on every object of the target.",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        description = "Why the rule set is ready, or is not.",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        description = "Time since the rule set was created.",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Group",
        type_ = "string",
        description = "API group of the resource that is watched; empty is the core group.",
        json_path = ".spec.target.group",
        priority = 1
    ),
    printcolumn(
        name = "Watch Active",
        type_ = "boolean",
        description = "Whether the target is being watched for this rule set.",
        json_path = ".status.watchActive",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct OperationRuleSetSpec {
    /// The component that these rules belong to, such as `kubevirt`. It is the value of the label
    /// `ifo.kubevirt.io/component`, so it must be a label value: at most 63 letters, digits, `-`,
    /// `_` or `.`, with a letter or digit first and last.
    #[schemars(length(min = 1, max = 63), regex(pattern = VALUE))]
    pub component: String,
    /// The resource that is watched.
    #[schemars(extend("x-kubernetes-validations" = [
        {"rule": "!(self.group in ['ifo.kubevirt.io', 'live.ifo.kubevirt.io'])", "message": FEEDS_BACK, "fieldPath": ".group", "reason": "FieldValueForbidden"}
    ]))]
    pub target: Target,
    /// Selects objects of the target by their labels; none means all objects. An object that no
    /// longer matches is treated as an object on which no rule matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Values that several expressions share, at most 32, each name at most once. An expression
    /// reads one as `variables.name`. It is evaluated when it is first read, at most once for each
    /// object. A variable can read earlier variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_VARIABLES),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub variables: Vec<Variable>,
    /// The operations, each with the expression that detects it. At least one, at most 64, and each
    /// operation at most once.
    #[schemars(
        length(min = 1, max = MAX_RULES),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["operation"])
    )]
    pub rules: Vec<Rule>,
    /// The namespaces whose objects are watched, at most 64; none means all. Not allowed
    /// for a cluster-scoped target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_NAMESPACES),
        inner(length(min = 1, max = 63), regex(pattern = DNS_LABEL)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub namespaces: Vec<String>,
    /// Labels for every operation of this rule set, at most 32. The server sets the keys under
    /// `ifo.kubevirt.io/`; only `correlation-group` and `correlation-role` are allowed here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = MAX_LABELS,
        "additionalProperties" = {"type": "string", "maxLength": 63, "pattern": OPTIONAL_VALUE},
        "x-kubernetes-validations" = [
            {"rule": KEYS_ARE_QUALIFIED, "message": NOT_QUALIFIED},
            {"rule": KEYS_ARE_FREE, "message": NOT_FREE, "reason": "FieldValueForbidden"}
        ]
    ))]
    pub labels: BTreeMap<String, String>,
    /// Labels with values computed from the subject, at most 32, each key at most once. If a key is
    /// also in `labels`, the value in `labels` is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_LABELS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"])
    )]
    pub label_expressions: Vec<LabelExpression>,
    /// CEL expression on `object` that yields the names of the nodes that the operations of this
    /// rule set touch, a list of strings. An empty string in the list is ignored, and at most 16
    /// nodes are shown. If the expression fails, the operations show no nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub nodes: Option<String>,
}

/// The resource that a rule set watches, as discovery names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// API group, such as `kubevirt.io`; `""` is the core group. The groups `ifo.kubevirt.io` and
    /// `live.ifo.kubevirt.io` are refused, because operations cannot be detected on operations.
    #[schemars(length(max = 253), regex(pattern = GROUP))]
    pub group: String,
    /// API version, such as `v1`.
    #[schemars(length(min = 1, max = 63), regex(pattern = DNS_1035_LABEL))]
    pub version: String,
    /// Plural resource name in lower case, such as `virtualmachines`. Subresources cannot
    /// be watched.
    #[schemars(length(min = 1, max = 63), regex(pattern = DNS_1035_LABEL))]
    pub resource: String,
}

impl Target {
    /// Returns the resource as a [`Gvr`](crate::Gvr).
    pub fn gvr(&self) -> crate::Gvr {
        crate::Gvr {
            group: self.group.clone(),
            version: self.version.clone(),
            resource: self.resource.clone(),
        }
    }
}

/// An operation with the expressions that detect and describe it.
///
/// All expressions can read `object`, `now` (the time of the evaluation), `variables` and, with
/// `forEach`, `item`. If an expression other than `expression` reads a field that the object does
/// not have, its value is unset. Any other failure also leaves the value unset, and is counted and
/// shown in the status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": KEY_NEEDS_LIST, "message": "itemKey needs forEach, which is missing", "fieldPath": ".itemKey"},
    {"rule": STALL_NEEDS_PROGRESS, "message": "stalledAfter needs progress, which is missing", "fieldPath": ".stalledAfter"}
]))]
pub struct Rule {
    /// Name of the operation, such as `Migrating`. It is the value of the label
    /// `ifo.kubevirt.io/operation`, so it must be a label value: at most 63 letters, digits, `-`,
    /// `_` or `.`, with a letter or digit first and last.
    #[schemars(length(min = 1, max = 63), regex(pattern = VALUE))]
    pub operation: String,
    /// CEL expression that is true while the operation is in flight, of at most 4096 characters. If
    /// it reads a field that the object does not have, the operation is not in flight. Any other
    /// failure leaves the operation unchanged.
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub expression: String,
    /// CEL expression that yields a list. The rule is evaluated for each element, which all its
    /// expressions can read as `item`. Each element has a separate operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub for_each: Option<String>,
    /// CEL expression on `item` that yields its stable identity, a string or an int. The default is
    /// the element itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub item_key: Option<String>,
    /// CEL expression that yields the message for people, a string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub message: Option<String>,
    /// CEL expression that yields the reason for scripts, a CamelCase string. The default is the
    /// name of the operation, which also replaces a value that is not CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub reason: Option<String>,
    /// CEL expression that yields `Progressing` (the default), `Blocked` (the operation waits, or
    /// is held on purpose) or `Failing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub state: Option<String>,
    /// CEL expression that yields the progress in percent: a number from 0 to 100 or a string such
    /// as `45.20%`. Text without a number means that the progress is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub progress: Option<String>,
    /// CEL expression that yields the start time of the operation: a timestamp or an RFC 3339
    /// string. It is evaluated once, when the operation is first detected. A time in the future is
    /// ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub started_at: Option<String>,
    /// CEL expression that yields the identity of this run, a string such as the UID of a
    /// migration. When it changes, the operation ends and another one starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub instance: Option<String>,
    /// CEL expression that keeps a detected operation in flight: the operation continues while this
    /// expression is true, even if `expression` is not. It never starts an operation. A missing
    /// field means that it is not true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub continue_while: Option<String>,
    /// CEL expression that yields the result of the operation when it is no longer detected:
    /// `Succeeded`, `Failed` or `Superseded`. The operation then ends at once. With an empty
    /// string, it ends after the debounce period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub outcome: Option<String>,
    /// Operations of the same subject that end when this one starts, and that cannot start while it
    /// is active; `*` means all others. If two operations supersede each other, a newly detected
    /// one ends the other. If both are detected together, the first in the list of rules is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_RULES),
        inner(length(min = 1, max = 63), regex(pattern = OPERATION_OR_ALL)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub supersedes: Vec<String>,
    /// Time for which the operation must not be detected before it ends, instead of the server's
    /// default: a duration such as `30s` or `1h30m`, of at most 24 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), regex(pattern = DURATION))]
    pub debounce: Option<String>,
    /// Time for which the operation must be detected without interruption before it is shown: a
    /// duration of at most 24 hours, 0 by default. Its start is the first detection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), regex(pattern = DURATION))]
    pub appear_after: Option<String>,
    /// Time for which `state` must yield `Blocked` or `Failing` without interruption before the
    /// operation shows that state: a duration of at most 24 hours, 0 by default. Until then the
    /// operation keeps its previous state, which is `Progressing` at its start. `Progressing` is
    /// shown at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), regex(pattern = DURATION))]
    pub state_after: Option<String>,
    /// Time after which the operation counts as overdue: a duration such as `30m`, or a CEL
    /// expression that yields a duration. Without it, the durations of earlier runs decide. The
    /// time for which the operation is `Blocked`, `Failing` or `Settling` does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub expected_duration: Option<String>,
    /// Time for which `progress` must not have risen before the operation counts as stalled: a
    /// duration of at most 24 hours, or a CEL expression that yields a duration. The time for which
    /// the operation is `Blocked`, `Failing` or `Settling` does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub stalled_after: Option<String>,
    /// CEL expression that yields the amount of work, such as the size of a disk: a number or a
    /// quantity above 0. The durations of runs are then compared for each unit of this amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub size: Option<String>,
    /// CEL expression that yields the key of the piece of work that this operation belongs to, a
    /// string such as the UID of a migration. Operations with the same key, on any subject, are one
    /// piece of work, and `kubectl ifo` shows one line for them. A key that ends with `/` is the
    /// beginning of other keys: the operation belongs to a piece of work whose key begins with this
    /// key, and that was in flight at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub work: Option<String>,
}

impl Rule {
    /// Returns field name and source of each expression of the rule, except `forEach`. A fixed
    /// duration such as `30m` is left out, because it is not an expression. In a rule with
    /// `forEach`, the returned expressions can read `item`.
    pub fn expressions(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let optional = [
            ("itemKey", &self.item_key),
            ("continueWhile", &self.continue_while),
            ("message", &self.message),
            ("reason", &self.reason),
            ("state", &self.state),
            ("progress", &self.progress),
            ("startedAt", &self.started_at),
            ("instance", &self.instance),
            ("outcome", &self.outcome),
            ("size", &self.size),
            ("work", &self.work),
        ];
        let given = optional
            .into_iter()
            .filter_map(|(field, source)| Some((field, source.as_deref()?)));
        let durations = [
            ("expectedDuration", &self.expected_duration),
            ("stalledAfter", &self.stalled_after),
        ];
        let computed = durations.into_iter().filter_map(|(field, text)| {
            let text = text.as_deref()?;
            duration::parse(text).is_none().then_some((field, text))
        });
        std::iter::once(("expression", &*self.expression))
            .chain(given)
            .chain(computed)
    }
}

/// A value that several expressions share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Variable {
    /// Its name: a letter or underscore, followed by letters, digits and underscores.
    #[schemars(length(min = 1, max = 63), regex(pattern = IDENTIFIER))]
    pub name: String,
    /// CEL expression on `object`, `now` and earlier variables, of any type.
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub expression: String,
}

/// A label whose value is computed from the subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelExpression {
    /// The key of the label, a qualified name. The server sets the keys under `ifo.kubevirt.io/`;
    /// only `correlation-group` and `correlation-role` are allowed here.
    #[schemars(
        length(min = 1, max = MAX_KEY),
        extend("x-kubernetes-validations" = [
            {"rule": KEY_IS_QUALIFIED, "message": NOT_QUALIFIED},
            {"rule": KEY_IS_FREE, "message": NOT_FREE, "reason": "FieldValueForbidden"}
        ])
    )]
    pub key: String,
    /// CEL expression on `object` that yields a string, of at most 4096 characters. If it fails,
    /// the operation does not get this label.
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub expression: String,
}

/// The state of a rule set as the server reports it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationRuleSetStatus {
    /// `Ready` is always present. `Validated` is present when the rules were compiled.
    /// `InvalidRule`, `InvalidTarget` and `WatchFailed` are present only while they apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// True if the target is being watched for this rule set.
    #[serde(default)]
    pub watch_active: bool,
    /// Time of the last evaluation of the rules. It is updated with other changes, and otherwise at
    /// most once per requeue interval (60 s by default).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_evaluation_time: Option<Time>,
    /// metadata.generation of the rule set to which this status belongs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
