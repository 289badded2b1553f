//! Tests of the bounds on operations, on records and on retained operations. At a bound on
//! operations, the tracker keeps the operations that it has, and shows no further ones. The rule set
//! then counts as one that may miss operations. This ends when a list of the target shows that there
//! is room for all its operations.

use super::*;
use crate::rules::{OperationBound, ReachedBound};
use std::iter;

/// Small bounds, which only the test of each bound reaches.
const BOUNDS: OperationBounds = OperationBounds {
    on_object: 4,
    of_rule_set: 10,
    all: 1_000,
};

/// Creates a fixture with these bounds. Each of the rule sets `a`, `b` and `c` has a component of its
/// own. The rule sets `a2` and `a3` belong to the same component as `a`.
fn bounded(bounds: OperationBounds, max_records: usize) -> TrackerFixture {
    retaining(None, bounds, max_records)
}

/// Like [`bounded`], with this retention of completed operations.
fn retaining(
    retain: Option<Retention>,
    bounds: OperationBounds,
    max_records: usize,
) -> TrackerFixture {
    let mut fixture = fixture_without_rules(TrackerSettings {
        debounce: Duration::ZERO,
        max_records,
        ..settings(retain)
    });
    fixture.tracker = fixture.tracker.with_bounds(bounds);
    fixture.set_working_rule_sets(&["a", "a2", "a3", "b", "c"]);
    fixture.list(&[]);
    fixture
}

/// The operations of a rule set on an object: the name of the object, the rule set, the number of
/// operations, and the length of the message of each operation.
type OnObject<'a> = (&'a str, &'a str, usize, usize);

impl TrackerFixture {
    fn rule_set(&self, name: &str) -> Arc<crate::rules::RuleSet> {
        let mut rule_sets = self.book.rule_sets.iter();
        let found = rule_sets.find(|own| &*own.name == name);
        found.expect("the test names an existing rule set").clone()
    }

    /// Sets rule sets with these names. The first letter is the component.
    fn set_working_rule_sets(&mut self, names: &[&str]) {
        let spec = |name: &&str| {
            format!(
                "component: {}\nrules:\n- {{operation: Working, forEach: object.{name}, \
                 expression: 'true', message: object.text}}",
                &name[..1]
            )
        };
        let specs: Vec<String> = names.iter().map(spec).collect();
        let specs = names
            .iter()
            .zip(&specs)
            .map(|(name, spec)| (*name, &**spec));
        self.set_rule_sets(&specs.collect::<Vec<_>>());
    }

    /// Evaluates an object. Each operation has an element of its own, so that all have different
    /// identities. The elements begin at the number `first`.
    fn evaluate_items(&mut self, (name, rule_set, count, length): OnObject<'_>, first: usize) {
        let items = (first..first + count).map(|index| format!("{rule_set}-{index:05}"));
        let items: Vec<String> = items.collect();
        self.apply_object_named(name, json!({rule_set: items, "text": "x".repeat(length)}));
    }

