//! Compiles the spec of an OperationRuleSet into a [`RuleSet`], or returns the errors in the spec.

use super::timing_hash;
use super::validate::validate;
use super::{Activity, CompiledRule, ForEach, RuleDetails, RuleDuration, RuleSet, Supersedes};
use ifo_api::duration;
use ifo_api::ruleset::{self, MAX_LABELS, MAX_RULES, MAX_VARIABLES, OperationRuleSetSpec};
use ifo_cel::{CompileError, Environment, Program, ResultKind};
use kube::core::Selector;
use std::sync::Arc;

/// Maximum length of a label selector as text, in bytes. The selector is part of the URL of list
/// and watch requests, and proxies commonly accept URLs of 8 KiB.
const MAX_SELECTOR: usize = 4096;

/// The reason why a rule set cannot be used. The texts are for the author of the rule set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleSetError {
    /// An expression does not compile. The text contains the hint of the compiler, if the compiler
    /// gives a hint.
    #[error("{field}: {error}{}", hint_in_parentheses(error))]
    Expression {
        /// Field of the expression, such as `rules[Migrating].expression`.
        field: String,
        /// The text of the expression.
        source_text: String,
        /// Message of the compiler, with line and column.
        error: CompileError,
    },
    /// A field has an error that is not in the code of an expression. In a cluster, the schema of
    /// the CRD already refuses most of these errors. The schema does not check a rule set from a
    /// file.
    #[error("{0}")]
    Spec(String),
}

/// Returns the hint of an error in parentheses, or an empty text if the error has no hint.
fn hint_in_parentheses(error: &CompileError) -> String {
    let hint = error.hint.as_ref();
    hint.map_or_else(String::new, |hint| format!(" (hint: {hint})"))
}

impl RuleSetError {
    /// Returns two lines: the line of the expression that contains the error, and a line with a
    /// caret below the position of the error. Returns None for an error that is not in an
    /// expression.
    pub fn excerpt(&self) -> Option<String> {
        match self {
            Self::Expression {
                source_text, error, ..
            } => Some(error.excerpt(source_text)),
            Self::Spec(_) => None,
        }
    }
}

/// Compiles a rule set. Usually returns all errors, not only the first. But some errors prevent
/// later checks. For example, this function checks the length of the label selector only if there
/// are no other errors.
pub fn compile(name: &str, spec: &OperationRuleSetSpec) -> Result<RuleSet, Vec<RuleSetError>> {
    let mut compiler = Compiler {
        invalid: validate(spec),
    };
    let environment = compiler.compile_variables(&spec.variables);
    let rules: Vec<Option<CompiledRule>> = spec
        .rules
        .iter()
        .take(MAX_RULES)
        .map(|rule| compiler.compile_rule(rule, &environment))
        .collect();
    let mut label_expressions = Vec::new();
    for label in spec.label_expressions.iter().take(MAX_LABELS) {
        let field = format!("labelExpressions[{}].expression", label.key);
        if let Some(program) =
            compiler.compile_program(field, &label.expression, ResultKind::String, &environment)
        {
            label_expressions.push((label.key.as_str().into(), program));
        }
    }
    let nodes = spec.nodes.as_ref().and_then(|source| {
        let field = "nodes".to_owned();
        compiler.compile_program(field, source, ResultKind::Strings, &environment)
    });
    if !compiler.invalid.is_empty() {
        return Err(compiler.invalid);
    }
    // `validate` has already checked the selector, so the conversion does not fail.
    let selector = spec.label_selector.clone().map(Selector::try_from);
    let selector = selector.transpose().map_err(|error| {
        let message = format!("labelSelector: {error}");
        vec![RuleSetError::Spec(message)]
    })?;
    if let Some(length) = selector.as_ref().map(|it| it.to_string().len())
        && length > MAX_SELECTOR
    {
        let message =
            format!("labelSelector: the text has {length} bytes, more than {MAX_SELECTOR}");
        return Err(vec![RuleSetError::Spec(message)]);
    }
    let labels = spec.labels.iter();
    let labels = labels.map(|(key, value)| (key.as_str().into(), value.as_str().into()));
    Ok(RuleSet {
        name: Arc::from(name),
        component: Arc::from(spec.component.as_str()),
        namespaces: (!spec.namespaces.is_empty())
            .then(|| spec.namespaces.iter().cloned().collect()),
        // A selector without requirements selects every object, like a missing selector.
        selector: selector.filter(|selector| !selector.selects_all()),
        labels: Arc::new(labels.collect()),
        label_expressions,
        nodes,
        environment,
        timing_hashes: timing_hash::of_rules(spec),
        rules: rules.into_iter().flatten().collect(),
        activity: Activity::default(),
    })
}

