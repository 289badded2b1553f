//! Tests of the values that rules yield, from the object to the shown operation.

use super::*;
use crate::detect;
use ifo_api::live::StartTimeSource::{Detected, Expression};
use ifo_cel::Doc;
use serde_json::{Value, json};

/// A world with one rule set, given as a YAML spec without component and target.
pub(super) fn world_of(spec: &str) -> World {
    let mut world = world();
    world.spec(spec);
    world.feed(FeedEvent::Reset);
    world.feed(FeedEvent::Synced { missing: None });
    world
}

impl World {
    pub(super) fn spec(&mut self, spec: &str) {
        self.specs(&[("rules", spec)]);
    }

    /// Rule sets by name.
    pub(super) fn specs(&mut self, specs: &[(&str, &str)]) {
        let set = |(name, spec): &(&str, &str)| {
            let text = format!(
                "component: kubevirt\ntarget: {{group: kubevirt.io, version: v1, resource: virtualmachines}}\n{spec}"
            );
            let spec = serde_saphyr::from_str(&text).expect("a spec");
            Arc::new(compile(name, &spec).expect("valid rules"))
        };
        let sets = specs.iter().map(set).collect();
        self.generation += 1;
        let target = (*self.target).clone();
        let kind = "VirtualMachine".to_owned();
        self.book = Arc::new(RuleBook::new(self.generation, target, kind, true, sets));
        self.message(Message::Rules {
            target: self.target.clone(),
            book: Some(self.book.clone()),
            removed: false,
        });
    }

    /// The subject changes to `object`.
    pub(super) fn is(&mut self, object: Value) {
        let mut object = object;
        object["metadata"]["name"] = "vm".into();
        object["metadata"]["namespace"] = "ns".into();
        object["metadata"]["uid"] = "uid-vm".into();
        let json = object.to_string();
        let doc = Doc::parse(json.as_bytes(), &self.book.initial_projection).expect("a document");
        let evaluation = detect::evaluate(&self.book, &doc, self.now.wall, &()).expect("a name");
        assert!(evaluation.failures.is_empty(), "{evaluation:?}");
        self.feed(FeedEvent::Evaluated {
            evaluation: Box::new(evaluation),
            read: Instant::now(),
        });
    }

