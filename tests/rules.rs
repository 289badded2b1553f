//! Tests of the rule sets in the folder `rules/`. A rule set detects operations, such as a
//! migration, on the objects of one resource. A fixture is an object as its controller writes it,
//! with the operations that the rules must detect on the object. The most important checks are:
//!
//! - The rules detect exactly the expected operations on each fixture.
//! - If the mutation test changes an expression of a rule, at least one fixture fails.
//! - No evaluation of a rule fails because a field is missing or zero.

#[path = "rules/availability_table.rs"]
mod availability_table;
#[path = "rules/catalogue.rs"]
mod catalogue;
#[path = "rules/conventions.rs"]
mod conventions;
#[path = "rules/expectations.rs"]
mod expectations;
#[path = "rules/expression_mutants.rs"]
mod expression_mutants;
#[path = "rules/incomplete_objects.rs"]
mod incomplete_objects;
#[path = "rules/mutation_testing.rs"]
mod mutation_testing;
#[path = "rules/removed_fields.rs"]
mod removed_fields;
#[path = "rules/rule_reads.rs"]
mod rule_reads;
#[path = "rules/work_keys.rs"]
mod work_keys;
