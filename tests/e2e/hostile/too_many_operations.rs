//! The attacker may write rule sets and the objects of one namespace. The attacker writes rule sets
//! that detect as many operations as possible, with texts as long as possible. The attack must
//! neither use up the memory of the server, nor affect the operations and records of other rule
//! sets.

use super::peak_memory;
use crate::harness::{
    Kind, RULE_SET, TestCluster, VM, VMI, alone, condition, eventually, full_size, migrating,
    ok_if, rule_set, text,
};
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

/// Number of VirtualMachineInstances. With 64 rules, they have 10,240 operations, more than the
/// bound of 10,000 for a rule set.
const INSTANCES: usize = 160;

/// Returns a rule that detects an operation on each element of the list `parts` of an object.
fn rule_for_parts(operation: &str, message: &str) -> Value {
    json!({
        "operation": operation, "forEach": "object.parts", "expression": "true",
        "message": format!("'{message}'"),
    })
}

/// Creates a rule set for the objects of the attacker, in the namespace of the attacker. Each rule set
/// has a component of its own, because the rule sets of one component share a part of the bounds.
async fn attack(
    cluster: &TestCluster,
    namespace: &str,
    name: &str,
    target: &Kind,
    rules: Vec<Value>,
) {
    let mut attack = rule_set(name, target, &[]);
    attack["spec"]["component"] = json!(name);
    attack["spec"]["namespaces"] = json!([namespace]);
    attack["spec"]["rules"] = rules.into();
    cluster.create(&RULE_SET, None, &attack).await;
}

async fn delete_rule_sets(cluster: &TestCluster, names: &[String]) {
    for name in names {
        let path = format!("{}/{name}", RULE_SET.path(None));
        cluster.admin.delete(&path).await.ok();
    }
}

/// Creates objects with a list `parts` of this length. Their names are `prefix` and a number.
async fn create_objects(
    cluster: &TestCluster,
    (kind, namespace): (&Kind, &str),
    prefix: &str,
    count: usize,
    parts: usize,
) {
    let parts: Vec<String> = (0..parts).map(|number| format!("part-{number}")).collect();
    let names: Vec<String> = (0..count)
        .map(|number| format!("{prefix}-{number}"))
        .collect();
    for names in names.chunks(20) {
        let requests = names.iter().map(|name| {
            let object = json!({
                "apiVersion": kind.api_version, "kind": kind.kind,
                "metadata": {"name": name, "labels": {"set": prefix}}, "parts": parts,
            });
            async move { cluster.create(kind, Some(namespace), &object).await }
        });
        futures::future::join_all(requests).await;
    }
}

/// Waits until the status of a rule set reports that it has too many operations. Returns the
/// message.
async fn until_too_many(cluster: &TestCluster, name: &str) -> String {
    let reported = cluster
        .rule_set_until(name, "TooManyOperations", |it| {
            condition(it, "Ready")["reason"] == "TooManyOperations"
        })
        .await;
    assert_eq!(condition(&reported, "Ready")["status"], "False");
    text(condition(&reported, "Ready"), "/message").to_owned()
}

/// Waits until a rule set shows all its operations again.
async fn until_ready(cluster: &TestCluster, name: &str) {
    cluster
        .rule_set_until(name, "Ready", |it| {
            condition(it, "Ready")["status"] == "True"
        })
        .await;
}

/// Starts and ends an operation of another team. Waits until its record exists, and checks that
/// there are `records` records of the team.
async fn run_operation(cluster: &TestCluster, team: &str, machine: &str, records: usize) {
    cluster.machine(team, machine, "Migrating").await;
    cluster
        .until_operations(team, &[(machine, "Migrating")])
        .await;
    cluster.set_status(team, machine, "Running").await;
    cluster.until_operations(team, &[]).await;
    let path = format!("/apis/live.ifo.kubevirt.io/v1alpha1/namespaces/{team}/operationrecords");
    eventually("the records of the team", async || {
        let list = cluster.admin.get(&path).await.ok();
        let found = list["items"].as_array().map_or(0, Vec::len);
        ok_if(found == records, found)
    })
    .await;
}

/// Lists operations. Returns the `Warning` header, or an empty text for a complete list. Also
/// returns the body of the answer.
async fn list_with_warning(cluster: &TestCluster, path: &str) -> (String, Value) {
    let request = Request::get(path).body(Body::empty());
    let request = request.expect("the path is valid");
    let answer = cluster.admin.client.send(request).await;
    let answer = answer.expect("the API server must answer");
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
    let header = |name| {
        answer
            .headers()
            .get(name)
            .map(|it| it.to_str().unwrap_or("?"))
    };
    let warning = match (header("warning"), header("ifo-complete")) {
        (Some(warning), None) => warning.to_owned(),
        (None, Some("true")) => String::new(),
        both => panic!("{path}: {both:?}"),
    };
    let body = answer.into_body().collect().await;
    let body = body.expect("the answer must be complete").to_bytes();
    (warning, serde_json::from_slice(&body).expect("JSON"))
}

