//! Finds expressions that have the same result for every object, such as `1 == 1` and
//! `has(object.metadata)`.

use jiff::Timestamp;

use crate::budget::Budget;
use crate::compile::environment::Environment;
use crate::compile::op::Op;
use crate::compile::program::{Compiled, Program};
use crate::document::Doc;
use crate::document::projection::Projection;
use crate::eval::Context;
use crate::eval::scope::EvaluationScope;
use crate::value::V;
use crate::value::constant::Const;

/// The fields that every object of Kubernetes has. Their values are neither empty nor null.
const FIELDS_OF_ALL_OBJECTS: [&[&str]; 7] = [
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "creationTimestamp"],
    &["metadata", "name"],
    &["metadata", "resourceVersion"],
    &["metadata", "uid"],
];

/// Maximum number of steps for the evaluation of an expression that reads no object.
const STEPS: u64 = 10_000;

/// Maximum number of visited ops, including the ops of variables. A variable is visited at each use,
/// so variables that use each other could have very many visits.
const MAX_VISITS: usize = 10_000;

impl Program {
    /// Returns the result if it is the same bool for every object of Kubernetes that has the fields
    /// that the expression reads. Returns None if the result can differ, and also if this method
    /// does not recognize that it cannot differ. `environment` must be the environment with which
    /// the program was compiled.
    pub fn constant_result(&self, environment: &Environment) -> Option<bool> {
        let mut search = ConstantSearch {
            program: &self.0,
            environment,
            visits_left: MAX_VISITS,
        };
        search.constant(&self.0.op)
    }
}

struct ConstantSearch<'e> {
    program: &'e Compiled,
    environment: &'e Environment,
    visits_left: usize,
}

impl ConstantSearch<'_> {
    fn constant(&mut self, op: &Op) -> Option<bool> {
        self.visits_left = self.visits_left.checked_sub(1)?;
        match op {
            Op::And(terms) => self.junction(terms, false),
            Op::Or(terms) => self.junction(terms, true),
            Op::Cond(parts) => match self.constant(&parts.0) {
                Some(true) => self.constant(&parts.1),
                Some(false) => self.constant(&parts.2),
                None => {
                    let value = self.constant(&parts.1)?;
                    (self.constant(&parts.2) == Some(value)).then_some(value)
                }
            },
            Op::Has(operand, field) => {
                is_field_of_all_objects(operand, Some(field)).then_some(true)
            }
            Op::Call(function, operands) => match (function.name, &**operands) {
                ("!_", [operand]) => self.constant(operand).map(|value| !value),
                (name @ ("_==_" | "_!=_"), [left, right]) if left == right => Some(name == "_==_"),
                (
                    name @ ("_==_" | "_!=_"),
                    [field, Op::Const(value)] | [Op::Const(value), field],
                ) if is_empty(value) && is_field_of_all_objects(field, None) => {
                    Some(name == "_!=_")
                }
                _ => self.literal_result(op),
            },
            Op::Variable(slot) => {
                let environment = self.environment;
                self.constant(&environment.at(*slot)?.0.op)
            }
            op => self.literal_result(op),
        }
    }

    /// Returns the result of an expression that consists of literals and functions, if it is a bool.
    fn literal_result(&self, op: &Op) -> Option<bool> {
        if !is_closed(op) {
            return None;
        }
        let doc = Doc::parse(b"{}", &Projection::default()).ok()?;
        let mut budget = Budget { left: STEPS };
        let mut scope = EvaluationScope::new(&doc, Timestamp::UNIX_EPOCH, &mut budget);
        match Context::new(&mut scope, self.program).eval(op) {
            Ok(V::Bool(value)) => Some(value),
            _ => None,
        }
    }

    /// Returns the constant result of `&&` or `||`. `decides` is the value with which one term alone
    /// decides the result: false for `&&`, and true for `||`.
    fn junction(&mut self, terms: &[Op], decides: bool) -> Option<bool> {
        let mut all_known = true;
        for term in terms {
            match self.constant(term) {
                Some(value) if value == decides => return Some(decides),
                Some(_) => {}
                None => all_known = false,
            }
        }
        if all_known {
            return Some(!decides);
        }
        // If two terms of `&&` cannot both be true, the result is false. If two terms of `||` cannot
        // both be false, the result is true.
        let claims: Vec<_> = terms.iter().map(|term| Claim::of(term, !decides)).collect();
        let contradicts = claims
            .iter()
            .enumerate()
            .any(|(n, claim)| claims[n + 1..].iter().any(|other| claim.excludes(other)));
        contradicts.then_some(decides)
    }
}

