//! The rule sets that ship, against objects as the resources' own controllers fill them:
//! every operation is found where it is under way and nowhere else, with the words, the
//! progress, the start and the outcome that the object tells; a change of any expression is
//! noticed; and no rule fails on an object with less in it.

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
fn every_object_shows_what_it_is_expected_to_show() {
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
