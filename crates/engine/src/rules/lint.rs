//! Finds mistakes in rule sets whose expressions compile. An error means that a part of a rule can
//! never work. A warning means that a part is probably a mistake, but may be intended. So only
//! `kubectl ifo rules check` reports warnings.

use super::exclusions::RuleReads;
use super::{OUTCOMES, RuleDetails, RuleSet, RuleSetError, STATES, is_reason};
use ifo_api::live::State;
use ifo_api::ruleset::{self, OperationRuleSetSpec};
use ifo_cel::{
    CompileError, Environment, NameOrigins, PathStep, PossibleResult, Program, ResultText,
    ValueOrigins, comparisons_of_time_texts, fields, is_percentage, nearest_value,
};
use std::collections::BTreeSet;

/// Returns a finding at the start of an expression.
pub(super) fn finding(
    field: String,
    source: &str,
    message: String,
    hint: Option<String>,
) -> RuleSetError {
    let (line, column) = expression_start(source);
    RuleSetError::Expression {
        field,
        source_text: source.to_owned(),
        error: CompileError {
            message,
            line,
            column,
            hint,
        },
    }
}

/// Returns an error for each text in `state`, `reason`, `outcome` or `progress` that can be the
/// result of the expression, and that the field does not allow.
pub(super) fn wrong_results(
    rule: &ruleset::Rule,
    details: &RuleDetails,
    environment: &Environment,
    variables: &[ruleset::Variable],
) -> Vec<RuleSetError> {
    let states = STATES.map(State::name);
    let outcomes = OUTCOMES.map(State::name);
    let one_of = |allowed: &[&str], text: &str| {
        let nearest = nearest_value(text, allowed.iter().copied());
        let hint = match nearest {
            Some(nearest) => Some(format!("did you mean '{nearest}'?")),
            None if text.is_empty() => Some("the default is 'Progressing'".to_owned()),
            None => None,
        };
        WrongText {
            message: format!("{text:?} is not one of {}", allowed.join(", ")),
            hint,
        }
    };
    let check_state = |text: &str| (!states.contains(&text)).then(|| one_of(&states, text));
    let check_outcome = |text: &str| {
        let is_valid = text.is_empty() || outcomes.contains(&text);
        (!is_valid).then(|| one_of(&outcomes, text))
    };
    let check_reason = |text: &str| {
        // Without a reason, the operation has its name as the reason.
        let is_valid = text.is_empty() || is_reason(text);
        (!is_valid).then(|| WrongText {
            message: format!("{text:?} is not a reason of letters and digits in CamelCase"),
            hint: None,
        })
    };
    let checked: [(&str, Check<'_>); 3] = [
        ("state", &check_state),
        ("reason", &check_reason),
        ("outcome", &check_outcome),
    ];
    let place = |field: &'static str, program| ResultPlace {
        field: format!("rules[{}].{field}", rule.operation),
        program,
        variables,
    };
    let mut errors = Vec::new();
    for (field, check) in checked {
        let Some(program) = details.get(field) else {
            continue;
        };
        for result in program.possible_results(environment) {
            if let ResultText::Literal(text) = &result.text
                && let Some(problem) = check(text)
            {
                errors.push(place(field, program).error(&result, problem));
            }
        }
    }
    if let Some(program) = details.get("progress") {
        let results = program.possible_results(environment);
        let problems: Vec<_> = results.iter().map_while(text_as_progress).collect();
        // If only some results are texts, the progress is unknown in these cases.
        if problems.len() == results.len()
            && let Some((result, problem)) = results.first().zip(problems.into_iter().next())
        {
            errors.push(place("progress", program).error(result, problem));
        }
    }
    errors
}

/// Returns the problem if a text is not allowed as the result of an expression.
type Check<'c> = &'c dyn Fn(&str) -> Option<WrongText>;

/// A mistake in a text that can be the result of an expression.
struct WrongText {
    message: String,
    hint: Option<String>,
}

/// The expression whose results are checked.
struct ResultPlace<'p> {
    field: String,
    program: &'p Program,
    variables: &'p [ruleset::Variable],
}

impl ResultPlace<'_> {
    /// Returns the error for a possible result. If the text is in a variable, the error names the
    /// variable and the checked field.
    fn error(self, result: &PossibleResult, problem: WrongText) -> RuleSetError {
        let variable = result.variable.as_ref();
        let variable = variable.and_then(|name| self.variables.iter().find(|it| it.name == *name));
        let (field, source, message) = match variable {
            Some(variable) => (
                format!("variables[{}].expression", variable.name),
                &*variable.expression,
                format!("as a result of {}, {}", self.field, problem.message),
            ),
            None => (self.field, self.program.source(), problem.message),
        };
        RuleSetError::Expression {
            field,
            source_text: source.to_owned(),
            error: CompileError {
                message,
                line: result.line,
                column: result.column,
                hint: problem.hint,
            },
        }
    }
}

