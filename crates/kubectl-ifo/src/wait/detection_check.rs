//! Decides, for the command `wait`, whether an empty list proves that no matching operation is in
//! flight. `ifo-apiserver` detects operations with rule sets (`OperationRuleSet`). The list proves
//! nothing in two cases: no rule set can detect the matching operations, or one of their rule sets
//! does not work.

use crate::api_client::{ApiClient, ListCompleteness};
use crate::discovered_kinds::ChosenKind;
use crate::filter::{FilterValue, Filters, is_empty_or_contains};
use crate::plain_text::first_names;
use crate::problem::{HOME, Problem};
use ifo_api::completeness::{Incomplete, NotWorking};
use ifo_api::ruleset::{self, LabelExpression, OperationRuleSetStatus};
use ifo_api::{GROUP, Gvr, VERSION, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The type of the condition that states why the target of a rule set (the resource that the rule
/// set watches) is invalid. The condition `Ready` only states that the target is invalid.
const INVALID_TARGET: &str = "InvalidTarget";

/// Largest number of rule sets that a message names. The message only counts the others, such as
/// `a, b, c and 3 more`.
const MAX_NAMED: usize = 3;

/// All rule sets of the cluster, with the fields that the checks of filters and of `wait` use.
#[derive(Debug, Deserialize)]
pub(crate) struct RuleSets {
    items: Vec<ListedRuleSet>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ListedRuleSet {
    metadata: ObjectMeta,
    spec: ListedSpec,
    status: OperationRuleSetStatus,
}

/// The fields in the spec of a rule set that determine which operations it detects.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListedSpec {
    component: String,
    target: Gvr,
    rules: Vec<ListedRule>,
    namespaces: Vec<String>,
    labels: BTreeMap<String, Value>,
    label_expressions: Vec<LabelExpression>,
    /// The expression that yields the nodes of an operation. None if the operations of the rule set
    /// have no nodes.
    nodes: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ListedRule {
    operation: String,
}

/// The answer to the question: does `ifo-apiserver` detect all operations that match the filters?
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DetectionCheck {
    /// Yes.
    Clear,
    /// No, and waiting does not change this. For example, no rule set detects such operations. The
    /// text is the reason.
    Impossible(String),
    /// Perhaps not, but this can change while the user waits. For example, a rule set does not
    /// work. The text is the reason.
    Impaired(String),
}

impl RuleSets {
    /// Reads all rule sets.
    pub(crate) async fn read(server: &ApiClient) -> Result<Self, Problem> {
        let plural = ruleset::PLURAL;
        let uri = format!("/apis/{GROUP}/{VERSION}/{plural}");
        server.get(&uri, &format!("{plural}.{GROUP}"), None).await
    }

    /// Decides whether `ifo-apiserver` detects all operations that match `filters`. `completeness`
    /// comes from the newest list of operations. `ignored` has the names of the rule sets that need
    /// not work (`--ignore-rule-set`).
    pub(crate) fn check_detection(
        &self,
        filters: &Filters,
        completeness: &ListCompleteness,
        ignored: &[String],
    ) -> DetectionCheck {
        if self.items.is_empty() {
            return DetectionCheck::Impossible(format!(
                "no OperationRuleSet is installed, so no operation can be detected; to install all rule sets of this release: \
                 kubectl apply -k {HOME}/rules"
            ));
        }
        if let Some(message) = self.undetectable_message(filters) {
            return DetectionCheck::Impossible(message);
        }
        let relevant: Vec<&ListedRuleSet> = self
            .items
            .iter()
            .filter(|it| it.can_detect(filters))
            .collect();
        // If the cluster does not serve the API group of a target, no object of the target exists.
        // So the rule set of this target need not work.
        let served: Vec<&ListedRuleSet> = relevant
            .iter()
            .copied()
            .filter(|it| !it.is_without_group())
            .collect();
        if served.is_empty() {
            return DetectionCheck::Impossible(format!(
                "the cluster serves none of the resources of {}",
                first_names(relevant.iter().map(|it| it.name()), MAX_NAMED)
            ));
        }
        let counted: Vec<&ListedRuleSet> = served
            .into_iter()
            .filter(|it| !ignored.iter().any(|name| name == it.name()))
            .collect();
        if counted.is_empty() {
            return DetectionCheck::Impossible(
                "all rule sets that detect such operations are ignored".to_owned(),
            );
        }
        let outdated = counted.iter().filter(|it| !it.is_current());
        let outdated: Vec<&str> = outdated.map(|it| it.name()).collect();
        if !outdated.is_empty() {
            let outdated = first_names(outdated.into_iter(), MAX_NAMED);
            return DetectionCheck::Impaired(format!(
                "the server has not read rule set {outdated} yet"
            ));
        }
        match completeness {
            ListCompleteness::Incomplete(Incomplete::NotWorking(sets)) => {
                check_not_working(sets, &counted, ignored)
            }
            ListCompleteness::Incomplete(other) => DetectionCheck::Impaired(other.to_string()),
            ListCompleteness::Complete => DetectionCheck::Clear,
            ListCompleteness::NotStated => check_ready_conditions(&counted),
        }
    }

    /// Returns the first name in `ignored` that no rule set has.
    pub(crate) fn first_unknown<'a>(&self, ignored: &'a [String]) -> Option<&'a String> {
        let is_there = |name: &String| self.items.iter().any(|it| it.name() == name);
        ignored.iter().find(|name| !is_there(name))
    }
}

/// Makes the same decision as [`RuleSets::check_detection`], for a user who may not read rule sets.
/// `refused` is the error for the refused request. The decision uses only `completeness`, which
/// comes from the newest list of operations.
///
/// If the user filters by more than the namespace, a complete list gives
/// [`DetectionCheck::Impossible`]. Without the rule sets, the plugin cannot know whether a rule set
/// can detect the filtered operations.
pub(crate) fn check_detection_without_rule_sets(
    filters: &Filters,
    completeness: &ListCompleteness,
    refused: &Problem,
) -> DetectionCheck {
    let only_namespace = filters.with_namespace(None).is_unfiltered();
    match completeness {
        ListCompleteness::Incomplete(incomplete) => {
            DetectionCheck::Impaired(incomplete.to_string())
        }
        ListCompleteness::Complete if only_namespace => DetectionCheck::Clear,
        ListCompleteness::Complete => DetectionCheck::Impossible(format!(
            "{refused}; without this right, --namespace is the only possible filter"
        )),
        ListCompleteness::NotStated => DetectionCheck::Impossible(refused.to_string()),
    }
}

/// Decides from the conditions `Ready` of the rule sets, for an older `ifo-apiserver` that does not
/// state whether its lists are complete. `counted` has the rule sets that must work.
fn check_ready_conditions(counted: &[&ListedRuleSet]) -> DetectionCheck {
    let mut reasons = counted
        .iter()
        .filter(|it| it.ready().is_none_or(|ready| ready.status != "True"))
        .map(|it| format!("{}{}", it.name(), it.not_ready_text()));
    match reasons.next() {
        None => DetectionCheck::Clear,
        Some(first) => DetectionCheck::Impaired(format!("a rule set is not working: {first}")),
    }
}

/// Decides from `sets`, the rule sets that do not work according to `ifo-apiserver`. `counted` has
/// the rule sets that must work. A rule set that is named in `sets` matters only if it is in
/// `counted`.
fn check_not_working(
    sets: &NotWorking,
    counted: &[&ListedRuleSet],
    ignored: &[String],
) -> DetectionCheck {
    let mut reasons = Vec::new();
    for named in &sets.named {
        let own = counted.iter().find(|it| it.name() == named.name);
        if let Some(rule_set) = own {
            let why = rule_set.not_ready_text();
            reasons.push(format!("{} ({}{why})", named.name, named.reason));
        }
    }
    // `ifo-apiserver` names at most ten rule sets, and only counts the others. It does not count
    // the rule sets in `ignored`, because the request names them (`IGNORED_HEADER`). Any of the
    // others can be in `counted`, so the result is `Impaired`.
    let unnamed = sets.count.saturating_sub(sets.named.len());
    if unnamed > 0 {
        reasons.push(format!("{unnamed} more"));
    }
    if reasons.is_empty() {
        return DetectionCheck::Clear;
    }
    let ignoring = if ignored.is_empty() {
        "; to ignore a rule set: --ignore-rule-set NAME"
    } else {
        ""
    };
    DetectionCheck::Impaired(format!(
        "rule sets are not working: {}; see: kubectl get {}.{GROUP}{ignoring}",
        reasons.join(", "),
        ruleset::PLURAL
    ))
}

impl RuleSets {
    /// Returns true if there are no rule sets.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns true if a rule set can detect operations that match the filters.
    pub(crate) fn can_detect(&self, filters: &Filters) -> bool {
        self.items.iter().any(|it| it.can_detect(filters))
    }

    /// Returns true if a rule set watches this kind and the cluster serves the watched resource.
    pub(crate) fn watches(&self, kind: &ChosenKind) -> bool {
        let filters = FilterValue::Kind(kind).alone();
        let mut items = self.items.iter();
        items.any(|it| it.can_detect(&filters) && !it.is_without_target())
    }

    /// Returns the components of all rule sets.
    pub(crate) fn components(&self) -> impl Iterator<Item = &str> {
        self.items.iter().map(|it| it.spec.component.as_str())
    }

    /// Returns the names of the operations that the rule sets detect.
    pub(crate) fn operations(&self) -> impl Iterator<Item = &str> {
        let rules = self.items.iter().flat_map(|it| &it.spec.rules);
        rules.map(|it| it.operation.as_str())
    }

    /// Returns the plural names of the targets that the cluster serves.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &str> {
        let there = self.items.iter().filter(|it| !it.is_without_target());
        there.map(|it| it.spec.target.resource.as_str())
    }

    /// Returns a message about the first problem of the filters. Returns None if there is no
    /// problem. The possible problems are, in this order:
    ///
    /// 1. A filter value for which no rule set can detect operations. Each value needs a rule set:
    ///    with `-k vm,pod`, a rule set for virtual machines is not enough.
    /// 2. A filter value whose rule sets do not fit the other filters. With `-c olm -k vm`, all
    ///    rule sets for virtual machines can be of other components than `olm`.
    /// 3. A label that no matching operation can have ([`Self::unknown_label_message`]).
    pub(crate) fn undetectable_message(&self, filters: &Filters) -> Option<String> {
        let values = filters.values();
        let alone = values.iter().find(|it| !self.can_detect(&it.alone()));
        let together = || {
            let mut values = values.iter();
            values.find(|it| !self.can_detect(&it.put_into(filters.clone())))
        };
        let Some(value) = alone.or_else(together) else {
            return self.unknown_label_message(filters);
        };
        let beside = if alone.is_some() || values.len() == 1 {
            ""
        } else {
            " together with the other filters"
        };
        let vague = match value {
            FilterValue::Kind(kind) if kind.may_exist_unseen() => {
                "; the kinds of the cluster are unknown, so give the full name of the kind"
            }
            FilterValue::Node(_) => "; no such rule set has the field spec.nodes",
            _ => "",
        };
        Some(format!(
            "no OperationRuleSet detects such operations: check {value}{beside}{vague}"
        ))
    }

    /// Returns a message about the first label in the selector that no matching operation can have.
    /// The user has probably misspelt this label. None if operations can have all labels.
    pub(crate) fn unknown_label_message(&self, filters: &Filters) -> Option<String> {
        let keys = selector_keys(filters.selector.as_deref()?);
        let mut unknown = keys.filter(|key| {
            let own = key.strip_prefix(labels::PREFIX);
            let is_set_by_server = own.is_some_and(|it| labels::SERVER_SUFFIXES.contains(&it));
            let mut relevant = self.items.iter().filter(|it| it.can_detect(filters));
            !is_set_by_server && !relevant.any(|it| it.sets_label(key))
        });
        unknown.next().map(|key| {
            format!(
                "neither the server nor an OperationRuleSet gives such operations a label {key:?}: check --selector"
            )
        })
    }
}

