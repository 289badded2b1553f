//! Parses expressions. The parser recurses for each operator in a chain of operators, so it runs on a
//! separate thread with a large stack. A stack overflow would end the process. The stack is large
//! enough for every expression of up to [`MAX_SOURCE`] characters.

use std::sync::{Mutex, PoisonError};
use std::thread;

use cel::common::ast::{EntryExpr, Expr, IdedEntryExpr, LiteralValue, SourceInfo, operators};
use cel::{Env, IdedExpr, ParseError, ParseErrors};

use super::op::ComprehensionKind;
use crate::value::failure::line_and_column;

/// Maximum number of characters of an expression. A longer expression does not compile.
/// [`STACK_BYTES`] depends on this limit.
pub(crate) const MAX_SOURCE: usize = 4096;

/// Maximum nesting depth of an expression. A deeper expression does not compile. cel-go has the
/// same limit. The depth is limited because the evaluation recurses once for each level.
pub(crate) const MAX_DEPTH: usize = 250;

/// Stack size of the compiler thread in bytes. An expression of [`MAX_SOURCE`] characters, such as
/// `1+1+…+1`, can have 2,048 levels. The parser also limits the depth, but it counts only nested
/// expressions, such as `((1))`, and not operators such as `+`. So the parser visits all 2,048
/// levels, and then `fits_depth` refuses the expression. In a debug build, the parser needs up to
/// 25 KB of stack for each level. Unused pages of the stack need no memory.
pub(crate) const STACK_BYTES: usize = 64 << 20;

/// The lock that allows only one compilation at a time, so that only one large stack is in memory.
/// Each compilation has a new thread. The stack of the thread is freed when the compilation ends.
/// Expressions change rarely, so the cost of a new thread does not matter.
static COMPILE_LOCK: Mutex<()> = Mutex::new(());

/// Runs `work` on a new thread that has a stack of [`STACK_BYTES`] bytes.
pub(crate) fn with_stack<T: Send>(
    work: impl FnOnce() -> Result<T, CompileError> + Send,
) -> Result<T, CompileError> {
    let _turn = COMPILE_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        let compiling = thread::Builder::new()
            .name("compile".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work);
        match compiling {
            // `join` fails if the parser panics. No expression is known for which the parser
            // panics.
            Ok(compiling) => compiling
                .join()
                .unwrap_or_else(|_| Err(error("the compiler failed".to_owned()))),
            Err(cause) => Err(error(format!("cannot start the compiler: {cause}"))),
        }
    })
}

fn error(message: String) -> CompileError {
    CompileError {
        message,
        line: 1,
        column: 1,
        hint: None,
    }
}

/// Parses `source`. Returns an error if `source` has a syntax error, or exceeds [`MAX_SOURCE`] or
/// [`MAX_DEPTH`].
pub(crate) fn parse(source: &str) -> Result<(IdedExpr, SourceInfo), CompileError> {
    let size = source.chars().count();
    if size > MAX_SOURCE {
        return Err(error(format!(
            "expression code point size exceeds limit: size: {size}, limit {MAX_SOURCE}"
        )));
    }
    // The parser does not expand macros, so the function `lower` receives macros as calls.
    let parser = Env::default()
        .with_optional_support(true)
        .parser()
        .max_recursion_depth(u16::try_from(MAX_DEPTH).unwrap_or(u16::MAX));
    let (root, info) = parser
        .parse_with_source_info(source)
        .map_err(|errors| first_syntax_error(&errors))?;
    if !fits_depth(&root, MAX_DEPTH) {
        return Err(too_deep());
    }
    Ok((root, info))
}

pub(super) fn too_deep() -> CompileError {
    error(format!("expression recursion limit exceeded: {MAX_DEPTH}"))
}

/// Adds the line and column of the node to its error.
pub(crate) fn located(error: NodeError, info: &SourceInfo) -> CompileError {
    let (line, column) = line_and_column(&info.source, offset_of(error.node, info));
    CompileError {
        message: error.message,
        line,
        column,
        hint: None,
    }
}

/// Returns the byte offset at which an error in the node is reported.
pub(super) fn offset_of(node: u64, info: &SourceInfo) -> usize {
    let span = info.offset_for(node);
    span.and_then(|(start, _)| usize::try_from(start).ok())
        .unwrap_or_default()
}

fn first_syntax_error(errors: &ParseErrors) -> CompileError {
    // After a syntax error, the parser also reports each incomplete node of the tree. These reports
    // can be in the list before the syntax error itself.
    let is_syntax = |error: &&ParseError| error.msg.starts_with("Syntax error");
    let mut all = errors.errors.iter();
    let Some(first) = all.clone().find(is_syntax).or_else(|| all.next()) else {
        return error("syntax error".to_owned());
    };
    let message = match &first.source {
        // If the expression exceeds the parser's own depth limit, the parser returns the message
        // `UNKNOWN`. The useful text is in `cause`.
        Some(cause) if first.msg == "UNKNOWN" => cause.to_string(),
        _ => first.msg.clone(),
    };
    let position = |position: isize| usize::try_from(position).unwrap_or_default().max(1);
    CompileError {
        message,
        line: position(first.pos.0),
        column: position(first.pos.1),
        hint: None,
    }
}