/// Returns the problem if a possible result of `progress` is a text without a percentage.
fn text_as_progress(result: &PossibleResult) -> Option<WrongText> {
    let is_of_percentage = |c: char| c.is_ascii_digit() || " .+-%".contains(c);
    let message = match &result.text {
        ResultText::Literal(text) if !is_percentage(text) => {
            format!("{text:?} is not a number or a percentage")
        }
        ResultText::Contains(parts) => {
            let mut parts = parts.iter();
            let part = parts.find(|part| !part.chars().all(is_of_percentage))?;
            format!("a text that contains {part:?} is not a number or a percentage")
        }
        ResultText::Literal(_) | ResultText::Unknown => return None,
    };
    let hint = "compute the percentage, as in 100 * object.status.done / object.status.total";
    Some(WrongText {
        message,
        hint: Some(hint.to_owned()),
    })
}

/// An example for a missing `itemKey`.
const ITEM_KEY_HINT: &str = "for example, add itemKey: item.name";

/// Returns an error if the rule has `forEach` without `itemKey`, and an expression reads a field of
/// `item`. Then the elements are objects, which cannot be keys.
pub(super) fn missing_item_key(rule: &ruleset::Rule) -> Option<RuleSetError> {
    let origins = NameOrigins {
        item: ValueOrigins::at(vec![PathStep::Each]),
        variables: Vec::new(),
    };
    rule.expressions().find_map(|(name, source)| {
        let named = fields(source, &origins).ok()?.named;
        let used = named
            .into_iter()
            .find(|used| matches!(&*used.path, [PathStep::Each, PathStep::Field(_)]))?;
        Some(RuleSetError::Expression {
            field: format!("rules[{}].{name}", rule.operation),
            source_text: source.to_owned(),
            error: CompileError {
                message: "the rule needs itemKey, because an element with fields cannot be a key"
                    .to_owned(),
                line: used.line,
                column: used.column,
                hint: Some(ITEM_KEY_HINT.to_owned()),
            },
        })
    })
}

/// Returns the error for a rule without `itemKey` whose `forEach` yields elements that are neither
/// strings nor ints. `list` is the expression of `forEach`.
pub(super) fn elements_without_key(operation: &str, list: &str) -> RuleSetError {
    finding(
        format!("rules[{operation}].forEach"),
        list,
        "the rule needs itemKey, because the elements are neither strings nor ints".to_owned(),
        Some(ITEM_KEY_HINT.to_owned()),
    )
}

/// Returns the warnings of a rule set that compiles: expressions that are probably mistakes.
pub fn warnings(spec: &OperationRuleSetSpec, rule_set: &RuleSet) -> Vec<RuleSetError> {
    let mut warnings = constant_conditions(spec, rule_set);
    // Several rules can read the same variable.
    let exclusions = spec.rules.iter();
    let exclusions = exclusions.flat_map(|rule| RuleReads::of(spec, rule).warnings());
    let mut known = BTreeSet::new();
    warnings.extend(exclusions.filter(|warning| known.insert(warning.to_string())));
    for (field, source) in expressions(spec) {
        // The rule set was compiled before, so its expressions can be parsed.
        let found = comparisons_of_time_texts(source).unwrap_or_default();
        warnings.extend(found.into_iter().map(|error| RuleSetError::Expression {
            field: field.clone(),
            source_text: source.to_owned(),
            error,
        }));
    }
    warnings
}

