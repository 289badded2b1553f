//! The server that the fuzz targets check. Its index (the operations in memory) has a fixed history
//! of changes. The server has two routers: the first router allows all access, and the second
//! router denies all access.

use crate::auth::{
    AccessDecision, Attributes, Authenticate, Authorize, PeerCertificates, Unauthenticated,
    Undecided, User,
};
use crate::index::{
    Bounds, IndexEntry, IndexReader, Key, ListScope, ReadVersion, Rv, VersionAssignment, Write,
    Writer, index_from,
};
use crate::replicate::ReplicaStatus;
use crate::serve::served_resources::{Resource, inflight_operations, operation_rule_sets};
use crate::serve::{Limits, Readiness, ServerParameters, VersionInfo, router};
use crate::telemetry::Metrics;
use axum::Router;
use futures::future::BoxFuture;
use http::HeaderMap;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

/// The resourceVersion of the index before the first change.
const START: u64 = 100;

/// The namespace, the name, the labels and the subject of each operation. Some values contain
/// characters that JSON escapes.
///
/// The namespaces `a` and `a-b` test the order of lists. The server must sort a list by the text
/// `namespace/name`. So `a-b/z` comes before `a/x`, because `-` comes before `/`.
const OPERATIONS: &[(&str, &str, &str, &str)] = &[
    ("b", "x", r#"{"name":"x","n":"3"}"#, "vm"),
    ("a", "y", r#"{"name":"y","n":"-7","empty":""}"#, "v,m=1"),
    ("a-b", "z", r#"{"a.b/c":"x","name":"z"}"#, ""),
    ("a", "x", "{}", "\"é\\"),
    (
        "b",
        "w",
        r#"{"n":"9223372036854775807","odd":"\"\\/é"}"#,
        "w",
    ),
    (
        "c",
        "long-name.with.dots",
        r#"{"in":"notin","notin":"in"}"#,
        "vm",
    ),
];

thread_local! {
    static WORLD: FuzzServer = FuzzServer::new();
}

/// A server, its indexes, and a runtime with a simulated clock. This clock jumps to the next timer
/// when all tasks wait, so no test has to wait for a timer.
pub struct FuzzServer {
    pub runtime: Runtime,
    pub live: Arc<Resource>,
    /// The router that allows all access.
    pub allowing: Router,
    /// The router that denies all access.
    pub denying: Router,
    /// All operations in the index, sorted by the text `namespace/name`.
    pub operations: Vec<Known>,
    /// The writers of the indexes. An index is closed when its writer is dropped. So this field
    /// keeps the writers.
    _writers: [Writer; 2],
}

/// An operation in the index, and its decoded JSON.
pub struct Known {
    pub entry: Arc<IndexEntry>,
    pub object: Value,
}

impl FuzzServer {
    /// Calls `check` with this thread's server.
    pub fn with<T>(check: impl FnOnce(&Self) -> T) -> T {
        WORLD.with(check)
    }

    fn new() -> Self {
        let bounds = Bounds {
            bytes: 1 << 20,
            age: Duration::from_hours(24),
        };
        let (mut writer, live) = index_from(bounds, Rv(START));
        let (rule_sets, rule_sets_reader) = index_from(bounds, Rv(START));
        fill(&mut writer);
        Self {
            runtime: Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .expect("a runtime without I/O cannot fail to start"),
            allowing: routes(&live, &rule_sets_reader, AccessDecision::Allow),
            denying: routes(
                &live,
                &rule_sets_reader,
                AccessDecision::Deny {
                    reason: String::new(),
                },
            ),
            operations: operations(&live),
            live: Arc::new(inflight_operations(live)),
            _writers: [writer, rule_sets],
        }
    }
}

fn operations(reader: &IndexReader) -> Vec<Known> {
    let (_, entries) = reader
        .list(&ListScope::Operations, ReadVersion::Latest)
        .expect("a list of the newest state cannot fail");
    let known = entries.into_iter().map(|entry| Known {
        object: serde_json::from_slice(&entry.json()).expect("the operations above are JSON"),
        entry,
    });
    known.collect()
}

/// Writes the history: adds all operations, changes the first operation, deletes the second
/// operation and adds it again, and deletes the last operation.
fn fill(writer: &mut Writer) {
    let mut rv = START;
    let mut commit = |write| {
        rv += 1;
        writer
            .commit(vec![write], VersionAssignment::Exact(Rv(rv)))
            .expect("versions increase, and the objects have metadata");
    };
    let key = |number: usize| Key::new(OPERATIONS[number].0, OPERATIONS[number].1);
    for number in 0..OPERATIONS.len() {
        commit(put(number, "Active"));
    }
    commit(put(0, "Completed"));
    commit(Write::Delete { key: key(1) });
    commit(put(1, "Active"));
    commit(Write::Delete {
        key: key(OPERATIONS.len() - 1),
    });
}

fn put(number: usize, phase: &str) -> Write {
    let (namespace, name, labels, subject) = OPERATIONS[number];
    let labels: Value = serde_json::from_str(labels).expect("the labels in `OPERATIONS` are JSON");
    let mut object = json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1",
        "kind": "InFlightOperation",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": format!("uid-{namespace}-{name}"),
            "creationTimestamp": "2020-01-01T00:00:00Z",
            "labels": labels,
        },
        "spec": {
            "operation": "Migrating",
            "ruleSet": "rules",
            "component": "kubevirt",
            "subject": { "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": subject },
        },
        "status": { "phase": phase, "state": "Progressing", "message": "<moving>", "progress": 45 },
    });
    if labels == json!({}) {
        object["metadata"]
            .as_object_mut()
            .expect("the metadata above is an object")
            .remove("labels");
    }
    Write::Put {
        key: Key::new(namespace, name),
        object: ifo_api::example::object(&object),
    }
}

fn routes(live: &IndexReader, rule_sets: &IndexReader, decision: AccessDecision) -> Router {
    let readiness = Arc::new(Readiness::new());
    readiness.set_has_joined();
    readiness.set_synced();
    router(ServerParameters {
        resources: vec![
            inflight_operations(live.clone()),
            operation_rule_sets(rule_sets.clone()),
        ],
        replica_status: ReplicaStatus::alone(live.clone()),
        authenticate: Arc::new(Anybody),
        authorize: Arc::new(Always(decision)),
        read_gaps: Arc::new(ifo_api::completeness::Gaps::default),
        cluster_namespace: "ifo-system".into(),
        readiness,
        metrics: Arc::new(Metrics::new()),
        version: VersionInfo::default(),
        served_by_other_router: None,
        shutdown: CancellationToken::new(),
        limits: Limits::default(),
        gate_webhook: false,
    })
}

struct Anybody;

impl Authenticate for Anybody {
    fn authenticate<'a>(
        &'a self,
        _: &'a PeerCertificates,
        _: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<User, Unauthenticated>> {
        Box::pin(async {
            Ok(User {
                name: "anybody".to_owned(),
                ..User::default()
            })
        })
    }
}

struct Always(AccessDecision);

impl Authorize for Always {
    fn authorize<'a>(
        &'a self,
        _: &'a User,
        _: &'a Attributes,
    ) -> BoxFuture<'a, Result<AccessDecision, Undecided>> {
        let decision = self.0.clone();
        Box::pin(async { Ok(decision) })
    }
}
