//! Stops an expression whose cost grows with the square of the length of a list.
//!
//! A user can write such an expression by mistake or on purpose. The expression is short and its
//! types are correct, so it compiles. On a long list, the evaluation exceeds its budget, which is
//! the maximum number of steps, and returns an error.

use std::error::Error;
use std::time::Instant;

use ifo_cel::{
    Budget, Doc, Environment, EvaluationFault, EvaluationScope, ResultKind, STEPS_PER_OBJECT,
    compile,
};
use jiff::Timestamp;

/// An expression whose nested loops visit every pair of elements. An evaluation needs about a
/// hundred steps for ten elements, and a million steps for a thousand elements.
const PAIRS: &str = "object.list.all(a, object.list.all(b, a == b || a != b))";

fn main() -> Result<(), Box<dyn Error>> {
    for length in [10, 100, 1_000, 100_000 - 1] {
        let started = Instant::now();
        let (outcome, spent) = evaluate(length)?;
        let elapsed = started.elapsed();
        match outcome {
            Ok(answer) => println!("{length}: {answer} after {spent} steps, {elapsed:?}"),
            // The result is unknown, which is not the same as `false`.
            Err(EvaluationFault::Budget) => {
                println!("{length}: stopped after {spent} steps, {elapsed:?}");
            }
            Err(failure) => return Err(failure.into()),
        }
    }
    Ok(())
}

/// Evaluates the expression on a list of `length` numbers. Returns the result and the number of
/// steps.
fn evaluate(length: u32) -> Result<(Result<bool, EvaluationFault>, u64), Box<dyn Error>> {
    let program = compile(PAIRS, ResultKind::Bool, &Environment::default())?;
    let list: Vec<_> = (0..length).collect();
    let json = serde_json::json!({ "list": list }).to_string();
    let doc = Doc::parse(json.as_bytes(), program.projection())?;
    let mut budget = Budget {
        left: STEPS_PER_OBJECT,
    };
    #[expect(clippy::disallowed_methods, reason = "an example may read the clock")]
    let now = Timestamp::now();
    let outcome = program.test(&mut EvaluationScope::new(&doc, now, &mut budget));
    Ok((outcome, STEPS_PER_OBJECT - budget.left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_exceed_the_budget_and_short_lists_do_not() {
        let outcome = |length| evaluate(length).expect("the expression is valid");
        assert_eq!(outcome(10), (Ok(true), 111));
        assert_eq!(
            outcome(1_000),
            (Err(EvaluationFault::Budget), STEPS_PER_OBJECT)
        );
        main().expect("the expression is valid");
    }
}
