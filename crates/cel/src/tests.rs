//! Unit tests of the crate. Many of them compare results with recorded results of cel-go, which is
//! the CEL implementation of Kubernetes.

use self::answers::format_value;
use std::thread;

use serde::Deserialize;

use std::sync::Arc;

use jiff::Timestamp;

use crate::budget::{charge, steps};
use crate::compile::first;
use crate::compile::program::Compiled;
use crate::eval::Context;
use crate::value::V;
use crate::*;

mod answers;
mod compile_limits;
mod costs;
mod differences;
mod errors_contain_no_values;
mod evaluation;
mod explanations;
mod failure_places;
mod hints;
mod hostile_expressions;
mod named_fields;
mod projections;
mod same_results_as_kubernetes;
mod schemas;
mod variables;

/// Compiles `source`, whose result can have any type.
fn compile_any(source: &str) -> Result<Compiled, CompileError> {
    let program = crate::compile(source, ResultKind::Any, &Environment::default())?;
    Ok(Arc::into_inner(program.0).expect("the program is not shared"))
}

/// Compiles each of `sources`. The results can have any type. The sources are compiled on two
/// threads with a large stack. With one thread for each source, the tests would take more than
/// twice as long.
pub(crate) fn compile_all(
    sources: &[impl AsRef<str> + Sync],
    environment: &Environment,
) -> Vec<Result<Compiled, CompileError>> {
    let each = |source| {
        // The sources do not belong together, so each has its own limit for regular expressions.
        let mut environment = environment.clone();
        environment.patterns = Arc::default();
        crate::compile::compile_on_this_thread(source, ResultKind::Any, &environment, None)
            .map_err(first)
    };
    let (first, second) = sources.split_at(sources.len() / 2);
    thread::scope(|scope| {
        let threads = [first, second].map(|half| {
            let compile = move || {
                let sources = half.iter().map(AsRef::as_ref);
                sources.map(each).collect::<Vec<_>>()
            };
            let thread = thread::Builder::new().stack_size(crate::compile::parse::STACK_BYTES);
            thread.spawn_scoped(scope, compile).unwrap()
        });
        let compiled = threads.into_iter().map(|thread| {
            let half = thread.join();
            half.expect("the compiler must not panic")
        });
        compiled.flatten().collect()
    })
}

/// Compiles `source`, which can use only the names `object` and `now`.
fn compile(source: &str, kind: ResultKind) -> Result<Program, CompileError> {
    super::compile(source, kind, &Environment::default())
}

/// Evaluates an expression and returns its value in the format of the recorded answers of
/// Kubernetes (`tests/golden/kubernetes-cel/answers.jsonl`).
fn evaluate<'a>(
    compiled: &'a Compiled,
    doc: &'a Doc<'a>,
    budget: &'a mut Budget,
) -> Result<String, EvaluationFault> {
    charge(budget, compiled.weight)?;
    let mut scope = EvaluationScope::new(doc, Timestamp::UNIX_EPOCH, budget);
    Ok(format_value(
        &Context::new(&mut scope, compiled).eval(&compiled.op)?,
    ))
}

/// Asserts that the evaluation of `source` on the object `json` exhausts the budget.
#[track_caller]
fn exhausts_the_budget(json: &str, source: &str) {
    let program = compile_any(source).unwrap_or_else(|error| panic!("{source}: {error}"));
    let doc = Doc::parse(json.as_bytes(), &program.projection).unwrap();
    let mut budget = full_budget();
    let outcome = evaluate(&program, &doc, &mut budget);
    assert_eq!(outcome, Err(EvaluationFault::Budget), "{source}");
    assert_eq!(budget.left, 0, "{source}");
}

/// Returns the projection of the whole object. A document with this projection has all fields.
pub(crate) fn whole_object() -> Projection {
    let mut projection = Projection::default();
    projection.add(&[]);
    projection
}

fn full_budget() -> Budget {
    Budget {
        left: STEPS_PER_OBJECT,
    }
}