#[test]
fn the_worst_rule_sets_stay_within_the_memory_limit_and_affect_no_other_rule_set() {
    alone(async |cluster| {
        // The kernel reports the peak memory since the start of a process. So the test starts a new
        // process.
        let mut server = cluster.server.lock().await;
        server.terminate().await;
        server.start_again(&cluster.kubeconfig).await;
        let (pid, limit) = (server.pid(), server.memory_limit());
        drop(server);
        let team = cluster.namespace("many-team").await;
        let namespace = cluster.namespace("many-hostile").await;
        cluster.ready_rule_set(&migrating(team)).await;
        run_operation(cluster, team, "before", 1).await;

        create_objects(cluster, (&VMI, namespace), "instance", INSTANCES, 256).await;
        create_objects(cluster, (&VM, namespace), "machine", 8, 1_000).await;
        let every = format!("{namespace}-every");
        let rules = (0..64)
            .map(|number| json!({"operation": format!("Every{number}"), "expression": "true"}));
        attack(cluster, namespace, &every, &VMI, rules.collect()).await;
        let message = until_too_many(cluster, &every).await;
        assert!(
            message
                .contains("10000 operations are kept, because 10000 is the bound for a rule set"),
            "{message}"
        );

        // The message has 1,024 characters of four bytes.
        let long = "\u{1f980}".repeat(1_024);
        let words = format!("{namespace}-words");
        let rules = vec![rule_for_parts("Words", &long)];
        attack(cluster, namespace, &words, &VMI, rules).await;
        let message = until_too_many(cluster, &words).await;
        assert!(message.contains("8388608 bytes"), "{message}");
        let mut all = vec![words];
        let (texts, counts) = if full_size() { (4, 5) } else { (1, 1) };
        for number in 0..texts {
            let name = format!("{namespace}-texts-{number}");
            // More rules with such messages would exceed the limit for expressions.
            let rules = (0..30).map(|rule| rule_for_parts(&format!("Texts{number}-{rule}"), &long));
            attack(cluster, namespace, &name, &VM, rules.collect()).await;
            all.push(name);
        }
        for number in 0..counts {
            let name = format!("{namespace}-count-{number}");
            let rules = vec![rule_for_parts(&format!("Count{number}"), "")];
            attack(cluster, namespace, &name, &VMI, rules).await;
            all.push(name);
        }
        for name in &all {
            if name.contains("texts") {
                // The rules of this rule set also exhaust their evaluation steps.
                let is_reported = |it: &Value| condition(it, "Ready")["status"] == "False";
                cluster.rule_set_until(name, "not Ready", is_reported).await;
            } else {
                until_too_many(cluster, name).await;
            }
        }
        let list = "/apis/live.ifo.kubevirt.io/v1alpha1/namespaces/";
        // While the server lists a target again, the warning has another reason.
        eventually("the warning names the reason", async || {
            let path = format!("{list}{namespace}/inflightoperations?limit=1");
            let (warning, _) = list_with_warning(cluster, &path).await;
            ok_if(warning.contains("too many operations"), warning)
        })
        .await;
        let (warning, _) =
            list_with_warning(cluster, &format!("{list}{team}/inflightoperations")).await;
        assert!(warning.is_empty(), "{warning}");
        run_operation(cluster, team, "meanwhile", 2).await;

        // The operations of all these rule sets end. Each of them leaves a record.
        delete_rule_sets(cluster, &all).await;
        run_operation(cluster, team, "after", 3).await;
        let message = until_too_many(cluster, &every).await;
        assert!(message.contains("10000 operations are kept"), "{message}");
        // The remaining objects have fewer operations than the bound. So all of them are shown.
        let names = (0..INSTANCES / 4).map(|number| format!("instance-{number}"));
        let deletions = names.map(|name| async move {
            let path = format!("{}/{name}", VMI.path(Some(namespace)));
            cluster.admin.delete(&path).await.ok();
        });
        futures::future::join_all(deletions).await;
        until_ready(cluster, &every).await;
        delete_rule_sets(cluster, &[every]).await;
        cluster.until_operations(namespace, &[]).await;
        run_operation(cluster, team, "at-the-end", 4).await;

        let mut server = cluster.server.lock().await;
        assert!(server.is_running() && server.pid() == pid);
        let peak = peak_memory(pid);
        println!("the peak memory of the server is {} MiB", peak >> 20);
        assert!(
            peak < limit,
            "{} MiB at the peak, the Deployment allows {} MiB",
            peak >> 20,
            limit >> 20
        );
    });
}
