//! Tests of the operations that clients receive: their fields, the events of watches from start to
//! end, and the reasons for the end.

use crate::harness::{
    Kind, NODE, OPERATION, RULE_SET, StateAfterEvents, VM, VMI, columns, condition, event_types,
    eventually, migrating, ok_if, rule_set, same_but_for_gaps, shared, text, without_gaps,
};
use serde_json::{Value, json};

/// The default columns that kubectl prints for operations.
const HEADER: [&str; 5] = ["SUBJECT", "OPERATION", "STATE", "AGE", "MESSAGE"];

/// A kind of Kubernetes with a short name.
const CLAIM: Kind = Kind {
    api_version: "v1",
    kind: "PersistentVolumeClaim",
    plural: "persistentvolumeclaims",
};

#[test]
fn a_kind_is_shown_with_a_short_name_only_if_kubectl_finds_it_by_this_name() {
    shared(async |cluster| {
        let namespace = cluster.namespace("short-names").await;
        let mut rules = rule_set(
            "short-names",
            &CLAIM,
            &[("Filling", "object.metadata.name == 'disk'")],
        );
        rules["spec"]["namespaces"] = json!([namespace]);
        cluster.ready_rule_set(&rules).await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        let disk = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        cluster.create(&CLAIM, Some(namespace), &disk).await;
        // The custom resource in this test has no short name.
        cluster.machine(namespace, "web", "Migrating").await;
        eventually("both subjects are shown", async || {
            let table = cluster.kubectl(&["get", "ifos", "-n", namespace]).await?;
            let subjects: Vec<&str> = table.lines().map(|line| columns(line)[0]).collect();
            let expected = ["SUBJECT", "pvc/disk", "VirtualMachine/web"];
            ok_if(subjects == expected, &table)
        })
        .await;
        let found = cluster
            .kubectl(&["get", "pvc/disk", "-n", namespace, "-o", "name"])
            .await;
        assert_eq!(found.as_deref(), Ok("persistentvolumeclaim/disk\n"));
    });
}

#[test]
fn a_migration_appears_on_kubectl_watches_and_disappears_after_the_debounce() {
    shared(async |cluster| {
        let namespace = cluster.namespace("appears").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        cluster.machine(namespace, "my-vm", "Running").await;
        let mut everywhere = cluster.kubectl_watch(&["get", "ifos", "-A", "-w"]);
        let mut here = cluster.kubectl_watch(&["get", "ifos", "-n", namespace, "-w"]);
        let mut events = cluster.watch(namespace).await;

        cluster.set_status(namespace, "my-vm", "Migrating").await;
        let mine = |lines: &[String], state: &str| -> Option<Vec<String>> {
            let row = lines.iter().map(|line| columns(line)).find(|row| {
                row.contains(&"VirtualMachine/my-vm")
                    && row.contains(&state)
                    && row[0] != "NAMESPACE"
            })?;
            Some(row.into_iter().map(str::to_owned).collect())
        };
        let row = here
            .until("the operation's row", |lines| mine(lines, "Progressing"))
            .await;
        let expected = ["VirtualMachine/my-vm", "Migrating", "Progressing"];
        assert_eq!(row[..3], expected, "{row:?}");
        let header = here.until("a header", |lines| lines.first().cloned()).await;
        assert_eq!(header.split_whitespace().collect::<Vec<_>>(), HEADER);
        let row = everywhere
            .until("the operation's row", |lines| {
                mine(lines, "Progressing").filter(|row| row[0] == namespace)
            })
            .await;
        assert_eq!(row[1..4], expected, "{row:?}");
        let header = everywhere
            .until("a header", |lines| lines.first().cloned())
            .await;
        let header: Vec<&str> = header.split_whitespace().collect();
        assert_eq!(header[0], "NAMESPACE");
        assert_eq!(header[1..], HEADER);

        let operation = cluster
            .until_operations(namespace, &[("my-vm", "Migrating")])
            .await
            .remove(0);
        let name = text(&operation, "/metadata/name");
        cluster.set_status(namespace, "my-vm", "Running").await;
        let gone = ["ADDED", "MODIFIED", "MODIFIED", "DELETED"];
        let events = events
            .until(
                "the operation settles, completes and is deleted",
                |events| (event_types(events, name) == gone).then(|| events.to_vec()),
            )
            .await;
        assert!(StateAfterEvents::of(&events).objects.is_empty());
        let events = without_gaps(&events);
        assert_eq!(
            states(&events),
            ["Progressing", "Settling", "Ended", "Ended"]
        );
        let completed = &events[2]["object"];
        assert_eq!(completed["status"]["phase"], "Completed");
        assert_eq!(completed["status"]["reason"], "NotDetected");
        assert_eq!(condition(completed, "Completed")["status"], "True");
        assert_eq!(condition(completed, "Detected")["status"], "False");
        assert_eq!(condition(completed, "Progressing")["status"], "False");
        for field in ["/metadata/uid", "/metadata/creationTimestamp", "/spec"] {
            let seen = events.iter().map(|event| event["object"].pointer(field));
            assert!(
                seen.clone()
                    .all(|it| it.is_some() && it == operation.pointer(field)),
                "{field}: {:?}",
                seen.collect::<Vec<_>>()
            );
        }
        for watch in [&mut here, &mut everywhere] {
            watch
                .until("the completed operation", |lines| mine(lines, "Ended"))
                .await;
        }
        cluster.until_operations(namespace, &[]).await;
    });
}

