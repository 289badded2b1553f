//! Lists the fields that the text of an expression names, such as `object.spec`, with line and
//! column. Callers use the list to check the fields against a schema. Fields of a computed value,
//! such as a map literal, are not in the list.
//!
//! This list is not a [`super::Projection`]. A projection says which fields of an object must be
//! decoded before an evaluation, and has no lines and columns.

use cel::IdedExpr;
use cel::common::ast::{CallExpr, Expr, LiteralValue, SourceInfo, operators};

use super::CompileError;
use super::compile::{located, parse, with_stack};
use super::lowering::{NodeError, comprehension_kind};
use super::op::ComprehensionKind;

/// One step from a value to a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathStep {
    /// The field or key with this name, such as `map.a` or `map['a']`.
    Field(String),
    /// An element of a list or a member of a map, such as `list[0]` or `map[key]`. If the index is
    /// a string literal, the step is [`Self::Field`] instead.
    Index,
    /// The value that a comprehension visits: an element of a list, or a key of a map.
    Each,
}

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

/// The fields of `object` from which the value of an expression can come, as paths. For example,
/// `object.spec.a` has the path `spec.a`, and `x ? object.spec.a : object.spec.b` has two paths:
/// `spec.a` and `spec.b`. A computed value, such as `1 + 2`, has no path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueOrigins(Vec<OriginPlace>);

/// One origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OriginPlace {
    /// The value comes from this path.
    At(Vec<PathStep>),
    /// The value is a list, and its elements come from these paths.
    ListOf(ValueOrigins),
}

/// Maximum number of origins of one value, including the origins of its elements. Further origins
/// are ignored. Without this limit, a value of nested conditionals or nested lists could have very
/// many origins.
const MAX_ORIGINS: usize = 16;

/// Maximum number of steps of a path. The fields of a value with a longer path are ignored. The
/// deepest fields of Kubernetes' types have about 15 steps.
const MAX_STEPS: usize = 32;

impl ValueOrigins {
    /// Returns the origins of a value that comes from one path of `object`.
    pub fn at(path: Vec<PathStep>) -> Self {
        Self(vec![OriginPlace::At(path)])
    }

    /// Returns the paths from which the value can come, without the paths of list elements.
    pub fn paths(&self) -> impl Iterator<Item = &[PathStep]> {
        self.0.iter().filter_map(|place| match place {
            OriginPlace::At(path) => Some(&**path),
            OriginPlace::ListOf(_) => None,
        })
    }

    /// Returns the origins of the elements if this value is a list. Returns the origins of the keys
    /// if this value is a map.
    #[must_use]
    pub fn elements(&self) -> Self {
        let mut elements = Self::default();
        for part in &self.0 {
            match part {
                OriginPlace::At(_) => elements.add(part.then(PathStep::Each)),
                OriginPlace::ListOf(origin) => elements.join(origin.clone()),
            }
        }
        elements
    }

    /// Returns the origins of the element or member at an index.
    fn indexed(&self) -> Self {
        let mut elements = Self::default();
        for part in &self.0 {
            match part {
                OriginPlace::At(_) => elements.add(part.then(PathStep::Index)),
                OriginPlace::ListOf(origin) => elements.join(origin.clone()),
            }
        }
        elements
    }

    fn field(&self, name: &str) -> Self {
        let parts = self.0.iter();
        let fields = parts.filter_map(|part| part.then(PathStep::Field(name.to_owned())));
        Self(fields.collect())
    }

    fn into_list_origins(self) -> Self {
        let mut list = Self::default();
        list.add(Some(OriginPlace::ListOf(self)));
        list
    }

    fn add(&mut self, part: Option<OriginPlace>) {
        self.join(Self(part.into_iter().collect()));
    }

    fn join(&mut self, other: Self) {
        let mut count = self.count();
        for part in other.0 {
            let more = part.count();
            if count + more <= MAX_ORIGINS && !self.0.contains(&part) {
                count += more;
                self.0.push(part);
            }
        }
    }

    fn count(&self) -> usize {
        self.0.iter().map(OriginPlace::count).sum()
    }
}

impl OriginPlace {
    fn count(&self) -> usize {
        match self {
            Self::At(_) => 1,
            Self::ListOf(elements) => elements.count().max(1),
        }
    }

