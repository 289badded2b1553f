//! Finds mistakes in rule sets whose expressions compile. An error means that a part of a rule can
//! never work. A warning means that a part of a rule is probably a mistake, but may be intended.
//! Only `kubectl ifo rules check` reports warnings.

use super::{CompiledRule, OUTCOMES, RuleSetError, STATES, fields as rule_fields, is_reason};
use ifo_api::live::State;
use ifo_api::ruleset::{self, OperationRuleSetSpec};
use ifo_cel::{CompileError, Environment, comparisons_of_time_texts, nearest_value};

/// Returns an error for each literal result of `state`, `outcome` and `reason` that is not allowed.
/// If the literal is in a variable, the error names the variable.
pub(super) fn wrong_results(
    rule: &CompiledRule,
    environment: &Environment,
    variables: &[ruleset::Variable],
) -> Vec<RuleSetError> {
    let mut errors = Vec::new();
    for name in ["state", "reason", "outcome"] {
        let Some(program) = rule.program(name) else {
            continue;
        };
        let own_field = format!("rules[{}].{name}", rule.operation);
        for result in program.possible_results(environment) {
            let problem = result.text.and_then(|text| problem_with(name, &text));
            let Some((problem, hint)) = problem else {
                continue;
            };
            let mut variables = variables.iter();
            let of_result = |it: &&ruleset::Variable| result.variable.as_ref() == Some(&it.name);
            let (field, source, message) = match variables.find(of_result) {
                Some(variable) => (
                    format!("variables[{}].expression", variable.name),
                    &*variable.expression,
                    format!("as a result of {own_field}, {problem}"),
                ),
                None => (own_field.clone(), program.source(), problem),
            };
            let (line, column) = (result.line, result.column);
            let error = CompileError {
                message,
                line,
                column,
                hint,
            };
            errors.push(RuleSetError::in_expression(field, source, error));
        }
    }
    errors
}

/// Returns the message and the hint if `text` is not allowed as the result of the field `name`.
fn problem_with(name: &str, text: &str) -> Option<(String, Option<String>)> {
    let allowed = match name {
        "state" => STATES.map(State::name).to_vec(),
        _ if text.is_empty() => return None,
        "outcome" => OUTCOMES.map(State::name).to_vec(),
        _ if is_reason(text) => return None,
        _ => {
            let message = format!("{text:?} is not a reason of letters and digits in CamelCase");
            return Some((message, None));
        }
    };
    if allowed.contains(&text) {
        return None;
    }
    let nearest = nearest_value(text, allowed.iter().copied());
    let hint = nearest.map(|nearest| format!("did you mean '{nearest}'?"));
    let message = format!("{text:?} is not one of {}", allowed.join(", "));
    Some((message, hint))
}

/// Returns an error if an expression of a rule without `itemKey` reads a field of `item`. Such
/// elements are objects, which cannot be keys.
pub(super) fn missing_item_key(rule: &CompiledRule) -> Option<RuleSetError> {
    let mut programs = rule.programs.iter();
    let (name, program) = programs.find(|(_, program)| program.reads_field_of_item())?;
    let field = format!("rules[{}].{name}", rule.operation);
    let reason = "an element with fields cannot be a key";
    Some(needs_item_key(field, program.source(), reason))
}

/// Returns the error for a rule without `itemKey`. `source` is the expression in `field` that shows
/// that the elements cannot be keys.
pub(super) fn needs_item_key(field: String, source: &str, reason: &str) -> RuleSetError {
    let error = CompileError {
        message: format!("the rule needs itemKey, because {reason}"),
        line: 1,
        column: 1,
        hint: Some("for example, add itemKey: item.name".to_owned()),
    };
    RuleSetError::in_expression(field, source, error)
}

/// Returns the warnings of a rule set that compiles. Each warning is about a comparison of texts as
/// if they were times.
pub fn warnings(spec: &OperationRuleSetSpec) -> Vec<RuleSetError> {
    let mut warnings = Vec::new();
    for (field, source) in expressions(spec) {
        // The rule set was compiled before, so its expressions can be parsed.
        let found = comparisons_of_time_texts(&source).unwrap_or_default();
        let in_field = |error| RuleSetError::in_expression(field.clone(), &source, error);
        warnings.extend(found.into_iter().map(in_field));
    }
    warnings
}

/// Returns the name and the source of each expression in `spec`.
pub(super) fn expressions(spec: &OperationRuleSetSpec) -> impl Iterator<Item = (String, String)> {
    let variables = spec.variables.iter().map(|variable| {
        let field = format!("variables[{}].expression", variable.name);
        (field, variable.expression.clone())
    });
    let rules = spec.rules.iter().flat_map(|rule| {
        let of_list = [("forEach", &rule.for_each), ("itemKey", &rule.item_key)].into_iter();
        let of_list = of_list.filter_map(|(name, source)| Some((name, source.clone()?)));
        let others = rule_fields::expressions(rule).map(|(name, source, _)| (name, source));
        let all = of_list.chain(others);
        all.map(|(name, source)| (format!("rules[{}].{name}", rule.operation), source))
    });
    let labels = spec.label_expressions.iter().map(|label| {
        let field = format!("labelExpressions[{}].expression", label.key);
        (field, label.expression.clone())
    });
    let nodes = spec.nodes.iter().map(|it| ("nodes".to_owned(), it.clone()));
    variables.chain(rules).chain(labels).chain(nodes)
}

