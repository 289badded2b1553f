//! Checks of the parser of field selectors for the fuzz targets.

use super::{FieldRequirement, parse};
use crate::serve::fuzzing::check_error;

/// Parses a field selector, formats the requirements with `=` and with `==`, and parses each
/// formatted text. Each formatted text must have the same requirements as `text`. If `text` is not
/// valid, the error must have the status code 400.
pub fn check(text: &str) {
    let requirements = match parse(text) {
        Ok(requirements) => requirements,
        Err(failure) => return check_error(&failure, &[400]),
    };
    // The order of the requirements has no meaning. The two texts can have different orders.
    let sorted = |requirements: &[FieldRequirement]| {
        let mut terms = terms(requirements, "=");
        terms.sort();
        terms
    };
    for equals in ["=", "=="] {
        let written = terms(&requirements, equals).join(",");
        // Additional commas have no meaning.
        for written in [format!(",{written},,"), written] {
            let again = parse(&written).expect("a formatted selector must be valid");
            assert_eq!(sorted(&again), sorted(&requirements), "{written:?}");
        }
    }
}

/// Formats each requirement. `equals` is `=` or `==`.
pub fn terms(requirements: &[FieldRequirement], equals: &str) -> Vec<String> {
    let written = requirements.iter().map(|requirement| {
        let operator = if requirement.equal { equals } else { "!=" };
        let value = requirement
            .value
            .replace('\\', r"\\")
            .replace(',', r"\,")
            .replace('=', r"\=");
        format!("{}{operator}{value}", requirement.field)
    });
    written.collect()
}
