//! Tests of the rule sets in the folder `rules/`. A rule set detects operations, such as a
//! migration, on the objects of one resource. A fixture is an object as its controller writes it,
//! with the operations that the rules must detect on the object. The most important checks are:
//!
//! - The rules detect exactly the expected operations on each fixture.
//! - If the mutation test changes an expression of a rule, at least one fixture fails.
//! - No evaluation of a rule fails because a field is missing or zero.

#[path = "rules/availability_table.rs"]
mod availability_table;
#[path = "rules/compare_with_expected_operations.rs"]
mod compare_with_expected_operations;
#[path = "rules/coverage.rs"]
mod coverage;
#[path = "rules/deletions_succeed.rs"]
mod deletions_succeed;
#[path = "rules/exceptions.rs"]
mod exceptions;
#[path = "rules/expression_mutants.rs"]
mod expression_mutants;
#[path = "rules/incomplete_objects.rs"]
mod incomplete_objects;
#[path = "rules/mutation_testing.rs"]
mod mutation_testing;
#[path = "rules/read_fixtures.rs"]
mod read_fixtures;
#[path = "rules/read_shipped_rule_sets.rs"]
mod read_shipped_rule_sets;
#[path = "rules/removed_fields.rs"]
mod removed_fields;
#[path = "rules/rule_reads.rs"]
mod rule_reads;
#[path = "rules/shipped_operation_names.rs"]
mod shipped_operation_names;
#[path = "rules/time_limits_name_their_source.rs"]
mod time_limits_name_their_source;
#[path = "rules/troubled_objects.rs"]
mod troubled_objects;
#[path = "rules/work_keys.rs"]
mod work_keys;

use read_shipped_rule_sets::Shipped;

#[test]
fn every_object_has_its_expected_operations() {
    let mut wrong = Vec::new();
    for shipped in Shipped::all() {
        let book = compare_with_expected_operations::book(&shipped.name, &shipped.spec)
            .unwrap_or_else(|invalid| {
                panic!("{} does not compile: {invalid}", shipped.file);
            });
        for fixture in read_fixtures::of_rule_set(&shipped) {
            if let Err(difference) = compare_with_expected_operations::judge(&book, &fixture, None)
            {
                wrong.push(format!("{}: {difference}", fixture.place));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