/// Returns true if the tree below `node` has at most `levels` levels.
fn fits_depth(node: &IdedExpr, levels: usize) -> bool {
    let Some(levels) = levels.checked_sub(1) else {
        return false;
    };
    children(node).all(|child| fits_depth(child, levels))
}

/// An error at a node of the syntax tree.
#[derive(Debug)]
pub(crate) struct NodeError {
    pub node: u64,
    pub message: String,
}

/// The name of each comprehension, the number of its variables, and its kind.
pub(super) const COMPREHENSIONS: [(&str, usize, ComprehensionKind); 13] = [
    (operators::ALL, 1, ComprehensionKind::All),
    (operators::ALL, 2, ComprehensionKind::All),
    (operators::EXISTS, 1, ComprehensionKind::Exists),
    (operators::EXISTS, 2, ComprehensionKind::Exists),
    (operators::EXISTS_ONE, 1, ComprehensionKind::ExistsOne),
    (operators::EXISTS_ONE, 2, ComprehensionKind::ExistsOne),
    ("existsOne", 2, ComprehensionKind::ExistsOne),
    (operators::FILTER, 1, ComprehensionKind::Filter),
    (operators::MAP, 1, ComprehensionKind::Map),
    ("transformList", 2, ComprehensionKind::Map),
    ("transformMap", 2, ComprehensionKind::TransformMap),
    ("transformMapEntry", 2, ComprehensionKind::TransformMapEntry),
    ("sortBy", 1, ComprehensionKind::SortBy),
];

/// Returns the kind of a comprehension and the number of its variables. Returns None if no
/// comprehension has this name and this number of arguments.
pub(crate) fn comprehension_kind(name: &str, args: usize) -> Option<(ComprehensionKind, usize)> {
    let mut all = COMPREHENSIONS.iter();
    let found = all.find(|(own, variables, kind)| {
        // The arguments are the variables, in some kinds a condition, and the body.
        let has_condition = args == variables + 2 && kind.can_have_condition();
        *own == name && (args == variables + 1 || has_condition)
    });
    found.map(|(_, variables, kind)| (*kind, *variables))
}

/// Returns the operands of a node, in the order of the text.
pub(crate) fn children(node: &IdedExpr) -> impl Iterator<Item = &IdedExpr> {
    let (mut first, rest): (Vec<&IdedExpr>, &[IdedExpr]) = match &node.expr {
        Expr::Call(call) => (call.target.as_deref().into_iter().collect(), &call.args),
        Expr::Select(select) => (vec![&select.operand], &[]),
        Expr::List(list) => (Vec::new(), &list.elements),
        Expr::Map(map) => (entries_of(&map.entries), &[]),
        Expr::Struct(message) => (entries_of(&message.entries), &[]),
        Expr::Comprehension(_) | Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {
            (Vec::new(), &[])
        }
    };
    first.extend(rest);
    first.into_iter()
}

fn entries_of(entries: &[IdedEntryExpr]) -> Vec<&IdedExpr> {
    let entries = entries.iter().flat_map(|entry| match &entry.expr {
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        EntryExpr::StructField(field) => vec![&field.value],
    });
    entries.collect()
}

/// Returns an identifier without its leading dot.
pub(crate) fn without_dot(name: &str) -> &str {
    name.strip_prefix('.').unwrap_or(name)
}

/// Returns the text of a node that is a string literal.
pub(crate) fn string_of(node: &IdedExpr) -> Option<&str> {
    match &node.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

/// The error for a text that is not a valid expression. The message equals cel-go's message, except
/// for the differences in the README.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct CompileError {
    /// The message, without the position.
    pub message: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Advice on how to correct the expression. None if the crate has no advice for the mistake.
    /// The `Display` text of the error does not contain the hint.
    pub hint: Option<String>,
}

/// Maximum number of characters of a line in an [`excerpt`].
const EXCERPT_WIDTH: usize = 80;

impl CompileError {
    /// Returns the [`excerpt`] of `source` at the line and the column of the error.
    pub fn excerpt(&self, source: &str) -> String {
        excerpt(source, self.line, self.column)
    }
}

/// Returns two lines: a part of the line of `source` with the number `line`, and a line with a
/// caret below `column`. `line` and `column` count from 1. The part begins at most 40 characters
/// before the column, and has at most 80 characters.
pub fn excerpt(source: &str, line: usize, column: usize) -> String {
    let line = source.lines().nth(line.saturating_sub(1));
    // A tab would move the caret.
    let line: Vec<char> = line
        .unwrap_or_default()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let at = column.saturating_sub(1).min(line.len());
    let from = at.saturating_sub(EXCERPT_WIDTH / 2);
    let part: String = line.iter().skip(from).take(EXCERPT_WIDTH).collect();
    let left = if from > 0 { "…" } else { "" };
    let indent = " ".repeat(at - from + left.chars().count());
    format!("{left}{part}\n{indent}^")
}
