//! `ifo.kubevirt.io/v1alpha1` `OperationRuleSet`: what operations look like on one resource.
//!
//! The CRD under `deploy/crd/` is generated from these types (`make manifests`). Its schema
//! refuses everything that can be refused without compiling an expression or asking
//! discovery; what is left is told in [`OperationRuleSetStatus::conditions`]. Limits on
//! sizes serve two ends: they bound what one rule set can cost the server, and they keep
//! the validation rules inside the cost budget that the kube-apiserver estimates for them.

mod constraints;

use constraints::{
    DNS_1035_LABEL, DNS_LABEL, DURATION, FEEDS_BACK, GROUP, IDENTIFIER, KEY_IS_FREE,
    KEY_IS_QUALIFIED, KEY_NEEDS_LIST, KEYS_ARE_FREE, KEYS_ARE_QUALIFIED, MAX_KEY, NOT_FREE,
    NOT_QUALIFIED, OPERATION_OR_ALL, OPTIONAL_VALUE, VALUE,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Kind of the rule sets.
pub const KIND: &str = "OperationRuleSet";
/// Reason of `InvalidTarget` while the cluster serves the target's API group, but not the
/// version or the resource.
pub const NOT_SERVED: &str = "NotServed";
/// Reason of `InvalidTarget` while the cluster does not serve the target's API group.
pub const GROUP_NOT_SERVED: &str = "GroupNotServed";
/// Reason of `Ready=False` while the detection of an operation is unknown on an object.
pub const EVALUATION_FAILED: &str = "EvaluationFailed";
/// Plural of the rule sets.
pub const PLURAL: &str = "operationrulesets";
/// The label of the `ClusterRole`s that let the server watch targets: with the value
/// `true`, `deploy/rbac/targets.yaml` adds their rules to the server's.
pub const AGGREGATE_LABEL: &str = "ifo.kubevirt.io/aggregate-to-targets";

/// Most rules in one rule set. Each is evaluated on every event of the target.
pub const MAX_RULES: usize = 64;
/// Most characters in one expression. The longest that ships has some 700.
pub const MAX_EXPRESSION: usize = 4096;
/// Most namespaces that one rule set names. Each may need a watch of its own.
pub const MAX_NAMESPACES: usize = 64;
/// Most static labels, and most computed ones: every operation carries them all.
pub const MAX_LABELS: usize = 32;

/// Most variables in one rule set.
pub const MAX_VARIABLES: usize = 32;
/// Longest `debounce`, `appearAfter` and `stateAfter`, in seconds: what waits is kept in memory.
pub const MAX_WAIT_SECONDS: u64 = 24 * 60 * 60;

/// What operations look like on one resource. The server watches the resource, evaluates
/// the rules on every change of an object, and shows an `InFlightOperation`
/// (`live.ifo.kubevirt.io`) for as long as a rule finds its operation under way.
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
    doc = "OperationRuleSet says what operations look like on one resource. The server watches the resource, evaluates the rules on every change of an object, and shows an InFlightOperation (live.ifo.kubevirt.io) for as long as a rule finds its operation under way.",
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
    /// The component that owns these rules, such as `kubevirt`. It becomes the value of
    /// the label `ifo.kubevirt.io/component`, so it must be a label value: at most 63
    /// letters, digits, `-`, `_` or `.`, with a letter or digit first and last.
    #[schemars(length(min = 1, max = 63), regex(pattern = VALUE))]
    pub component: String,
    /// The resource that is watched.
    #[schemars(extend("x-kubernetes-validations" = [
        {"rule": "!(self.group in ['ifo.kubevirt.io', 'live.ifo.kubevirt.io'])", "message": FEEDS_BACK, "fieldPath": ".group", "reason": "FieldValueForbidden"}
    ]))]
    pub target: Target,
    /// Which of the target's objects to look at, by their labels; none means all. An
    /// object that leaves the selection is taken as one on which no rule matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Values that several expressions share, at most 32, each name at most once. A
    /// variable is evaluated when it is first used, at most once for each object, and
    /// read as `variables.name`. It may use those before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_VARIABLES),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub variables: Vec<Variable>,
    /// The operations, each with the expression that detects it. At least one, at most
    /// 64, and each operation at most once.
    #[schemars(
        length(min = 1, max = MAX_RULES),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["operation"])
    )]
    pub rules: Vec<Rule>,
    /// Namespaces to look at, at most 64; none means all. Names a cluster-scoped
    /// target ignores.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_NAMESPACES),
        inner(length(min = 1, max = 63), regex(pattern = DNS_LABEL)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub namespaces: Vec<String>,
    /// Labels that every operation of this rule set gets, at most 32. Of the keys under
    /// `ifo.kubevirt.io/` only `correlation-group` and `correlation-role` may be used:
    /// the server sets the others.
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
    /// Labels whose values are computed from the subject, at most 32, each key at most
    /// once. A key that is also in `labels` keeps the value it has there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_LABELS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"])
    )]
    pub label_expressions: Vec<LabelExpression>,
}

/// The resource that a rule set watches, as discovery names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// API group, such as `kubevirt.io`; `""` is the core group. The groups
    /// `ifo.kubevirt.io` and `live.ifo.kubevirt.io` are refused, since operations would
    /// be detected on operations.
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
    /// The resource.
    pub fn gvr(&self) -> crate::Gvr {
        crate::Gvr {
            group: self.group.clone(),
            version: self.version.clone(),
            resource: self.resource.clone(),
        }
    }
}

