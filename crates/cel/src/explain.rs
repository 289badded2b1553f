//! Explains the result of an expression. An explanation contains the clauses (parts of the
//! expression) that decided the result, with the values of their operands. In contrast to failures,
//! explanations contain values of the object. So only a user who may read the object may see an
//! explanation.

use crate::budget::charge;
use crate::compile::op::Op;
use crate::compile::program::Program;
use crate::compile::spans::text_of;
use crate::eval::Context;
use crate::eval::result::{self, TypedValue};
use crate::eval::scope::EvaluationScope;
use crate::value::V;
use crate::value::failure::{EvaluationFault, line_and_column};
use crate::value::fault::Outcome;

/// Maximum nesting of variables that are explained. The expression of a deeper variable is left
/// out.
const MAX_VARIABLE_DEPTH: usize = 8;

/// The result of an expression, and the clauses that decided it.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The result of the expression.
    pub result: Result<TypedValue, EvaluationFault>,
    /// The clauses that decided the result. For example, an `&&` with the result false has one
    /// deciding clause: its first clause that is false. If the result is true, all its clauses are
    /// deciding clauses.
    pub clauses: Vec<DecidingClause>,
}

/// A part of an expression that decided its result.
#[derive(Clone, Debug, PartialEq)]
pub struct DecidingClause {
    /// The variable whose expression contains the clause. None if the clause is in the explained
    /// expression itself.
    pub variable: Option<String>,
    /// The text of the clause, in one line.
    pub text: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The value of the clause, or the error if its evaluation failed.
    pub result: Result<TypedValue, EvaluationFault>,
    /// The text and the value (or the error) of each operand that is not a literal.
    pub operands: Vec<(String, Result<TypedValue, EvaluationFault>)>,
}

impl Program {
    /// Evaluates the expression, and returns the clauses that decided its result. An explanation
    /// contains values of the object.
    pub fn explain<'a>(&'a self, scope: &mut EvaluationScope<'a>) -> Explanation {
        let result = self.value(scope);
        let mut clauses = Vec::new();
        let mut explainer = Explainer {
            program: self,
            variable: None,
            depth: 0,
            scope,
            clauses: &mut clauses,
        };
        explainer.decide(&self.0.op);
        Explanation { result, clauses }
    }
}

struct Explainer<'s, 'a> {
    program: &'a Program,
    variable: Option<&'a str>,
    depth: usize,
    scope: &'s mut EvaluationScope<'a>,
    clauses: &'s mut Vec<DecidingClause>,
}

