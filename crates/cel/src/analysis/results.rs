//! Finds the texts that an expression can have as its result, such as `'a'` and `'b'` in `x ? 'a' :
//! 'b'`. If a field allows only some texts, the caller checks each text in the list.

use std::collections::BTreeSet;

use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr, LiteralValue, SourceInfo, operators};

use crate::compile::environment::Environment;
use crate::compile::op::ComprehensionKind;
use crate::compile::parse::{
    NodeError, comprehension_kind, located, parse, string_of, with_stack, without_dot,
};
use crate::compile::program::Program;

/// Maximum number of times that variables are read for one expression. Variables that use each
/// other can have very many results. The result of a variable that is not read is unknown.
const MAX_VARIABLE_READS: usize = 32;

/// Maximum number of selections that lead from a value to the result, such as 2 in `{'a':
/// ['b']}.a[0]`. The result of a longer selection is unknown.
const MAX_SELECTIONS: usize = 32;

/// Maximum number of results of one expression. The last one is unknown, and stands for all further
/// results.
const MAX_RESULTS: usize = 256;

/// A part of an expression whose value can be the result of the expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PossibleResult {
    /// The result, if it is a string literal. None if the result is computed.
    pub text: Option<String>,
    /// The name of the variable whose expression contains the part. None if the part is in the
    /// expression itself.
    pub variable: Option<String>,
    /// Line of the part, from 1.
    pub line: usize,
    /// Column of the part in characters, from 1.
    pub column: usize,
}

impl Program {
    /// Returns the parts of the expression whose values can be its result. Follows conditionals,
    /// optionals, list and map literals, comprehensions, and the variables of `environment`. This
    /// must be the environment with which the program was compiled.
    pub fn possible_results(&self, environment: &Environment) -> Vec<PossibleResult> {
        let results = with_stack(|| {
            let mut reader = ResultReader {
                environment,
                visited: BTreeSet::new(),
                results: Vec::new(),
            };
            reader.read_source(self.source(), None, &mut Vec::new());
            Ok(reader.results)
        });
        // `with_stack` fails only if the thread cannot be started.
        results.unwrap_or_default()
    }
}

/// A selection of one element or member of a list or map. None if the key is no string literal.
type Selection = Option<String>;

struct ResultReader<'e> {
    environment: &'e Environment,
    /// The variables that were already read, with the selections from their values. A variable that
    /// is used twice gives its results only once.
    visited: BTreeSet<(String, Vec<Selection>)>,
    results: Vec<PossibleResult>,
}

/// The expression that is being read.
struct CurrentSource<'s> {
    info: &'s SourceInfo,
    variable: Option<&'s str>,
}

