//! Decides, for the command `wait`, whether an empty list proves that no matching operation is in
//! flight. It proves nothing if no rule set (`OperationRuleSet`) can detect the matching operations,
//! or if one of their rule sets does not work.

use crate::api_client::ListCompleteness;
use crate::filter::Filters;
use crate::problem::{HOME, Problem};
use crate::rule_sets::{ListedRuleSet, RuleSets};
use ifo_api::GROUP;
use ifo_api::completeness::{Incomplete, NotWorking};

/// The reason why `ifo-apiserver` may not detect all operations that match the filters.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Waiting does not remove this reason. For example, no rule set detects such operations.
    Lasting(String),
    /// This reason can go away while the user waits. For example, a rule set does not work.
    Temporary(String),
}

/// Returns the reason why `ifo-apiserver` may not detect all operations that match `filters`. None if
/// it detects all. `rule_sets` is the answer to the request for all rule sets, and `completeness` is
/// that of the list of operations. `ignored` has the names of the rule sets that need not work
/// (`--ignore-rule-set`).
pub(super) fn doubt(
    rule_sets: Result<&RuleSets, &Problem>,
    filters: &Filters,
    completeness: &ListCompleteness,
    ignored: &[String],
) -> Option<Doubt> {
    let detecting = match rule_sets {
        Ok(rule_sets) => match detecting(rule_sets, filters, ignored) {
            Ok(detecting) => Some(detecting),
            Err(why) => return Some(Doubt::Lasting(why)),
        },
        // The user may not read rule sets. So the plugin cannot know whether a rule set detects
        // operations that other filters than the namespace select.
        Err(_) if filters.with_namespace(None).is_unfiltered() => None,
        Err(refused) => {
            let hint = "without this right, --namespace is the only possible filter";
            return Some(Doubt::Lasting(format!("{refused}; {hint}")));
        }
    };
    let mut unread = detecting.iter().flatten().filter(|it| !it.is_current());
    if let Some(unread) = unread.next() {
        let why = format!("the server has not read rule set {} yet", unread.name());
        return Some(Doubt::Temporary(why));
    }
    let why = match (completeness, detecting) {
        (ListCompleteness::Complete, _) => return None,
        (ListCompleteness::NotStated, _) => {
            "the server does not state whether its list is complete".to_owned()
        }
        (ListCompleteness::Incomplete(Incomplete::NotWorking(sets)), Some(detecting)) => {
            not_working_text(sets, &detecting)?
        }
        (ListCompleteness::Incomplete(why), _) => why.to_string(),
    };
    Some(Doubt::Temporary(why))
}

/// Returns the rule sets that must work, so that all operations that match the filters are
/// detected. If there are none, returns the reason.
fn detecting<'a>(
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
    // If the cluster does not serve the API group of a target, no object of the target exists. So
    // the rule set of this target need not work.
    let must_work = |it: &&ListedRuleSet| {
        it.can_detect(filters)
            && !it.is_without_group()
            && !ignored.iter().any(|name| name == it.name())
    };
    let detecting: Vec<_> = rule_sets.items.iter().filter(must_work).collect();
    if detecting.is_empty() {
        return Err(
            "the cluster serves no resource of the rule sets that detect such operations, or \
             --ignore-rule-set names these rule sets"
                .to_owned(),
        );
    }
    Ok(detecting)
}