fn states<'a>(events: &[&'a Value]) -> Vec<&'a str> {
    events
        .iter()
        .map(|event| text(event, "/object/status/state"))
        .collect()
}

#[test]
fn an_operation_has_all_references_to_its_subject() {
    shared(async |cluster| {
        let namespace = cluster.namespace("tells").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        let subject = cluster.machine(namespace, "a", "Migrating").await;
        let operations = cluster
            .until_operations(namespace, &[("a", "Migrating")])
            .await;
        let operation = &operations[0];
        assert_eq!(operation["apiVersion"], OPERATION.api_version);
        assert_eq!(operation["kind"], OPERATION.kind);
        assert_eq!(operation["metadata"]["namespace"], namespace);
        assert!(text(operation, "/metadata/name").starts_with("a-migrating-"));
        let uid = &subject["metadata"]["uid"];
        assert_eq!(
            operation["metadata"]["ownerReferences"],
            json!([{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "a",
                "uid": uid, "controller": true, "blockOwnerDeletion": false,
            }])
        );
        assert_eq!(
            operation["spec"],
            json!({
                "operation": "Migrating", "ruleSet": namespace, "component": "kubevirt",
                "subject": {
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "a",
                    "namespace": namespace, "uid": uid,
                },
            })
        );
        let status = &operation["status"];
        assert_eq!(status["phase"], "Active");
        assert_eq!(status["state"], "Progressing");
        assert_eq!(status["startTimeSource"], "Detected");
        assert_eq!(status["detectedBy"], json!([namespace]));
        assert_eq!(
            status["subjectGeneration"],
            subject["metadata"]["generation"]
        );
        for (kind, value) in [
            ("Progressing", "True"),
            ("Detected", "True"),
            ("Completed", "False"),
        ] {
            let condition = condition(operation, kind);
            assert_eq!(condition["status"], value, "{operation}");
            assert_eq!(
                condition["observedGeneration"],
                subject["metadata"]["generation"]
            );
        }
        let name = text(operation, "/metadata/name");
        let path = format!("{}/{name}", OPERATION.path(Some(namespace)));
        let one = cluster.admin.get(&path).await.ok();
        assert!(
            same_but_for_gaps(&one, operation),
            "{one}, expected {operation}"
        );
        let message = cluster.admin.get(&format!("{path}x")).await.refused(404);
        assert_eq!(
            message,
            format!("inflightoperations.live.ifo.kubevirt.io \"{name}x\" not found")
        );
    });
}

