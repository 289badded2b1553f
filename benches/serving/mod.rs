//! Builds the server's routes without a listener, for the benchmarks `pipeline` and
//! `instructions`.

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use ifo::auth::{DemoUser, DemoUsers};
use ifo::index::IndexReader;
use ifo::replicate::View;
use ifo::rules::IncompleteRuleSets;
use ifo::serve::{self, Health, Limits, Server, VersionInfo, resource};
use ifo::telemetry::Metrics;
use ifo_api::completeness::Gaps;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// Number of watches in a benchmark. It is more than the default of the server.
const MOST_WATCHES: usize = 2_000;
/// Token of the administrator.
const TOKEN: &str = "token";

/// The routes of a server that has read all targets and serves the operations of `reader`.
pub fn router(reader: IndexReader) -> Router {
    let health = Arc::new(Health::new());
    health.set_has_joined();
    health.set_synced();
    let administrator = DemoUser {
        name: "administrator",
        namespace: None,
    };
    let users = Arc::new(DemoUsers::new([(TOKEN, administrator)]));
    serve::router(Server {
        view: View::alone(reader.clone()),
        coverage: Arc::new(IncompleteRuleSets::default),
        resources: vec![resource::inflight_operations(reader)],
        authenticate: users.clone(),
        authorize: users,
        completeness: Arc::new(Gaps {
            read: true,
            total: 1,
            rule_sets: Vec::new(),
        }),
        health,
        metrics: Arc::new(Metrics::new()),
        version: VersionInfo::default(),
        direct: None,
        limits: Limits {
            watches: MOST_WATCHES,
            watches_per_user: MOST_WATCHES,
            ..Limits::default()
        },
        shutdown: CancellationToken::new(),
    })
}

/// The body of the answer to a GET of the administrator.
pub async fn get(router: &Router, path: &str, accept: &str, encoding: &str) -> Body {
    let request = Request::get(path)
        .header("authorization", format!("Bearer {TOKEN}"))
        .header("accept", accept)
        .header("accept-encoding", encoding)
        .body(Body::empty())
        .expect("the parts are valid");
    let response = router.clone().oneshot(request).await;
    let response = response.expect("the router always answers");
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body()
}
