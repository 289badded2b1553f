//! Checks a literal format with a literal list of values at compilation, as cel-go's validator
//! does.

use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr, LiteralValue};

use super::check::Ty;
use super::format_clause::{Clause, FormatPart, FormatParts};
use super::lower::{Lowering, NodeError};

impl Lowering<'_> {
    /// Checks a literal format against a literal list, as cel-go's validator does.
    pub(super) fn check_format(&mut self, node: u64, target: &IdedExpr, args: &[IdedExpr]) {
        let Expr::Literal(LiteralValue::String(text)) = &target.expr else {
            return;
        };
        let [arg] = args else {
            return;
        };
        let Expr::List(list) = &arg.expr else {
            return;
        };
        let args = &list.elements;
        let complaint = self
            .misformatted(text.inner(), args)
            .map(|(at, message)| (at.unwrap_or(node), message));
        if let Some((node, message)) = complaint {
            self.misformatted.push(NodeError { node, message });
        }
    }

    /// An error in a format, with the argument that causes it.
    fn misformatted(&self, text: &str, args: &[IdedExpr]) -> Option<(Option<u64>, String)> {
        let mut pieces = FormatParts::of(text, args.len(), false);
        while let Some(piece) = pieces.next() {
            let clause = match piece {
                Ok(FormatPart::Text(_)) => continue,
                Ok(FormatPart::Clause(clause)) => clause,
                Err(wrong) => return Some((None, wrong.to_string())),
            };
            if let Some(arg) = args.get(pieces.seen - 1)
                && let Some((node, ty)) = self.refused(clause, arg)
            {
                return Some((Some(node), clause.refusal(&ty.runtime_name())));
            }
        }
        (pieces.seen < args.len()).then(|| {
            let (seen, given) = (pieces.seen, args.len());
            let message = format!(
                "too many arguments supplied to string.format (expected {seen}, got {given})"
            );
            (None, message)
        })
    }

    /// Returns the part of a literal that a clause does not accept, or the argument itself.
    fn refused(&self, clause: Clause, node: &IdedExpr) -> Option<(u64, Ty)> {
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
            .find_map(|part| self.refused(clause, part))
    }
}
