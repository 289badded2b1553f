//! Tests of the fields of a rule, such as `outcome`, `instance` and `supersedes`, and of the field
//! `labelSelector` of a rule set. Each test evaluates a rule on objects, and checks the resulting
//! operations.

use super::*;
use crate::detect;
use ifo_api::live::StartTimeSource::{Detected, Expression};
use ifo_cel::Doc;
use serde_json::{Value, json};

/// Creates a fixture with one rule set. `spec` is its YAML without component and target.
pub(super) fn fixture_with_rule_set(spec: &str) -> TrackerFixture {
    let mut fixture = fixture();
    fixture.set_rule_set(spec);
    fixture.send_event(FeedEvent::Reset);
    fixture.send_event(FeedEvent::Synced { missing: None });
    fixture
}

impl TrackerFixture {
    pub(super) fn set_rule_set(&mut self, spec: &str) {
        self.set_rule_sets(&[("rules", spec)]);
    }

    /// Replaces the rule sets. `specs` contains the name of each new rule set, and its YAML without
    /// target. If the YAML does not begin with a component, the component is `kubevirt`.
    pub(super) fn set_rule_sets(&mut self, specs: &[(&str, &str)]) {
        let set = |(name, spec): &(&str, &str)| {
            let component = if spec.starts_with("component:") {
                ""
            } else {
                "component: kubevirt\n"
            };
            let text = format!(
                "{component}target: {{group: kubevirt.io, version: v1, resource: virtualmachines}}\n{spec}"
            );
            let spec = serde_saphyr::from_str(&text).expect("the YAML of the test is a valid spec");
            Arc::new(compile(name, &spec).expect("the rules of the test compile"))
        };
        let sets = specs.iter().map(set).collect();
        self.generation += 1;
        let target = (*self.target).clone();
        let kind = "VirtualMachine".to_owned();
        self.book = Arc::new(RuleBook::new(self.generation, target, kind, true, sets));
        self.send(Message::Rules {
            target: self.target.clone(),
            book: Some(self.book.clone()),
            removed: false,
        });
    }

    /// Evaluates the rules on `object`, which becomes the new state of the VM.
    pub(super) fn apply_object(&mut self, object: Value) {
        self.apply_object_with_failures(object, 0);
    }

    /// Evaluates the rules like [`TrackerFixture::apply_object`]. `failures` is the number of
    /// expressions that must fail.
    fn apply_object_with_failures(&mut self, object: Value, failures: usize) {
        let mut object = object;
        object["metadata"]["name"] = "vm".into();
        object["metadata"]["namespace"] = "ns".into();
        object["metadata"]["uid"] = "uid-vm".into();
        let json = object.to_string();
        let doc = Doc::parse(json.as_bytes(), &self.book.initial_projection)
            .expect("the object is valid JSON");
        let evaluation =
            detect::evaluate(&self.book, &doc, self.now.wall, &()).expect("the object has a name");
        assert_eq!(evaluation.failures.len(), failures, "{evaluation:?}");
        self.send_event(FeedEvent::Evaluated {
            evaluation: Box::new(evaluation),
            read: Instant::now(),
        });
    }

