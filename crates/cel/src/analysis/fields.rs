//! Lists the fields that the text of an expression names, such as `object.spec`, with line and
//! column. Callers use the list to check the fields against a schema. Fields of a computed value,
//! such as a map literal, are not in the list.
//!
//! This list is not a [`Projection`](crate::Projection). A projection says which fields of an object must be
//! decoded before an evaluation, and has no lines and columns.

use cel::IdedExpr;
use cel::common::ast::{CallExpr, Expr, LiteralValue, SourceInfo, operators};

use super::origins::{NameOrigins, ValueOrigins, is_optional_of};
use crate::compile::op::ComprehensionKind;
use crate::compile::parse::CompileError;
use crate::compile::parse::{NodeError, comprehension_kind, located, parse, string_of, with_stack};
use crate::types::PathStep;
use crate::value::failure::line_and_column;

/// A field selection in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedField {
    /// The path from `object` to the field. The last step is the field itself.
    pub path: Vec<PathStep>,
    /// Line of the field's name in the text, from 1.
    pub line: usize,
    /// Column of the field's name in characters, from 1.
    pub column: usize,
    /// True if the expression reads the field to exclude objects, such as `a` in `!object.a`, in
    /// `object.a != 'x'` and in `object.a == ''`.
    pub is_exclusion: bool,
    /// True if the field may be absent, such as `a` in `has(object.a)` and in `object.?a`. If any
    /// other field is absent, the evaluation fails.
    pub is_guarded: bool,
}

/// A variable in an expression, such as `variables.ready`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedVariable {
    /// The name of the variable.
    pub name: String,
    /// True if the expression reads the variable to exclude objects, such as `!variables.ready`.
    pub is_exclusion: bool,
}

/// The field selections in an expression, and the origins of its result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedFields {
    /// The field selections, in the order of the text.
    pub named: Vec<NamedField>,
    /// The variables that the expression reads.
    pub variables: Vec<NamedVariable>,
    /// The origins of the result.
    pub origin: ValueOrigins,
}

/// Returns the field selections in `source`. `origins` has the origins of `item` and the variables.
///
/// # Errors
/// The syntax of `source` is wrong, or `source` is too long or too deeply nested.
pub fn fields(source: &str, origins: &NameOrigins) -> Result<NamedFields, CompileError> {
    with_stack(|| {
        let (root, info) = parse(source)?;
        let mut reader = FieldReader {
            source,
            info: &info,
            origins,
            vars: Vec::new(),
            named: Vec::new(),
            variables: Vec::new(),
            is_exclusion: false,
        };
        let origin = reader.read(&root);
        let mut named = reader.named;
        named.sort_by_key(|field| (field.line, field.column));
        named.dedup();
        Ok(NamedFields {
            named,
            variables: reader.variables,
            origin,
        })
    })
}

struct FieldReader<'s> {
    source: &'s str,
    info: &'s SourceInfo,
    origins: &'s NameOrigins,
    /// The variables of the macros around the current node, such as `x` in `list.all(x, x > 0)`.
    vars: Vec<(String, ValueOrigins)>,
    named: Vec<NamedField>,
    variables: Vec<NamedVariable>,
    /// True inside of an odd number of negations.
    is_exclusion: bool,
}

