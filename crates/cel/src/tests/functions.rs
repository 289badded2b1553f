use super::*;

/// Answers of cel-go for its string functions and Kubernetes' quantities.
#[derive(Deserialize)]
pub(super) struct Functions {
    pub object: String,
    pub cases: Vec<Answered>,
}

#[derive(Deserialize)]
pub(super) struct Answered {
    pub expr: String,
    phase: String,
    v: String,
}

pub(super) fn functions() -> Functions {
    serde_json::from_str(include_str!("../../../../tests/golden/functions.json")).unwrap()
}

impl Functions {
    /// Each case, with its expression compiled.
    pub(super) fn compiled(&self) -> Vec<(&Answered, Result<Compiled, CompileError>)> {
        let sources: Vec<_> = self.cases.iter().map(|case| &case.expr).collect();
        let compiled = all(&sources, &Environment::default());
        self.cases.iter().zip(compiled).collect()
    }
}

/// Returns the result of a case in the format of the golden file.
fn outcome(
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
    match answer(program, &doc, &mut full()) {
        Ok(value) => ("ok", value),
        Err(failure) => ("eval-err", failure.to_string()),
    }
}

/// Cuts an error before the value that cel-go quotes. Our errors quote no value.
fn without_values(text: &str) -> &str {
    if text.starts_with("index ") && text.ends_with(" out of range") {
        return "index out of range"; // cel-go says which value of a format.
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
    let golden = functions();
    assert!(golden.cases.len() > 400);
    let mut wrong = Vec::new();
    for (case, program) in golden.compiled() {
        let (phase, value) = outcome(&program, &golden.object, None);
        if phase != case.phase || without_values(&value) != without_values(&case.v) {
            wrong.push(format!(
                "{}\n  there: {} {}\n  here:  {phase} {value}",
                case.expr, case.phase, case.v
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn functions_return_the_same_on_projected_and_whole_documents() {
    let golden = functions();
    let whole = whole();
    for (case, program) in golden.compiled() {
        assert_eq!(
            outcome(&program, &golden.object, None),
            outcome(&program, &golden.object, Some(&whole)),
            "{}",
            case.expr
        );
    }
}
