//! The answers of Kubernetes, and the text of our own answers in the same format.

use serde::Deserialize;

use crate::compile::environment::Environment;
use crate::compile::parse::CompileError;
use crate::result_kind::ResultKind;
use crate::value::V;
use crate::value::failure::EvaluationFault;
use crate::value::quantity::Quantity;
use crate::value::time::CelTimestamp;

/// An expression with Kubernetes' answer.
#[derive(Deserialize)]
pub struct Answer {
    /// The topic, such as `optionals`.
    pub topic: String,
    /// The expression.
    #[serde(default)]
    pub expr: String,
    /// The index, in the list of test objects, of the object on which the expression is evaluated.
    /// If the index is None, the variable `object` is null in the expression.
    pub object: Option<usize>,
    /// The variables that the expression can read, in the order of their declaration.
    #[serde(default)]
    pub variables: Vec<PolicyVariable>,
    /// The kind of the answer:
    ///
    /// - `ok`: The evaluation yields a value.
    /// - `compile-err`: The expression does not compile.
    /// - `eval-err`: The evaluation fails.
    pub phase: String,
    /// The value as text, such as `int:1`, or the text of the error. For a compile error, this is
    /// only the first line of the text.
    pub v: String,
}

/// A variable of a `ValidatingAdmissionPolicy`. Expressions read it as `variables.NAME`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyVariable {
    /// The name without `variables.`.
    pub name: String,
    /// The expression that computes the value of the variable.
    pub expression: String,
}

/// Returns the class of Kubernetes' answer: the value, `missing: KEY` for a missing key or index, or
/// the phase of another error. If our answer has another class, the answers differ.
pub(crate) fn class(answer: &Answer) -> String {
    let v = &answer.v;
    match &*answer.phase {
        "ok" => with_plain_quantities(v),
        other => {
            let texts = ["no such key", "index out of bounds"];
            let key = texts.iter().find_map(|text| v.strip_prefix(text));
            key.map_or_else(|| other.to_owned(), |key| format!("missing{key}"))
        }
    }
}

/// Returns the class of the result of our evaluation: the value, `missing: KEY`, `missing` if the key
/// is computed, or `eval-err`. If the expression does not compile, the caller uses the class
/// `compile-err` instead.
pub(crate) fn class_here(outcome: Result<String, EvaluationFault>) -> String {
    match outcome {
        Ok(value) => value,
        Err(EvaluationFault::Missing(None)) => "missing".to_owned(),
        Err(EvaluationFault::Missing(Some(key))) => format!("missing: {key}"),
        Err(_) => "eval-err".to_owned(),
    }
}

/// Replaces quantities such as `1536Mi` by numbers, because our quantities do not keep their unit.
fn with_plain_quantities(value: &str) -> String {
    let mut parts = value.split("quantity:");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find([',', ')', ']', '}', '=']).unwrap_or(part.len());
        let (quantity, rest) = part.split_at(end);
        let quantity =
            Quantity::parse(quantity).unwrap_or_else(|_| panic!("a quantity in {value}"));
        plain.extend(["quantity:", &quantity.to_string(), rest]);
    }
    plain
}

/// Formats a value as in the file of the recorded answers,
/// `tests/golden/kubernetes-cel/answers.jsonl`.
pub(crate) fn format_value(value: &V<'_>) -> String {
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
            let second = CelTimestamp::at(time.second()).expect("the second is a point in time");
            let nanoseconds = time.since(second).unwrap_or_default();
            format!("timestamp:{}.{nanoseconds:09}", time.second())
        }
        V::Type(name) => format!("type:{name}"),
        V::Quantity(quantity) => format!("quantity:{quantity}"),
        V::Url(url) => format!("url:{}", go_json(&url.to_string())),
        V::Ip(ip) => format!("ip:{ip}"),
        V::Cidr(cidr) => format!("cidr:{cidr}"),
        V::Semver(version) => format!("semver:{version}"),
        V::NamedFormat(format) => format!("format:{}", format.name),
        V::Optional(None) => "optional.none".to_owned(),
        V::Optional(Some(value)) => format!("optional.of({})", format_value(value)),
        _ if value.is_list() => {
            let items: Vec<_> = (0..value.len())
                .filter_map(|index| value.item(index))
                .map(|item| format_value(&item))
                .collect();
            format!("[{}]", items.join(","))
        }
        _ => {
            let mut entries: Vec<_> = (0..value.len())
                .filter_map(|index| value.entry(index))
                .map(|(key, member)| format!("{}={}", format_value(&key), format_value(&member)))
                .collect();
            entries.sort();
            format!("{{{}}}", entries.join(","))
        }
    }
}

/// Encodes a JSON string like Go, which also escapes `&`, `<`, `>`, U+2028 and U+2029.
fn go_json(text: &str) -> String {
    serde_json::to_string(text)
        .expect("a text can be written as JSON")
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Returns true if a compile error has the text and the position of Kubernetes' error.
pub(crate) fn has_same_text(answer: &Answer, error: &CompileError) -> bool {
    // Kubernetes' answer has only the first line of the error. The text of some of our errors is
    // longer: a colon and a reason follow.
    let text = format!("ERROR: <input>:{error}");
    let line = text.lines().next().unwrap_or_default();
    line == answer.v || line.starts_with(&format!("{}: ", answer.v))
}

/// Returns an environment with `variables`. A variable that does not compile is left out. An
/// expression that reads this variable does not compile either.
pub(crate) fn declare(variables: &[PolicyVariable]) -> Environment {
    let mut environment = Environment::default();
    for PolicyVariable { name, expression } in variables {
        if let Ok(program) = crate::compile::compile(expression, ResultKind::Any, &environment) {
            // A reserved word such as `namespace` cannot be declared.
            let _ = environment.declare(name, program);
        }
    }
    environment
}