#[test]
fn an_operation_on_a_cluster_scoped_subject_appears_in_ifo_system() {
    shared(async |cluster| {
        let name = cluster.namespace("node").await;
        let expression = format!("object.metadata.name == '{name}' && object.spec.unschedulable");
        let rules = rule_set(name, &NODE, &[("Draining", &expression)]);
        cluster.ready_rule_set(&rules).await;
        let mut events = cluster.watch("ifo-system").await;
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"unschedulable": true},
        });
        let node = cluster.create(&NODE, None, &node).await;
        let find = |events: &[Value], kind: &str| {
            let mut of_node = events
                .iter()
                .filter(|it| text(it, "/object/spec/subject/name") == name);
            of_node.find(|it| it["type"] == kind).cloned()
        };
        let added = events
            .until("the operation appears", |all| find(all, "ADDED"))
            .await;
        let operation = &added["object"];
        assert_eq!(operation["metadata"]["namespace"], "ifo-system");
        assert_eq!(operation["spec"]["subject"]["kind"], "Node");
        assert_eq!(operation["spec"]["subject"].get("namespace"), None);
        let labels = &operation["metadata"]["labels"];
        assert_eq!(
            labels["ifo.kubevirt.io/subject-uid"],
            node["metadata"]["uid"]
        );
        assert_eq!(labels["ifo.kubevirt.io/subject-name"], name);

        let uncordoned = json!({"spec": {"unschedulable": null}});
        let path = format!("{}/{name}", NODE.path(None));
        cluster.admin.merge(&path, &uncordoned).await.ok();
        events
            .until("the operation is deleted", |all| find(all, "DELETED"))
            .await;
        cluster.admin.delete(&path).await.ok();
    });
}

#[test]
fn built_in_static_and_computed_labels_have_precedence_and_can_be_selected() {
    shared(async |cluster| {
        let namespace = cluster.namespace("labels").await;
        let mut rules = migrating(namespace);
        rules["spec"]["labels"] = json!({
            "team": "virt", "ifo.kubevirt.io/correlation-group": "static",
        });
        rules["spec"]["labelExpressions"] = json!([
            {"key": "node", "expression": "object.status.nodeName"},
            {"key": "missing", "expression": "object.status.absent"},
            {"key": "cut", "expression": "object.status.long"},
            {"key": "ifo.kubevirt.io/correlation-group", "expression": "'dynamic'"},
            {"key": "ifo.kubevirt.io/correlation-role", "expression": "'root'"},
        ]);
        cluster.ready_rule_set(&rules).await;
        let owner = json!({
            "apiVersion": VM.api_version, "kind": VM.kind, "metadata": {"name": "owner"},
        });
        let owner = cluster.create(&VM, Some(namespace), &owner).await;
        let owner_uid = text(&owner, "/metadata/uid");
        let owned = json!({
            "apiVersion": VM.api_version, "kind": VM.kind,
            "metadata": {"name": "a", "ownerReferences": [{
                "apiVersion": VM.api_version, "kind": VM.kind, "name": "owner", "uid": owner_uid,
            }]},
            "status": {
                "printableStatus": "Migrating", "nodeName": "node-1",
                "long": "with spaces ".repeat(10),
            },
        });
        let owned = cluster.create(&VM, Some(namespace), &owned).await;
        cluster.machine(namespace, "b", "Migrating").await;
        let operations = cluster
            .until_operations(namespace, &[("a", "Migrating"), ("b", "Migrating")])
            .await;
        let labels = &operations[0]["metadata"]["labels"];
        let expected = [
            ("ifo.kubevirt.io/subject-name", "a"),
            ("ifo.kubevirt.io/subject-namespace", namespace),
            ("ifo.kubevirt.io/subject-kind", "VirtualMachine"),
            ("ifo.kubevirt.io/subject-uid", text(&owned, "/metadata/uid")),
            ("ifo.kubevirt.io/owner-name", "owner"),
            ("ifo.kubevirt.io/owner-kind", "VirtualMachine"),
            ("ifo.kubevirt.io/owner-group", "kubevirt.io"),
            ("ifo.kubevirt.io/owner-version", "v1"),
            ("ifo.kubevirt.io/owner-uid", owner_uid),
            ("ifo.kubevirt.io/operation", "Migrating"),
            ("ifo.kubevirt.io/component", "kubevirt"),
            ("ifo.kubevirt.io/ruleset", namespace),
            ("ifo.kubevirt.io/state", "Progressing"),
            ("ifo.kubevirt.io/correlation-group", "static"),
            ("ifo.kubevirt.io/correlation-role", "root"),
            ("team", "virt"),
            ("node", "node-1"),
        ];
        for (key, value) in expected {
            assert_eq!(labels[key], value, "{key}: {labels}");
        }
        assert_eq!(labels.get("missing"), None, "{labels}");
        let cut = text(labels, "/cut");
        assert!(
            cut.len() <= 63 && cut.starts_with("with-spaces-with"),
            "{cut}"
        );
        assert_eq!(
            labels.as_object().map(serde_json::Map::len),
            Some(18),
            "{labels}"
        );
        let others = &operations[1]["metadata"]["labels"];
        assert_eq!(others.get("ifo.kubevirt.io/owner-uid"), None, "{others}");
        assert_eq!(others.get("node"), None, "{others}");
        let owners = &operations[0]["spec"]["subject"]["ownerReferences"];
        assert_eq!(owners, &owned["metadata"]["ownerReferences"]);

        let select = async |selectors: &str| -> Vec<String> {
            let path = format!("{}?{selectors}", OPERATION.path(Some(namespace)));
            let list = cluster.admin.get(&path).await.ok();
            let items = list["items"].as_array().expect("a list has items").clone();
            let name = |it: &Value| text(it, "/spec/subject/name").to_owned();
            items.iter().map(name).collect()
        };
        assert_eq!(select("labelSelector=node%3Dnode-1").await, ["a"]);
        assert_eq!(select("labelSelector=!node").await, ["b"]);
        assert_eq!(
            select("labelSelector=team%20in%20(virt,other)").await,
            ["a", "b"]
        );
        assert_eq!(select("labelSelector=node%21%3Dnode-1").await, ["b"]);
        assert_eq!(select("fieldSelector=spec.subject.name%3Db").await, ["b"]);
        assert_eq!(
            select("fieldSelector=status.state%3DProgressing,spec.subject.name%21%3Db").await,
            ["a"]
        );
        assert_eq!(
            select("labelSelector=team%3Dvirt&fieldSelector=spec.subject.name%3Da").await,
            ["a"]
        );
        let bad = format!("{}?fieldSelector=spec.nothing%3Da", OPERATION.path(None));
        let message = cluster.admin.get(&bad).await.refused(400);
        assert!(
            message.contains("field label not supported: spec.nothing"),
            "{message}"
        );

        let kubectl = ["get", "ifos", "-A", "-o", "name", "-l"];
        let of_owner = format!("ifo.kubevirt.io/owner-uid={owner_uid}");
        let by_label = cluster
            .kubectl(&[&kubectl[..], &[&of_owner]].concat())
            .await;
        let name = text(&operations[0], "/metadata/name");
        assert_eq!(
            by_label.expect("kubectl must accept the selector").trim(),
            format!("inflightoperation.live.ifo.kubevirt.io/{name}")
        );
    });
}

