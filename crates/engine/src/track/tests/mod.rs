//! Tests of the tracker, which decides when operations start, change and complete. The tests set
//! the clock, and compare the changes that clients would receive.

mod custom_resources;
mod fixture;
mod index_takeover;
mod metadata;
mod operation_bounds;
mod retained;
mod rule_fields;
mod scenario;
mod target_versions;
mod timing;
mod two_components;

use super::*;
use crate::ClockReading;
use crate::detect::{self, FeedEvent, Subject};
use crate::rules::compile;
use fixture::*;
use ifo_api::live::{InFlightOperation, Phase, State};
use ifo_cel::Doc;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

#[test]
fn the_result_of_replaced_rules_is_ignored() {
    let mut fixture = fixture();
    let (generation, book) = (fixture.generation, fixture.book.clone());
    fixture.set_rules(&[("vm-rules", &["Stopping"])]);
    (fixture.generation, fixture.book) = (generation, book);
    fixture.evaluate_vm(&["Migrating"]);
    assert!(fixture.shown().is_empty());
}

/// Each rule set names its namespaces, so each namespace has its own feed.
#[test]
fn an_interruption_that_outlasts_a_change_of_the_rules_ends_in_each_namespace_on_its_own() {
    let rules = "namespaces: [a, b]\nrules:\n- {operation: Migrating, expression: object.on}";
    let vm = |namespace: &str, on: bool| json!({"on": on, "metadata": {"namespace": namespace}});
    let mut fixture = fixture_without_rules(settings(None));
    let list = |fixture: &mut TrackerFixture, namespace: &str| {
        fixture.namespace = Some(namespace.into());
        fixture.send_event(FeedEvent::Reset);
        fixture.apply_object_named(namespace, vm(namespace, true));
        fixture.send_event(FeedEvent::Synced { missing: None });
    };
    fixture.set_rule_set(rules);
    list(&mut fixture, "a");
    list(&mut fixture, "b");
    fixture.apply_object_named("b", vm("b", false));
    fixture.send_event(FeedEvent::Lost);
    fixture.advance(DEBOUNCE);
    fixture.set_rule_set(rules);
    fixture.changes.clear();
    list(&mut fixture, "a");
    // The tracker checks all operations again, also that in the namespace `b`.
    fixture.send(Message::BaselinesLoaded);
    assert_eq!(fixture.described_changes(), "~Migrating:a Progressing");
    // The first change is that of the state, and the second is that the interruption is over.
    list(&mut fixture, "b");
    let expected = "~Migrating:b Progressing, ~Migrating:b Progressing";
    assert_eq!(fixture.described_changes(), expected);
}

#[derive(Clone, Debug)]
enum Step {
    Evaluates(u8, u8),
    Deletes(u8),
    Waits(u8),
    Lost,
    Synced,
    Relist(Vec<(u8, u8)>),
    Rules(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..3_u8, 0..4_u8).prop_map(|(vm, what)| Step::Evaluates(vm, what)),
        1 => (0..3_u8).prop_map(Step::Deletes),
        3 => (0..40_u8).prop_map(Step::Waits),
        1 => Just(Step::Lost),
        1 => Just(Step::Synced),
        1 => proptest::collection::vec((0..3_u8, 0..4_u8), 0..3).prop_map(Step::Relist),
        1 => (0..4_u8).prop_map(Step::Rules),
    ];
    proptest::collection::vec(step, 1..60)
}

fn operations(what: u8) -> Vec<&'static str> {
    let mut all = Vec::new();
    if what & 1 != 0 {
        all.push("Migrating");
    }
    if what & 2 != 0 {
        all.push("Stopping");
    }
    all
}

proptest! {
    /// After any order of events, the test waits for a debounce period. Then clients see exactly
    /// the operations that the last evaluation of each existing object detected. No timer is left.
    #[test]
    fn no_completion_is_lost_in_any_order_of_events(steps in steps()) {
        let mut fixture = fixture();
        let mut last: BTreeMap<u8, u8> = BTreeMap::new();
        let mut rules = 3;
        for step in steps {
            match step {
                Step::Evaluates(vm, what) => {
                    let what = what & rules;
                    last.insert(vm, what);
                    if rules != 0 { fixture.evaluate(&vm.to_string(), &operations(what)); }
                }
                Step::Deletes(vm) => {
                    last.remove(&vm);
                    fixture.subject_deleted(subject(&vm.to_string()));
                }
                Step::Waits(seconds) => fixture.advance(Duration::from_secs(seconds.into())),
                Step::Lost => fixture.send_event(FeedEvent::Lost),
                Step::Synced => fixture.send_event(FeedEvent::Synced { missing: None }),
                Step::Relist(state) => {
                    last.clear();
                    fixture.send_event(FeedEvent::Reset);
                    for (vm, what) in state {
                        let what = what & rules;
                        last.insert(vm, what);
                        if rules != 0 { fixture.evaluate(&vm.to_string(), &operations(what)); }
                    }
                    fixture.send_event(FeedEvent::Synced { missing: None });
                }
                Step::Rules(new) => {
                    rules = new;
                    if new == 0 { fixture.remove_rules(false) } else { fixture.set_rules(&[("vm-rules", &operations(new))]) }
                    last.clear();
                    fixture.send_event(FeedEvent::Reset);
                    fixture.send_event(FeedEvent::Synced { missing: None });
                }
            }
        }
        fixture.send_event(FeedEvent::Synced { missing: None });
        fixture.advance(DEBOUNCE);
        let shown: BTreeSet<_> = fixture
            .shown()
            .into_iter()
            .map(|object| (object.spec.subject.name, object.spec.operation))
            .collect();
        let expected: BTreeSet<_> = last
            .iter()
            .flat_map(|(vm, what)| operations(*what & rules).into_iter().map(|operation| (Text::from(vm.to_string()), Text::from(operation))))
            .collect();
        prop_assert_eq!(shown, expected);
        prop_assert!(fixture.tracker.next_deadline().is_none(), "a timer is left over");
    }
}
