//! Tests of the rule fields that define what an operation shows: `message`, `reason`, `state`,
//! `progress` and `startedAt`.

use super::event_lines;
use crate::harness::{
    TestCluster, VM, columns, condition, eventually, migrating, ok_if, shared, text,
};
use serde_json::{Value, json};

/// Returns the rule set of [`migrating`] for this namespace, with these additional fields in its
/// rule.
fn with(namespace: &str, fields: &Value) -> Value {
    let mut rules = migrating(namespace);
    let rule = rules["spec"]["rules"][0].as_object_mut();
    let rule = rule.expect("a rule is an object");
    rule.extend(fields.as_object().expect("fields are an object").clone());
    rules
}

async fn patch(cluster: &TestCluster, namespace: &str, name: &str, status: &Value) {
    let path = format!("{}/{name}", VM.path(Some(namespace)));
    cluster
        .admin
        .merge(&path, &json!({"status": status}))
        .await
        .ok();
}

/// A user chooses the name of the disk, so that it would be several commands without quotes.
#[test]
fn the_initiator_is_selectable_the_request_stays_and_the_command_to_stop_is_quoted() {
    shared(async |cluster| {
        let namespace = cluster.namespace("initiator").await;
        let fields = json!({
            "initiator": "object.status.by",
            "queuedAt": "object.status.requested",
            "cancel": "['virtctl', 'removevolume', object.metadata.name, '--volume-name', object.status.disk]",
        });
        cluster.ready_rule_set(&with(namespace, &fields)).await;
        for (name, by) in [("a", "ann"), ("b", "bob")] {
            let machine = json!({
                "apiVersion": VM.api_version, "kind": VM.kind, "metadata": {"name": name},
                "status": {"printableStatus": "Migrating", "by": by, "disk": "d'; rm -rf $HOME #",
                           "requested": "2020-01-01T00:00:00Z"},
            });
            cluster.create(&VM, Some(namespace), &machine).await;
        }
        let both = [("a", "Migrating"), ("b", "Migrating")];
        let operations = cluster.until_operations(namespace, &both).await;
        assert_eq!(operations[0]["spec"]["initiator"], "ann");
        assert_eq!(operations[0]["status"]["queuedAt"], "2020-01-01T00:00:00Z");
        assert_eq!(
            operations[0]["status"]["cancel"],
            r"virtctl removevolume a --volume-name 'd'\''; rm -rf $HOME #'"
        );
        // The initiator and the request of the start stay, and the command follows the object.
        let later = json!({"by": "eve", "disk": "e", "requested": "2021-01-01T00:00:00Z"});
        patch(cluster, namespace, "a", &later).await;
        eventually("the command changes", async || {
            let now = cluster.until_operations(namespace, &both).await.remove(0);
            let command = "virtctl removevolume a --volume-name e";
            ok_if(now["status"]["cancel"] == command, &now)?;
            ok_if(now["spec"]["initiator"] == "ann", &now)?;
            ok_if(now["status"]["queuedAt"] == "2020-01-01T00:00:00Z", &now)
        })
        .await;
        let get = ["get", "ifos", "-n", namespace, "-o", "wide"];
        for (by, subject) in [("ann", "a"), ("bob", "b")] {
            let selector = format!("--field-selector=spec.initiator={by}");
            let table = cluster.kubectl(&[&get[..], &[&selector]].concat()).await;
            let table = table.expect("kubectl lists operations");
            let rows: Vec<Vec<&str>> = table.lines().map(columns).collect();
            assert!(rows.len() == 2 && rows[0].contains(&"INITIATOR"), "{table}");
            let is_there = rows[1].contains(&by) && rows[1][2].ends_with(&format!("/{subject}"));
            assert!(is_there, "{table}");
        }
    });
}

