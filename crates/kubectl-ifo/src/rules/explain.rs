//! Explains for `rules test --explain` why each rule detects its operation on an object, or why
//! not. The explanation can contain any value of the object, because the user of the command
//! already has the object.

use super::typed_value;
use crate::plain_text::one_line;
use ifo_cel::{
    Budget, DecidingClause, Doc, EvaluationFault, EvaluationScope, Explanation, ListElement,
    Program, STEPS_PER_OBJECT, TypedValue,
};
use ifo_engine::rules::{CompiledRule, RuleBook, RuleSet};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

/// Budget of the explanation of one rule on one object, in evaluation steps. The budget is larger
/// than in the server, because an explanation evaluates each expression several times. If the
/// budget is exhausted, the result of the rule is `failed`.
const MAX_STEPS: u64 = 1_000 * STEPS_PER_OBJECT;

/// Maximum number of characters of a value in the text output. A longer value is cut.
const MAX_VALUE: usize = 200;

/// The reason why a rule detects its operation on an object, or why not.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RuleExplanation {
    rule_set: String,
    operation: String,
    /// The key of the element of `forEach`. None if the rule has no `forEach`, if the rule was not
    /// evaluated, or if the field `forEach` or `itemKey` decided.
    item: Option<String>,
    /// The field of the rule that decided: `expression`, `continueWhile`, `forEach` or `itemKey`.
    /// If the rule was not evaluated, this is `expression`.
    field: &'static str,
    /// `detected`, `not detected`, `failed` or `not evaluated`. For `continueWhile`: `continues`,
    /// `does not continue` or `failed`.
    result: &'static str,
    /// The reason why neither `expression` nor `continueWhile` was evaluated: the rule set does not
    /// cover the object, the list of `forEach` is empty, or `forEach` or `itemKey` failed.
    /// Otherwise None.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'static, str>>,
    clauses: Vec<ExplainedClause>,
}

/// A clause, with its value and its operands. A clause is a part of an expression that decided the
/// result of the expression.
#[derive(Debug, Serialize)]
struct ExplainedClause {
    #[serde(skip_serializing_if = "Option::is_none")]
    variable: Option<String>,
    text: String,
    line: usize,
    column: usize,
    #[serde(flatten)]
    outcome: ExplainedValue,
    operands: Vec<ExplainedOperand>,
}

#[derive(Debug, Serialize)]
struct ExplainedOperand {
    text: String,
    #[serde(flatten)]
    outcome: ExplainedValue,
}

/// The value of a part of an expression, or the error.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ExplainedValue {
    Value {
        r#type: String,
        value: Value,
    },
    Error {
        error: String,
        #[serde(skip)]
        is_missing: bool,
    },
}

impl From<Result<TypedValue, EvaluationFault>> for ExplainedValue {
    fn from(result: Result<TypedValue, EvaluationFault>) -> Self {
        match result {
            Ok(TypedValue { type_name, value }) => Self::Value {
                r#type: type_name,
                value,
            },
            Err(fault) => Self::Error {
                is_missing: matches!(fault, EvaluationFault::Missing(_)),
                error: fault.to_string(),
            },
        }
    }
}

impl ExplainedValue {
    /// Returns the value as text. If the text has more than [`MAX_VALUE`] characters, it is cut and
    /// ends with `…`.
    fn text(&self) -> String {
        let text = match self {
            Self::Value { r#type, value } => typed_value::text(r#type, value),
            Self::Error { error, .. } => format!("({error})"),
        };
        let text = one_line(&text);
        if text.chars().count() <= MAX_VALUE {
            return text;
        }
        text.chars().take(MAX_VALUE).chain(['…']).collect()
    }
}

impl From<DecidingClause> for ExplainedClause {
    fn from(clause: DecidingClause) -> Self {
        Self {
            variable: clause.variable,
            text: clause.text,
            line: clause.line,
            column: clause.column,
            outcome: clause.result.into(),
            operands: clause
                .operands
                .into_iter()
                .map(|(text, result)| ExplainedOperand {
                    text,
                    outcome: result.into(),
                })
                .collect(),
        }
    }
}

/// Explains the results of all rules of `book` on the object in `doc`. `unselected` are the rule
/// sets whose label selector does not match the object.
pub(super) fn explain(
    book: &RuleBook,
    doc: &Doc<'_>,
    namespace: Option<&str>,
    unselected: &[Arc<RuleSet>],
    now: Timestamp,
) -> Vec<RuleExplanation> {
    let mut all = Vec::new();
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
                all: &mut all,
            };
            if reason.is_some() {
                let reason = reason.map(Cow::Borrowed);
                explainer.add("expression", "not evaluated", reason, Vec::new());
                continue;
            }
            let mut budget = Budget { left: MAX_STEPS };
            let mut scope = EvaluationScope::new(doc, now, &mut budget);
            scope.set_variables(&rule_set.environment);
            explainer.explain(&mut scope);
        }
    }
    all
}

