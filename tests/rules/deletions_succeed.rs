//! Checks that the deletion of an object is the success of each shipped operation that deletes the
//! object.

use crate::read_shipped_rule_sets::Shipped;

/// Operations with such a name that do not delete their subject, each with the reason.
const EXCEPTIONS: [(&str, &str); 1] = [(
    "velero/deletebackuprequests.yaml",
    "the subject is a request, and the operation deletes a backup. The rule has an outcome",
)];

#[test]
fn every_operation_that_deletes_its_subject_says_so() {
    let mut count = 0;
    for shipped in Shipped::all() {
        let excepted = EXCEPTIONS.iter().any(|(file, _)| *file == shipped.file);
        for rule in &shipped.spec.rules {
            if matches!(rule.operation.as_str(), "Deleting" | "Terminating") && !excepted {
                count += 1;
                assert!(
                    rule.deletes_subject,
                    "{}: {} needs deletesSubject: true",
                    shipped.file, rule.operation
                );
            }
        }
    }
    assert!(count > 20, "only {count} rules were checked");
}
