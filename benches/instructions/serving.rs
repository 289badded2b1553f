//! Builds the server's HTTP routes without a listener, and sends requests to them.

use aggregated_apiserver::auth::{Authenticate, Authorize};
use aggregated_apiserver::serve::{self, Limits, Readiness, ServerParameters, VersionInfo};
use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use ifo::demo::users::{DemoUser, DemoUsers};
use ifo::index::{IndexReader, Resource};
use ifo::replicate::ReplicaStatus;
use ifo::resources::{self, OperationHooks};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// Largest number of watches. The benchmark `pipeline` opens 1,000 watches. The server's default
/// limit is 500.
const MAX_WATCHES: usize = 2_000;
/// Bearer token of the administrator.
const TOKEN: &str = "token";

/// Returns the routes of a server that is ready and serves the operations in `reader` to an
/// administrator.
#[allow(dead_code, reason = "not all benchmarks use it")]
pub fn router(reader: IndexReader) -> Router {
    let administrator = DemoUser {
        name: "administrator",
        namespace: None,
        token: TOKEN.to_owned(),
    };
    let users = Arc::new(DemoUsers(vec![administrator]));
    let served = resources::inflight_operations(reader.clone());
    router_of(reader, served, (users.clone(), users))
}

/// Returns the routes of a server that is ready and serves a resource.
pub fn router_of(
    reader: IndexReader,
    served: Resource,
    (authenticate, authorize): (Arc<dyn Authenticate>, Arc<dyn Authorize>),
) -> Router {
    let readiness = Arc::new(Readiness::new());
    readiness.set_has_joined();
    readiness.set_synced();
    let hooks = Arc::new(OperationHooks {
        reader: reader.clone(),
        replica_status: ReplicaStatus::alone(reader),
        read_gaps: Arc::new(ifo_api::completeness::Gaps::default),
        cluster_namespace: "ifo-system".into(),
        readiness: readiness.clone(),
        authorize: authorize.clone(),
    });
    let server = ServerParameters {
        title: "ifo",
        authenticate,
        authorize,
        hooks,
        readiness,
        metrics: Arc::default(),
        render_metrics: Arc::new(String::new),
        version: VersionInfo::default(),
        served_by_other_router: None,
        routes: Router::new(),
        public_routes: Router::new(),
        limits: Limits {
            watches: MAX_WATCHES,
            watches_per_user: MAX_WATCHES,
            ..Limits::default()
        },
        shutdown: CancellationToken::new(),
    };
    serve::router(server, vec![served])
}

/// Sends a GET request as the administrator. Returns the body of the answer.
#[allow(dead_code, reason = "not all benchmarks use it")]
pub async fn get(router: &Router, path: &str, accept: &str, encoding: &str) -> Body {
    let request = Request::get(path)
        .header("authorization", format!("Bearer {TOKEN}"))
        .header("accept", accept)
        .header("accept-encoding", encoding)
        .body(Body::empty())
        .expect("path and headers are valid");
    let response = router.clone().oneshot(request).await;
    let response = response.expect("the error type of a router is `Infallible`");
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body()
}