struct RuleExplainer<'r> {
    rule_set: &'r RuleSet,
    rule: &'r CompiledRule,
    item: Option<String>,
    all: &'r mut Vec<RuleExplanation>,
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
        let items: Vec<ListElement<'s>> = match each.list.items(scope) {
            Ok(items) => items,
            Err(fault) => return self.explain_fault("forEach", &each.list, &fault, scope),
        };
        if items.is_empty() {
            self.add(
                "forEach",
                "not detected",
                Some("the list is empty".into()),
                Vec::new(),
            );
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
                    self.explain_fault("itemKey", &each.key, &fault, scope);
                }
            }
        }
        scope.set_item(None);
        self.item = None;
    }

    /// Explains why `program`, the expression of `field`, has no value.
    fn explain_fault<'s>(
        &mut self,
        field: &'static str,
        program: &'s Program,
        fault: &EvaluationFault,
        scope: &mut EvaluationScope<'s>,
    ) {
        let (result, reason) = match fault {
            EvaluationFault::Missing(_) => ("not detected", None),
            fault => ("failed", Some(fault.to_string().into())),
        };
        let explanation = program.explain(scope);
        self.add(field, result, reason, explanation.clauses);
    }

    /// Explains `expression`. If `expression` is false or reads a missing field, also explains
    /// `continueWhile`.
    fn explain_conditions<'s>(&mut self, scope: &mut EvaluationScope<'s>)
    where
        'r: 's,
    {
        let rule: &'r CompiledRule = self.rule;
        let (result, clauses) = decide(&rule.expression, "detected", scope);
        self.add("expression", result, None, clauses);
        if let Some(program) = &rule.continue_while
            && result == "not detected"
        {
            let (result, clauses) = decide(program, "continues", scope);
            let result = match result {
                "not detected" => "does not continue",
                result => result,
            };
            self.add("continueWhile", result, None, clauses);
        }
    }

    fn add(
        &mut self,
        field: &'static str,
        result: &'static str,
        reason: Option<Cow<'static, str>>,
        clauses: Vec<DecidingClause>,
    ) {
        self.all.push(RuleExplanation {
            rule_set: self.rule_set.name.to_string(),
            operation: self.rule.operation.to_string(),
            item: self.item.clone(),
            field,
            result,
            reason,
            clauses: clauses.into_iter().map(ExplainedClause::from).collect(),
        });
    }
}

/// Returns the result of a condition as text, and the clauses that decided the result. The text is:
///
/// - `if_true` if the condition is true
/// - `not detected` if the condition is false or reads a missing field
/// - `failed` otherwise
fn decide<'s>(
    program: &'s Program,
    if_true: &'static str,
    scope: &mut EvaluationScope<'s>,
) -> (&'static str, Vec<DecidingClause>) {
    let Explanation { result, clauses } = program.explain(scope);
    let result = match result {
        Ok(value) if value.value == json!(true) => if_true,
        Ok(value) if value.value == json!(false) => "not detected",
        Err(EvaluationFault::Missing(_)) => "not detected",
        Ok(_) | Err(_) => "failed",
    };
    (result, clauses)
}

/// Formats the explanations of one object. `subject` is the kind, namespace and name of the object.
pub(super) fn format(subject: &str, explanations: &[RuleExplanation]) -> String {
    let mut text = one_line(subject) + "\n";
    for explanation in explanations {
        let item = explanation.item.iter().map(|item| format!("/{item}"));
        let field = match explanation.field {
            "expression" => String::new(),
            field => format!(" ({field})"),
        };
        let reason = explanation
            .reason
            .iter()
            .map(|reason| format!(": {reason}"));
        let rule = format!(
            "{}: {}{}{field}: {}{}",
            explanation.rule_set,
            explanation.operation,
            item.collect::<String>(),
            explanation.result,
            reason.collect::<String>(),
        );
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {}", one_line(&rule));
        for clause in &explanation.clauses {
            let (verdict, error) = match &clause.outcome {
                ExplainedValue::Value { value, .. } if value.is_boolean() => {
                    (value.to_string(), String::new())
                }
                ExplainedValue::Value { .. } => ("value".to_owned(), String::new()),
                ExplainedValue::Error { error, is_missing } => {
                    let verdict = if *is_missing { "missing" } else { "failed" };
                    (verdict.to_owned(), format!(" ({error})"))
                }
            };
            let variable = clause.variable.iter();
            let variable = variable.map(|name| format!("in variables.{name}: "));
            let _ = writeln!(
                text,
                "    {verdict:<8} {}{}{error}",
                variable.collect::<String>(),
                one_line(&clause.text),
                error = one_line(&error),
            );
            for operand in &clause.operands {
                let value = operand.outcome.text();
                let _ = writeln!(text, "{:15}{} = {value}", "", one_line(&operand.text));
            }
        }
    }
    text
}
