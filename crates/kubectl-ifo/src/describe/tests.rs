//! Tests of the text that `kubectl ifo describe` prints.

use super::{DescribedFacts, text};
use crate::colors::Paint;
use crate::operation::{InFlightOperation, OperationFacts as _};
use crate::test_fixtures::{OperationFixture as _, now, on};

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
    let related: Vec<(&str, String)> = related
        .iter()
        .map(|it| (it.0, it.1.subject_name()))
        .collect();
    let expected = [
        ("Owned", "VirtualMachineInstance/web"),
        ("Same work", "Migration/m"),
        ("Same subject", "VirtualMachine/web"),
        ("Owner", "Pool/p"),
    ];
    assert_eq!(related, expected.map(|(how, name)| (how, name.to_owned())));
}

#[test]
fn missing_information_is_stated_and_long_tables_are_cut() {
    let operation = on("a", "VM", "web", "Migrating");
    let relative = |number: usize| on("a", "VM", "web", &format!("Resizing{number}"));
    let all: Vec<InFlightOperation> = (0..300).map(relative).collect();
    let facts = DescribedFacts {
        rule: Err("you may not get operationrulesets".to_owned()),
        events: Err("you may not list events".to_owned()),
    };
    let text = text::describe(&operation, &facts, &all, now(), Paint::default()).to_string();
    for part in [
        "<not shown: you may not get operationrulesets>",
        "<not shown: you may not list events>",
        "Conditions:           <none>",
        "… and 250 more",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
