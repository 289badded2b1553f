//! Finds out which fields of an object a rule needs. For example, `object.a && !object.b` needs `a`,
//! and reads `b` only to exclude objects.
//!
//! The expressions are read as trees of calls. For each part of an expression, [`ReadsFinder`] knows
//! the paths of the object from which its value can come.

use std::thread;

use cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, operators};
use cel::{Env, IdedExpr};
use ifo_api::ruleset::{OperationRuleSetSpec, Rule};
use ifo_cel::PathStep;

/// Stack size of the thread that reads the expressions. In a debug build, the parser needs 25 KB for
/// each level of an expression.
const STACK_BYTES: usize = 64 << 20;

/// The fields that the `expression` and the `forEach` of a rule read, directly or through variables.
/// The flag is true if the rule reads the field only to exclude objects.
pub struct RuleReads(Vec<(Vec<PathStep>, bool)>);

impl RuleReads {
    pub fn of(spec: &OperationRuleSetSpec, rule: &Rule) -> Self {
        let find = || {
            let mut finder = ReadsFinder {
                spec,
                item: Vec::new(),
                vars: Vec::new(),
                reads: Vec::new(),
                is_exclusion: false,
            };
            if let Some(list) = &rule.for_each {
                let list = finder.read_source(list);
                finder.item = inner(&list, &PathStep::Each);
            }
            finder.read_source(&rule.expression);
            Self(finder.reads)
        };
        thread::scope(|scope| {
            let thread = thread::Builder::new().stack_size(STACK_BYTES);
            let thread = thread.spawn_scoped(scope, find);
            let found = thread.expect("the system has memory").join();
            found.expect("the shipped expressions are valid")
        })
    }

    /// Returns true if the rule needs the value at `path`, or a part of this value. If the value is
    /// absent, the rule may therefore be false.
    pub fn needs(&self, path: &[PathStep]) -> bool {
        let mut needed = self.0.iter().filter(|(_, is_exclusion)| !is_exclusion);
        needed.any(|(read, _)| is_prefix(path, read))
    }
}

/// Returns true if `path` begins with `prefix`. The steps to a list element count as equal.
fn is_prefix(prefix: &[PathStep], path: &[PathStep]) -> bool {
    let is_same = |one: &PathStep, other: &PathStep| match (one, other) {
        (PathStep::Field(one), PathStep::Field(other)) => one == other,
        (PathStep::Field(_), _) | (_, PathStep::Field(_)) => false,
        (PathStep::Index | PathStep::Each, PathStep::Index | PathStep::Each) => true,
    };
    let mut steps = prefix.iter().zip(path);
    prefix.len() <= path.len() && steps.all(|(one, other)| is_same(one, other))
}

/// One origin of a value.
#[derive(Clone)]
enum Origin {
    /// The value comes from this path of the object.
    At(Vec<PathStep>),
    /// The value is a list, and its elements have these origins.
    ListOf(Vec<Origin>),
}

/// Returns the origins of the parts of a value that `step` selects.
fn inner(origins: &[Origin], step: &PathStep) -> Vec<Origin> {
    let parts = origins.iter().flat_map(|origin| match (origin, step) {
        (Origin::At(path), _) => {
            let path = path.iter().chain([step]);
            vec![Origin::At(path.cloned().collect())]
        }
        (Origin::ListOf(_), PathStep::Field(_)) => Vec::new(),
        (Origin::ListOf(elements), _) => elements.clone(),
    });
    parts.collect()
}

struct ReadsFinder<'s> {
    spec: &'s OperationRuleSetSpec,
    /// The origins of `item`.
    item: Vec<Origin>,
    /// The variables of the macros around the current node, such as `x` in `list.all(x, x > 0)`.
    vars: Vec<(String, Vec<Origin>)>,
    reads: Vec<(Vec<PathStep>, bool)>,
    /// True inside of an odd number of negations.
    is_exclusion: bool,
}

