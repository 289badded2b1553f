//! A fake cluster whose operations, records and activities the tests change.

use crate::fake_apiserver::{
    LIVE, RULE_SETS, forbidden, json_response, list_response, not_found, operation, serve,
    status_response, watched_rule_set,
};
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::broadcast;

const GROUP: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/";

/// What the cluster answers.
#[derive(Default)]
pub struct Contents {
    pub operations: Vec<Value>,
    pub records: Vec<Value>,
    pub activities: Vec<Value>,
    pub events: Vec<Value>,
    /// True if the user may not list records.
    pub refuses_records: bool,
    /// True if the server does not detect all operations.
    pub is_incomplete: bool,
    /// True if the server of the operations does not run.
    pub is_down: bool,
    /// Number of requests for operations that were refused because the server does not run.
    pub refused: AtomicUsize,
}

/// A running cluster.
pub struct Cluster {
    _runtime: tokio::runtime::Runtime,
    pub address: SocketAddr,
    pub contents: Arc<Mutex<Contents>>,
    /// The lines of all watches of operations. An empty line ends the watches.
    watches: broadcast::Sender<String>,
}

/// Returns operation number `number` with this resourceVersion.
pub fn operation_at(number: usize, version: &str) -> Value {
    let mut operation = operation(number);
    operation["metadata"]["resourceVersion"] = json!(version);
    operation
}

impl Cluster {
    pub fn start(contents: Contents) -> Self {
        let contents = Arc::new(Mutex::new(contents));
        let watches = broadcast::channel(1000).0;
        let (shared, sender) = (contents.clone(), watches.clone());
        let (runtime, address) = serve(move |request| {
            let contents = shared.lock().expect("no test has failed");
            answer(request, &contents, &sender)
        });
        Self {
            _runtime: runtime,
            address,
            contents,
            watches,
        }
    }

    pub fn set(&self, change: impl FnOnce(&mut Contents)) {
        change(&mut self.contents.lock().expect("no test has failed"));
    }

    /// Sends a change to the watches of operations.
    pub fn send(&self, kind: &str, object: &Value) {
        let event = format!("{}\n", json!({"type": kind, "object": object}));
        // The plugin starts its watch some moments after its list.
        while self.watches.receiver_count() == 0 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        self.watches.send(event).expect("the plugin watches");
    }

    /// Waits until a request for operations was refused. Then the plugin lists them again.
    pub fn until_refused(&self) {
        let refused = || {
            let contents = self.contents.lock().expect("no test has failed");
            contents.refused.load(Ordering::Relaxed) > 0
        };
        while !refused() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    pub fn end_watches(&self) {
        let _ = self.watches.send(String::new());
    }
}

fn answer(request: &Request, contents: &Contents, watches: &broadcast::Sender<String>) -> Response {
    let path = request.uri().path();
    let kind = path
        .strip_prefix(GROUP)
        .map(|it| it.rsplit('/').next().unwrap_or(it));
    let is_watch = request.uri().query().unwrap_or_default().contains("watch=");
    match (path, kind) {
        (RULE_SETS, _) => json_response(&json!({"items": [watched_rule_set()]})),
        (path, _) if path.strip_prefix(RULE_SETS) == Some("/vm") => {
            json_response(&watched_rule_set())
        }
        (path, _) if path.starts_with(RULE_SETS) => {
            status_response(404, "NotFound", "there is no such rule set")
        }
        ("/api/v1/namespaces/shop/events", _) => json_response(&json!({"items": contents.events})),
        ("/api/v1/namespaces/secret/events", _) => forbidden(path),
        (_, None) => not_found(),
        (path, _) if contents.is_down => {
            let is_operations = usize::from(path == LIVE);
            contents.refused.fetch_add(is_operations, Ordering::Relaxed);
            status_response(503, "ServiceUnavailable", "no endpoints")
        }
        (_, Some("operationrecords")) if contents.refuses_records => forbidden(path),
        // As `ifo-apiserver` does.
        (_, Some("operationrecords")) if is_watch => {
            let why = "watch is not supported on resources of kind \"operationrecords\"";
            status_response(405, "MethodNotAllowed", why)
        }
        (LIVE, _) if is_watch => watch_response(watches),
        _ if is_watch => crate::fake_apiserver::quiet_watch(),
        (_, Some("operationrecords")) => list_response(&contents.records, ""),
        (_, Some("activities")) => list_response(&contents.activities, ""),
        _ => {
            let mut list = list_response(&contents.operations, "");
            if contents.is_incomplete {
                let warning = "299 - \"no rule set is installed, so no operation can be detected\"";
                let headers = list.headers_mut();
                headers.remove("ifo-complete");
                headers.insert("warning", warning.parse().expect("a header"));
            }
            list
        }
    }
}

fn watch_response(watches: &broadcast::Sender<String>) -> Response {
    let lines = futures::stream::unfold(watches.subscribe(), |mut lines| async move {
        Some((lines.recv().await.ok()?, lines))
    });
    let lines = lines.take_while(|line| std::future::ready(!line.is_empty()));
    axum::body::Body::from_stream(lines.map(Ok::<_, std::io::Error>)).into_response()
}
