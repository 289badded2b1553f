//! Tests of the string functions and the quantity functions with recorded results of cel-go and
//! Kubernetes.

use super::*;

/// The golden file with recorded results of cel-go's string functions and Kubernetes' quantities.
#[derive(Deserialize)]
pub(super) struct Functions {
    pub object: String,
    pub cases: Vec<FunctionCase>,
}

#[derive(Deserialize)]
pub(super) struct FunctionCase {
    pub expr: String,
    phase: String,
    v: String,
}

pub(super) fn load_functions() -> Functions {
    serde_json::from_str(include_str!("../../../../tests/golden/functions.json")).unwrap()
}

impl Functions {
    /// Returns each case with its compiled expression.
    pub(super) fn compiled(&self) -> Vec<(&FunctionCase, Result<Compiled, CompileError>)> {
        let sources: Vec<_> = self.cases.iter().map(|case| &case.expr).collect();
        let compiled = compile_all(&sources, &Environment::default());
        self.cases.iter().zip(compiled).collect()
    }
}

/// Evaluates a case. Returns its phase, and its value or error, in the format of the golden file.
fn phase_and_value(
    program: &Result<Compiled, CompileError>,
    json: &str,
    projection: Option<&Projection>,
) -> (&'static str, String) {
    let program = match program {
        Ok(program) => program,
        Err(error) => {
            let text = format!("ERROR: <input>:{error}");
            return (
                "compile-err",
                text.lines().next().unwrap_or_default().to_owned(),
            );
        }
    };
    let projection = projection.unwrap_or(&program.projection);
    let doc = Doc::parse(json.as_bytes(), projection).unwrap();
    match evaluate(program, &doc, &mut full_budget()) {
        Ok(value) => ("ok", value),
        Err(failure) => ("eval-err", failure.to_string()),
    }
}

/// Removes the part of an error in which cel-go quotes a value, because our errors quote no values.
fn without_values(text: &str) -> &str {
    if text.starts_with("index ") && text.ends_with(" out of range") {
        return "index out of range"; // cel-go's error contains the index.
    }
    let starts = [
        "could not parse formatting clause: error while parsing precision",
        "could not parse formatting clause: unrecognized formatting clause",
        "index out of range",
        "invalid substring range",
        "join: invalid input",
    ];
    let quotes = |start: &&str| text.starts_with(start);
    starts.into_iter().find(quotes).unwrap_or(text)
}

#[test]
fn functions_return_the_values_and_errors_of_kubernetes() {
    let golden = load_functions();
    assert!(golden.cases.len() > 400);
    let mut wrong = Vec::new();
    for (case, program) in golden.compiled() {
        let (phase, value) = phase_and_value(&program, &golden.object, None);
        if phase != case.phase || without_values(&value) != without_values(&case.v) {
            wrong.push(format!(
                "{}\n  Kubernetes: {} {}\n  here:       {phase} {value}",
                case.expr, case.phase, case.v
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} cases differ\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn functions_return_the_same_on_projected_and_whole_documents() {
    let golden = load_functions();
    let whole = whole_object();
    for (case, program) in golden.compiled() {
        assert_eq!(
            phase_and_value(&program, &golden.object, None),
            phase_and_value(&program, &golden.object, Some(&whole)),
            "{}",
            case.expr
        );
    }
}
