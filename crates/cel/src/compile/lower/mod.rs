//! Converts the syntax tree of a CEL expression to the op tree ([`Op`]), which the module `eval`
//! evaluates. The conversion also resolves names and checks types. The parser does not expand
//! macros such as `has` and `exists`, so macros are plain calls in the syntax tree.

mod calls;
mod fields;
mod format;
mod macros;
mod names;

use std::collections::HashMap;

use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, SourceInfo};

use super::environment::Environment;
use super::op::Op;
use super::parse::NodeError;
use super::spans::{Span, Spans};
use crate::types::{ObjectSchema, Ty};
use crate::value::constant::Const;

/// Number of ops whose evaluation takes one step from the [`Budget`] (the number of steps that an
/// evaluation may still take). With this number, a step takes at most about 300 ns.
const OPS_PER_STEP: u64 = 16;

/// The kinds of errors. If there are errors of several kinds, only the errors of the first kind are
/// reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ErrorKind {
    /// A wrong call of a macro. The types of such a call are unknown.
    Misused,
    /// A wrong type or an unknown name.
    Mistyped,
    /// A literal that cel-go's validators refuse, such as the pattern in `matches('[')`.
    Invalid,
    /// Another literal that a function can never accept, as in `int('a')`.
    Unacceptable,
}

/// Returns the number of steps for an evaluation of `ops` ops.
pub(super) fn weight(ops: u64) -> u64 {
    1 + ops / OPS_PER_STEP
}

/// The state of the conversion.
pub(super) struct Lowering<'v> {
    environment: &'v Environment,
    schema: Option<&'v dyn ObjectSchema>,
    /// The possible values of a node, if the schema lists them. The key is the id of the node.
    values: HashMap<u64, Vec<String>>,
    info: &'v SourceInfo,
    /// The places of the ops in the text.
    pub(super) spans: Spans,
    /// The span of the operands of the current node that are already converted. None if no operand
    /// is converted yet.
    extent: Option<Span>,
    /// The comprehension variables in scope, with their types. An op refers to a variable by its
    /// index in this list.
    vars: Vec<(String, Ty)>,
    /// Number of nodes that are already converted. [`weight`] takes this number as the number of
    /// ops.
    pub(super) ops: u64,
    /// Depth of the current node.
    level: usize,
    /// Largest depth so far, including the depth of the variables that the expression uses.
    pub(super) depth: usize,
    /// True if the expression, or a variable that it uses, can read `now`.
    pub(super) reads_now: bool,
    pub(super) reads_item: bool,
    pub(super) errors: Vec<(ErrorKind, NodeError)>,
    /// Number of `format` calls around the current node.
    enclosing_formats: usize,
    /// The types of the nodes inside of `format` calls. The key is the id of the node.
    types: HashMap<u64, Ty>,
}

impl<'v> Lowering<'v> {
    pub(super) fn new(
        environment: &'v Environment,
        schema: Option<&'v dyn ObjectSchema>,
        info: &'v SourceInfo,
    ) -> Self {
        Self {
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
            errors: Vec::new(),
            enclosing_formats: 0,
            types: HashMap::new(),
        }
    }

    /// Reports an error, and returns an op and a type that replace the node. The type matches every
    /// type, so that one mistake is reported only once.
    fn error(&mut self, kind: ErrorKind, node: u64, message: impl Into<String>) -> (Op, Ty) {
        let message = message.into();
        self.errors.push((kind, NodeError { node, message }));
        (Op::Const(Const::Null), Ty::Error)
    }

    pub(super) fn mistyped(&mut self, node: u64, message: impl Into<String>) -> (Op, Ty) {
        self.error(ErrorKind::Mistyped, node, message)
    }

    fn misused(&mut self, node: u64, message: impl Into<String>) -> (Op, Ty) {
        self.error(ErrorKind::Misused, node, message)
    }

    fn undeclared(&mut self, node: u64, name: &str) -> (Op, Ty) {
        self.mistyped(
            node,
            format!("undeclared reference to '{name}' (in container '')"),
        )
    }

    /// Converts the syntax tree below `node`. The op tree is valid only if there are no errors.
    pub(super) fn expr(&mut self, node: &IdedExpr) -> (Op, Ty) {
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

    fn node(&mut self, node: &IdedExpr) -> (Op, Ty) {
        if let Some((name, ty)) = self.type_named(&node.expr) {
            return (Op::Const(Const::Type(name)), Ty::Type(Box::new(ty)));
        }
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

    fn list(&mut self, list: &ListExpr) -> (Op, Ty) {
        let mut joined = Ty::Unknown;
        let mut ops = Vec::with_capacity(list.elements.len());
        for (index, element) in list.elements.iter().enumerate() {
            let is_optional = list.optional_indices.contains(&index);
            let (op, ty) = self.literal_element(element, is_optional);
            joined = joined.join(&ty);
            ops.push((op, is_optional));
        }
        (Op::List(ops), Ty::list(joined))
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
        (Op::Map(ops), Ty::map(keys, values))
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