/// Compiles expressions and collects errors.
struct Compiler {
    invalid: Vec<RuleSetError>,
}

impl Compiler {
    fn refuse(&mut self, message: String) {
        self.invalid.push(RuleSetError::Spec(message));
    }

    fn compile_program(
        &mut self,
        field: String,
        source: &str,
        kind: ResultKind,
        environment: &Environment,
    ) -> Option<Program> {
        match ifo_cel::compile(source, kind, environment) {
            Ok(program) => Some(program),
            Err(error) => {
                self.invalid.push(RuleSetError::Expression {
                    field,
                    source_text: source.to_owned(),
                    error,
                });
                None
            }
        }
    }

    /// Compiles the variables in their order, because each variable may use the variables before
    /// it.
    fn compile_variables(&mut self, variables: &[ruleset::Variable]) -> Environment {
        let mut environment = Environment::default();
        for variable in variables.iter().take(MAX_VARIABLES) {
            let field = format!("variables[{}].expression", variable.name);
            let Some(program) =
                self.compile_program(field, &variable.expression, ResultKind::Any, &environment)
            else {
                continue;
            };
            if let Err(error) = environment.declare(&variable.name, program) {
                self.refuse(format!("variables: {error}"));
            }
        }
        environment
    }

    fn compile_rule(
        &mut self,
        rule: &ruleset::Rule,
        environment: &Environment,
    ) -> Option<CompiledRule> {
        let of_item;
        let inner = if rule.for_each.is_some() {
            of_item = environment.clone().with_item();
            &of_item
        } else {
            environment
        };
        let mut optional =
            |name: &str, source: Option<&String>, kind: ResultKind, inner: &Environment| {
                let field = format!("rules[{}].{name}", rule.operation);
                self.compile_program(field, source?, kind, inner)
            };
        let details = RuleDetails {
            message: optional("message", rule.message.as_ref(), ResultKind::String, inner),
            reason: optional("reason", rule.reason.as_ref(), ResultKind::String, inner),
            state: optional("state", rule.state.as_ref(), ResultKind::String, inner),
            progress: optional(
                "progress",
                rule.progress.as_ref(),
                ResultKind::Progress,
                inner,
            ),
            started_at: optional(
                "startedAt",
                rule.started_at.as_ref(),
                ResultKind::Time,
                inner,
            ),
            instance: optional(
                "instance",
                rule.instance.as_ref(),
                ResultKind::String,
                inner,
            ),
            outcome: optional("outcome", rule.outcome.as_ref(), ResultKind::String, inner),
            outcome_message: optional(
                "outcomeMessage",
                rule.outcome_message.as_ref(),
                ResultKind::String,
                inner,
            ),
            size: optional("size", rule.size.as_ref(), ResultKind::Amount, inner),
            work: optional("work", rule.work.as_ref(), ResultKind::String, inner),
        };
        let mut duration_of = |field: &str, source: &Option<String>| {
            let source = source.as_ref()?;
            if let Some(fixed) = duration::parse(source) {
                return Some(RuleDuration::Fixed(fixed));
            }
            let program = optional(field, Some(source), ResultKind::Duration, inner);
            program.map(RuleDuration::Computed)
        };
        let expected = duration_of("expectedDuration", &rule.expected_duration);
        let stalled_after = duration_of("stalledAfter", &rule.stalled_after);
        let continue_while = optional(
            "continueWhile",
            rule.continue_while.as_ref(),
            ResultKind::Bool,
            inner,
        );
        let list = optional(
            "forEach",
            rule.for_each.as_ref(),
            ResultKind::List,
            environment,
        );
        // A rule with `forEach` needs a key for each element of the list. Without `itemKey`, the
        // key is the element itself, which must be a string or an int.
        let own = Some("item".to_owned());
        let key = rule.for_each.as_ref().and_then(|_| {
            optional(
                "itemKey",
                rule.item_key.as_ref().or(own.as_ref()),
                ResultKind::Key,
                inner,
            )
        });
        let field = format!("rules[{}].expression", rule.operation);
        let expression = self.compile_program(field, &rule.expression, ResultKind::Bool, inner)?;
        self.check_literals(rule, &details);
        Some(CompiledRule {
            operation: rule.operation.as_str().into(),
            expression,
            continue_while,
            for_each: list.zip(key).map(|(list, key)| ForEach { list, key }),
            details,
            deletes_subject: rule.deletes_subject,
            supersedes: Supersedes::new(&rule.supersedes),
            // `validate` has already reported invalid durations.
            debounce: rule.debounce.as_deref().and_then(duration::parse),
            appear_after: rule
                .appear_after
                .as_deref()
                .and_then(duration::parse)
                .unwrap_or_default(),
            state_after: rule
                .state_after
                .as_deref()
                .and_then(duration::parse)
                .unwrap_or_default(),
            expected,
            stalled_after,
        })
    }

