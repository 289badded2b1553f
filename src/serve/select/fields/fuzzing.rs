//! What holds for every field selector.

use super::{Requirement, parse};
use crate::serve::fuzzing::refused;

/// A selector that is read is the same when written out in either spelling, whatever
/// its values hold.
pub fn check(text: &str) {
    let requirements = match parse(text) {
        Ok(requirements) => requirements,
        Err(failure) => return refused(&failure, &[400]),
    };
    for equals in ["=", "=="] {
        let written = write(&requirements, equals);
        let again = parse(&written).expect("what is written out can be read");
        assert_eq!(again, requirements, "{written:?}");
    }
    // Empty terms say nothing.
    let padded = format!(",{},,", write(&requirements, "="));
    assert_eq!(parse(&padded).expect("as before"), requirements);
}

fn write(requirements: &[Requirement], equals: &str) -> String {
    let written: Vec<String> = requirements
        .iter()
        .map(|one| {
            let operator = if one.equal { equals } else { "!=" };
            let value = one
                .value
                .replace('\\', r"\\")
                .replace(',', r"\,")
                .replace('=', r"\=");
            format!("{}{operator}{value}", one.field)
        })
        .collect();
    written.join(",")
}
