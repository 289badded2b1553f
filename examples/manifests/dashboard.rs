//! Creates the ConfigMap with the Grafana dashboard.
//!
//! The input is the JSON of the dashboard. The output is a ConfigMap with this JSON. The dashboard
//! sidecar of Grafana finds the ConfigMap by its label.

use std::fmt::Write as _;

/// Path of the JSON of the dashboard.
pub const SOURCE: &str = "deploy/components/monitoring/dashboard.json";

/// Path of the generated ConfigMap.
pub const CONFIG_MAP: &str = "deploy/components/monitoring/dashboard-configmap.yaml";

/// Returns the ConfigMap with this dashboard.
pub fn config_map(dashboard: &str) -> String {
    let mut text = format!(
        "# Generated from {SOURCE} by `make manifests`.\n\
         apiVersion: v1\n\
         kind: ConfigMap\n\
         metadata:\n\
         \x20 name: ifo-dashboard\n\
         \x20 namespace: ifo-system\n\
         \x20 labels:\n\
         \x20   app.kubernetes.io/part-of: ifo\n\
         \x20   # The sidecar of Grafana looks for this label.\n\
         \x20   grafana_dashboard: \"1\"\n\
         data:\n\
         \x20 ifo.json: |\n"
    );
    for line in dashboard.lines() {
        let _ = writeln!(text, "    {line}");
    }
    text
}