    /// Checks the `state`, `reason` and `outcome` expressions that are string literals, such as
    /// `'Blocked'`. The value of a literal is known before the server evaluates an object.
    fn check_literals(&mut self, rule: &ruleset::Rule, details: &RuleDetails) {
        let operation = &rule.operation;
        let mut check =
            |field: &str,
             program: &Option<Program>,
             allowed_if_invalid: &dyn Fn(&str) -> Option<&str>| {
                let Some((program, text)) =
                    program.as_ref().and_then(|it| Some((it, it.literal()?)))
                else {
                    return;
                };
                if let Some(allowed) = allowed_if_invalid(text) {
                    let (line, column) = expression_start(program.source());
                    self.invalid.push(RuleSetError::Expression {
                        field: format!("rules[{operation}].{field}"),
                        source_text: program.source().to_owned(),
                        error: CompileError {
                            message: format!("{text:?} is not {allowed}"),
                            line,
                            column,
                            hint: None,
                        },
                    });
                }
            };
        check("state", &details.state, &|text| {
            let is_valid = super::parse_state(text).is_some();
            (!is_valid).then_some("one of Progressing, Blocked, Held, Failing")
        });
        check("reason", &details.reason, &|text| {
            (!super::is_reason(text)).then_some("a reason of letters and digits in CamelCase")
        });
        check("outcome", &details.outcome, &|text| {
            let is_valid = text.is_empty() || super::parse_outcome(text).is_some();
            (!is_valid).then_some("one of Succeeded, Failed, Superseded")
        });
    }
}

