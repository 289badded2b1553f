//! Tests of the names of runs. The name of a run depends on its start in whole seconds, so a run must not
//! start in the same second as an earlier run whose operation clients still see.

use super::*;
use crate::track::last_runs::LastRuns;

const HOUR: Duration = Duration::from_hours(1);

/// Creates a fixture with a rule that yields the same start for all runs.
fn retaining(max_count: usize) -> TrackerFixture {
    let mut fixture = fixture_without_rules(TrackerSettings {
        debounce: Duration::ZERO,
        ..settings(Some(Retention {
            max_count,
            ..RETENTION
        }))
    });
    fixture.set_rule_set(
        "rules:\n- {operation: Moving, expression: object.on, startedAt: \"'2026-11-21T09:00:00Z'\"}",
    );
    fixture
}

impl TrackerFixture {
    fn run(&mut self, name: &str) {
        self.apply_object_named(name, json!({"on": true}));
        self.apply_object_named(name, json!({"on": false}));
    }
}

#[test]
fn the_names_of_many_completed_operations_are_all_reserved() {
    let mut fixture = retaining(20_000);
    fixture.run("vm");
    for n in 0..10_001 {
        fixture.run(&format!("other-{n}"));
    }
    fixture.run("vm");
    let shown = fixture.shown();
    let own = shown.iter().filter(|it| it.spec.subject.name == "vm");
    assert_eq!(own.count(), 2);
}

#[test]
fn an_active_operation_is_not_deleted_with_a_completed_operation_of_the_same_name() {
    let mut fixture = retaining(10_000);
    let phase = |fixture: &TrackerFixture| fixture.only_operation().status.phase;
    fixture.run("vm");
    fixture.tracker.shared.last_runs = LastRuns::default();
    fixture.apply_object(json!({"on": true}));
    assert_eq!(phase(&fixture), Phase::Active);
    fixture.advance(HOUR * 25);
    assert_eq!(phase(&fixture), Phase::Active);
    // After its end, the operation is retained.
    fixture.apply_object(json!({"on": false}));
    assert_eq!(phase(&fixture), Phase::Completed);
    fixture.advance(HOUR * 24);
    assert!(fixture.shown().is_empty());
}