#[cfg(test)]
mod tests {
    use super::super::compile;
    use super::*;

    /// Returns a rule set with one rule, which has these fields.
    fn spec(fields: &str) -> OperationRuleSetSpec {
        let text = format!(
            "component: c\ntarget: {{group: g.io, version: v1, resource: things}}\n\
             variables:\n- {{name: state, expression: \"object.a ? 'Bloked' : 'Failing'\"}}\n\
             rules:\n- operation: Moving\n  {fields}\n"
        );
        serde_saphyr::from_str(&text).expect("the YAML of the test is a valid spec")
    }

    fn texts(found: &[RuleSetError]) -> Vec<String> {
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn mistakes_that_can_never_work_are_errors() {
        for (fields, expected) in [
            (
                "expression: object.a\n  outcome: \"object.b ? 'Suceeded' : ''\"",
                "rules[Moving].outcome: 1:12: \"Suceeded\" is not one of Succeeded, Failed, Superseded (hint: did you mean 'Succeeded'?)",
            ),
            (
                "expression: object.a\n  state: object.?a.orValue('Progresing')",
                "rules[Moving].state: 1:19: \"Progresing\" is not one of Progressing, Blocked, Held, Failing (hint: did you mean 'Progressing'?)",
            ),
            (
                "expression: object.a\n  state: \"object.b ? 'Failing' : ''\"",
                "rules[Moving].state: 1:24: \"\" is not one of Progressing, Blocked, Held, Failing",
            ),
            (
                "expression: object.a\n  state: \"string('Foo')\"",
                "rules[Moving].state: 1:7: \"Foo\" is not one of Progressing, Blocked, Held, Failing",
            ),
            (
                "expression: object.a\n  state: variables.state",
                "variables[state].expression: 1:12: as a result of rules[Moving].state, \"Bloked\" is not one of Progressing, Blocked, Held, Failing (hint: did you mean 'Blocked'?)",
            ),
            (
                "expression: object.a\n  reason: \"object.b ? 'not camel' : ''\"",
                "rules[Moving].reason: 1:12: \"not camel\" is not a reason of letters and digits in CamelCase",
            ),
            (
                "expression: has(item.started)\n  forEach: object.status.vms",
                "rules[Moving].expression: 1:1: the rule needs itemKey, because an element with fields cannot be a key (hint: for example, add itemKey: item.name)",
            ),
            (
                "expression: object.a\n  forEach: \"object.parts.map(p, {'p': p})\"",
                "rules[Moving].forEach: 1:1: the rule needs itemKey, because the elements are neither strings nor ints (hint: for example, add itemKey: item.name)",
            ),
            (
                "expression: object.a\n  debounce: 5 minutes",
                "rules[Moving].debounce: \"5 minutes\" is not valid. Debounce period: if the operation is not detected for this time, it ends. The value is a duration such as `30s` or `1h30m`, of at most 24 hours. The default is a setting of the server, or 0 if the last state of the operation was `Held`.",
            ),
        ] {
            let errors = compile("x", &spec(fields)).expect_err(fields);
            assert_eq!(texts(&errors), [expected], "{fields}");
        }
    }

    #[test]
    fn texts_that_are_compared_as_times_are_warnings() {
        let spec = spec("expression: object.metadata.creationTimestamp < '2024-01-01T00:00:00Z'");
        compile("x", &spec).expect("the rule set is valid");
        let expected = "rules[Moving].expression: 1:35: this compares two texts, and not two times (hint: convert both texts, as in timestamp(object.metadata.creationTimestamp) < timestamp('2026-01-31T12:00:00Z'))";
        assert_eq!(texts(&warnings(&spec)), [expected]);
    }

    #[test]
    fn correct_rules_have_no_findings() {
        for fields in [
            "expression: object.a\n  outcome: \"object.b ? 'Succeeded' : ''\"\n  reason: \"object.b ? 'AtWork' : ''\"",
            "expression: item == 'x'\n  forEach: object.names",
            "expression: item.started\n  forEach: object.vms\n  itemKey: item.id",
            "expression: \"true\"\n  forEach: object.vms.filter(v, v.moving)\n  itemKey: item.id",
            "expression: timestamp(object.since) < now - duration('1h')\n  expectedDuration: duration('5m')",
        ] {
            let spec = spec(fields);
            compile("x", &spec).expect(fields);
            assert_eq!(texts(&warnings(&spec)), [""; 0], "{fields}");
        }
    }
}
