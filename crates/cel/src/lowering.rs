//! Converts the syntax tree of a CEL expression to the op tree ([`Op`]), which the module `eval`
//! evaluates. The conversion also resolves names and checks types. The parser does not expand
//! macros such as `has` and `exists`, so macros are plain calls in the syntax tree.

use cel::IdedExpr;
use cel::common::ast::{
    CallExpr, EntryExpr, Expr, IdedEntryExpr, ListExpr, LiteralValue, MapExpr, SelectExpr,
    SourceInfo, operators,
};

use std::collections::HashMap;

use super::conversions::convert;
use super::fields::PathStep;
use super::op::{
    Arith, Comprehension, ComprehensionKind, Const, Function, Op, OptionalTransform, Order,
    PatternSearch,
};
use super::op_positions::{Span, Spans};
use super::pattern::Pattern;
use super::type_check::{Ty, resolve, resolve_with_schema};
use super::{Budget, Environment, FieldType, ObjectSchema};

/// Number of ops whose evaluation takes one step from the [`Budget`] (the number of steps that an
/// evaluation may still take). With this number, a step takes at most about 300 ns.
const OPS_PER_STEP: u64 = 16;

/// The names of cel-go's internal variables that hold the result of a comprehension. An iteration
/// variable must not have one of these names.
const ACCUMULATORS: [&str; 2] = ["__result__", "@result"];

/// Maximum number of steps of a path whose type is looked up in the schema. The value at a longer
/// path has the type `dyn`. A schema can be recursive, such as a list whose elements are again such
/// lists. Without the limit, the look-up would not end.
const MAX_PATH: usize = 64;

/// Maximum number of possible values of a field that an error message lists. If the field has more
/// values, the list in the message ends with `…`.
const MAX_VALUES: usize = 16;

/// An error at a node of the syntax tree.
#[derive(Debug)]
pub(super) struct NodeError {
    pub node: u64,
    pub message: String,
}

/// The op tree of an expression, with its properties and errors.
pub(super) struct Lowered {
    pub op: Op,
    /// The places of the ops in the text.
    pub spans: Spans,
    pub ty: Ty,
    /// Number of steps that one evaluation takes from the [`Budget`] at its beginning. Each
    /// iteration of a comprehension such as `exists` takes further steps.
    pub weight: u64,
    /// Errors in calls of macros. If there are such errors, no other errors are reported, because
    /// the types of wrong macro calls are unknown.
    pub misused: Vec<NodeError>,
    /// Wrong types and unknown names.
    pub mistyped: Vec<NodeError>,
    /// Literals that cel-go's validators refuse, such as the pattern in `matches('[')`. These
    /// errors are reported only if the types are right.
    pub invalid: Vec<NodeError>,
    /// Other literals that a function can never accept, as in `int('a')`. These errors are reported
    /// only if there are no other errors.
    pub unacceptable: Vec<NodeError>,
    /// Nesting depth, including the depth of the variables that the expression uses.
    pub depth: usize,
    /// True if the expression, or a variable that it uses, can read `now`.
    pub reads_now: bool,
    pub reads_item: bool,
}

/// Converts the syntax tree below `root`. The op tree is valid only if all four lists of errors in
/// the result are empty.
pub(super) fn lower(
    root: &IdedExpr,
    info: &SourceInfo,
    environment: &Environment,
    schema: Option<&dyn ObjectSchema>,
) -> Lowered {
    let mut lowering = Lowering {
        environment,
        schema,
        values: HashMap::new(),
        info,
        spans: Spans::default(),
        extent: None,
        vars: Vec::new(),
        ops: 0,
        level: 0,
        depth: 0,
        reads_now: false,
        reads_item: false,
        misused: Vec::new(),
        mistyped: Vec::new(),
        invalid: Vec::new(),
        unacceptable: Vec::new(),
        enclosing_formats: 0,
        types: HashMap::new(),
    };
    let (op, ty) = lowering.expr(root);
    Lowered {
        op,
        spans: lowering.spans,
        ty,
        depth: lowering.depth,
        reads_now: lowering.reads_now,
        reads_item: lowering.reads_item,
        weight: weight(lowering.ops),
        misused: lowering.misused,
        mistyped: lowering.mistyped,
        invalid: lowering.invalid,
        unacceptable: lowering.unacceptable,
    }
}