    fn then(&self, step: PathStep) -> Option<Self> {
        let Self::At(path) = self else { return None };
        if path.len() == MAX_STEPS {
            return None;
        }
        let mut path = path.clone();
        path.push(step);
        Some(Self::At(path))
    }
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

/// The origins of the names that an expression can use in addition to `object`.
#[derive(Clone, Debug, Default)]
pub struct NameOrigins {
    /// The origins of `item`, which is one element of a list that another expression returns.
    pub item: ValueOrigins,
    /// The origins of the variables, by name.
    pub variables: Vec<(String, ValueOrigins)>,
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
        for part in &origin.0 {
            if let OriginPlace::At(path) = part {
                self.named.push(NamedField {
                    path: path.clone(),
                    line,
                    column,
                    is_exclusion: self.is_exclusion,
                    is_guarded,
                });
            }
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
        let before = &self.source[..at];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let column = before[line_start..].chars().count() + 1;
        (before.matches('\n').count() + 1, column)
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
                match &field.expr {
                    Expr::Literal(LiteralValue::String(field)) => {
                        self.select_field(node, &operand, field.inner(), true)
                    }
                    _ => ValueOrigins::default(),
                }
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
                if let Expr::Literal(LiteralValue::String(key)) = &index.expr {
                    return self.select_field(node, &operand, key.inner(), is_guarded);
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

/// Returns true for the functions `optional.of` and `optional.ofNonZeroValue`.
pub(super) fn is_optional_of(prefix: &IdedExpr, name: &str) -> bool {
    matches!(&prefix.expr, Expr::Ident(prefix) if prefix == "optional")
        && matches!(name, "of" | "ofNonZeroValue")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_exclude_objects_are_told_from_reads_that_are_needed() {
        for (source, needed, excluding, guarded) in [
            ("object.a == 'x' && !object.b.c", "a", "b c", ""),
            ("object.a != 'x' || object.b == ''", "", "a b", ""),
            ("object.a != '' && object.n == 0", "a", "n", ""),
            ("has(object.a) && !has(object.b.c)", "a", "b c", "a c"),
            (
                "!object.?a.?b.orValue(false) && object.?c.d == optional.of(1)",
                "c d",
                "a b",
                "a b c d",
            ),
            (
                "!object.l.exists(e, e.t == 'x' && e.r != 'y')",
                "r",
                "l t",
                "",
            ),
            ("object.a ? false : object.b", "b", "a", ""),
            ("!(!object.a)", "a", "", ""),
        ] {
            let found = fields(source, &NameOrigins::default());
            let found = found.expect("the test has no syntax error");
            let names = |wanted: &dyn Fn(&NamedField) -> bool| {
                let named = found.named.iter().filter(|field| wanted(field));
                let names = named.map(|field| match field.path.last() {
                    Some(PathStep::Field(name)) => name.as_str(),
                    _ => "",
                });
                names.collect::<Vec<_>>().join(" ")
            };
            assert_eq!(names(&|it| !it.is_exclusion), needed, "{source}");
            assert_eq!(names(&|it| it.is_exclusion), excluding, "{source}");
            assert_eq!(names(&|it| it.is_guarded), guarded, "{source}");
        }
        let found = fields("variables.a && !variables.b", &NameOrigins::default());
        let variables = found.expect("the test has no syntax error").variables;
        let variables: Vec<_> = variables
            .iter()
            .map(|it| (&*it.name, it.is_exclusion))
            .collect();
        assert_eq!(variables, [("a", false), ("b", true)]);
    }

    /// Returns the position and path of each field selection, as text.
    fn selections(source: &str, origins: &NameOrigins) -> Vec<String> {
        let fields = fields(source, origins).expect("the test has no syntax error");
        let describe = |field: &NamedField| {
            let path: String = field
                .path
                .iter()
                .map(|step| match step {
                    PathStep::Field(name) => format!(".{name}"),
                    PathStep::Index => "[]".to_owned(),
                    PathStep::Each => "[*]".to_owned(),
                })
                .collect();
            format!("{}:{} {path}", field.line, field.column)
        };
        fields.named.iter().map(describe).collect()
    }

    #[test]
    fn each_field_selection_is_reported_with_its_position() {
        let none = NameOrigins::default();
        assert_eq!(
            selections("has(object.a.b) &&\n  object.a['c'] == 'a'", &none),
            ["1:12 .a", "1:14 .a.b", "2:10 .a", "2:13 .a.c"]
        );
        assert_eq!(
            selections("object.list[0].x + object.map[object.key].y", &none),
            [
                "1:8 .list",
                "1:16 .list[].x",
                "1:27 .map",
                "1:38 .key",
                "1:43 .map[].y"
            ]
        );
        assert_eq!(
            selections("{'a': 1}.a == [1].size()", &none),
            Vec::<String>::new()
        );
    }

    #[test]
    fn optional_fields_are_reported_like_other_fields() {
        let none = NameOrigins::default();
        for (source, expected) in [
            (
                "object.?a.?b.c",
                &["1:9 .a", "1:12 .a.b", "1:14 .a.b.c"][..],
            ),
            ("has(object.?a.b)", &["1:13 .a", "1:15 .a.b"]),
            ("object[?'a'].?b", &["1:10 .a", "1:15 .a.b"]),
            ("object.l[?0].?x", &["1:8 .l", "1:15 .l[].x"]),
            (
                "[?object.?a, ?object.?b][0].c",
                &["1:11 .a", "1:23 .b", "1:29 .a.c", "1:29 .b.c"],
            ),
            ("{?'k': object.?a}", &["1:16 .a"]),
            (
                "object.?a.optMap(x, x.b + x.?c.orValue(1))",
                &["1:9 .a", "1:23 .a.b", "1:30 .a.c"],
            ),
            (
                "object.?a.optMap(x, x.b).value().c",
                &["1:9 .a", "1:23 .a.b", "1:34 .a.b.c"],
            ),
            (
                "object.?a.optFlatMap(x, x.?b).?c",
                &["1:9 .a", "1:28 .a.b", "1:32 .a.b.c"],
            ),
            (
                "object.?a.or(object.?b).value().c",
                &["1:9 .a", "1:22 .b", "1:33 .a.c", "1:33 .b.c"],
            ),
            (
                "object.?a.orValue(object.b).c",
                &["1:9 .a", "1:26 .b", "1:29 .a.c", "1:29 .b.c"],
            ),
            ("optional.of(object.a).?b", &["1:20 .a", "1:24 .a.b"]),
            (
                "optional.ofNonZeroValue(object.a).value().b",
                &["1:32 .a", "1:43 .a.b"],
            ),
        ] {
            assert_eq!(selections(source, &none), expected, "{source}");
        }
    }

    #[test]
    fn field_selections_are_followed_through_the_macros_with_two_variables() {
        let none = NameOrigins::default();
        for (source, expected) in [
            (
                "object.l.all(i, e, e.a > i)",
                &["1:8 .l", "1:22 .l[].a"][..],
            ),
            (
                "object.m.exists(k, v, v.a == k)",
                &["1:8 .m", "1:25 .m[].a"],
            ),
            (
                "object.l.existsOne(i, e, e.a && has(e.b))",
                &["1:8 .l", "1:28 .l[].a", "1:39 .l[].b"],
            ),
            ("object.l.exists_one(i, e, e.a)", &["1:8 .l", "1:29 .l[].a"]),
            (
                "object.l.transformList(i, e, e.a, e.b).map(b, b.c)",
                &["1:8 .l", "1:32 .l[].a", "1:37 .l[].b", "1:49 .l[].b.c"],
            ),
            (
                "object.m.transformMap(k, v, v.a)['k'].b",
                &["1:8 .m", "1:31 .m[].a"],
            ),
            (
                "object.m.transformMapEntry(k, v, v.a, {v.b: v.c})",
                &["1:8 .m", "1:36 .m[].a", "1:42 .m[].b", "1:47 .m[].c"],
            ),
            (
                "object.l.sortBy(e, e.a)[0].b",
                &["1:8 .l", "1:22 .l[*].a", "1:28 .l[].b"],
            ),
            ("object.l.first().?a", &["1:8 .l", "1:19 .l[].a"]),
            ("object.l.last().value().a", &["1:8 .l", "1:25 .l[].a"]),
            (
                "object.l.slice(0, object.n).reverse().exists(e, e.a)",
                &["1:8 .l", "1:26 .n", "1:51 .l[*].a"],
            ),
        ] {
            assert_eq!(selections(source, &none), expected, "{source}");
        }
    }

    #[test]
    fn field_selections_are_followed_through_variables() {
        let none = NameOrigins::default();
        assert_eq!(
            selections("object.l.filter(e, e.a).map(e, e.b).exists(b, b.c)", &none),
            ["1:8 .l", "1:22 .l[*].a", "1:34 .l[*].b", "1:49 .l[*].b.c"]
        );
        assert_eq!(
            selections("object.a.exists(object, object.b) && object.c", &none),
            ["1:8 .a", "1:32 .a[*].b", "1:45 .c"]
        );
        let list = fields("[object.a] + object.b", &none).expect("the test has no syntax error");
        let origins = NameOrigins {
            item: list.origin.elements(),
            variables: vec![("v".to_owned(), list.origin)],
        };
        assert_eq!(
            selections("item.x == variables.v[0].y", &origins),
            ["1:6 .a.x", "1:6 .b[*].x", "1:26 .a.y", "1:26 .b[].y"]
        );
    }
}
