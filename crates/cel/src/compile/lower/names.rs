//! Converts names and the selections of fields.

use cel::IdedExpr;
use cel::common::ast::{Expr, SelectExpr};

use super::Lowering;
use crate::compile::op::Op;
use crate::compile::parse::{string_of, without_dot};
use crate::types::{PathStep, Ty};

impl Lowering<'_> {
    pub(super) fn ident(&mut self, node: u64, name: &str) -> (Op, Ty) {
        // As in cel-go, a leading dot has no meaning, because the environment has no namespace.
        let name = without_dot(name);
        if let Some(slot) = self.vars.iter().rposition(|(var, _)| var == name) {
            return (Op::LocalVariable(slot), self.vars[slot].1.clone());
        }
        match name {
            "object" => (Op::Object, self.schema_type(&[])),
            "now" => {
                self.reads_now = true;
                (Op::Now, Ty::Timestamp)
            }
            "item" if self.environment.has_item => {
                self.reads_item = true;
                (Op::Item, self.environment.item_type())
            }
            // `variables` alone has no value, because each variable is evaluated only when it is
            // read.
            "variables" => self.mistyped(
                node,
                "'variables' has no value; select one variable, as in variables.name",
            ),
            _ => self.undeclared(node, name),
        }
    }

    pub(super) fn select(&mut self, node: &IdedExpr, select: &SelectExpr) -> (Op, Ty) {
        if self.is_variables(&select.operand) {
            self.extent = Some(self.token_of(select.operand.id));
            return self.variable(node.id, &select.field);
        }
        let (operand, field, is_optional) = self.field_of(node.id, &select.operand, &select.field);
        let ty = if is_optional {
            Ty::optional(field)
        } else {
            field
        };
        (path(operand, &select.field), ty)
    }

    /// Converts `operand.?field`. The parser returns it as a call whose second argument is the name
    /// of the field.
    pub(super) fn optional_select(
        &mut self,
        node: u64,
        operand: &IdedExpr,
        field: &IdedExpr,
    ) -> (Op, Ty) {
        let Some(field) = string_of(field) else {
            return self.misused(field.id, "unsupported optional field selection");
        };
        if self.is_variables(operand) {
            self.extent = Some(self.token_of(operand.id));
            let (variable, ty) = self.variable(node, field);
            return (optional_of(variable), Ty::optional(ty));
        }
        let (operand, ty, _) = self.field_of(node, operand, field);
        let ty = Ty::optional(ty);
        (optional_path(operand, field), ty)
    }

    /// Returns true if `node` is the name `variables`. Returns false if a comprehension variable
    /// has the name `variables`.
    pub(super) fn is_variables(&self, node: &IdedExpr) -> bool {
        let Expr::Ident(name) = &node.expr else {
            return false;
        };
        let name = without_dot(name);
        name == "variables" && self.vars.iter().all(|(var, _)| var != name)
    }

    pub(super) fn variable(&mut self, node: u64, name: &str) -> (Op, Ty) {
        let Some((slot, program)) = self.environment.find(name) else {
            return self.mistyped(node, format!("undefined field '{name}'"));
        };
        self.depth = self.depth.max(self.level + program.0.depth);
        self.reads_now |= program.0.reads_now;
        (Op::Variable(slot), program.0.ty.clone().without_unknown())
    }

    /// Returns the converted operand of a field selection, and the type of the field. The flag is
    /// true if the operand is an optional. In this case, the selection also returns an optional,
    /// whose value has the type of the field.
    pub(super) fn field_of(&mut self, node: u64, operand: &IdedExpr, name: &str) -> (Op, Ty, bool) {
        let (operand, ty) = self.expr(operand);
        let is_optional = ty.optional_value().is_some();
        let field = match ty.optional_value().unwrap_or(&ty) {
            Ty::Map(_, value) => (**value).clone(),
            Ty::Schema(path) => self.member_type(node, path, PathStep::Field(name.to_owned())),
            ty if ty.is_dynamic() => Ty::Dyn,
            ty => {
                let message = format!("type '{ty}' does not support field selection");
                self.mistyped(node, message);
                Ty::Dyn
            }
        };
        (operand, field, is_optional)
    }

    /// Returns the name and the type if `node` is the name of a type, such as `int` or `net.IP`.
    pub(super) fn type_named(&self, node: &Expr) -> Option<(&'static str, Ty)> {
        let name = qualified_name(node)?;
        let (root, _) = name.split_once('.').unwrap_or((&name, ""));
        if self.vars.iter().any(|(var, _)| var == root) {
            return None;
        }
        Some(match &*name {
            "bool" => ("bool", Ty::Bool),
            "int" => ("int", Ty::Int),
            "uint" => ("uint", Ty::Uint),
            "double" => ("double", Ty::Double),
            "string" => ("string", Ty::String),
            "bytes" => ("bytes", Ty::Bytes),
            "list" => ("list", Ty::list(Ty::Dyn)),
            "map" => ("map", Ty::map(Ty::Dyn, Ty::Dyn)),
            "null_type" => ("null_type", Ty::Null),
            "type" => ("type", Ty::Type(Box::new(Ty::Dyn))),
            "optional_type" => ("optional_type", Ty::optional(Ty::Dyn)),
            "google.protobuf.Timestamp" => ("google.protobuf.Timestamp", Ty::Timestamp),
            "google.protobuf.Duration" => ("google.protobuf.Duration", Ty::Duration),
            "net.IP" => ("net.IP", Ty::Ip),
            "net.CIDR" => ("net.CIDR", Ty::Cidr),
            _ => return None,
        })
    }
}

/// Returns a name such as `net.IP`. Returns None for other expressions.
fn qualified_name(node: &Expr) -> Option<String> {
    match node {
        Expr::Ident(name) => Some(without_dot(name).to_owned()),
        Expr::Select(select) => {
            let prefix = qualified_name(&select.operand.expr)?;
            Some(format!("{prefix}.{}", select.field))
        }
        _ => None,
    }
}

pub(super) fn optional_of(value: Op) -> Op {
    Op::call("optional.of", vec![value])
}

pub(super) fn path(base: Op, field: &str) -> Op {
    match base {
        Op::Path(base, mut fields) => {
            fields.push(field.into());
            Op::Path(base, fields)
        }
        Op::OptionalPath(base, mut fields) => {
            fields.push(field.into());
            Op::OptionalPath(base, fields)
        }
        base => Op::Path(Box::new(base), vec![field.into()]),
    }
}

pub(super) fn optional_path(base: Op, field: &str) -> Op {
    match base {
        Op::OptionalPath(base, mut fields) => {
            fields.push(field.into());
            Op::OptionalPath(base, fields)
        }
        base => Op::OptionalPath(Box::new(base), vec![field.into()]),
    }
}
