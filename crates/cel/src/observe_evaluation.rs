//! Observes an evaluation. An observer receives the outcome of each op, which is a node of the
//! compiled expression. [`FailureLocator`] finds the op that failed, and [`OutcomeRecorder`] keeps
//! the outcomes of all ops for an explanation. The normal evaluation has the observer `()`, which
//! does nothing and costs no time.
//!
//! After a failure, [`locate`] repeats the evaluation with a [`FailureLocator`]. Failures are rare,
//! so it is cheaper to repeat a failed evaluation than to observe every evaluation.

use std::collections::HashMap;
use std::rc::Rc;

use super::EvaluationScope;
use super::compile::Compiled;
use super::eval::{Context, OpResult};
use super::failure::{ExpressionPlace, FailureText, FixedText};
use super::op::{Arith, Comprehension, ComprehensionKind, Op, Order};
use super::op_positions::{Spans, address, line_and_column};
use super::overloads::overloads;
use super::value::Fault;

/// Receives the outcome of each op.
pub(super) trait EvaluationObserver<'e> {
    /// If this is false, the observer does nothing, and the evaluation does not call
    /// [`Self::evaluated`].
    const OBSERVES: bool = true;

    /// Receives the outcome of `op`. The observer can change the outcome, for example to add the
    /// place to an error.
    fn evaluated(&mut self, op: &'e Op, outcome: &mut OpResult<'e>);
}

impl<'e> EvaluationObserver<'e> for () {
    const OBSERVES: bool = false;

    #[inline]
    fn evaluated(&mut self, _: &'e Op, _: &mut OpResult<'e>) {}
}

/// Keeps the last outcome of each op, by the address of the op. The outcome of an op that failed
/// contains the place of the failure.
pub(super) struct OutcomeRecorder<'e> {
    locator: FailureLocator<'e>,
    pub outcomes: HashMap<usize, OpResult<'e>>,
}

impl<'e> OutcomeRecorder<'e> {
    pub(super) fn new(compiled: &'e Compiled) -> Self {
        Self {
            locator: FailureLocator::new(compiled),
            outcomes: HashMap::new(),
        }
    }
}

impl<'e> EvaluationObserver<'e> for OutcomeRecorder<'e> {
    fn evaluated(&mut self, op: &'e Op, outcome: &mut OpResult<'e>) {
        self.locator.evaluated(op, outcome);
        self.outcomes.insert(address(op), outcome.clone());
    }
}

/// Adds the place and the operand types to an error.
struct FailureLocator<'e> {
    source: &'e str,
    spans: &'e Spans,
    /// The type of the last value of each op, by the address of the op.
    types: HashMap<usize, &'static str>,
}

impl<'e> EvaluationObserver<'e> for FailureLocator<'e> {
    fn evaluated(&mut self, op: &'e Op, outcome: &mut OpResult<'e>) {
        match outcome {
            Ok(value) => {
                self.types.insert(address(op), value.type_name());
            }
            Err(Fault::Error(text)) => {
                let place = self.spans.of(op).map(|span| {
                    let (line, column) = line_and_column(self.source, span.at);
                    ExpressionPlace {
                        variable: None,
                        line,
                        column,
                    }
                });
                // A text that consists of several parts already contains the types.
                let operation = text.is_single_text().then(|| self.operation(op)).flatten();
                *outcome = Err(Fault::Located(Rc::new(FailureText {
                    text: text.clone(),
                    operation,
                    place,
                })));
            }
            // The error comes from an operand of `op`, and got its place when the operand failed.
            // Or it needs no place, such as the error for a missing field.
            Err(_) => {}
        }
    }
}

impl<'e> FailureLocator<'e> {
    fn new(compiled: &'e Compiled) -> Self {
        Self {
            source: &compiled.source,
            spans: &compiled.spans,
            types: HashMap::new(),
        }
    }