#[test]
fn a_watch_with_a_selector_reports_operations_that_begin_or_stop_to_match() {
    shared(async |cluster| {
        let namespace = cluster.namespace("selects").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        let path = format!(
            "{}?watch=1&fieldSelector=status.state%3DSettling",
            OPERATION.path(Some(namespace))
        );
        let mut settling = crate::harness::Events::of(&cluster.admin, &path)
            .await
            .expect("an administrator must be allowed to watch");
        cluster.machine(namespace, "a", "Migrating").await;
        let operation = cluster
            .until_operations(namespace, &[("a", "Migrating")])
            .await
            .remove(0);
        let name = text(&operation, "/metadata/name").to_owned();
        cluster.set_status(namespace, "a", "Running").await;
        settling
            .until("the operation matches", |all| {
                (event_types(all, &name) == ["ADDED"]).then_some(())
            })
            .await;
        cluster.set_status(namespace, "a", "Migrating").await;
        settling
            .until("the operation no longer matches", |all| {
                (event_types(all, &name) == ["ADDED", "DELETED"]).then_some(())
            })
            .await;
    });
}

#[test]
fn a_rule_set_watches_only_its_namespaces() {
    shared(async |cluster| {
        let (inside, outside) = (
            cluster.namespace("in").await,
            cluster.namespace("out").await,
        );
        cluster.ready_rule_set(&migrating(inside)).await;
        // A second rule set makes the server watch VirtualMachines in all namespaces. The first
        // rule set must still detect operations only in its own namespace.
        let all_namespaces_rule_set = format!("{inside}-all");
        let elsewhere = format!(
            "object.metadata.namespace == '{outside}' && object.status.printableStatus == 'Starting'"
        );
        let all = rule_set(&all_namespaces_rule_set, &VM, &[("Starting", &elsewhere)]);
        cluster.ready_rule_set(&all).await;
        cluster.machine(outside, "a", "Migrating").await;
        cluster.machine(outside, "b", "Starting").await;
        cluster.machine(inside, "c", "Migrating").await;
        cluster
            .until_operations(inside, &[("c", "Migrating")])
            .await;
        cluster
            .until_operations(outside, &[("b", "Starting")])
            .await;
        // The server evaluates VirtualMachine `a` before `b`. The operation on `b` exists, so the
        // server has evaluated `a`. The evaluation of `a` must not have created an operation.
        assert_eq!(cluster.operations(outside).await.len(), 1);
        let path = format!("{}/{all_namespaces_rule_set}", RULE_SET.path(None));
        cluster.admin.delete(&path).await.ok();
        cluster.until_operations(outside, &[]).await;
        assert_eq!(cluster.operations(inside).await.len(), 1);
    });
}