/// Returns the keys of the labels in a selector: `team in (a,b),!tier` gives `team` and `tier`. The
/// server has accepted the selector, so its syntax is valid.
fn selector_keys(selector: &str) -> impl Iterator<Item = &str> {
    let mut open_parentheses = 0_usize;
    let requirements = selector.split(move |c: char| {
        match c {
            '(' => open_parentheses += 1,
            ')' => open_parentheses = open_parentheses.saturating_sub(1),
            _ => {}
        }
        c == ',' && open_parentheses == 0
    });
    let is_space = |c: char| c.is_ascii_whitespace();
    let ends_key = move |c: char| is_space(c) || matches!(c, '=' | '!' | '<' | '>' | '(');
    requirements
        .map(move |it| it.trim_start_matches(|c: char| is_space(c) || c == '!'))
        .map(move |it| it.split(ends_key).next().unwrap_or_default())
        .filter(|key| !key.is_empty())
}

impl ListedRuleSet {
    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns true if the rule set can detect operations that match the filters.
    fn can_detect(&self, filters: &Filters) -> bool {
        let spec = &self.spec;
        let namespace =
            |namespace: &String| spec.namespaces.is_empty() || spec.namespaces.contains(namespace);
        is_empty_or_contains(&filters.component, &spec.component)
            && (filters.kind.is_empty()
                || filters
                    .kind
                    .iter()
                    .any(|it| it.matches_resource(&spec.target)))
            && (filters.operation.is_empty()
                || spec
                    .rules
                    .iter()
                    .any(|it| is_empty_or_contains(&filters.operation, &it.operation)))
            && (filters.node.is_empty() || spec.nodes.is_some())
            && filters.namespace.as_ref().is_none_or(namespace)
    }