impl FieldReader<'_> {
    /// Records the field selections below `node`, and returns the origins of its value.
    fn read(&mut self, node: &IdedExpr) -> ValueOrigins {
        match &node.expr {
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => {
                if let Expr::Ident(name) = &select.operand.expr
                    && name == "variables"
                    && !self.is_var(name)
                {
                    self.variables.push(NamedVariable {
                        name: select.field.clone(),
                        is_exclusion: self.is_exclusion,
                    });
                    let mut variables = self.origins.variables.iter();
                    let known = variables.find(|(name, _)| *name == select.field);
                    return known.map(|(_, origin)| origin.clone()).unwrap_or_default();
                }
                let is_guarded = is_optional(&select.operand);
                let operand = self.read(&select.operand);
                self.select_field(node.id, &operand, &select.field, is_guarded)
            }
            Expr::Call(call) => self.call(node.id, call),
            Expr::List(list) => {
                let mut elements = ValueOrigins::default();
                for element in &list.elements {
                    elements.join(self.read(element));
                }
                elements.into_list_origins()
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let cel::common::ast::EntryExpr::MapEntry(entry) = &entry.expr {
                        self.read(&entry.key);
                        self.read(&entry.value);
                    }
                }
                ValueOrigins::default()
            }
            Expr::Literal(_) | Expr::Struct(_) | Expr::Comprehension(_) | Expr::Unspecified => {
                ValueOrigins::default()
            }
        }
    }

    fn is_var(&self, name: &str) -> bool {
        self.vars.iter().any(|(var, _)| var == name)
    }

    fn ident(&self, name: &str) -> ValueOrigins {
        let mut vars = self.vars.iter().rev();
        if let Some((_, origin)) = vars.find(|(var, _)| var == name) {
            return origin.clone();
        }
        match name.trim_start_matches('.') {
            "object" => ValueOrigins::at(Vec::new()),
            "item" => self.origins.item.clone(),
            _ => ValueOrigins::default(),
        }
    }

    /// Records the selection of the field `name` with its position, and returns the origins of the
    /// field's value.
    fn select_field(
        &mut self,
        node: u64,
        operand: &ValueOrigins,
        name: &str,
        is_guarded: bool,
    ) -> ValueOrigins {
        let origin = operand.field(name);
        let (line, column) = self.position_of(node, name);
        for path in origin.paths() {
            self.named.push(NamedField {
                path: path.to_vec(),
                line,
                column,
                is_exclusion: self.is_exclusion,
                is_guarded,
            });
        }
        origin
    }

    /// Returns the line and column of `name` in the text. The function searches for `name`, because
    /// the parser only reports the position of the dot before `name` or of the beginning of the
    /// operand.
    fn position_of(&self, node: u64, name: &str) -> (usize, usize) {
        let start = self.info.offset_for(node).map(|(start, _)| start);
        let start = start.and_then(|start| usize::try_from(start).ok());
        let at = start.and_then(|start| {
            let rest = self.source.get(start..)?;
            let is_identifier_part = |c: char| c == '_' || c.is_ascii_alphanumeric();
            rest.match_indices(name)
                .find(|(at, _)| {
                    !rest[..*at].ends_with(is_identifier_part)
                        && !rest[at + name.len()..].starts_with(is_identifier_part)
                })
                .map(|(at, _)| start + at)
        });
        let Some(at) = at else {
            let message = String::new();
            let start = located(NodeError { node, message }, self.info);
            return (start.line, start.column);
        };
        line_and_column(self.source, at)
    }

    fn call(&mut self, node: u64, call: &CallExpr) -> ValueOrigins {
        let name = call.func_name.trim_start_matches('.');
        match (call.target.as_deref(), &*call.args) {
            (Some(range), args)
                if let Some((kind, variables)) = comprehension_kind(name, args.len()) =>
            {
                self.comprehension(kind, range, args, variables)
            }
            (Some(optional), [var, body]) if matches!(name, "optMap" | "optFlatMap") => {
                // The value of an optional has the same origins as the optional.
                let origin = self.read(optional);
                self.read_with([(var, origin)], std::slice::from_ref(body))
            }
            (None, [operand, field]) if name == operators::OPT_SELECT => {
                let operand = self.read(operand);
                let Some(field) = string_of(field) else {
                    return ValueOrigins::default();
                };
                self.select_field(node, &operand, field, true)
            }
            (Some(list), []) if matches!(name, "first" | "last") => self.read(list).indexed(),
            (Some(optional), []) if name == "value" => self.read(optional),
            (Some(optional), [other]) if matches!(name, "or" | "orValue") => {
                let mut origin = self.read(optional);
                origin.join(self.read(other));
                origin
            }
            (Some(prefix), [operand]) if is_optional_of(prefix, name) => self.read(operand),
            (Some(list), args) if matches!(name, "slice" | "reverse" | "distinct" | "sort") => {
                let origin = self.read(list);
                for arg in args {
                    self.read(arg);
                }
                origin
            }
            (None, [operand, index]) if matches!(name, operators::INDEX | operators::OPT_INDEX) => {
                let is_guarded = name == operators::OPT_INDEX || is_optional(operand);
                let operand = self.read(operand);
                if let Some(key) = string_of(index) {
                    return self.select_field(node, &operand, key, is_guarded);
                }
                self.read(index);
                operand.indexed()
            }
            (None, [test, yes, no]) if name == operators::CONDITIONAL => {
                if is_false(yes) {
                    self.read_inverted(test);
                } else {
                    self.read(test);
                }
                let mut origin = self.read(yes);
                origin.join(self.read(no));
                origin
            }
            (None, [left, right]) if name == operators::ADD => {
                // `+` can concatenate two lists.
                let mut origin = self.read(left);
                origin.join(self.read(right));
                origin
            }
            (None, [operand])
                if name == "has"
                    && let Expr::Select(select) = &operand.expr =>
            {
                let field = operand.id;
                let operand = self.read(&select.operand);
                self.select_field(field, &operand, &select.field, true)
            }
            (None, [operand]) if name == operators::LOGICAL_NOT => {
                self.read_inverted(operand);
                ValueOrigins::default()
            }
            (None, [left, right]) if excludes(name, left, right) => {
                self.read_inverted(left);
                self.read_inverted(right);
                ValueOrigins::default()
            }
            (None, [operand]) if name == "dyn" => self.read(operand),
            (target, args) => {
                for arg in target.into_iter().chain(args) {
                    self.read(arg);
                }
                ValueOrigins::default()
            }
        }
    }

    /// Reads a part of the expression whose truth makes the expression false.
    fn read_inverted(&mut self, node: &IdedExpr) {
        self.is_exclusion = !self.is_exclusion;
        self.read(node);
        self.is_exclusion = !self.is_exclusion;
    }

    fn comprehension(
        &mut self,
        kind: ComprehensionKind,
        range: &IdedExpr,
        args: &[IdedExpr],
        variables: usize,
    ) -> ValueOrigins {
        let range = self.read(range);
        let Some((names, bodies)) = args.split_at_checked(variables) else {
            return ValueOrigins::default();
        };
        // With two variables, the first variable is an index or a key, and the second variable is
        // an element of a list or a member of a map.
        let last = match names {
            [var] => self.read_with([(var, range.elements())], bodies),
            [key, value] => {
                let vars = [(key, ValueOrigins::default()), (value, range.indexed())];
                self.read_with(vars, bodies)
            }
            _ => ValueOrigins::default(),
        };
        match kind {
            ComprehensionKind::Map => last.into_list_origins(),
            ComprehensionKind::Filter | ComprehensionKind::SortBy => range,
            _ => ValueOrigins::default(),
        }
    }

    /// Records the field selections in `bodies`, in which the variables `vars` have the given
    /// origins. Returns the origins of the last body.
    fn read_with<const N: usize>(
        &mut self,
        vars: [(&IdedExpr, ValueOrigins); N],
        bodies: &[IdedExpr],
    ) -> ValueOrigins {
        let outer = self.vars.len();
        for (var, origin) in vars {
            if let Expr::Ident(name) = &var.expr {
                self.vars.push((name.clone(), origin));
            }
        }
        let mut last = ValueOrigins::default();
        for body in bodies {
            last = self.read(body);
        }
        self.vars.truncate(outer);
        last
    }
}

