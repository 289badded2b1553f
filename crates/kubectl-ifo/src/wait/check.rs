//! Decides, for the command `wait`, whether an empty list proves that no matching operation is in
//! flight. It proves nothing if no rule set (`OperationRuleSet`) can detect the matching operations,
//! or if one of their rule sets does not work.

use super::wait_state::{Step, WaitVerdict};
use crate::api_client::ListCompleteness;
use crate::filter::Filters;
use crate::problem::{HOME, Problem};
use crate::rule_sets::{ListedRuleSet, RuleSets};
use ifo_api::GROUP;
use ifo_api::completeness::{Incomplete, NotWorking};

/// Returns the reason why `ifo-apiserver` may not detect all operations that match `filters`. None if
/// it detects all. The reason can go away while the user waits. If it cannot, for example because no
/// rule set detects such operations, the wait ends with this reason.
///
/// `rule_sets` is the answer to the request for all rule sets, and `completeness` is that of the list
/// of operations. `ignored` has the names of the rule sets that need not work (`--ignore-rule-set`).
pub(super) fn doubt(
    rule_sets: Result<&RuleSets, &Problem>,
    filters: &Filters,
    completeness: &ListCompleteness,
    ignored: &[String],
) -> Step<Option<String>> {
    let detecting = match rule_sets {
        Ok(rule_sets) => {
            Some(detecting(rule_sets, filters, ignored).map_err(WaitVerdict::Unknown)?)
        }
        // The user may not read rule sets. So the plugin cannot know whether a rule set detects
        // operations that other filters than the namespace select.
        Err(_) if filters.with_namespace(None).is_unfiltered() => None,
        Err(refused) => {
            let hint = "without this right, --namespace is the only possible filter";
            return Err(WaitVerdict::Unknown(format!("{refused}; {hint}")));
        }
    };
    let mut unread = detecting.iter().flatten().filter(|it| !it.is_current());
    if let Some(unread) = unread.next() {
        let name = unread.name();
        return Ok(Some(format!("the server has not read rule set {name} yet")));
    }
    Ok(match (completeness, detecting) {
        (ListCompleteness::Complete, _) => None,
        (ListCompleteness::NotStated, _) => {
            Some("the server does not state whether its list is complete".to_owned())
        }
        (ListCompleteness::Incomplete(Incomplete::NotWorking(sets)), Some(detecting)) => {
            not_working_text(sets, &detecting)
        }
        (ListCompleteness::Incomplete(why), _) => Some(why.to_string()),
    })
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
                "component": name, "rules": [{"operation": "Migrating", "expression": "x"}], "namespaces": [],
                "target": {"group": "kubevirt.io", "version": "v1", "resource": "virtualmachines"},
            },
            "status": {
                "observedGeneration": 2,
                "conditions": [condition("Ready", status, reason)],
            },
        })
    }

    /// Returns a rule set with the status that `ifo-apiserver` writes if the cluster does not serve
    /// the target for this reason.
    fn without_target(name: &str, reason: &str) -> Value {
        let mut rule_set = rule_set(name, "False", "NotInstalled");
        let ready = condition("Ready", "False", "NotInstalled");
        rule_set["status"]["conditions"] =
            json!([ready, condition("NotInstalled", "True", reason)]);
        rule_set
    }

    fn of(components: &[&str]) -> Filters {
        Filters {
            component: components.iter().map(|&it| it.to_owned()).collect(),
            ..Filters::default()
        }
    }

    /// Returns the statement of `ifo-apiserver` that `count` rule sets do not work. The statement
    /// names the rule sets in `names`.
    fn not_working(count: usize, names: &[&str]) -> ListCompleteness {
        let named = names.iter().map(|name| Named {
            name: (*name).to_owned(),
            reason: "evaluation fails on 3 objects".to_owned(),
        });
        ListCompleteness::Incomplete(Incomplete::NotWorking(NotWorking {
            count,
            total: 61,
            named: named.collect(),
        }))
    }

    /// Returns the doubt. If the wait ends, the text begins with `end: `. Empty if there is no doubt.
    fn text(doubt: Step<Option<String>>) -> String {
        match doubt {
            Ok(doubt) => doubt.unwrap_or_default(),
            Err(WaitVerdict::Unknown(why)) => format!("end: {why}"),
            Err(end) => panic!("{end:?}"),
        }
    }

    fn check(
        items: &[Value],
        filters: &Filters,
        completeness: &ListCompleteness,
        ignored: &[&str],
    ) -> String {
        let rule_sets: RuleSets = serde_json::from_value(json!({ "items": items })).unwrap();
        let ignored: Vec<String> = ignored.iter().map(|&it| it.to_owned()).collect();
        text(doubt(Ok(&rule_sets), filters, completeness, &ignored))
    }

    fn check_complete(items: &[Value], filters: &Filters) -> String {
        check(items, filters, &ListCompleteness::Complete, &[])
    }

    #[test]
    fn each_filter_value_needs_a_rule_set_that_can_detect_it() {
        let items = [rule_set("a", "True", "Watching")];
        let kinds = |kinds: &[&str]| Filters {
            kind: kinds.iter().map(|it| it.parse().unwrap()).collect(),
            ..Filters::default()
        };
        let operation = |name: &str| Filters {
            operation: vec![name.to_owned()],
            ..Filters::default()
        };
        for (filters, expected) in [
            (Filters::default(), ""),
            (kinds(&["VirtualMachine"]), ""),
            (kinds(&["Pod"]), "check --kind Pod"),
            (kinds(&["VirtualMachine", "Pod"]), "check --kind Pod"),
            (of(&["a", "b"]), "check --component b"),
            (operation("migrating"), ""),
            (operation("Migrated"), "check --operation Migrated"),
        ] {
            let why = check_complete(&items, &filters);
            assert_eq!(why.is_empty(), expected.is_empty(), "{why}");
            assert!(why.contains(expected), "{why}");
        }
        let none = check_complete(&[], &Filters::default());
        assert!(
            none.starts_with("end: no OperationRuleSet is installed"),
            "{none}"
        );
    }

    #[test]
    fn a_rule_set_that_does_not_work_is_reported_with_its_failure() {
        let items = [
            rule_set("a", "True", "Watching"),
            rule_set("b", "False", "EvaluationFailed"),
        ];
        let all = Filters::default();
        let why = check(&items, &all, &not_working(1, &["b"]), &[]);
        let reason = "rule sets are not working: b (evaluation fails on 3 objects: because); ";
        assert!(why.starts_with(reason), "{why}");
        // If the server states that its list is complete, the status of the rule set does not
        // matter.
        assert_eq!(check_complete(&items, &all), "");
        // The rule set `b` does not matter, because it does not detect operations of the component
        // `a`. Filters ignore case.
        assert_eq!(check(&items, &of(&["A"]), &not_working(1, &["b"]), &[]), "");
        // `b` is ignored.
        assert_eq!(check(&items, &all, &not_working(1, &["b"]), &["b"]), "");
        let both = check(&items, &all, &not_working(2, &["a", "b"]), &["b"]);
        assert!(both.contains("working: a ("), "{both}");
        // The server names only one of three rule sets. The server has left out the ignored rule
        // sets already, so the other two are not ignored.
        let more = check(&items, &all, &not_working(3, &["b"]), &["b"]);
        assert!(more.contains("2 more"), "{more}");
        let none = check(&items, &of(&["b"]), &not_working(1, &["b"]), &["b"]);
        assert!(
            none.starts_with("end: the cluster serves no resource"),
            "{none}"
        );
    }

    #[test]
    fn user_who_may_not_read_rule_sets_relies_on_the_warning() {
        let refused = Problem::Forbidden {
            message: "operationrulesets is forbidden".to_owned(),
        };
        let own = Filters {
            namespace: Some("shop".to_owned()),
            ..Filters::default()
        };
        let check = |filters: &Filters, completeness: &ListCompleteness| {
            text(doubt(Err(&refused), filters, completeness, &[]))
        };
        let complete = ListCompleteness::Complete;
        assert_eq!(check(&own, &complete), "");
        assert!(check(&own, &not_working(1, &[])).contains("not working"));
        // The component can be misspelt, and no rule sets show whether it exists.
        assert!(
            check(&of(&["kubvirt"]), &complete).starts_with("end: operationrulesets is forbidden")
        );
        // A proxy can remove the headers of the answer.
        let why = check(&own, &ListCompleteness::NotStated);
        assert!(why.starts_with("the server does not state"), "{why}");
    }

    #[test]
    fn a_status_about_an_older_generation_does_not_count() {
        let mut stale = rule_set("a", "True", "Watching");
        stale["metadata"]["generation"] = json!(3);
        let mut without_status = stale.clone();
        without_status["status"] = json!({});
        for rule_set in [stale, without_status] {
            let why = check_complete(&[rule_set], &Filters::default());
            assert_eq!(why, "the server has not read rule set a yet");
        }
    }

    #[test]
    fn only_a_target_whose_group_is_not_served_needs_no_rule_set() {
        let watching = rule_set("b", "True", "Watching");
        for (reason, is_idle) in [
            ("GroupNotServed", true),
            ("NotServed", false),
            ("ClusterScoped", false),
        ] {
            let items = [without_target("a", reason), watching.clone()];
            let why = check(&items, &Filters::default(), &not_working(1, &["a"]), &[]);
            assert_eq!(why.is_empty(), is_idle, "{reason}: {why}");
        }
        let why = check_complete(
            &[without_target("a", "GroupNotServed")],
            &Filters::default(),
        );
        assert!(
            why.starts_with("end: the cluster serves no resource"),
            "{why}"
        );
    }

    #[test]
    fn a_label_must_be_set_by_some_rule_set() {
        let mut labelled = rule_set("a", "True", "Watching");
        labelled["spec"]["labels"] = json!({"team": "x"});
        labelled["spec"]["labelExpressions"] =
            json!([{"key": "ifo.kubevirt.io/correlation-group", "expression": "'x'"}]);
        let items = [labelled, rule_set("b", "True", "Watching")];
        for (selector, components, unknown) in [
            (
                "ifo.kubevirt.io/subject-kind=Deployment,team in (x,y)",
                &[][..],
                None,
            ),
            ("ifo.kubevirt.io/correlation-group=x", &[], None),
            ("", &[], None),
            (
                "ifo.kubevirt.io/subjct-kind=Deployment",
                &[],
                Some("ifo.kubevirt.io/subjct-kind"),
            ),
            ("team=x,taem=x", &[], Some("taem")),
            (
                "!ifo.kubevirt.io/correlation-role",
                &[],
                Some("ifo.kubevirt.io/correlation-role"),
            ),
            ("team=x", &["b"], Some("team")),
        ] {
            let filters = Filters {
                selector: Some(selector.to_owned()),
                ..of(components)
            };
            let why = check_complete(&items, &filters);
            let is_expected = match unknown {
                None => why.is_empty(),
                Some(key) => why.starts_with("end: ") && why.contains(&format!("{key:?}")),
            };
            assert!(is_expected, "{selector}: {why}");
        }
    }
}
