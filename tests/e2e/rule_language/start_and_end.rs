//! Tests of the rule fields that decide when an operation starts, ends, is replaced or changes its
//! state:
//!
//! - `instance`: if this value changes, the operation ends, and a new operation starts.
//! - `appearAfter`: clients see the operation after a rule has detected it for this time.
//! - `stateAfter`: clients see `Blocked` or `Failing` after this state has lasted for this time.
//! - `supersedes`: when this operation starts, these other operations of the subject end.
//! - `debounce`: an operation that no rule detects any more is `Settling` for this time, and then
//!   ends.
//!
//! Another test has a rule that reads `now`, the current time.

use super::event_lines;
use crate::harness::{
    DATA_VOLUME, DEADLINE, Events, TestCluster, VM, condition, crd, migrating, rule_set, shared,
    text, without_gaps,
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Returns the rule set of [`migrating`] for `namespace`, but with the given rules.
fn rule_set_with(namespace: &str, rules: &Value) -> Value {
    let mut all = migrating(namespace);
    all["spec"]["rules"] = rules.clone();
    all
}

fn machine(name: &str, status: &Value) -> Value {
    json!({
        "apiVersion": VM.api_version, "kind": VM.kind, "metadata": {"name": name},
        "status": status,
    })
}

#[test]
fn a_new_instance_of_an_operation_replaces_the_previous_one() {
    shared(async |cluster| {
        let namespace = cluster.namespace("runs").await;
        let mut set = migrating(namespace);
        set["spec"]["rules"][0]["instance"] = json!("object.status.migrationUID");
        cluster.ready_rule_set(&set).await;
        let mut events = cluster.watch(namespace).await;
        let first = machine(
            "a",
            &json!({"printableStatus": "Migrating", "migrationUID": "1"}),
        );
        cluster.create(&VM, Some(namespace), &first).await;
        cluster
            .until_operations(namespace, &[("a", "Migrating")])
            .await;
        let path = format!("{}/a", VM.path(Some(namespace)));
        let second = json!({"status": {"migrationUID": "2"}});
        cluster.admin.merge(&path, &second).await.ok();
        let replaced = "Another run of the operation took over.";
        let want = [
            "ADDED Active Progressing Migrating -: ".to_owned(),
            format!("MODIFIED Completed Ended Replaced -: {replaced}"),
            format!("DELETED Completed Ended Replaced -: {replaced}"),
            "ADDED Active Progressing Migrating -: ".to_owned(),
        ];
        let all = events
            .until("the second instance", |all| {
                (event_lines(all, "a", "Migrating", None) == want).then(|| all.to_vec())
            })
            .await;
        for field in ["/object/metadata/uid", "/object/metadata/name"] {
            let of = |event: usize| text(&all[event], field);
            assert_eq!(of(0), of(1), "{field}");
            assert_eq!(of(0), of(2), "{field}");
            assert_ne!(of(0), of(3), "{field}");
        }
        let start = |event: usize| text(&all[event], "/object/metadata/creationTimestamp");
        assert!(start(0) < start(3), "{} {}", start(0), start(3));
    });
}

#[test]
fn an_operation_appears_after_appear_after_and_a_flapping_one_does_not() {
    shared(async |cluster| {
        let namespace = cluster.namespace("patient").await;
        let moving = "object.status.printableStatus == 'Migrating'";
        let set = rule_set_with(
            namespace,
            &json!([
                {"operation": "Prompt", "expression": moving},
                {"operation": "Patient", "expression": moving, "appearAfter": "4s"},
                {"operation": "VeryPatient", "expression": moving, "appearAfter": "24h"},
            ]),
        );
        cluster.ready_rule_set(&set).await;
        let mut events = cluster.watch(namespace).await;
        let (stays, all) = wait_until_only_stays_has_patient(cluster, namespace, &mut events).await;
        let find = |operation: &str| {
            let mut events = all.iter().enumerate();
            events
                .find(|(_, event)| {
                    let spec = &event["object"]["spec"];
                    spec["subject"]["name"] == stays && spec["operation"] == operation
                })
                .expect("both operations must have appeared")
        };
        let ((first, prompt), (then, patient)) = (find("Prompt"), find("Patient"));
        assert!(first < then);
        // `appearAfter` delays the appearance of an operation, but not its start. So both
        // operations must have the same start.
        let start = "/object/metadata/creationTimestamp";
        assert_eq!(text(prompt, start), text(patient, start));
        cluster.set_status(namespace, &stays, "Running").await;
        let all = events
            .until("both operations have ended", |all| {
                let has_ended = |operation| {
                    let life = event_lines(all, &stays, operation, None);
                    life.last().is_some_and(|last| last.starts_with("DELETED"))
                };
                (has_ended("Prompt") && has_ended("Patient")).then(|| all.to_vec())
            })
            .await;
        let very = all
            .iter()
            .find(|event| event["object"]["spec"]["operation"] == "VeryPatient");
        assert_eq!(very, None);
    });
}

/// Creates two VirtualMachines: `flaps` migrates only for a moment, and `stays` keeps migrating.
/// Waits until the operation `Patient` appears on `stays`. Returns the name of `stays` and all
/// events.
///
/// `Patient` must not appear on `flaps`. But on a busy machine, `flaps` can migrate for longer than
/// `appearAfter` (4 s). Then `Patient` appears on `flaps`, and the function tries again with two
/// new VirtualMachines. After the [`DEADLINE`], it fails.
async fn wait_until_only_stays_has_patient(
    cluster: &TestCluster,
    namespace: &str,
    events: &mut Events,
) -> (String, Vec<Value>) {
    let started = Instant::now();
    for attempt in 0.. {
        let (flaps, stays) = (format!("flaps-{attempt}"), format!("stays-{attempt}"));
        cluster.machine(namespace, &flaps, "Migrating").await;
        cluster.set_status(namespace, &flaps, "Running").await;
        cluster.machine(namespace, &stays, "Migrating").await;
        let all = events
            .until("the operation Patient", |all| {
                (!event_lines(all, &stays, "Patient", None).is_empty()).then(|| all.to_vec())
            })
            .await;
        // `flaps` began to migrate before `stays`. So if `Patient` wrongly appears on `flaps`, it
        // appears there before it appears on `stays`.
        if event_lines(&all, &flaps, "Patient", None).is_empty() {
            return (stays, all);
        }
        let seconds = detected_for(&all, &flaps, "Prompt");
        assert!(
            seconds >= 3,
            "Patient appeared on an object that migrated for {seconds} s: {all:?}"
        );
        assert!(
            started.elapsed() < DEADLINE,
            "in all attempts, the migration of the first VirtualMachine took longer than appearAfter"
        );
    }
    unreachable!("the loop ends at the deadline")
}

/// Returns the number of seconds from the start of an operation until it became `Settling`. Both
/// times are rounded down to whole seconds. Returns `i64::MAX` if the operation did not become
/// `Settling`.
fn detected_for(events: &[Value], subject: &str, operation: &str) -> i64 {
    let settling = events.iter().map(|event| &event["object"]).find(|object| {
        object["spec"]["subject"]["name"] == subject
            && object["spec"]["operation"] == operation
            && object["status"]["state"] == "Settling"
    });
    let Some(settling) = settling else {
        return i64::MAX;
    };
    let second = |value: &str| -> i64 {
        let time: jiff::Timestamp = value.parse().expect("the value must be a time");
        time.as_second()
    };
    let end = text(condition(settling, "Detected"), "/lastTransitionTime");
    second(end) - second(text(settling, "/metadata/creationTimestamp"))
}

#[test]
fn a_state_appears_after_state_after_and_progressing_appears_at_once() {
    shared(async |cluster| {
        let namespace = cluster.namespace("states").await;
        let rule = |operation: &str| {
            json!({
                "operation": operation, "expression": "object.status.moving",
                "state": "object.status.how",
            })
        };
        let mut all = [rule("Prompt"), rule("Patient"), rule("VeryPatient")];
        all[1]["stateAfter"] = json!("4s");
        all[2]["stateAfter"] = json!("24h");
        cluster
            .ready_rule_set(&rule_set_with(namespace, &json!(all)))
            .await;
        let mut events = cluster.watch(namespace).await;
        let object = machine("a", &json!({"moving": true, "how": "Progressing"}));
        cluster.create(&VM, Some(namespace), &object).await;
        let operations = ["Patient", "Prompt", "VeryPatient"].map(|name| ("a", name));
        cluster.until_operations(namespace, &operations).await;
        let path = format!("{}/a", VM.path(Some(namespace)));
        let patch = async |status: Value| {
            let status = json!({ "status": status });
            cluster.admin.merge(&path, &status).await.ok()
        };
        let blocked = patch(json!({"how": "Blocked"})).await;
        let shown = |state: &str, operation: &str| format!("{state} {operation} -: ");
        let begins = |operation: &str| {
            vec![
                shown("ADDED Active Progressing", operation),
                shown("MODIFIED Active Blocked", operation),
            ]
        };
        let seen = events
            .until("the operation Patient is Blocked", |all| {
                (event_lines(all, "a", "Patient", None) == begins("Patient")).then(|| all.to_vec())
            })
            .await;
        assert_eq!(event_lines(&seen, "a", "Prompt", None), begins("Prompt"));
        // `Blocked` must appear at least 4 s after the change of the object. Both times are rounded
        // down to whole seconds, so the difference of the rounded times must also be at least 4.
        let second = |text: &str| -> i64 {
            let time: jiff::Timestamp = text.parse().expect("the value must be a time");
            time.as_second()
        };
        let last = seen.iter().rfind(|event| {
            let object = &event["object"];
            object["spec"]["operation"] == "Patient" && object["status"]["state"] == "Blocked"
        });
        let last = text(
            last.expect("the test has waited for this event"),
            "/object/status/lastDetected",
        );
        let fields = blocked["metadata"]["managedFields"].as_array();
        let changes = fields.expect("a changed object has managedFields").iter();
        let changed = changes.map(|it| second(text(it, "/time"))).max();
        assert!(
            second(last) >= changed.expect("managedFields have times") + 4,
            "{last}"
        );
        patch(json!({"how": "Progressing"})).await;
        events
            .until("the operation is Progressing again", |all| {
                let mut want = begins("Patient");
                want.push(shown("MODIFIED Active Progressing", "Patient"));
                (event_lines(all, "a", "Patient", None) == want).then_some(())
            })
            .await;
        // The operation `VeryPatient` ends before `Failing` has lasted for its `stateAfter` (24 h).
        // So the state `Failing` must never appear.
        patch(json!({"how": "Failing"})).await;
        patch(json!({"moving": false})).await;
        let over = "No rule detects the operation any more.";
        let want = [
            shown("ADDED Active Progressing", "VeryPatient"),
            shown("MODIFIED Active Settling", "VeryPatient"),
            format!("MODIFIED Completed Ended NotDetected -: {over}"),
            format!("DELETED Completed Ended NotDetected -: {over}"),
        ];
        events
            .until("the operation VeryPatient has ended", |all| {
                (event_lines(all, "a", "VeryPatient", None) == want).then_some(())
            })
            .await;
    });
}

#[test]
fn a_time_dependent_rule_is_evaluated_again_without_a_change_of_the_object() {
    shared(async |cluster| {
        let namespace = cluster.namespace("now").await;
        let during = "timestamp(object.spec.from) <= now && now < timestamp(object.spec.to)";
        cluster.apply(&[crd(&DATA_VOLUME, "Namespaced")]).await;
        let (group, version) = DATA_VOLUME.group_version();
        let mut set = rule_set_with(
            namespace,
            &json!([
                {"operation": "Overdue", "expression": during, "message": "'since ' + object.spec.from"},
                // Every object of this test has the field `from`, so this rule always detects its
                // operation. The start of `Waiting` shows when the server has read the object.
                {"operation": "Waiting", "expression": "has(object.spec.from)"},
            ]),
        );
        set["spec"]["target"] =
            json!({"group": group, "version": version, "resource": DATA_VOLUME.plural});
        cluster.ready_rule_set(&set).await;
        let mut events = cluster.watch(namespace).await;
        // The operation `Overdue` must start some seconds after the creation of the object, at the
        // time `from`. On a busy machine, the server can read the object after this time. Then the
        // test tries again with another object and more seconds.
        let mut attempts = [3, 10, 30, 60].into_iter();
        let (name, from, object, all) = loop {
            let seconds = attempts
                .next()
                .expect("the creation of an object must take less than a minute");
            let name = format!("a-{seconds}");
            #[expect(
                clippy::disallowed_methods,
                reason = "the server under test is another process, and reads the same clock"
            )]
            let from = jiff::Timestamp::now() + Duration::from_secs(seconds);
            let to = from + Duration::from_secs(2 * seconds);
            let mut object = json!({
                "apiVersion": DATA_VOLUME.api_version, "kind": DATA_VOLUME.kind, "metadata": {"name": name},
            });
            object["spec"] = json!({"from": from.to_string(), "to": to.to_string()});
            let object = cluster.create(&DATA_VOLUME, Some(namespace), &object).await;
            let message = format!("since {from}");
            let over = "No rule detects the operation any more.";
            let want = [
                format!("ADDED Active Progressing Overdue -: {message}"),
                format!("MODIFIED Active Settling Overdue -: {message}"),
                format!("MODIFIED Completed Ended NotDetected -: {over} Before: {message}"),
                format!("DELETED Completed Ended NotDetected -: {over} Before: {message}"),
            ];
            let started_and_ended = events.until("the operation starts and ends", |all| {
                (event_lines(all, &name, "Overdue", None) == want).then(|| all.to_vec())
            });
            let waited = tokio::time::timeout(Duration::from_secs(5 * seconds), started_and_ended);
            // Returns true if the server read the object before the time `from`.
            let was_early = |all: &Vec<Value>| {
                let is_early = |it: &Value| {
                    it["object"]["spec"]["subject"]["name"] == name
                        && it["object"]["spec"]["operation"] == "Waiting"
                        && *text(it, "/object/metadata/creationTimestamp") < *from.to_string()
                };
                all.iter().any(is_early)
            };
            match waited.await {
                Ok(all) if was_early(&all) => break (name, from, object, all),
                _ => eprintln!("the server read the object too late for {seconds} s; trying again"),
            }
        };
        assert_eq!(
            event_lines(&all, &name, "Waiting", None),
            ["ADDED Active Progressing Waiting -: "]
        );
        let overdue = all.iter().map(|event| &event["object"]).find(|object| {
            object["spec"]["subject"]["name"] == name && object["spec"]["operation"] == "Overdue"
        });
        let overdue = overdue.expect("the loop ends only after the operation has appeared");
        let started = text(overdue, "/metadata/creationTimestamp");
        let started: jiff::Timestamp = started.parse().expect("the start must be a time");
        assert!(started.as_second() >= from.as_second(), "{started} {from}");
        let path = format!("{}/{name}", DATA_VOLUME.path(Some(namespace)));
        let after = cluster.admin.get(&path).await.ok();
        assert_eq!(
            after["metadata"]["resourceVersion"],
            object["metadata"]["resourceVersion"]
        );
    });
}

