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
