//! Tests of the crate with recorded answers of cel-go, and with hostile input.

use std::thread;

use serde::Deserialize;

use super::compile::Compiled;
use super::time::Instant;
use super::*;

mod abuse;
mod functions;
mod golden;
mod names;
mod quoting;
mod scope;

/// Compiles `source` with any result type.
fn any(source: &str) -> Result<Compiled, CompileError> {
    compile::compile(source, ResultKind::Any, &Environment::default())
}

/// Compiles each of `sources` with any result type, on one thread with the compiler's stack. A new
/// thread for each would take more than twice as long.
fn all(
    sources: &[impl AsRef<str> + Sync],
    environment: &Environment,
) -> Vec<Result<Compiled, CompileError>> {
    let each = |source| compile::compile_on_this_thread(source, ResultKind::Any, environment);
    thread::scope(|scope| {
        thread::Builder::new()
            .stack_size(compile::STACK_BYTES)
            .spawn_scoped(scope, || {
                let sources = sources.iter().map(AsRef::as_ref);
                sources.map(each).collect()
            })
            .unwrap()
            .join()
            .expect("the compiler does not panic")
    })
}

/// Compiles `source` with only `object` and `now`.
fn compile(source: &str, kind: ResultKind) -> Result<Program, CompileError> {
    super::compile(source, kind, &Environment::default())
}

/// Evaluates, and formats the value as in the golden file.
fn answer<'a>(
    compiled: &'a Compiled,
    doc: &'a Doc<'a>,
    budget: &'a mut Budget,
) -> Result<String, EvaluationFault> {
    charge(budget, compiled.weight)?;
    let mut scope = EvaluationScope::new(doc, Timestamp::UNIX_EPOCH, budget);
    let value = Context::new(&mut scope).eval(&compiled.op)?;
    Ok(print(&value))
}

fn print(value: &V<'_>) -> String {
    match value {
        V::Null => "null".to_owned(),
        V::Bool(value) => format!("bool:{value}"),
        V::Int(value) => format!("int:{value}"),
        V::Uint(value) => format!("uint:{value}"),
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
        _ if value.is_list() => {
            let items: Vec<_> = (0..value.len())
                .map(|index| print(&value.item(index).unwrap()))
                .collect();
            format!("[{}]", items.join(","))
        }
        _ => {
            let mut entries: Vec<_> = (0..value.len())
                .map(|index| {
                    let key = value.item(index).unwrap();
                    let member = value.find(&key).unwrap();
                    format!("{}={}", print(&key), print(&member))
                })
                .collect();
            entries.sort();
            format!("{{{}}}", entries.join(","))
        }
    }
}

/// A JSON string in Go's format, which escapes HTML characters.
fn go_json(text: &str) -> String {
    serde_json::to_string(text)
        .unwrap()
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
}

/// The golden file has no string functions in its plain environment. They are available here, and
/// other cases compare them.
const DECLARED_HERE: &str = "['a'].join(',')";

#[derive(Deserialize)]
struct Golden {
    objects: Vec<String>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    expr: String,
    object: usize,
    phase: String,
    v: String,
}

impl Golden {
    fn load() -> Self {
        let mut golden: Self =
            serde_json::from_str(include_str!("../../../tests/golden/cel-golden.json")).unwrap();
        golden.cases.retain(|case| case.expr != DECLARED_HERE);
        golden
    }

    /// Each case, with its expression compiled.
    fn compiled(&self) -> Vec<(&Case, Result<Compiled, CompileError>)> {
        let sources: Vec<_> = self.cases.iter().map(|case| &case.expr).collect();
        let compiled = all(&sources, &Environment::default());
        self.cases.iter().zip(compiled).collect()
    }

    /// The JSON of a case's object; an unset one is null.
    fn json(&self, case: &Case) -> &[u8] {
        match self.objects[case.object].as_bytes() {
            b"" => b"null",
            json => json,
        }
    }
}

fn whole() -> Projection {
    let mut projection = Projection::default();
    projection.add(&[]);
    projection
}

fn full() -> Budget {
    Budget {
        left: STEPS_PER_OBJECT,
    }
}
