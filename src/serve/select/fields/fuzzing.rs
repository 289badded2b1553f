//! What holds for every field selector.

use super::{FieldRequirement, parse};
use crate::serve::fuzzing::refused;

/// A selector that is read is the same when written out in either spelling, whatever
/// its values hold.
pub fn check(text: &str) {
    let requirements = match parse(text) {
        Ok(requirements) => requirements,
        Err(failure) => return refused(&failure, &[400]),
    };
    // The spelling may change the order, which says nothing.
    let sorted = |requirements: &[FieldRequirement]| {
        let mut terms = terms(requirements, "=");
        terms.sort();
        terms
    };
    for equals in ["=", "=="] {
        let written = terms(&requirements, equals).join(",");
        // Empty terms say nothing.
        for written in [format!(",{written},,"), written] {
            let again = parse(&written).expect("what is written out can be read");
            assert_eq!(sorted(&again), sorted(&requirements), "{written:?}");
        }
    }
}

/// The terms of a selector, in the order that they were read in.
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
