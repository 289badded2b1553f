//! Tests with recorded results of cel-go, and with hostile expressions.

use std::thread;

use serde::Deserialize;

use super::compile::Compiled;
use super::time::Instant;
use super::*;

mod errors_contain_no_values;
mod evaluation;
mod explanations;
mod failure_places;
mod hostile_expressions;
mod kubernetes;
mod schemas;
mod variables;

/// Compiles `source`, whose result can have any type.
fn compile_any(source: &str) -> Result<Compiled, CompileError> {
    compile::compile(source, ResultKind::Any, &Environment::default(), None)
}

/// Compiles each of `sources`. The results can have any type. All sources are compiled on one
/// thread with a large stack. With one thread for each source, the tests would take more than twice
/// as long.
fn compile_all(
    sources: &[impl AsRef<str> + Sync],
    environment: &Environment,
) -> Vec<Result<Compiled, CompileError>> {
    let each = |source| compile::compile_on_this_thread(source, ResultKind::Any, environment, None);
    thread::scope(|scope| {
        thread::Builder::new()
            .stack_size(compile::STACK_BYTES)
            .spawn_scoped(scope, || {
                let sources = sources.iter().map(AsRef::as_ref);
                sources.map(each).collect()
            })
            .unwrap()
            .join()
            .expect("the compiler must not panic")
    })
}

/// Compiles `source`, which can use only the names `object` and `now`.
fn compile(source: &str, kind: ResultKind) -> Result<Program, CompileError> {
    super::compile(source, kind, &Environment::default())
}

/// Evaluates an expression and returns its value in the format of the golden file.
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
            let failure = trace::locate(compiled, text, taken, &mut scope);
            Err(EvaluationFault::Error(Box::new(failure)))
        }
        outcome => Ok(format_value(&outcome?)),
    }
}

/// Formats a value as in the golden file.
fn format_value(value: &V<'_>) -> String {
    match value {
        V::Null => "null".to_owned(),
        V::Bool(value) => format!("bool:{value}"),
        V::Int(value) => format!("int:{value}"),
        V::Uint(value) => format!("uint:{value}"),
        V::Double(value) if value.is_nan() => "double:NaN".to_owned(),
        V::Double(value) => format!("double:{:016x}", value.to_bits()),
        V::Str(text) => format!("string:{}", go_json(text)),
        V::Bytes(bytes) => {
            let hex: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("bytes:{}", hex.concat())
        }
        V::Duration(nanoseconds) => format!("duration:{nanoseconds}"),
        V::Time(time) => {
            let nanoseconds = time.since(Instant::at(time.second()).unwrap()).unwrap();
            format!("timestamp:{}.{nanoseconds:09}", time.second())
        }
        V::Type(name) => format!("type:{name}"),
        V::Quantity(quantity) => format!("quantity:{quantity}"),
        V::Url(url) => format!("url:{}", go_json(&url.to_string())),
        V::Ip(ip) => format!("ip:{ip}"),
        V::Cidr(cidr) => format!("cidr:{cidr}"),
        V::Semver(version) => format!("semver:{version}"),
        V::NamedFormat(format) => format!("format:{}", format.name()),
        V::Optional(None) => "optional.none".to_owned(),
        V::Optional(Some(value)) => format!("optional.of({})", format_value(value)),
        _ if value.is_list() => {
            let items: Vec<_> = (0..value.len())
                .map(|index| format_value(&value.item(index).unwrap()))
                .collect();
            format!("[{}]", items.join(","))
        }
        _ => {
            let mut entries: Vec<_> = (0..value.len())
                .map(|index| {
                    let (key, member) = value.entry(index).unwrap();
                    format!("{}={}", format_value(&key), format_value(&member))
                })
                .collect();
            entries.sort();
            format!("{{{}}}", entries.join(","))
        }
    }
}

/// Encodes a JSON string like Go, which escapes the HTML characters `&`, `<` and `>`, and two line
/// separators.
fn go_json(text: &str) -> String {
    serde_json::to_string(text)
        .unwrap()
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Returns the projection of the whole object.
fn whole_object() -> Projection {
    let mut projection = Projection::default();
    projection.add(&[]);
    projection
}

fn full_budget() -> Budget {
    Budget {
        left: STEPS_PER_OBJECT,
    }
}
