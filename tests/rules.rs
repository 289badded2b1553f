//! Tests of the shipped rule sets with objects as their own controllers write them. Every operation
//! is detected where it is in flight and nowhere else, with the expected texts, progress, start and
//! outcome. A change of any expression makes a test fail. No rule fails on an object with missing
//! fields.

#[path = "rules/catalogue.rs"]
mod catalogue;
#[path = "rules/coverage.rs"]
mod coverage;
#[path = "rules/degenerate.rs"]
mod degenerate;
#[path = "rules/fixtures.rs"]
mod fixtures;
#[path = "rules/judge.rs"]
mod judge;
#[path = "rules/mutants.rs"]
mod mutants;
#[path = "rules/mutation.rs"]
mod mutation;
#[path = "rules/names.rs"]
mod names;

use catalogue::Shipped;

#[test]
fn every_object_has_its_expected_operations() {
    let mut wrong = Vec::new();
    for shipped in Shipped::all() {
        let book = judge::book(&shipped.name, &shipped.spec).unwrap_or_else(|invalid| {
            panic!("{} does not compile: {invalid}", shipped.file);
        });
        for fixture in fixtures::of(&shipped) {
            if let Err(difference) = judge::judge(&book, &fixture, None) {
                wrong.push(format!("{}: {difference}", fixture.place));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
