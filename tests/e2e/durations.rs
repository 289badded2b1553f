//! Tests of the durations of operations: the conditions `Overdue` (the operation takes too long)
//! and `Stalled` (its progress does not rise), and the usual durations that the server computes
//! from completed runs (baselines). Also tests the fields `nodes` and `work` of operations.

use crate::harness::{
    DATA_VOLUME, RULE_SET, TestCluster, VM, VMI, alone, columns, condition, crd, event_types,
    eventually, is_in_gap, migrating, ok_if, shared, text,
};
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// API path of the ConfigMap in which the server stores the baselines.
const BASELINES: &str = "/api/v1/namespaces/ifo-system/configmaps/ifo-apiserver-baselines";

/// Least number of completed runs from which the server computes the limit of the condition
/// `Overdue`. With fewer runs, an operation can be overdue only if its rule has an
/// `expectedDuration`.
const ENOUGH_RUNS: usize = 20;

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

/// Changes the status of a VirtualMachine.
pub async fn change(cluster: &TestCluster, namespace: &str, name: &str, status: &Value) {
    let path = format!("{}/{name}", VM.path(Some(namespace)));
    let patch = json!({"status": status});
    cluster.admin.merge(&path, &patch).await.ok();
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

#[test]
fn the_time_in_which_an_operation_is_blocked_does_not_count() {
    shared(async |cluster| {
        let namespace = cluster.namespace("blocked").await;
        let fields = json!({"expectedDuration": "2s", "state": "object.status.state"});
        let rules = migrating_with(namespace, fields);
        cluster.ready_rule_set(&rules).await;
        migrate(cluster, namespace, "held", json!({"state": "Blocked"})).await;
        wait_for_operation(cluster, namespace, "held", "it is blocked", |it| {
            it["status"]["state"] == "Blocked"
        })
        .await;
        migrate(cluster, namespace, "late", json!({"state": "Progressing"})).await;
        wait_for_operation(cluster, namespace, "late", "it is overdue", |it| {
            has(it, "Overdue", "True")
        })
        .await;

        let held = wait_for_operation(cluster, namespace, "held", "it is not in a gap", |it| {
            !is_in_gap(it)
        })
        .await;
        let shown = condition(&held, "Overdue");
        assert_eq!(shown["status"], "False", "{held}");
        assert_eq!(shown["reason"], "NotJudged", "{held}");
        let message = "Time does not count while the operation is Blocked.";
        assert_eq!(shown["message"], message, "{held}");
        let state = ["-l", "ifo.kubevirt.io/state=Blocked"];
        wait_until_selected(cluster, "ifos", namespace, &state, &["held"]).await;

        let progressing = json!({"state": "Progressing"});
        change(cluster, namespace, "held", &progressing).await;
        let held = wait_for_operation(cluster, namespace, "held", "it is overdue", |it| {
            has(it, "Overdue", "True")
        })
        .await;
        let since_state = time(&held, "/status/stateSince");
        assert!(
            since_state > time(&held, "/metadata/creationTimestamp"),
            "{held}"
        );
        let passed = since(&held, "Overdue").duration_since(since_state);
        assert!(passed >= SignedDuration::from_secs(2), "{held}");

        // A blocked operation is not overdue, even if it was overdue before.
        change(cluster, namespace, "late", &json!({"state": "Blocked"})).await;
        wait_for_operation(cluster, namespace, "late", "it is not overdue", |it| {
            has(it, "Overdue", "False") && it["status"]["state"] == "Blocked"
        })
        .await;
        wait_for_state_cell(cluster, namespace, "late", "Blocked").await;
        wait_until_selected(cluster, "ifos", namespace, &state, &["late"]).await;
    });
}

#[test]
fn an_operation_is_stalled_until_its_progress_rises() {
    shared(async |cluster| {
        let namespace = cluster.namespace("stalled").await;
        let fields = json!({
            "progress": "object.status.progress", "message": "object.status.message",
            "stalledAfter": "2s",
        });
        let mut rules = migrating_with(namespace, fields);
        // The second rule also has an `expectedDuration`. So its operation `Both` can be stalled
        // and overdue. The operation of the first rule can only be stalled.
        let mut both = rules["spec"]["rules"][0].clone();
        both["operation"] = json!("Both");
        both["expectedDuration"] = json!("2s");
        rules["spec"]["rules"] = json!([rules["spec"]["rules"][0], both]);
        cluster.ready_rule_set(&rules).await;
        let mut events = cluster.watch(namespace).await;
        migrate(cluster, namespace, "a", json!({"progress": 10})).await;
        let two = [("a", "Both"), ("a", "Migrating")];
        let operations = cluster.until_operations(namespace, &two).await;
        let [both, name] = [0, 1].map(|it| text(&operations[it], "/metadata/name"));
        kubectl_wait(cluster, namespace, name, "Stalled").await;
        kubectl_wait(cluster, namespace, both, "Stalled").await;
        kubectl_wait(cluster, namespace, both, "Overdue").await;
        eventually("kubectl marks both operations", async || {
            let wide = ["get", "ifos", "-n", namespace, "-o", "wide"];
            let table = cluster.kubectl(&wide).await?;
            let row = |name: &str| table.lines().find(|line| line.starts_with(name));
            let cell = |name: &str| row(name).and_then(|row| columns(row).get(4).copied());
            let cells = [both, name].map(cell);
            let want = [
                "Progressing 10% (overdue, stalled)",
                "Progressing 10% (stalled)",
            ];
            ok_if(cells == want.map(Some), table)
        })
        .await;
        let stalled = ["--field-selector=status.conditions.Stalled=True"];
        wait_until_selected(cluster, "ifos", namespace, &stalled, &["a", "a"]).await;
        let neither =
            ["--field-selector=status.conditions.Stalled=True,status.conditions.Overdue!=True"];
        wait_until_selected(cluster, "ifos", namespace, &neither, &["a"]).await;

        // Returns the object of the newest event about the operation `name` for which `is` returns
        // true.
        let find = |all: &[Value], is: &dyn Fn(&Value) -> bool| {
            let mut objects = all.iter().rev().map(|event| &event["object"]);
            let found = objects.find(|it| it["metadata"]["name"] == name && is(it));
            found.cloned()
        };
        let first = events
            .until("Stalled", |all| find(all, &|it| has(it, "Stalled", "True")))
            .await;
        let message = "The progress has stayed at 10% for 2s or longer.";
        assert_eq!(condition(&first, "Stalled")["message"], message, "{first}");
        let rise = time(&first, "/status/lastProgress");
        let passed = since(&first, "Stalled").duration_since(rise);
        assert!(passed >= SignedDuration::from_secs(2), "{first}");

        // A new message does not count as progress.
        change(
            cluster,
            namespace,
            "a",
            &json!({"message": "Still copying."}),
        )
        .await;
        let same = events
            .until("the message", |all| {
                find(all, &|it| it["status"]["message"] == "Still copying.")
            })
            .await;
        assert_eq!(
            same["status"]["lastProgress"],
            first["status"]["lastProgress"]
        );
        if !is_in_gap(&same) {
            assert!(has(&same, "Stalled", "True"), "{same}");
        }

        change(cluster, namespace, "a", &json!({"progress": 20})).await;
        let risen = events
            .until("the progress rises", |all| {
                find(all, &|it| {
                    it["status"]["progress"] == 20 && has(it, "Stalled", "False")
                })
            })
            .await;
        assert!(time(&risen, "/status/lastProgress") >= since(&first, "Stalled"));
        if !is_in_gap(&risen) {
            assert_eq!(condition(&risen, "Stalled")["reason"], "ProgressRising");
        }

        // Lower progress does not count as progress either. So the operation becomes stalled again.
        change(cluster, namespace, "a", &json!({"progress": 5})).await;
        let fallen = events
            .until("the operation stalls at the lower progress", |all| {
                find(all, &|it| {
                    it["status"]["progress"] == 5 && has(it, "Stalled", "True")
                })
            })
            .await;
        assert_eq!(
            fallen["status"]["lastProgress"],
            risen["status"]["lastProgress"]
        );
        change(cluster, namespace, "a", &json!({"progress": 100})).await;
        kubectl_wait(cluster, namespace, name, "Stalled=False").await;
    });
}

#[test]
fn the_times_of_an_operation_are_plausible_from_its_start_to_its_end() {
    shared(async |cluster| {
        let namespace = cluster.namespace("times").await;
        let fields = json!({
            "expectedDuration": "30m", "startedAt": "object.status.startedAt",
            "state": "object.status.state", "progress": "object.status.progress",
        });
        let rules = migrating_with(namespace, fields);
        cluster.ready_rule_set(&rules).await;
        let mut events = cluster.watch(namespace).await;
        let hour = SignedDuration::from_hours(1);
        let start = "2026-01-01T00:00:00.7Z";
        let status = json!({"startedAt": start, "progress": 10});
        migrate(cluster, namespace, "a", status).await;
        let started = events.until("an event", |all| all.first().cloned()).await;
        let started = &started["object"];
        // When the server detects the operation, more than an hour has passed since `startedAt`.
        // The rule expects 30 minutes, so the operation is overdue at once.
        assert!(has(started, "Overdue", "True"), "{started}");
        assert!(condition(started, "Stalled").is_null(), "{started}");
        let expected = json!({"typicalSeconds": 1800, "source": "Rule"});
        assert_eq!(started["status"]["expected"], expected, "{started}");
        let begin = time(started, "/metadata/creationTimestamp");
        assert_eq!(time(started, "/status/stateSince"), begin, "{started}");
        let rise = time(started, "/status/lastProgress");
        assert!(rise.duration_since(begin) >= hour, "{started}");
        assert_eq!(started["status"].get("estimatedCompletion"), None);
        assert_eq!(started["status"].get("durationSeconds"), None);

        change(cluster, namespace, "a", &json!({"progress": 20})).await;
        let risen = wait_for_operation(cluster, namespace, "a", "there is an estimate", |it| {
            it["status"]["progress"] == 20 && it["status"]["estimatedCompletion"].is_string()
        })
        .await;
        let rise = time(&risen, "/status/lastProgress");
        assert!(
            time(&risen, "/status/estimatedCompletion") >= rise,
            "{risen}"
        );
        assert_eq!(time(&risen, "/status/stateSince"), begin, "{risen}");

        change(cluster, namespace, "a", &json!({"state": "Blocked"})).await;
        let blocked = wait_for_operation(cluster, namespace, "a", "it is blocked", |it| {
            it["status"]["state"] == "Blocked"
        })
        .await;
        let state_since = time(&blocked, "/status/stateSince");
        assert!(state_since >= rise, "{blocked}");
        let none = blocked["status"].get("estimatedCompletion");
        assert_eq!(none, None, "there is no estimate while it is blocked");

        cluster.set_status(namespace, "a", "Running").await;
        let completed = events
            .until("the completed operation", |all| {
                let mut objects = all.iter().map(|event| &event["object"]);
                let is_over = |it: &&Value| it["status"]["phase"] == "Completed";
                objects.find(is_over).cloned()
            })
            .await;
        let end = time(&completed, "/status/completed");
        assert!(end >= state_since, "{completed}");
        let seconds = completed["status"]["durationSeconds"].as_i64();
        let passed = end.duration_since(begin).as_secs();
        assert_eq!(seconds, Some(passed), "{completed}");
        assert!(time(&completed, "/status/stateSince") >= end, "{completed}");
    });
}

#[test]
fn kubectl_explain_describes_times_and_records() {
    shared(async |cluster| {
        for (path, fields) in [
            (
                "ifo.status.expected",
                &["typicalSeconds", "p95Seconds", "runs", "source"][..],
            ),
            (
                "ifo.status",
                &[
                    "stateSince",
                    "lastProgress",
                    "estimatedCompletion",
                    "durationSeconds",
                    "nodes",
                ],
            ),
            ("ifo.spec.work", &["piece of work"]),
            (
                "opr.status",
                &["outcome", "started", "completed", "durationSeconds"],
            ),
            ("opr.spec.subject", &["uid"]),
            (
                "ors.spec.rules",
                &["expectedDuration", "stalledAfter", "size", "work"],
            ),
            ("ors.spec.nodes", &["names of the nodes"]),
        ] {
            // The kube-apiserver reads the server's OpenAPI document some time after the
            // registration. Until then, `kubectl explain` fails.
            let explained = eventually(path, async || {
                // kubectl breaks lines, so all whitespace is replaced by single spaces.
                let text = cluster.kubectl(&["explain", path]).await?;
                Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
            })
            .await;
            for field in fields {
                assert!(explained.contains(field), "{field} in {explained}");
            }
            assert!(!explained.contains("<empty>"), "{explained}");
        }
    });
}

#[test]
fn operations_can_be_selected_by_the_nodes_that_they_touch_and_by_their_work() {
    shared(async |cluster| {
        let namespace = cluster.namespace("nodes").await;
        let fields = json!({"work": "object.status.work", "outcome": OUTCOME});
        let mut rules = migrating_with(namespace, fields);
        rules["spec"]["nodes"] = json!("object.status.nodes");
        cluster.ready_rule_set(&rules).await;
        let moves = "/apis/live.ifo.kubevirt.io/v1alpha1/namespaces";
        let moves = format!(
            "{moves}/{namespace}/inflightoperations?watch=1&fieldSelector=status.nodes%3Dworker-9"
        );
        let mut arrivals = crate::harness::Events::of(&cluster.admin, &moves)
            .await
            .expect("the field selector must be supported");
        let nodes = json!(["worker-1", "", "worker-2", "worker-3"]);
        let status = json!({"nodes": nodes, "work": "w/1"});
        migrate(cluster, namespace, "a", status).await;
        let status = json!({"nodes": ["worker-2"], "work": "w/1"});
        migrate(cluster, namespace, "b", status).await;
        migrate(cluster, namespace, "c", json!({})).await;
        let all = ["a", "b", "c"].map(|name| (name, "Migrating"));
        let operations = cluster.until_operations(namespace, &all).await;
        let shown = |index: usize| {
            let operation: &Value = &operations[index];
            (
                operation["status"].get("nodes").cloned(),
                operation["spec"].get("work").cloned(),
            )
        };
        // The rule set names its namespace, so the server puts the namespace before the key.
        let work = format!("@{namespace}/w/1");
        let (is_work, is_other) = (format!("spec.work={work}"), format!("spec.work!={work}"));
        let three = json!(["worker-1", "worker-2", "worker-3"]);
        assert_eq!(shown(0), (Some(three), Some(json!(work))));
        let one = json!(["worker-2"]);
        assert_eq!(shown(1), (Some(one), Some(json!(work))));
        assert_eq!(shown(2), (None, None));

        let selections: [(&str, &[&str]); 8] = [
            ("status.nodes=worker-1", &["a"]),
            ("status.nodes=worker-2", &["a", "b"]),
            ("status.nodes=worker-3", &["a"]),
            ("status.nodes!=worker-3", &["b", "c"]),
            ("status.nodes=worker", &[]),
            ("status.nodes=", &["c"]),
            (&is_work, &["a", "b"]),
            (&is_other, &["c"]),
        ];
        for (selector, want) in selections {
            let option = ["--field-selector", selector];
            wait_until_selected(cluster, "ifos", namespace, &option, want).await;
        }

        // The watch `arrivals` selects the node `worker-9`. When the operation on `b` gets this
        // node, the watch must receive ADDED. When the operation loses this node, the watch must
        // receive DELETED.
        let moved = json!({"nodes": ["worker-2", "worker-9"]});
        change(cluster, namespace, "b", &moved).await;
        change(cluster, namespace, "b", &json!({"nodes": ["worker-2"]})).await;
        let name = text(&operations[1], "/metadata/name");
        arrivals
            .until("the operation arrives and leaves", |all| {
                (event_types(all, name) == ["ADDED", "DELETED"]).then_some(())
            })
            .await;

        // The records of the completed operations (`opr`) keep the nodes and the work. So the same
        // selectors find the records.
        for name in ["a", "b", "c"] {
            cluster.set_status(namespace, name, "Running").await;
        }
        cluster.until_operations(namespace, &[]).await;
        for (selector, want) in selections {
            let option = ["--field-selector", selector];
            wait_until_selected(cluster, "opr", namespace, &option, want).await;
        }
    });
}

/// Runs the operation on `count` new VirtualMachines, one run on each. All runs succeed.
async fn succeed(cluster: &TestCluster, namespace: &str, count: usize) {
    let names: Vec<String> = (0..count).map(|number| format!("run-{number}")).collect();
    let started = names
        .iter()
        .map(|name| migrate(cluster, namespace, name, json!({})));
    join_all(started).await;
    eventually("all runs are detected", async || {
        let operations = cluster.operations(namespace).await.len();
        ok_if(operations == count, operations)
    })
    .await;
    let ended = names
        .iter()
        .map(|name| cluster.set_status(namespace, name, "Running"));
    join_all(ended).await;
    cluster.until_operations(namespace, &[]).await;
}

/// Returns the value of a metric of the server, or None if the server does not have this metric.
/// `series` is the name of the metric with its labels.
async fn metric(cluster: &TestCluster, series: &str) -> Option<f64> {
    let admin = [
        ("X-Remote-User", "admin"),
        ("X-Remote-Group", "system:masters"),
    ];
    let metrics = cluster
        .front_proxy()
        .get_with("/metrics", &admin)
        .await
        .text;
    let mut lines = metrics.lines().filter_map(|line| line.rsplit_once(' '));
    let (_, value) = lines.find(|(name, _)| *name == series)?;
    Some(value.parse().expect("a metric is a number"))
}

/// Waits until the server has baselines. Then starts an operation, and waits until the server has
/// detected it and has no watch gap. Returns the operation.
async fn start_with_baselines(cluster: &TestCluster, namespace: &str, name: &str) -> Value {
    eventually("the server has baselines", async || {
        let baselines = metric(cluster, "ifo_baselines").await;
        ok_if(baselines > Some(0.0), baselines)
    })
    .await;
    migrate(cluster, namespace, name, json!({})).await;
    wait_for_operation(cluster, namespace, name, "it is detected", |it| {
        !is_in_gap(it)
    })
    .await
}

/// Asserts that the operation shows the usual duration of [`ENOUGH_RUNS`] runs, and is not overdue.
#[track_caller]
fn assert_shows_usual_duration(operation: &Value) {
    let expected = &operation["status"]["expected"];
    assert_eq!(expected["source"], "History", "{operation}");
    assert_eq!(expected["runs"], ENOUGH_RUNS, "{operation}");
    let seconds = ["typicalSeconds", "p95Seconds"].map(|field| expected[field].as_u64());
    let [Some(typical), Some(p95)] = seconds else {
        panic!("the usual duration is missing: {operation}");
    };
    assert!(typical <= p95, "{operation}");
    let overdue = condition(operation, "Overdue");
    assert_eq!(overdue["status"], "False", "{operation}");
    assert_eq!(overdue["reason"], "AsUsual", "{operation}");
    let message = text(overdue, "/message");
    let basis = format!("of {ENOUGH_RUNS} runs");
    assert!(message.contains(&basis), "{message}");
}

/// Returns the text of the baselines in the ConfigMap.
async fn stored(cluster: &TestCluster) -> String {
    let map = cluster.admin.get(BASELINES).await.ok();
    text(&map, "/data/baselines.json").to_owned()
}

#[test]
fn usual_durations_are_learned_and_survive_a_restart_of_the_server() {
    alone(async |cluster| {
        let namespace = cluster.namespace("learned").await;
        let rules = migrating_with(namespace, json!({"outcome": OUTCOME}));
        cluster.ready_rule_set(&rules).await;
        migrate(cluster, namespace, "first", json!({})).await;
        let first = [("first", "Migrating")];
        let first = cluster.until_operations(namespace, &first).await.remove(0);
        assert_eq!(first["status"].get("expected"), None, "{first}");
        assert!(condition(&first, "Overdue").is_null(), "{first}");
        // A failed run does not change the baseline.
        cluster.set_status(namespace, "first", "Broken").await;
        cluster.until_operations(namespace, &[]).await;
        succeed(cluster, namespace, ENOUGH_RUNS).await;
        assert_shows_usual_duration(&start_with_baselines(cluster, namespace, "before").await);
        let labels = format!("ruleset=\"{namespace}\",operation=\"Migrating\"");
        for quantile in ["0.5", "0.95"] {
            let series =
                format!("ifo_operation_expected_seconds{{{labels},quantile=\"{quantile}\"}}");
            assert!(metric(cluster, &series).await.is_some(), "{series}");
        }

        let mut server = cluster.server.lock().await;
        let status = server.terminate().await;
        assert!(status.success(), "{status}");
        let text = stored(cluster).await;
        let document: Value = serde_json::from_str(&text).expect("the server stores JSON");
        assert_eq!(document["format"], 2, "{text}");
        let all = document["baselines"].as_array().expect("a list");
        let own: Vec<_> = (all.iter())
            .filter(|it| it["ruleSet"] == namespace)
            .map(|it| {
                (
                    it.get("namespace").cloned(),
                    it["durations"].as_array().map(Vec::len),
                )
            })
            .collect();
        let runs = Some(ENOUGH_RUNS);
        let want = [(None, runs), (Some(json!(namespace)), runs)];
        assert!(want.iter().all(|it| own.contains(it)), "{own:?}");
        assert_eq!(own.len(), want.len(), "{own:?}");
        server.start_again(&cluster.kubeconfig).await;
        drop(server);
        cluster.wait_until_served().await;

        assert_shows_usual_duration(&start_with_baselines(cluster, namespace, "after").await);
        let path = format!("{}/{namespace}", RULE_SET.path(None));
        cluster.admin.delete(&path).await.ok();
    });
}

#[test]
fn stored_usual_durations_that_cannot_be_decoded_are_replaced_and_counted() {
    alone(async |cluster| {
        let rejections = || {
            let log = cluster
                .control_plane
                .addresses
                .dir
                .join("ifo-apiserver.log");
            let log = std::fs::read_to_string(log).expect("the server writes a log");
            let reason = "does not contain baselines of this release";
            log.lines().filter(|line| line.contains(reason)).count()
        };
        let foreign = ["not baselines", "{\"format\": 99, \"baselines\": []}"];
        let mut server = cluster.server.lock().await;
        let status = server.terminate().await;
        assert!(status.success(), "{status}");
        for text in foreign {
            let before = rejections();
            let patch = json!({"data": {"baselines.json": text}});
            cluster.admin.merge(BASELINES, &patch).await.ok();
            server.start_again(&cluster.kubeconfig).await;
            eventually("the server rejects the text", async || {
                let rejected = metric(cluster, "ifo_baselines_rejected_total").await;
                ok_if(rejected == Some(1.0), rejected)?;
                ok_if(rejections() == before + 1, rejections())
            })
            .await;
            let status = server.terminate().await;
            assert!(status.success(), "{status}");
            let replaced = stored(cluster).await;
            let document: Value = serde_json::from_str(&replaced).expect("the server stores JSON");
            assert_eq!(document["format"], 2, "{replaced}");
        }
    });
}

#[test]
fn a_migration_is_overdue_after_the_time_limit_that_kubevirt_documents() {
    shared(async |cluster| {
        let namespace = cluster.namespace("overdue-shipped").await;
        let shipped = cluster.kustomize("rules/kubevirt").await;
        let mut rules = shipped
            .into_iter()
            .find(|it| it["metadata"]["name"] == "vmi-rules")
            .expect("the rule set is shipped");
        rules["metadata"]["name"] = json!(namespace);
        rules["spec"]["namespaces"] = json!([namespace]);
        let ready = cluster.ready_rule_set(&rules).await;
        // KubeVirt allows 150 s for each 10^9 bytes of memory, and rounds the memory up. 1 GiB is
        // more than 10^9 bytes, so it counts as 2 * 10^9 bytes, and the limit is 300 s.
        let migrating = |name: &str, start: Timestamp| {
            json!({
                "apiVersion": VMI.api_version, "kind": VMI.kind, "metadata": {"name": name},
                "spec": {"domain": {"memory": {"guest": "1Gi"}}},
                "status": {
                    "phase": "Running", "migrationMethod": "LiveMigration", "nodeName": "node01",
                    "memory": {"guestCurrent": "1Gi"},
                    "migrationState": {
                        "migrationUid": format!("uid-of-{name}"), "startTimestamp": start.to_string(),
                        "sourceNode": "node01", "targetNode": "node02",
                        "migrationConfiguration": {"completionTimeoutPerGiB": 150},
                    },
                },
            })
        };
        let now = time(&ready, "/metadata/creationTimestamp");
        let long_ago = now - SignedDuration::from_hours(2);
        // The limit of the second migration is 24 hours, of which 22 hours are left. So this
        // migration does not become overdue during the test, even on a slow machine.
        let mut slow = migrating("allowed", long_ago);
        slow["status"]["migrationState"]["migrationConfiguration"] =
            json!({"completionTimeoutPerGiB": 12 * 3600});
        for machine in [migrating("hangs", long_ago), slow] {
            cluster.create(&VMI, Some(namespace), &machine).await;
        }
        let overdue = wait_for_operation(cluster, namespace, "hangs", "it is overdue", |it| {
            has(it, "Overdue", "True")
        })
        .await;
        let shown = condition(&overdue, "Overdue");
        assert_eq!(
            shown["message"],
            "Longer than the 5m that the rule expects."
        );
        let allowed = wait_for_operation(cluster, namespace, "allowed", "it has a limit", |it| {
            has(it, "Overdue", "False")
        })
        .await;
        assert_eq!(
            condition(&allowed, "Overdue")["message"],
            "The rule expects at most 24h."
        );
        let args = ["--field-selector=status.conditions.Overdue=True"];
        wait_until_selected(cluster, "ifos", namespace, &args, &["hangs"]).await;
        let end = json!({"status": {"migrationState": {"endTimestamp": now.to_string()}}});
        let path = format!("{}/hangs", VMI.path(Some(namespace)));
        cluster.admin.merge(&path, &end).await.ok();
        cluster
            .until_operations(namespace, &[("allowed", "LiveMigrating")])
            .await;
    });
}

/// Returns the newest object with this name in the events for which `is` returns true.
fn newest(events: &[Value], name: &str, is: impl Fn(&Value) -> bool) -> Option<Value> {
    let mut objects = events.iter().rev().map(|event| &event["object"]);
    let found = objects.find(|it| it["metadata"]["name"] == name && is(it));
    found.cloned()
}

/// Checks the condition `Stalled` with the shipped rule set for DataVolumes. The test shortens its
/// `stalledAfter` from 10 minutes to 3 seconds, because a test cannot wait for 10 minutes. Unit
/// tests in `crates/engine` check limits of some minutes in simulated time.
///
/// No other test runs at the same time, because another test also has a rule set for DataVolumes.
#[test]
fn an_import_is_stalled_until_its_progress_rises() {
    alone(async |cluster| {
        const SHORTENED: SignedDuration = SignedDuration::from_secs(3);
        let namespace = cluster.namespace("stalled-shipped").await;
        cluster.apply(&[crd(&DATA_VOLUME, "Namespaced")]).await;
        let shipped = cluster.shipped("rules/kubevirt", &DATA_VOLUME, namespace);
        let mut rules = shipped.await;
        let all = rules["spec"]["rules"].as_array_mut();
        let mut all = all.expect("a rule set has rules").iter_mut();
        let rule = all.find(|rule| rule["operation"] == "ImportInProgress");
        let rule = rule.expect("the rule is shipped");
        assert_eq!(rule["stalledAfter"], "10m");
        rule["stalledAfter"] = json!("3s");
        let ready = cluster.ready_rule_set(&rules).await;
        let mut events = cluster.watch(namespace).await;

        let started = text(&ready, "/metadata/creationTimestamp");
        let importing = |progress: &str| {
            json!({
                "phase": "ImportInProgress", "progress": progress,
                "conditions": [
                    {"type": "Bound", "status": "True", "reason": "Bound"},
                    {"type": "Ready", "status": "False", "reason": "TransferRunning"},
                    {
                        "type": "Running", "status": "True", "reason": "Pod is running",
                        "lastTransitionTime": started,
                    },
                ],
            })
        };
        // The importer of the second DataVolume has not reported its progress yet. So its operation
        // has no condition `Stalled`.
        for (name, progress) in [("root", "10.50%"), ("unknown", "N/A")] {
            let volume = json!({
                "apiVersion": DATA_VOLUME.api_version, "kind": DATA_VOLUME.kind,
                "metadata": {"name": name}, "status": importing(progress),
                "spec": {"storage": {"resources": {"requests": {"storage": "1Gi"}}}},
            });
            cluster.create(&DATA_VOLUME, Some(namespace), &volume).await;
        }
        let two = ["root", "unknown"].map(|name| (name, "ImportInProgress"));
        let operations = cluster.until_operations(namespace, &two).await;
        let [name, unknown] = [0, 1].map(|it| text(&operations[it], "/metadata/name"));
        kubectl_wait(cluster, namespace, name, "Stalled").await;
        let stalled = events
            .until("the import stalls", |all| {
                newest(all, name, |it| has(it, "Stalled", "True"))
            })
            .await;
        let shown = condition(&stalled, "Stalled");
        let message = "The progress has stayed at 10% for 3s or longer.";
        assert_eq!(shown["message"], message, "{stalled}");
        assert_eq!(shown["reason"], "ProgressNotRising", "{stalled}");
        assert_eq!(stalled["status"]["state"], "Progressing", "{stalled}");
        let rise = time(&stalled, "/status/lastProgress");
        let passed = since(&stalled, "Stalled").duration_since(rise);
        assert!(passed >= SHORTENED, "{stalled}");
        let args = ["--field-selector=status.conditions.Stalled=True"];
        wait_until_selected(cluster, "ifos", namespace, &args, &["root"]).await;
        eventually("kubectl marks the import", async || {
            let table = cluster.kubectl(&["get", "ifos", "-n", namespace]).await?;
            let mut rows = table.lines().map(columns);
            let row = rows.find(|row| row.first() == Some(&"DataVolume/root"));
            let cell = row.and_then(|row| row.get(2).copied());
            ok_if(cell == Some("Progressing 10% (stalled)"), table)
        })
        .await;

        let change = async |progress: &str| {
            let path = format!("{}/root", DATA_VOLUME.path(Some(namespace)));
            let patch = json!({"status": importing(progress)});
            cluster.admin.merge(&path, &patch).await.ok();
        };
        // During a watch gap, the condition `Stalled` is False for another reason. So the test
        // waits for the reason `ProgressRising`.
        change("24.34%").await;
        let risen = events
            .until("the progress rises", |all| {
                newest(all, name, |it| {
                    condition(it, "Stalled")["reason"] == "ProgressRising"
                        && it["status"]["progress"] == 24
                })
            })
            .await;
        assert!(has(&risen, "Stalled", "False"), "{risen}");
        assert!(
            time(&risen, "/status/lastProgress") >= since(&stalled, "Stalled"),
            "{risen}"
        );
        // The progress has risen, so the server knows its rate and estimates the end.
        assert!(
            risen["status"]["estimatedCompletion"].is_string(),
            "{risen}"
        );

        // After 3 seconds without progress, the import is stalled again. At 100 %, it is no longer
        // stalled.
        kubectl_wait(cluster, namespace, name, "Stalled").await;
        change("100.00%").await;
        kubectl_wait(cluster, namespace, name, "Stalled=False").await;
        let find = |it: &Value| it["metadata"]["name"] == unknown;
        let all = cluster.operations(namespace).await;
        let unknown = all.into_iter().find(find).expect("it is still in flight");
        assert!(condition(&unknown, "Stalled").is_null(), "{unknown}");

        let end = json!({"status": {"phase": "Succeeded"}});
        for volume in ["root", "unknown"] {
            let path = format!("{}/{volume}", DATA_VOLUME.path(Some(namespace)));
            cluster.admin.merge(&path, &end).await.ok();
        }
        cluster.until_operations(namespace, &[]).await;
        let path = format!("{}/{namespace}", RULE_SET.path(None));
        cluster.admin.delete(&path).await.ok();
    });
}
