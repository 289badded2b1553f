//! Compiles the text of an expression to a tree of ops. The crate evaluates this tree.
//!
//! The compiler runs on a separate thread with a large stack, because the parser recurses for each
//! operator in a chain of operators. A stack overflow would end the process. The stack is large
//! enough for every expression of up to [`MAX_SOURCE`] characters.

use std::sync::{Mutex, PoisonError};
use std::thread;

use cel::common::ast::SourceInfo;
use cel::{Env, IdedExpr, ParseError, ParseErrors};

use super::error_hints::hint;
use super::lowering::{NodeError, children, lower};
use super::op::Op;
use super::op_positions::{Spans, line_and_column};
use super::projection::NeededPart;
use super::type_check::Ty;
use super::{CompileError, Environment, ObjectSchema, Projection, ResultKind};

/// Maximum number of characters of an expression. A longer expression does not compile.
/// [`STACK_BYTES`] depends on this limit.
pub(super) const MAX_SOURCE: usize = 4096;

/// Maximum nesting depth of an expression. A deeper expression does not compile. cel-go has the
/// same limit. The depth is limited because the evaluation recurses once for each level.
pub(super) const MAX_DEPTH: usize = 250;

/// Maximum number of reported errors of one expression. Each error needs memory, and a hint takes
/// up to a millisecond. An expression of [`MAX_SOURCE`] characters can have 2,000 errors.
const MAX_ERRORS: usize = 16;

/// Stack size of the compiler thread in bytes. An expression of [`MAX_SOURCE`] characters, such as
/// `1+1+…+1`, can have 2,048 levels. The parser also limits the depth, but it counts only nested
/// expressions, such as `((1))`, and not operators such as `+`. So the parser visits all 2,048
/// levels, and then [`fits_depth`] refuses the expression. In a debug build, the parser needs up to
/// 25 KB of stack for each level. Unused pages of the stack need no memory.
pub(super) const STACK_BYTES: usize = 64 << 20;

/// The lock that allows only one compilation at a time, so that only one large stack is in memory.
/// Each compilation has a new thread. The stack of the thread is freed when the compilation ends.
/// Expressions change rarely, so the cost of a new thread does not matter.
static COMPILE_LOCK: Mutex<()> = Mutex::new(());

/// The result of a compilation.
#[derive(Debug)]
pub(super) struct Compiled {
    pub source: String,
    /// The places of the ops in `source`.
    pub spans: Spans,
    /// The byte offset of the outermost operation in `source`. An error whose exact position is not
    /// known is reported at this offset.
    pub root_at: usize,
    pub op: Op,
    pub ty: Ty,
    /// Number of steps that an evaluation takes from its budget at its beginning. Some ops take
    /// further steps. For example, `exists` takes steps for each iteration.
    pub weight: u64,
    /// Nesting depth, including the depth of the variables that the expression uses.
    pub depth: usize,
    pub reads_now: bool,
    pub reads_item: bool,
    pub projection: Projection,
    /// The parts of `item` that the expression can read. `item` is one element of a list that
    /// another expression returned.
    pub item: NeededPart,
}

/// Compiles `source` on a new thread. If the type of the expression does not fit `kind`, the result
/// is an error. Each error gets a hint, if a hint is known. The list of errors is never empty.
pub(super) fn compile(
    source: &str,
    kind: ResultKind,
    environment: &Environment,
    schema: Option<&dyn ObjectSchema>,
) -> Result<Compiled, Vec<CompileError>> {
    let compiled = with_stack(|| Ok(compile_on_this_thread(source, kind, environment, schema)));
    compiled
        .unwrap_or_else(|error| Err(vec![error]))
        .map_err(|mut errors| {
            for error in &mut errors {
                error.hint = hint(source, &error.message, error.line, error.column);
            }
            errors
        })
}

/// Runs `work` on a new thread that has a stack of [`STACK_BYTES`] bytes.
pub(super) fn with_stack<T: Send>(
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

/// Compiles on the calling thread, which must have a stack of [`STACK_BYTES`] bytes.
pub(super) fn compile_on_this_thread(
    source: &str,
    kind: ResultKind,
    environment: &Environment,
    schema: Option<&dyn ObjectSchema>,
) -> Result<Compiled, Vec<CompileError>> {
    let (root, info) = parse(source).map_err(|error| vec![error])?;
    let mut lowered = lower(&root, &info, environment, schema);
    if !kind.takes(&lowered.ty) {
        let found = match lowered.ty {
            // The schema says that the value is an object or a map.
            Ty::Schema(_) => "map".to_owned(),
            ref ty => ty.to_string(),
        };
        let message = format!("expected type '{kind}' but found '{found}'");
        lowered.mistyped.push(NodeError {
            node: root.id,
            message,
        });
    }
    // The compiler reports only the errors of the first of these lists that is not empty.
    let errors = [
        lowered.misused,
        lowered.mistyped,
        lowered.invalid,
        lowered.unacceptable,
    ];
    if let Some(errors) = errors.into_iter().find(|errors| !errors.is_empty()) {
        let errors = errors.into_iter().map(|error| located(error, &info));
        let mut errors: Vec<_> = errors.collect();
        errors.sort_by_key(|error| (error.line, error.column));
        errors.dedup();
        errors.truncate(MAX_ERRORS);
        return Err(errors);
    }
    if lowered.depth > MAX_DEPTH {
        return Err(vec![too_deep()]);
    }
    let (projection, item) = environment.projection(&lowered.op, NeededPart::whole());
    Ok(Compiled {
        source: source.to_owned(),
        spans: lowered.spans,
        root_at: offset_of(root.id, &info),
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

/// Parses `source`. Returns an error if `source` has a syntax error, or exceeds [`MAX_SOURCE`] or
/// [`MAX_DEPTH`].
pub(super) fn parse(source: &str) -> Result<(IdedExpr, SourceInfo), CompileError> {
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

fn too_deep() -> CompileError {
    error(format!("expression recursion limit exceeded: {MAX_DEPTH}"))
}

/// Adds the line and column of the node to its error.
pub(super) fn located(error: NodeError, info: &SourceInfo) -> CompileError {
    let (line, column) = line_and_column(&info.source, offset_of(error.node, info));
    CompileError {
        message: error.message,
        line,
        column,
        hint: None,
    }
}

/// Returns the byte offset at which an error in the node is reported.
fn offset_of(node: u64, info: &SourceInfo) -> usize {
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
