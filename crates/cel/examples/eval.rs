//! Evaluates an expression on a JSON object, and prints the value, its type and the cost.
//!
//! ```console
//! $ kubectl get deployment web -o json > web.json
//! $ cargo run --example eval -- 'object.status.readyReplicas == object.spec.replicas' web.json
//! bool: true
//! 1 of 100000 steps
//! ```
//!
//! Without a file, the object is a small Deployment.

use std::error::Error;
use std::{env, fs};

use ifo_cel::{Budget, Doc, Environment, EvaluationScope, ResultKind, STEPS_PER_OBJECT, compile};
use jiff::Timestamp;

const EXPRESSION: &str =
    "'%d of %d replicas are ready'.format([object.status.readyReplicas, object.spec.replicas])";

const DEPLOYMENT: &str = r#"{
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"replicas": 3},
    "status": {"readyReplicas": 2}
}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let expression = args.next().unwrap_or_else(|| EXPRESSION.to_owned());
    let json = match args.next() {
        Some(file) => fs::read_to_string(file)?,
        None => DEPLOYMENT.to_owned(),
    };

    println!("{}", evaluate(&expression, &json)?);
    Ok(())
}

/// Returns the type and value of the expression and the number of steps, or the error.
fn evaluate(expression: &str, json: &str) -> Result<String, Box<dyn Error>> {
    let program = compile(expression, ResultKind::Any, &Environment::default())?;
    let doc = Doc::parse(json.as_bytes(), program.projection())?;
    let mut budget = Budget {
        left: STEPS_PER_OBJECT,
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "the library must not read the clock, but this example may"
    )]
    let now = Timestamp::now();
    let answer = program.value(&mut EvaluationScope::new(&doc, now, &mut budget));
    // A failed evaluation also takes steps.
    let spent = STEPS_PER_OBJECT - budget.left;
    match answer {
        Ok(answer) => Ok(format!(
            "{}: {}\n{spent} of {STEPS_PER_OBJECT} steps",
            answer.type_name, answer.value
        )),
        Err(failure) => Err(format!("{failure} ({spent} of {STEPS_PER_OBJECT} steps)").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_errors_are_printed() {
        let text = |expression| match evaluate(expression, DEPLOYMENT) {
            Ok(text) => text,
            Err(error) => error.to_string(),
        };
        assert_eq!(
            text(EXPRESSION),
            "string: \"2 of 3 replicas are ready\"\n4 of 100000 steps"
        );
        assert_eq!(
            text("object.status.phase == 'Ready'"),
            "no such key: phase (1 of 100000 steps)"
        );
        assert_eq!(
            text("1 + 'a'"),
            "1:3: found no matching overload for '_+_' applied to '(int, string)'"
        );
    }
}
