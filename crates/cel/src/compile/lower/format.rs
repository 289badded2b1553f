//! Checks calls of the function `format` during compilation, like cel-go's validator. A call is
//! checked if its format string and its list of values are literals.

use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr};

use super::{ErrorKind, Lowering};
use crate::compile::parse::string_of;
use crate::library::format_string::{Clause, FormatPart, FormatParts};
use crate::types::Ty;

impl Lowering<'_> {
    /// Reports an error if the format string and the values do not match.
    pub(super) fn check_format(&mut self, node: u64, target: &IdedExpr, args: &[IdedExpr]) {
        if let (Some(text), [arg]) = (string_of(target), args)
            && let Expr::List(list) = &arg.expr
            && let Some((at, message)) = self.format_error(text, &list.elements)
        {
            self.error(ErrorKind::Invalid, at.unwrap_or(node), message);
        }
    }

    /// Returns the text of the first error, or None if there is no error. If a value causes the
    /// error, also returns the id of the value's node.
    fn format_error(&self, text: &str, args: &[IdedExpr]) -> Option<(Option<u64>, String)> {
        let mut parts = FormatParts::of(text, args.len());
        while let Some(part) = parts.next() {
            let clause = match part {
                Ok(FormatPart::Text(_)) => continue,
                Ok(FormatPart::Clause(clause)) => clause,
                Err(wrong) => return Some((None, wrong.to_owned())),
            };
            if let Some(arg) = args.get(parts.clause_count - 1)
                && let Some((node, ty)) = self.find_refused(clause, arg)
            {
                return Some((Some(node), clause.refusal(&ty.runtime_name())));
            }
        }
        (parts.clause_count < args.len()).then(|| {
            let (expected, given) = (parts.clause_count, args.len());
            let message = format!(
                "too many arguments supplied to string.format (expected {expected}, got {given})"
            );
            (None, message)
        })
    }

    /// Returns the first node that the clause does not accept, with the type of the node. The node
    /// can be the argument itself, or an element of an argument that is a list or map literal.
    /// Returns None if the clause accepts the argument.
    fn find_refused(&self, clause: Clause, node: &IdedExpr) -> Option<(u64, Ty)> {
        let ty = self.types.get(&node.id)?;
        if !clause.takes(ty) {
            return Some((node.id, ty.clone()));
        }
        let mut parts: Vec<&IdedExpr> = Vec::new();
        match (clause, &node.expr) {
            (Clause::String, Expr::List(list)) => parts.extend(&list.elements),
            (Clause::String, Expr::Map(map)) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        parts.extend([&entry.key, &entry.value]);
                    }
                }
            }
            _ => {}
        }
        parts
            .into_iter()
            .find_map(|part| self.find_refused(clause, part))
    }
}
