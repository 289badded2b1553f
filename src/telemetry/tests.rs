//! Tests that the metrics have the documented names and labels, and that label values are limited.

use super::*;
use aggregated_apiserver::metrics::RequestLabels;
use ifo_api::{activity, testing};
use jiff::SignedDuration;
use serde_json::{Value, json};

#[test]
fn metric_names_equal_the_documented_ones() {
    let metrics = Metrics::of_version("1.2.3");
    metrics.show(IndexSample {
        operations: vec![
            operation("Migrating", "Active", "Progressing"),
            operation("Migrating", "Active", "Settling"),
            operation("Migrating", "Completed", "Ended"),
            operation("Starting", "Completed", "Succeeded"),
        ],
        rule_sets: [("Watching", 3), ("InvalidRule", 1)].into(),
        ..IndexSample::default()
    });
    metrics.operation_started(&operation("Migrating", "Active", "Progressing"));
    let end = json!({"reason": "NotDetected", "durationSeconds": 2});
    let completed = operation_with("Migrating", "Completed", "Ended", &end);
    metrics.operation_completed(&completed);
    metrics
        .of_target(&metrics.series.feed_events, &"v1/pods")
        .inc();
    metrics.feed_state(&"v1/pods", "listing");
    metrics.feed_state(&"v1/pods", "watching");
    let request = RequestLabels {
        verb: "LIST".into(),
        group: "g",
        version: "v1",
        resource: "r",
        scope: "cluster",
    };
    let api = metrics.api();
    api.request(&request, 200, Some(Duration::from_millis(2)));
    api.request_terminated(&request, 429);
    api.request_aborted(&request);
    metrics
        .of_target(&metrics.series.feed_relists, &"v1/pods")
        .inc();
    metrics
        .of_target(&metrics.series.feed_restarts, &"v1/pods")
        .inc();
    metrics.evaluation_failed("rules", "Migrating");
    api.ca_bundle_is_current(true);
    api.token_reviews
        .record(Some(201), Duration::from_millis(3));
    api.access_reviews.record(None, Duration::from_secs(10));
    count(&metrics.series.custom_resource_writes, "verb", "apply");
    count(
        &metrics.series.custom_resource_failures,
        "reason",
        "missing",
    );
    metrics.persistence_backlog(1, Duration::ZERO);
    let text = metrics.render();
    check_documented(&text);
    for line in [
        r#"ifo_build_info{version="1.2.3"} 1"#,
        r#"ifo_operations{component="kubevirt",operation="Migrating",state="Progressing"} 1"#,
        r#"ifo_operation_oldest_seconds{component="kubevirt",operation="Migrating"} 4."#,
        r#"ifo_operations{component="kubevirt",operation="Starting",state="Succeeded"} 1"#,
        r#"ifo_operations_started_total{component="kubevirt",operation="Migrating"} 1"#,
        r#"ifo_operations_completed_total{component="kubevirt",operation="Migrating",state="Ended",reason="NotDetected"} 1"#,
        r#"ifo_rule_sets{state="Watching"} 3"#,
        r#"ifo_rule_sets{state="InvalidRule"} 1"#,
        "ifo_ca_bundle_current{} 1",
        r#"apiserver_delegated_authn_request_total{code="201"} 1"#,
        r#"apiserver_delegated_authz_request_total{code="<error>"} 1"#,
        r#"ifo_feed_events_total{target="v1/pods"} 1"#,
        r#"ifo_feed_state{target="v1/pods",state="watching"} 1"#,
        r#"ifo_feed_restarts_total{target="v1/pods"} 1"#,
        r#"apiserver_request_total{verb="LIST",group="g",version="v1",resource="r",scope="cluster",code="200"} 1"#,
        r#"apiserver_request_terminations_total{verb="LIST",group="g",version="v1",resource="r",scope="cluster",code="429"} 1"#,
        r#"apiserver_request_aborts_total{verb="LIST",group="g",version="v1",resource="r",scope="cluster"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let retained = r#"ifo_operation_oldest_seconds{component="kubevirt",operation="Starting"}"#;
    assert!(
        !text.contains(retained),
        "an operation that is not in flight must have no age\n{text}"
    );
    assert!(
        !text.contains(r#"state="listing""#),
        "a feed must have only one state"
    );
}

/// Returns an operation of the virtual machine `web` that has started 4 s ago.
fn operation(name: &str, phase: &str, state: &str) -> Arc<InFlightOperation> {
    operation_with(name, phase, state, &json!({}))
}

/// Returns an operation with these additional fields in its status.
fn operation_with(name: &str, phase: &str, state: &str, more: &Value) -> Arc<InFlightOperation> {
    let started = crate::clock::now() - SignedDuration::from_secs(4);
    let mut status = json!({"phase": phase, "state": state});
    let more = more.as_object().unwrap().clone();
    status.as_object_mut().unwrap().extend(more);
    Arc::new(testing::operation(&json!({
        "metadata": {"namespace": "shop", "creationTimestamp": started},
        "spec": {
            "component": "kubevirt", "operation": name,
            "subject": {"kind": "VirtualMachine", "name": "web"},
        },
        "status": status,
    })))
}

/// Returns an activity of this namespace and name.
fn activity((namespace, name, scope, idle): (&str, &str, &str, &str)) -> Arc<Activity> {
    let activity = json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "Activity",
        "metadata": {
            "name": name, "namespace": namespace, "uid": "", "labels": {activity::LABEL: scope},
            "creationTimestamp": "2026-01-02T03:04:05Z",
        },
        "status": {
            "operations": 0, "blocked": 0, "failing": 0, "overdue": 0,
            "conditions": [{
                "type": "Idle", "status": idle, "reason": "Test", "message": "",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            }],
        },
    });
    Arc::new(serde_json::from_value(activity).unwrap())
}

