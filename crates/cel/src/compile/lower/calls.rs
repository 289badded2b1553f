//! Converts calls of functions and operators.

use cel::IdedExpr;
use cel::common::ast::{CallExpr, Expr, operators};

use super::names::{optional_of, optional_path, path};
use super::{ErrorKind, Lowering};
use crate::budget::Budget;
use crate::compile::check::{resolve, resolve_with_schema};
use crate::compile::op::Op;
use crate::compile::parse::comprehension_kind;
use crate::library::{Function, conversions};
use crate::types::Ty;
use crate::value::constant::Const;
use crate::value::failure::EvaluationFault;

impl Lowering<'_> {
    pub(super) fn call(&mut self, node: u64, call: &CallExpr) -> (Op, Ty) {
        let name = call.func_name.trim_start_matches('.');
        match (&call.target, &*call.args) {
            (None, [argument]) if name == operators::HAS => self.has(node, argument),
            (None, _) if name == operators::LOGICAL_AND || name == operators::LOGICAL_OR => {
                self.logic(call)
            }
            (None, [operand, field]) if name == operators::OPT_SELECT => {
                self.optional_select(node, operand, field)
            }
            (None, args) => self.apply_to(node, name, args, None),
            (Some(target), args) => {
                if let Some((kind, variables)) = comprehension_kind(name, args.len()) {
                    return self.comprehension(node, kind, variables, target, args);
                }
                if let ("optMap" | "optFlatMap", [var, body]) = (name, args) {
                    return self.optional_transform(node, name == "optFlatMap", target, var, body);
                }
                if let Some(function) = qualified_name(target, name) {
                    return self.apply_to(node, &function, args, None);
                }
                self.enclosing_formats += usize::from(name == "format");
                let applied = self.apply_to(node, name, args, Some(target));
                self.enclosing_formats -= usize::from(name == "format");
                if name == "format" {
                    self.check_format(node, target, args);
                }
                applied
            }
        }
    }

    /// Converts a call with its arguments. `target` is the receiver of a member call.
    fn apply_to(
        &mut self,
        node: u64,
        name: &str,
        args: &[IdedExpr],
        target: Option<&IdedExpr>,
    ) -> (Op, Ty) {
        let all = target.into_iter().chain(args);
        let (ops, types): (Vec<_>, Vec<_>) = all.map(|arg| self.expr(arg)).unzip();
        let mut applied = self.apply(node, name, ops, &types, args.last(), target.is_some());
        if self.schema.is_some() {
            if let Some(ty) = self.indexed_type(node, name, args, &types) {
                applied.1 = ty;
            }
            self.check_values(node, name, args, target);
        }
        applied
    }

    /// Reports that an argument of a function is a constant that the function can never accept. As in
    /// Kubernetes, if the argument of `matches`, `duration` or `timestamp` is a literal, the error
    /// has the position of the literal. `argument` is the last argument of the call at `node`.
    fn refuse(&mut self, node: u64, name: &str, argument: Option<&IdedExpr>, reason: String) {
        match argument.filter(|it| matches!(it.expr, Expr::Literal(_))) {
            Some(literal) if matches!(name, "matches" | "duration" | "timestamp") => {
                let message = format!("invalid {name} argument: {reason}");
                self.error(ErrorKind::Invalid, literal.id, message);
            }
            _ => {
                self.error(ErrorKind::Unacceptable, node, reason);
            }
        }
    }

    fn has(&mut self, node: u64, argument: &IdedExpr) -> (Op, Ty) {
        let Expr::Select(select) = &argument.expr else {
            return self.misused(argument.id, "invalid argument to has() macro");
        };
        if self.is_variables(&select.operand) {
            self.extent = Some(self.token_of(select.operand.id));
            let (variable, _) = self.variable(node, &select.field);
            let has_value = Op::call("hasValue", vec![optional_of(variable)]);
            return (has_value, Ty::Bool);
        }
        let (operand, _, _) = self.field_of(node, &select.operand, &select.field);
        let op = Op::Has(Box::new(operand), select.field.as_str().into());
        (op, Ty::Bool)
    }

    fn logic(&mut self, call: &CallExpr) -> (Op, Ty) {
        let mut terms = Vec::new();
        self.collect_terms(call, &mut terms);
        let op = if call.func_name == operators::LOGICAL_AND {
            Op::And(terms)
        } else {
            Op::Or(terms)
        };
        (op, Ty::Bool)
    }

    /// Collects the operands of a chain of `&&` or of `||`. The parser returns such a chain as a
    /// balanced tree.
    fn collect_terms(&mut self, call: &CallExpr, terms: &mut Vec<Op>) {
        for arg in &call.args {
            match &arg.expr {
                Expr::Call(inner)
                    if inner.func_name == call.func_name && inner.target.is_none() =>
                {
                    self.collect_terms(inner, terms);
                }
                _ => terms.push(self.boolean(arg)),
            }
        }
    }

    pub(super) fn boolean(&mut self, node: &IdedExpr) -> Op {
        let (op, ty) = self.expr(node);
        if !ty.fits(&Ty::Bool) {
            self.mistyped(node.id, format!("expected type 'bool' but found '{ty}'"));
        }
        op
    }

    fn apply(
        &mut self,
        node: u64,
        name: &str,
        mut ops: Vec<Op>,
        types: &[Ty],
        argument: Option<&IdedExpr>,
        member: bool,
    ) -> (Op, Ty) {
        let Some(function) = Function::named(name) else {
            return self.undeclared(node, name);
        };
        let resolved = match self.schema {
            Some(_) => resolve_with_schema(name, types, member),
            None => resolve(name, types, member),
        };
        let ty = match resolved {
            Ok(ty) => ty,
            Err(message) => return self.mistyped(node, message),
        };
        match (name, &mut *ops) {
            (_, [Op::Const(value)]) if conversions::is_conversion(name) => {
                // As in cel-go, the compiler evaluates the conversion of a literal.
                let folded = fold_conversion(name, value).unwrap_or_else(|reason| {
                    self.refuse(node, name, argument, reason);
                    Const::Null
                });
                return (Op::Const(folded), ty);
            }
            ("matches" | "find" | "findAll", [_, pattern, ..]) => {
                if let Op::Const(Const::Str(source)) = pattern {
                    match self.environment.patterns.get(source) {
                        Ok(compiled) => *pattern = Op::Const(Const::Pattern(compiled)),
                        Err(reason) => self.refuse(node, name, argument, reason),
                    }
                }
            }
            _ => {}
        }
        if name == "sum" {
            ops.extend(typed_zero_for_sum(&ty).map(Op::Const));
        }
        let op = match <[Op; 2]>::try_from(ops) {
            Ok([left, right]) => binary(function, left, right),
            Err(ops) => match <[Op; 3]>::try_from(ops) {
                Ok(parts) if name == operators::CONDITIONAL => Op::Cond(Box::new(parts.into())),
                Ok(ops) => Op::Call(function, ops.into()),
                Err(ops) => Op::Call(function, ops),
            },
        };
        (op, ty)
    }
}

