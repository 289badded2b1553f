//! The parts that several benchmarks use: the HTTP routes of the server without a listener, a compiled
//! rule set, and the processor time.

use aggregated_apiserver::auth::{Authenticate, Authorize};
use aggregated_apiserver::serve::{self, Limits, ServerParameters};
use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use ifo::demo::users::{DemoUser, DemoUsers};
use ifo::index::{IndexReader, Key, Resource, VersionAssignment, Write, Writer};
use ifo::replicate::ReplicaStatus;
use ifo::resources::{self, OperationHooks};
use ifo_api::Gvr;
use ifo_api::ruleset::OperationRuleSet;
use ifo_engine::rules::{self, RuleBook};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt as _;

/// Largest number of watches. The benchmark `pipeline` opens 1,000 watches. The server's default
/// limit is 500.
const MAX_WATCHES: usize = 2_000;
/// Bearer token of the administrator.
const TOKEN: &str = "token";

/// Returns the routes of a server that is ready and serves the operations in `reader` to an
/// administrator.
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
    let mut server = ServerParameters::new("ifo", authenticate, authorize.clone());
    server.readiness.set_synced();
    server.hooks = Arc::new(OperationHooks {
        reader: reader.clone(),
        replica_status: ReplicaStatus::alone(reader),
        read_gaps: Arc::new(ifo_api::completeness::Gaps::default),
        cluster_namespace: "ifo-system".into(),
        readiness: server.readiness.clone(),
        authorize,
    });
    server.limits = Limits {
        watches: MAX_WATCHES,
        watches_per_user: MAX_WATCHES,
        ..Limits::default()
    };
    serve::router(server, vec![served])
}

/// Sends a GET request as the administrator. Returns the body of the answer.
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

/// Compiles the shipped rule set for `VirtualMachine` objects.
pub fn virtual_machines() -> Arc<RuleBook> {
    let yaml = include_str!("../../rules/kubevirt/virtualmachines.yaml");
    let set: OperationRuleSet =
        serde_saphyr::from_str(yaml).expect("the shipped rule set is valid");
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let rules = rules::compile(name, &set.spec).expect("the shipped rule set compiles");
    let target = set.spec.target;
    let target = Gvr {
        group: target.group,
        version: target.version,
        resource: target.resource,
    };
    let kind = "VirtualMachine".into();
    Arc::new(RuleBook::new(1, target, kind, true, vec![Arc::new(rules)]))
}

/// Writes operations to an index. Each has a namespace, a name and the name of its subject.
pub fn commit(writer: &mut Writer, operations: impl Iterator<Item = [String; 3]>) {
    let puts = operations.map(|[namespace, name, subject]| {
        let object = ifo_api::testing::object(&json!({
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"subject": {"name": subject, "namespace": namespace}},
        }));
        Write::Put {
            key: Key::new(namespace, name),
            object,
        }
    });
    let committed = writer.commit(puts.collect::<Vec<_>>(), VersionAssignment::Mint);
    committed.expect("the objects are well formed");
}

/// Returns the processor time of all threads of this process so far.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("processor time is not negative")
}