#[test]
fn activities_and_operations_of_nodes_have_series() {
    let on = |nodes: &[&str], name, phase, state| {
        operation_with(name, phase, state, &json!({"nodes": nodes}))
    };
    let index = |is_stale| {
        let activities = [
            ("shop", "namespace", "namespace", "False"),
            ("ifo-system", "cluster", "cluster", "Unknown"),
            ("ifo-system", "node.n1", "node", "True"),
        ];
        IndexSample {
            activities: activities.map(activity).into(),
            is_stale,
            operations: vec![
                on(&["n1", "n2"], "Migrating", "Active", "Progressing"),
                on(&["n1"], "Migrating", "Active", "Blocked"),
                on(&["n3"], "Cordoned", "Active", "Held"),
                on(&["n1"], "Migrating", "Completed", "Succeeded"),
            ],
            ..IndexSample::default()
        }
    };
    let stale = Metrics::new();
    stale.show(index(true));
    assert_eq!(stale.render().matches("} -1\n").count(), 3);
    let metrics = Metrics::new();
    metrics.show(index(false));
    let text = metrics.render();
    for line in [
        r#"ifo_idle{scope="namespace",name="shop"} 0"#,
        r#"ifo_idle{scope="cluster",name=""} -1"#,
        r#"ifo_idle{scope="node",name="n1"} 1"#,
        r#"ifo_node_operations{node="n1",component="kubevirt",operation="Migrating"} 2"#,
        r#"ifo_node_operations{node="n2",component="kubevirt",operation="Migrating"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert_eq!(text.matches("ifo_node_operations{").count(), 2);
    check_documented(&text);
}

#[test]
fn problems_have_the_namespace_and_subject_of_their_operation() {
    let is_true = |condition: &str| {
        json!({"conditions": [{
            "type": condition, "status": "True", "reason": "Test", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }]})
    };
    let metrics = Metrics::new();
    metrics.show(IndexSample {
        operations: vec![
            operation_with("Migrating", "Active", "Blocked", &is_true("Overdue")),
            operation_with("Importing", "Active", "Progressing", &is_true("Stalled")),
            operation("Starting", "Active", "Progressing"),
            // A retained operation is not in flight.
            operation("Stopping", "Completed", "Failing"),
        ],
        ..IndexSample::default()
    });
    let text = metrics.render();
    let mut problems: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("ifo_operation_problems{component=\"kubevirt\","))
        .collect();
    problems.sort_unstable();
    let place = r#"operation_namespace="shop",subject="VirtualMachine/web"} 1"#;
    assert_eq!(
        problems,
        [
            format!(r#"operation="Importing",problem="Stalled",{place}"#),
            format!(r#"operation="Migrating",problem="Blocked",{place}"#),
            format!(r#"operation="Migrating",problem="Overdue",{place}"#),
        ]
    );
    check_documented(&text);
}

#[test]
fn the_number_of_subjects_with_problems_is_limited_at_each_scrape() {
    let metrics = Metrics::new();
    // Each scrape has other subjects than the previous scrape.
    for scrape in 0..2 {
        let of_subject = |n: usize| {
            let mut operation =
                InFlightOperation::clone(&operation("Migrating", "Active", "Failing"));
            operation.metadata.namespace = format!("scrape-{scrape}").into();
            operation.spec.subject.name = format!("{n:04}").into();
            Arc::new(operation)
        };
        metrics.show(IndexSample {
            operations: (0..MAX_VALUES + 10).rev().map(of_subject).collect(),
            ..IndexSample::default()
        });
        let text = metrics.render();
        let series = text.matches("ifo_operation_problems{").count();
        assert_eq!(series, MAX_VALUES + 1);
        assert!(text.contains(r#"operation_namespace="other",subject="other"} 10"#));
        let first =
            format!(r#"operation_namespace="scrape-{scrape}",subject="VirtualMachine/0000"}} 1"#);
        assert!(text.contains(&first));
    }
}

/// Checks that `docs/metrics.md` has a row for each metric, with its labels.
fn check_documented(text: &str) {
    let doc = include_str!("../../docs/metrics.md");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').expect("a series and its value");
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let parts = ["_bucket", "_sum", "_count"];
        let name = parts
            .iter()
            .find_map(|part| name.strip_suffix(part))
            .unwrap_or(name);
        let labels: Vec<String> = labels
            .split(['{', '}', ','])
            .filter_map(|label| label.split_once('='))
            .filter(|(label, _)| *label != "le")
            .map(|(label, _)| format!(" `{label}`"))
            .collect();
        let row = format!("| `{name}` |{} |", labels.join(","));
        assert!(doc.contains(&row), "docs/metrics.md has no row {row}");
    }
}

#[test]
fn label_values_are_limited() {
    let metrics = Metrics::new();
    for n in 0..MAX_VALUES + 10 {
        metrics
            .of_target(&metrics.series.feed_events, &format!("v1/r{n}"))
            .inc();
    }
    let text = metrics.render();
    assert!(text.contains(r#"ifo_feed_events_total{target="other"} 10"#));
}

#[test]
fn without_persistence_there_are_no_persistence_metrics() {
    let metrics = Metrics::new();
    let series = |metrics: &Metrics| {
        let text = metrics.render();
        let own = text
            .lines()
            .filter(|line| line.starts_with("ifo_persistence"));
        own.map(|line| line.split(' ').next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(series(&metrics), [""; 0]);
    count(&metrics.series.custom_resource_writes, "verb", "apply");
    count(
        &metrics.series.custom_resource_failures,
        "reason",
        "missing",
    );
    metrics.persistence_backlog(3, Duration::ZERO);
    assert_eq!(
        series(&metrics),
        [
            "ifo_persistence_writes_total{verb=\"apply\"}",
            "ifo_persistence_failures_total{reason=\"missing\"}",
            "ifo_persistence_queue_length{}",
            "ifo_persistence_oldest_pending_seconds{}",
        ]
    );
}