    /// Lists all objects of the feed.
    fn list(&mut self, objects: &[OnObject<'_>]) {
        self.send_event(FeedEvent::Reset);
        for object in objects {
            self.evaluate_items(*object, 0);
        }
        self.send_event(FeedEvent::Synced { missing: None });
    }

    fn delete(&mut self, name: &str) {
        self.subject_deleted(subject(name));
    }

    /// Returns the number of operations of a rule set that clients see.
    fn count(&self, rule_set: &str) -> usize {
        let shown = self.shown();
        shown
            .iter()
            .filter(|it| it.spec.rule_set == rule_set)
            .count()
    }

    /// Returns the bound that refuses operations of a rule set, and the number of operations that
    /// the rule set had when it reached the bound.
    fn reached(&self, rule_set: &str) -> Option<(OperationBound, usize)> {
        let reached = self.rule_set(rule_set).activity.reached_bound();
        reached.map(|ReachedBound { bound, kept, .. }| (bound, kept))
    }

    fn has_room(&self, rule_set: &str) -> bool {
        self.rule_set(rule_set).activity.has_room()
    }
}

#[test]
fn a_report_ends_only_after_the_operations_are_in_the_index() {
    let mut fixture = bounded(BOUNDS, 0);
    fixture.list(&[("vm", "a", 5, 0)]);
    assert!(fixture.reached("a").is_some());
    fixture.evaluate_items(("vm", "a", 2, 0), 0);
    for event in [FeedEvent::Reset, FeedEvent::Synced { missing: None }] {
        let message = fixture.feed_message(event);
        fixture.tracker.advance(message, fixture.now);
    }
    assert!(fixture.reached("a").is_some());
    fixture.tracker.take_changes();
    fixture.tracker.committed();
    assert_eq!(fixture.reached("a"), None);
}

#[test]
fn all_rule_sets_of_a_component_have_one_share_of_the_bound_for_all() {
    let bounds = OperationBounds {
        on_object: 1_000,
        of_rule_set: 1_000,
        all: 100,
    };
    let counts = |fixture: &TrackerFixture| ["a", "a2", "a3", "b"].map(|it| fixture.count(it));
    let mut fixture = bounded(bounds, 0);
    for (rule_set, count) in [("a", 30), ("a2", 200), ("a3", 200), ("b", 200)] {
        fixture.evaluate_items((&format!("vm-{rule_set}"), rule_set, count, 0), 0);
    }
    assert_eq!(counts(&fixture), [30, 15, 0, 22]);
    let reached = Some((OperationBound::AllRuleSets, 0));
    assert_eq!(fixture.reached("a3"), reached);
    assert!(!fixture.has_room("b"));
    fixture.delete("vm-a");
    assert!(fixture.has_room("b"));
    fixture.list(&[("vm-b", "b", 30, 0)]);
    assert_eq!((fixture.count("b"), fixture.reached("b")), (30, None));
}

#[test]
fn an_operation_with_long_texts_counts_as_several_operations() {
    let bounds = OperationBounds {
        on_object: 100,
        of_rule_set: 20,
        ..BOUNDS
    };
    let mut fixture = bounded(bounds, 0);
    fixture.evaluate_items(("vm", "a", 20, 1_024), 0);
    assert_eq!(fixture.count("a"), 10);
    let reached = Some((OperationBound::RuleSet, 20));
    assert_eq!(fixture.reached("a"), reached);
    // Each refused operation counts twice, so there is no room for it when one more is free.
    fixture.evaluate_items(("vm", "a", 9, 1_024), 0);
    fixture.advance(DEBOUNCE);
    fixture.evaluate_items(("other", "a", 1, 10), 100);
    assert_eq!((fixture.count("a"), fixture.has_room("a")), (10, false));
    fixture.delete("other");
    assert_eq!((fixture.count("a"), fixture.has_room("a")), (9, true));

    // The messages of the operations in flight become longer than the bound allows.
    let mut fixture = bounded(bounds, 0);
    fixture.evaluate_items(("vm", "a", 15, 10), 0);
    assert_eq!((fixture.count("a"), fixture.reached("a")), (15, None));
    fixture.evaluate_items(("vm", "a", 15, 1_024), 0);
    let lengths = |fixture: &TrackerFixture| -> usize {
        let shown = fixture.shown();
        shown.iter().map(|it| it.status.message.len()).sum()
    };
    assert_eq!(fixture.count("a"), 15);
    assert_eq!(lengths(&fixture), 5 * 1_024 + 10 * 10);
    assert_eq!(fixture.reached("a"), reached);
    // The texts that become shorter make room for the next evaluation.
    fixture.list(&[("vm", "a", 15, 20)]);
    fixture.list(&[("vm", "a", 15, 20)]);
    assert_eq!((lengths(&fixture), fixture.reached("a")), (300, None));
}

#[test]
fn the_counts_are_exact_when_all_operations_have_ended() {
    let mut fixture = bounded(BOUNDS, 0);
    for round in 0..3 {
        for number in 0..5 {
            let name = format!("vm{number}");
            fixture.evaluate_items((&name, "a", 4, 1_000 * round), round);
            fixture.evaluate_items((&name, "b", 2, 5), 0);
        }
        fixture.apply_object_named("vm1", json!({}));
    }
    for number in 0..5 {
        fixture.delete(&format!("vm{number}"));
    }
    let limits = format!("{:?}", fixture.tracker.shared.limits);
    let empty = "Shares { used: {}, total: 0 }";
    assert_eq!(limits.matches(empty).count(), 2, "{limits}");
}

#[test]
fn removing_a_rule_set_ends_its_operations_in_batches_and_keeps_the_records_of_others() {
    const COUNT: usize = 3 * FULL_BATCH;
    let bounds = OperationBounds {
        of_rule_set: COUNT,
        all: 10 * COUNT,
        ..BOUNDS
    };
    let mut fixture = bounded(bounds, 100);
    for number in 0..20 {
        let name = format!("b{number}");
        fixture.evaluate_items((&name, "b", 1, 0), 0);
        fixture.delete(&name);
    }
    assert_eq!(fixture.records.len(), 20);
    let of_b: BTreeSet<Key> = fixture.records.keys().cloned().collect();
    for number in 0..COUNT {
        fixture.evaluate_items((&format!("vm{number}"), "a", 1, 0), 0);
    }
    assert_eq!(fixture.count("a"), COUNT);

    let rules = "component: b\nrules:\n- {operation: Other, expression: 'false'}";
    let message = fixture.rules_message(&[("b", rules)]);
    fixture.tracker.advance(message, fixture.now);
    let batches: Vec<Vec<Write>> = iter::from_fn(|| {
        let batch = fixture.tracker.take_batch();
        (!batch.is_empty()).then_some(batch)
    })
    .collect();
    assert!(batches.len() > 3);
    for batch in batches {
        // The writes for one object, and the deletions of old records, can exceed a batch.
        assert!(batch.len() <= 2 * FULL_BATCH + 10, "{}", batch.len());
        for write in batch {
            fixture.apply(write);
        }
        assert!(fixture.records.len() <= 100, "{}", fixture.records.len());
    }
    assert_eq!(fixture.shown().len(), 0);
    assert_eq!(fixture.records.len(), 100);
    assert!(of_b.iter().all(|key| fixture.records.contains_key(key)));
}

#[test]
fn a_message_finishes_the_work_of_the_message_before() {
    let bounds = OperationBounds {
        of_rule_set: 5_000,
        all: 50_000,
        ..BOUNDS
    };
    let mut fixture = bounded(bounds, 0);
    for number in 0..2_000 {
        fixture.evaluate_items((&format!("vm{number}"), "a", 1, 0), 0);
    }
    for event in [FeedEvent::Lost, FeedEvent::Synced { missing: None }] {
        let message = fixture.feed_message(event);
        fixture.tracker.advance(message, fixture.now);
    }
    fixture.flush();
    let shown = fixture.shown();
    assert!(shown.iter().all(|it| condition(it, "Detected").0 == "True"));
}

#[test]
fn many_rule_sets_of_a_component_do_not_push_out_the_history_of_another_component() {
    let retain = Retention {
        max_count: 8,
        ..RETENTION
    };
    let mut fixture = retaining(Some(retain), BOUNDS, 8);
    for (rule_set, count) in [("b", 4), ("a", 3), ("a2", 3), ("a3", 1)] {
        for number in 0..count {
            let name = format!("{rule_set}-{number}");
            fixture.evaluate_items((&name, rule_set, 1, 0), 0);
            fixture.delete(&name);
        }
    }
    let counts = ["b", "a", "a2", "a3"];
    // Within the component, the largest rule sets lose operations.
    assert_eq!(counts.map(|it| fixture.count(it)), [4, 1, 2, 1]);
    let records = fixture.records.values();
    let of_b = records.filter(|it| it.spec().is_some_and(|spec| spec.component == "b"));
    assert_eq!((of_b.count(), fixture.records.len()), (4, 8));
}
