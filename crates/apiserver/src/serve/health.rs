//! Serves the paths of health probes (`/healthz`, `/livez`, `/readyz`), `/version` and `/metrics`.
//!
//! Every client may send health probes. The reason of a failed check can contain names and
//! addresses. So the server shows the reason only on the path of the single check, such as
//! `/readyz/replica`. The `ClusterRole` `system:monitoring` allows its users to get this path.

use super::answer::responses::{json, plain};
use super::{Readiness, ServerState};
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use http::{StatusCode, Uri, header};
use std::sync::Arc;

/// The name of a health check, and the function that returns true if the check passes.
type HealthCheck = (&'static str, fn(&Readiness) -> bool);

/// The text in place of the reason of a failed check, as in the kube-apiserver.
const WITHHELD: &str = "reason withheld";

/// The checks of `/healthz` and `/livez`. They only show that the server answers requests. If the
/// server does not answer, the kubelet restarts the server. For other failures, there is no check
/// here, because a restart would not help.
const LIVENESS_CHECKS: &[HealthCheck] = &[("ping", |_| true)];
/// The checks of `/readyz`.
const READINESS_CHECKS: &[HealthCheck] = &[
    ("ping", |_| true),
    ("informer-sync", Readiness::synced),
    ("replica", Readiness::is_among_replicas),
    ("shutdown", |readiness| !readiness.draining()),
];

/// Creates the routes of this module.
pub fn routes() -> Router<Arc<ServerState>> {
    let mut router = Router::new();
    for (name, checks) in [
        ("healthz", LIVENESS_CHECKS),
        ("livez", LIVENESS_CHECKS),
        ("readyz", READINESS_CHECKS),
    ] {
        router = router.route(&format!("/{name}"), combined_probe(name, checks));
        for check in checks {
            router = router.route(&format!("/{name}/{}", check.0), single_probe(*check));
        }
    }
    router
        .route("/version", get(version))
        .route("/metrics", get(metrics))
}

fn combined_probe(
    name: &'static str,
    checks: &'static [HealthCheck],
) -> MethodRouter<Arc<ServerState>> {
    get(
        async move |State(shared): State<Arc<ServerState>>, uri: Uri| {
            run_checks(name, checks, &shared.server.readiness, &uri)
        },
    )
}

fn single_probe(check: HealthCheck) -> MethodRouter<Arc<ServerState>> {
    get(async move |State(shared): State<Arc<ServerState>>| {
        if (check.1)(&shared.server.readiness) {
            return plain(StatusCode::OK, "ok");
        }
        let reason = shared.server.hooks.unready_reason();
        // The reason from the hooks describes the role of this replica and the state of its copy of
        // the leader's objects. So it explains only these two checks.
        let reason = reason.filter(|_| matches!(check.0, "informer-sync" | "replica"));
        let reason = reason.as_deref().unwrap_or(WITHHELD);
        plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("internal server error: {reason}\n"),
        )
    })
}

/// Runs all checks that the option `exclude` does not name. Returns a 500 if a check fails.
fn run_checks(name: &str, checks: &[HealthCheck], readiness: &Readiness, uri: &Uri) -> Response {
    let query = uri.query().unwrap_or_default().as_bytes();
    let options: Vec<_> = form_urlencoded::parse(query).collect();
    let is_excluded = |check: &str| {
        let mut options = options.iter();
        options.any(|(key, value)| key == "exclude" && value == check)
    };
    let mut report = String::new();
    let mut failed = false;
    for (check, passes) in checks {
        let line = if is_excluded(check) {
            format!("[+]{check} excluded: ok\n")
        } else if passes(readiness) {
            format!("[+]{check} ok\n")
        } else {
            failed = true;
            format!("[-]{check} failed: {WITHHELD}\n")
        };
        report.push_str(&line);
    }
    if failed {
        return plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{report}{name} check failed\n"),
        );
    }
    if name == "readyz" {
        readiness.set_was_ready();
    }
    if options.iter().any(|(key, _)| key == "verbose") {
        plain(StatusCode::OK, format!("{report}{name} check passed\n"))
    } else {
        plain(StatusCode::OK, "ok")
    }
}

/// Serves the version of this server, as other aggregated API servers do.
///
/// The kube-apiserver never requests the version. If a user runs `kubectl version` against this
/// server directly, kubectl warns that client and server have different versions. Reporting a
/// version of Kubernetes would avoid the warning, but it would be wrong: this server does not have
/// the APIs of Kubernetes.
async fn version(State(shared): State<Arc<ServerState>>) -> Response {
    let version = shared.server.version.trim_start_matches('v');
    let mut numbers = version.split('.');
    let mut number = || numbers.next().unwrap_or("0").to_owned();
    let info = serde_json::json!({
        "major": number(),
        "minor": number(),
        // Clients parse this field, and require the letter `v`.
        "gitVersion": format!("v{version}"),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    });
    json(format!("{info}\n"))
}

async fn metrics(State(shared): State<Arc<ServerState>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    (
        [(header::CONTENT_TYPE, kind)],
        (shared.server.render_metrics)(),
    )
        .into_response()
}