/// Returns the number of steps for an evaluation of `ops` ops.
fn weight(ops: u64) -> u64 {
    1 + ops / OPS_PER_STEP
}

/// The state of the conversion.
pub(super) struct Lowering<'v> {
    environment: &'v Environment,
    schema: Option<&'v dyn ObjectSchema>,
    /// The possible values of a node, if the schema lists them. The key is the id of the node.
    values: HashMap<u64, Vec<String>>,
    info: &'v SourceInfo,
    spans: Spans,
    /// The span of the operands of the current node that are already converted. None if no operand
    /// is converted yet.
    extent: Option<Span>,
    /// The comprehension variables in scope, with their types. An op refers to a variable by its
    /// index in this list.
    vars: Vec<(String, Ty)>,
    /// Number of nodes that are already converted. [`weight`] takes this number as the number of
    /// ops.
    ops: u64,
    /// Depth of the current node.
    level: usize,
    /// Largest depth so far.
    depth: usize,
    reads_now: bool,
    reads_item: bool,
    misused: Vec<NodeError>,
    mistyped: Vec<NodeError>,
    pub invalid: Vec<NodeError>,
    unacceptable: Vec<NodeError>,
    /// Number of `format` calls around the current node.
    enclosing_formats: usize,
    /// The types of the nodes inside of `format` calls. The key is the id of the node.
    pub types: HashMap<u64, Ty>,
}

/// Returns the replacement of a node for which an error was reported.
fn error_op() -> (Op, Ty) {
    (Op::Const(Const::Null), Ty::Error)
}

