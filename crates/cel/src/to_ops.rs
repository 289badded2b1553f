//! Converts the parser's syntax tree to the op tree, which is the form that is evaluated. The
//! conversion also resolves names and checks types. Macros such as `has` and `exists` are plain
//! calls in the syntax tree.

use cel::IdedExpr;
use cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, MapExpr, SelectExpr, operators};

use std::collections::HashMap;

use super::Environment;
use super::check::{Ty, resolve};
use super::failure::FixedText;
use super::op::{Arith, Comprehension, ComprehensionKind, Const, Function, Op, Order};
use super::pattern::Pattern;

/// Number of ops that are evaluated in one step of the budget. With this number, a step takes at
/// most about 300 ns.
const OPS_PER_STEP: u64 = 16;

/// The names of the internal variable in which cel-go's comprehensions accumulate their result. An
/// iteration variable must not have one of these names.
const ACCUMULATORS: [&str; 2] = ["__result__", "@result"];

/// An error at a node of the syntax tree.
#[derive(Debug)]
pub(super) struct NodeError {
    pub node: u64,
    pub message: String,
}

/// The op tree of an expression, with its properties and errors.
pub(super) struct Lowered {
    pub op: Op,
    pub ty: Ty,
    /// Number of budget steps that one evaluation takes. The iterations of comprehensions such as
    /// `exists` are counted in addition.
    pub weight: u64,
    /// Errors in calls of macros. These errors are reported before all other errors, because the
    /// types of wrong macro calls are unknown.
    pub misused: Vec<NodeError>,
    /// Wrong types and unknown names.
    pub mistyped: Vec<NodeError>,
    /// Errors in the arguments of `format`. These errors are reported only if there are no other
    /// errors.
    pub misformatted: Vec<NodeError>,
    /// Nesting depth, including the depth of the variables that the expression uses.
    pub depth: usize,
    /// True if the expression, or a variable that it uses, can read `now`.
    pub reads_now: bool,
    pub reads_item: bool,
}

/// Converts the syntax tree below `root`. The op tree is only valid if there are no errors.
pub(super) fn lower(root: &IdedExpr, environment: &Environment) -> Lowered {
    let mut lowering = Lowering {
        environment,
        vars: Vec::new(),
        ops: 0,
        level: 0,
        depth: 0,
        reads_now: false,
        reads_item: false,
        misused: Vec::new(),
        mistyped: Vec::new(),
        misformatted: Vec::new(),
        enclosing_formats: 0,
        types: HashMap::new(),
    };
    let (op, ty) = lowering.expr(root);
    Lowered {
        op,
        ty,
        depth: lowering.depth,
        reads_now: lowering.reads_now,
        reads_item: lowering.reads_item,
        weight: weight(lowering.ops),
        misused: lowering.misused,
        mistyped: lowering.mistyped,
        misformatted: lowering.misformatted,
    }
}

/// Returns the number of steps for an evaluation of `ops` ops.
fn weight(ops: u64) -> u64 {
    1 + ops / OPS_PER_STEP
}

