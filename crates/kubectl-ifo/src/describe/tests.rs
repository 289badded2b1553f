//! Tests of the text that `kubectl ifo describe` prints.

use super::{DescribedFacts, text};
use crate::operations::operation::{InFlightOperation, OperationFacts};
use crate::output::colors::Paint;
use crate::test_fixtures::{OperationFixture as _, now, on};
use serde_json::json;

#[test]
fn operations_of_the_same_subject_work_and_owners_are_related() {
    let operation = on("shop", "VirtualMachine", "web", "Migrating")
        .owned_by("Pool", "p")
        .work("w");
    let owned =
        on("shop", "VirtualMachineInstance", "web", "Booting").owned_by("VirtualMachine", "web");
    let owner = on("shop", "Pool", "p", "Growing").state("Succeeded", None);
    let mut resizing = operation.clone();
    resizing.metadata.name = "web-resizing".into();
    let all = [
        owner,
        owned,
        on("shop", "Migration", "m", "Running").work("w"),
        on("shop", "VirtualMachine", "other", "Migrating"),
        operation.clone(),
        resizing,
    ];
    let related = text::related(&operation, &all);
    let related: Vec<String> = related.iter().map(OperationFacts::subject_name).collect();
    let expected = [
        "Migration/m",
        "VirtualMachine/web",
        "VirtualMachineInstance/web",
        "Pool/p",
    ];
    assert_eq!(related, expected);
}

#[test]
fn missing_information_is_stated_and_long_tables_are_cut() {
    let operation = on("a", "VM", "web", "Migrating");
    let relative = |number: usize| on("a", "VM", "web", &format!("Resizing{number}"));
    let all: Vec<InFlightOperation> = (0..300).map(relative).collect();
    let facts = DescribedFacts {
        rule: super::not_shown("you may not get operationrulesets").into(),
        events: Err("you may not list events".to_owned()),
    };
    let text = text::describe(&operation, &facts, &all, now(), Paint::default()).to_string();
    for part in [
        "<not shown: you may not get operationrulesets>",
        "<not shown: you may not list events>",
        "… and 250 more",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_rule_has_the_variables_that_it_uses_directly_or_through_others() {
    let expression = "!\nvariables.renamed.x && object.variables.a == variables.names";
    let rule_set = json!({"spec": {
        "rules": [{"operation": "Migrating", "expression": expression}],
        "variables": [
            {"name": "inner", "expression": "1"},
            {"name": "name", "expression": "2"},
            {"name": "a", "expression": "3"},
            {"name": "names", "expression": "4"},
            {"name": "renamed", "expression": "variables.inner\n+ 5"},
        ],
    }});
    let rule = super::rule_for(&rule_set, "Migrating").expect("the rule set has the rule");
    let used = json!({"inner": "1", "names": "4", "renamed": "variables.inner\n+ 5"});
    assert_eq!(rule["variables"], used);
}
