//! Tests of the operations that clients receive: their fields, the events of watches from start to
//! end, and the reasons for the end.

use crate::harness::{
    Kind, NODE, OPERATION, StateAfterEvents, VM, columns, condition, event_types, eventually,
    migrating, ok_if, rule_set, same_but_for_gaps, shared, text, without_gaps,
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
