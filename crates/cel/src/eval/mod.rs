//! Evaluates an op tree, which is the compiled form of an expression. An op is a node of this tree.
//!
//! If an op has an error, the result of the evaluation is an error, with two exceptions:
//!
//! - `&&` and `||` ignore an error of one operand if another operand decides the result.
//! - `all` and `exists` ignore an error of one iteration if another iteration decides the result.
//!
//! The [`Budget`](crate::Budget) limits the steps of an evaluation. If the budget is exhausted, the
//! evaluation always ends with an error.

mod fold;
pub(crate) mod result;
pub(crate) mod run;
pub(crate) mod scope;
mod select;

use std::rc::Rc;

use self::scope::EvaluationScope;
use crate::budget::{charge, steps};
use crate::compile::op::{Op, OptionalTransform};
use crate::compile::program::Compiled;
use crate::library::Function;
use crate::value::V;
use crate::value::compare::{equals, key_cost};
use crate::value::constant::Const;
use crate::value::fault::{Fault, LocatedError, Outcome};
use crate::value::same_key;

/// The state of one evaluation. `'e` is the lifetime of the program.
pub(crate) struct Context<'e, 's, 'a> {
    scope: &'s mut EvaluationScope<'a>,
    program: &'e Compiled,
    /// The values of the variables of the comprehensions around the current op, such as `x` in
    /// `list.all(x, x > 0)`.
    vars: Vec<V<'e>>,
}