#[test]
fn operations_end_with_their_rule_set() {
    shared(async |cluster| {
        let namespace = cluster.namespace("removed").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        cluster.machine(namespace, "a", "Migrating").await;
        cluster
            .until_operations(namespace, &[("a", "Migrating")])
            .await;
        let mut events = cluster.watch(namespace).await;
        let path = format!("{}/{namespace}", RULE_SET.path(None));
        cluster.admin.delete(&path).await.ok();
        let last = last_state(&mut events).await;
        assert_eq!(last["status"]["phase"], "Completed", "{last}");
        assert_eq!(last["status"]["reason"], "RuleRemoved", "{last}");
    });
}

#[test]
fn operations_end_with_their_rule() {
    shared(async |cluster| {
        let namespace = cluster.namespace("rule").await;
        let mut rules = migrating(namespace);
        let named = "has(object.metadata.name)";
        rules["spec"]["rules"] = json!([
            rules["spec"]["rules"][0],
            {"operation": "Named", "expression": named},
        ]);
        cluster.ready_rule_set(&rules).await;
        cluster.machine(namespace, "a", "Migrating").await;
        let both = [("a", "Migrating"), ("a", "Named")];
        let before = cluster.until_operations(namespace, &both).await;
        let path = format!("{}/{namespace}", RULE_SET.path(None));
        let fewer = json!({"spec": {"rules": [{"operation": "Named", "expression": named}]}});
        let mut events = cluster.watch(namespace).await;
        cluster.admin.merge(&path, &fewer).await.ok();
        let last = last_state(&mut events).await;
        assert_eq!(last["spec"]["operation"], "Migrating", "{last}");
        assert_eq!(last["status"]["reason"], "RuleRemoved", "{last}");
        let after = cluster.until_operations(namespace, &both[1..]).await;
        assert_eq!(after[0]["metadata"]["uid"], before[1]["metadata"]["uid"]);
    });
}

#[test]
fn operations_end_at_once_with_their_subject() {
    shared(async |cluster| {
        let namespace = cluster.namespace("deleted").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        cluster.machine(namespace, "a", "Migrating").await;
        cluster
            .until_operations(namespace, &[("a", "Migrating")])
            .await;
        let mut events = cluster.watch(namespace).await;
        let path = format!("{}/a", VM.path(Some(namespace)));
        cluster.admin.delete(&path).await.ok();
        let last = last_state(&mut events).await;
        assert_eq!(last["status"]["reason"], "SubjectDeleted", "{last}");
        let settling = events
            .until("all events", |all| Some(all.to_vec()))
            .await
            .iter()
            .any(|event| text(event, "/object/status/state") == "Settling");
        assert!(
            !settling,
            "an operation on a deleted object must end without settling"
        );
    });
}

/// Waits for the first DELETED event of a watch, and returns its object.
async fn last_state(events: &mut crate::harness::Events) -> Value {
    events
        .until("an operation is deleted", |all| {
            let deleted = all.iter().find(|event| event["type"] == "DELETED")?;
            Some(deleted["object"].clone())
        })
        .await
}

#[test]
fn a_flap_within_the_debounce_is_one_operation() {
    shared(async |cluster| {
        let namespace = cluster.namespace("flap").await;
        let mut rules = migrating(namespace);
        rules["spec"]["rules"][0]["debounce"] = json!("1h");
        cluster.ready_rule_set(&rules).await;
        let mut events = cluster.watch(namespace).await;
        cluster.machine(namespace, "a", "Migrating").await;
        let before = cluster
            .until_operations(namespace, &[("a", "Migrating")])
            .await;
        cluster.set_status(namespace, "a", "Running").await;
        let state =
            |all: &[Value], want: &[&str]| (states(&without_gaps(all)) == want).then_some(());
        events
            .until("the operation settles", |all| {
                state(all, &["Progressing", "Settling"])
            })
            .await;
        cluster.set_status(namespace, "a", "Migrating").await;
        events
            .until("the operation continues", |all| {
                state(all, &["Progressing", "Settling", "Progressing"])
            })
            .await;
        let after = cluster
            .until_operations(namespace, &[("a", "Migrating")])
            .await;
        for field in [
            "/metadata/uid",
            "/metadata/name",
            "/metadata/creationTimestamp",
        ] {
            assert_eq!(after[0].pointer(field), before[0].pointer(field), "{field}");
        }
        assert_eq!(condition(&after[0], "Detected")["status"], "True");
    });
}

