//! Tests of the alerts: their unit tests, annotations and runbooks.

use crate::{alerting_rules, items, parse, read, repository, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// The file with the unit tests that promtool runs.
pub const UNIT_TESTS: &str = "tests/monitoring/alerts.yaml";

fn names() -> BTreeSet<String> {
    let rules = alerting_rules();
    let names = rules.iter().map(|rule| text(rule, "/alert").to_owned());
    names.collect()
}

/// Returns true if the unit test expects that the alert fires, and in a later check that it does not
/// fire any more. The checks are in the order of time.
fn fires_and_clears(unit_test: &Value, alert: &str) -> bool {
    let checks = unit_test["alert_rule_test"]
        .as_array()
        .into_iter()
        .flatten();
    let checks = checks.filter(|check| check["alertname"] == alert);
    let fires = |check: &Value| !check["exp_alerts"].as_array().is_none_or(Vec::is_empty);
    let mut since_fired = checks.map(fires).skip_while(|fires| !fires);
    since_fired.any(|fires| !fires)
}

#[test]
fn each_alert_has_a_unit_test_in_which_it_fires_and_clears() {
    let tests = parse(UNIT_TESTS);
    let tests = items(&tests["tests"]);
    for alert in names() {
        let tested = tests.iter().any(|it| fires_and_clears(it, &alert));
        assert!(
            tested,
            "{UNIT_TESTS} has no test in which {alert} fires and clears"
        );
    }
}

#[test]
fn each_alert_has_a_severity_and_texts() {
    for rule in alerting_rules() {
        let severity = text(&rule, "/labels/severity");
        let may_be_critical = [
            "IfoNoLeader",
            "IfoCertificateExpiring",
            "IfoApiServiceUnavailable",
        ];
        let is_info = severity == "info" && text(&rule, "/alert").ends_with("OperationsInFlight");
        assert!(
            severity == "warning"
                || is_info
                || (severity == "critical" && may_be_critical.contains(&text(&rule, "/alert"))),
            "{rule}"
        );
        for annotation in ["summary", "description"] {
            assert!(!text(&rule["annotations"], &format!("/{annotation}")).is_empty());
        }
        // Without the field `for`, an alert fires as soon as its condition is true. During a
        // failover, some of the conditions are true for a short time.
        assert!(!text(&rule, "/for").is_empty(), "{rule}");
    }
}

#[test]
fn each_alert_has_a_runbook_and_each_runbook_an_alert() {
    let site = "https://github.com/kubevirt/ifo/blob/main/docs/runbooks/";
    for rule in alerting_rules() {
        let alert = text(&rule, "/alert");
        let url = text(&rule, "/annotations/runbook_url");
        assert_eq!(url, format!("{site}{alert}.md"));
        let runbook = read(&format!("docs/runbooks/{alert}.md"));
        let headings: Vec<&str> = runbook.lines().filter(|it| it.starts_with('#')).collect();
        let expected = [
            &format!("# {alert}"),
            "## What it means",
            "## How to check",
            "## What to do",
            "## When it is no problem",
        ];
        assert_eq!(headings, expected, "docs/runbooks/{alert}.md");
    }
    let runbooks = std::fs::read_dir(repository("docs/runbooks")).expect("the folder must exist");
    let runbooks = runbooks.map(|entry| {
        let path = entry.expect("the folder must be readable").path();
        path.file_stem().unwrap().to_string_lossy().into_owned()
    });
    assert_eq!(runbooks.collect::<BTreeSet<_>>(), names());
}