impl<'a> Explainer<'_, 'a> {
    /// Evaluates a part of the expression. Returns None if the budget is exhausted.
    fn outcome(&mut self, op: &'a Op) -> Option<Outcome<'a>> {
        charge(self.scope.budget, self.program.0.weight).ok()?;
        Some(Context::new(self.scope, &self.program.0).eval(op))
    }

    fn is(&mut self, op: &'a Op, wanted: bool) -> bool {
        matches!(self.outcome(op), Some(Ok(V::Bool(value))) if value == wanted)
    }

    /// Adds the clauses that decided the outcome of `op`.
    fn decide(&mut self, op: &'a Op) {
        match op {
            Op::And(terms) => self.decide_terms(op, terms, false),
            Op::Or(terms) => self.decide_terms(op, terms, true),
            Op::Call(function, operands)
                if let ("!_", [operand]) = (function.name, &**operands)
                    && !matches!(operand, Op::Path(..) | Op::Has(..)) =>
            {
                self.decide(operand);
            }
            Op::Cond(parts) => {
                let branch = self.branch(parts);
                self.decide(&parts.0);
                if let Some(branch) = branch.filter(|branch| !matches!(branch, Op::Const(_))) {
                    self.decide(branch);
                }
            }
            Op::Variable(slot) => {
                self.add_clause(op);
                self.decide_variable(*slot);
            }
            op => self.add_clause(op),
        }
    }

    /// Returns the branch of a conditional that is its result. Returns None if the condition fails.
    fn branch(&mut self, parts: &'a (Op, Op, Op)) -> Option<&'a Op> {
        match self.outcome(&parts.0) {
            Some(Ok(V::Bool(true))) => Some(&parts.1),
            Some(Ok(V::Bool(false))) => Some(&parts.2),
            _ => None,
        }
    }

    /// Adds the clauses that decided the outcome of `&&` or `||`. `decides` is the value with which
    /// one term alone decides the outcome: false for `&&`, and true for `||`.
    fn decide_terms(&mut self, op: &'a Op, terms: &'a [Op], decides: bool) {
        for term in terms {
            if self.is(term, decides) {
                return self.decide(term);
            }
        }
        let is_failed = matches!(self.outcome(op), Some(Err(_)));
        for term in terms {
            // If no term has the value `decides` and a term fails, the first failure decides.
            let failed = matches!(self.outcome(term), Some(Err(_)));
            if is_failed && !failed {
                continue;
            }
            self.decide(term);
            if is_failed {
                break;
            }
        }
    }

    /// Adds the clauses that decided the value of a variable, if the value is a bool or an error.
    /// Adds nothing if the expression of the variable is only a path, a literal or `object`.
    fn decide_variable(&mut self, slot: usize) {
        let Some((name, program)) = self.scope.variable(slot) else {
            return;
        };
        let is_simple = matches!(program.0.op, Op::Const(_) | Op::Object | Op::Path(..));
        let decided = matches!(
            self.scope.cached_result(slot),
            Some(Ok(V::Bool(_)) | Err(_)) | None
        );
        if is_simple || !decided || self.depth == MAX_VARIABLE_DEPTH {
            return;
        }
        let mut explainer = Explainer {
            program,
            variable: Some(name),
            depth: self.depth + 1,
            scope: self.scope,
            clauses: self.clauses,
        };
        explainer.decide(&program.0.op);
    }

    fn add_clause(&mut self, op: &'a Op) {
        let Some(outcome) = self.outcome(op) else {
            return;
        };
        let compiled = &self.program.0;
        let at = compiled.spans.of(op).map_or(compiled.root_at, |it| it.at);
        let start = compiled.spans.of(op).map_or(at, |span| span.start);
        let (line, column) = line_and_column(&compiled.source, start);
        let text = self
            .text(op)
            .unwrap_or_else(|| compiled.source.trim().to_owned());
        let mut operands = Vec::new();
        self.add_operands(op, &mut operands);
        operands.retain(|(own, _)| *own != text);
        let clause = DecidingClause {
            variable: self.variable.map(str::to_owned),
            text,
            line,
            column,
            result: self.typed(outcome),
            operands,
        };
        if !self.clauses.contains(&clause) {
            self.clauses.push(clause);
        }
    }

    /// Adds the operands of a clause: the values that the clause reads, and the results of
    /// functions.
    fn add_operands(
        &mut self,
        op: &'a Op,
        operands: &mut Vec<(String, Result<TypedValue, EvaluationFault>)>,
    ) {
        for operand in self.operands_of(op) {
            let is_shown = !matches!(operand, Op::Const(_) | Op::Object | Op::LocalVariable(_));
            if is_shown
                && let Some(text) = self.text(operand)
                && let Some(outcome) = self.outcome(operand)
                && operands.iter().all(|(own, _)| *own != text)
            {
                let typed = self.typed(outcome);
                operands.push((text, typed));
            }
            // The value of a path is enough. The values of its parts, such as the value of `a` in
            // `a.b`, are left out.
            if !matches!(operand, Op::Path(..)) {
                self.add_operands(operand, operands);
            }
        }
    }

    /// Returns the text of an op in the expression, or None if the text is unknown.
    fn text(&self, op: &Op) -> Option<String> {
        Some(match op {
            Op::Now => "now".to_owned(),
            Op::Item => "item".to_owned(),
            Op::Object => "object".to_owned(),
            Op::Variable(slot) => format!("variables.{}", self.scope.variable(*slot)?.0),
            op => text_of(&self.program.0.source, self.program.0.spans.of(op)?),
        })
    }

    fn typed(&mut self, outcome: Outcome<'a>) -> Result<TypedValue, EvaluationFault> {
        let value = outcome?;
        Ok(TypedValue {
            type_name: value.type_name().to_owned(),
            value: result::json(&value, self.scope.budget).map_err(EvaluationFault::from)?,
        })
    }

    /// Returns the operands of an op that its evaluation reads.
    fn operands_of(&mut self, op: &'a Op) -> Vec<&'a Op> {
        match op {
            // The compiler converts `has(variables.x)` to `optional.of(variables.x).hasValue()`.
            // This optional is not a part of the text, so it is not an operand of the explanation.
            Op::Call(function, _) if matches!(function.name, "optional.of" | "hasValue") => {
                Vec::new()
            }
            Op::Cond(parts) => [Some(&parts.0), self.branch(parts)]
                .into_iter()
                .flatten()
                .collect(),
            Op::Otherwise(pair, _) => {
                let has_value = !matches!(self.outcome(&pair.0), Some(Ok(V::Optional(None))));
                let is_path = matches!(pair.0, Op::OptionalPath(..));
                let shown = [(&pair.0, !is_path), (&pair.1, !has_value)];
                let shown = shown.into_iter().filter(|(_, is_shown)| *is_shown);
                shown.map(|(operand, _)| operand).collect()
            }
            op => op.operands(),
        }
    }
}