/// Returns the line and column at which an expression starts, after white space and comments.
fn expression_start(source: &str) -> (usize, usize) {
    let mut rest = source.trim_start();
    while let Some(comment) = rest.strip_prefix("//") {
        rest = comment
            .split_once('\n')
            .map_or("", |(_, next)| next)
            .trim_start();
    }
    let before = &source[..source.len() - rest.len()];
    let line = before.rsplit('\n').next().unwrap_or_default();
    (1 + before.matches('\n').count(), 1 + line.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_api::live::State;

    fn spec(yaml: &str) -> OperationRuleSetSpec {
        serde_saphyr::from_str(yaml).expect("the YAML of the test is a valid spec")
    }

    fn rule(text: &str) -> OperationRuleSetSpec {
        spec(&format!(
            "component: c\ntarget: {{group: g.io, version: v1, resource: things}}\nrules:\n- {text}\n"
        ))
    }

    fn problems(spec: &OperationRuleSetSpec) -> Vec<String> {
        let invalid = compile("x", spec).expect_err("an invalid spec must be refused");
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
            "outcome: \"''\", outcomeMessage",
            "forEach",
        ] {
            let spec = rule(&format!(
                "{{operation: Moving, expression: 'true', {field}: 'object.'}}"
            ));
            let problems = problems(&spec);
            assert_eq!(problems.len(), 1, "{problems:?}");
            let field = field.rsplit(' ').next().unwrap_or(field);
            let start = format!("rules[Moving].{field}: 1:");
            assert!(problems[0].starts_with(&start), "{problems:?}");
        }
    }

    #[test]
    fn invalid_string_literals_are_refused_at_compile_time() {
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
            let prefix = format!("rules[Moving].{field}: 1:1: ");
            assert!(problems[0].starts_with(&prefix), "{problems:?}");
        }
        let spec = rule(
            "{operation: Moving, expression: 'true', state: \"'Blocked'\", reason: \"'AtWork'\", outcome: \"''\"}",
        );
        assert!(compile("x", &spec).is_ok());
    }

    #[test]
    fn errors_say_what_to_do() {
        let target = |target: &str| {
            spec(&format!(
                "component: c\ntarget: {{{target}}}\nrules:\n- {{operation: Moving, expression: 'true'}}\n"
            ))
        };
        let cases = [
            (
                target("group: kubevirt.io, version: v1, resource: VirtualMachine"),
                "target: \"VirtualMachine\" is not a resource (hint: write the plural of the kind in lower case: virtualmachines)",
            ),
            (
                target("group: '', version: apps/v1, resource: deployments"),
                "target: \"apps/v1\" is not a version (hint: write group: apps and version: v1)",
            ),
            (
                rule("{operation: Moving, expression: 'true', state: Blocked}"),
                "rules[Moving].state: 1:1: undeclared reference to 'Blocked' (in container '') (hint: a string needs quotes inside the YAML quotes: \"'Blocked'\")",
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(problems(&spec), [expected]);
        }
        let spec = rule("{operation: Moving, expression: object.a = 1}");
        let error = &compile("x", &spec).expect_err("`=` is not an operator")[0];
        assert_eq!(error.excerpt().as_deref(), Some("object.a = 1\n         ^"));
    }

    #[test]
    fn the_start_of_an_expression_is_after_white_space_and_comments() {
        assert_eq!(expression_start("'x'"), (1, 1));
        assert_eq!(expression_start("  'x'"), (1, 3));
        assert_eq!(expression_start("// é\n // Why.\n 'x'"), (3, 2));
        assert_eq!(expression_start("// only"), (1, 8));
    }

    #[test]
    fn invalid_label_selectors_are_refused() {
        for (requirement, word) in [
            (
                "{key: tier, operator: Near, values: [a]}",
                "is not one of In",
            ),
            ("{key: tier, operator: In}", "needs values"),
            (
                "{key: tier, operator: Exists, values: [a]}",
                "takes no values",
            ),
            ("{key: a b, operator: Exists}", "is not a label key"),
            (
                "{key: tier, operator: In, values: [a b]}",
                "is not a label value",
            ),
        ] {
            let spec = spec(&format!(
                "component: c\ntarget: {{group: g.io, version: v1, resource: things}}\n\
                 labelSelector: {{matchExpressions: [{requirement}]}}\n\
                 rules:\n- {{operation: Moving, expression: 'true'}}\n"
            ));
            let problems = problems(&spec);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].contains(word), "{problems:?}");
        }
    }

    #[test]
    fn variables_can_use_earlier_variables_and_rules_can_use_all_variables() {
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
    fn item_is_defined_only_in_rules_with_for_each() {
        let with = rule(
            "{operation: Moving, forEach: object.parts, itemKey: item.name, expression: item.moving, message: item.text}",
        );
        assert!(compile("x", &with).is_ok());
        let without = rule("{operation: Moving, expression: item.moving}");
        assert!(problems(&without)[0].contains("item"));
    }

    #[test]
    fn state_accepts_only_states_of_detected_operations() {
        assert_eq!(super::super::parse_state("Blocked"), Some(State::Blocked));
        assert_eq!(super::super::parse_state("Held"), Some(State::Held));
        assert_eq!(super::super::parse_state("Settling"), None);
    }
}
