//! Unit tests of the crate. Functions and operators of Kubernetes have no tests of their own: their
//! results are compared with recorded answers of Kubernetes (`same_results_as_kubernetes`).

use self::answers::format_value;
use std::sync::Arc;
use std::thread;

use jiff::Timestamp;
use serde::Deserialize;

use crate::budget::{charge, steps};
use crate::compile::first;
use crate::compile::program::Compiled;
use crate::eval::Context;
use crate::value::V;
use crate::*;

mod analysis;
mod answers;
mod compile_limits;
mod costs;
mod differences;
mod documents;
mod errors_contain_no_values;
mod explanations;
mod failures;
mod hints;
mod hostile_expressions;
mod projections;
mod result_kinds;
mod same_results_as_kubernetes;
mod schemas;
mod variables;

/// Returns the rows of a table. A row is an expression and its expected result, with ` => ` between
/// them. In a row, `\n` stands for a line break.
fn rows(table: &str) -> impl Iterator<Item = (String, &str)> {
    let lines = table.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| {
        let (source, expected) = line.split_once(" => ").expect("a row has an arrow");
        (source.trim().replace("\\n", "\n"), expected.trim())
    })
}

/// Returns an environment with these variables. Each variable is a pair of a name and an
/// expression.
fn environment(variables: &[(&str, &str)]) -> Environment {
    let mut environment = Environment::default();
    for (name, source) in variables {
        let program = crate::compile(source, ResultKind::Any, &environment).expect(source);
        environment.declare(name, program).expect(name);
    }
    environment
}

/// Calls `work` with the program of `source`, and with a scope for an evaluation on the object `json`.
/// Of the object, only the fields of the program's projection are decoded.
fn evaluate_in<T>(
    json: &str,
    source: &str,
    kind: ResultKind,
    environment: &Environment,
    work: impl for<'a> FnOnce(&'a Program, &mut EvaluationScope<'a>) -> T,
) -> T {
    let program = crate::compile(source, kind, environment).expect(source);
    let doc = Doc::parse(json.as_bytes(), program.projection()).unwrap();
    let mut budget = full_budget();
    let mut scope = EvaluationScope::new(&doc, now(), &mut budget);
    scope.set_variables(environment);
    work(&program, &mut scope)
}

/// Evaluates an expression on the object `json`. Returns the value as JSON, or the text of the failure.
fn evaluate_to_text(json: &str, source: &str, environment: &Environment) -> String {
    let value = Program::value;
    let outcome = evaluate_in(json, source, ResultKind::Any, environment, value);
    outcome.map_or_else(|failure| failure.to_string(), |it| it.value.to_string())
}

fn now() -> Timestamp {
    "2026-11-21T08:00:00Z".parse().unwrap()
}

/// Compiles `source`, whose result can have any type.
fn compile_any(source: &str) -> Result<Compiled, CompileError> {
    let program = compile(source, ResultKind::Any)?;
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
    crate::compile(source, kind, &Environment::default())
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

/// Asserts that the evaluation of each row of `sources` on the object `json` exhausts the budget.
#[track_caller]
fn exhaust_the_budget(json: &str, sources: &str) {
    for source in sources.lines().map(str::trim).filter(|it| !it.is_empty()) {
        let program = compile_any(source).unwrap_or_else(|error| panic!("{source}: {error}"));
        let doc = Doc::parse(json.as_bytes(), &program.projection).unwrap();
        let mut budget = full_budget();
        let outcome = evaluate(&program, &doc, &mut budget);
        assert_eq!(outcome, Err(EvaluationFault::Budget), "{source}");
        assert_eq!(budget.left, 0, "{source}");
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
