//! The names that expressions may use. Enter: variables, each compiled against those
//! before it. Leaves: what compiling and evaluating look up.

use super::op::Op;
use super::project::Need;
use super::{Program, Projection};

/// The words that are no identifiers in CEL, or may become none.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// The names that an expression may use beside `object` and `now`.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: Vec<(Box<str>, Program)>,
    /// Whether there is an `item`: one element of a list that another expression yielded.
    pub item: bool,
}

impl PartialEq for Environment {
    /// Whether programs that were compiled with one give the same answers with the other.
    /// Programs know variables by their place, so the names make no difference.
    fn eq(&self, other: &Self) -> bool {
        self.item == other.item
            && self.variables.len() == other.variables.len()
            && (self.variables.iter().zip(&other.variables)).all(|((_, a), (_, b))| a == b)
    }
}

/// Why a variable cannot be declared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeclareError {
    /// The name is not a CEL identifier.
    #[error("{0:?} is not a CEL identifier")]
    Name(String),
    /// Another variable has the name.
    #[error("variable {0:?} is there twice")]
    Twice(String),
    /// The expression reads `item`, and so has no single value for an object.
    #[error("variable {0:?} reads 'item'")]
    Item(String),
}

impl Environment {
    /// Declares `variables.name` for what is compiled from now on, later variables
    /// included. `program` was compiled against this environment as it is.
    ///
    /// # Errors
    /// If `name` is not an identifier or taken, or `program` reads `item`: a variable is
    /// evaluated once for an object, whatever its items.
    pub fn declare(&mut self, name: &str, program: Program) -> Result<(), DeclareError> {
        if !is_identifier(name) {
            return Err(DeclareError::Name(name.to_owned()));
        }
        if self.find(name).is_some() {
            return Err(DeclareError::Twice(name.to_owned()));
        }
        if program.0.reads_item {
            return Err(DeclareError::Item(name.to_owned()));
        }
        self.variables.push((name.into(), program));
        Ok(())
    }

    /// The same with `item`, for expressions that are evaluated on each element of a list.
    #[must_use]
    pub fn with_item(&self) -> Self {
        Self {
            item: true,
            ..self.clone()
        }
    }

    /// How many variables there are.
    pub(super) fn len(&self) -> usize {
        self.variables.len()
    }

    /// The variable `name` and its place.
    pub(super) fn find(&self, name: &str) -> Option<(usize, &Program)> {
        let slot = self.variables.iter().position(|(own, _)| **own == *name)?;
        Some((slot, self.at(slot)?))
    }

    pub(super) fn at(&self, slot: usize) -> Option<&Program> {
        self.variables.get(slot).map(|(_, program)| program)
    }

    /// What `op` can read of `object`, through variables too, and of `item`, where
    /// `want` is needed of its result.
    pub(super) fn projection(&self, op: &Op, want: Need) -> (Projection, Need) {
        let variables: Vec<_> = self.variables.iter().map(|(_, var)| &var.0.op).collect();
        Projection::of(op, want, &variables)
    }
}

/// As Kubernetes has it for the variables of a `ValidatingAdmissionPolicy`.
fn is_identifier(name: &str) -> bool {
    let letter = |c: char| c == '_' || c.is_ascii_alphabetic();
    name.starts_with(letter)
        && name.chars().all(|c| letter(c) || c.is_ascii_digit())
        && !RESERVED.contains(&name)
}