impl ReadsFinder<'_> {
    /// Records the reads of an expression, and returns the origins of its value.
    fn read_source(&mut self, source: &str) -> Vec<Origin> {
        let parser = Env::default().with_optional_support(true).parser();
        let (root, _) = parser
            .parse_with_source_info(source)
            .expect("the shipped expressions are valid");
        let outer = std::mem::take(&mut self.vars);
        let origins = self.read(&root);
        self.vars = outer;
        origins
    }

    fn read(&mut self, node: &IdedExpr) -> Vec<Origin> {
        match &node.expr {
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => match &select.operand.expr {
                Expr::Ident(name) if name == "variables" => {
                    let mut variables = self.spec.variables.iter();
                    let variable = variables.find(|it| it.name == select.field);
                    self.read_source(&variable.expect("the variable exists").expression)
                }
                _ => self.select(&select.operand, &select.field),
            },
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let elements = list.elements.iter();
                let origins = elements.flat_map(|element| self.read(element));
                vec![Origin::ListOf(origins.collect())]
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.read(&entry.key);
                        self.read(&entry.value);
                    }
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn ident(&self, name: &str) -> Vec<Origin> {
        let mut vars = self.vars.iter().rev();
        if let Some((_, origins)) = vars.find(|(var, _)| var == name) {
            return origins.clone();
        }
        match name {
            "object" => vec![Origin::At(Vec::new())],
            "item" => self.item.clone(),
            _ => Vec::new(),
        }
    }

    /// Records the read of the field `name`, and returns the origins of the field's value.
    fn select(&mut self, operand: &IdedExpr, name: &str) -> Vec<Origin> {
        let origins = inner(&self.read(operand), &PathStep::Field(name.to_owned()));
        for origin in &origins {
            if let Origin::At(path) = origin {
                self.reads.push((path.clone(), self.is_exclusion));
            }
        }
        origins
    }

    fn call(&mut self, call: &CallExpr) -> Vec<Origin> {
        let name = &*call.func_name;
        let is_index = [
            operators::INDEX,
            operators::OPT_INDEX,
            operators::OPT_SELECT,
        ];
        match (call.target.as_deref(), &*call.args) {
            (Some(range), [vars @ .., _]) if is_macro(name, vars.len()) => {
                self.comprehension(name, range, &call.args)
            }
            (None, [operand, key]) if is_index.contains(&name) => {
                if let Some(key) = text_of(key) {
                    self.select(operand, key)
                } else {
                    self.read(key);
                    inner(&self.read(operand), &PathStep::Index)
                }
            }
            (Some(list), []) if matches!(name, "first" | "last") => {
                inner(&self.read(list), &PathStep::Index)
            }
            (None, [test, yes, no]) if name == operators::CONDITIONAL => {
                self.read_if(test, is_false(yes));
                [self.read(yes), self.read(no)].concat()
            }
            // `+` can concatenate two lists.
            (None, [left, right]) if name == operators::ADD => {
                [self.read(left), self.read(right)].concat()
            }
            (None, [operand]) if name == operators::LOGICAL_NOT => {
                self.read_if(operand, true);
                Vec::new()
            }
            (None, [left, right]) if excludes(name, left, right) => {
                self.read_if(left, true);
                self.read_if(right, true);
                Vec::new()
            }
            // The result of these functions consists of parts of the receiver and the arguments.
            (target, args) => {
                let all = target.into_iter().chain(args);
                let origins = all.flat_map(|arg| self.read(arg)).collect();
                let keeps = [
                    "value", "or", "orValue", "of", "slice", "reverse", "distinct", "sort", "dyn",
                ];
                if keeps.contains(&name) {
                    origins
                } else {
                    Vec::new()
                }
            }
        }
    }

    /// Reads a part of the expression. `is_inverted` is true if its truth makes the expression false.
    fn read_if(&mut self, node: &IdedExpr, is_inverted: bool) {
        self.is_exclusion ^= is_inverted;
        self.read(node);
        self.is_exclusion ^= is_inverted;
    }

    /// Reads a macro with one variable, such as `list.filter(x, x > 0)`, or with two variables.
    fn comprehension(&mut self, name: &str, range: &IdedExpr, args: &[IdedExpr]) -> Vec<Origin> {
        let range = self.read(range);
        let outer = self.vars.len();
        let names = args.iter().map_while(|arg| match &arg.expr {
            Expr::Ident(name) => Some(name.clone()),
            _ => None,
        });
        let names: Vec<String> = names.take(args.len() - 1).collect();
        match &*names {
            // The value of an optional has the same origins as the optional.
            [var] if name.starts_with("opt") => self.vars.push((var.clone(), range.clone())),
            [var] => self
                .vars
                .push((var.clone(), inner(&range, &PathStep::Each))),
            [key, value, ..] => self.vars.extend([
                (key.clone(), Vec::new()),
                (value.clone(), inner(&range, &PathStep::Index)),
            ]),
            [] => {}
        }
        let bodies = args.iter().skip(names.len());
        let last = bodies.map(|body| self.read(body)).last();
        self.vars.truncate(outer);
        match name {
            "optMap" | "optFlatMap" => last.unwrap_or_default(),
            "map" | "transformList" => vec![Origin::ListOf(last.unwrap_or_default())],
            "filter" | "sortBy" => range,
            _ => Vec::new(),
        }
    }
}

/// Returns true if a call of `name` has variables. `arguments` is the number of its arguments before
/// the last argument.
fn is_macro(name: &str, arguments: usize) -> bool {
    let names = [
        operators::ALL,
        operators::EXISTS,
        operators::EXISTS_ONE,
        operators::FILTER,
        operators::MAP,
        "existsOne",
        "transformList",
        "transformMap",
        "transformMapEntry",
        "sortBy",
        "optMap",
        "optFlatMap",
    ];
    arguments > 0 && names.contains(&name)
}

fn text_of(node: &IdedExpr) -> Option<&str> {
    match &node.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

fn is_false(node: &IdedExpr) -> bool {
    matches!(&node.expr, Expr::Literal(LiteralValue::Boolean(value)) if !*value.inner())
}

/// Returns true if a comparison excludes objects in which a field has a value. An absent field
/// would also satisfy the comparison, as in `object.a != 'x'` and `object.a == ''`.
fn excludes(operator: &str, left: &IdedExpr, right: &IdedExpr) -> bool {
    let is_empty = |node: &IdedExpr| match &node.expr {
        Expr::Literal(LiteralValue::Int(number)) => *number.inner() == 0,
        _ => is_false(node) || text_of(node) == Some(""),
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
