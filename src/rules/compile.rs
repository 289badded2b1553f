//! From an OperationRuleSet to compiled rules.

use super::validate::validate;
use super::{Activity, Details, ForEach, Rule, RuleSet, Supersedes};
use crate::api::duration;
use crate::api::ruleset::{self, MAX_LABELS, MAX_RULES, MAX_VARIABLES, OperationRuleSetSpec};
use crate::expression::{self, CompileError, Environment, Kind, Program};
use kube::core::Selector;
use std::sync::Arc;

/// Why a rule set cannot be used, worded for its author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// An expression that does not compile.
    #[error("{field}: {error}")]
    Expression {
        /// Which one, such as `rules[Migrating].expression`.
        field: String,
        /// The compiler's message with line and column.
        error: CompileError,
    },
    /// Something that the schema refuses too, for rule sets that did not pass it.
    #[error("{0}")]
    Spec(String),
}

/// Compiles a rule set. All that is wrong is reported, not only the first.
pub fn compile(name: &str, spec: &OperationRuleSetSpec) -> Result<RuleSet, Vec<Invalid>> {
    let mut compiler = Compiler {
        invalid: validate(spec),
    };
    let environment = compiler.variables(&spec.variables);
    let rules: Vec<Option<Rule>> = spec
        .rules
        .iter()
        .take(MAX_RULES)
        .map(|rule| compiler.rule(rule, &environment))
        .collect();
    let mut label_expressions = Vec::new();
    for label in spec.label_expressions.iter().take(MAX_LABELS) {
        let field = format!("labelExpressions[{}].expression", label.key);
        if let Some(program) =
            compiler.program(field, &label.expression, Kind::String, &environment)
        {
            label_expressions.push((label.key.clone(), program));
        }
    }
    let selector = spec.label_selector.clone().and_then(|selector| {
        Selector::try_from(selector)
            .map_err(|error| compiler.refuse(format!("labelSelector: {error}")))
            .ok()
    });
    if !compiler.invalid.is_empty() {
        return Err(compiler.invalid);
    }
    Ok(RuleSet {
        name: Arc::from(name),
        component: Arc::from(spec.component.as_str()),
        namespaces: (!spec.namespaces.is_empty())
            .then(|| spec.namespaces.iter().cloned().collect()),
        // One without a requirement selects everything.
        selector: selector.filter(|selector| !selector.selects_all()),
        labels: spec.labels.clone(),
        label_expressions,
        environment,
        rules: rules.into_iter().flatten().collect(),
        activity: Activity::default(),
    })
}

/// Compiles expressions, and keeps what is wrong.
struct Compiler {
    invalid: Vec<Invalid>,
}

impl Compiler {
    fn refuse(&mut self, message: String) {
        self.invalid.push(Invalid::Spec(message));
    }

    fn program(
        &mut self,
        field: String,
        source: &str,
        kind: Kind,
        environment: &Environment,
    ) -> Option<Program> {
        match expression::compile(source, kind, environment) {
            Ok(program) => Some(program),
            Err(error) => {
                self.invalid.push(Invalid::Expression { field, error });
                None
            }
        }
    }

    /// Each variable sees those before it.
    fn variables(&mut self, variables: &[ruleset::Variable]) -> Environment {
        let mut environment = Environment::default();
        for variable in variables.iter().take(MAX_VARIABLES) {
            let field = format!("variables[{}].expression", variable.name);
            let Some(program) = self.program(field, &variable.expression, Kind::Any, &environment)
            else {
                continue;
            };
            if let Err(error) = environment.declare(&variable.name, program) {
                self.refuse(format!("variables: {error}"));
            }
        }
        environment
    }

    fn rule(&mut self, rule: &ruleset::Rule, environment: &Environment) -> Option<Rule> {
        let of_item;
        let inner = if rule.for_each.is_some() {
            of_item = environment.clone().with_item();
            &of_item
        } else {
            environment
        };
        let mut optional =
            |name: &str, source: Option<&String>, kind: Kind, inner: &Environment| {
                let field = format!("rules[{}].{name}", rule.operation);
                self.program(field, source?, kind, inner)
            };
        let details = Details {
            message: optional("message", rule.message.as_ref(), Kind::String, inner),
            reason: optional("reason", rule.reason.as_ref(), Kind::String, inner),
            state: optional("state", rule.state.as_ref(), Kind::String, inner),
            progress: optional("progress", rule.progress.as_ref(), Kind::Progress, inner),
            started_at: optional("startedAt", rule.started_at.as_ref(), Kind::Time, inner),
            instance: optional("instance", rule.instance.as_ref(), Kind::String, inner),
            outcome: optional("outcome", rule.outcome.as_ref(), Kind::String, inner),
        };
        let list = optional("forEach", rule.for_each.as_ref(), Kind::List, environment);
        // An element that is a string or an int is its own identity.
        let own = Some("item".to_owned());
        let key = rule.for_each.as_ref().and_then(|_| {
            optional(
                "itemKey",
                rule.item_key.as_ref().or(own.as_ref()),
                Kind::Key,
                inner,
            )
        });
        let field = format!("rules[{}].expression", rule.operation);
        let expression = self.program(field, &rule.expression, Kind::Bool, inner)?;
        self.literals(rule, &details);
        Some(Rule {
            operation: rule.operation.as_str().into(),
            expression,
            for_each: list.zip(key).map(|(list, key)| ForEach { list, key }),
            details,
            supersedes: Supersedes::new(&rule.supersedes),
            // Validated before; what is wrong has been told.
            debounce: rule.debounce.as_deref().and_then(duration::parse),
            appear_after: rule
                .appear_after
                .as_deref()
                .and_then(duration::parse)
                .unwrap_or_default(),
        })
    }

