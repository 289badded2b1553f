//! Tests of the shipped rule sets. The fixtures are objects as their controllers write them, with
//! the operations that the rules must detect on them. The tests also check that a change of any
//! rule expression makes a fixture fail, and that no rule fails on an object with missing fields.

#[path = "rules/catalogue.rs"]
mod catalogue;
#[path = "rules/compare_operations.rs"]
mod compare_operations;
#[path = "rules/coverage.rs"]
mod coverage;
#[path = "rules/fixtures.rs"]
mod fixtures;
#[path = "rules/incomplete_objects.rs"]
mod incomplete_objects;
#[path = "rules/mutants.rs"]
mod mutants;
#[path = "rules/mutation.rs"]
mod mutation;
#[path = "rules/stable_operation_names.rs"]
mod stable_operation_names;

use catalogue::Shipped;

#[test]
fn every_object_has_its_expected_operations() {
    let mut wrong = Vec::new();
    for shipped in Shipped::all() {
        let book =
            compare_operations::book(&shipped.name, &shipped.spec).unwrap_or_else(|invalid| {
                panic!("{} does not compile: {invalid}", shipped.file);
            });
        for fixture in fixtures::of_rule_set(&shipped) {
            if let Err(difference) = compare_operations::judge(&book, &fixture, None) {
                wrong.push(format!("{}: {difference}", fixture.place));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
