//! Tests that the metrics have the documented names and labels, and that label values are limited.

use super::*;
use aggregated_apiserver::metrics::{RequestLabels, ReviewKind};

#[test]
fn metric_names_equal_the_documented_ones() {
    let metrics = Metrics::of_version("1.2.3");
    metrics.read_index_with(|| IndexSample {
        operations: vec![
            sample("Migrating", State::Progressing, Some(4.0)),
            sample("Migrating", State::Settling, Some(3.0)),
            sample("Migrating", State::Ended, None),
            sample("Starting", State::Succeeded, None),
        ],
        rule_sets: [("Watching", 3), ("InvalidRule", 1)].into(),
        ..IndexSample::default()
    });
    metrics.operation_started("kubevirt", "Migrating");
    metrics.operation_completed(
        "kubevirt",
        "Migrating",
        "Ended",
        "NotDetected",
        Duration::from_secs(2),
    );
    metrics.feed_events("v1/pods").inc();
    metrics.feed_state("v1/pods", "listing");
    metrics.feed_state("v1/pods", "watching");
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
    metrics.feed_relist("v1/pods");
    metrics.feed_restart("v1/pods");
    metrics.evaluation_failed("rules", "Migrating");
    api.ca_bundle_is_current(true);
    api.review(ReviewKind::Token, Some(201), Duration::from_millis(3));
    api.review(ReviewKind::SubjectAccess, None, Duration::from_secs(10));
    let persistence = metrics.persistence();
    persistence.written("apply");
    persistence.failed("missing");
    persistence.backlog(1, None);
    let text = metrics.render();
    check_documented(&text);
    for line in [
        r#"ifo_build_info{version="1.2.3"} 1"#,
        r#"ifo_operations{component="kubevirt",operation="Migrating",state="Progressing"} 1"#,
        r#"ifo_operation_oldest_seconds{component="kubevirt",operation="Migrating"} 4"#,
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

fn sample(operation: &str, state: State, age: Option<f64>) -> OperationSample {
    OperationSample {
        component: "kubevirt".into(),
        operation: operation.into(),
        state,
        age,
        nodes: Arc::default(),
        overdue: false,
        stalled: false,
        place: Some(("shop".into(), "VirtualMachine/web".into())),
    }
}

#[test]
fn activities_and_operations_of_nodes_have_series() {
    let on = |nodes: &[&str], operation, state| OperationSample {
        nodes: nodes.iter().map(|node| (*node).into()).collect(),
        ..sample(operation, state, Some(1.0))
    };
    let metrics = Metrics::new();
    metrics.read_index_with(move || IndexSample {
        activities: [
            ("namespace", "shop", 0),
            ("cluster", "", -1),
            ("node", "n1", 1),
        ]
        .map(|(scope, name, idle)| ActivitySample {
            scope: scope.into(),
            name: name.into(),
            idle,
        })
        .into(),
        operations: vec![
            on(&["n1", "n2"], "Migrating", State::Progressing),
            on(&["n1"], "Migrating", State::Blocked),
            on(&["n3"], "Cordoned", State::Held),
            OperationSample {
                age: None,
                ..on(&["n1"], "Migrating", State::Succeeded)
            },
        ],
        ..IndexSample::default()
    });
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
    let metrics = Metrics::new();
    metrics.read_index_with(|| IndexSample {
        operations: vec![
            OperationSample {
                overdue: true,
                ..sample("Migrating", State::Blocked, Some(1.0))
            },
            OperationSample {
                stalled: true,
                ..sample("Importing", State::Progressing, Some(1.0))
            },
            sample("Starting", State::Progressing, Some(1.0)),
            // A retained operation is not in flight.
            sample("Stopping", State::Failing, None),
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
    let scrapes = std::sync::atomic::AtomicUsize::new(0);
    metrics.read_index_with(move || {
        // At each scrape, all subjects are new ones.
        let scrape = scrapes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let of_subject = |n: usize| OperationSample {
            place: Some((
                format!("scrape-{scrape}").into(),
                format!("VirtualMachine/{n:04}").into(),
            )),
            ..sample("Migrating", State::Failing, Some(1.0))
        };
        IndexSample {
            operations: (0..MAX_VALUES + 10).rev().map(of_subject).collect(),
            ..IndexSample::default()
        }
    });
    for scrape in 0..2 {
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
        metrics.feed_events(&format!("v1/r{n}")).inc();
    }
    let text = metrics.render();
    assert!(text.contains(r#"ifo_feed_events_total{target="other"} 10"#));
}
