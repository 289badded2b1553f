//! Tests of the HTTP API. The tests send requests to the router of a server with a real index.
//! Authentication and authorization are simulated. This file has the fixture that all tests use.

mod access;
mod completeness;
mod compression;
mod connection_limit;
mod connection_timeouts;
mod dashboards;
mod large_watches;
mod limits;
mod lists;
mod pauses;
mod refusals;
mod replicas;
mod request_log;
mod tables;
mod tls_listener;
mod visibility;
mod watches;
mod websockets;

use super::{
    OperationHooks, SharedShortNames, SubjectVisibility, activities, gate_webhook,
    inflight_operations, operation_records,
};
use crate::demo::{kinds, scene};
use crate::index::{
    Bounds, Key, Resource, Rv, VersionAssignment, Write, Writer, index_from, index_key,
};
use crate::replicate::peer_requests;
use crate::replicate::{ReplicaRole, ReplicaStatus};
use crate::telemetry::Metrics;
use access::{HeaderAuthenticator, RecordingAuthorizer};
use aggregated_apiserver::auth::{AccessDecision, Attributes, Authorize, Undecided, User};
use aggregated_apiserver::serve::{Limits, Readiness, ResourceInfo, ServerParameters, router};
use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use futures::future::BoxFuture;
use http::{HeaderName, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use ifo_api::completeness::{Gaps, GapsObject};
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

pub const BASE: &str = "/apis/live.ifo.kubevirt.io/v1alpha1";
pub const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// The kinds whose short names the tables contain.
static KINDS: LazyLock<Vec<ResourceInfo>> =
    LazyLock::new(|| scene::open("ifo-system").0.served_kinds());

/// Returns the gaps if all three rule sets work.
pub fn no_gaps() -> Gaps {
    Gaps {
        rule_sets_are_read: true,
        total: 3,
        ..Gaps::default()
    }
}

/// A server with an index of operations. A server from [`Fixture::unsynced`] refuses get, list and
/// watch, because its index does not count as complete.
pub struct Fixture {
    pub live: Writer,
    pub router: Router,
    pub readiness: Arc<Readiness>,
    /// The rule sets that may miss operations, and that the index does not have yet.
    pub unwritten_gaps: Arc<Mutex<Gaps>>,
    pub authorizer: Arc<RecordingAuthorizer>,
    pub shutdown: CancellationToken,
    pub metrics: Arc<Metrics>,
    /// The kinds that discovery serves.
    pub kinds: SharedShortNames,
    pub replica_status: ReplicaStatus,
    /// The role of the replica. At first, the replica is the leader.
    pub role: watch::Sender<ReplicaRole>,
}

impl Fixture {
    pub fn new() -> Self {
        Self::bounded(1 << 20)
    }

    /// Creates a server whose ring buffer of changes has at most this size in bytes.
    pub fn bounded(bytes: usize) -> Self {
        let fixture = Self::build(bytes, Limits::default());
        fixture.readiness.set_synced();
        fixture
    }

    pub fn unsynced() -> Self {
        Self::build(1 << 20, Limits::default())
    }

    pub fn limited(requests: usize, watches: usize) -> Self {
        Self::within(Limits {
            requests,
            watches,
            ..Limits::default()
        })
    }

    pub fn within(limits: Limits) -> Self {
        let mut fixture = Self::build(1 << 20, limits);
        fixture.readiness.set_synced();
        fixture.fill();
        fixture
    }

    /// Creates a server with visibility by subject. `rights` decides who may get a subject.
    pub fn filtered(rights: Arc<dyn Authorize>) -> Self {
        let fixture = Self::build_with(1 << 20, Limits::default(), Some(rights));
        fixture.readiness.set_synced();
        fixture
    }

    fn build(bytes: usize, limits: Limits) -> Self {
        Self::build_with(bytes, limits, None)
    }

    fn build_with(bytes: usize, limits: Limits, rights: Option<Arc<dyn Authorize>>) -> Self {
        let bounds = Bounds {
            bytes,
            age: Duration::from_mins(10),
        };
        let (mut live, reader) = index_from(bounds, Rv(99));
        commit_gaps(&mut live, no_gaps(), 100);
        let unwritten_gaps = Arc::new(Mutex::new(Gaps::default()));
        let newest_gaps = unwritten_gaps.clone();
        let readiness = Arc::new(Readiness::new());
        readiness.set_has_joined();
        let authorizer = Arc::new(RecordingAuthorizer::default());
        let shutdown = CancellationToken::new();
        let metrics = Arc::new(Metrics::new());
        let replica_status = ReplicaStatus::alone(reader.clone());
        let role = replica_status.role().clone();
        let short_names = kinds::short_names(&KINDS);
        let hooks = Arc::new(OperationHooks {
            reader: reader.clone(),
            replica_status: replica_status.clone(),
            read_gaps: Arc::new(move || newest_gaps.lock().unwrap().clone()),
            cluster_namespace: "ifo-system".into(),
            readiness: readiness.clone(),
            authorize: authorizer.clone(),
        });
        let server = ServerParameters {
            title: "ifo",
            authenticate: Arc::new(HeaderAuthenticator),
            authorize: authorizer.clone(),
            public_routes: gate_webhook::routes(hooks.clone()),
            routes: peer_requests::routes(replica_status.clone()),
            hooks,
            readiness: readiness.clone(),
            metrics: metrics.api(),
            render_metrics: {
                let metrics = metrics.clone();
                Arc::new(move || metrics.render())
            },
            version: "0.1.0".to_owned(),
            shutdown: shutdown.clone(),
            limits,
        };
        let context = Arc::new(ArcSwap::from_pointee(short_names));
        let mut resources = vec![
            Resource {
                context: context.clone(),
                ..inflight_operations(reader.clone())
            },
            activities(reader.clone()),
            operation_records(reader.clone()),
        ];
        if let Some(rights) = rights {
            SubjectVisibility::new(reader, context.clone(), "ifo-system".into(), rights)
                .restrict(&mut resources);
        }
        let router = router(server, resources);
        Self {
            live,
            router,
            readiness,
            unwritten_gaps,
            authorizer,
            shutdown,
            metrics,
            kinds: context,
            replica_status,
            role,
        }
    }

    /// Creates a server with five operations in the namespaces `a`, `a-b` and `b`. The operations
    /// have the versions 101 to 105.
    pub fn filled() -> Self {
        let mut fixture = Self::new();
        fixture.fill();
        fixture
    }

    pub fn fill(&mut self) {
        for (number, (namespace, name)) in
            [("b", "x"), ("a", "y"), ("a-b", "z"), ("a", "x"), ("b", "w")]
                .into_iter()
                .enumerate()
        {
            self.put(101 + number as u64, namespace, name, |_| {});
        }
    }

    /// Writes an operation to the index at version `rv`, after `edit` has changed it.
    pub fn put(&mut self, rv: u64, namespace: &str, name: &str, edit: impl Fn(&mut Value)) {
        let mut object = operation(namespace, name);
        edit(&mut object);
        let object = ifo_api::testing::object(&object);
        self.put_object(rv, Key::new(namespace, name), object);
    }

    pub fn put_object(&mut self, rv: u64, key: Key, object: ifo_api::Object) {
        let at = VersionAssignment::Exact(Rv(rv));
        let put = Write::Put { key, object };
        self.live.commit(vec![put], at).unwrap();
    }

    /// Writes the rule sets that may miss operations to the index, at the next version.
    pub fn set_gaps(&mut self, gaps: Gaps) {
        let next = self.live.head().0 + 1;
        commit_gaps(&mut self.live, gaps, next);
    }

    pub fn delete(&mut self, rv: u64, namespace: &str, name: &str) {
        let delete = Write::Delete {
            key: Key::new(namespace, name),
        };
        self.live
            .commit(vec![delete], VersionAssignment::Exact(Rv(rv)))
            .unwrap();
    }

    pub async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub async fn get(&self, path: &str) -> (StatusCode, String) {
        self.ask(path, &[]).await
    }

    pub async fn get_as(&self, user: &str, path: &str) -> (StatusCode, String) {
        self.ask(path, &[("x-user", user)]).await
    }

    pub async fn ask(&self, path: &str, headers: &[(&str, &str)]) -> (StatusCode, String) {
        let response = self.send(request("GET", path, headers)).await;
        (response.status(), text(response).await)
    }

    /// Sends a get request and returns the body as JSON. The status code must be 200.
    pub async fn json(&self, path: &str, headers: &[(&str, &str)]) -> Value {
        let (code, body) = self.ask(path, headers).await;
        assert_eq!(code, StatusCode::OK, "{body}");
        serde_json::from_str(&body).unwrap()
    }
}

fn commit_gaps(writer: &mut Writer, gaps: Gaps, rv: u64) {
    let put = Write::Put {
        key: index_key(GapsObject::key()),
        object: ifo_api::Object::Gaps(Arc::new(GapsObject::new(gaps))),
    };
    let committed = writer.commit(vec![put], VersionAssignment::Exact(Rv(rv)));
    committed.unwrap();
}

pub fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).unwrap()
}

pub async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub fn as_json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Returns `namespace/name` of each item of a list.
pub fn names(list: &Value) -> Vec<String> {
    let names = list["items"].as_array().unwrap().iter().map(|item| {
        format!(
            "{}/{}",
            item["metadata"]["namespace"].as_str().unwrap(),
            item["metadata"]["name"].as_str().unwrap()
        )
    });
    names.collect()
}

pub fn operation(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1",
        "kind": "InFlightOperation",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": format!("uid-{namespace}-{name}"),
            "creationTimestamp": "2020-01-01T00:00:00Z",
            "labels": { "ifo.kubevirt.io/operation": "Migrating", "name": name },
        },
        "spec": {
            "operation": "Migrating",
            "ruleSet": "rules",
            "component": "kubevirt",
            "initiator": "ann",
            "subject": { "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm" },
        },
        "status": {
            "phase": "Active",
            "state": "Progressing",
            "reason": "Migrating",
            "message": "<moving>",
            "progress": 45,
        },
    })
}