#[test]
fn the_debounce_is_cancelled_when_the_operation_is_detected_again() {
    shared(async |cluster| {
        let namespace = cluster.namespace("flap").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        let mut events = cluster.watch(namespace).await;
        // For a moment, no rule detects the operation, so it becomes `Settling`. At the end of the
        // debounce period (3 s in the tests), a `Settling` operation completes. On a busy machine,
        // the test can be too slow to change the status back before this end. Then the test tries
        // again with another VirtualMachine.
        let mut attempts = (0..10).map(|number| format!("a-{number}"));
        let name = loop {
            let name = attempts
                .next()
                .expect("in one of ten attempts, the test must change the status back in time");
            cluster.machine(namespace, &name, "Migrating").await;
            let of_it = |all: &[Value]| -> Vec<String> {
                let mut events = without_gaps(all);
                events.retain(|it| text(it, "/object/spec/subject/name") == name);
                states(&events).into_iter().map(str::to_owned).collect()
            };
            let is = |want: &[&str]| {
                let want: Vec<String> = want.iter().map(|it| (*it).to_owned()).collect();
                move |all: &[Value]| of_it(all).starts_with(&want).then_some(())
            };
            events
                .until("the operation starts", is(&["Progressing"]))
                .await;
            cluster.set_status(namespace, &name, "Running").await;
            let settled = ["Progressing", "Settling"];
            events.until("the operation settles", is(&settled)).await;
            cluster.set_status(namespace, &name, "Migrating").await;
            let next = events
                .until("the operation continues or ends", |all| {
                    of_it(all).get(2).cloned()
                })
                .await;
            if next == "Progressing" {
                break name;
            }
        };
        let own = |operations: &[Value]| {
            let mut own = operations.iter();
            let own = own.find(|it| text(it, "/spec/subject/name") == name);
            own.map(|it| it["metadata"]["uid"].clone())
        };
        let before = own(&cluster.operations(namespace).await);
        assert!(before.is_some());
        // The operation on `b` starts and ends, which takes a whole debounce period. Afterwards,
        // the first operation must still exist. If the server had not cancelled the debounce period
        // of the first operation, this operation would have ended in this time.
        cluster.machine(namespace, "b", "Migrating").await;
        let b = |operations: &[Value]| {
            let mut subjects = operations.iter().map(|it| text(it, "/spec/subject/name"));
            subjects.any(|it| it == "b")
        };
        for is_there in [true, false] {
            eventually("the other operation starts, and then ends", async || {
                let operations = cluster.operations(namespace).await;
                ok_if(b(&operations) == is_there, operations)
            })
            .await;
            cluster.set_status(namespace, "b", "Running").await;
        }
        assert_eq!(own(&cluster.operations(namespace).await), before);
    });
}

#[test]
fn an_operation_that_restarts_after_its_end_is_a_new_object() {
    shared(async |cluster| {
        let namespace = cluster.namespace("again").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        cluster.machine(namespace, "a", "Migrating").await;
        let first = cluster
            .until_operations(namespace, &[("a", "Migrating")])
            .await;
        cluster.set_status(namespace, "a", "Running").await;
        cluster.until_operations(namespace, &[]).await;
        cluster.set_status(namespace, "a", "Migrating").await;
        let second = cluster
            .until_operations(namespace, &[("a", "Migrating")])
            .await;
        for field in ["/metadata/uid", "/metadata/name"] {
            assert_ne!(second[0].pointer(field), first[0].pointer(field), "{field}");
        }
    });
}

