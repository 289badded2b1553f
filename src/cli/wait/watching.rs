//! Whether an empty list means a quiet cluster. Enters: the rule sets of a cluster, and
//! what is asked for. Leaves: why it cannot be told, if so: nobody looks for such
//! operations, or one who should does not.

use crate::api::{GROUP, VERSION, ruleset};
use crate::cli::connect::Server;
use crate::cli::filter::Filters;
use crate::cli::problem::Problem;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Deserialize;

/// Reason of a rule set's condition where its target is not served by this cluster.
const NOT_SERVED: &str = "NotServed";

/// Rule sets that a message names.
const NAMED: usize = 3;

/// The rule sets, as far as they matter here.
#[derive(Debug, Deserialize)]
pub(crate) struct RuleSets {
    items: Vec<RuleSet>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RuleSet {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
    generation: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    component: String,
    rules: Vec<Rule>,
    namespaces: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Rule {
    operation: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    conditions: Vec<Condition>,
    observed_generation: Option<i64>,
}

/// Whether operations that are meant would be seen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// They would.
    Clear,
    /// They would not, or not all, and that will not change by itself.
    Blind(String),
    /// They would not, or not all, for now.
    Dim(String),
}

impl RuleSets {
    /// Asks for all of them.
    pub(crate) async fn read(server: &Server) -> Result<Self, Problem> {
        let plural = ruleset::PLURAL;
        let uri = format!("/apis/{GROUP}/{VERSION}/{plural}");
        server.get(&uri, &format!("{plural}.{GROUP}"), None).await
    }

    /// Whether an operation that `filters` mean would be seen.
    pub(crate) fn sight(&self, filters: &Filters) -> Sight {
        if self.items.is_empty() {
            return Sight::Blind(
                "no OperationRuleSet is installed, so nothing is looked for; see: kubectl apply -f rules/"
                    .to_owned(),
            );
        }
        let relevant: Vec<&RuleSet> = self.items.iter().filter(|it| it.finds(filters)).collect();
        if relevant.is_empty() {
            return Sight::Blind(
                "no OperationRuleSet looks for such operations; check --component, --operation and --namespace"
                    .to_owned(),
            );
        }
        // A target that the cluster does not have cannot be under way.
        let there: Vec<&&RuleSet> = relevant
            .iter()
            .filter(|it| !it.is_without_target())
            .collect();
        if there.is_empty() {
            return Sight::Blind(format!(
                "the cluster serves none of the resources of {}",
                names(relevant.iter().map(|it| it.metadata.name.as_str()))
            ));
        }
        let blind: Vec<&&&RuleSet> = there.iter().filter(|it| !it.is_watching()).collect();
        match blind.first() {
            None => Sight::Clear,
            Some(first) => Sight::Dim(format!(
                "not watching: {}{}; see: kubectl get {}.{GROUP}",
                names(blind.iter().map(|it| it.metadata.name.as_str())),
                first.why(),
                ruleset::PLURAL
            )),
        }
    }
}

impl RuleSet {
    /// Whether it may find an operation that is meant. Kinds are not compared: the rule
    /// set names its target's resource.
    fn finds(&self, filters: &Filters) -> bool {
        let one_of = |wanted: &[String], value: &str| {
            wanted.is_empty() || wanted.iter().any(|it| it.eq_ignore_ascii_case(value))
        };
        let spec = &self.spec;
        let namespace =
            |namespace: &String| spec.namespaces.is_empty() || spec.namespaces.contains(namespace);
        one_of(&filters.component, &spec.component)
            && (filters.operation.is_empty()
                || spec
                    .rules
                    .iter()
                    .any(|it| one_of(&filters.operation, &it.operation)))
            && filters.namespace.as_ref().is_none_or(namespace)
    }

    fn ready(&self) -> Option<&Condition> {
        self.status.conditions.iter().find(|it| it.type_ == "Ready")
    }

    fn is_current(&self) -> bool {
        self.metadata.generation.is_none()
            || self.status.observed_generation == self.metadata.generation
    }

    fn is_watching(&self) -> bool {
        self.is_current() && self.ready().is_some_and(|it| it.status == "True")
    }

    fn is_without_target(&self) -> bool {
        self.is_current()
            && self
                .ready()
                .is_some_and(|it| it.status == "False" && it.reason == NOT_SERVED)
    }

    /// The reason, as the end of a sentence.
    fn why(&self) -> String {
        match self.ready() {
            Some(ready) if self.is_current() && !ready.message.is_empty() => {
                format!(" ({})", ready.message)
            }
            _ => " (the server has not seen it yet)".to_owned(),
        }
    }
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = names.collect();
    let shown = all[..all.len().min(NAMED)].join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn rule_set(name: &str, status: &str, reason: &str) -> Value {
        json!({
            "metadata": {"name": name, "generation": 2},
            "spec": {"component": name, "rules": [{"operation": "Migrating"}], "namespaces": []},
            "status": {
                "observedGeneration": 2,
                "conditions": [{
                    "type": "Ready", "status": status, "reason": reason, "message": "because",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            },
        })
    }

    fn sight(items: &[Value], filters: &Filters) -> Sight {
        let rule_sets: RuleSets = serde_json::from_value(json!({ "items": items })).unwrap();
        rule_sets.sight(filters)
    }

    fn of(component: &str) -> Filters {
        Filters {
            component: vec![component.to_owned()],
            ..Filters::default()
        }
    }

    #[test]
    fn without_rule_sets_nothing_can_be_told() {
        let all = Filters::default();
        assert!(matches!(sight(&[], &all), Sight::Blind(_)));
        let watching = rule_set("a", "True", "Watching");
        assert_eq!(sight(std::slice::from_ref(&watching), &all), Sight::Clear);
        assert!(matches!(sight(&[watching], &of("other")), Sight::Blind(_)));
    }

    #[test]
    fn one_that_is_not_watching_is_named_with_its_reason() {
        let items = [
            rule_set("a", "True", "Watching"),
            rule_set("b", "False", "Pending"),
        ];
        let Sight::Dim(why) = sight(&items, &Filters::default()) else {
            panic!("b is not watching");
        };
        assert!(why.contains("b (because)"), "{why}");
        assert_eq!(sight(&items, &of("A")), Sight::Clear);
    }

    #[test]
    fn a_status_about_an_older_generation_does_not_count() {
        let mut stale = rule_set("a", "True", "Watching");
        stale["metadata"]["generation"] = json!(3);
        assert!(matches!(
            sight(&[stale], &Filters::default()),
            Sight::Dim(_)
        ));
        let unseen = json!({"metadata": {"name": "a", "generation": 1}, "spec": {"component": "a", "rules": []}});
        assert!(matches!(
            sight(&[unseen], &Filters::default()),
            Sight::Dim(_)
        ));
    }

    #[test]
    fn a_target_that_the_cluster_does_not_have_is_quiet() {
        let missing = rule_set("a", "False", NOT_SERVED);
        let watching = rule_set("b", "True", "Watching");
        let all = Filters::default();
        assert_eq!(sight(&[missing.clone(), watching], &all), Sight::Clear);
        assert!(matches!(sight(&[missing], &all), Sight::Blind(_)));
    }
}
