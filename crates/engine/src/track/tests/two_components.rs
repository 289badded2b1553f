//! Tests of rule sets of two components for the same resource. Each component can belong to another
//! team. So a rule set of one component must not change the operations of the other component.

use super::*;
use serde_json::{Value, json};

const SECOND: Duration = Duration::from_secs(1);

/// A rule set of the component `kubevirt`. `Stopping` supersedes `Migrating`.
const OWN: (&str, &str) = (
    "kubevirt-rules",
    "rules:\n\
     - {operation: Migrating, expression: \"object.phase == 'Migrating'\", message: object.text, \
     progress: object.done}\n\
     - {operation: Stopping, expression: object.stops, supersedes: [Migrating]}",
);

/// Another rule set of the component `kubevirt`, which detects one of the same operations.
const SECOND_OWN: (&str, &str) = (
    "more-kubevirt-rules",
    "rules:\n- {operation: Migrating, expression: \"object.phase == 'Migrating'\"}",
);

/// Rule sets of the component `other`. Their names sort before and after the names of the rule sets
/// of `kubevirt`. They detect operations with the same names, supersede every operation, and yield
/// an outcome for each.
const FOREIGN: [(&str, &str); 2] = [
    (
        "a-rules",
        "component: other\nrules:\n\
         - {operation: Migrating, expression: object.taken, message: \"'taken'\", \
         outcome: \"'Failed'\", supersedes: ['*']}\n\
         - {operation: Stopping, expression: object.taken, instance: object.text, debounce: 0s, \
         supersedes: ['*']}",
    ),
    (
        "z-rules",
        "component: other\nrules:\n\
         - {operation: Taking, expression: object.taken, supersedes: ['*']}",
    ),
];

/// Returns the successive states of a VM.
fn states_of_vm() -> Vec<Value> {
    let state = |taken: bool, phase: &str, text: &str, stops: bool| json!({"taken": taken, "phase": phase, "text": text, "done": 10, "stops": stops});
    vec![
        state(true, "Running", "", false),
        state(true, "Migrating", "first", false),
        state(false, "Migrating", "second", false),
        state(true, "Migrating", "third", false),
        state(true, "Running", "", false),
        state(true, "Migrating", "again", false),
        state(true, "Migrating", "again", true),
        state(false, "Migrating", "again", false),
        state(true, "Running", "", false),
    ]
}

impl TrackerFixture {
    /// Takes the changes of the operations of one component. Each change has its sign and the JSON
    /// of the operation.
    fn take_changes_of(&mut self, component: &str) -> Vec<(char, Value)> {
        let changes = self
            .changes
            .drain(..)
            .map(|(sign, object)| (sign, json_of(&object)));
        changes
            .filter(|(_, object)| object["spec"]["component"] == component)
            .collect()
    }
}

/// Evaluates the rule sets on all states of a VM, with a change of the leader after each state.
/// Returns all changes of the operations of `kubevirt`.
fn changes_of_kubevirt(rule_sets: &[(&str, &str)]) -> Vec<(char, Value)> {
    let mut changes = Vec::new();
    let mut fixture = fixture();
    fixture.set_rule_sets(rule_sets);
    for state in states_of_vm() {
        fixture.advance(5 * SECOND);
        fixture.apply_object(state.clone());
        fixture.advance(20 * SECOND);
        changes.extend(fixture.take_changes_of("kubevirt"));
        fixture = fixture.taken_over(SECOND);
        fixture.set_rule_sets(rule_sets);
        fixture.send_event(FeedEvent::Reset);
        fixture.apply_object(state);
        fixture.send_event(FeedEvent::Synced { missing: None });
        fixture.complete_rule_books(&[], &[]);
        changes.extend(fixture.take_changes_of("kubevirt"));
    }
    fixture.advance(2 * DEBOUNCE);
    changes.extend(fixture.take_changes_of("kubevirt"));
    changes
}

#[test]
fn rule_sets_of_another_component_change_no_operation_of_a_component() {
    let alone = changes_of_kubevirt(&[OWN, SECOND_OWN]);
    let ends: BTreeSet<&str> = alone
        .iter()
        .filter_map(|(_, object)| object["status"]["reason"].as_str())
        .collect();
    let expected = ["Migrating", "NotDetected", "Stopping", "Superseded"];
    assert_eq!(ends, expected.into(), "the test must cover these cases");
    let with_others = [FOREIGN[0], OWN, SECOND_OWN, FOREIGN[1]];
    assert_eq!(changes_of_kubevirt(&with_others), alone);
}

/// An attacker can try out component names until the hash of the attacker's operation begins like
/// the hash of another operation. The hashes for these two components have the same first 32 bits.
#[test]
fn an_attacker_cannot_find_a_component_that_gives_an_operation_the_name_of_another_operation() {
    let of = |component: &str| {
        format!("component: {component}\nrules:\n- {{operation: Migrating, expression: 'true'}}")
    };
    let mut fixture = fixture();
    fixture.set_rule_sets(&[("a", &of("c19652")), ("b", &of("c52110"))]);
    fixture.apply_object(json!({}));
    let shown = fixture.shown().into_iter();
    let names: Vec<Text> = shown.map(|it| it.metadata.name).collect();
    assert_eq!(names.len(), 2);
    let hashes: Vec<&str> = names
        .iter()
        .filter_map(|it| it.strip_prefix("vm-migrating-"))
        .collect();
    assert!(
        hashes.iter().all(|it| it.starts_with("557dc132")),
        "{names:?}"
    );
    assert_eq!(
        hashes.iter().map(|it| it.len()).collect::<Vec<_>>(),
        [16, 16]
    );
    assert_ne!(hashes[0], hashes[1]);
}

#[test]
fn an_operation_completes_and_starts_again_if_its_rule_set_gets_another_component() {
    let mut fixture = fixture();
    let renamed = format!("component: other\n{}", OWN.1);
    let object = json!({"phase": "Migrating"});
    fixture.set_rule_sets(&[OWN]);
    fixture.apply_object(object.clone());
    fixture.set_rule_sets(&[(OWN.0, &renamed)]);
    fixture.apply_object(object);
    let expected =
        "+Migrating Progressing, ~Migrating Ended RuleRemoved, -Migrating, +Migrating Progressing";
    assert_eq!(fixture.described_changes(), expected);
    assert_eq!(fixture.only_operation().spec.component, "other");
}
