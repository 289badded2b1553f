//! Serves the paths of health probes (`/healthz`, `/livez`, `/readyz`), `/version` and `/metrics`.
//!
//! Everybody may send health probes. The reason of a failed check can contain names and addresses.
//! So an answer contains the reason only if the user may get the path of the check, such as
//! `/readyz/replica`. The `ClusterRole` `system:monitoring` has this right.

use super::content_negotiation::Syntax;
use super::create_responses::{plain, whole as whole_json};
use super::middleware::Admitted;
use super::quoting::clip;
use super::{Readiness, ServerState, VersionInfo};
use crate::auth::{ANONYMOUS_USER, AccessDecision, Attributes, User};
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{MethodRouter, get};
use axum::{Extension, Router};
use http::{HeaderValue, StatusCode, Uri, header};
use std::fmt::Write as _;
use std::sync::Arc;

/// The name of a health check, and the function that returns true if the check passes.
type HealthCheck = (&'static str, fn(&Readiness) -> bool);

/// Maximum length, in bytes, of the list of unknown check names in an answer. A longer list is cut
/// off. The query option `exclude` names the checks to skip. If a name in this option matches no
/// check, the answer repeats the name.
const MAX_NAMES_BYTES: usize = 512;

/// The text in place of the reason of a failed check, as in the kube-apiserver. The user may not
/// see the reason, or the reason is not known.
const WITHHELD: &str = "reason withheld";

/// The checks of `/healthz` and `/livez`. These checks only show that the server answers requests.
/// If the server does not answer, the kubelet restarts it. A restart would not help after other
/// failures.
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
        move |State(shared): State<Arc<ServerState>>,
              Extension(admitted): Extension<Admitted>,
              uri: Uri| async move {
            let readiness = &shared.server.readiness;
            let has_failed = checks.iter().any(|check| !(check.1)(readiness));
            let reason = match (&admitted.user, failure_reason(&shared)) {
                (Some(user), Some(reason)) if has_failed && may_get_checks(&shared, user).await => {
                    Some(reason)
                }
                _ => None,
            };
            run_checks(name, checks, readiness, reason.as_deref(), &uri)
        },
    )
}

fn single_probe(check: HealthCheck) -> MethodRouter<Arc<ServerState>> {
    get(move |State(shared): State<Arc<ServerState>>| async move {
        if (check.1)(&shared.server.readiness) {
            ok("ok".to_owned())
        } else {
            // The user was authorized for the path of this check.
            let reason = failure_reason(&shared).filter(|_| is_about_replica(check.0));
            let reason = reason.as_deref().unwrap_or(WITHHELD);
            plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("internal server error: {reason}"),
            )
        }
    })
}

/// Returns the reason why the checks of [`is_about_replica`] can fail. None if it is not known.
fn failure_reason(shared: &ServerState) -> Option<String> {
    shared.server.hooks.unready_reason()
}

/// Returns true if the check depends on the role of this replica, and on the copy of the leader's
/// objects.
fn is_about_replica(check: &str) -> bool {
    matches!(check, "informer-sync" | "replica")
}

/// Returns true if the user may see why a readiness check fails. The kubelet sends probes as the
/// anonymous user, who may not. So these probes need no request to the kube-apiserver.
async fn may_get_checks(shared: &ServerState, user: &User) -> bool {
    if user.name == ANONYMOUS_USER {
        return false;
    }
    let attributes = Attributes::NonResource {
        path: "/readyz/replica".to_owned(),
        verb: "get".to_owned(),
    };
    let decision = shared.server.authorize.authorize(user, &attributes).await;
    matches!(decision, Ok(AccessDecision::Allow))
}

/// Runs all checks that the option `exclude` does not name. Returns a 500 if a check fails. `reason`
/// is the reason of [`failure_reason`], or None if the user may not see it.
fn run_checks(
    name: &str,
    checks: &[HealthCheck],
    readiness: &Readiness,
    reason: Option<&str>,
    uri: &Uri,
) -> Response {
    let mut excluded: Vec<String> = Vec::new();
    let mut verbose = false;
    for (key, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        match &*key {
            "verbose" => verbose = true,
            "exclude" => excluded.push(value.into_owned()),
            _ => {}
        }
    }
    let mut report = String::new();
    let mut failed = false;
    for (check, passes) in checks {
        let before = excluded.len();
        excluded.retain(|excluded| excluded != check);
        let line = if excluded.len() < before {
            format!("[+]{check} excluded: ok")
        } else if passes(readiness) {
            format!("[+]{check} ok")
        } else {
            failed = true;
            let reason = reason.filter(|_| is_about_replica(check));
            format!("[-]{check} failed: {}", reason.unwrap_or(WITHHELD))
        };
        writeln!(report, "{line}").expect("writing to a String cannot fail");
    }
    if !excluded.is_empty() {
        // The debug format escapes control characters. So a client cannot add lines to the report.
        let mut names = format!("{excluded:?}");
        clip(&mut names, MAX_NAMES_BYTES);
        writeln!(
            report,
            "warn: some health checks cannot be excluded: no matches for {names}"
        )
        .expect("writing to a String cannot fail");
    }
    if failed {
        return plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{report}{name} check failed"),
        );
    }
    if name == "readyz" {
        readiness.set_was_ready();
    }
    if !verbose {
        return ok("ok".to_owned());
    }
    ok(format!("{report}{name} check passed\n"))
}

fn ok(text: String) -> Response {
    let mut response = plain(StatusCode::OK, "");
    *response.body_mut() = Body::from(text);
    response
}

/// Serves the version of this server, as other aggregated API servers do.
///
/// The kube-apiserver never requests the version. If a user runs `kubectl version` against this
/// server directly, kubectl warns that client and server have different versions. Reporting a
/// version of Kubernetes would avoid the warning, but it would be wrong: this server does not have
/// the APIs of Kubernetes.
async fn version(State(shared): State<Arc<ServerState>>) -> Response {
    let VersionInfo {
        version,
        commit,
        built,
    } = &shared.server.version;
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut number = || numbers.next().unwrap_or("0").to_owned();
    let info = serde_json::json!({
        "major": number(),
        "minor": number(),
        // Clients parse this field, and require the letter `v`.
        "gitVersion": format!("v{}", version.trim_start_matches('v')),
        "gitCommit": commit,
        "gitTreeState": "",
        "buildDate": built,
        "goVersion": "",
        "compiler": "rustc",
        "platform": platform(std::env::consts::OS, std::env::consts::ARCH),
    });
    whole_json(info.to_string().into_bytes(), Syntax::Indented)
}

/// Returns the platform, such as `linux/amd64`. Clients expect Go's names of operating systems and
/// architectures.
fn platform(os: &str, arch: &str) -> String {
    let os = if os == "macos" { "darwin" } else { os };
    let arch = match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{os}/{arch}")
}

async fn metrics(State(shared): State<Arc<ServerState>>) -> Response {
    let mut response = Response::new(Body::from((shared.server.render_metrics)()));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8"),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::platform;

    #[test]
    fn the_platform_has_the_go_names() {
        assert_eq!(platform("linux", "x86_64"), "linux/amd64");
        assert_eq!(platform("macos", "aarch64"), "darwin/arm64");
        assert_eq!(platform("linux", "s390x"), "linux/s390x");
    }
}
