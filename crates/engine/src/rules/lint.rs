//! Finds mistakes in rule sets whose expressions compile. An error means that a part of a rule can
//! never work. A warning means that a part is probably a mistake, but may be intended. So only
//! `kubectl ifo rules check` reports warnings.

use super::{CompiledRule, OUTCOMES, RuleSetError, STATES, fields as rule_fields, is_reason};
use ifo_api::live::State;
use ifo_api::ruleset::{self, OperationRuleSetSpec};
use ifo_cel::{CompileError, Environment, comparisons_of_time_texts, nearest_value};

/// Returns an error for each literal result of `state`, `outcome` and `reason` that is not allowed.
/// If the literal is in a variable, the error is at the variable.
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

/// Returns an error if an expression of a rule without `itemKey` reads a field of `item`. Then the
/// elements are objects, which cannot be keys.
pub(super) fn missing_item_key(rule: &CompiledRule) -> Option<RuleSetError> {
    let mut programs = rule.programs.iter();
    let (name, program) = programs.find(|(_, program)| program.reads_field_of_item())?;
    let source = program.source();
    let is_in_word = |c: char| c.is_alphanumeric() || c == '_';
    let is_name = |at: &usize| {
        !source[..*at].ends_with(is_in_word) && !source[at + 4..].starts_with(is_in_word)
    };
    let mut found = source.match_indices("item").map(|(at, _)| at);
    let at = found.find(is_name).unwrap_or_default();
    let error = needs_item_key(source, at, "an element with fields cannot be a key");
    let field = format!("rules[{}].{name}", rule.operation);
    Some(RuleSetError::in_expression(field, source, error))
}

/// Returns the error for a rule without `itemKey` whose `forEach` yields elements that are neither
/// strings nor ints. `list` is the expression of `forEach`.
pub(super) fn elements_without_key(operation: &str, list: &str) -> RuleSetError {
    let at = expression_start(list);
    let error = needs_item_key(list, at, "the elements are neither strings nor ints");
    RuleSetError::in_expression(format!("rules[{operation}].forEach"), list, error)
}

/// Returns the error for a missing `itemKey`. `at` is the byte of `source` that the error points to.
fn needs_item_key(source: &str, at: usize, reason: &str) -> CompileError {
    let before = &source[..at];
    let line = before.rsplit('\n').next().unwrap_or_default();
    let (line, column) = (1 + before.matches('\n').count(), 1 + line.chars().count());
    CompileError {
        message: format!("the rule needs itemKey, because {reason}"),
        line,
        column,
        hint: Some("for example, add itemKey: item.name".to_owned()),
    }
}

/// Returns the warnings of a rule set that compiles: texts that are compared as if they were times.
pub fn warnings(spec: &OperationRuleSetSpec) -> Vec<RuleSetError> {
    let mut warnings = Vec::new();
    for (field, source) in expressions(spec) {
        // The rule set was compiled before, so its expressions can be parsed.
        let found = comparisons_of_time_texts(source).unwrap_or_default();
        let in_field = |error| RuleSetError::in_expression(field.clone(), source, error);
        warnings.extend(found.into_iter().map(in_field));
    }
    warnings
}

/// Returns the name and the source of each expression in `spec`.
pub(super) fn expressions(spec: &OperationRuleSetSpec) -> impl Iterator<Item = (String, &str)> {
    let variables = spec.variables.iter().map(|variable| {
        let field = format!("variables[{}].expression", variable.name);
        (field, &*variable.expression)
    });
    let rules = spec.rules.iter().flat_map(|rule| {
        let of_list = [("forEach", &rule.for_each), ("itemKey", &rule.item_key)].into_iter();
        let of_list = of_list.filter_map(|(name, source)| Some((name, source.as_deref()?)));
        let others = rule_fields::expressions(rule).map(|(name, source, _)| (name, source));
        let all = of_list.chain(others);
        all.map(|(name, source)| (format!("rules[{}].{name}", rule.operation), source))
    });
    let labels = spec.label_expressions.iter().map(|label| {
        let field = format!("labelExpressions[{}].expression", label.key);
        (field, &*label.expression)
    });
    let nodes = spec
        .nodes
        .iter()
        .map(|nodes| ("nodes".to_owned(), &**nodes));
    variables.chain(rules).chain(labels).chain(nodes)
}

/// Returns the byte at which an expression starts, after white space and comments.
fn expression_start(source: &str) -> usize {
    let mut rest = source.trim_start();
    while let Some(comment) = rest.strip_prefix("//") {
        rest = comment
            .split_once('\n')
            .map_or("", |(_, next)| next)
            .trim_start();
    }
    source.len() - rest.len()
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
                "expression: object.a\n  state: variables.state",
                "variables[state].expression: 1:12: as a result of rules[Moving].state, \"Bloked\" is not one of Progressing, Blocked, Held, Failing (hint: did you mean 'Blocked'?)",
            ),
            (
                "expression: object.a\n  reason: \"object.b ? 'not camel' : ''\"",
                "rules[Moving].reason: 1:12: \"not camel\" is not a reason of letters and digits in CamelCase",
            ),
            (
                "expression: has(item.started)\n  forEach: object.status.vms",
                "rules[Moving].expression: 1:5: the rule needs itemKey, because an element with fields cannot be a key (hint: for example, add itemKey: item.name)",
            ),
            (
                "expression: object.a\n  forEach: \"object.parts.map(p, {'p': p})\"",
                "rules[Moving].forEach: 1:1: the rule needs itemKey, because the elements are neither strings nor ints (hint: for example, add itemKey: item.name)",
            ),
            (
                "expression: object.a\n  debounce: 5 minutes",
                "rules[Moving].debounce: \"5 minutes\" is not a duration such as 30s or 1h30m",
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

    #[test]
    fn the_start_of_an_expression_is_after_white_space_and_comments() {
        for (source, place) in [
            ("'x'", (1, 1)),
            ("  'x'", (1, 3)),
            ("// é\n // Why.\n 'x'", (3, 2)),
            ("// only", (1, 8)),
        ] {
            let error = needs_item_key(source, expression_start(source), "");
            assert_eq!((error.line, error.column), place, "{source}");
        }
    }
}