/// Returns the reasons why rule sets in `detecting` do not work. None if they all work. `sets` has
/// the rule sets that do not work according to `ifo-apiserver`. `ifo-apiserver` names at most ten of
/// them and counts the others. Any of the others can be in `detecting`.
fn not_working_text(sets: &NotWorking, detecting: &[&ListedRuleSet]) -> Option<String> {
    let named = sets.named.iter().filter_map(|named| {
        let rule_set = detecting.iter().find(|it| it.name() == named.name)?;
        let why = rule_set.not_ready_text();
        Some(format!("{} ({}{why})", named.name, named.reason))
    });
    let unnamed = sets.count.saturating_sub(sets.named.len());
    let unnamed = (unnamed > 0).then(|| format!("{unnamed} more"));
    let reasons: Vec<String> = named.chain(unnamed).collect();
    (!reasons.is_empty()).then(|| {
        format!(
            "rule sets are not working: {}; see: kubectl get ors.{GROUP}; to ignore a rule set: \
             --ignore-rule-set NAME",
            reasons.join(", ")
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

    fn check(items: &[Value], filters: &Filters) -> Option<Doubt> {
        let rule_sets: RuleSets = serde_json::from_value(json!({ "items": items })).unwrap();
        doubt(Ok(&rule_sets), filters, &ListCompleteness::Complete, &[])
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
        assert!(matches!(check(&[], &all), Some(Doubt::Lasting(_))));
        let watching = rule_set("a", "True", "Watching");
        assert_eq!(check(std::slice::from_ref(&watching), &all), None);
        assert!(matches!(
            check(&[watching], &of("other")),
            Some(Doubt::Lasting(_))
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
    ) -> Option<Doubt> {
        let rule_sets: RuleSets = serde_json::from_value(json!({ "items": items })).unwrap();
        let ignored: Vec<String> = ignored.iter().map(|&it| it.to_owned()).collect();
        doubt(
            Ok(&rule_sets),
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
        let Some(Doubt::Temporary(why)) = warned(&items, &all, &warning(1, &["b"]), &[]) else {
            panic!("the result must be a temporary doubt, because b does not work");
        };
        assert!(
            why.contains("b (evaluation fails on 3 objects: because)"),
            "{why}"
        );
        assert!(why.contains("--ignore-rule-set"), "{why}");
        // If the server states that its list is complete, the status of the rule set does not
        // matter.
        assert_eq!(check(&items, &all), None);
        // The rule set `b` does not matter, because it does not detect operations of the component
        // `a`. Filters ignore case.
        assert_eq!(warned(&items, &of("A"), &warning(1, &["b"]), &[]), None);
    }

    #[test]
    fn ignored_rule_set_does_not_count() {
        let items = [
            rule_set("a", "True", "Watching"),
            rule_set("b", "False", "EvaluationFailed"),
        ];
        let all = Filters::default();
        assert_eq!(warned(&items, &all, &warning(1, &["b"]), &["b"]), None);
        let both = warned(&items, &all, &warning(2, &["a", "b"]), &["b"]);
        assert!(matches!(both, Some(Doubt::Temporary(why)) if why.contains("working: a (")));
        // The server names only one of three rule sets. The server has left out the ignored rule
        // sets already, so the other two are not ignored.
        let more = warned(&items, &all, &warning(3, &["b"]), &["b"]);
        assert!(matches!(more, Some(Doubt::Temporary(why)) if why.contains("2 more")));
        let none = warned(&items, &of("b"), &warning(1, &["b"]), &["b"]);
        assert!(matches!(none, Some(Doubt::Lasting(why)) if why.contains("--ignore-rule-set")));
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
            doubt(Err(&refused), filters, completeness, &[])
        };
        let complete = ListCompleteness::Complete;
        assert_eq!(check(&own, &complete), None);
        let incomplete = ListCompleteness::Incomplete(warning(1, &[]));
        assert!(matches!(
            check(&own, &incomplete),
            Some(Doubt::Temporary(_))
        ));
        // The component can be misspelt, and no rule sets show whether it exists.
        assert!(matches!(
            check(&of("kubvirt"), &complete),
            Some(Doubt::Lasting(_))
        ));
        // A proxy can remove the headers of the answer.
        assert!(matches!(
            check(&own, &ListCompleteness::NotStated),
            Some(Doubt::Temporary(_))
        ));
    }

    #[test]
    fn a_status_about_an_older_generation_does_not_count() {
        let mut stale = rule_set("a", "True", "Watching");
        stale["metadata"]["generation"] = json!(3);
        assert!(matches!(
            check(&[stale], &Filters::default()),
            Some(Doubt::Temporary(_))
        ));
        let without_status = json!({"metadata": {"name": "a", "generation": 1}, "spec": {"component": "a", "rules": []}});
        assert!(matches!(
            check(&[without_status], &Filters::default()),
            Some(Doubt::Temporary(_))
        ));
    }

    #[test]
    fn a_target_that_is_not_installed_counts_as_idle() {
        let missing = without_target("a");
        let watching = rule_set("b", "True", "Watching");
        let all = Filters::default();
        assert_eq!(check(&[missing.clone(), watching], &all), None);
        assert!(matches!(check(&[missing], &all), Some(Doubt::Lasting(_))));
    }

    #[test]
    fn a_target_rejected_for_another_reason_counts_as_unknown() {
        for reason in ["ClusterScoped", "NotServed"] {
            let mut refused = without_target("a");
            refused["status"]["conditions"][1]["reason"] = json!(reason);
            let items = [refused, rule_set("b", "True", "Watching")];
            let result = warned(&items, &of("a"), &warning(1, &["a"]), &[]);
            assert!(matches!(result, Some(Doubt::Temporary(_))), "{reason}");
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
            assert_eq!(check(&items, &by(selector)), None, "{selector}");
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
            let Some(Doubt::Lasting(why)) = check(&items, &by(selector)) else {
                panic!(
                    "the result must be a lasting doubt, because no operation has the label {key}"
                );
            };
            assert!(why.contains(&format!("{key:?}")), "{why}");
        }
        let component = vec!["b".to_owned()];
        let others = Filters {
            component,
            ..by("team=x")
        };
        assert!(matches!(check(&items, &others), Some(Doubt::Lasting(_))));
    }

    #[test]
    fn each_kind_component_and_operation_needs_a_working_rule_set() {
        let items = [rule_set("a", "True", "Watching")];
        let chosen = |kinds: &[&str]| Filters {
            kind: kinds.iter().map(|it| it.parse().unwrap()).collect(),
            ..Filters::default()
        };
        assert_eq!(check(&items, &chosen(&["VirtualMachine"])), None);
        for kinds in [&["Pod"][..], &["VirtualMachine", "Pod"]] {
            let Some(Doubt::Lasting(why)) = check(&items, &chosen(kinds)) else {
                panic!("the result must be a lasting doubt, because no rule set watches pods");
            };
            assert!(why.contains("check --kind Pod"), "{why}");
        }
        let mut both = of("a");
        both.component.push("b".to_owned());
        assert!(matches!(check(&items, &both), Some(Doubt::Lasting(_))));
    }
}