impl<'e, 's, 'a: 'e> Context<'e, 's, 'a> {
    pub(crate) fn new(scope: &'s mut EvaluationScope<'a>, program: &'e Compiled) -> Self {
        Self {
            scope,
            program,
            vars: Vec::new(),
        }
    }

    pub(crate) fn eval(&mut self, op: &'e Op) -> Outcome<'e> {
        match self.dispatch(op) {
            Err(fault @ Fault::Error(_)) => Err(self.located(op, fault)),
            outcome => outcome,
        }
    }

    /// Adds the place of `op` to the error of `op`.
    #[cold]
    #[inline(never)]
    fn located(&self, op: &Op, fault: Fault<'e>) -> Fault<'e> {
        match self.program.spans.of(op) {
            Some(span) => fault.located(&self.program.source, span.at),
            None => fault,
        }
    }

    // This function is recursive, and the evaluation of the deepest tree must fit on a stack of
    // 2 MiB. So most arms call a function that is not inlined. This keeps the stack frame of
    // `dispatch` small.
    #[inline]
    fn dispatch(&mut self, op: &'e Op) -> Outcome<'e> {
        match op {
            Op::Const(value) => Ok(value.value()),
            Op::Object => Ok(V::of(self.scope.doc.root())),
            Op::Now => Ok(self.read_now()),
            Op::Item => self.item(),
            Op::Variable(slot) => self.variable(*slot),
            Op::LocalVariable(slot) => self.comprehension_variable(*slot),
            Op::Path(base, fields) => self.path(base, fields),
            Op::OptionalPath(base, fields) => self.optional_path(base, fields),
            Op::Has(base, field) => self.has(base, field),
            Op::Index(pair) => self.index(pair),
            Op::OptionalIndex(pair) => self.optional_index(pair),
            Op::List(items) => self.list(items),
            Op::Map(entries) => self.map(entries),
            Op::And(terms) => self.logic(terms, false),
            Op::Or(terms) => self.logic(terms, true),
            Op::Cond(parts) => self.condition(parts),
            Op::InSet(operand, set) => self.in_set(operand, set),
            Op::Call(function, args) => self.call(function, args),
            Op::Otherwise(pair, unwraps) => self.otherwise(pair, *unwraps),
            Op::Fold(fold) => self.fold(fold),
            Op::OptionalTransform(transform) => self.optional_transform(transform),
        }
    }

    #[inline(never)]
    fn read_now(&mut self) -> V<'e> {
        self.scope.read_now = true;
        V::Time(self.scope.now.into())
    }

    #[inline(never)]
    fn item(&self) -> Outcome<'e> {
        // The error occurs only if the program uses `item` and the caller has not set `item`.
        self.scope
            .item
            .as_ref()
            .map(|item| item.0.clone())
            .ok_or(Fault::error("no such attribute"))
    }

    /// Returns the value of a variable of the environment. Its expression is evaluated at the first
    /// read, and later reads return the cached result.
    #[inline(never)]
    fn variable(&mut self, slot: usize) -> Outcome<'e> {
        if let Some(cached) = self.scope.cached_result(slot) {
            return cached;
        }
        let Some((name, program)) = self.scope.variable(slot) else {
            return Err(Fault::error("no such attribute"));
        };
        let before = std::mem::take(&mut self.scope.read_now);
        let outcome = charge(self.scope.budget, program.0.weight)
            .and_then(|()| Context::new(self.scope, &program.0).eval(&program.0.op));
        let outcome = match outcome {
            Err(Fault::Located(error)) if error.variable.is_none() => {
                let error = LocatedError {
                    variable: Some(name),
                    ..(*error).clone()
                };
                Err(Fault::Located(Rc::new(error)))
            }
            outcome => outcome,
        };
        let read_now = std::mem::replace(&mut self.scope.read_now, before);
        self.scope.cache_result(slot, outcome.clone(), read_now);
        self.scope.read_now |= read_now;
        outcome
    }

    #[inline(never)]
    fn comprehension_variable(&self, slot: usize) -> Outcome<'e> {
        // The variable always exists, because the compiler assigned the index.
        self.vars
            .get(slot)
            .cloned()
            .ok_or(Fault::error("no such attribute"))
    }

    #[inline(never)]
    fn list(&mut self, items: &'e [(Op, bool)]) -> Outcome<'e> {
        let mut values = Vec::with_capacity(items.len());
        for (item, optional) in items {
            let value = self.eval(item)?;
            values.extend(present_item(value, *optional)?);
        }
        Ok(V::List(values.into()))
    }

    #[inline(never)]
    fn map(&mut self, entries: &'e [(Op, Op, bool)]) -> Outcome<'e> {
        // Each key is compared with all previous keys, so the cost is quadratic.
        charge(self.scope.budget, steps(entries.len() * entries.len(), 256))?;
        let mut map = Vec::with_capacity(entries.len());
        for (key, value, optional) in entries {
            let (key, value) = (self.eval(key)?, self.eval(value)?);
            charge(self.scope.budget, key_cost(map.len(), &key))?;
            match present_item(value, *optional)? {
                Some(value) => insert(&mut map, key, value),
                // As in cel-go, an optional entry without a value removes an earlier entry with the
                // same key.
                None => map.retain(|(own, _)| !same_key(own, &key)),
            }
        }
        Ok(V::Map(map.into()))
    }

    /// Evaluates `orValue` if `unwraps` is true, and `or` if `unwraps` is false. As in cel-go, if
    /// the first operand is not an optional, the first operand is the result.
    #[inline(never)]
    fn otherwise(&mut self, pair: &'e (Op, Op), unwraps: bool) -> Outcome<'e> {
        // The most frequent form is `a.?b.orValue(c)`. Here, the value of `a.?b` is not put into an
        // optional, which saves an allocation.
        if let (true, Op::OptionalPath(base, fields)) = (unwraps, &pair.0) {
            return match self.find_path(base, fields)? {
                Some(value) => Ok(value),
                None => self.eval(&pair.1),
            };
        }
        match self.eval(&pair.0)? {
            V::Optional(None) => self.eval(&pair.1),
            V::Optional(Some(value)) if unwraps => Ok((*value).clone()),
            value => Ok(value),
        }
    }

    #[inline(never)]
    fn optional_transform(&mut self, transform: &'e OptionalTransform) -> Outcome<'e> {
        let value = match self.eval(&transform.target)? {
            V::Optional(Some(value)) => (*value).clone(),
            V::Optional(None) => return Ok(V::Optional(None)),
            other => {
                let name = if transform.flat {
                    ".optFlatMap(…)"
                } else {
                    ".optMap(…)"
                };
                return Err(Fault::no_overload().about(&[other.type_name(), name]));
            }
        };
        charge(self.scope.budget, transform.weight)?;
        let depth = self.vars.len();
        self.vars.push(value);
        let result = self.eval(&transform.body);
        self.vars.truncate(depth);
        if transform.flat {
            return result;
        }
        // If the body of `optMap` returns an optional, the result contains the value of this
        // optional, or null if it has no value. cel-go 0.26 does the same.
        Ok(V::some(match result? {
            V::Optional(Some(value)) => (*value).clone(),
            V::Optional(None) => V::Null,
            value => value,
        }))
    }

    /// Evaluates `&&` if `decides` is false, or `||` if `decides` is true. If a term equals
    /// `decides`, this value is the result, and errors of other terms are ignored.
    #[inline(never)]
    fn logic(&mut self, terms: &'e [Op], decides: bool) -> Outcome<'e> {
        let mut failed = None;
        for term in terms {
            match self.eval(term) {
                Ok(V::Bool(value)) if value == decides => return Ok(V::Bool(decides)),
                Ok(V::Bool(_)) => {}
                Err(Fault::Budget) => return Err(Fault::Budget),
                Ok(other) => failed = failed.or_else(|| Some(no_bool(decides, &other))),
                Err(fault) => failed = failed.or(Some(fault)),
            }
        }
        failed.map_or(Ok(V::Bool(!decides)), Err)
    }

    #[inline(never)]
    fn condition(&mut self, parts: &'e (Op, Op, Op)) -> Outcome<'e> {
        match self.eval(&parts.0)? {
            V::Bool(true) => self.eval(&parts.1),
            V::Bool(false) => self.eval(&parts.2),
            other => Err(Fault::no_overload().about(&[other.type_name(), " ? … : …"])),
        }
    }

    #[inline(never)]
    fn in_set(&mut self, operand: &'e Op, set: &'e [Const]) -> Outcome<'e> {
        let value = self.eval(operand)?;
        for element in set {
            if equals(&value, &element.value(), self.scope.budget)? {
                return Ok(V::Bool(true));
            }
        }
        Ok(V::Bool(false))
    }

    #[inline(never)]
    fn call(&mut self, function: &'static Function, args: &'e [Op]) -> Outcome<'e> {
        // Most functions have one or two arguments. For these, no memory is allocated.
        match args {
            [one] => {
                let one = [self.eval(one)?];
                function.call(&one, self.scope.budget)
            }
            [first, second] => {
                let both = [self.eval(first)?, self.eval(second)?];
                function.call(&both, self.scope.budget)
            }
            args => {
                let mut values = Vec::with_capacity(args.len());
                for arg in args {
                    values.push(self.eval(arg)?);
                }
                function.call(&values, self.scope.budget)
            }
        }
    }
}

/// Returns the error for a term of `&&` or `||` that is not a bool. `decides` is true for `||`.
#[cold]
fn no_bool<'e>(decides: bool, value: &V<'e>) -> Fault<'e> {
    let operator = if decides { "||" } else { "&&" };
    Fault::no_overload().about(&[operator, " with the type ", value.type_name()])
}

/// Adds an entry to a map literal. As in cel-go, a later entry replaces an earlier entry with the
/// same key.
fn insert<'e>(map: &mut Vec<(V<'e>, V<'e>)>, key: V<'e>, value: V<'e>) {
    match map.iter_mut().find(|(own, _)| same_key(own, &key)) {
        Some((_, own)) => *own = value,
        None => map.push((key, value)),
    }
}

/// Returns the value of an element or entry of a list or map literal. Returns None for an optional
/// element or entry without a value, such as the element of `[?object.?a]` if `a` does not exist.
fn present_item(value: V<'_>, optional: bool) -> Result<Option<V<'_>>, Fault<'_>> {
    match value {
        value if !optional => Ok(Some(value)),
        V::Optional(value) => Ok(value.map(|value| (*value).clone())),
        other => Err(Fault::words(&[
            "cannot initialize optional list element or map entry from non-optional value of type ",
            other.type_name(),
        ])),
    }
}