/// Returns the result of `sum` for an empty list, if `sum` has the result type `ty`. For example,
/// returns `0.0` for double. Returns None if this result is the integer 0.
fn typed_zero_for_sum(ty: &Ty) -> Option<Const> {
    match ty {
        Ty::Uint => Some(Const::Uint(0)),
        Ty::Double => Some(Const::Double(0.0)),
        Ty::Duration => Some(Const::Duration(0)),
        _ => None,
    }
}

/// Returns the name of a function such as `sets.contains`. The parser returns `sets.contains(a, b)`
/// as a call of `contains` with the receiver `sets`. Returns None if there is no function with this
/// name.
fn qualified_name(target: &IdedExpr, name: &str) -> Option<String> {
    let Expr::Ident(prefix) = &target.expr else {
        return None;
    };
    let name = format!("{}.{name}", prefix.trim_start_matches('.'));
    Function::named(&name).map(|_| name)
}

/// Converts a literal during compilation, or returns the error of the conversion.
fn fold_conversion(to: &str, value: &Const) -> Result<Const, String> {
    // The literal is a part of an expression of limited size, so the conversion needs no budget.
    let mut budget = Budget { left: u64::MAX };
    let converted = conversions::call(to, &[value.value()], &mut budget);
    let converted = converted.map_err(|fault| EvaluationFault::from(fault).to_string())?;
    Const::of(&converted).ok_or_else(String::new)
}

/// Returns the op of a function or operator with two operands.
fn binary(function: &'static Function, left: Op, right: Op) -> Op {
    match (function.name, right) {
        // `a[?'b']` is the same as `a.?b` for values of all types.
        (operators::OPT_INDEX, Op::Const(Const::Str(field))) => optional_path(left, &field),
        (operators::OPT_INDEX, right) => Op::OptionalIndex(Box::new((left, right))),
        // `a['b']` is the same as `a.b` for values of all types.
        (operators::INDEX, Op::Const(Const::Str(field))) => path(left, &field),
        (operators::INDEX, right) => Op::Index(Box::new((left, right))),
        // As in cel-go, the left operand is not evaluated.
        (operators::IN, Op::List(items)) if items.is_empty() => Op::Const(Const::Bool(false)),
        (operators::IN, Op::List(items))
            if items
                .iter()
                .all(|item| matches!(item, (Op::Const(_), false))) =>
        {
            let set = items.into_iter().filter_map(|(item, _)| match item {
                Op::Const(value) => Some(value),
                _ => None,
            });
            Op::InSet(Box::new(left), set.collect())
        }
        ("or", right) => Op::Otherwise(Box::new((left, right)), false),
        ("orValue", right) => Op::Otherwise(Box::new((left, right)), true),
        (_, right) => Op::Call(function, vec![left, right]),
    }
}