    fn phase(&mut self, phase: &str) {
        self.is(json!({ "phase": phase }));
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn each_change_of_message_reason_state_or_progress_is_a_visible_change() {
    let mut world = world_of(
        "rules:\n- {operation: Moving, expression: object.moving, message: object.text, reason: object.why, state: object.how, progress: object.done}",
    );
    let object = |text: &str, why: &str, how: &str, done: u8| json!({"moving": true, "text": text, "why": why, "how": how, "done": done});
    world.is(object("a", "A", "Progressing", 1));
    world.is(object("a", "A", "Progressing", 1));
    assert_eq!(world.seen().len(), 1, "nothing changed");
    for next in [
        object("b", "A", "Progressing", 1),
        object("b", "B", "Progressing", 1),
        object("b", "B", "Failing", 1),
        object("b", "B", "Failing", 2),
    ] {
        world.is(next);
        assert_eq!(world.seen().len(), 1);
    }
    let shown = world.one();
    assert_eq!(shown.status.message, "b");
    assert_eq!(shown.status.reason, "B");
    assert_eq!(shown.status.state, State::Failing);
    assert_eq!(shown.status.progress, Some(2));
    assert_eq!(
        condition(&shown, "Progressing"),
        ("True".into(), "B".into())
    );
    // The last values stay while it settles.
    world.is(json!({"moving": false}));
    let shown = world.one();
    assert_eq!(shown.status.state, State::Settling);
    assert_eq!(shown.status.message, "b");
}

#[test]
fn an_outcome_ends_the_operation_without_the_debounce() {
    for (phase, state, reason) in [
        ("Done", "Succeeded", "Succeeded"),
        ("Broken", "Failed", "Failed"),
        ("Dropped", "Superseded", "Superseded"),
    ] {
        let mut world = world_of(
            "rules:\n- {operation: Moving, expression: object.phase == 'Moving', \
             outcome: \"{'Done': 'Succeeded', 'Broken': 'Failed', 'Dropped': 'Superseded'}[object.phase]\"}",
        );
        world.phase(phase);
        assert!(world.seen().is_empty(), "it was never under way");
        world.phase("Moving");
        world.phase(phase);
        assert_eq!(
            world.seen(),
            [
                "+Moving Progressing Moving".to_owned(),
                format!("~Moving {state} {reason}"),
                format!("-Moving {state} {reason}")
            ]
        );
    }
}

#[test]
fn success_sets_progress_to_100_and_failure_keeps_it() {
    for (phase, progress) in [("Done", 100), ("Broken", 40)] {
        let mut world = world_with(TrackerSettings {
            debounce: DEBOUNCE,
            retain: Some(RETENTION),
            cluster_namespace: "ifo-system".into(),
        });
        world.spec(
            "rules:\n- {operation: Moving, expression: object.phase == 'Moving', progress: object.done, \
             outcome: \"{'Done': 'Succeeded', 'Broken': 'Failed'}[object.phase]\"}",
        );
        world.is(json!({"phase": "Moving", "done": 40}));
        world.phase(phase);
        assert_eq!(world.one().status.progress, Some(progress));
    }
}

#[test]
fn a_late_outcome_completes_a_settling_operation() {
    let mut world = world_of(
        "rules:\n- {operation: Moving, expression: object.phase == 'Moving', outcome: \"object.phase == 'Done' ? 'Succeeded' : ''\"}",
    );
    world.phase("Moving");
    world.phase("Unknown");
    world.after(SECOND);
    assert_eq!(world.one().status.state, State::Settling);
    world.phase("Done");
    assert!(world.shown().is_empty());
    assert_eq!(
        world.seen().last().map(String::as_str),
        Some("-Moving Succeeded Succeeded")
    );
}

#[test]
fn a_new_run_is_a_new_operation() {
    let mut world = world_of(
        "rules:\n- {operation: Migrating, expression: object.moving, instance: object.run}",
    );
    let run = |run: &str| json!({"moving": true, "run": run});
    world.is(json!({"moving": true}));
    let first = world.one();
    world.is(run("a"));
    assert_eq!(
        world.one().metadata.uid,
        first.metadata.uid,
        "now it is known which"
    );
    world.after(SECOND);
    world.is(json!({"moving": true}));
    assert_eq!(
        world.one().metadata.uid,
        first.metadata.uid,
        "not told is not another"
    );
    world.is(run("b"));
    let second = world.one();
    assert_ne!(second.metadata.uid, first.metadata.uid);
    assert_eq!(
        second.metadata.creation_timestamp.map(|t| t.0),
        Some(world.now.wall)
    );
    // Also if it is detected again within the debounce period.
    world.is(json!({"moving": false}));
    world.after(SECOND);
    world.is(run("c"));
    assert_ne!(world.one().metadata.uid, second.metadata.uid);
    let ends: Vec<_> = world
        .seen()
        .into_iter()
        .filter(|seen| seen.starts_with('-'))
        .collect();
    assert_eq!(ends, ["-Migrating Ended Replaced"; 2]);
}

#[test]
fn the_start_of_the_rule_is_used_unless_it_is_in_the_future() {
    let start = |since: &str| {
        let mut world =
            world_of("rules:\n- {operation: Moving, expression: 'true', startedAt: object.since}");
        world.is(json!({ "since": since }));
        let shown = world.one();
        let at = shown.metadata.creation_timestamp.expect("a start").0;
        (at.to_string(), shown.status.start_time_source)
    };
    assert_eq!(
        start("2026-11-21T09:30:00Z"),
        ("2026-11-21T09:30:00Z".to_owned(), Expression)
    );
    assert_eq!(
        start("2026-11-21T10:30:00Z"),
        ("2026-11-21T10:00:00Z".to_owned(), Detected)
    );
    assert_eq!(start(""), ("2026-11-21T10:00:00Z".to_owned(), Detected));
}

#[test]
fn a_successor_with_the_same_start_has_another_name() {
    let mut world = world_of(
        "rules:\n- {operation: Moving, expression: object.moving, startedAt: \"'2026-11-21T09:30:00Z'\", debounce: 10s}",
    );
    world.is(json!({"moving": true}));
    let first = world.one();
    world.is(json!({"moving": false}));
    world.after(11 * SECOND);
    assert!(world.shown().is_empty());
    world.after(60 * SECOND);
    world.is(json!({"moving": true}));
    let second = world.one();
    assert_ne!(first.metadata.name, second.metadata.name);
    assert_eq!(
        second
            .metadata
            .creation_timestamp
            .expect("a start")
            .0
            .to_string(),
        "2026-11-21T09:30:01Z"
    );
}

#[test]
fn the_debounce_of_the_rule_applies() {
    let mut world = world_of(
        "rules:\n- {operation: Long, expression: object.on, debounce: 2m}\n- {operation: Usual, expression: object.on}\n- {operation: None, expression: object.on, debounce: 0s}",
    );
    world.is(json!({"on": true}));
    assert_eq!(world.shown().len(), 3);
    world.is(json!({"on": false}));
    let names = |world: &World| -> Vec<String> {
        world
            .shown()
            .into_iter()
            .map(|o| o.spec.operation)
            .collect()
    };
    assert_eq!(names(&world), ["Long", "Usual"]);
    world.after(DEBOUNCE);
    assert_eq!(names(&world), ["Long"]);
    world.after(90 * SECOND);
    assert!(world.shown().is_empty());
}

#[test]
fn an_operation_appears_after_uninterrupted_detection_for_appear_after() {
    let mut world =
        world_of("rules:\n- {operation: Stuck, expression: object.stuck, appearAfter: 10s}");
    let began = world.now.wall;
    world.is(json!({"stuck": true}));
    world.after(9 * SECOND);
    world.is(json!({"stuck": false}));
    world.is(json!({"stuck": true}));
    world.after(9 * SECOND);
    assert!(world.shown().is_empty(), "there was a break");
    world.after(SECOND);
    let start = world.one().metadata.creation_timestamp.expect("a start").0;
    assert_eq!(start, began + 9 * SECOND, "when it was first detected");
}

#[test]
fn an_operation_that_waits_for_appear_after_does_not_appear_during_a_gap() {
    let mut world =
        world_of("rules:\n- {operation: Stuck, expression: object.stuck, appearAfter: 10s}");
    world.is(json!({"stuck": true}));
    world.feed(FeedEvent::Lost);
    world.after(20 * SECOND);
    assert!(world.shown().is_empty());
    world.feed(FeedEvent::Reset);
    world.is(json!({"stuck": true}));
    world.feed(FeedEvent::Synced { missing: None });
    assert_eq!(world.shown().len(), 1);
}

#[test]
fn a_waiting_operation_is_dropped_with_its_subject_or_rule() {
    let rules = "rules:\n- {operation: Stuck, expression: object.stuck, appearAfter: 10s}";
    let mut world = world_of(rules);
    world.is(json!({"stuck": true}));
    world.feed(FeedEvent::Deleted {
        subject: subject("vm"),
        read: Instant::now(),
    });
    world.after(20 * SECOND);
    assert!(world.shown().is_empty());
    world.is(json!({"stuck": true}));
    world.spec("rules:\n- {operation: Other, expression: 'false'}");
    world.after(20 * SECOND);
    assert!(world.shown().is_empty());
}

const STOPPING: &str = "rules:\n\
    - {operation: Migrating, expression: object.phase == 'Migrating'}\n\
    - {operation: Stopping, expression: object.phase == 'Stopping', supersedes: [Migrating], \
       outcome: \"object.phase == 'Stopped' ? 'Succeeded' : ''\"}";

#[test]
fn a_superseded_migration_does_not_restart_while_the_vm_stops() {
    let mut world = world_of(STOPPING);
    for phase in ["Migrating", "Stopping", "Migrating", "Stopped"] {
        world.phase(phase);
        world.after(SECOND / 2);
    }
    assert_eq!(
        world.seen(),
        [
            "+Migrating Progressing Migrating",
            "~Migrating Superseded Superseded",
            "-Migrating Superseded Superseded",
            "+Stopping Progressing Stopping",
            "~Stopping Settling Stopping",
            "~Stopping Succeeded Succeeded",
            "-Stopping Succeeded Succeeded",
        ]
    );
}

#[test]
fn a_superseded_operation_restarts_if_still_detected_when_its_successor_completes() {
    let mut world = world_of(STOPPING);
    world.phase("Stopping");
    world.phase("Migrating");
    world.after(DEBOUNCE);
    assert_eq!(world.one().spec.operation, "Migrating");
}

#[test]
fn successive_phases_end_each_other_without_debounce() {
    let mut world = world_of(
        "rules:\n- {operation: Pending, expression: object.phase == 'Pending', supersedes: [Running]}\n- {operation: Running, expression: object.phase == 'Running', supersedes: [Pending]}",
    );
    world.phase("Pending");
    world.phase("Running");
    assert_eq!(world.one().spec.operation, "Running");
    world.phase("Pending");
    assert_eq!(world.one().spec.operation, "Pending");
    let ended = world.seen();
    assert!(ended.contains(&"~Pending Superseded Superseded".to_owned()));
}

#[test]
fn the_message_of_a_superseded_operation_names_its_successor() {
    let mut settings_world = world_with(TrackerSettings {
        debounce: DEBOUNCE,
        retain: Some(RETENTION),
        cluster_namespace: "ifo-system".into(),
    });
    settings_world.spec(STOPPING);
    settings_world.phase("Migrating");
    settings_world.phase("Stopping");
    let shown = settings_world.shown();
    let ended = shown
        .iter()
        .find(|object| object.spec.operation == "Migrating")
        .expect("it is retained");
    assert_eq!(ended.status.phase, Phase::Completed);
    assert_eq!(ended.status.message, "Superseded by Stopping.");
}

#[test]
fn each_element_has_its_own_operation() {
    let mut world = world_of(
        "rules:\n- {operation: Copying, forEach: object.parts, itemKey: item.name, expression: \"item.phase == 'Copying'\", progress: item.done, \
         outcome: \"item.phase == 'Done' ? 'Succeeded' : ''\"}",
    );
    let parts = |a: &str, b: &str| json!({"parts": [{"name": "a", "phase": a, "done": 5}, {"name": "b", "phase": b, "done": 6}]});
    world.is(parts("Copying", "Copying"));
    let shown = world.shown();
    let items: Vec<_> = shown
        .iter()
        .map(|object| object.spec.item.as_deref())
        .collect();
    assert!(
        items.contains(&Some("a")) && items.contains(&Some("b")),
        "{items:?}"
    );
    assert_ne!(shown[0].metadata.name, shown[1].metadata.name);
    world.is(parts("Copying", "Done"));
    assert_eq!(world.one().spec.item.as_deref(), Some("a"));
    // An element that was removed from the list settles as usual.
    world.is(json!({"parts": []}));
    assert_eq!(world.one().status.state, State::Settling);
    world.is(parts("Copying", "Done"));
    world.after(DEBOUNCE);
    assert_eq!(world.one().status.state, State::Progressing);
}

#[test]
fn a_subject_that_leaves_the_selection_ends_as_if_no_longer_detected() {
    let mut world = world_of(
        "labelSelector: {matchLabels: {tier: web}}\nrules:\n- {operation: Moving, expression: 'true'}",
    );
    let labelled = |tier: &str| json!({"metadata": {"labels": {"tier": tier}}});
    world.is(labelled("web"));
    world.is(labelled("db"));
    assert_eq!(world.one().status.state, State::Settling);
    world.is(labelled("web"));
    assert_eq!(world.one().status.state, State::Progressing, "it came back");
    world.is(labelled("db"));
    world.after(DEBOUNCE);
    assert_eq!(
        world.seen().last().map(String::as_str),
        Some("-Moving Ended SelectorLeft")
    );
}

#[test]
fn an_object_missing_from_a_selected_list_is_looked_up_before_its_operations_end() {
    let mut world = world_of(
        "labelSelector: {matchLabels: {tier: web}}\nrules:\n- {operation: Moving, expression: 'true'}",
    );
    world.is(json!({"metadata": {"labels": {"tier": "web"}}}));
    world.feed(FeedEvent::Reset);
    let (missing, mut asked) = tokio::sync::oneshot::channel();
    world.feed(FeedEvent::Synced {
        missing: Some(missing),
    });
    let asked = asked.try_recv().expect("it is asked about");
    assert_eq!(asked.len(), 1);
    assert_eq!(
        world.one().status.state,
        State::Progressing,
        "nothing is known yet"
    );
    let evaluation = detect::unselected(&world.book, asked[0].clone());
    world.feed(FeedEvent::Evaluated {
        evaluation: Box::new(evaluation),
        read: Instant::now(),
    });
    world.after(DEBOUNCE);
    assert_eq!(
        world.seen().last().map(String::as_str),
        Some("-Moving Ended SelectorLeft")
    );
}
