//! Runs the queries of the dashboard and of the alerts in a real Prometheus. This Prometheus
//! scrapes the demo: `ifo-apiserver demo`, which needs no cluster.

use crate::dashboard::{PanelQuery, dashboard, queries, without_variables};
use crate::harness::{Demo, OPERATIONS, eventually};
use crate::prometheus::{Prometheus, programs};
use crate::{alerting_rules, items, metrics_in, text};
use serde_json::Value;

/// The metrics that have no values in the demo, each with the reason. If a query uses one of these
/// metrics, it must return no values. Every other query of the dashboard must return values.
const WITHOUT_VALUES: [(&str, &str); 16] = [
    ("ifo_feed_state", RECORDED),
    ("ifo_feed_relists_total", RECORDED),
    ("ifo_evaluation_failures_total", "no shipped rule fails"),
    (
        "apiserver_request_terminations_total",
        "the test reaches no limit",
    ),
    ("apiserver_delegated_authn_request_total", OWN_USERS),
    ("apiserver_delegated_authz_request_total", OWN_USERS),
    (
        "apiserver_delegated_authn_request_duration_seconds",
        OWN_USERS,
    ),
    (
        "apiserver_delegated_authz_request_duration_seconds",
        OWN_USERS,
    ),
    ("ifo_lease_renew_seconds", "the demo has no Lease"),
    ("ifo_ca_bundle_current", "the demo has no APIService"),
    ("ifo_baselines_reads_total", "the demo has no ConfigMap"),
    ("ifo_baselines_writes_total", "the demo has no ConfigMap"),
    ("ifo_persistence_queue_length", NOT_PERSISTENT),
    ("ifo_persistence_oldest_pending_seconds", NOT_PERSISTENT),
    ("ifo_persistence_failures_total", NOT_PERSISTENT),
    ("ifo_persistence_writes_total", NOT_PERSISTENT),
];

const RECORDED: &str = "the demo plays recordings, which it reads once";
const OWN_USERS: &str = "the demo authenticates and authorizes its users itself";
const NOT_PERSISTENT: &str = "the demo cannot write custom resources";

/// Returns the reason why a query returns no values in the demo. Returns None if the query must
/// return values.
fn reason(query: &str) -> Option<&'static str> {
    let used = metrics_in(query);
    let mut excepted = WITHOUT_VALUES.iter();
    let found = excepted.find(|(metric, _)| used.contains(*metric));
    found.map(|(_, reason)| *reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_of_dashboard_and_alerts_work_on_the_demo() {
    let Some(programs) = programs() else { return };
    let demo = Demo::start(&[]).await;
    // Before the demo is ready, it refuses requests. The metric of refused requests would have values.
    eventually("the demo is ready", async || {
        let request = http::Request::get("/readyz").body(Vec::new()).ok()?;
        demo.client.request_text(request).await.ok()
    })
    .await;
    let prometheus = Prometheus::start(&programs, &demo, None).await;
    // This watch and the lists below give values to the metrics about requests and watches.
    let _watch = demo
        .watch(&format!("{OPERATIONS}?watch=true"), "application/json")
        .await;
    demo.operations().await;

    let queries = queries();
    for PanelQuery {
        panel,
        expr,
        states,
    } in &queries
    {
        let query = without_variables(expr);
        if let Some(reason) = reason(&query) {
            let values = prometheus.query(&query).await;
            assert!(
                values.is_empty(),
                "{panel}: {query}: the query must return no values ({reason}), but it returned \
                 {values:?}"
            );
            continue;
        }
        eventually(&format!("values of {panel}: {query}"), async || {
            // A query with `rate` has values only if requests were sent between two scrapes.
            demo.operations().await;
            let values = prometheus.query(&query).await;
            let unnamed = |value: &String| states.as_ref().is_some_and(|it| !it.contains(value));
            let unnamed: Vec<_> = values.iter().filter(|value| unnamed(value)).collect();
            assert!(
                unnamed.is_empty(),
                "{panel}: no text for the values {unnamed:?}"
            );
            (!values.is_empty()).then_some(())
        })
        .await;
    }
    for (metric, reason) in WITHOUT_VALUES {
        let is_used = queries.iter().any(|query| query.expr.contains(metric));
        assert!(is_used, "no query uses {metric} ({reason})");
    }

    check_variables(&prometheus).await;
    check_alerts(&prometheus).await;
}

/// Asserts that Prometheus finds values for each variable of the dashboard, and that the queries of
/// the dashboard's annotations are valid.
async fn check_variables(prometheus: &Prometheus) {
    let dashboard = dashboard();
    for variable in items(&dashboard["templating"]["list"]) {
        let Some(definition) = variable["definition"].as_str() else {
            continue;
        };
        let arguments = definition
            .strip_prefix("label_values(")
            .and_then(|rest| rest.strip_suffix(')'))
            .and_then(|arguments| arguments.split_once(", "));
        let (metric, label) = arguments.expect("the definition must be label_values");
        let path = format!("label/{label}/values");
        let values = prometheus.get(&path, &[("match[]", metric)]).await;
        items(&values);
    }
    for annotation in items(&dashboard["annotations"]["list"]) {
        prometheus.query(text(annotation, "/expr")).await;
    }
}

/// Asserts that Prometheus evaluates all alerts without an error. Some alerts must be inactive,
/// because their causes do not occur in the demo.
async fn check_alerts(prometheus: &Prometheus) {
    let rules = eventually("the evaluation of all alerts", async || {
        let groups = prometheus.get("rules", &[]).await;
        let groups = items(&groups["groups"]).iter();
        let rules = groups.flat_map(|group| items(&group["rules"]).to_vec());
        let rules: Vec<Value> = rules.collect();
        let unknown = rules.iter().any(|rule| rule["health"] == "unknown");
        (!unknown).then_some(rules)
    })
    .await;
    assert_eq!(rules.len(), alerting_rules().len());
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        let must_be_inactive = [
            "IfoNoLeader",
            "IfoRuleSetNotWorking",
            "IfoTargetNotWatched",
            "IfoCertificateExpiring",
            "IfoCaBundleOutdated",
        ];
        if must_be_inactive.contains(&text(rule, "/name")) {
            assert_eq!(rule["state"], "inactive", "{rule}");
        }
    }
    let alerts = alerting_rules();
    for alert in alerts.iter().map(|rule| text(rule, "/expr")) {
        prometheus.query(alert).await;
    }
    let targets: Value = prometheus.get("targets", &[]).await;
    let target = &targets["activeTargets"][0];
    assert_eq!(target["health"], "up", "{target}");
}
