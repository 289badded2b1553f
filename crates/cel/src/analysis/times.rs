//! Finds comparisons that compare the texts of times instead of the times, such as
//! `object.metadata.creationTimestamp < '2026-01-31'`.

use cel::IdedExpr;
use cel::common::ast::{Expr, SourceInfo, operators};

use crate::compile::parse::CompileError;
use crate::compile::parse::{NodeError, children, located, parse, string_of, with_stack};
use crate::value::time::has_shape;

/// Endings of the names of fields whose values are times.
const TIME_FIELDS: [&str; 3] = ["Timestamp", "Time", "At"];

/// Returns a finding for each `<`, `<=`, `>` or `>=` in `source` that compares the text of a time
/// with a string literal. A text with another time zone or precision is ordered wrongly.
///
/// # Errors
/// The syntax of `source` is wrong, or `source` is too long or too deeply nested.
pub fn comparisons_of_time_texts(source: &str) -> Result<Vec<CompileError>, CompileError> {
    with_stack(|| {
        let (root, info) = parse(source)?;
        let mut found = Vec::new();
        find(&root, &info, &mut found);
        Ok(found)
    })
}

fn find(node: &IdedExpr, info: &SourceInfo, found: &mut Vec<CompileError>) {
    if let Expr::Call(call) = &node.expr
        && let operators::LESS
        | operators::LESS_EQUALS
        | operators::GREATER
        | operators::GREATER_EQUALS = &*call.func_name
        && let [left, right] = &*call.args
        && (compares_time_text(left, right) || compares_time_text(right, left))
    {
        let error = NodeError {
            node: node.id,
            message: "this compares two texts, and not two times".to_owned(),
        };
        found.push(CompileError {
            hint: Some(
                "convert both texts, as in timestamp(object.metadata.creationTimestamp) < \
                 timestamp('2026-01-31T12:00:00Z')"
                    .to_owned(),
            ),
            ..located(error, info)
        });
    }
    for child in children(node) {
        find(child, info, found);
    }
}

/// Returns true if `literal` is a string literal, and it or `other` looks like a time.
fn compares_time_text(literal: &IdedExpr, other: &IdedExpr) -> bool {
    let is_time = |text| is_date(text) || field_of(other).is_some_and(is_time_field);
    string_of(literal).is_some_and(is_time)
}

/// Returns true for a text that begins with a year and a month, such as `2026-01-31T12:00:00Z`.
fn is_date(text: &str) -> bool {
    text.get(..7)
        .is_some_and(|start| has_shape(start, "0000-00"))
}

fn is_time_field(name: &str) -> bool {
    TIME_FIELDS.iter().any(|ending| name.ends_with(ending))
}

/// Returns the name of the field that `node` reads, as in `object.a` or `object.?a.orValue('')`.
fn field_of(node: &IdedExpr) -> Option<&str> {
    match &node.expr {
        Expr::Select(select) => Some(&select.field),
        Expr::Call(call) => match (&*call.func_name, call.target.as_deref(), &*call.args) {
            (operators::OPT_SELECT, None, [_, field]) => string_of(field),
            ("orValue" | "value", Some(optional), _) => field_of(optional),
            _ => None,
        },
        _ => None,
    }
}
