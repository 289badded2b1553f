//! Finds the texts that an expression can have as its result, such as `'a'` and `'b'` in `x ? 'a' :
//! 'b'`. If a field allows only some texts, the caller checks each text in the list.

use std::collections::BTreeSet;

use crate::compile::environment::Environment;
use crate::compile::op::{ComprehensionKind, Op};
use crate::compile::program::{Compiled, Program};
use crate::value::constant::Const;
use crate::value::failure::line_and_column;

/// Maximum number of times that variables are read for one expression. Variables that use each
/// other can have very many results. The result of a variable that is not read is unknown.
const MAX_VARIABLE_READS: usize = 32;

/// Maximum number of selections that lead from a value to the result, such as 2 in `{'a':
/// ['b']}.a[0]`. The result of a longer selection is unknown.
const MAX_SELECTIONS: usize = 32;

/// Maximum number of results of one expression. If the maximum is reached, the last result has no
/// text, and stands for all further results.
const MAX_RESULTS: usize = 256;

/// A part of an expression whose value can be the result of the expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PossibleResult {
    /// The result, if it is a string literal. None if the result is computed.
    pub text: Option<String>,
    /// The name of the variable whose expression contains the part. None if the part is in the
    /// expression itself.
    pub variable: Option<String>,
    /// Line of the part, from 1. For a computed part without operands, such as `object`, the line and
    /// the column are those of the operation around the part.
    pub line: usize,
    /// Column of the part in characters, from 1.
    pub column: usize,
}

impl Program {
    /// Returns the parts of the expression whose values can be its result. Follows conditionals,
    /// optionals, list and map literals, comprehensions, and the variables of `environment`.
    /// `environment` must be the environment with which the program was compiled.
    pub fn possible_results(&self, environment: &Environment) -> Vec<PossibleResult> {
        let mut reader = ResultReader {
            environment,
            program: &self.0,
            variable: None,
            place: self.0.root_at,
            path: Vec::new(),
            visited: BTreeSet::new(),
            results: Vec::new(),
        };
        reader.read(&self.0.op);
        reader.results
    }
}

/// A selection of one element or member of a list or map. None if the key is no string literal.
type Selection = Option<Box<str>>;

struct ResultReader<'e> {
    environment: &'e Environment,
    /// The expression that is being read.
    program: &'e Compiled,
    /// The name of the variable to which `program` belongs.
    variable: Option<&'e str>,
    /// The byte offset of the current op in the text of `program`. An op whose place is not known
    /// has the place of the op around it.
    place: usize,
    /// The selections from the value of the current op that lead to the result. The last entry is
    /// the first selection. For example, for `{'a': ['b']}.a[0]`, the path of the map literal has
    /// the entries None (for `0`) and `a`.
    path: Vec<Selection>,
    /// The variables that were already read, with the selections from their values. A variable that
    /// is used twice gives its results only once.
    visited: BTreeSet<(usize, Vec<Selection>)>,
    results: Vec<PossibleResult>,
}

impl<'e> ResultReader<'e> {
    /// Adds the possible results of `op`.
    fn read(&mut self, op: &'e Op) {
        let outer = self.place;
        if let Some(span) = self.program.spans.of(op) {
            self.place = span.at;
        }
        if !self.read_parts(op) {
            self.add(None);
        }
        self.place = outer;
    }

    /// Adds the possible results of an op whose result is one of its operands, or a part of an
    /// operand. Returns false for other ops.
    fn read_parts(&mut self, op: &'e Op) -> bool {
        let is_part = !self.path.is_empty();
        match op {
            Op::Const(Const::Str(text)) if !is_part => self.add(Some(text)),
            Op::Variable(slot) => return self.read_variable(*slot),
            Op::Path(base, fields) | Op::OptionalPath(base, fields) => {
                return self.read_selected(base, fields.iter().rev().cloned().map(Some));
            }
            Op::Index(pair) | Op::OptionalIndex(pair) => {
                return self.read_selected(&pair.0, [None]);
            }
            Op::List(items) if is_part => self.read_each(items.iter().map(|(item, _)| item)),
            Op::Map(entries) if is_part => {
                let wanted = self.path.last().cloned().flatten();
                let selected = entries.iter().filter(|(key, ..)| match (key, &wanted) {
                    (Op::Const(Const::Str(key)), Some(wanted)) => **key == **wanted,
                    _ => true,
                });
                self.read_each(selected.map(|(_, value, _)| value));
            }
            Op::Cond(parts) => self.read_all([&parts.1, &parts.2]),
            Op::Otherwise(pair, _) => self.read_all([&pair.0, &pair.1]),
            Op::OptionalTransform(transform) => self.read(&transform.body),
            Op::Fold(fold) if is_part => match fold.kind {
                ComprehensionKind::Map | ComprehensionKind::TransformMap => {
                    self.read_each([&fold.body]);
                }
                ComprehensionKind::Filter | ComprehensionKind::SortBy => self.read(&fold.range),
                _ => return false,
            },
            Op::Call(function, args) => match (function.name, &**args) {
                ("_+_", operands) if is_part => self.read_all(operands),
                ("dyn" | "value" | "optional.of" | "optional.ofNonZeroValue", [operand])
                | ("slice" | "reverse" | "distinct" | "sort", [operand, ..]) => self.read(operand),
                ("first" | "last", [list]) => return self.read_selected(list, [None]),
                _ => return false,
            },
            _ => return false,
        }
        true
    }

    fn read_all(&mut self, ops: impl IntoIterator<Item = &'e Op>) {
        for op in ops {
            self.read(op);
        }
    }

    /// Adds the possible results of `selections` from the value of `op`. `selections` is in reverse
    /// order: the last selection comes first. Returns false if the path is too long.
    fn read_selected(
        &mut self,
        op: &'e Op,
        selections: impl IntoIterator<Item = Selection>,
    ) -> bool {
        let outer = self.path.len();
        self.path.extend(selections);
        let is_short = self.path.len() <= MAX_SELECTIONS;
        if is_short {
            self.read(op);
        }
        self.path.truncate(outer);
        is_short
    }

    /// Adds the possible results of `ops`, which are elements of a list or members of a map. The
    /// last entry of the path selects them, so it is not part of the path while they are read.
    fn read_each(&mut self, ops: impl IntoIterator<Item = &'e Op>) {
        let selection = self.path.pop();
        self.read_all(ops);
        self.path.extend(selection);
    }

    /// Adds the possible results of a variable. Returns false if too many variables were read.
    fn read_variable(&mut self, slot: usize) -> bool {
        let variable = self.environment.at(slot);
        let Some((name, program)) = variable.filter(|_| self.visited.len() < MAX_VARIABLE_READS)
        else {
            return false;
        };
        if self.visited.insert((slot, self.path.clone())) {
            let outer = (self.program, self.variable, self.place);
            (self.program, self.variable, self.place) = (&program.0, Some(name), program.0.root_at);
            self.read(&program.0.op);
            (self.program, self.variable, self.place) = outer;
        }
        true
    }

    fn add(&mut self, text: Option<&str>) {
        let text = match self.results.len() {
            MAX_RESULTS.. => return,
            length if length + 1 == MAX_RESULTS => None,
            _ => text.map(str::to_owned),
        };
        let (line, column) = line_and_column(&self.program.source, self.place);
        self.results.push(PossibleResult {
            text,
            variable: self.variable.map(str::to_owned),
            line,
            column,
        });
    }
}
