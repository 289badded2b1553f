//! Attack: a user who can write an object puts commands for a terminal into its annotations, its
//! list elements and its owner references. A rule copies these texts to the operation. Another user
//! prints the operation with plain kubectl, which passes on most of these commands.

use crate::harness::{OPERATION, TestCluster, VM, eventually, ok_if, rule_set, shared, text};
use ifo_api::is_unprintable;
use serde_json::json;

/// A text that would set the title of the terminal, make text blink, clear the screen, delete
/// characters and change the direction of text.
const HOSTILE: &str =
    "zqx\u{1b}]0;t\u{7}\u{1b}[5m\u{9b}2J\u{8}\u{7f}\u{85}\u{202e}\u{2066}\u{2028}\r\n\tend";

/// The same text after the server has replaced the characters that control a terminal.
const HARMLESS: &str = "zqx�]0;t��[5m�2J������ \n\tend";

/// Creates a machine with hostile texts, and a rule set that copies them.
async fn create_attack(cluster: &TestCluster, namespace: &str) {
    let mut rules = rule_set(namespace, &VM, &[]);
    rules["spec"]["namespaces"] = json!([namespace]);
    rules["spec"]["rules"] = json!([{
        "operation": "Migrating", "expression": "object.status.printableStatus == 'Migrating'",
        "message": "object.metadata.annotations['text']", "work": "object.metadata.annotations['text']",
        "forEach": "object.parts", "itemKey": "item.name",
        "outcome": "object.status.printableStatus == 'Failed' ? 'Failed' : ''",
    }]);
    cluster.ready_rule_set(&rules).await;
    let machine = json!({
        "apiVersion": VM.api_version, "kind": VM.kind,
        "metadata": {
            "name": "web", "annotations": {"text": HOSTILE},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": HOSTILE, "name": HOSTILE, "uid": HOSTILE},
            ],
        },
        "parts": [{"name": HOSTILE}],
        "status": {"printableStatus": "Migrating"},
    });
    cluster.create(&VM, Some(namespace), &machine).await;
}

/// Runs kubectl with the flag `-n`, and checks its output.
async fn print(cluster: &TestCluster, namespace: &str, line: &str) {
    let mut words: Vec<&str> = line.split(' ').collect();
    words.extend(["-n", namespace]);
    let printed = cluster.kubectl(&words).await.expect("kubectl must succeed");
    assert!(printed.contains("zqx"), "{line}: {printed}");
    let found: Vec<char> = printed.chars().filter(|c| is_unprintable(*c)).collect();
    assert!(found.is_empty(), "kubectl {line}: {printed:?}");
}

#[test]
fn kubectl_prints_no_control_characters_of_a_watched_object() {
    shared(async |cluster| {
        let namespace = cluster.namespace("control-characters").await;
        create_attack(cluster, namespace).await;
        let operations = cluster
            .until_operations(namespace, &[("web", "Migrating")])
            .await;
        let operation = &operations[0];
        for field in [
            "/status/message",
            "/spec/item",
            "/spec/subject/ownerReferences/0/name",
        ] {
            assert_eq!(text(operation, field), HARMLESS, "{field}: {operation}");
        }
        // The rule set is for one namespace, so the key contains this namespace.
        let work = format!("@{namespace}/{HARMLESS}");
        assert_eq!(text(operation, "/spec/work"), work);
        // The kube-apiserver stores the text of the attacker as it is, and kubectl prints it.
        let path = "jsonpath={.items[0].metadata.annotations.text}";
        let raw = cluster
            .kubectl(&["get", "virtualmachines", "-n", namespace, "-o", path])
            .await;
        assert_eq!(raw.expect("kubectl must succeed").trim_end(), HOSTILE);

        for line in [
            "get ifos",
            "get ifos -o wide",
            "get ifos -o yaml",
            "get ifos -o json",
            "get ifos -o jsonpath={.items[*]['status.message','spec']}",
            "get ifos -o custom-columns=A:.status.message,B:.spec.item,C:.spec.subject.ownerReferences",
            "describe ifos",
        ] {
            print(cluster, namespace, line).await;
        }

        cluster.set_status(namespace, "web", "Failed").await;
        let path = OPERATION
            .path(Some(namespace))
            .replace(OPERATION.plural, "operationrecords");
        eventually("the record of the operation", async || {
            let list = cluster.admin.get(&path).await.ok();
            ok_if(
                list["items"].as_array().is_some_and(|all| !all.is_empty()),
                list,
            )
        })
        .await;
        for line in [
            "get operationrecords",
            "get operationrecords -o wide",
            "describe operationrecords",
        ] {
            print(cluster, namespace, line).await;
        }
    });
}