#[test]
fn a_superseding_operation_ends_the_other_at_once_and_blocks_its_restart() {
    shared(async |cluster| {
        let namespace = cluster.namespace("supersedes").await;
        let set = rule_set_with(
            namespace,
            &json!([
                {"operation": "Migrating", "expression": "object.status.migrating"},
                {"operation": "Stopping", "expression": "object.status.stopping", "supersedes": ["*"]},
                {"operation": "Renaming", "expression": "object.status.renaming"},
            ]),
        );
        cluster.ready_rule_set(&set).await;
        let mut events = cluster.watch(namespace).await;
        cluster
            .create(
                &VM,
                Some(namespace),
                &machine("a", &json!({"migrating": true})),
            )
            .await;
        cluster
            .until_operations(namespace, &[("a", "Migrating")])
            .await;
        let path = format!("{}/a", VM.path(Some(namespace)));
        let patch = async |status: Value| {
            cluster
                .admin
                .merge(&path, &json!({"status": status}))
                .await
                .ok();
        };
        // The operation `Stopping` is detected while `Migrating` is in flight.
        patch(json!({"stopping": true})).await;
        events
            .until("the operation Stopping", |all| {
                (!event_lines(all, "a", "Stopping", None).is_empty()).then_some(())
            })
            .await;
        patch(json!({"renaming": true})).await;
        patch(json!({"migrating": false, "renaming": false, "stopping": false})).await;
        let over = "No rule detects the operation any more.";
        let stopping = [
            "ADDED Active Progressing Stopping -: ".to_owned(),
            "MODIFIED Active Settling Stopping -: ".to_owned(),
            format!("MODIFIED Completed Ended NotDetected -: {over}"),
            format!("DELETED Completed Ended NotDetected -: {over}"),
        ];
        let all = events
            .until("the operation Stopping has ended", |all| {
                (event_lines(all, "a", "Stopping", None) == stopping).then(|| all.to_vec())
            })
            .await;
        assert_eq!(
            event_lines(&all, "a", "Migrating", None),
            [
                "ADDED Active Progressing Migrating -: ",
                "MODIFIED Completed Superseded Superseded -: Superseded by Stopping.",
                "DELETED Completed Superseded Superseded -: Superseded by Stopping.",
            ]
        );
        assert!(event_lines(&all, "a", "Renaming", None).is_empty());
        let order: Vec<&str> = without_gaps(&all)
            .into_iter()
            .map(|event| text(event, "/object/spec/operation"))
            .collect();
        assert_eq!(
            order[..4],
            ["Migrating", "Migrating", "Migrating", "Stopping"]
        );
    });
}