/// Returns true if `node` yields an optional, so that a field of it may be absent.
fn is_optional(node: &IdedExpr) -> bool {
    match &node.expr {
        Expr::Select(select) => is_optional(&select.operand),
        Expr::Call(call) => match (&*call.func_name, &*call.args) {
            (operators::OPT_SELECT | operators::OPT_INDEX, _) => true,
            (operators::INDEX, [operand, _]) => is_optional(operand),
            _ => false,
        },
        _ => false,
    }
}

fn is_false(node: &IdedExpr) -> bool {
    matches!(&node.expr, Expr::Literal(LiteralValue::Boolean(value)) if !*value.inner())
}

/// Returns true if a comparison excludes objects in which a field has a value. An absent field
/// would also satisfy the comparison, as in `object.a != 'x'` and `object.a == ''`.
fn excludes(operator: &str, left: &IdedExpr, right: &IdedExpr) -> bool {
    let is_empty = |node: &IdedExpr| match &node.expr {
        Expr::Literal(LiteralValue::String(text)) => text.inner().is_empty(),
        Expr::Literal(LiteralValue::Int(number)) => *number.inner() == 0,
        _ => is_false(node),
    };
    let is_literal = |node: &IdedExpr| matches!(node.expr, Expr::Literal(_));
    match operator {
        operators::NOT_EQUALS => {
            is_literal(left) && !is_empty(left) || is_literal(right) && !is_empty(right)
        }
        operators::EQUALS => is_empty(left) || is_empty(right),
        _ => false,
    }
}