impl ResultReader<'_> {
    fn read_source(&mut self, source: &str, variable: Option<&str>, path: &mut Vec<Selection>) {
        // The expression was compiled before, so it can be parsed.
        if let Ok((root, info)) = parse(source) {
            let current = CurrentSource {
                info: &info,
                variable,
            };
            self.read(&root, &current, path);
        }
    }

    /// Adds the possible results of `node`. `path` has the selections from the value of `node` that
    /// lead to the result. The last entry is the first selection. For example, for `{'a':
    /// ['b']}.a[0]`, the path of the map literal has the entries None (for `0`) and `a`.
    fn read(&mut self, node: &IdedExpr, current: &CurrentSource<'_>, path: &mut Vec<Selection>) {
        match &node.expr {
            Expr::Literal(LiteralValue::String(text)) if path.is_empty() => {
                self.add(node, current, Some(text.inner()));
            }
            Expr::Select(select) => {
                if let Expr::Ident(name) = &select.operand.expr
                    && without_dot(name) == "variables"
                {
                    self.read_variable(node, &select.field, current, path);
                } else {
                    self.read_selected(&select.operand, Some(&select.field), current, path);
                }
            }
            Expr::List(list) if !path.is_empty() => {
                self.read_each(list.elements.iter(), current, path);
            }
            Expr::Map(map) if !path.is_empty() => {
                let wanted = path.last().cloned().flatten();
                let entries = map.entries.iter().filter_map(|entry| match &entry.expr {
                    EntryExpr::MapEntry(entry) => Some(entry),
                    EntryExpr::StructField(_) => None,
                });
                let selected = entries.filter(|entry| match (string_of(&entry.key), &wanted) {
                    (Some(key), Some(wanted)) => key == wanted,
                    _ => true,
                });
                self.read_each(selected.map(|entry| &entry.value), current, path);
            }
            Expr::Call(call) => {
                let name = call.func_name.trim_start_matches('.');
                let target = call.target.as_deref();
                if !self.read_call(name, target, &call.args, current, path) {
                    self.add(node, current, None);
                }
            }
            _ => self.add(node, current, None),
        }
    }

    /// Adds the possible results of a call whose result is one of its arguments, or a part of them.
    /// Returns false for other calls.
    fn read_call(
        &mut self,
        name: &str,
        target: Option<&IdedExpr>,
        args: &[IdedExpr],
        current: &CurrentSource<'_>,
        path: &mut Vec<Selection>,
    ) -> bool {
        match (target, args) {
            (None, [_, yes, no]) if name == operators::CONDITIONAL => {
                self.read(yes, current, path);
                self.read(no, current, path);
            }
            (None, [operand, key])
                if matches!(
                    name,
                    operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT
                ) =>
            {
                let is_variable = matches!(&operand.expr, Expr::Ident(name)
                    if without_dot(name) == "variables");
                match string_of(key) {
                    Some(key) if is_variable => self.read_variable(operand, key, current, path),
                    key => self.read_selected(operand, key, current, path),
                }
            }
            (None, [left, right]) if name == operators::ADD && !path.is_empty() => {
                self.read(left, current, path);
                self.read(right, current, path);
            }
            (None, [operand]) if name == "dyn" => self.read(operand, current, path),
            (Some(optional), []) if name == "value" => self.read(optional, current, path),
            (Some(list), []) if matches!(name, "first" | "last") => {
                self.read_selected(list, None, current, path);
            }
            (Some(optional), [other]) if matches!(name, "or" | "orValue") => {
                self.read(optional, current, path);
                self.read(other, current, path);
            }
            (Some(prefix), [value]) if is_optional_of(prefix, name) => {
                self.read(value, current, path);
            }
            (Some(_), [_, body]) if matches!(name, "optMap" | "optFlatMap") => {
                self.read(body, current, path);
            }
            (Some(list), _) if matches!(name, "slice" | "reverse" | "distinct" | "sort") => {
                self.read(list, current, path);
            }
            (Some(range), [.., body]) if !path.is_empty() => {
                match comprehension_kind(name, args.len()) {
                    Some((ComprehensionKind::Map | ComprehensionKind::TransformMap, _)) => {
                        self.read_each([body], current, path);
                    }
                    Some((ComprehensionKind::Filter | ComprehensionKind::SortBy, _)) => {
                        self.read(range, current, path);
                    }
                    _ => return false,
                }
            }
            _ => return false,
        }
        true
    }

    fn read_selected(
        &mut self,
        operand: &IdedExpr,
        key: Option<&str>,
        current: &CurrentSource<'_>,
        path: &mut Vec<Selection>,
    ) {
        if path.len() == MAX_SELECTIONS {
            return self.add(operand, current, None);
        }
        path.push(key.map(str::to_owned));
        self.read(operand, current, path);
        path.pop();
    }

    /// Reads elements of a list or members of a map, which the last entry of `path` selects.
    fn read_each<'n>(
        &mut self,
        nodes: impl IntoIterator<Item = &'n IdedExpr>,
        current: &CurrentSource<'_>,
        path: &mut Vec<Selection>,
    ) {
        let selection = path.pop();
        for node in nodes {
            self.read(node, current, path);
        }
        path.extend(selection);
    }

    fn read_variable(
        &mut self,
        node: &IdedExpr,
        name: &str,
        current: &CurrentSource<'_>,
        path: &mut Vec<Selection>,
    ) {
        let environment = self.environment;
        let program = environment.find(name).map(|(_, program)| program);
        match program.filter(|_| self.visited.len() < MAX_VARIABLE_READS) {
            Some(program) => {
                if self.visited.insert((name.to_owned(), path.clone())) {
                    self.read_source(program.source(), Some(name), path);
                }
            }
            None => self.add(node, current, None),
        }
    }

    fn add(&mut self, node: &IdedExpr, current: &CurrentSource<'_>, text: Option<&str>) {
        let text = match self.results.len() {
            MAX_RESULTS.. => return,
            length if length + 1 == MAX_RESULTS => None,
            _ => text.map(str::to_owned),
        };
        let place = NodeError {
            node: node.id,
            message: String::new(),
        };
        let place = located(place, current.info);
        self.results.push(PossibleResult {
            text,
            variable: current.variable.map(str::to_owned),
            line: place.line,
            column: place.column,
        });
    }
}

/// Returns true for the functions `optional.of` and `optional.ofNonZeroValue`.
fn is_optional_of(prefix: &IdedExpr, name: &str) -> bool {
    matches!(&prefix.expr, Expr::Ident(prefix) if prefix == "optional")
        && matches!(name, "of" | "ofNonZeroValue")
}
