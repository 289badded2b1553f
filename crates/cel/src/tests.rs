//! Unit tests of the crate. Many of them compare results with recorded results of cel-go, which is
//! the CEL implementation of Kubernetes.

use std::thread;

use serde::Deserialize;

use super::compile::Compiled;
use super::fuzzing::kubernetes_comparison::format_value;
use super::*;

mod compile_limits;
mod costs;
mod errors_contain_no_values;
mod evaluation;
mod explanations;
mod failure_places;
mod hostile_expressions;
mod projections;
mod same_results_as_kubernetes;
mod schemas;
mod variables;

/// Compiles `source`, whose result can have any type.
fn compile_any(source: &str) -> Result<Compiled, CompileError> {
    compile::compile(source, ResultKind::Any, &Environment::default(), None).map_err(first)
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
        compile::compile_on_this_thread(source, ResultKind::Any, &environment, None).map_err(first)
    };
    let (first, second) = sources.split_at(sources.len() / 2);
    thread::scope(|scope| {
        let threads = [first, second].map(|half| {
            let compile = move || {
                let sources = half.iter().map(AsRef::as_ref);
                sources.map(each).collect::<Vec<_>>()
            };
            let thread = thread::Builder::new().stack_size(compile::STACK_BYTES);
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
    let steps = budget.left;
    charge(budget, compiled.weight)?;
    let mut scope = EvaluationScope::new(doc, Timestamp::UNIX_EPOCH, budget);
    match Context::new(&mut scope, ()).eval(&compiled.op) {
        Err(Fault::Error(text)) => {
            let taken = steps - scope.budget.left;
            let failure = observe_evaluation::locate(compiled, text, taken, &mut scope);
            Err(EvaluationFault::Error(Box::new(failure)))
        }
        outcome => Ok(format_value(&outcome?)),
    }
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
