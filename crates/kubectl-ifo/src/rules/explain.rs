//! Explains for `rules test --explain` why each rule detects its operation on an object, or why
//! not. The explanation can contain any value of the object, because the user of the command
//! already has the object.

use crate::plain_text::one_line;
use ifo_cel::{
    Budget, DecidingClause, Doc, EvaluationFault, EvaluationScope, Explanation, Program,
    STEPS_PER_OBJECT, TypedValue,
};
use ifo_engine::rules::{CompiledRule, RuleBook, RuleSet};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;

/// Budget of the explanation of one rule on one object, in evaluation steps. The budget is larger
/// than in the server, because an explanation evaluates each expression several times. If the
/// budget is exhausted, the result of the rule is `failed`.
const MAX_STEPS: u64 = 1_000 * STEPS_PER_OBJECT;

/// Maximum number of characters of a value in the text output. A longer value is cut.
const MAX_VALUE: usize = 200;

/// Explains the results of all rules of `book` on the object in `doc`, in lines of text. A line of a
/// rule is followed by the indented parts of its expression that decided the result, with their
/// values. `unselected` are the rule sets whose label selector does not match the object.
pub(super) fn explain(
    book: &RuleBook,
    doc: &Doc<'_>,
    namespace: Option<&str>,
    unselected: &[Arc<RuleSet>],
    now: Timestamp,
) -> Vec<String> {
    let mut lines = Vec::new();
    for rule_set in &book.rule_sets {
        let reason = if !rule_set.covers(namespace) {
            Some("the namespace of the object is not in `namespaces`")
        } else if unselected.iter().any(|other| Arc::ptr_eq(other, rule_set)) {
            Some("the labels of the object do not match `labelSelector`")
        } else {
            None
        };
        for rule in &rule_set.rules {
            let mut explainer = RuleExplainer {
                rule_set,
                rule,
                item: None,
                lines: &mut lines,
            };
            if let Some(reason) = reason {
                explainer.add("", &format!("not evaluated: {reason}"), []);
                continue;
            }
            let mut budget = Budget { left: MAX_STEPS };
            let mut scope = EvaluationScope::new(doc, now, &mut budget);
            scope.set_variables(&rule_set.environment);
            explainer.explain(&mut scope);
        }
    }
    lines
}

struct RuleExplainer<'r> {
    rule_set: &'r RuleSet,
    rule: &'r CompiledRule,
    /// The key of the element of `forEach`.
    item: Option<String>,
    lines: &'r mut Vec<String>,
}

impl<'r> RuleExplainer<'r> {
    fn explain<'s>(&mut self, scope: &mut EvaluationScope<'s>)
    where
        'r: 's,
    {
        let rule: &'r CompiledRule = self.rule;
        let Some(each) = &rule.for_each else {
            return self.explain_conditions(scope);
        };
        let items = match each.list.items(scope) {
            Ok(items) => items,
            Err(fault) => return self.explain_fault(" (forEach)", &each.list, &fault, scope),
        };
        if items.is_empty() {
            self.add(" (forEach)", "not detected: the list is empty", []);
        }
        for item in items {
            scope.set_item(Some(item));
            match each.key.key(scope) {
                Ok(key) => {
                    self.item = Some(key);
                    self.explain_conditions(scope);
                }
                // As in the server, `expression` and `continueWhile` are not evaluated on an
                // element without a key.
                Err(fault) => {
                    self.item = None;
                    self.explain_fault(" (itemKey)", &each.key, &fault, scope);
                }
            }
        }
    }

    /// Explains why `program`, the expression of `field`, has no value.
    fn explain_fault<'s>(
        &mut self,
        field: &str,
        program: &'s Program,
        fault: &EvaluationFault,
        scope: &mut EvaluationScope<'s>,
    ) {
        let result = match fault {
            EvaluationFault::Missing(_) => "not detected".to_owned(),
            fault => format!("failed: {fault}"),
        };
        let clauses = program.explain(scope).clauses;
        self.add(field, &result, clauses);
    }

    /// Explains `expression`. If `expression` is false or reads a missing field, also explains
    /// `continueWhile`.
    fn explain_conditions<'s>(&mut self, scope: &mut EvaluationScope<'s>)
    where
        'r: 's,
    {
        let rule: &'r CompiledRule = self.rule;
        for (field, title, names) in [
            ("expression", "", ["detected", "not detected"]),
            (
                "continueWhile",
                " (continueWhile)",
                ["continues", "does not continue"],
            ),
        ] {
            if let Some(program) = rule.program(field)
                && self.explain_condition(title, program, names, scope) != names[1]
            {
                return;
            }
        }
    }

    /// Explains a condition, and returns its result. `names` are the results if the condition is
    /// true, and if it is false or reads a missing field.
    fn explain_condition<'s>(
        &mut self,
        field: &str,
        program: &'s Program,
        names: [&'static str; 2],
        scope: &mut EvaluationScope<'s>,
    ) -> &'static str {
        let Explanation { result, clauses } = program.explain(scope);
        let result = match result {
            Ok(value) if value.value == json!(true) => names[0],
            Ok(value) if value.value == json!(false) => names[1],
            Err(EvaluationFault::Missing(_)) => names[1],
            Ok(_) | Err(_) => "failed",
        };
        self.add(field, result, clauses);
        result
    }

    /// Adds the line of a result, and the lines of the clauses that decided it. `field` is the
    /// deciding field in parentheses. It is empty for `expression`.
    fn add(
        &mut self,
        field: &str,
        result: &str,
        clauses: impl IntoIterator<Item = DecidingClause>,
    ) {
        let (rule_set, operation) = (&self.rule_set.name, &self.rule.operation);
        let item = self.item.iter().map(|item| format!("/{item}"));
        let item: String = item.collect();
        let rule = format!("{rule_set}: {operation}{item}{field}: {result}");
        self.lines.push(format!("  {}", one_line(&rule)));
        for clause in clauses {
            let variable = clause.variable.iter();
            let variable = variable.map(|name| format!("in variables.{name}: "));
            let part = variable.collect::<String>() + &clause.text;
            self.lines.push(value_line("    ", &part, &clause.result));
            let operands = clause.operands.iter();
            let operands = operands.map(|(part, result)| value_line("      ", part, result));
            self.lines.extend(operands);
        }
    }
}

/// Returns the line of a part of an expression with its value as JSON, or with the error in
/// parentheses. A long value is cut.
fn value_line(indent: &str, part: &str, result: &Result<TypedValue, EvaluationFault>) -> String {
    let value = one_line(&match result {
        Ok(typed) => typed.value.to_string(),
        Err(fault) => format!("({fault})"),
    });
    let value = match value.char_indices().nth(MAX_VALUE) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value,
    };
    format!("{indent}{} = {value}", one_line(part))
}