/// Returns a warning for each `expression` and `continueWhile` that has the same result for every
/// object. In two cases, an `expression` that is always true is no mistake: if `forEach` selects
/// the elements, or if a label selector selects the objects.
fn constant_conditions(spec: &OperationRuleSetSpec, rule_set: &RuleSet) -> Vec<RuleSetError> {
    let mut warnings = Vec::new();
    for rule in &rule_set.rules {
        let selects = rule.for_each.is_some() || spec.label_selector.is_some();
        let mut check = |field: &str, program: &Program, always: &str, never: &str| {
            let message = match program.constant_result(&rule_set.environment) {
                Some(true) if !selects => format!("the expression is always true, so {always}"),
                Some(false) => format!("the expression is always false, so {never}"),
                _ => return,
            };
            let field = format!("rules[{}].{field}", rule.operation);
            warnings.push(finding(field, program.source(), message, None));
        };
        check(
            "expression",
            &rule.expression,
            "the operation is in flight as long as its object exists",
            "the rule never detects the operation",
        );
        if let Some(program) = &rule.continue_while {
            check(
                "continueWhile",
                program,
                "the operation continues as long as its object exists",
                "it has no effect",
            );
        }
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
        let list = rule.for_each.as_deref().map(|list| ("forEach", list));
        let all = list.into_iter().chain(rule.expressions());
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
                "rules[Moving].state: 1:24: \"\" is not one of Progressing, Blocked, Held, Failing (hint: the default is 'Progressing')",
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
                "expression: object.a\n  progress: \"object.b ? 'half' : 'done'\"",
                "rules[Moving].progress: 1:12: \"half\" is not a number or a percentage (hint: compute the percentage, as in 100 * object.status.done / object.status.total)",
            ),
            (
                "expression: object.a\n  progress: string(object.done) + ' of ' + string(object.total)",
                "rules[Moving].progress: 1:30: a text that contains \" of \" is not a number or a percentage (hint: compute the percentage, as in 100 * object.status.done / object.status.total)",
            ),
            (
                "expression: has(item.started)\n  forEach: object.status.vms",
                "rules[Moving].expression: 1:10: the rule needs itemKey, because an element with fields cannot be a key (hint: for example, add itemKey: item.name)",
            ),
            (
                "expression: object.a\n  forEach: \"object.parts.map(p, {'p': p})\"",
                "rules[Moving].forEach: 1:1: the rule needs itemKey, because the elements are neither strings nor ints (hint: for example, add itemKey: item.name)",
            ),
            (
                "expression: object.a\n  debounce: 5 minutes",
                "rules[Moving].debounce: \"5 minutes\" is not a duration such as 30s or 1h30m (hint: write 5m)",
            ),
            (
                "expression: object.a\n  expectedDuration: 1 hour 30 min",
                "rules[Moving].expectedDuration: 1:1: \"1 hour 30 min\" is not a duration (hint: write 1h30m)",
            ),
        ] {
            let errors = compile("x", &spec(fields)).expect_err(fields);
            assert_eq!(texts(&errors), [expected], "{fields}");
        }
    }

    #[test]
    fn suspicious_expressions_are_warnings() {
        for (fields, expected) in [
            (
                "expression: 1 == 1",
                "rules[Moving].expression: 1:1: the expression is always true, so the operation is in flight as long as its object exists",
            ),
            (
                "expression: object.phase == 'A' && object.phase == 'B'",
                "rules[Moving].expression: 1:1: the expression is always false, so the rule never detects the operation",
            ),
            (
                "expression: object.a\n  continueWhile: has(object.metadata)",
                "rules[Moving].continueWhile: 1:1: the expression is always true, so the operation continues as long as its object exists",
            ),
            (
                "expression: object.metadata.creationTimestamp < '2024-01-01T00:00:00Z'",
                "rules[Moving].expression: 1:35: this compares two texts, and not two times (hint: convert both texts, as in timestamp(object.metadata.creationTimestamp) < timestamp('2026-01-31T12:00:00Z'))",
            ),
        ] {
            let spec = spec(fields);
            let compiled = compile("x", &spec).expect(fields);
            assert_eq!(texts(&warnings(&spec, &compiled)), [expected], "{fields}");
        }
    }

    #[test]
    fn correct_rules_have_no_findings() {
        for fields in [
            "expression: object.a\n  outcome: \"object.b ? 'Succeeded' : ''\"\n  reason: \"object.b ? 'AtWork' : ''\"",
            "expression: object.a\n  progress: \"object.b ? object.percent : 'unknown'\"",
            "expression: object.a\n  progress: string(object.done) + ' %'",
            "expression: object.a\n  progress: object.message.find('[0-9]+')",
            "expression: item == 'x'\n  forEach: object.names",
            "expression: item.started\n  forEach: object.vms\n  itemKey: item.id",
            "expression: \"true\"\n  forEach: object.vms.filter(v, v.moving)\n  itemKey: item.id",
            "expression: timestamp(object.since) < now - duration('1h')\n  expectedDuration: duration('5m')",
        ] {
            let spec = spec(fields);
            let compiled = compile("x", &spec).expect(fields);
            assert_eq!(texts(&warnings(&spec, &compiled)), [""; 0], "{fields}");
        }
    }

    #[test]
    fn the_start_of_an_expression_is_after_white_space_and_comments() {
        assert_eq!(expression_start("'x'"), (1, 1));
        assert_eq!(expression_start("  'x'"), (1, 3));
        assert_eq!(expression_start("// é\n // Why.\n 'x'"), (3, 2));
        assert_eq!(expression_start("// only"), (1, 8));
    }
}
