//! The environment of an expression: the names that the expression can use in addition to `object`
//! and `now`. Each variable has a program, which computes its value. The compiler and the
//! evaluation look up variables here. A variable can use the variables that were declared before
//! it.

use std::sync::Arc;

use cel::common::ast::Expr;

use super::needs::needs;
use super::op::Op;
use super::parse::parse;
use super::program::Program;
use crate::document::projection::{NeededPart, Projection};
use crate::regex::pattern::LiteralPatterns;
use crate::types::Ty;

/// The names that an expression can use in addition to `object` and `now`.
///
/// The regular expressions in all expressions that are compiled with an environment, or with one of
/// its clones, have a common limit of 2 MiB.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: Vec<(Box<str>, Program)>,
    /// True if expressions can use `item`. The value of `item` is one element of a list that
    /// another expression returned.
    pub has_item: bool,
    /// The type of `item`. None if the type of the list's elements is not known.
    item_type: Option<Ty>,
    pub(crate) patterns: Arc<LiteralPatterns>,
}

/// The reason why a variable cannot be declared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeclareError {
    /// The name is not a CEL identifier, or it is a reserved word.
    #[error("{0:?} is not a CEL identifier")]
    Name(String),
    /// Another variable already has the name.
    #[error("variable {0:?} is declared twice")]
    Twice(String),
    /// The expression reads `item`. A variable must have one value for each object, but `item` has
    /// several values.
    #[error("variable {0:?} reads 'item'")]
    Item(String),
}

impl Environment {
    /// Declares the variable `name`, whose value `program` computes. Programs that are compiled
    /// later with this environment can read the variable, also the programs of later variables. For
    /// example, they read the variable `phase` as `variables.phase`. `program` must have been
    /// compiled with this environment.
    ///
    /// # Errors
    /// `name` is not an identifier or is already declared, or `program` reads `item`. A variable is
    /// evaluated once for each object, so it cannot depend on the item.
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

    /// Returns this environment with `item`, for expressions that are evaluated on each element of
    /// a list.
    #[must_use]
    pub fn with_item(&self) -> Self {
        Self {
            has_item: true,
            ..self.clone()
        }
    }

    /// Returns this environment with `item`, which is an element of the result of `list`. `item`
    /// has the type of the list's elements. This type is known, for example, if `list` was compiled
    /// with a schema.
    #[must_use]
    pub fn with_item_of(&self, list: &Program) -> Self {
        let item_type = match &list.0.ty {
            Ty::List(of) => Some((**of).clone()),
            _ => None,
        };
        Self {
            item_type,
            ..self.with_item()
        }
    }

    /// Returns the type of `item`.
    pub(crate) fn item_type(&self) -> Ty {
        self.item_type.clone().unwrap_or(Ty::Dyn)
    }

    /// Returns the number of variables.
    pub(crate) fn len(&self) -> usize {
        self.variables.len()
    }

    /// Returns the index and the program of the variable `name`. Returns None if no variable has
    /// this name.
    pub(crate) fn find(&self, name: &str) -> Option<(usize, &Program)> {
        let mut all = self.variables.iter().enumerate();
        let (slot, (_, program)) = all.find(|(_, (own, _))| **own == *name)?;
        Some((slot, program))
    }

    /// Returns the name and the program of the variable with the index `slot`.
    pub(crate) fn at(&self, slot: usize) -> Option<(&str, &Program)> {
        let (name, program) = self.variables.get(slot)?;
        Some((name, program))
    }

    /// Returns the field paths of `object` and the part of `item` that an evaluation of `op` can
    /// read, directly or through variables. `want` is the part of the result of `op` that the
    /// caller needs. See [`needs`].
    pub(crate) fn projection(&self, op: &Op, want: NeededPart) -> (Projection, NeededPart) {
        let variables: Vec<_> = self.variables.iter().map(|(_, var)| &var.0.op).collect();
        needs(op, want, &variables)
    }
}

impl Program {
    /// Returns true if the expression reads a field of `item`, as in `item.name`.
    pub fn reads_field_of_item(&self) -> bool {
        self.0.item.has_named_members()
    }

    /// Returns the field paths of `object` that this program needs for its result, which must be a
    /// list. Of the list elements, the paths contain only the fields that `readers` need. `readers`
    /// are the programs that read the elements as `item`. `environment` must be the environment
    /// with which this program was compiled.
    ///
    /// The fields that `readers` read from `object` directly are not in the result: add
    /// [`Self::projection`] of each reader.
    ///
    /// For example, this program is `object.status.conditions`, and the only reader is `item.type`.
    /// Then the paths contain only the field `type` of the conditions. In contrast,
    /// [`Self::projection`] of this program contains all fields of the conditions.
    pub fn items_projection<'p>(
        &self,
        environment: &Environment,
        readers: impl IntoIterator<Item = &'p Program>,
    ) -> Projection {
        let mut item = NeededPart::default();
        for reader in readers {
            item.merge_program(reader.0.item.clone());
        }
        environment
            .projection(&self.0.op, NeededPart::every(item))
            .0
    }
}

/// Returns true if `name` can be the name of a variable: an identifier of CEL that is not a reserved
/// word. Kubernetes has the same rule for the variables of a `ValidatingAdmissionPolicy`.
fn is_identifier(name: &str) -> bool {
    let is_part = |c: char| c == '_' || c.is_ascii_alphanumeric();
    name.chars().all(is_part)
        && matches!(parse(name), Ok((node, _)) if matches!(node.expr, Expr::Ident(_)))
}