impl Lowering<'_> {
    fn mistyped(&mut self, node: u64, message: String) -> (Op, Ty) {
        self.mistyped.push(NodeError { node, message });
        error_op()
    }

    fn misused(&mut self, node: u64, message: &str) -> (Op, Ty) {
        self.misused.push(NodeError {
            node,
            message: message.to_owned(),
        });
        error_op()
    }

    fn undeclared(&mut self, node: u64, name: &str) -> (Op, Ty) {
        self.mistyped(
            node,
            format!("undeclared reference to '{name}' (in container '')"),
        )
    }

    fn expr(&mut self, node: &IdedExpr) -> (Op, Ty) {
        self.ops += 1;
        self.level += 1;
        self.depth = self.depth.max(self.level);
        let outer = self.extent.take();
        let lowered = self.node(node);
        self.level -= 1;
        let mut span = self.token_of(node.id);
        if let Some(operands) = self.extent {
            span = span.with(operands);
        }
        self.spans.add(&lowered.0, span);
        self.extent = Some(outer.map_or(span, |outer| outer.with(span)));
        if self.enclosing_formats > 0 {
            self.types.insert(node.id, lowered.1.clone());
        }
        lowered
    }

    /// Returns the span of the token of a node, such as an operator.
    fn token_of(&self, node: u64) -> Span {
        let (start, stop) = self.info.offset_for(node).unwrap_or_default();
        let byte = |offset: u32| usize::try_from(offset).unwrap_or_default();
        // `stop` is the position of the last byte of the token, so the end is one byte later.
        Span {
            at: byte(start),
            start: byte(start),
            end: byte(stop) + 1,
        }
    }

    /// Returns the type of the value at a path of the object.
    fn schema_type(&self, path: &[PathStep]) -> Ty {
        let Some(schema) = self.schema.filter(|_| path.len() <= MAX_PATH) else {
            return Ty::Dyn;
        };
        match schema.type_at(path) {
            FieldType::Any => Ty::Dyn,
            FieldType::Bool => Ty::Bool,
            FieldType::Int => Ty::Int,
            FieldType::String { .. } => Ty::String,
            FieldType::List => Ty::list(self.schema_type(&joined(path, PathStep::Each))),
            FieldType::Object => Ty::Schema(path.into()),
        }
    }

    /// Returns the type of a field or member of the object at `path`. Stores the possible values of
    /// `node`, if the schema lists them.
    fn member_type(&mut self, node: u64, path: &[PathStep], step: PathStep) -> Ty {
        let path = joined(path, step);
        if let Some(schema) = self.schema
            && let FieldType::String { values } = schema.type_at(&path)
            && !values.is_empty()
        {
            self.values.insert(node, values);
        }
        self.schema_type(&path)
    }

    /// Returns the type of the call `a[key]` or `a[?key]`, if `a` is an object whose fields the
    /// schema describes. Returns None for all other calls.
    fn indexed_type(
        &mut self,
        node: u64,
        name: &str,
        args: &[IdedExpr],
        types: &[Ty],
    ) -> Option<Ty> {
        let (operators::INDEX | operators::OPT_INDEX, [_, index], [ty, _]) = (name, args, types)
        else {
            return None;
        };
        let Ty::Schema(path) = ty.optional_value().unwrap_or(ty) else {
            return None;
        };
        let step = match &index.expr {
            Expr::Literal(LiteralValue::String(key)) => PathStep::Field(key.inner().to_owned()),
            _ => PathStep::Index,
        };
        let member = self.member_type(node, path, step);
        let is_optional = name == operators::OPT_INDEX || ty.optional_value().is_some();
        Some(if is_optional {
            Ty::optional(member)
        } else {
            member
        })
    }

    /// Reports each string literal that is compared with a field and is not a possible value of the
    /// field. In `field.orValue('x')`, the text `x` becomes a possible value of the result.
    fn check_values(
        &mut self,
        node: u64,
        name: &str,
        args: &[IdedExpr],
        target: Option<&IdedExpr>,
    ) {
        match (name, args, target) {
            (operators::EQUALS | operators::NOT_EQUALS, [left, right], None) => {
                self.check_value(left.id, right);
                self.check_value(right.id, left);
            }
            (operators::IN, [value, list], None) => {
                if let Expr::List(list) = &list.expr {
                    for element in &list.elements {
                        self.check_value(value.id, element);
                    }
                }
            }
            ("orValue", [default], Some(optional)) => {
                if let Some(mut values) = self.values.get(&optional.id).cloned()
                    && let Expr::Literal(LiteralValue::String(default)) = &default.expr
                {
                    values.push(default.inner().to_owned());
                    self.values.insert(node, values);
                }
            }
            _ => {}
        }
    }

    fn check_value(&mut self, field: u64, value: &IdedExpr) {
        let (Some(values), Expr::Literal(LiteralValue::String(text))) =
            (self.values.get(&field), &value.expr)
        else {
            return;
        };
        let text = text.inner();
        // An empty string is not reported, because it often stands for a missing value.
        if text.is_empty() || values.iter().any(|it| it == text) {
            return;
        }
        let mut quoted: Vec<String> = values
            .iter()
            .filter(|value| !value.is_empty())
            .map(|value| format!("'{value}'"))
            .collect();
        let more = if quoted.len() > MAX_VALUES {
            ", …"
        } else {
            ""
        };
        quoted.truncate(MAX_VALUES);
        let possible = quoted.join(", ");
        let message =
            format!("'{text}' is not a possible value of the field; possible are {possible}{more}");
        self.mistyped(value.id, message);
    }

    fn node(&mut self, node: &IdedExpr) -> (Op, Ty) {
        match &node.expr {
            Expr::Literal(value) => literal(value),
            Expr::Ident(name) => self.ident(node.id, name),
            Expr::Select(select) => self.select(node, select),
            Expr::Call(call) => self.call(node.id, call),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Struct(message) => self.undeclared(node.id, &message.type_name),
            // These nodes do not occur here. `Comprehension` is an expanded macro, and the parser
            // expands no macros. `Unspecified` is an incomplete node, for which the parser returns
            // an error.
            Expr::Comprehension(_) | Expr::Unspecified => {
                self.misused(node.id, "unsupported expression")
            }
        }
    }

    fn ident(&mut self, node: u64, name: &str) -> (Op, Ty) {
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
                "'variables' has no value; select one variable, as in variables.name".to_owned(),
            ),
            _ => match type_named(name) {
                Some((name, ty)) => (Op::Const(Const::Type(name)), Ty::Type(Box::new(ty))),
                None => self.undeclared(node, name),
            },
        }
    }

    fn select(&mut self, node: &IdedExpr, select: &SelectExpr) -> (Op, Ty) {
        if let Some((name, ty)) = self.qualified_type(select) {
            return (Op::Const(Const::Type(name)), Ty::Type(Box::new(ty)));
        }
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
    fn optional_select(&mut self, node: u64, operand: &IdedExpr, field: &IdedExpr) -> (Op, Ty) {
        let Expr::Literal(LiteralValue::String(field)) = &field.expr else {
            return self.misused(field.id, "unsupported optional field selection");
        };
        if self.is_variables(operand) {
            self.extent = Some(self.token_of(operand.id));
            let (variable, ty) = self.variable(node, field.inner());
            return (optional_of(variable), Ty::optional(ty));
        }
        let (operand, ty, _) = self.field_of(node, operand, field.inner());
        let ty = Ty::optional(ty);
        (optional_path(operand, field.inner().into()), ty)
    }

    /// Returns true if `node` is the name `variables`. Returns false if a comprehension variable
    /// has the name `variables`.
    fn is_variables(&self, node: &IdedExpr) -> bool {
        let Expr::Ident(name) = &node.expr else {
            return false;
        };
        let name = without_dot(name);
        name == "variables" && self.vars.iter().all(|(var, _)| var != name)
    }

    fn variable(&mut self, node: u64, name: &str) -> (Op, Ty) {
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
    fn field_of(&mut self, node: u64, operand: &IdedExpr, name: &str) -> (Op, Ty, bool) {
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

    /// Returns the name and the type if `select` is a type name such as `google.protobuf.Timestamp`
    /// or `net.IP`.
    fn qualified_type(&self, select: &SelectExpr) -> Option<(&'static str, Ty)> {
        let (root, middle) = match &select.operand.expr {
            Expr::Ident(root) => (root, None),
            Expr::Select(outer) => match &outer.operand.expr {
                Expr::Ident(root) => (root, Some(outer.field.as_str())),
                _ => return None,
            },
            _ => return None,
        };
        let root = without_dot(root);
        if self.vars.iter().any(|(var, _)| var == root) {
            return None;
        }
        Some(match (root, middle, select.field.as_str()) {
            ("google", Some("protobuf"), "Timestamp") => {
                ("google.protobuf.Timestamp", Ty::Timestamp)
            }
            ("google", Some("protobuf"), "Duration") => ("google.protobuf.Duration", Ty::Duration),
            ("net", None, "IP") => ("net.IP", Ty::Ip),
            ("net", None, "CIDR") => ("net.CIDR", Ty::Cidr),
            _ => return None,
        })
    }

    fn list(&mut self, list: &ListExpr) -> (Op, Ty) {
        let mut joined = Ty::Unknown;
        let mut ops = Vec::with_capacity(list.elements.len());
        for (index, element) in list.elements.iter().enumerate() {
            let is_optional = list.optional_indices.contains(&index);
            let (op, ty) = self.literal_element(element, is_optional);
            joined = joined.join(&ty);
            ops.push((op, is_optional));
        }
        let op = if list.optional_indices.is_empty() {
            Op::List(ops.into_iter().map(|(op, _)| op).collect())
        } else {
            Op::OptionalList(ops)
        };
        (op, Ty::list(joined))
    }

    fn map(&mut self, map: &MapExpr) -> (Op, Ty) {
        let (mut keys, mut values) = (Ty::Unknown, Ty::Unknown);
        let mut ops = Vec::with_capacity(map.entries.len());
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                continue;
            };
            let (key, key_ty) = self.expr(&entry.key);
            let (value, value_ty) = self.literal_element(&entry.value, entry.optional);
            keys = keys.join(&key_ty);
            values = values.join(&value_ty);
            ops.push((key, value, entry.optional));
        }
        let op = if ops.iter().any(|(_, _, optional)| *optional) {
            Op::OptionalMap(ops)
        } else {
            let ops = ops.into_iter().map(|(key, value, _)| (key, value));
            Op::Map(ops.collect())
        };
        (op, Ty::map(keys, values))
    }

    /// Converts an element of a list literal or the value of an entry of a map literal. Returns the
    /// type that the list or map receives. For an optional element, this is the type inside the
    /// optional. For example, if `x` has the type `optional_type(int)`, `[?x]` is a list of `int`.
    fn literal_element(&mut self, node: &IdedExpr, is_optional: bool) -> (Op, Ty) {
        let (op, ty) = self.expr(node);
        if !is_optional {
            return (op, ty);
        }
        match ty {
            Ty::Optional(of) => (op, *of),
            ty if ty.is_dynamic() => (op, Ty::Dyn),
            ty => {
                let message = format!("expected type 'optional_type({ty})' but found '{ty}'");
                self.mistyped(node.id, message)
            }
        }
    }

    fn call(&mut self, node: u64, call: &CallExpr) -> (Op, Ty) {
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
        let mut applied = self.apply(node, name, ops, &types, target.is_some());
        if self.schema.is_some() {
            if let Some(ty) = self.indexed_type(node, name, args, &types) {
                applied.1 = ty;
            }
            self.check_values(node, name, args, target);
        }
        if let Some((argument, reason)) = self.refused_literal(name, args) {
            self.invalid.push(NodeError {
                node: argument,
                message: format!("invalid {name} argument: {reason}"),
            });
        }
        applied
    }

    /// Returns the node of the first argument and a reason, if the argument is a literal that the
    /// function can never accept. Otherwise returns None. As in Kubernetes, only `matches`,
    /// `duration` and `timestamp` are checked.
    fn refused_literal(&self, name: &str, args: &[IdedExpr]) -> Option<(u64, String)> {
        let first = args.first()?;
        let Expr::Literal(value) = &first.expr else {
            return None;
        };
        let (Op::Const(value), _) = literal(value) else {
            return None;
        };
        let checked = match (name, &value) {
            ("matches", Const::Str(pattern)) => self.environment.patterns.get(pattern).map(|_| ()),
            ("duration", _) => fold_conversion(Function::Duration, &value).map(|_| ()),
            ("timestamp", _) => fold_conversion(Function::Timestamp, &value).map(|_| ()),
            _ => Ok(()),
        };
        checked.err().map(|reason| (first.id, reason))
    }

    fn has(&mut self, node: u64, argument: &IdedExpr) -> (Op, Ty) {
        let Expr::Select(select) = &argument.expr else {
            return self.misused(argument.id, "invalid argument to has() macro");
        };
        if self.is_variables(&select.operand) {
            self.extent = Some(self.token_of(select.operand.id));
            let (variable, _) = self.variable(node, &select.field);
            return (
                Op::Call(Function::HasValue, vec![optional_of(variable)]),
                Ty::Bool,
            );
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

    fn boolean(&mut self, node: &IdedExpr) -> Op {
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
        ops: Vec<Op>,
        types: &[Ty],
        member: bool,
    ) -> (Op, Ty) {
        let function = Function::named(name);
        if function.is_none() && !is_operator(name) {
            return self.undeclared(node, name);
        }
        let resolved = match self.schema {
            Some(_) => resolve_with_schema(name, types, member),
            None => resolve(name, types, member),
        };
        let ty = match resolved {
            Ok(ty) => ty,
            Err(message) => return self.mistyped(node, message),
        };
        let ops = match (function, <[Op; 1]>::try_from(ops)) {
            (Some(function), Ok([Op::Const(value)])) if function.is_conversion() => {
                let folded = fold_conversion(function, &value).unwrap_or_else(|message| {
                    self.unacceptable.push(NodeError { node, message });
                    Const::Null
                });
                return (Op::Const(folded), ty);
            }
            (Some(function), Ok([op])) if function.is_conversion() && is_literal(&op) => {
                // The argument is a list or map literal, possibly inside `dyn`. Of the conversion
                // functions, only `dyn` accepts such an argument.
                if function != Function::Dyn {
                    let message = "no such overload".to_owned();
                    self.unacceptable.push(NodeError { node, message });
                }
                vec![op]
            }
            (_, Ok(ops)) => ops.into(),
            (_, Err(ops)) => ops,
        };
        if matches!(name, operators::INDEX | operators::OPT_INDEX)
            && let Some(index) = ops.get(1)
            && is_literal(index)
            && !is_index(index)
        {
            let message = "invalid qualifier type".to_owned();
            self.unacceptable.push(NodeError { node, message });
        }
        if let Some(function @ (Function::Matches | Function::Find | Function::FindAll)) = function
            && let Some(Op::Const(Const::Str(source))) = ops.get(1)
        {
            return match self.environment.patterns.get(source) {
                Ok(pattern) => (with_pattern(function, ops, pattern), ty),
                Err(message) => {
                    self.unacceptable.push(NodeError { node, message });
                    (error_op().0, ty)
                }
            };
        }
        let op = match (function, <[Op; 2]>::try_from(ops)) {
            (Some(Function::Or), Ok([first, second])) => {
                Op::Otherwise(Box::new((first, second)), false)
            }
            (Some(Function::OrValue), Ok([first, second])) => {
                Op::Otherwise(Box::new((first, second)), true)
            }
            (Some(function), Ok(args)) => Op::Call(function, args.into()),
            (Some(Function::Sum), Err(mut args)) => {
                args.extend(typed_zero_for_sum(&ty).map(Op::Const));
                Op::Call(Function::Sum, args)
            }
            (Some(function), Err(args)) => Op::Call(function, args),
            (None, Ok([left, right])) => binary(name, left, right),
            (None, Err(args)) => match <[Op; 3]>::try_from(args) {
                Ok([test, yes, no]) => Op::Cond(Box::new((test, yes, no))),
                Err(mut args) => match args.pop() {
                    Some(operand) if name == operators::NEGATE => Op::Neg(Box::new(operand)),
                    Some(operand) => Op::Not(Box::new(operand)),
                    None => return error_op(),
                },
            },
        };
        (op, ty)
    }

    fn comprehension(
        &mut self,
        node: u64,
        kind: ComprehensionKind,
        variables: usize,
        target: &IdedExpr,
        args: &[IdedExpr],
    ) -> (Op, Ty) {
        let Some((names, [tests @ .., body])) = args.split_at_checked(variables) else {
            return error_op();
        };
        let names = match self.variable_names(kind, names) {
            Ok(names) => names,
            Err(error) => return error,
        };
        if kind == ComprehensionKind::SortBy
            && matches!(target.expr, Expr::Literal(_) | Expr::Map(_))
        {
            return self.misused(
                target.id,
                "sortBy can only be applied to a list, identifier, comprehension, call or select \
                 expression",
            );
        }
        let (range, range_ty) = self.expr(target);
        // As in cel-go, the error of a wrong range of `sortBy` has the position of the call.
        let place = match kind {
            ComprehensionKind::SortBy => node,
            _ => target.id,
        };
        let (key, value) = self.range_types(place, &range_ty, variables);
        // cel-go infers an unknown type from the first use of the variable. Here, a variable of
        // unknown type is dyn, so that all uses of it are allowed.
        let (key, value) = (key.without_unknown(), value.without_unknown());
        let before = self.ops;
        let outer = self.vars.len();
        self.vars
            .extend(names.into_iter().zip([key.clone(), value]));
        let test = tests.first().map(|test| self.expr(test));
        let quantified = matches!(kind, ComprehensionKind::All | ComprehensionKind::Exists);
        let (body, body_ty) = if quantified {
            (self.boolean(body), Ty::Bool)
        } else {
            self.expr(body)
        };
        self.vars.truncate(outer);
        let result = self.comprehension_type(node, kind, &range_ty, key, &body_ty);
        // In cel-go, a comprehension with a condition expands to a conditional `a ? b : c`. The
        // types of this conditional are checked here, so that the errors are the same as in cel-go.
        let tested = match kind {
            ComprehensionKind::ExistsOne => Some((&body_ty, Ty::Int)),
            ComprehensionKind::Filter => Some((&body_ty, result.clone())),
            _ => test.as_ref().map(|(_, ty)| (ty, result.clone())),
        };
        if let Some((ty, branch)) = tested {
            let types = [ty.clone(), branch.clone(), branch];
            if let Err(message) = resolve(operators::CONDITIONAL, &types, false) {
                self.mistyped(node, message);
            }
        }
        let op = Op::Fold(Box::new(Comprehension {
            kind,
            two_variables: variables == 2,
            range,
            test: test.map(|(op, _)| op),
            body,
            weight: weight(self.ops - before),
        }));
        (op, result)
    }

    /// Returns the names of the variables of a comprehension. If a name is not allowed, reports an
    /// error, and returns the replacement of the node.
    fn variable_names(
        &mut self,
        kind: ComprehensionKind,
        vars: &[IdedExpr],
    ) -> Result<Vec<String>, (Op, Ty)> {
        let mut names: Vec<String> = Vec::with_capacity(vars.len());
        for var in vars {
            let name = match &var.expr {
                Expr::Ident(name) => without_dot(name),
                // cel-go has another text for a macro that has one variable and returns a list.
                _ if vars.len() == 1 && kind.makes_list() => {
                    return Err(self.misused(var.id, "argument is not an identifier"));
                }
                _ => return Err(self.misused(var.id, "argument must be a simple name")),
            };
            if names.iter().any(|it| it == name) {
                return Err(self.misused(var.id, &format!("duplicate variable name: {name}")));
            }
            if ACCUMULATORS.contains(&name) {
                let message = "iteration variable overwrites accumulator variable";
                return Err(self.misused(var.id, message));
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
    fn optional_transform(
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
            return self.misused(var.id, &message);
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

/// Returns the kind of a comprehension and the number of its variables. Returns None if no
/// comprehension has this name and this number of arguments.
pub(super) fn comprehension_kind(name: &str, args: usize) -> Option<(ComprehensionKind, usize)> {
    Some(match (name, args) {
        (operators::ALL, 2) => (ComprehensionKind::All, 1),
        (operators::ALL, 3) => (ComprehensionKind::All, 2),
        (operators::EXISTS, 2) => (ComprehensionKind::Exists, 1),
        (operators::EXISTS, 3) => (ComprehensionKind::Exists, 2),
        (operators::EXISTS_ONE, 2) => (ComprehensionKind::ExistsOne, 1),
        (operators::EXISTS_ONE | "existsOne", 3) => (ComprehensionKind::ExistsOne, 2),
        (operators::FILTER, 2) => (ComprehensionKind::Filter, 1),
        (operators::MAP, 2 | 3) => (ComprehensionKind::Map, 1),
        ("transformList", 3 | 4) => (ComprehensionKind::Map, 2),
        ("transformMap", 3 | 4) => (ComprehensionKind::TransformMap, 2),
        ("transformMapEntry", 3 | 4) => (ComprehensionKind::TransformMapEntry, 2),
        ("sortBy", 2) => (ComprehensionKind::SortBy, 1),
        _ => return None,
    })
}

/// Returns the operands of a node, in the order of the text.
pub(super) fn children(node: &IdedExpr) -> impl Iterator<Item = &IdedExpr> {
    let (mut first, rest): (Vec<&IdedExpr>, &[IdedExpr]) = match &node.expr {
        Expr::Call(call) => (call.target.as_deref().into_iter().collect(), &call.args),
        Expr::Select(select) => (vec![&select.operand], &[]),
        Expr::List(list) => (Vec::new(), &list.elements),
        Expr::Map(map) => (entries_of(&map.entries), &[]),
        Expr::Struct(message) => (entries_of(&message.entries), &[]),
        Expr::Comprehension(_) | Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {
            (Vec::new(), &[])
        }
    };
    first.extend(rest);
    first.into_iter()
}

fn entries_of(entries: &[IdedEntryExpr]) -> Vec<&IdedExpr> {
    let entries = entries.iter().flat_map(|entry| match &entry.expr {
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        EntryExpr::StructField(field) => vec![&field.value],
    });
    entries.collect()
}

/// Returns `path` with one more step.
fn joined(path: &[PathStep], step: PathStep) -> Vec<PathStep> {
    path.iter().cloned().chain([step]).collect()
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

fn optional_of(value: Op) -> Op {
    Op::Call(Function::OptionalOf, vec![value])
}

/// Returns true if an expression consists only of literals and of calls of `dyn` with literals.
fn is_literal(op: &Op) -> bool {
    match op {
        Op::Const(_) => true,
        Op::List(items) => items.iter().all(is_literal),
        Op::Map(entries) => {
            (entries.iter()).all(|(key, value)| is_literal(key) && is_literal(value))
        }
        Op::Call(Function::Dyn, args) => args.iter().all(is_literal),
        _ => false,
    }
}

/// Returns an identifier without its leading dot.
pub(super) fn without_dot(name: &str) -> &str {
    name.strip_prefix('.').unwrap_or(name)
}

/// Returns true if a literal can be the index of a list or the key of a map.
fn is_index(literal: &Op) -> bool {
    matches!(
        literal,
        Op::Const(
            Const::Bool(_) | Const::Int(_) | Const::Uint(_) | Const::Double(_) | Const::Str(_)
        )
    )
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
fn fold_conversion(function: Function, value: &Const) -> Result<Const, String> {
    if function == Function::Dyn {
        return Const::of(&value.value()).ok_or_else(String::new);
    }
    // The literal is a part of an expression of limited size, so the conversion needs no budget.
    let mut budget = Budget { left: u64::MAX };
    let converted = convert(function, value.value(), &mut budget);
    let converted = converted.map_err(|fault| super::EvaluationFault::from(fault).to_string())?;
    Const::of(&converted).ok_or_else(String::new)
}

/// Returns the op for a call of `matches`, `find` or `findAll` with a compiled pattern. `args[1]`
/// is the text of this pattern.
fn with_pattern(function: Function, args: Vec<Op>, pattern: Pattern) -> Op {
    let mut args = args.into_iter();
    let text = args.next().unwrap_or(Op::Const(Const::Null));
    if function == Function::Matches {
        return Op::Matches(Box::new(text), pattern);
    }
    Op::Find(Box::new(PatternSearch {
        text,
        pattern,
        all: function == Function::FindAll,
        limit: args.nth(1),
    }))
}

fn literal(value: &LiteralValue) -> (Op, Ty) {
    let (value, ty) = match value {
        LiteralValue::Null => (Const::Null, Ty::Null),
        LiteralValue::Boolean(value) => (Const::Bool(*value.inner()), Ty::Bool),
        LiteralValue::Int(value) => (Const::Int(*value.inner()), Ty::Int),
        LiteralValue::UInt(value) => (Const::Uint(*value.inner()), Ty::Uint),
        LiteralValue::Double(value) => (Const::Double(*value.inner()), Ty::Double),
        LiteralValue::String(value) => (Const::Str(value.inner().into()), Ty::String),
        LiteralValue::Bytes(value) => (Const::Bytes(value.inner().into()), Ty::Bytes),
    };
    (Op::Const(value), ty)
}

fn type_named(name: &str) -> Option<(&'static str, Ty)> {
    Some(match name {
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
        _ => return None,
    })
}

fn is_operator(name: &str) -> bool {
    name.starts_with(['_', '!', '-', '@'])
        && (name.contains('_') || name == operators::IN)
        && !name
            .chars()
            .any(|c| c.is_ascii_alphanumeric() && name != operators::IN)
}

fn path(base: Op, field: &str) -> Op {
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

fn optional_path(base: Op, field: Box<str>) -> Op {
    match base {
        Op::OptionalPath(base, mut fields) => {
            fields.push(field);
            Op::OptionalPath(base, fields)
        }
        base => Op::OptionalPath(Box::new(base), vec![field]),
    }
}

fn binary(name: &str, left: Op, right: Op) -> Op {
    let pair = |left, right| Box::new((left, right));
    match name {
        operators::EQUALS => Op::Equal(pair(left, right), true),
        operators::NOT_EQUALS => Op::Equal(pair(left, right), false),
        operators::LESS => Op::Order(pair(left, right), Order::Less),
        operators::LESS_EQUALS => Op::Order(pair(left, right), Order::LessEqual),
        operators::GREATER => Op::Order(pair(left, right), Order::Greater),
        operators::GREATER_EQUALS => Op::Order(pair(left, right), Order::GreaterEqual),
        operators::SUBSTRACT => Op::Arith(pair(left, right), Arith::Sub),
        operators::MULTIPLY => Op::Arith(pair(left, right), Arith::Mul),
        operators::DIVIDE => Op::Arith(pair(left, right), Arith::Div),
        operators::MODULO => Op::Arith(pair(left, right), Arith::Mod),
        operators::OPT_INDEX => match right {
            // `a[?'b']` is the same as `a.?b` for values of all types.
            Op::Const(Const::Str(field)) => optional_path(left, field),
            right => Op::OptionalIndex(pair(left, right)),
        },
        operators::INDEX => match right {
            // `a['b']` is the same as `a.b` for values of all types.
            Op::Const(Const::Str(field)) => path(left, &field),
            right => Op::Index(pair(left, right)),
        },
        operators::IN => match right {
            // As in cel-go, the left operand is not evaluated.
            Op::List(items) if items.is_empty() => Op::Const(Const::Bool(false)),
            Op::List(items) if items.iter().all(|item| matches!(item, Op::Const(_))) => {
                let set = items.into_iter().filter_map(|item| match item {
                    Op::Const(value) => Some(value),
                    _ => None,
                });
                Op::InSet(Box::new(left), set.collect())
            }
            right => Op::In(pair(left, right)),
        },
        _ => Op::Arith(pair(left, right), Arith::Add),
    }
}
