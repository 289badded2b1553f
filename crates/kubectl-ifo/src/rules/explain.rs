//! Explains for `rules test --explain` why each rule detects its operation on an object, or why
//! not. The explanation can contain any value of the object, because the user of the command
//! already has the object.

use crate::output::plain_text::one_line;
use crate::output::print::TerminalText;
use ifo_cel::{
    Budget, DecidingClause, Doc, EvaluationFault, EvaluationScope, Explanation, STEPS_PER_OBJECT,
    TypedValue,
};
use ifo_engine::detect::Evaluation;
use ifo_engine::rules::{CompiledRule, RuleBook};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;

/// Budget of the explanation of one rule on one object, in evaluation steps. The budget is larger
/// than in the server, because an explanation evaluates each expression several times. If the
/// budget is exhausted, the result of the rule is `failed`.
const MAX_STEPS: u64 = 1_000 * STEPS_PER_OBJECT;

/// Maximum width of a value in terminal columns. A longer value is cut.
const MAX_VALUE: usize = 200;

/// Explains the results of all rules of `book` on the object in `doc`, in lines of text. Below the
/// result of a rule, indented lines show the parts of its expression that decided the result, and
/// their values.
pub(super) fn explain(
    book: &RuleBook,
    doc: &Doc<'_>,
    evaluation: &Evaluation,
    now: Timestamp,
) -> Vec<String> {
    let namespace = evaluation.subject.reference.namespace.as_deref();
    let mut lines = Vec::new();
    for rule_set in &book.rule_sets {
        let mut unselected = evaluation.unselected.iter();
        let reason = if !rule_set.covers(namespace) {
            Some("not evaluated: the namespace of the object is not in `namespaces`")
        } else if unselected.any(|other| Arc::ptr_eq(other, rule_set)) {
            Some("not evaluated: the labels of the object do not match `labelSelector`")
        } else {
            None
        };
        for rule in &rule_set.rules {
            let title = format!("{}: {}", rule_set.name, rule.operation);
            if let Some(reason) = reason {
                lines.push(result_line(&title, reason));
                continue;
            }
            let mut budget = Budget { left: MAX_STEPS };
            let mut scope = EvaluationScope::new(doc, now, &mut budget);
            scope.set_variables(&rule_set.environment);
            explain_rule(&mut lines, &title, rule, &mut scope);
        }
    }
    lines
}

fn explain_rule<'s>(
    lines: &mut Vec<String>,
    title: &str,
    rule: &'s CompiledRule,
    scope: &mut EvaluationScope<'s>,
) {
    let Some(each) = &rule.for_each else {
        return explain_expression(lines, title, rule, scope);
    };
    let items = each.list.items(scope);
    if items.as_ref().is_ok_and(Vec::is_empty) {
        lines.push(result_line(title, "not detected: the list is empty"));
    }
    let items = items.unwrap_or_else(|fault| {
        let title = format!("{title} (forEach)");
        add(lines, &title, Err(fault), each.list.explain(scope).clauses);
        Vec::new()
    });
    for item in items {
        scope.set_item(Some(item));
        match each.key.key(scope) {
            Ok(key) => explain_expression(lines, &format!("{title}/{key}"), rule, scope),
            // As in the server, `expression` is not evaluated on an element without a key.
            Err(fault) => {
                let title = format!("{title} (itemKey)");
                add(lines, &title, Err(fault), each.key.explain(scope).clauses);
            }
        }
    }
}

fn explain_expression<'s>(
    lines: &mut Vec<String>,
    title: &str,
    rule: &'s CompiledRule,
    scope: &mut EvaluationScope<'s>,
) {
    if let Some(program) = rule.program("expression") {
        let Explanation { result, clauses } = program.explain(scope);
        add(lines, title, result, clauses);
    }
}

/// Adds the line of a result, and the lines of the clauses that decided it.
fn add(
    lines: &mut Vec<String>,
    title: &str,
    result: Result<TypedValue, EvaluationFault>,
    clauses: Vec<DecidingClause>,
) {
    let result = match result {
        Ok(value) if value.value == json!(true) => "detected".to_owned(),
        Ok(_) | Err(EvaluationFault::Missing(_)) => "not detected".to_owned(),
        Err(fault) => format!("failed: {fault}"),
    };
    lines.push(result_line(title, &result));
    for clause in clauses {
        let variable = clause.variable.iter();
        let variable = variable.map(|name| format!("in variables.{name}: "));
        let part = variable.collect::<String>() + &clause.text;
        lines.push(value_line("    ", &part, &clause.result));
        let operands = clause.operands.iter();
        lines.extend(operands.map(|(part, result)| value_line("      ", part, result)));
    }
}

fn result_line(title: &str, result: &str) -> String {
    format!("  {}", one_line(&format!("{title}: {result}")))
}

/// Returns the line of a part of an expression with its value as JSON, or with the error in
/// parentheses. A long value is cut.
fn value_line(indent: &str, part: &str, result: &Result<TypedValue, EvaluationFault>) -> String {
    let value = match result {
        Ok(typed) => typed.value.to_string(),
        Err(fault) => format!("({fault})"),
    };
    let value = TerminalText::from(one_line(&value)).cut(MAX_VALUE);
    format!("{indent}{} = {}", one_line(part), &*value)
}