/// A statement about the value of an op.
struct Claim<'o> {
    op: &'o Op,
    /// The literal with which `op` is compared. None if `op` itself is a bool.
    literal: Option<&'o Const>,
    /// True if `op` equals the literal, or is true. False if `op` differs from the literal, or is
    /// false.
    holds: bool,
}

impl<'o> Claim<'o> {
    /// Returns the claim that `op` has the value `value`.
    fn of(op: &'o Op, value: bool) -> Self {
        match op {
            Op::Call(function, operands) => match (function.name, &**operands) {
                ("!_", [operand]) => Self::of(operand, !value),
                (name @ ("_==_" | "_!=_"), [op, Op::Const(literal)] | [Op::Const(literal), op]) => {
                    Self {
                        op,
                        literal: Some(literal),
                        holds: (name == "_==_") == value,
                    }
                }
                _ => Self::plain(op, value),
            },
            op => Self::plain(op, value),
        }
    }

    fn plain(op: &'o Op, holds: bool) -> Self {
        Self {
            op,
            literal: None,
            holds,
        }
    }

    /// Returns true if at most one of the two claims is true.
    fn excludes(&self, other: &Self) -> bool {
        if self.op != other.op {
            return false;
        }
        match (self.literal, other.literal) {
            (Some(Const::Str(one)), Some(Const::Str(other_text))) if one != other_text => {
                self.holds && other.holds
            }
            (one, another) => one == another && self.holds != other.holds,
        }
    }
}

fn is_empty(value: &Const) -> bool {
    match value {
        Const::Null => true,
        Const::Str(text) => text.is_empty(),
        _ => false,
    }
}

/// Returns true if every object has the field at the path `op`, or the field `last` of the value at
/// this path.
fn is_field_of_all_objects(op: &Op, last: Option<&str>) -> bool {
    let names: &[Box<str>] = match op {
        Op::Object => &[],
        Op::Path(base, names) if **base == Op::Object => names,
        _ => return false,
    };
    let path = names.iter().map(|name| &**name).chain(last);
    FIELDS_OF_ALL_OBJECTS
        .iter()
        .any(|field| path.clone().eq(field.iter().copied()))
}

fn is_closed(op: &Op) -> bool {
    match op {
        Op::Const(_) => true,
        Op::InSet(..) | Op::List(_) | Op::And(_) | Op::Or(_) | Op::Call(..) => {
            op.operands().into_iter().all(is_closed)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ResultKind, compile};

    fn constant_result(source: &str) -> Option<bool> {
        let mut environment = Environment::default();
        let always = compile("has(object.metadata)", ResultKind::Any, &environment);
        let always = always.expect("the expression of the test is valid");
        environment
            .declare("always", always)
            .expect("the name is valid");
        let program = compile(source, ResultKind::Bool, &environment);
        program.expect(source).constant_result(&environment)
    }

    #[test]
    fn expressions_with_the_same_result_for_all_objects_are_recognized() {
        for (source, expected) in [
            ("true", true),
            ("1 == 1", true),
            ("2 > 1 && 'a' in ['a']", true),
            ("size([1]) > 0", true),
            ("!false", true),
            ("1 > 2", false),
            ("has(object.metadata)", true),
            ("has(object.metadata.name)", true),
            ("object.metadata.name != ''", true),
            ("object.metadata.uid == null", false),
            ("'' == object.kind", false),
            ("has(object.status) || true", true),
            ("has(object.status) && false", false),
            ("variables.always", true),
            ("!variables.always", false),
            ("object.a == object.a", true),
            ("object.a ? true : true", true),
            ("object.phase != 'Done' || object.phase != 'Failed'", true),
            ("object.phase == 'Done' && object.phase == 'Failed'", false),
            ("object.phase == 'Done' || object.phase != 'Done'", true),
            ("!(object.phase == 'A') || !(object.phase == 'B')", true),
            ("object.a || !object.a", true),
            ("has(object.a) && object.b && !has(object.a)", false),
        ] {
            assert_eq!(constant_result(source), Some(expected), "{source}");
        }
    }

    #[test]
    fn expressions_with_different_results_are_not_reported() {
        for source in [
            "has(object.status)",
            "has(object.metadata.deletionTimestamp)",
            "object.metadata.name != 'a'",
            "object.metadata.namespace != ''",
            "object.phase != 'Done' && object.phase != 'Failed'",
            "object.phase == 'Done' || object.phase == 'Failed'",
            "object.phase == 'A' || object.other == 'B'",
            "now > timestamp('2026-01-01T00:00:00Z')",
            "object.list.all(x, true)",
            "has(object.a) || object.b",
        ] {
            assert_eq!(constant_result(source), None, "{source}");
        }
    }
}
