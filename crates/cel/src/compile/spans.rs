//! The places of ops in the text of the expression. An op is a node of the compiled expression.
//! Only error messages and explanations need the places. So the places are not part of the op tree,
//! and cost nothing during an evaluation.

use std::collections::HashMap;

use super::op::Op;
use crate::value::constant::Const;

/// The place of an op in the text of the expression. All fields are offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// The position that error messages show for the op, such as the position of its operator.
    pub at: usize,
    /// The first byte of the op and its operands.
    pub start: usize,
    /// The first byte after the last token of the op and its operands.
    pub end: usize,
}

impl Span {
    /// Returns the smallest span that contains both spans. Its position `at` is that of `self`.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            at: self.at,
            start: self.start.min(other.start),
            end: self.end.max(other.end),
        }
    }
}

/// The spans of the ops of one tree. The key is the address of the op's first operand on the heap, or
/// of the text of a string literal. This address stays the same when the op is moved. Other ops
/// without operands, such as `object`, have no span.
#[derive(Debug, Default)]
pub(crate) struct Spans(HashMap<usize, Span>);

impl Spans {
    pub(crate) fn add(&mut self, op: &Op, span: Span) {
        if let Some(address) = address(op) {
            // If the map already contains this address, it belonged to an op that was dropped. The
            // memory was used again for `op`. So the new span replaces the old span.
            self.0.insert(address, span);
        }
    }

    pub(crate) fn of(&self, op: &Op) -> Option<Span> {
        self.0.get(&address(op)?).copied()
    }
}

fn address(op: &Op) -> Option<usize> {
    if let Op::Const(Const::Str(text)) = op {
        return Some(text.as_ptr().addr());
    }
    let operands = op.operands();
    operands
        .first()
        .map(|first| std::ptr::from_ref(*first).addr())
}

/// Returns the text of a span in one line. The parser reports the opening parenthesis as the
/// position of a call. So the span of `size(x)` contains only `(x`. This function adds the name of
/// the function and the closing parenthesis.
pub(crate) fn text_of(source: &str, span: Span) -> String {
    let is_name = |c: char| c == '_' || c.is_ascii_alphanumeric();
    let (mut start, mut end) = (span.start, span.end.min(source.len()));
    if source
        .get(start..)
        .is_some_and(|text| text.starts_with('('))
    {
        let before = source.get(..start).unwrap_or_default();
        start = before.trim_end_matches(|c| is_name(c) || c == '.').len();
    }
    // If the span ends with the dot before a name, `text_of` adds the name.
    let skip = |end: usize, is_part: &dyn Fn(char) -> bool| {
        let rest = source.get(end..).unwrap_or_default();
        end + rest.len() - rest.trim_start_matches(is_part).len()
    };
    let is_dot = |end: usize| {
        let text = source.get(start..end).unwrap_or_default();
        text.ends_with(['.', '?'])
    };
    if is_dot(end) {
        end = skip(end, &|c| c.is_whitespace() || c == '?');
    }
    end = skip(end, &is_name);
    if source.get(end..).is_some_and(|rest| rest.starts_with('(')) {
        end += 1;
    }
    end = end.max(balanced_end(source, start, end));
    let text = source.get(start..end).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the first position from `end` on at which all brackets and quotes are closed that were
/// opened from `start` on. If there is no such position, returns the end of `source`. For example,
/// if `end` is after `x` in `f(x) + 1`, the result is the position after `)`.
fn balanced_end(source: &str, start: usize, end: usize) -> usize {
    let mut open = 0_i32;
    let mut quote = None;
    let mut is_escaped = false;
    for (at, c) in source.get(start..).unwrap_or_default().char_indices() {
        let at = start + at;
        if at >= end && open <= 0 && quote.is_none() {
            return at.max(end);
        }
        match (quote, c) {
            (Some(_), _) if is_escaped => is_escaped = false,
            (Some(_), '\\') => is_escaped = true,
            (Some(own), c) if own == c => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '(' | '[' | '{') => open += 1,
            (None, ')' | ']' | '}') => open -= 1,
            (Some(_) | None, _) => {}
        }
    }
    source.len()
}
