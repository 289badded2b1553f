//! Converts the macros with variables, such as `exists` and `optMap`.

use cel::IdedExpr;
use cel::common::ast::{Expr, operators};

use super::fields::joined;
use super::{Lowering, weight};
use crate::compile::check::resolve;
use crate::compile::op::{Comprehension, ComprehensionKind, Op, OptionalTransform};
use crate::compile::parse::without_dot;
use crate::types::{PathStep, Ty};

impl Lowering<'_> {
    pub(super) fn comprehension(
        &mut self,
        node: u64,
        kind: ComprehensionKind,
        variables: usize,
        target: &IdedExpr,
        args: &[IdedExpr],
    ) -> (Op, Ty) {
        let Some((names, [tests @ .., body])) = args.split_at_checked(variables) else {
            return self.misused(node, "unsupported expression");
        };
        let names = match self.variable_names(names) {
            Ok(names) => names,
            Err(error) => return error,
        };
        let (range, range_ty) = self.expr(target);
        let (key, value) = self.range_types(target.id, &range_ty, variables);
        // cel-go infers an unknown type from the first use of the variable. Here, a variable of
        // unknown type is dyn, so that all uses of it are allowed.
        let (key, value) = (key.without_unknown(), value.without_unknown());
        let before = self.ops;
        let outer = self.vars.len();
        self.vars
            .extend(names.into_iter().zip([key.clone(), value]));
        let test = tests.first().map(|test| self.boolean(test));
        let (body, body_ty) = match kind {
            ComprehensionKind::All
            | ComprehensionKind::Exists
            | ComprehensionKind::ExistsOne
            | ComprehensionKind::Filter => (self.boolean(body), Ty::Bool),
            _ => self.expr(body),
        };
        self.vars.truncate(outer);
        let result = self.comprehension_type(node, kind, &range_ty, key, &body_ty);
        let op = Op::Fold(Box::new(Comprehension {
            kind,
            two_variables: variables == 2,
            range,
            test,
            body,
            weight: weight(self.ops - before),
        }));
        (op, result)
    }

    /// Returns the names of the variables of a comprehension. If a name is not allowed, reports an
    /// error, and returns the op and the type that replace the node.
    fn variable_names(&mut self, vars: &[IdedExpr]) -> Result<Vec<String>, (Op, Ty)> {
        let mut names: Vec<String> = Vec::with_capacity(vars.len());
        for var in vars {
            let Expr::Ident(name) = &var.expr else {
                return Err(self.misused(var.id, "argument must be a simple name"));
            };
            let name = without_dot(name);
            if names.iter().any(|it| it == name) {
                return Err(self.misused(var.id, format!("duplicate variable name: {name}")));
            }
            names.push(name.to_owned());
        }
        Ok(names)
    }

    /// Returns the types of the two variables of a comprehension over a value of the type `range`.
    /// A comprehension with one variable uses only the first type.
    fn range_types(&mut self, node: u64, range: &Ty, variables: usize) -> (Ty, Ty) {
        match range {
            Ty::List(of) if variables == 2 => (Ty::Int, (**of).clone()),
            Ty::List(of) => ((**of).clone(), Ty::Dyn),
            Ty::Map(key, value) => ((**key).clone(), (**value).clone()),
            Ty::Schema(path) => (Ty::String, self.schema_type(&joined(path, PathStep::Index))),
            ty if ty.is_dynamic() => (Ty::Dyn, Ty::Dyn),
            ty => {
                self.mistyped(
                    node,
                    format!(
                        "expression of type '{ty}' cannot be range of a comprehension (must be \
                         list, map, or dynamic)"
                    ),
                );
                (Ty::Error, Ty::Error)
            }
        }
    }

    /// Returns the type of the result of a comprehension. `first` is the type of its first
    /// variable.
    fn comprehension_type(
        &mut self,
        node: u64,
        kind: ComprehensionKind,
        range: &Ty,
        first: Ty,
        body: &Ty,
    ) -> Ty {
        let mut check = |name: &str, types: &[Ty], member: bool| {
            resolve(name, types, member).unwrap_or_else(|message| self.mistyped(node, message).1)
        };
        match kind {
            ComprehensionKind::All | ComprehensionKind::Exists | ComprehensionKind::ExistsOne => {
                Ty::Bool
            }
            ComprehensionKind::Filter => Ty::list(first),
            ComprehensionKind::Map => Ty::list(body.clone()),
            ComprehensionKind::TransformMap => Ty::map(first, body.clone()),
            ComprehensionKind::TransformMapEntry => {
                let empty = Ty::map(Ty::Unknown, Ty::Unknown);
                match check("cel.@mapInsert", &[empty.clone(), body.clone()], false) {
                    // As in cel-go, the result has a map type even if the check fails.
                    Ty::Error => empty,
                    ty => ty,
                }
            }
            ComprehensionKind::SortBy => {
                let keys = Ty::list(body.clone());
                check("@sortByAssociatedKeys", &[range.clone(), keys], true)
            }
        }
    }

    /// Converts `optMap`, or `optFlatMap` if `flat` is true. cel-go expands these macros to a
    /// conditional. The types are checked like those of the conditional.
    pub(super) fn optional_transform(
        &mut self,
        node: u64,
        flat: bool,
        target: &IdedExpr,
        var: &IdedExpr,
        body: &IdedExpr,
    ) -> (Op, Ty) {
        let Expr::Ident(name) = &var.expr else {
            let name = if flat { "optFlatMap" } else { "optMap" };
            let message = format!("{name}() variable name must be a simple identifier");
            return self.misused(var.id, message);
        };
        let name = without_dot(name).to_owned();
        let (target, ty) = self.expr(target);
        let value = match resolve("hasValue", std::slice::from_ref(&ty), true) {
            Ok(_) => (ty.optional_value().cloned())
                .unwrap_or(Ty::Dyn)
                .without_unknown(),
            Err(message) => self.mistyped(node, message).1,
        };
        let before = self.ops;
        self.vars.push((name, value));
        let (body, body_ty) = self.expr(body);
        self.vars.pop();
        let result = if flat { body_ty } else { Ty::optional(body_ty) };
        let branches = [Ty::Bool, result, Ty::optional(Ty::Unknown)];
        let ty = match resolve(operators::CONDITIONAL, &branches, false) {
            Ok(ty) => ty,
            Err(message) => return self.mistyped(node, message),
        };
        let op = Op::OptionalTransform(Box::new(OptionalTransform {
            target,
            body,
            flat,
            weight: weight(self.ops - before),
        }));
        (op, ty)
    }
}
