//! Checks for every field selector.

use super::{FieldRequirement, parse};
use crate::serve::fuzzing::refused;

/// Checks that a parsed selector is the same when it is formatted in either spelling, with any
/// values.
pub fn check(text: &str) {
    let requirements = match parse(text) {
        Ok(requirements) => requirements,
        Err(failure) => return refused(&failure, &[400]),
    };
    // The order of terms can change, which has no meaning.
    let sorted = |requirements: &[FieldRequirement]| {
        let mut terms = terms(requirements, "=");
        terms.sort();
        terms
    };
    for equals in ["=", "=="] {
        let written = terms(&requirements, equals).join(",");
        // Empty terms have no meaning.
        for written in [format!(",{written},,"), written] {
            let again = parse(&written).expect("what is written out can be read");
            assert_eq!(sorted(&again), sorted(&requirements), "{written:?}");
        }
    }
}

/// The terms of a selector, in the order of the text.
pub fn terms(requirements: &[FieldRequirement], equals: &str) -> Vec<String> {
    let written = requirements.iter().map(|one| {
        let operator = if one.equal { equals } else { "!=" };
        let value = one
            .value
            .replace('\\', r"\\")
            .replace(',', r"\,")
            .replace('=', r"\=");
        format!("{}{operator}{value}", one.field)
    });
    written.collect()
}