#[test]
fn an_operation_that_two_rule_sets_detect_is_one_object() {
    shared(async |cluster| {
        let namespace = cluster.namespace("both").await;
        let first = format!("{namespace}-1");
        let second = format!("{namespace}-2");
        for name in [&first, &second] {
            let mut rules = migrating(namespace);
            rules["metadata"]["name"] = json!(name);
            rules["spec"]["labels"] = json!({"from": name});
            cluster.ready_rule_set(&rules).await;
        }
        cluster.machine(namespace, "a", "Migrating").await;
        let operations = cluster
            .until_operations(namespace, &[("a", "Migrating")])
            .await;
        assert_eq!(
            operations[0]["status"]["detectedBy"],
            json!([first, second])
        );
        assert_eq!(operations[0]["spec"]["ruleSet"], json!(first));
        assert_eq!(operations[0]["metadata"]["labels"]["from"], json!(first));

        let mut events = cluster.watch(namespace).await;
        let path = format!("{}/{first}", RULE_SET.path(None));
        cluster.admin.delete(&path).await.ok();
        let now = events
            .until("only the second rule set detects the operation", |all| {
                let last = all.last()?;
                let by = &last["object"]["status"]["detectedBy"];
                (*by == json!([second])).then(|| last["object"].clone())
            })
            .await;
        assert_eq!(now["metadata"]["uid"], operations[0]["metadata"]["uid"]);
        assert_eq!(now["status"]["phase"], "Active");
        assert_eq!(now["metadata"]["labels"]["from"], json!(second));
    });
}

#[test]
fn a_change_of_a_subject_that_no_rule_reads_causes_no_event() {
    shared(async |cluster| {
        let namespace = cluster.namespace("heartbeat").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        cluster.machine(namespace, "a", "Migrating").await;
        let before = cluster
            .until_operations(namespace, &[("a", "Migrating")])
            .await;
        let mut events = cluster.watch(namespace).await;
        let path = format!("{}/a", VM.path(Some(namespace)));
        for beat in 0..20 {
            let patch = json!({"metadata": {"annotations": {"beat": beat.to_string()}}, "spec": {"beat": beat}});
            cluster.admin.merge(&path, &patch).await.ok();
        }
        cluster.machine(namespace, "b", "Migrating").await;
        // The server reads changes of VirtualMachines in order. So when the operation on `b`
        // exists, the server has processed all earlier changes.
        let seen = events
            .until("the second operation", |all| {
                let found = all
                    .iter()
                    .any(|it| text(it, "/object/spec/subject/name") == "b");
                found.then(|| all.to_vec())
            })
            .await;
        let name = text(&before[0], "/metadata/name");
        assert_eq!(event_types(&seen, name), ["ADDED"], "{seen:?}");
        let after = cluster.operations(namespace).await;
        assert!(same_but_for_gaps(&after[0], &before[0]), "{after:?}");
    });
}

#[test]
fn one_subject_can_have_several_operations_and_one_namespace_several_kinds() {
    shared(async |cluster| {
        let namespace = cluster.namespace("several").await;
        let mut machines = migrating(namespace);
        let hotplug =
            "object.status.conditions.exists(c, c.type == 'Hotplug' && c.status == 'True')";
        machines["spec"]["rules"] = json!([
            machines["spec"]["rules"][0],
            {"operation": "Hotplugging", "expression": hotplug},
        ]);
        cluster.ready_rule_set(&machines).await;
        let name = format!("{namespace}-instances");
        let mut instances = rule_set(
            &name,
            &VMI,
            &[("Running", "object.status.phase == 'Running'")],
        );
        instances["spec"]["namespaces"] = json!([namespace]);
        cluster.ready_rule_set(&instances).await;
        let machine = json!({
            "apiVersion": VM.api_version, "kind": VM.kind, "metadata": {"name": "a"},
            "status": {
                "printableStatus": "Migrating",
                "conditions": [{"type": "Hotplug", "status": "True"}],
            },
        });
        cluster.create(&VM, Some(namespace), &machine).await;
        let instance = json!({
            "apiVersion": VMI.api_version, "kind": VMI.kind, "metadata": {"name": "a"},
            "status": {"phase": "Running"},
        });
        cluster.create(&VMI, Some(namespace), &instance).await;
        let operations = cluster
            .until_operations(
                namespace,
                &[("a", "Hotplugging"), ("a", "Migrating"), ("a", "Running")],
            )
            .await;
        let kinds: Vec<&str> = operations
            .iter()
            .map(|it| text(it, "/spec/subject/kind"))
            .collect();
        assert_eq!(kinds, [VM.kind, VM.kind, VMI.kind]);
    });
}
