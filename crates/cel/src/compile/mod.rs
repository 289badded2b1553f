//! Compiles the text of an expression to a tree of ops. The crate evaluates this tree.

mod check;
pub(crate) mod environment;
pub(crate) mod hints;
mod lower;
mod needs;
pub(crate) mod op;
pub(crate) mod parse;
pub(crate) mod program;
pub(crate) mod spans;

use std::sync::Arc;

use self::environment::Environment;
use self::hints::hint;
use self::lower::{Lowering, weight};
use self::parse::{CompileError, MAX_DEPTH, located, offset_of, parse, too_deep, with_stack};
use self::program::{Compiled, Program};
use crate::document::projection::NeededPart;
use crate::result_kind::ResultKind;
use crate::types::{ObjectSchema, Ty};

/// Maximum number of reported errors of one expression. Each error needs memory, and a hint takes
/// up to a millisecond. An expression of 4,096 characters can have 2,000 errors.
const MAX_ERRORS: usize = 16;

/// Compiles and type-checks `source`. An expression has at most 4,096 characters and 250 nesting
/// levels. It can use `object`, `now` and the names in `environment`. An [`EvaluationScope`](crate::EvaluationScope) for
/// the program must have the values of the names that the program uses.
///
/// # Errors
/// Returns one error, even if `source` has several. The possible errors are an exceeded limit,
/// wrong syntax, an unknown name or function, a wrong argument, and a result that is not of `kind`.
pub fn compile(
    source: &str,
    kind: ResultKind,
    environment: &Environment,
) -> Result<Program, CompileError> {
    compile_with_all_errors(source, kind, environment, None).map_err(first)
}

/// Compiles `source` like [`compile()`], but returns all errors. If there is a schema, also checks that
/// `source` uses each field of `object` with the type that `schema` gives for this field. The types
/// of variables are known only if the variables were also compiled with `schema`. The type of `item`
/// is known only if `environment` was returned by [`Environment::with_item_of`]. The evaluation does
/// not depend on the schema.
///
/// With a schema, each error is a mistake in `source`, as long as the objects fit the schema. For
/// this reason, this function then accepts some expressions that the type checker of cel-go refuses
/// although cel-go could evaluate them. An example is the comparison of an integer with a double.
///
/// # Errors The first 16 errors, in the order of the text. If the syntax is wrong, or a macro such
/// as `has` is used wrongly, there are no errors of other kinds. In addition to the errors of
/// [`compile()`], there is an error for each field that the schema does not have. The schema can
/// list the possible values of a field. Then there is also an error for each comparison of the
/// field with another string literal. The list of errors is never empty.
pub fn compile_with_all_errors(
    source: &str,
    kind: ResultKind,
    environment: &Environment,
    schema: Option<&dyn ObjectSchema>,
) -> Result<Program, Vec<CompileError>> {
    let compiled = with_stack(|| Ok(compile_on_this_thread(source, kind, environment, schema)));
    let compiled = compiled.unwrap_or_else(|error| Err(vec![error]));
    compiled
        .map(|compiled| Program(Arc::new(compiled)))
        .map_err(|mut errors| {
            for error in &mut errors {
                error.hint = hint(source, kind, error);
            }
            errors
        })
}

/// Returns the first error in a list of [`compile_with_all_errors`], which is never empty.
pub(crate) fn first(errors: Vec<CompileError>) -> CompileError {
    let first = errors.into_iter().next();
    first.expect("a failed compilation has at least one error")
}

/// Compiles on the calling thread, which must have a stack of [`parse::STACK_BYTES`] bytes.
pub(crate) fn compile_on_this_thread(
    source: &str,
    kind: ResultKind,
    environment: &Environment,
    schema: Option<&dyn ObjectSchema>,
) -> Result<Compiled, Vec<CompileError>> {
    let (root, info) = parse(source).map_err(|error| vec![error])?;
    let mut lowering = Lowering::new(environment, schema, &info);
    let (op, ty) = lowering.expr(&root);
    if !kind.takes(&ty) {
        let found = match &ty {
            // The schema says that the value is an object or a map.
            Ty::Schema(_) => "map".to_owned(),
            ty => ty.to_string(),
        };
        let message = format!("expected type '{kind}' but found '{found}'");
        lowering.mistyped(root.id, message);
    }
    if let Some(first) = lowering.errors.iter().map(|(kind, _)| *kind).min() {
        let errors = lowering.errors.into_iter();
        let reported = errors.filter(|(kind, _)| *kind == first);
        let mut errors: Vec<_> = reported.map(|(_, it)| located(it, &info)).collect();
        errors.sort_by_key(|error| (error.line, error.column));
        errors.dedup();
        errors.truncate(MAX_ERRORS);
        return Err(errors);
    }
    if lowering.depth > MAX_DEPTH {
        return Err(vec![too_deep()]);
    }
    let (projection, item) = environment.projection(&op, NeededPart::whole());
    Ok(Compiled {
        source: source.to_owned(),
        spans: lowering.spans,
        root_at: offset_of(root.id, &info),
        op,
        ty,
        weight: weight(lowering.ops),
        depth: lowering.depth,
        reads_now: lowering.reads_now,
        reads_item: lowering.reads_item,
        projection,
        item,
    })
}
