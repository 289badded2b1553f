//! Decides, for the command `wait`, whether an empty list proves that no matching operation is in
//! flight. `ifo-apiserver` detects operations with rule sets (`OperationRuleSet`). The list proves
//! nothing in two cases: no rule set can detect the matching operations, or one of their rule sets
//! does not work.

use crate::api_client::ListCompleteness;
use crate::filter::Filters;
use crate::plain_text::first_names;
use crate::problem::{HOME, Problem};
use crate::rule_sets::{ListedRuleSet, RuleSets};
use ifo_api::completeness::{Incomplete, NotWorking};
use ifo_api::{GROUP, ruleset};

/// Largest number of rule sets that a message names. The message only counts the others, such as
/// `a, b, c and 3 more`.
const MAX_NAMED: usize = 3;

/// The answer to the question: does `ifo-apiserver` detect all operations that match the filters?
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DetectionCheck {
    /// Yes.
    Clear,
    /// No, and waiting does not change this. For example, no rule set detects such operations. The
    /// text is the reason.
    Impossible(String),
    /// Perhaps not, but this can change while the user waits. For example, a rule set does not
    /// work. The text is the reason.
    Impaired(String),
}

/// Decides whether `ifo-apiserver` detects all operations that match `filters`. `completeness` is
/// that of the list of operations. `ignored` has the names of the rule sets that need not work
/// (`--ignore-rule-set`).
pub(super) fn check_detection(
    rule_sets: &RuleSets,
    filters: &Filters,
    completeness: &ListCompleteness,
    ignored: &[String],
) -> DetectionCheck {
    let counted = match counted(rule_sets, filters, ignored) {
        Ok(counted) => counted,
        Err(why) => return DetectionCheck::Impossible(why),
    };
    let outdated = counted.iter().filter(|it| !it.is_current());
    let outdated: Vec<&str> = outdated.map(|it| it.name()).collect();
    let reason = match completeness {
        _ if !outdated.is_empty() => {
            let outdated = first_names(outdated.into_iter(), MAX_NAMED);
            Some(format!("the server has not read rule set {outdated} yet"))
        }
        ListCompleteness::Incomplete(Incomplete::NotWorking(sets)) => {
            not_working_text(sets, &counted, ignored)
        }
        ListCompleteness::Incomplete(other) => Some(other.to_string()),
        ListCompleteness::Complete => None,
        // An older `ifo-apiserver` does not state whether its lists are complete.
        ListCompleteness::NotStated => {
            let broken = counted.iter().find(|it| !it.is_ready());
            broken.map(|it| {
                let why = it.not_ready_text();
                format!("a rule set is not working: {}{why}", it.name())
            })
        }
    };
    reason.map_or(DetectionCheck::Clear, DetectionCheck::Impaired)
}

/// Makes the same decision as [`check_detection`], for a user who may not read rule sets. `refused`
/// is the error for the refused request.
///
/// If the user filters by more than the namespace, a complete list gives
/// [`DetectionCheck::Impossible`]. Without the rule sets, the plugin cannot know whether a rule set
/// can detect the filtered operations.
pub(super) fn check_detection_without_rule_sets(
    filters: &Filters,
    completeness: &ListCompleteness,
    refused: &Problem,
) -> DetectionCheck {
    match completeness {
        ListCompleteness::Incomplete(why) => DetectionCheck::Impaired(why.to_string()),
        ListCompleteness::NotStated => DetectionCheck::Impossible(refused.to_string()),
        ListCompleteness::Complete if filters.with_namespace(None).is_unfiltered() => {
            DetectionCheck::Clear
        }
        ListCompleteness::Complete => DetectionCheck::Impossible(format!(
            "{refused}; without this right, --namespace is the only possible filter"
        )),
    }
}

/// Returns the rule sets that must work, so that all operations that match the filters are
/// detected. If there are none, returns the reason.
fn counted<'a>(
    rule_sets: &'a RuleSets,
    filters: &Filters,
    ignored: &[String],
) -> Result<Vec<&'a ListedRuleSet>, String> {
    if rule_sets.is_empty() {
        return Err(format!(
            "no OperationRuleSet is installed, so no operation can be detected; to install all rule sets of this release: \
             kubectl apply -k {HOME}/rules"
        ));
    }
    if let Some(message) = rule_sets.undetectable_message(filters) {
        return Err(message);
    }
    let detecting = rule_sets.items.iter().filter(|it| it.can_detect(filters));
    let all = first_names(detecting.clone().map(ListedRuleSet::name), MAX_NAMED);
    // If the cluster does not serve the API group of a target, no object of the target exists. So
    // the rule set of this target need not work.
    let mut counted: Vec<&ListedRuleSet> = detecting.filter(|it| !it.is_without_group()).collect();
    if counted.is_empty() {
        return Err(format!("the cluster serves none of the resources of {all}"));
    }
    counted.retain(|it| !ignored.iter().any(|name| name == it.name()));
    if counted.is_empty() {
        return Err("all rule sets that detect such operations are ignored".to_owned());
    }
    Ok(counted)
}

/// Returns the reasons why rule sets in `counted` do not work. `sets` has the rule sets that do not
/// work according to `ifo-apiserver`. None if those in `counted` work.
///
/// `ifo-apiserver` names at most ten rule sets, and only counts the others. It does not count the
/// rule sets in `ignored`, because the request names them. Any of the others can be in `counted`.
fn not_working_text(
    sets: &NotWorking,
    counted: &[&ListedRuleSet],
    ignored: &[String],
) -> Option<String> {
    let named = sets.named.iter().filter_map(|named| {
        let rule_set = counted.iter().find(|it| it.name() == named.name)?;
        let why = rule_set.not_ready_text();
        Some(format!("{} ({}{why})", named.name, named.reason))
    });
    let unnamed = sets.count.saturating_sub(sets.named.len());
    let unnamed = (unnamed > 0).then(|| format!("{unnamed} more"));
    let reasons: Vec<String> = named.chain(unnamed).collect();
    let hint = match ignored {
        [] => "; to ignore a rule set: --ignore-rule-set NAME",
        _ => "",
    };
    (!reasons.is_empty()).then(|| {
        format!(
            "rule sets are not working: {}; see: kubectl get {}.{GROUP}{hint}",
            reasons.join(", "),
            ruleset::PLURAL
        )
    })
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
        check_detection(&rule_sets, filters, &ListCompleteness::Complete, &[])
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
        check_detection(
            &rule_sets,
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
            check_detection(&rule_sets, filters, &ListCompleteness::NotStated, &[])
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