    /// Returns true if the rule set gives operations a label with this key.
    fn sets_label(&self, key: &str) -> bool {
        let mut computed = self.spec.label_expressions.iter();
        self.spec.labels.contains_key(key) || computed.any(|it| it.key == key)
    }

    fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|it| it.type_ == type_)
    }

    fn ready(&self) -> Option<&Condition> {
        self.condition("Ready")
    }

    /// Returns true if the status is about the current generation of the rule set.
    fn is_current(&self) -> bool {
        self.metadata.generation.is_none()
            || self.status.observed_generation == self.metadata.generation
    }

    /// Returns true if the cluster does not serve the API group of the target.
    fn is_without_group(&self) -> bool {
        self.has_unusable_target(&[ruleset::GROUP_NOT_SERVED])
    }

    /// Returns true if the cluster does not serve the target: its group, version or resource.
    fn is_without_target(&self) -> bool {
        self.has_unusable_target(&[ruleset::GROUP_NOT_SERVED, ruleset::NOT_SERVED])
    }

    /// Returns true if the server cannot watch the target for one of `reasons`.
    fn has_unusable_target(&self, reasons: &[&str]) -> bool {
        let conditions = [ruleset::NOT_INSTALLED, INVALID_TARGET].map(|it| self.condition(it));
        let mut unusable = conditions.into_iter().flatten();
        self.is_current()
            && unusable.any(|it| it.status == "True" && reasons.contains(&it.reason.as_str()))
    }

    /// Returns the message of the condition `Ready` as the end of a sentence: `: MESSAGE`. Empty if
    /// the status of the condition is `True`, or if there is no message.
    fn not_ready_text(&self) -> String {
        match self.ready() {
            Some(ready) if ready.status != "True" && !ready.message.is_empty() => {
                format!(": {}", ready.message)
            }
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_api::completeness::Named;
    use serde_json::{Value, json};

    fn condition(type_: &str, status: &str, reason: &str) -> Value {
        json!({
            "type": type_, "status": status, "reason": reason, "message": "because",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    }

    fn rule_set(name: &str, status: &str, reason: &str) -> Value {
        json!({
            "metadata": {"name": name, "generation": 2},
            "spec": {
                "component": name, "rules": [{"operation": "Migrating"}], "namespaces": [],
                "target": {"group": "kubevirt.io", "version": "v1", "resource": "virtualmachines"},
            },
            "status": {
                "observedGeneration": 2,
                "conditions": [condition("Ready", status, reason)],
            },
        })
    }

    /// Returns a rule set with the status that `ifo-apiserver` writes if the cluster does not serve
    /// the API group of the target.
    fn without_target(name: &str) -> Value {
        let mut rule_set = rule_set(name, "False", "NotInstalled");
        rule_set["status"]["conditions"] = json!([
            condition("Ready", "False", "NotInstalled"),
            condition("NotInstalled", "True", "GroupNotServed"),
            condition("Validated", "True", "RulesCompiled"),
        ]);
        rule_set
    }

    fn check(items: &[Value], filters: &Filters) -> DetectionCheck {
        let rule_sets: RuleSets = serde_json::from_value(json!({ "items": items })).unwrap();
        rule_sets.check_detection(filters, &ListCompleteness::Complete, &[])
    }

    fn of(component: &str) -> Filters {
        Filters {
            component: vec![component.to_owned()],
            ..Filters::default()
        }
    }

    #[test]
    fn without_rule_sets_idle_cannot_be_known() {
        let all = Filters::default();
        assert!(matches!(check(&[], &all), DetectionCheck::Impossible(_)));
        let watching = rule_set("a", "True", "Watching");
        assert_eq!(
            check(std::slice::from_ref(&watching), &all),
            DetectionCheck::Clear
        );
        assert!(matches!(
            check(&[watching], &of("other")),
            DetectionCheck::Impossible(_)
        ));
    }

    /// Returns the statement of `ifo-apiserver` that `count` rule sets do not work. The statement
    /// names the rule sets in `names`.
    fn warning(count: usize, names: &[&str]) -> Incomplete {
        let named = names.iter().map(|name| Named {
            name: (*name).to_owned(),
            reason: "evaluation fails on 3 objects".to_owned(),
        });
        Incomplete::NotWorking(NotWorking {
            count,
            total: 61,
            named: named.collect(),
        })
    }

    fn warned(
        items: &[Value],
        filters: &Filters,
        warning: &Incomplete,
        ignored: &[&str],
    ) -> DetectionCheck {
        let rule_sets: RuleSets = serde_json::from_value(json!({ "items": items })).unwrap();
        let ignored: Vec<String> = ignored.iter().map(|&it| it.to_owned()).collect();
        rule_sets.check_detection(
            filters,
            &ListCompleteness::Incomplete(warning.clone()),
            &ignored,
        )
    }

    #[test]
    fn a_rule_set_that_does_not_work_is_reported_with_its_failure() {
        let items = [
            rule_set("a", "True", "Watching"),
            rule_set("b", "False", "EvaluationFailed"),
        ];
        let all = Filters::default();
        let DetectionCheck::Impaired(why) = warned(&items, &all, &warning(1, &["b"]), &[]) else {
            panic!("the result must be Impaired, because b does not work");
        };
        assert!(
            why.contains("b (evaluation fails on 3 objects: because)"),
            "{why}"
        );
        assert!(why.contains("--ignore-rule-set"), "{why}");
        // If the server states that its list is complete, the status of the rule set does not
        // matter.
        assert_eq!(check(&items, &all), DetectionCheck::Clear);
        // The rule set `b` does not matter, because it does not detect operations of the component
        // `a`. Filters ignore case.
        assert_eq!(
            warned(&items, &of("A"), &warning(1, &["b"]), &[]),
            DetectionCheck::Clear
        );
    }

    #[test]
    fn status_decides_where_the_server_does_not_say_whether_lists_are_complete() {
        let items = [
            rule_set("a", "True", "Watching"),
            rule_set("b", "False", "WatchFailed"),
        ];
        let rule_sets: RuleSets = serde_json::from_value(json!({ "items": items })).unwrap();
        let checked = |filters: &Filters| {
            rule_sets.check_detection(filters, &ListCompleteness::NotStated, &[])
        };
        assert_eq!(checked(&of("a")), DetectionCheck::Clear);
        assert!(
            matches!(checked(&of("b")), DetectionCheck::Impaired(why) if why.contains("b: because"))
        );
    }

    #[test]
    fn ignored_rule_set_does_not_count() {
        let items = [
            rule_set("a", "True", "Watching"),
            rule_set("b", "False", "EvaluationFailed"),
        ];
        let all = Filters::default();
        assert_eq!(
            warned(&items, &all, &warning(1, &["b"]), &["b"]),
            DetectionCheck::Clear
        );
        let both = warned(&items, &all, &warning(2, &["a", "b"]), &["b"]);
        assert!(matches!(both, DetectionCheck::Impaired(why) if why.contains("working: a (")));
        // The server names only one of three rule sets. The server has left out the ignored rule
        // sets already, so the other two are not ignored.
        let more = warned(&items, &all, &warning(3, &["b"]), &["b"]);
        assert!(matches!(more, DetectionCheck::Impaired(why) if why.contains("2 more")));
        let none = warned(&items, &of("b"), &warning(1, &["b"]), &["b"]);
        assert!(matches!(none, DetectionCheck::Impossible(why) if why.contains("are ignored")));
    }

    #[test]
    fn user_who_may_not_read_rule_sets_relies_on_the_warning() {
        let refused = Problem::Forbidden {
            verb: "list",
            resource: "operationrulesets.ifo.kubevirt.io".to_owned(),
            namespace: None,
            user: None,
        };
        let own = Filters {
            namespace: Some("shop".to_owned()),
            ..Filters::default()
        };
        let check = |filters: &Filters, completeness: &ListCompleteness| {
            check_detection_without_rule_sets(filters, completeness, &refused)
        };
        let complete = ListCompleteness::Complete;
        assert_eq!(check(&own, &complete), DetectionCheck::Clear);
        let incomplete = ListCompleteness::Incomplete(warning(1, &[]));
        assert!(matches!(
            check(&own, &incomplete),
            DetectionCheck::Impaired(_)
        ));
        // The component can be misspelt, and no rule sets show whether it exists.
        assert!(matches!(
            check(&of("kubvirt"), &complete),
            DetectionCheck::Impossible(_)
        ));
        // An older server does not state whether its list is complete.
        assert!(matches!(
            check(&own, &ListCompleteness::NotStated),
            DetectionCheck::Impossible(_)
        ));
    }

    #[test]
    fn a_status_about_an_older_generation_does_not_count() {
        let mut stale = rule_set("a", "True", "Watching");
        stale["metadata"]["generation"] = json!(3);
        assert!(matches!(
            check(&[stale], &Filters::default()),
            DetectionCheck::Impaired(_)
        ));
        let without_status = json!({"metadata": {"name": "a", "generation": 1}, "spec": {"component": "a", "rules": []}});
        assert!(matches!(
            check(&[without_status], &Filters::default()),
            DetectionCheck::Impaired(_)
        ));
    }

    #[test]
    fn a_target_that_is_not_installed_counts_as_idle() {
        let missing = without_target("a");
        let watching = rule_set("b", "True", "Watching");
        let all = Filters::default();
        assert_eq!(
            check(&[missing.clone(), watching], &all),
            DetectionCheck::Clear
        );
        assert!(matches!(
            check(&[missing], &all),
            DetectionCheck::Impossible(_)
        ));
    }

    #[test]
    fn a_target_rejected_for_another_reason_counts_as_unknown() {
        for reason in ["ClusterScoped", "NotServed"] {
            let mut refused = without_target("a");
            refused["status"]["conditions"][1]["reason"] = json!(reason);
            let items = [refused, rule_set("b", "True", "Watching")];
            let result = warned(&items, &of("a"), &warning(1, &["a"]), &[]);
            assert!(matches!(result, DetectionCheck::Impaired(_)), "{reason}");
        }
    }

    #[test]
    fn selector_keys_are_distinguished_from_values() {
        let all: Vec<&str> =
            selector_keys("a.b/c=d, e in (f,g) ,!h,i notin(j),k!=l,m>3 , ! n,o==,p , q").collect();
        assert_eq!(all, ["a.b/c", "e", "h", "i", "k", "m", "n", "o", "p", "q"]);
        assert_eq!(selector_keys("").count(), 0);
    }

    #[test]
    fn a_label_must_be_set_by_some_rule_set() {
        let mut labelled = rule_set("a", "True", "Watching");
        labelled["spec"]["labels"] = json!({"team": "x"});
        labelled["spec"]["labelExpressions"] =
            json!([{"key": "ifo.kubevirt.io/correlation-group", "expression": "'x'"}]);
        let items = [labelled, rule_set("b", "True", "Watching")];
        let by = |selector: &str| Filters {
            selector: Some(selector.to_owned()),
            ..Filters::default()
        };
        for selector in [
            "ifo.kubevirt.io/subject-kind=Deployment,team in (x,y)",
            "ifo.kubevirt.io/correlation-group=x",
            "",
        ] {
            assert_eq!(
                check(&items, &by(selector)),
                DetectionCheck::Clear,
                "{selector}"
            );
        }
        for (selector, key) in [
            (
                "ifo.kubevirt.io/subjct-kind=Deployment",
                "ifo.kubevirt.io/subjct-kind",
            ),
            ("team=x,taem=x", "taem"),
            (
                "!ifo.kubevirt.io/correlation-role",
                "ifo.kubevirt.io/correlation-role",
            ),
        ] {
            let DetectionCheck::Impossible(why) = check(&items, &by(selector)) else {
                panic!("the result must be Impossible, because no operation has the label {key}");
            };
            assert!(why.contains(&format!("{key:?}")), "{why}");
        }
        let component = vec!["b".to_owned()];
        let others = Filters {
            component,
            ..by("team=x")
        };
        assert!(matches!(
            check(&items, &others),
            DetectionCheck::Impossible(_)
        ));
    }

    #[test]
    fn each_kind_component_and_operation_needs_a_working_rule_set() {
        let items = [rule_set("a", "True", "Watching")];
        let chosen = |kinds: &[&str]| Filters {
            kind: kinds.iter().map(|it| it.parse().unwrap()).collect(),
            ..Filters::default()
        };
        assert_eq!(
            check(&items, &chosen(&["VirtualMachine"])),
            DetectionCheck::Clear
        );
        for kinds in [&["Pod"][..], &["VirtualMachine", "Pod"]] {
            let DetectionCheck::Impossible(why) = check(&items, &chosen(kinds)) else {
                panic!("the result must be Impossible, because no rule set watches pods");
            };
            assert!(why.contains("check --kind Pod"), "{why}");
        }
        let mut both = of("a");
        both.component.push("b".to_owned());
        assert!(matches!(
            check(&items, &both),
            DetectionCheck::Impossible(_)
        ));
    }
}
