//! Reads the queries of the Grafana dashboard, and checks the layout and the data source of the
//! dashboard.

use crate::{items, parse, text};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const DASHBOARD: &str = "deploy/components/monitoring/dashboard.json";

/// A query of a panel of the dashboard. `panel` is the title of the panel.
pub struct PanelQuery {
    pub panel: String,
    pub expr: String,
    /// In a state timeline, the values for which the panel has a text and a colour. Otherwise None.
    pub states: Option<BTreeSet<String>>,
}

pub fn dashboard() -> Value {
    parse(DASHBOARD)
}

/// Returns the queries of all panels. The queries can contain variables of Grafana, such as
/// `$namespace`.
pub fn queries() -> Vec<PanelQuery> {
    let dashboard = dashboard();
    let panels = panels(&dashboard).filter(|panel| panel["type"] != "row");
    let queries = panels.flat_map(|panel| {
        let queries = items(&panel["targets"]).iter();
        queries.map(|query| PanelQuery {
            panel: text(panel, "/title").to_owned(),
            expr: text(query, "/expr").to_owned(),
            states: (panel["type"] == "state-timeline").then(|| states(panel)),
        })
    });
    queries.collect()
}

fn states(panel: &Value) -> BTreeSet<String> {
    let states = panel.pointer("/fieldConfig/defaults/mappings/0/options");
    let states = states.and_then(Value::as_object).expect("value mappings");
    states.keys().cloned().collect()
}

fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    items(&dashboard["panels"]).iter()
}

/// Replaces the variables of Grafana in a query. `$namespace` and `$component` get the value for
/// the choice `All`. `$__rate_interval` becomes one minute.
pub fn without_variables(expr: &str) -> String {
    let expr = expr
        .replace("$__rate_interval", "1m")
        .replace("$namespace", ".*")
        .replace("$component", ".*");
    assert!(!expr.contains('$'), "unknown variable: {expr}");
    expr
}

#[test]
fn the_data_source_is_a_variable() {
    let dashboard = dashboard();
    let source = json!({"type": "prometheus", "uid": "${datasource}"});
    let queried = panels(&dashboard).filter(|panel| panel["type"] != "row");
    let variables = items(&dashboard["templating"]["list"]).iter();
    let (sources, others): (Vec<_>, Vec<_>) =
        variables.partition(|variable| variable["type"] == "datasource");
    assert_eq!(sources.len(), 1);
    assert_eq!(sources[0]["name"], "datasource");
    for user in queried.chain(others) {
        assert_eq!(user["datasource"], source, "{user}");
    }
}

#[test]
fn panels_have_unique_ids_and_a_description() {
    let mut ids = BTreeSet::new();
    for panel in panels(&dashboard()) {
        assert!(ids.insert(panel["id"].as_u64().expect("a number")));
        assert!(
            panel["type"] == "row" || !text(panel, "/description").is_empty(),
            "{panel}"
        );
    }
}