/// One operation and what it looks like.
///
/// All expressions see `object`, `now` (the time of the evaluation), `variables` and, with
/// `forEach`, `item`. In those beside `expression`, a field that the object does not have
/// means that nothing is said; any other failure is counted and told in the status, and
/// nothing is said either.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": KEY_NEEDS_LIST, "message": "itemKey is of the elements of forEach, which is missing", "fieldPath": ".itemKey"}
]))]
pub struct Rule {
    /// Name of the operation, such as `Migrating`. It becomes the value of the label
    /// `ifo.kubevirt.io/operation`, so it must be a label value: at most 63 letters,
    /// digits, `-`, `_` or `.`, with a letter or digit first and last.
    #[schemars(length(min = 1, max = 63), regex(pattern = VALUE))]
    pub operation: String,
    /// CEL expression that is true while the operation is under way, of at most 4096
    /// characters. A field that the object does not have means "not under way"; any
    /// other failure leaves the operation as it was.
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub expression: String,
    /// CEL expression that yields a list: the rule is evaluated for each element, bound
    /// as `item` in all of its expressions, and each has an operation of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub for_each: Option<String>,
    /// CEL expression on `item` that yields its stable identity, a string or an int; the
    /// default is the element itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub item_key: Option<String>,
    /// CEL expression that yields a string: what to tell a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub message: Option<String>,
    /// CEL expression that yields a CamelCase string: what a script may compare. The
    /// default is the operation's name, which also stands for anything not CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub reason: Option<String>,
    /// CEL expression that yields `Progressing` (the default), `Blocked` (waits for
    /// someone or something else, or is held on purpose) or `Failing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub state: Option<String>,
    /// CEL expression that yields how far the operation is, in percent: a number from 0
    /// to 100 or a string such as `45.20%`. Text without a number means: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub progress: Option<String>,
    /// CEL expression that yields when the operation started: a timestamp or an RFC 3339
    /// string. It is asked once, when the operation is first seen; a time in the future
    /// is not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub started_at: Option<String>,
    /// CEL expression that yields the identity of this run, a string such as the UID of a
    /// migration. When it changes, the operation is over and another one starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub instance: Option<String>,
    /// CEL expression that keeps an operation in flight that `expression` has detected: the
    /// operation goes on while this is true, even if `expression` is not. It never starts an
    /// operation. A missing field means that it is not true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub continue_while: Option<String>,
    /// CEL expression that yields how the operation ended, once it is no longer detected:
    /// `Succeeded`, `Failed` or `Superseded`, and the operation is over at once; or an
    /// empty string, and it is over when the debounce is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub outcome: Option<String>,
    /// Operations of the same subject that this one ends when it starts, and keeps from
    /// starting while it is active; `*` is all others. If two supersede each other, the
    /// one that is detected ends the other; with both detected, the first in the list of
    /// rules wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_RULES),
        inner(length(min = 1, max = 63), regex(pattern = OPERATION_OR_ALL)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub supersedes: Vec<String>,
    /// How long the operation must not be detected before it is over, instead of the
    /// server's own debounce: a duration such as `30s` or `1h30m`, of at most 24 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), regex(pattern = DURATION))]
    pub debounce: Option<String>,
    /// How long the operation must be detected without a break before it is shown: a
    /// duration of at most 24 hours, 0 by default. It started when it was first detected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), regex(pattern = DURATION))]
    pub appear_after: Option<String>,
    /// How long `state` must yield `Blocked` or `Failing` without a break before the
    /// operation shows that state: a duration of at most 24 hours, 0 by default. Until then
    /// the operation keeps the state that it showed before, which is `Progressing` at its
    /// start. `Progressing` is shown at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), regex(pattern = DURATION))]
    pub state_after: Option<String>,
}

impl Rule {
    /// The rule's expressions beside `forEach`, each with its field; with `forEach`, these
    /// are the ones that see `item`.
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
        ];
        let given = optional
            .into_iter()
            .filter_map(|(field, source)| Some((field, source.as_deref()?)));
        std::iter::once(("expression", &*self.expression)).chain(given)
    }
}

/// A value that several expressions share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Variable {
    /// Its name: a letter or underscore, then letters, digits and underscores.
    #[schemars(length(min = 1, max = 63), regex(pattern = IDENTIFIER))]
    pub name: String,
    /// CEL expression on `object`, `now` and the variables before it, of any type.
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub expression: String,
}

/// A label whose value is computed from the subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelExpression {
    /// The label's key, a qualified name. Of the keys under `ifo.kubevirt.io/` only
    /// `correlation-group` and `correlation-role` may be used: the server sets the
    /// others.
    #[schemars(
        length(min = 1, max = MAX_KEY),
        extend("x-kubernetes-validations" = [
            {"rule": KEY_IS_QUALIFIED, "message": NOT_QUALIFIED},
            {"rule": KEY_IS_FREE, "message": NOT_FREE, "reason": "FieldValueForbidden"}
        ])
    )]
    pub key: String,
    /// CEL expression on `object` that yields a string, of at most 4096 characters. If
    /// it fails, the operation goes without this label.
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub expression: String,
}

/// What the server found out about a rule set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationRuleSetStatus {
    /// `Ready` is always there; `Validated` once the rules were compiled; `InvalidRule`,
    /// `InvalidTarget` and `WatchFailed` only while they apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Whether the target is being watched for this rule set.
    #[serde(default)]
    pub watch_active: bool,
    /// When the rules were last evaluated; refreshed with other changes, and alone at
    /// most once per requeue interval (60 s by default).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_evaluation_time: Option<Time>,
    /// metadata.generation of the rule set that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
