//! Test of the condition `Overdue`, which is true if an operation takes too long. The test in
//! `tests/replicas/usual_durations_of_operations.rs` has the usual durations. The tests in
//! `crates/engine/src/track/tests/timing.rs` have the other conditions.

use crate::harness::{
    TestCluster, VM, columns, condition, event_types, eventually, is_in_gap, migrating, ok_if,
    shared, text,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// The field `outcome` of a rule, a CEL expression. An operation succeeds when its VirtualMachine
/// is `Running` again, and fails when its VirtualMachine is `Broken`. In both cases, the operation
/// ends at once, without a debounce period.
pub const OUTCOME: &str = "object.status.printableStatus == 'Running' ? 'Succeeded' : object.status.printableStatus == 'Broken' ? 'Failed' : ''";

/// Returns a rule set that detects the operation `Migrating` on VirtualMachines in one namespace.
/// The rule also has the fields in `fields`.
pub fn migrating_with(namespace: &str, fields: Value) -> Value {
    let mut rules = migrating(namespace);
    let Value::Object(fields) = fields else {
        panic!("the fields of a rule must be a JSON object: {fields}");
    };
    let rule = rules["spec"]["rules"][0].as_object_mut();
    rule.expect("a rule is an object").extend(fields);
    rules
}

/// Creates a VirtualMachine that migrates. Its status also has the fields in `status`.
pub async fn migrate(cluster: &TestCluster, namespace: &str, name: &str, mut status: Value) {
    status["printableStatus"] = json!("Migrating");
    let machine = json!({
        "apiVersion": VM.api_version, "kind": VM.kind,
        "metadata": {"name": name}, "status": status,
    });
    cluster.create(&VM, Some(namespace), &machine).await;
}

/// Waits until `kubectl get` with these options returns objects about exactly the subjects in
/// `want`. `want` contains the names of the subjects in alphabetical order.
pub async fn wait_until_selected(
    cluster: &TestCluster,
    resource: &str,
    namespace: &str,
    options: &[&str],
    want: &[&str],
) {
    let names = "-o=jsonpath={.items[*].spec.subject.name}";
    let args = [&["get", resource, "-n", namespace, names], options].concat();
    eventually(&format!("{options:?} selects {want:?}"), async || {
        let found = cluster.kubectl(&args).await?;
        let mut found: Vec<&str> = found.split_whitespace().collect();
        found.sort_unstable();
        ok_if(found == want, found)
    })
    .await;
}

/// Waits until `is` returns true for the operation on the object with the name `subject`, and
/// returns the operation. `what` describes the expectation in the error message.
async fn wait_for_operation(
    cluster: &TestCluster,
    namespace: &str,
    subject: &str,
    what: &str,
    is: impl Fn(&Value) -> bool,
) -> Value {
    eventually(&format!("the operation of {subject}: {what}"), async || {
        let operations = cluster.operations(namespace).await;
        let mut found = operations.into_iter();
        let found = found.find(|it| text(it, "/spec/subject/name") == subject);
        let found = found.ok_or("there is no such operation")?;
        ok_if(is(&found), &found)?;
        Ok(found)
    })
    .await
}

/// Waits until `kubectl get ifos` prints this text in the column State for the operation of a
/// VirtualMachine.
async fn wait_for_state_cell(cluster: &TestCluster, namespace: &str, subject: &str, want: &str) {
    eventually(&format!("State of {subject} is {want}"), async || {
        let table = cluster.kubectl(&["get", "ifos", "-n", namespace]).await?;
        let mut rows = table.lines().map(columns);
        // The columns are Subject, Operation, State and others.
        let subject = format!("VirtualMachine/{subject}");
        let row = rows.find(|row| row.first() == Some(&&*subject));
        ok_if(row.and_then(|row| row.get(2).copied()) == Some(want), table)
    })
    .await;
}

/// Runs `kubectl wait` for a condition of an operation, such as `Overdue` or `Stalled=False`.
async fn kubectl_wait(cluster: &TestCluster, namespace: &str, name: &str, condition: &str) {
    let (resource, condition) = (
        format!("ifo/{name}"),
        format!("--for=condition={condition}"),
    );
    let args = [
        "wait",
        &condition,
        &resource,
        "-n",
        namespace,
        "--timeout=170s",
    ];
    let waited = cluster.kubectl(&args).await;
    waited.expect("kubectl wait must succeed before its timeout");
}

/// Returns the time at a JSON pointer.
#[track_caller]
pub fn time(object: &Value, pointer: &str) -> Timestamp {
    let time = text(object, pointer).parse();
    time.unwrap_or_else(|error| panic!("{pointer}: {error}: {object}"))
}

/// Returns the time since which a condition has had its status.
#[track_caller]
fn since(operation: &Value, kind: &str) -> Timestamp {
    time(condition(operation, kind), "/lastTransitionTime")
}

/// Returns true if a condition has this status.
fn has(operation: &Value, kind: &str, status: &str) -> bool {
    condition(operation, kind)["status"] == status
}

#[test]
fn an_operation_becomes_overdue_after_the_duration_that_its_rule_expects() {
    shared(async |cluster| {
        let namespace = cluster.namespace("overdue").await;
        let limit = json!({"expectedDuration": "duration(object.status.limit)"});
        let rules = migrating_with(namespace, limit);
        cluster.ready_rule_set(&rules).await;
        let mut events = cluster.watch(namespace).await;
        migrate(cluster, namespace, "late", json!({"limit": "2s"})).await;
        migrate(cluster, namespace, "punctual", json!({"limit": "1h"})).await;
        let both = [("late", "Migrating"), ("punctual", "Migrating")];
        let operations = cluster.until_operations(namespace, &both).await;
        let [late, punctual] = [0, 1].map(|it| text(&operations[it], "/metadata/name"));
        kubectl_wait(cluster, namespace, late, "Overdue").await;

        let overdue = wait_for_operation(cluster, namespace, "late", "it is overdue", |it| {
            has(it, "Overdue", "True")
        })
        .await;
        let shown = condition(&overdue, "Overdue");
        assert_eq!(shown["reason"], "LongerThanExpected", "{overdue}");
        let message = "Longer than the 2s that the rule expects.";
        assert_eq!(shown["message"], message, "{overdue}");
        assert_eq!(overdue["status"]["state"], "Progressing", "{overdue}");
        let start = time(&overdue, "/metadata/creationTimestamp");
        let passed = since(&overdue, "Overdue").duration_since(start);
        assert!(passed >= SignedDuration::from_secs(2), "{overdue}");
        let expected = json!({"typicalSeconds": 2, "source": "Rule"});
        assert_eq!(overdue["status"]["expected"], expected, "{overdue}");

        wait_for_state_cell(cluster, namespace, "late", "Progressing (overdue)").await;
        wait_for_state_cell(cluster, namespace, "punctual", "Progressing").await;
        for (option, want) in [
            ("--field-selector=status.conditions.Overdue=True", "late"),
            (
                "--field-selector=status.conditions.Overdue!=True",
                "punctual",
            ),
            (
                "--field-selector=status.conditions.Overdue=False",
                "punctual",
            ),
        ] {
            wait_until_selected(cluster, "ifos", namespace, &[option], &[want]).await;
        }
        let absent = ["--field-selector=status.conditions.Stalled="];
        wait_until_selected(cluster, "ifos", namespace, &absent, &["late", "punctual"]).await;
        let state = ["-l", "ifo.kubevirt.io/state=Progressing"];
        wait_until_selected(cluster, "ifos", namespace, &state, &["late", "punctual"]).await;

        // Events arrive in the order of the changes. So if an event about the third operation has
        // arrived, all events about earlier changes have arrived, too.
        migrate(cluster, namespace, "third", json!({"limit": "1h"})).await;
        let seen = events
            .until("the third operation", |all| {
                let subject = |it: &Value| text(it, "/object/spec/subject/name") == "third";
                all.iter().any(subject).then(|| all.to_vec())
            })
            .await;
        // During a watch gap (an interruption of the server's own watch), an operation is not
        // `Overdue`. So a gap can cause further events. In this case, the test does not check the
        // number of events.
        if !seen.iter().any(|event| is_in_gap(&event["object"])) {
            assert_eq!(event_types(&seen, late), ["ADDED", "MODIFIED"], "{seen:?}");
            assert_eq!(event_types(&seen, punctual), ["ADDED"], "{seen:?}");
        }
    });
}
