//! Tests of the monitoring component in `deploy/components/monitoring`: its alerts, their runbooks,
//! and its dashboard.
//!
//! With the feature `prometheus-tests`, promtool checks the alerts, and a real Prometheus runs the
//! queries of the alerts and of the dashboard. `make monitoring` sets the feature. These tests take
//! long, and need a download. So only `.ci/nightly` runs them.
//!
//! The script `tests/debian-package` downloads Prometheus. To use an installed Prometheus instead,
//! set the environment variable `IFO_PROMETHEUS` to a folder with `prometheus` and `promtool`.
//!
//! If there is no Debian package of Prometheus for this machine, the tests that need Prometheus are
//! skipped with a message. With `IFO_REQUIRE_E2E=1` or `CI=true` in the environment, these tests
//! fail instead.

#[path = "monitoring/alerts.rs"]
mod alerts;
#[cfg_attr(
    not(feature = "prometheus-tests"),
    allow(dead_code, reason = "Prometheus needs the other part of it")
)]
#[path = "monitoring/dashboard.rs"]
mod dashboard;
#[cfg(feature = "prometheus-tests")]
#[path = "demo/harness.rs"]
#[allow(
    dead_code,
    clippy::unused_self,
    reason = "tests/demo.rs needs the other part of it"
)]
mod harness;
#[cfg(feature = "prometheus-tests")]
#[path = "monitoring/prometheus.rs"]
mod prometheus;
#[cfg(feature = "prometheus-tests")]
#[path = "monitoring/promtool.rs"]
mod promtool;
#[cfg(feature = "prometheus-tests")]
#[path = "monitoring/queries.rs"]
mod queries;

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Returns the path of a file in the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    let path = repository(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the content of a JSON or YAML file with one document.
fn parse(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the items of a list. Fails if the value is not a list or is empty.
fn items(list: &Value) -> &[Value] {
    let items = list.as_array().expect("the value must be a list");
    assert!(!items.is_empty());
    items
}

/// Returns the string at a JSON pointer.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_else(|| panic!("{pointer} must be a string: {value}"))
}

/// Returns the groups of alerting rules: those of the component, and those for tools that start
/// maintenance.
fn alert_groups() -> Vec<Value> {
    let files = [
        "deploy/components/monitoring/prometheusrule.yaml",
        "deploy/gates/alert.yaml",
    ];
    let groups = files.map(|file| items(&parse(file)["spec"]["groups"]).to_vec());
    groups.concat()
}

/// Returns the alerting rules of all groups.
fn alerting_rules() -> Vec<Value> {
    let groups = alert_groups();
    let rules = groups.iter().map(|group| items(&group["rules"]).to_vec());
    rules.collect::<Vec<_>>().concat()
}

/// Returns the names of the metrics in a query or in a document. The suffixes `_bucket` and
/// `_count` are removed from the names of histograms.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let name = regex::Regex::new(r"\b(ifo|apiserver|process|aggregator)_[a-z_]+")
        .expect("the regular expression is valid");
    let names = name.find_iter(text).map(|found| found.as_str());
    names
        .map(|name| name.strip_suffix("_bucket").unwrap_or(name))
        .map(|name| name.strip_suffix("_count").unwrap_or(name).to_owned())
        .collect()
}

/// Returns true if only a kube-apiserver has the metric, and not this server.
fn is_of_kube_apiserver(metric: &str) -> bool {
    metric.starts_with("aggregator_")
}

/// Returns the metrics in the first column of the tables in docs/metrics.md.
fn documented_metrics() -> BTreeSet<String> {
    let text = read("docs/metrics.md");
    let cells = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = cells.filter_map(|line| Some(line.split_once('`')?.0.to_owned()));
    names.collect()
}

#[test]
fn alerts_and_dashboard_use_documented_metrics_only() {
    let documented = documented_metrics();
    assert!(documented.contains("ifo_operations"), "{documented:?}");
    let rules = alerting_rules();
    let alerts = rules.iter().map(|rule| text(rule, "/expr").to_owned());
    let panels = dashboard::queries().into_iter().map(|query| query.expr);
    for query in alerts.chain(panels) {
        let used = metrics_in(&query);
        assert!(!used.is_empty(), "the query has no metric: {query}");
        let used: BTreeSet<_> = used
            .into_iter()
            .filter(|metric| !is_of_kube_apiserver(metric))
            .collect();
        let unknown: Vec<_> = used.difference(&documented).collect();
        assert!(
            unknown.is_empty(),
            "docs/metrics.md lacks {unknown:?} of the query {query}"
        );
        // Other programs have metrics with the same names: a kube-apiserver has `apiserver_…`, and
        // many programs have `process_…`. So queries of these metrics must select the scrape job
        // `ifo-apiserver`.
        for shared in used.iter().filter(|name| !name.starts_with("ifo_")) {
            let own = format!(r#"{shared}{{job="ifo-apiserver""#);
            let own_bucket = format!(r#"{shared}_bucket{{job="ifo-apiserver""#);
            assert!(
                query.contains(&own) || query.contains(&own_bucket),
                "the query must select the job: {query}"
            );
        }
    }
}
