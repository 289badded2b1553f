//! The attacker may write rule sets and the objects of one namespace. The attacker writes rule sets
//! that detect as many operations as possible, with texts as long as possible. The attack must
//! neither use up the memory of the server, nor affect the operations and records of other rule
//! sets.

use crate::harness::{
    Cluster, Kind, OPERATION, OPERATION_RECORD, RULE_SET, VM, VMI, alone, condition, eventually,
    full_size, items, migrating, ok_if, rule_set, text,
};
use futures::future::join_all;
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
async fn attack(cluster: &Cluster, namespace: &str, name: &str, target: &Kind, rules: Vec<Value>) {
    let mut attack = rule_set(name, target, &[]);
    attack["spec"]["component"] = json!(name);
    attack["spec"]["namespaces"] = json!([namespace]);
    attack["spec"]["rules"] = rules.into();
    cluster.create(&RULE_SET, None, &attack).await;
}

/// Creates objects with a list `parts` of this length. Their names are `prefix` and a number.
async fn create_objects(
    cluster: &Cluster,
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
        let requests = names.iter().map(async |name| {
            let object = kind.object(name, json!({"parts": parts}));
            cluster.create(kind, Some(namespace), &object).await
        });
        join_all(requests).await;
    }
}

/// Waits until the status of a rule set reports that it has too many operations. Returns the
/// message.
async fn until_too_many(cluster: &Cluster, name: &str) -> String {
    let reported = cluster
        .until_rule_set(name, "Ready", "TooManyOperations")
        .await;
    assert_eq!(condition(&reported, "Ready")["status"], "False");
    text(condition(&reported, "Ready"), "/message").to_owned()
}

/// Starts and ends an operation of another team. Waits until its record exists, and checks that
/// there are `records` records of the team.
async fn run_operation(cluster: &Cluster, team: &str, machine: &str, records: usize) {
    cluster.machine(team, machine, "Migrating").await;
    cluster
        .until_operations(team, &[(machine, "Migrating")])
        .await;
    cluster.set_status(team, machine, "Running").await;
    cluster.until_operations(team, &[]).await;
    let path = OPERATION_RECORD.path(Some(team));
    let are_there = |list: &Value| items(list).len() == records;
    let what = "the records of the team";
    cluster.admin.until_object(what, &path, are_there).await;
}

/// Lists operations. Returns the warning that kubectl prints, or an empty text for a complete list.
async fn warning(cluster: &Cluster, namespace: &str) -> String {
    let path = format!("{}?limit=1", OPERATION.path(Some(namespace)));
    let output = cluster
        .kubectl_output(&format!("get --raw {path}"), String::new())
        .await;
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the peak resident memory of a process in bytes, or 0 if the system does not report it.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes =
        peak.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

#[test]
fn the_worst_rule_sets_stay_within_the_memory_limit_and_affect_no_other_rule_set() {
    alone(async |cluster| {
        // The kernel reports the peak memory since the start of a process. So the test starts a new
        // process.
        let mut server = cluster.server.lock().await;
        server.terminate().await;
        server.start_again().await;
        let (pid, limit) = (server.pid(), server.memory_limit());
        drop(server);
        let team = cluster.new_namespace("many-team").await;
        let namespace = cluster.new_namespace("many-hostile").await;
        cluster.ready_rule_set(&migrating(team)).await;
        run_operation(cluster, team, "before", 1).await;

        create_objects(cluster, (&VMI, namespace), "instance", INSTANCES, 256).await;
        create_objects(cluster, (&VM, namespace), "machine", 8, 1_000).await;
        let every = format!("{namespace}-every");
        let rules = (0..64)
            .map(|number| json!({"operation": format!("Every{number}"), "expression": "true"}));
        attack(cluster, namespace, &every, &VMI, rules.collect()).await;
        let message = until_too_many(cluster, &every).await;
        let expected = "10000 operations are kept, because 10000 is the bound for a rule set";
        assert!(message.contains(expected), "{message}");

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
        // While the server lists a target again, the warning has another reason.
        eventually("the warning names the reason", async || {
            let warning = warning(cluster, namespace).await;
            ok_if(warning.contains("too many operations"), warning)
        })
        .await;
        assert_eq!(warning(cluster, team).await, "");
        run_operation(cluster, team, "meanwhile", 2).await;

        // The operations of all these rule sets end. Each of them leaves a record.
        for name in &all {
            cluster.delete_rule_set(name).await;
        }
        run_operation(cluster, team, "after", 3).await;
        let message = until_too_many(cluster, &every).await;
        assert!(message.contains("10000 operations are kept"), "{message}");
        // The remaining objects have fewer operations than the bound. So all of them are shown.
        let deletions = (0..INSTANCES / 4).map(async |number| {
            let path = VMI.one(Some(namespace), &format!("instance-{number}"));
            cluster.admin.delete(&path).await.ok();
        });
        join_all(deletions).await;
        cluster.until_rule_set(&every, "Ready", "True").await;
        cluster.delete_rule_set(&every).await;
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