    fn apply_phase(&mut self, phase: &str) {
        self.apply_object(json!({ "phase": phase }));
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn each_change_of_message_reason_state_or_progress_is_a_visible_change() {
    let mut fixture = fixture_with_rule_set(
        "rules:\n- {operation: Moving, expression: object.moving, message: object.text, reason: object.why, state: object.how, progress: object.done}",
    );
    let object = |text: &str, why: &str, how: &str, done: u8| json!({"moving": true, "text": text, "why": why, "how": how, "done": done});
    fixture.apply_object(object("a", "A", "Progressing", 1));
    fixture.apply_object(object("a", "A", "Progressing", 1));
    assert_eq!(
        fixture.take_changes().len(),
        1,
        "the second evaluation must not change anything"
    );
    for next in [
        object("b", "A", "Progressing", 1),
        object("b", "B", "Progressing", 1),
        object("b", "B", "Failing", 1),
        object("b", "B", "Failing", 2),
    ] {
        fixture.apply_object(next);
        assert_eq!(fixture.take_changes().len(), 1);
    }
    let shown = fixture.only_operation();
    assert_eq!(shown.status.message, "b");
    assert_eq!(shown.status.reason, "B");
    assert_eq!(shown.status.state, State::Failing);
    assert_eq!(shown.status.progress, Some(2));
    assert_eq!(
        condition(&shown, "Progressing"),
        ("True".into(), "B".into())
    );
    // The last values stay during the debounce period.
    fixture.apply_object(json!({"moving": false}));
    let shown = fixture.only_operation();
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
        let mut fixture = fixture_with_rule_set(
            "rules:\n- {operation: Moving, expression: object.phase == 'Moving', \
             outcome: \"{'Done': 'Succeeded', 'Broken': 'Failed', 'Dropped': 'Superseded'}[object.phase]\"}",
        );
        fixture.apply_phase(phase);
        assert!(
            fixture.take_changes().is_empty(),
            "an outcome must not create an operation"
        );
        fixture.apply_phase("Moving");
        fixture.apply_phase(phase);
        assert_eq!(
            fixture.take_changes(),
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
        let mut fixture = fixture_with(settings(Some(RETENTION)));
        fixture.set_rule_set(
            "rules:\n- {operation: Moving, expression: object.phase == 'Moving', progress: object.done, \
             outcome: \"{'Done': 'Succeeded', 'Broken': 'Failed'}[object.phase]\"}",
        );
        fixture.apply_object(json!({"phase": "Moving", "done": 40}));
        fixture.apply_phase(phase);
        assert_eq!(fixture.only_operation().status.progress, Some(progress));
    }
}

/// Evaluates the rule on `steps`, one after the other. Returns state, reason and message of the
/// completed operation, and the message of its record.
fn last_message(rule: &str, steps: &[Value]) -> (State, String, String, Value) {
    let mut fixture = fixture_with(TrackerSettings {
        max_records: 10,
        ..settings(Some(RETENTION))
    });
    fixture.set_rule_set(&format!("rules:\n- {{{rule}}}"));
    for step in steps {
        fixture.apply_object(step.clone());
    }
    if fixture.only_operation().status.phase == Phase::Active {
        fixture.subject_deleted(subject("vm"));
    }
    let status = fixture.only_operation().status;
    let record = fixture.records.values().next().expect("there is a record");
    let record = json_of(record);
    assert_eq!(record["status"]["outcome"], status.state.name());
    let message = record["status"]["message"].clone();
    (
        status.state,
        status.reason.to_string(),
        status.message.to_string(),
        message,
    )
}

const UPGRADE: &str = "operation: Upgrading, expression: object.is != object.want, \
    message: \"'From ' + object.is + ' to ' + object.want + object.?trouble.orValue('')\", \
    outcome: object.end";

#[test]
fn a_completed_operation_keeps_its_message_although_the_object_has_changed() {
    let upgrade = |is: &str, end: &str| json!({"is": is, "want": "1.66", "end": end});
    let (state, _, message, record) = last_message(
        UPGRADE,
        &[upgrade("1.65", ""), upgrade("1.66", "Succeeded")],
    );
    assert_eq!(state, State::Succeeded);
    assert_eq!(message, "Succeeded. Before: From 1.65 to 1.66");
    assert_eq!(record, message);
}

#[test]
fn a_failed_operation_shows_the_cause_and_what_it_did() {
    let failed = json!({"is": "1.66", "want": "1.66", "end": "Failed", "trouble": ": no space"});
    let before = json!({"is": "1.65", "want": "1.66"});
    let (state, _, message, record) = last_message(UPGRADE, &[before.clone(), failed.clone()]);
    assert_eq!(state, State::Failed);
    assert_eq!(
        message, "From 1.66 to 1.66: no space. Before: From 1.65 to 1.66",
        "without outcomeMessage, `message` names the cause"
    );
    assert_eq!(record, message);
    let rule = format!("{UPGRADE}, outcomeMessage: object.trouble.substring(2)");
    let (_, _, message, _) = last_message(&rule, &[before, failed]);
    assert_eq!(message, "no space. Before: From 1.65 to 1.66");
}

#[test]
fn the_end_of_a_trouble_is_no_success() {
    let rule = |state: &str| {
        format!(
            "operation: NotReady, expression: \"object.ready != 'True'\", message: object.text, \
             state: \"{state}\", outcome: \"'Succeeded'\", outcomeMessage: object.text"
        )
    };
    let steps = [
        json!({"ready": "Unknown", "text": "Kubelet stopped posting node status."}),
        json!({"ready": "True", "text": "kubelet is posting ready status"}),
    ];
    let message =
        "kubelet is posting ready status. Before: Kubelet stopped posting node status.".to_owned();
    let (state, reason, shown, _) = last_message(&rule("'Failing'"), &steps);
    assert_eq!(
        (state, &*reason, &shown),
        (State::Ended, "Recovered", &message)
    );
    // An operation that can also be `Progressing` is work, which can succeed.
    let mixed = rule("object.ready == 'False' ? 'Failing' : 'Progressing'");
    let (state, reason, shown, _) = last_message(&mixed, &steps);
    assert_eq!(
        (state, &*reason, &shown),
        (State::Succeeded, "Succeeded", &message)
    );
}

#[test]
fn the_deletion_of_the_subject_is_the_success_of_an_operation_that_deletes_it() {
    let rule = "operation: Deleting, expression: object.deleting, message: \"'Waits for Pods'\"";
    let deleted = "The subject was deleted. Before: Waits for Pods".to_owned();
    let steps = [json!({"deleting": true})];
    let (state, reason, message, record) =
        last_message(&format!("{rule}, deletesSubject: true"), &steps);
    assert_eq!(
        (state, &*reason, &message),
        (State::Succeeded, "SubjectDeleted", &deleted)
    );
    assert_eq!(record, message);
    let (state, reason, message, _) = last_message(rule, &steps);
    assert_eq!(
        (state, &*reason, &message),
        (State::Ended, "SubjectDeleted", &deleted)
    );
}

#[test]
fn an_outcome_during_the_debounce_period_completes_the_operation() {
    let mut fixture = fixture_with_rule_set(
        "rules:\n- {operation: Moving, expression: object.phase == 'Moving', outcome: \"object.phase == 'Done' ? 'Succeeded' : ''\"}",
    );
    fixture.apply_phase("Moving");
    fixture.apply_phase("Unknown");
    fixture.advance(SECOND);
    assert_eq!(fixture.only_operation().status.state, State::Settling);
    fixture.apply_phase("Done");
    assert!(fixture.shown().is_empty());
    assert_eq!(
        fixture.take_changes().last().map(String::as_str),
        Some("-Moving Succeeded Succeeded")
    );
}

/// The outcome can arrive long after the operation was over. For example, a user starts a virtual
/// machine some time after its disks were filled.
#[test]
fn an_outcome_during_the_debounce_period_does_not_change_the_end() {
    let mut fixture = fixture_with(TrackerSettings {
        max_records: 10,
        ..settings(Some(RETENTION))
    });
    fixture.set_rule_set(
        "rules:\n- {operation: Moving, expression: object.phase == 'Moving', outcome: \"object.phase == 'Done' ? 'Succeeded' : ''\"}",
    );
    fixture.apply_phase("Moving");
    fixture.advance(SECOND);
    fixture.apply_phase("Unknown");
    let over = fixture.now.wall;
    fixture.advance(20 * SECOND);
    fixture.apply_phase("Done");
    let status = fixture.only_operation().status;
    assert_eq!(status.state, State::Succeeded);
    assert_eq!(status.completed.map(|time| time.0), Some(over));
    assert_eq!(status.duration_seconds, Some(1));
    let record = fixture.records.values().next().expect("there is a record");
    let record = json_of(record);
    assert_eq!(record["status"]["completed"], json!(over.to_string()));
}

#[test]
fn another_instance_starts_a_new_operation() {
    let mut fixture = fixture_with_rule_set(
        "rules:\n- {operation: Migrating, expression: object.moving, instance: object.run}",
    );
    let run = |run: &str| json!({"moving": true, "run": run});
    fixture.apply_object(json!({"moving": true}));
    let first = fixture.only_operation();
    fixture.apply_object(run("a"));
    assert_eq!(
        fixture.only_operation().metadata.uid,
        first.metadata.uid,
        "the operation must stay the same when its rule yields an `instance` for the first time"
    );
    fixture.advance(SECOND);
    fixture.apply_object(json!({"moving": true}));
    assert_eq!(
        fixture.only_operation().metadata.uid,
        first.metadata.uid,
        "a missing `instance` must not start a new run"
    );
    fixture.apply_object(run("b"));
    let second = fixture.only_operation();
    assert_ne!(second.metadata.uid, first.metadata.uid);
    assert_eq!(second.metadata.creation_timestamp.0, fixture.now.wall);
    // A new run also starts if the operation is detected again within the debounce period, but with
    // another `instance`.
    fixture.apply_object(json!({"moving": false}));
    fixture.advance(SECOND);
    fixture.apply_object(run("c"));
    assert_ne!(fixture.only_operation().metadata.uid, second.metadata.uid);
    let ends: Vec<_> = fixture
        .take_changes()
        .into_iter()
        .filter(|seen| seen.starts_with('-'))
        .collect();
    assert_eq!(ends, ["-Migrating Ended Replaced"; 2]);
}

#[test]
fn started_at_is_used_unless_it_is_in_the_future() {
    let start = |since: &str| {
        let mut fixture = fixture_with_rule_set(
            "rules:\n- {operation: Moving, expression: 'true', startedAt: object.since}",
        );
        fixture.apply_object(json!({ "since": since }));
        let shown = fixture.only_operation();
        let at = shown.metadata.creation_timestamp.0;
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
fn the_initiator_of_the_start_stays_and_the_command_to_stop_changes() {
    const RULES: &str = "rules:\n- {operation: Moving, expression: object.moving, instance: object.run, \
         initiator: object.by, cancel: \"['stop', object.id]\"}";
    let object =
        |by: &str, id: &str, run: &str| json!({"moving": true, "by": by, "id": id, "run": run});
    let who = |fixture: &TrackerFixture| {
        let shown = fixture.only_operation();
        let texts = [shown.spec.initiator, shown.status.cancel];
        texts.map(|it| it.map(|it| it.to_string()))
    };
    let text = |text: &str| Some(text.to_owned());
    let mut fixture = fixture_with_rule_set(RULES);
    fixture.apply_object(object("ann", "a b", "1"));
    assert_eq!(who(&fixture), [text("ann"), text("stop 'a b'")]);
    fixture.take_changes();
    fixture.apply_object(object("bob", "a b", "1"));
    assert!(fixture.take_changes().is_empty(), "nothing visible changes");
    fixture.apply_object(object("bob", "c", "1"));
    assert_eq!(fixture.take_changes().len(), 1);
    assert_eq!(who(&fixture), [text("ann"), text("stop c")]);

    // A user may have edited a custom resource, so only the next detection shows a command again.
    let mut restarted = fixture.restarted(SECOND);
    assert_eq!(who(&restarted), [text("ann"), None]);
    let mut taken_over = fixture.taken_over(SECOND);
    assert_eq!(who(&taken_over), [text("ann"), text("stop c")]);
    for fixture in [&mut restarted, &mut taken_over] {
        fixture.set_rule_set(RULES);
        fixture.send_event(FeedEvent::Reset);
        fixture.apply_object(object("bob", "d", "1"));
        fixture.send_event(FeedEvent::Synced { missing: None });
        assert_eq!(who(fixture), [text("ann"), text("stop d")]);
    }

    fixture.apply_object(object("bob", "d", "2"));
    assert_eq!(who(&fixture), [text("bob"), text("stop d")], "another run");
    // A missing or too long initiator, and an empty command, are no values.
    fixture.apply_object(json!({"moving": true, "run": "3"}));
    assert_eq!(who(&fixture), [None, None]);
    fixture.apply_object_with_failures(object(&"a".repeat(254), "\n", "4"), 2);
    assert_eq!(who(&fixture), [None, None]);
}

#[test]
fn the_time_of_the_request_stays_and_is_not_after_the_start() {
    const RULES: &str =
        "rules:\n- {operation: Moving, expression: 'true', queuedAt: object.requested}";
    let object = |requested: &str| json!({ "requested": requested });
    let queued = |fixture: &TrackerFixture| {
        let queued = fixture.only_operation().status.queued_at;
        queued.map(|it| it.0.to_string())
    };
    let mut fixture = fixture_with_rule_set(RULES);
    fixture.apply_object(object("2026-11-21T09:59:00.7Z"));
    let expected = Some("2026-11-21T09:59:00Z".to_owned());
    assert_eq!(queued(&fixture), expected);
    fixture.apply_object(object("2026-11-21T09:58:00Z"));
    for mut restored in [fixture.restarted(SECOND), fixture.taken_over(SECOND)] {
        assert_eq!(queued(&restored), expected);
        restored.set_rule_set(RULES);
        restored.send_event(FeedEvent::Reset);
        restored.apply_object(object("2026-11-21T09:58:00Z"));
        restored.send_event(FeedEvent::Synced { missing: None });
        assert_eq!(queued(&restored), expected);
    }
    let mut fixture = fixture_with_rule_set(RULES);
    fixture.apply_object(object("2026-11-21T10:00:01Z"));
    assert_eq!(queued(&fixture), None);
}

#[test]
fn the_record_has_the_initiator_and_the_time_of_the_request_and_a_completed_operation_no_command() {
    let mut fixture = fixture_with(TrackerSettings {
        debounce: DEBOUNCE,
        retain: Some(RETENTION),
        max_records: 10,
        cluster_namespace: "ifo-system".into(),
    });
    fixture.set_rule_set(
        "rules:\n- {operation: Moving, expression: object.phase == 'Moving', initiator: \"'ann'\", \
         queuedAt: \"'2026-11-21T09:59:00Z'\", cancel: \"['stop']\", outcome: \"'Succeeded'\"}",
    );
    fixture.apply_phase("Moving");
    fixture.apply_phase("Done");
    assert_eq!(fixture.only_operation().status.cancel, None);
    let record = fixture.records.values().next().expect("there is a record");
    let record = json_of(record);
    assert_eq!(record["spec"]["initiator"], "ann");
    assert_eq!(record["status"]["queuedAt"], "2026-11-21T09:59:00Z");
}

#[test]
fn another_run_with_the_same_started_at_gets_another_name() {
    let mut fixture = fixture_with_rule_set(
        "rules:\n- {operation: Moving, expression: object.moving, startedAt: \"'2026-11-21T09:30:00Z'\", debounce: 10s}",
    );
    fixture.apply_object(json!({"moving": true}));
    let first = fixture.only_operation();
    fixture.apply_object(json!({"moving": false}));
    fixture.advance(11 * SECOND);
    assert!(fixture.shown().is_empty());
    fixture.advance(60 * SECOND);
    fixture.apply_object(json!({"moving": true}));
    let second = fixture.only_operation();
    assert_ne!(first.metadata.name, second.metadata.name);
    assert_eq!(
        second.metadata.creation_timestamp.0.to_string(),
        "2026-11-21T09:30:01Z"
    );
}

#[test]
fn the_debounce_of_the_rule_applies() {
    let mut fixture = fixture_with_rule_set(
        "rules:\n- {operation: Long, expression: object.on, debounce: 2m}\n- {operation: Usual, expression: object.on}\n- {operation: None, expression: object.on, debounce: 0s}",
    );
    fixture.apply_object(json!({"on": true}));
    assert_eq!(fixture.shown().len(), 3);
    fixture.apply_object(json!({"on": false}));
    let names = |fixture: &TrackerFixture| -> Vec<Text> {
        fixture
            .shown()
            .into_iter()
            .map(|o| o.spec.operation)
            .collect()
    };
    assert_eq!(names(&fixture), ["Long", "Usual"]);
    fixture.advance(DEBOUNCE);
    assert_eq!(names(&fixture), ["Long"]);
    fixture.advance(90 * SECOND);
    assert!(fixture.shown().is_empty());
}

#[test]
fn an_operation_appears_after_uninterrupted_detection_for_appear_after() {
    let mut fixture = fixture_with_rule_set(
        "rules:\n- {operation: Stuck, expression: object.stuck, appearAfter: 10s}",
    );
    let began = fixture.now.wall;
    fixture.apply_object(json!({"stuck": true}));
    fixture.advance(9 * SECOND);
    fixture.apply_object(json!({"stuck": false}));
    fixture.apply_object(json!({"stuck": true}));
    fixture.advance(9 * SECOND);
    assert!(
        fixture.shown().is_empty(),
        "an interrupted detection must restart `appearAfter`"
    );
    fixture.advance(SECOND);
    let start = fixture.only_operation().metadata.creation_timestamp.0;
    assert_eq!(
        start,
        began + 9 * SECOND,
        "the start must be the beginning of the uninterrupted detection"
    );
}

#[test]
fn an_operation_that_waits_for_appear_after_does_not_appear_while_the_watch_is_interrupted() {
    let mut fixture = fixture_with_rule_set(
        "rules:\n- {operation: Stuck, expression: object.stuck, appearAfter: 10s}",
    );
    fixture.apply_object(json!({"stuck": true}));
    fixture.send_event(FeedEvent::Lost);
    fixture.advance(20 * SECOND);
    assert!(fixture.shown().is_empty());
    fixture.send_event(FeedEvent::Reset);
    fixture.apply_object(json!({"stuck": true}));
    fixture.send_event(FeedEvent::Synced { missing: None });
    assert_eq!(fixture.shown().len(), 1);
}

#[test]
fn an_operation_that_waits_for_appear_after_is_dropped_with_its_subject_or_rule() {
    let rules = "rules:\n- {operation: Stuck, expression: object.stuck, appearAfter: 10s}";
    let mut fixture = fixture_with_rule_set(rules);
    fixture.apply_object(json!({"stuck": true}));
    fixture.subject_deleted(subject("vm"));
    fixture.advance(20 * SECOND);
    assert!(fixture.shown().is_empty());
    fixture.apply_object(json!({"stuck": true}));
    fixture.set_rule_set("rules:\n- {operation: Other, expression: 'false'}");
    fixture.advance(20 * SECOND);
    assert!(fixture.shown().is_empty());
}

const STOPPING: &str = "rules:\n\
    - {operation: Migrating, expression: object.phase == 'Migrating'}\n\
    - {operation: Stopping, expression: object.phase == 'Stopping', supersedes: [Migrating], \
       outcome: \"object.phase == 'Stopped' ? 'Succeeded' : ''\"}";

#[test]
fn a_superseded_migration_does_not_restart_while_the_vm_stops() {
    let mut fixture = fixture_with_rule_set(STOPPING);
    for phase in ["Migrating", "Stopping", "Migrating", "Stopped"] {
        fixture.apply_phase(phase);
        fixture.advance(SECOND / 2);
    }
    assert_eq!(
        fixture.take_changes(),
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
fn a_superseded_operation_that_is_still_detected_starts_again_when_the_other_operation_completes() {
    let mut fixture = fixture_with_rule_set(STOPPING);
    fixture.apply_phase("Stopping");
    fixture.apply_phase("Migrating");
    fixture.advance(DEBOUNCE);
    assert_eq!(fixture.only_operation().spec.operation, "Migrating");
}

#[test]
fn operations_that_supersede_each_other_complete_without_debounce() {
    let mut fixture = fixture_with_rule_set(
        "rules:\n- {operation: Pending, expression: object.phase == 'Pending', supersedes: [Running]}\n- {operation: Running, expression: object.phase == 'Running', supersedes: [Pending]}",
    );
    fixture.apply_phase("Pending");
    fixture.apply_phase("Running");
    assert_eq!(fixture.only_operation().spec.operation, "Running");
    fixture.apply_phase("Pending");
    assert_eq!(fixture.only_operation().spec.operation, "Pending");
    let ended = fixture.take_changes();
    assert!(ended.contains(&"~Pending Superseded Superseded".to_owned()));
}

#[test]
fn the_message_of_a_superseded_operation_names_the_other_operation() {
    let mut fixture_with_retention = fixture_with(settings(Some(RETENTION)));
    fixture_with_retention.set_rule_set(STOPPING);
    fixture_with_retention.apply_phase("Migrating");
    fixture_with_retention.apply_phase("Stopping");
    let shown = fixture_with_retention.shown();
    let ended = shown
        .iter()
        .find(|object| object.spec.operation == "Migrating")
        .expect("the operation must be retained");
    assert_eq!(ended.status.phase, Phase::Completed);
    assert_eq!(ended.status.message, "Superseded by Stopping.");
}

#[test]
fn each_element_has_its_own_operation() {
    let mut fixture = fixture_with_rule_set(
        "rules:\n- {operation: Copying, forEach: object.parts, itemKey: item.name, expression: \"item.phase == 'Copying'\", progress: item.done, \
         outcome: \"item.phase == 'Done' ? 'Succeeded' : ''\"}",
    );
    let parts = |a: &str, b: &str| json!({"parts": [{"name": "a", "phase": a, "done": 5}, {"name": "b", "phase": b, "done": 6}]});
    fixture.apply_object(parts("Copying", "Copying"));
    let shown = fixture.shown();
    let items: Vec<_> = shown
        .iter()
        .map(|object| object.spec.item.as_deref())
        .collect();
    assert!(
        items.contains(&Some("a")) && items.contains(&Some("b")),
        "{items:?}"
    );
    assert_ne!(shown[0].metadata.name, shown[1].metadata.name);
    fixture.apply_object(parts("Copying", "Done"));
    assert_eq!(fixture.only_operation().spec.item.as_deref(), Some("a"));
    // If an element is removed from the list, the debounce period of its operation starts.
    fixture.apply_object(json!({"parts": []}));
    assert_eq!(fixture.only_operation().status.state, State::Settling);
    fixture.apply_object(parts("Copying", "Done"));
    fixture.advance(DEBOUNCE);
    assert_eq!(fixture.only_operation().status.state, State::Progressing);
}

#[test]
fn an_element_that_cannot_be_evaluated_ends_no_operation() {
    let mut fixture = fixture_with_rule_set(
        "rules:\n- {operation: Copying, forEach: object.parts, itemKey: item.name, expression: \"item.phase == 'Copying'\"}",
    );
    let part = |name: Value, phase: &str| json!({"name": name, "phase": phase});
    let parts = |parts: &[Value]| json!({ "parts": parts });
    let (a, b) = (part("a".into(), "Copying"), part("b".into(), "Copying"));
    let b_ended = part("b".into(), "Done");
    let items = |fixture: &TrackerFixture| -> Vec<Text> {
        let shown = fixture.shown().into_iter();
        shown.filter_map(|it| it.spec.item).collect()
    };
    let too_many: Vec<Value> = std::iter::once(b_ended.clone())
        .chain((0..1_000).map(|key| part(key.into(), "Done")))
        .chain([a.clone()])
        .collect();
    let failing = |a: Value| vec![a, b_ended.clone()];
    for list in [
        failing(part(json!(["a"]), "Copying")),
        failing(part("".into(), "Copying")),
        failing(part("a".repeat(254).into(), "Copying")),
        too_many,
    ] {
        fixture.apply_object(parts(&[a.clone(), b.clone()]));
        assert_eq!(items(&fixture).len(), 2);
        fixture.apply_object_with_failures(parts(&list), 1);
        fixture.advance(DEBOUNCE);
        assert_eq!(items(&fixture).len(), 2, "the operations stay as they were");
        let states = fixture.shown().into_iter().map(|it| it.status.state);
        assert!(states.into_iter().all(|it| it == State::Progressing));
    }
    fixture.apply_object(parts(&[b_ended]));
    fixture.advance(DEBOUNCE);
    assert!(fixture.shown().is_empty());
}

#[test]
fn operations_of_a_subject_whose_labels_no_longer_match_complete_after_the_debounce_period() {
    let mut fixture = fixture_with_rule_set(
        "labelSelector: {matchLabels: {tier: web}}\nrules:\n- {operation: Moving, expression: 'true'}",
    );
    let labelled = |tier: &str| json!({"metadata": {"labels": {"tier": tier}}});
    fixture.apply_object(labelled("web"));
    fixture.apply_object(labelled("db"));
    assert_eq!(fixture.only_operation().status.state, State::Settling);
    fixture.apply_object(labelled("web"));
    assert_eq!(
        fixture.only_operation().status.state,
        State::Progressing,
        "the operation must continue when the labels match again"
    );
    fixture.apply_object(labelled("db"));
    fixture.advance(DEBOUNCE);
    assert_eq!(
        fixture.take_changes().last().map(String::as_str),
        Some("-Moving Ended SelectorLeft")
    );
}

#[test]
fn an_object_missing_from_a_selected_list_is_looked_up_before_its_operations_end() {
    let mut fixture = fixture_with_rule_set(
        "labelSelector: {matchLabels: {tier: web}}\nrules:\n- {operation: Moving, expression: 'true'}",
    );
    fixture.apply_object(json!({"metadata": {"labels": {"tier": "web"}}}));
    fixture.send_event(FeedEvent::Reset);
    let (sender, mut answer) = tokio::sync::oneshot::channel();
    fixture.send_event(FeedEvent::Synced {
        missing: Some(sender),
    });
    let missing = answer
        .try_recv()
        .expect("the tracker must send the missing subjects");
    assert_eq!(missing.len(), 1);
    assert_eq!(
        fixture.only_operation().status.state,
        State::Progressing,
        "the operation must stay until the object has been looked up"
    );
    let evaluation = detect::unselected(&fixture.book, missing[0].clone());
    fixture.send_event(FeedEvent::Evaluated {
        evaluation: Box::new(evaluation),
        read: Instant::now(),
    });
    fixture.advance(DEBOUNCE);
    assert_eq!(
        fixture.take_changes().last().map(String::as_str),
        Some("-Moving Ended SelectorLeft")
    );
}
