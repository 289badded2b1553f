//! Compiling: on a thread of its own with a stack for the worst that fits in the
//! bounds, since the parser recurses once for each operator of a chain and a stack
//! that overflows ends the process.

use std::sync::{Mutex, PoisonError};
use std::thread;

use cel::common::ast::{EntryExpr, Expr, SourceInfo};
use cel::{Env, IdedExpr, ParseError, ParseErrors};

use super::check::Ty;
use super::lower::{Complaint, lower};
use super::op::Op;
use super::project::Need;
use super::{CompileError, Environment, Projection, ResultKind};

/// Bytes of an expression: a screenful, and what the stack below is sized for.
pub(super) const SOURCE: usize = 4096;

/// Levels of an expression, cel-go's own limit; evaluating recurses as deep.
pub(super) const DEPTH: usize = 250;

/// Bytes of the compiling thread's stack: the parser takes up to 25 KB a level in a
/// debug build, and [`SOURCE`] bytes hold 2,048 levels. Untouched pages cost nothing.
pub(super) const STACK: usize = 64 << 20;

/// One compilation at a time, which bounds the memory. Each has a thread of its own:
/// expressions change rarely, and a thread that ends takes its stack with it.
static TURN: Mutex<()> = Mutex::new(());

/// What compiling makes.
#[derive(Debug)]
pub(super) struct Compiled {
    pub source: String,
    pub op: Op,
    pub ty: Ty,
    pub weight: u64,
    /// Levels, those of the variables it uses included.
    pub depth: usize,
    pub reads_now: bool,
    pub reads_item: bool,
    pub projection: Projection,
    /// What it can read of `item`.
    pub item: Need,
}

/// Compiles `source`, to yield what `kind` says.
pub(super) fn compile(
    source: &str,
    kind: ResultKind,
    environment: &Environment,
) -> Result<Compiled, CompileError> {
    with_stack(|| on_this_stack(source, kind, environment))
}

/// Runs `work` on a stack for the worst that fits in the bounds.
pub(super) fn with_stack<T: Send>(
    work: impl FnOnce() -> Result<T, CompileError> + Send,
) -> Result<T, CompileError> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        let compiling = thread::Builder::new()
            .name("compile".to_owned())
            .stack_size(STACK)
            .spawn_scoped(scope, work);
        match compiling {
            // A panic of the parser is not known, and would end here.
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
    }
}

/// Compiles on the calling thread, which has a stack of [`STACK`] bytes.
pub(super) fn on_this_stack(
    source: &str,
    kind: ResultKind,
    environment: &Environment,
) -> Result<Compiled, CompileError> {
    let (root, info) = parse(source)?;
    let mut lowered = lower(&root, environment);
    if !kind.takes(&lowered.ty) {
        let message = format!("expected type '{kind}' but found '{}'", lowered.ty);
        lowered.mistyped.push(Complaint {
            node: root.id,
            message,
        });
    }
    // Each sort is looked for where there is nothing worse.
    let complaints = [lowered.misused, lowered.mistyped, lowered.misformatted]
        .into_iter()
        .find(|complaints| !complaints.is_empty())
        .unwrap_or_default();
    let first = complaints
        .into_iter()
        .map(|complaint| located(complaint, &info))
        .min_by_key(|error| (error.line, error.column));
    if let Some(error) = first {
        return Err(error);
    }
    if lowered.depth > DEPTH {
        return Err(too_deep());
    }
    let (projection, item) = environment.projection(&lowered.op, Need::whole());
    Ok(Compiled {
        source: source.to_owned(),
        op: lowered.op,
        ty: lowered.ty,
        weight: lowered.weight,
        depth: lowered.depth,
        reads_now: lowered.reads_now,
        reads_item: lowered.reads_item,
        projection,
        item,
    })
}

/// Parses what is not too long and not too deep.
pub(super) fn parse(source: &str) -> Result<(IdedExpr, SourceInfo), CompileError> {
    if source.len() > SOURCE {
        return Err(error(format!(
            "expression code point size exceeds limit: size: {}, limit {SOURCE}",
            source.len()
        )));
    }
    // Macros stay calls, and optional syntax is off, as in cel-go's plain environment.
    let parser = Env::default()
        .with_optional_support(false)
        .parser()
        .max_recursion_depth(u16::try_from(DEPTH).unwrap_or(u16::MAX));
    let (root, info) = parser
        .parse_with_source_info(source)
        .map_err(|errors| first_syntax_error(&errors))?;
    if !shallower(&root, DEPTH) {
        return Err(too_deep());
    }
    Ok((root, info))
}

fn too_deep() -> CompileError {
    error(format!("expression recursion limit exceeded: {DEPTH}"))
}

pub(super) fn located(complaint: Complaint, info: &SourceInfo) -> CompileError {
    let offset = info
        .offset_for(complaint.node)
        .and_then(|(start, _)| usize::try_from(start).ok())
        .unwrap_or_default();
    let before = info.source.get(..offset).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    CompileError {
        message: complaint.message,
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
    }
}

fn first_syntax_error(errors: &ParseErrors) -> CompileError {
    // Where the syntax is wrong, the parser also complains, earlier in the text, of the
    // gaps that this leaves in its tree.
    let is_syntax = |error: &&ParseError| error.msg.starts_with("Syntax error");
    let mut all = errors.errors.iter();
    let Some(first) = all.clone().find(is_syntax).or_else(|| all.next()) else {
        return error("syntax error".to_owned());
    };
    let message = match &first.source {
        // The parser gave up on its own limit.
        Some(cause) if first.msg == "UNKNOWN" => cause.to_string(),
        _ => first.msg.clone(),
    };
    let position = |position: isize| usize::try_from(position).unwrap_or_default().max(1);
    CompileError {
        message,
        line: position(first.pos.0),
        column: position(first.pos.1),
    }
}

/// Whether no part of `node` is more than `levels` deep.
fn shallower(node: &IdedExpr, levels: usize) -> bool {
    let Some(levels) = levels.checked_sub(1) else {
        return false;
    };
    let all = |nodes: &[IdedExpr]| nodes.iter().all(|node| shallower(node, levels));
    match &node.expr {
        Expr::Call(call) => {
            all(&call.args)
                && call
                    .target
                    .as_ref()
                    .is_none_or(|node| shallower(node, levels))
        }
        Expr::Select(select) => shallower(&select.operand, levels),
        Expr::List(list) => all(&list.elements),
        Expr::Map(map) => map.entries.iter().all(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => {
                shallower(&entry.key, levels) && shallower(&entry.value, levels)
            }
            EntryExpr::StructField(field) => shallower(&field.value, levels),
        }),
        Expr::Struct(message) => message.entries.iter().all(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => {
                shallower(&entry.key, levels) && shallower(&entry.value, levels)
            }
            EntryExpr::StructField(field) => shallower(&field.value, levels),
        }),
        Expr::Comprehension(_) | Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => true,
    }
}