/// The state of the conversion.
pub(super) struct Lowering<'v> {
    environment: &'v Environment,
    /// The comprehension variables in scope, with their types. An op refers to a variable by its
    /// index in this list.
    vars: Vec<(String, Ty)>,
    /// Number of ops so far.
    ops: u64,
    /// Depth of the current node.
    level: usize,
    /// Largest depth so far.
    depth: usize,
    reads_now: bool,
    reads_item: bool,
    misused: Vec<NodeError>,
    mistyped: Vec<NodeError>,
    pub misformatted: Vec<NodeError>,
    /// Number of `format` calls around the current node.
    enclosing_formats: usize,
    /// The types of the nodes inside of `format` calls, by node.
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
        let lowered = self.node(node);
        self.level -= 1;
        if self.enclosing_formats > 0 {
            self.types.insert(node.id, lowered.1.clone());
        }
        lowered
    }

    fn node(&mut self, node: &IdedExpr) -> (Op, Ty) {
        match &node.expr {
            Expr::Literal(value) => literal(value),
            Expr::Ident(name) => self.ident(node.id, name),
            Expr::Select(select) => self.select(node, select),
            Expr::Call(call) => self.call(node.id, call),
            Expr::List(list) => self.list(&list.elements),
            Expr::Map(map) => self.map(map),
            Expr::Struct(message) => self.undeclared(node.id, &message.type_name),
            // These nodes do not occur here. A comprehension would be an expanded macro, and the
            // parser expands no macros. If a node was incomplete, the parser has returned an error.
            Expr::Comprehension(_) | Expr::Unspecified => {
                self.misused(node.id, "unsupported expression")
            }
        }
    }

    fn ident(&mut self, node: u64, name: &str) -> (Op, Ty) {
        let global = name.strip_prefix('.');
        if global.is_none()
            && let Some(slot) = self.vars.iter().rposition(|(var, _)| var == name)
        {
            return (Op::Var(slot), self.vars[slot].1.clone());
        }
        let name = global.unwrap_or(name);
        match name {
            "object" => (Op::Object, Ty::Dyn),
            "now" => {
                self.reads_now = true;
                (Op::Now, Ty::Timestamp)
            }
            "item" if self.environment.item => {
                self.reads_item = true;
                (Op::Item, Ty::Dyn)
            }
            // `variables` alone has no value, because each variable is evaluated only when it is
            // read.
            "variables" => self.mistyped(
                node,
                "'variables' is read by name, as in variables.name".to_owned(),
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
            return self.variable(node.id, &select.field);
        }
        let (operand, ty) = self.field_of(node.id, select);
        (path(operand, &select.field), ty)
    }

    /// Returns true if `node` is the name `variables`. Returns false if a comprehension variable
    /// has the name `variables`.
    fn is_variables(&self, node: &IdedExpr) -> bool {
        let Expr::Ident(name) = &node.expr else {
            return false;
        };
        name == ".variables"
            || (name == "variables" && self.vars.iter().all(|(var, _)| var != name))
    }

    fn variable(&mut self, node: u64, name: &str) -> (Op, Ty) {
        let Some((slot, program)) = self.environment.find(name) else {
            return self.mistyped(node, format!("undefined field '{name}'"));
        };
        self.depth = self.depth.max(self.level + program.0.depth);
        self.reads_now |= program.0.reads_now;
        (Op::Variable(slot), program.0.ty.clone())
    }

    /// Returns the operand of a field selection, and the type of the field.
    fn field_of(&mut self, node: u64, select: &SelectExpr) -> (Op, Ty) {
        let (operand, ty) = self.expr(&select.operand);
        let field = match ty {
            Ty::Map(_, value) => *value,
            ty if ty.is_dynamic() => Ty::Dyn,
            ty => {
                self.mistyped(
                    node,
                    format!("type '{ty}' does not support field selection"),
                );
                Ty::Dyn
            }
        };
        (operand, field)
    }

    /// Returns the type if `select` is the type name `google.protobuf.Timestamp` or
    /// `google.protobuf.Duration`.
    fn qualified_type(&self, select: &SelectExpr) -> Option<(&'static str, Ty)> {
        let Expr::Select(outer) = &select.operand.expr else {
            return None;
        };
        let Expr::Ident(root) = &outer.operand.expr else {
            return None;
        };
        let hidden = self.vars.iter().any(|(var, _)| var == root);
        let google = root == "google" || root == ".google";
        if hidden || !google || outer.field != "protobuf" {
            return None;
        }
        match select.field.as_str() {
            "Timestamp" => Some(("google.protobuf.Timestamp", Ty::Timestamp)),
            "Duration" => Some(("google.protobuf.Duration", Ty::Duration)),
            _ => None,
        }
    }

    fn list(&mut self, elements: &[IdedExpr]) -> (Op, Ty) {
        let mut joined = Ty::Free;
        let mut ops = Vec::with_capacity(elements.len());
        for element in elements {
            let (op, ty) = self.expr(element);
            joined = joined.join(&ty);
            ops.push(op);
        }
        (Op::List(ops), Ty::list(joined))
    }

    fn map(&mut self, map: &MapExpr) -> (Op, Ty) {
        let (mut keys, mut values) = (Ty::Free, Ty::Free);
        let mut ops = Vec::with_capacity(map.entries.len());
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                continue;
            };
            let (key, key_ty) = self.expr(&entry.key);
            let (value, value_ty) = self.expr(&entry.value);
            keys = keys.join(&key_ty);
            values = values.join(&value_ty);
            ops.push((key, value));
        }
        (Op::Map(ops), Ty::map(keys, values))
    }

    fn call(&mut self, node: u64, call: &CallExpr) -> (Op, Ty) {
        let name = call.func_name.trim_start_matches('.');
        match (&call.target, &*call.args) {
            (None, [argument]) if name == operators::HAS => self.has(argument),
            (None, _) if name == operators::LOGICAL_AND || name == operators::LOGICAL_OR => {
                self.logic(call)
            }
            (None, args) => {
                let (ops, types) = self.arguments(None, args);
                self.apply(node, name, ops, &types, false)
            }
            (Some(target), args) => {
                if let Some(kind) = comprehension_kind(name, args.len()) {
                    return self.fold(node, kind, target, args);
                }
                self.enclosing_formats += usize::from(name == "format");
                let (ops, types) = self.arguments(Some(target), args);
                self.enclosing_formats -= usize::from(name == "format");
                if name == "format" {
                    self.check_format(node, target, args);
                }
                self.apply(node, name, ops, &types, true)
            }
        }
    }

    fn arguments(&mut self, target: Option<&IdedExpr>, args: &[IdedExpr]) -> (Vec<Op>, Vec<Ty>) {
        target
            .into_iter()
            .chain(args)
            .map(|arg| self.expr(arg))
            .unzip()
    }

    fn has(&mut self, argument: &IdedExpr) -> (Op, Ty) {
        let Expr::Select(select) = &argument.expr else {
            return self.misused(argument.id, "invalid argument to has() macro");
        };
        let (operand, _) = self.field_of(argument.id, select);
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
        let ty = match resolve(name, types, member) {
            Ok(ty) => ty,
            Err(message) => return self.mistyped(node, message),
        };
        let op = match (function, <[Op; 2]>::try_from(ops)) {
            (Some(Function::Matches), Ok([text, Op::Const(Const::Str(pattern))])) => {
                let pattern = Pattern::new(&pattern);
                Op::Matches(
                    Box::new(text),
                    pattern.map_err(|error| FixedText::of_source(&error)),
                )
            }
            (Some(function), Ok(args)) => Op::Call(function, args.into()),
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

    fn fold(
        &mut self,
        node: u64,
        kind: ComprehensionKind,
        target: &IdedExpr,
        args: &[IdedExpr],
    ) -> (Op, Ty) {
        let [var, tests @ .., body] = args else {
            return error_op();
        };
        let Expr::Ident(name) = &var.expr else {
            return self.misused(var.id, "argument must be a simple name");
        };
        if name.starts_with('.') {
            return self.misused(var.id, "argument must be a simple name");
        }
        if ACCUMULATORS.contains(&name.as_str()) {
            return self.misused(var.id, "iteration variable overwrites accumulator variable");
        }
        let (range, range_ty) = self.expr(target);
        let element = match range_ty {
            Ty::List(of) | Ty::Map(of, _) => *of,
            ty if ty.is_dynamic() => Ty::Dyn,
            ty => {
                self.mistyped(
                    target.id,
                    format!(
                        "expression of type '{ty}' cannot be range of a comprehension (must be \
                         list, map, or dynamic)"
                    ),
                );
                Ty::Error
            }
        };
        let before = self.ops;
        self.vars.push((name.clone(), element.clone()));
        let test = tests.first().map(|test| self.expr(test));
        let quantified = matches!(kind, ComprehensionKind::All | ComprehensionKind::Exists);
        let (body, body_ty) = if quantified {
            (self.boolean(body), Ty::Bool)
        } else {
            self.expr(body)
        };
        self.vars.pop();
        // In cel-go, `filter`, `exists_one` and `map` with three arguments expand to a conditional.
        // The types of this conditional are checked here, so that the errors are the same as in
        // cel-go.
        let (tested, result) = match kind {
            ComprehensionKind::All | ComprehensionKind::Exists => (None, Ty::Bool),
            ComprehensionKind::ExistsOne => (Some((&body_ty, Ty::Int)), Ty::Bool),
            ComprehensionKind::Filter => (
                Some((&body_ty, Ty::list(element.clone()))),
                Ty::list(element),
            ),
            ComprehensionKind::Map => (
                test.as_ref().map(|(_, ty)| (ty, Ty::list(body_ty.clone()))),
                Ty::list(body_ty.clone()),
            ),
        };
        if let Some((ty, branch)) = tested {
            let types = [ty.clone(), branch.clone(), branch];
            if let Err(message) = resolve(operators::CONDITIONAL, &types, false) {
                self.mistyped(node, message);
            }
        }
        let op = Op::Fold(Box::new(Comprehension {
            kind,
            range,
            test: test.map(|(op, _)| op),
            body,
            weight: weight(self.ops - before),
        }));
        (op, result)
    }
}

/// Returns the kind of a comprehension. Returns None if no comprehension has this name and this
/// number of arguments.
fn comprehension_kind(name: &str, args: usize) -> Option<ComprehensionKind> {
    match (name, args) {
        (operators::ALL, 2) => Some(ComprehensionKind::All),
        (operators::EXISTS, 2) => Some(ComprehensionKind::Exists),
        (operators::EXISTS_ONE, 2) => Some(ComprehensionKind::ExistsOne),
        (operators::FILTER, 2) => Some(ComprehensionKind::Filter),
        (operators::MAP, 2 | 3) => Some(ComprehensionKind::Map),
        _ => None,
    }
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
        base => Op::Path(Box::new(base), vec![field.into()]),
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
        operators::INDEX => match right {
            // `a['b']` is the same as `a.b` for values of all types.
            Op::Const(Const::Str(field)) => path(left, &field),
            right => Op::Index(pair(left, right)),
        },
        operators::IN => match right {
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