#[test]
fn the_debounce_of_a_rule_overrides_the_default() {
    shared(async |cluster| {
        let namespace = cluster.namespace("debounce").await;
        let moving = "object.status.printableStatus == 'Migrating'";
        let mut set = rule_set(namespace, &VM, &[("Brief", moving), ("Lasting", moving)]);
        set["spec"]["namespaces"] = json!([namespace]);
        set["spec"]["rules"][1]["debounce"] = json!("1h30m");
        cluster.ready_rule_set(&set).await;
        let mut events = cluster.watch(namespace).await;
        cluster.machine(namespace, "a", "Migrating").await;
        cluster
            .until_operations(namespace, &[("a", "Brief"), ("a", "Lasting")])
            .await;
        cluster.set_status(namespace, "a", "Running").await;
        let all = events
            .until("the operation with the default debounce has ended", |all| {
                let life = event_lines(all, "a", "Brief", None);
                let has_ended = life.last().is_some_and(|last| last.starts_with("DELETED"));
                has_ended.then(|| all.to_vec())
            })
            .await;
        assert_eq!(
            event_lines(&all, "a", "Lasting", None),
            [
                "ADDED Active Progressing Lasting -: ",
                "MODIFIED Active Settling Lasting -: ",
            ]
        );
    });
}