    /// What is fixed in the text can be checked before any object comes.
    fn literals(&mut self, rule: &ruleset::Rule, details: &Details) {
        let literal = |program: &Option<Program>| Some(program.as_ref()?.literal()?.to_owned());
        let operation = &rule.operation;
        if let Some(state) = literal(&details.state)
            && super::state(&state).is_none()
        {
            self.refuse(format!(
                "rules[{operation}].state: {state:?} is not one of Progressing, Blocked, Failing"
            ));
        }
        if let Some(reason) = literal(&details.reason)
            && !super::is_reason(&reason)
        {
            self.refuse(format!(
                "rules[{operation}].reason: {reason:?} is not CamelCase letters and digits"
            ));
        }
        if let Some(outcome) = literal(&details.outcome)
            && !outcome.is_empty()
            && super::outcome(&outcome).is_none()
        {
            self.refuse(format!(
                "rules[{operation}].outcome: {outcome:?} is not one of Succeeded, Failed, Superseded"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::live::State;

    fn spec(yaml: &str) -> OperationRuleSetSpec {
        serde_saphyr::from_str(yaml).expect("a spec")
    }

    fn rule(text: &str) -> OperationRuleSetSpec {
        spec(&format!(
            "component: c\ntarget: {{group: g.io, version: v1, resource: things}}\nrules:\n- {text}\n"
        ))
    }

    fn problems(spec: &OperationRuleSetSpec) -> Vec<String> {
        let invalid = compile("x", spec).expect_err("it is not valid");
        invalid.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_field_of_a_rule_is_compiled_and_reported_by_its_name() {
        for field in [
            "message",
            "reason",
            "state",
            "progress",
            "startedAt",
            "instance",
            "outcome",
            "forEach",
        ] {
            let spec = rule(&format!(
                "{{operation: Moving, expression: 'true', {field}: 'object.'}}"
            ));
            let problems = problems(&spec);
            assert_eq!(problems.len(), 1, "{problems:?}");
            let start = format!("rules[Moving].{field}: 1:");
            assert!(problems[0].starts_with(&start), "{problems:?}");
        }
    }

    #[test]
    fn literals_are_checked_before_any_object_comes() {
        for (field, value, word) in [
            ("state", "Waiting", "Blocked"),
            ("state", "", "Blocked"),
            ("reason", "not camel", "CamelCase"),
            ("outcome", "Done", "Succeeded"),
        ] {
            let spec = rule(&format!(
                "{{operation: Moving, expression: 'true', {field}: \"'{value}'\"}}"
            ));
            let problems = problems(&spec);
            assert!(problems[0].contains(word), "{problems:?}");
        }
        let spec = rule(
            "{operation: Moving, expression: 'true', state: \"'Blocked'\", reason: \"'AtWork'\", outcome: \"''\"}",
        );
        assert!(compile("x", &spec).is_ok());
    }

    #[test]
    fn variables_see_those_before_them_and_rules_see_all() {
        let text = |first: &str, second: &str| {
            spec(&format!(
                "component: c\ntarget: {{group: g.io, version: v1, resource: things}}\n\
                 variables:\n- {{name: a, expression: \"{first}\"}}\n- {{name: b, expression: \"{second}\"}}\n\
                 rules:\n- {{operation: Moving, expression: variables.a && variables.b}}\n"
            ))
        };
        assert!(compile("x", &text("object.moving", "!variables.a")).is_ok());
        let problems = problems(&text("variables.b", "true"));
        assert!(
            problems[0].starts_with("variables[a].expression: 1:"),
            "{problems:?}"
        );
    }

    #[test]
    fn an_item_is_there_for_each_and_nowhere_else() {
        let with = rule(
            "{operation: Moving, forEach: object.parts, itemKey: item.name, expression: item.moving, message: item.text}",
        );
        assert!(compile("x", &with).is_ok());
        let without = rule("{operation: Moving, expression: item.moving}");
        assert!(problems(&without)[0].contains("item"));
    }

    #[test]
    fn state_names_are_those_of_the_live_object() {
        assert_eq!(super::super::state("Blocked"), Some(State::Blocked));
        assert_eq!(super::super::state("Settling"), None);
    }
}