    fn type_of(&self, op: &Op) -> &'static str {
        self.types.get(&address(op)).copied().unwrap_or("dyn")
    }

    /// Returns the operator or function with the types of its operands, such as `string + int`.
    /// Returns None for an op without an operator, such as a field selection.
    ///
    /// For `&&` and `||`, the text names only the first operand that is not a bool, as in `&& with
    /// the type int`. If there is no such operand, returns None.
    fn operation(&self, op: &'e Op) -> Option<FixedText> {
        let infix = |pair: &(Op, Op), operator| {
            FixedText::joined(&[self.type_of(&pair.0), operator, self.type_of(&pair.1)])
        };
        let term = |terms: &[Op], operator| {
            let mut types = terms.iter().map(|term| self.type_of(term));
            let wrong = types.find(|ty| !matches!(*ty, "bool" | "dyn"))?;
            Some(FixedText::joined(&[operator, " with the type ", wrong]))
        };
        Some(match op {
            Op::Not(operand) => FixedText::joined(&["!", self.type_of(operand)]),
            Op::Neg(operand) => FixedText::joined(&["-", self.type_of(operand)]),
            Op::And(terms) => term(terms, "&&")?,
            Op::Or(terms) => term(terms, "||")?,
            Op::Cond(parts) => FixedText::joined(&[self.type_of(&parts.0), " ? … : …"]),
            Op::Equal(pair, true) => infix(pair, " == "),
            Op::Equal(pair, false) => infix(pair, " != "),
            Op::Order(pair, order) => infix(
                pair,
                match order {
                    Order::Less => " < ",
                    Order::LessEqual => " <= ",
                    Order::Greater => " > ",
                    Order::GreaterEqual => " >= ",
                },
            ),
            Op::Arith(pair, operator) => infix(
                pair,
                match operator {
                    Arith::Add => " + ",
                    Arith::Sub => " - ",
                    Arith::Mul => " * ",
                    Arith::Div => " / ",
                    Arith::Mod => " % ",
                },
            ),
            Op::In(pair) => infix(pair, " in "),
            Op::InSet(operand, _) => FixedText::joined(&[self.type_of(operand), " in list"]),
            Op::Index(pair) | Op::OptionalIndex(pair) => {
                FixedText::joined(&[self.type_of(&pair.0), "[", self.type_of(&pair.1), "]"])
            }
            Op::Matches(operand, _) => {
                FixedText::joined(&[self.type_of(operand), ".matches(string)"])
            }
            Op::Find(search) => {
                let name = if search.all { ".findAll" } else { ".find" };
                FixedText::joined(&[self.type_of(&search.text), name, "(string)"])
            }
            Op::Call(function, args) => self.call(function.full_name(), args),
            Op::Fold(fold) => self.fold(fold)?,
            Op::OptionalTransform(transform) => FixedText::joined(&[
                self.type_of(&transform.target),
                if transform.flat {
                    ".optFlatMap(…)"
                } else {
                    ".optMap(…)"
                },
            ]),
            _ => return None,
        })
    }

    fn call(&self, name: &'static str, args: &[Op]) -> FixedText {
        // An expression can contain `size(x)` or `x.size()`. The error always shows the first form,
        // which is more usual.
        let is_member = name != "size" && overloads(name).iter().any(|overload| overload.member);
        let (receiver, args) = match args {
            [receiver, args @ ..] if is_member => (Some(receiver), args),
            args => (None, args),
        };
        let mut words = Vec::new();
        if let Some(receiver) = receiver {
            words.extend([self.type_of(receiver), "."]);
        }
        words.extend([name, "("]);
        for (index, arg) in args.iter().enumerate() {
            if index > 0 {
                words.push(", ");
            }
            words.push(self.type_of(arg));
        }
        words.push(")");
        FixedText::joined(&words)
    }

    fn fold(&self, fold: &Comprehension) -> Option<FixedText> {
        let name = match fold.kind {
            ComprehensionKind::All => "all",
            ComprehensionKind::Exists => "exists",
            ComprehensionKind::ExistsOne => "exists_one",
            ComprehensionKind::Filter => "filter",
            ComprehensionKind::Map => "map",
            ComprehensionKind::TransformMap => "transformMap",
            ComprehensionKind::TransformMapEntry => "transformMapEntry",
            ComprehensionKind::SortBy => return None,
        };
        let last = fold.test.as_ref().unwrap_or(&fold.body);
        Some(FixedText::joined(&[
            name,
            "(…) with a condition of the type ",
            self.type_of(last),
        ]))
    }
}

/// Repeats an evaluation that failed with the error `text`, and returns the error with its place.
/// `steps` is the cost of the failed evaluation. The repetition takes at most this number of steps
/// from the budget. If the budget has too few steps left, the function returns the error without a
/// place.
#[cold]
pub(super) fn locate<'e, 'a: 'e>(
    compiled: &'e Compiled,
    text: FixedText,
    steps: u64,
    scope: &mut EvaluationScope<'a>,
) -> FailureText {
    let left = scope.budget.left;
    let available = steps.min(left);
    scope.budget.left = available;
    let mut locator = FailureLocator::new(compiled);
    let outcome = Context::new(scope, &mut locator).eval(&compiled.op);
    let taken = available - scope.budget.left;
    scope.budget.left = left - taken;
    match outcome {
        Err(Fault::Located(located)) => (*located).clone(),
        _ => text.into(),
    }
}

impl<'e, O: EvaluationObserver<'e>> EvaluationObserver<'e> for &mut O {
    #[inline]
    fn evaluated(&mut self, op: &'e Op, outcome: &mut OpResult<'e>) {
        (**self).evaluated(op, outcome);
    }
}