#[test]
fn state_reason_message_progress_and_start_are_in_the_table_and_in_the_object() {
    shared(async |cluster| {
        let namespace = cluster.namespace("details").await;
        let mut rules = with(
            namespace,
            &json!({
                "message": "'to %s'.format([variables.target])",
                "reason": "object.status.step",
                "state": "object.status.held ? 'Blocked' : 'Progressing'",
                "progress": "object.status.done",
                "startedAt": "object.status.since",
            }),
        );
        rules["spec"]["variables"] =
            json!([{"name": "target", "expression": "object.status.targetNode"}]);
        cluster.ready_rule_set(&rules).await;
        let mut events = cluster.watch(namespace).await;
        let since = "2020-01-01T00:00:00Z";
        let machine = json!({
            "apiVersion": VM.api_version, "kind": VM.kind, "metadata": {"name": "a"},
            "status": {
                "printableStatus": "Migrating", "targetNode": "node-1", "step": "PreCopy",
                "held": true, "done": "45.20%", "since": since,
            },
        });
        cluster.create(&VM, Some(namespace), &machine).await;
        let operation = cluster
            .until_operations(namespace, &[("a", "Migrating")])
            .await
            .remove(0);
        let status = &operation["status"];
        assert_eq!(status["state"], "Blocked");
        assert_eq!(status["reason"], "PreCopy");
        assert_eq!(status["message"], "to node-1");
        assert_eq!(status["progress"], 45);
        assert_eq!(operation["metadata"]["creationTimestamp"], since);
        assert_eq!(status["startTimeSource"], "Expression");
        let progressing = condition(&operation, "Progressing");
        assert_eq!(progressing["status"], "True");
        assert_eq!(progressing["reason"], "PreCopy");
        assert_eq!(progressing["message"], "to node-1");

        let get = ["get", "ifos", "-n", namespace];
        let table = cluster
            .kubectl(&get)
            .await
            .expect("kubectl must list operations");
        let row = columns(table.lines().nth(1).expect("the table must have a row"));
        assert!(row[0].ends_with("/a"), "{table}");
        assert_eq!(row[1..3], ["Migrating", "Blocked 45%"], "{table}");
        assert_eq!(row[4..], ["to node-1"], "{table}");
        let yaml = cluster.kubectl(&[&get[..], &["-o", "yaml"]].concat()).await;
        let yaml = yaml.expect("kubectl must list operations");
        let list: Value = serde_saphyr::from_str(&yaml).expect("kubectl must print YAML");
        assert_eq!(list["items"][0]["status"], *status, "{yaml}");

        // Each patch below changes a field that the rule reads, so it must cause one event.
        let mut want = vec!["ADDED Active Blocked PreCopy 45: to node-1"];
        for (status, expected) in [
            (
                json!({"held": false, "done": 46}),
                "MODIFIED Active Progressing PreCopy 46: to node-1",
            ),
            (
                json!({"targetNode": null, "step": null, "done": null, "held": null}),
                "MODIFIED Active Progressing Migrating -: ",
            ),
            (
                // The server evaluates `startedAt` only at the start of an operation. So this
                // change of `since` must not change the start.
                json!({"since": "2021-01-01T00:00:00Z", "step": "PostCopy"}),
                "MODIFIED Active Progressing PostCopy -: ",
            ),
        ] {
            patch(cluster, namespace, "a", &status).await;
            want.push(expected);
            events
                .until(expected, |all| {
                    (event_lines(all, "a", "Migrating", None) == want).then_some(())
                })
                .await;
        }
        // The rule does not read the field `spare`, so a change of this field must cause no event.
        // The server reads this change before it reads the new VirtualMachine `b`. So the test
        // waits for an event about `b`.
        patch(cluster, namespace, "a", &json!({"spare": 1})).await;
        let mut other = machine.clone();
        other["metadata"]["name"] = json!("b");
        cluster.create(&VM, Some(namespace), &other).await;
        let all = events
            .until("an event about b", |all| {
                let found = !event_lines(all, "b", "Migrating", None).is_empty();
                found.then(|| all.to_vec())
            })
            .await;
        assert_eq!(event_lines(&all, "a", "Migrating", None), want);
        let of_a = |event: &&Value| text(event, "/object/spec/subject/name") == "a";
        for event in all.iter().filter(of_a) {
            let object = &event["object"];
            assert_eq!(object["metadata"]["creationTimestamp"], since);
            assert_eq!(object["metadata"]["uid"], operation["metadata"]["uid"]);
        }
        let ready = cluster
            .rule_set_until(namespace, "Ready", |it| {
                condition(it, "Ready")["status"] == "True"
            })
            .await;
        assert_eq!(
            condition(&ready, "EvaluationFailed"),
            &Value::Null,
            "{ready}"
        );
    });
}
