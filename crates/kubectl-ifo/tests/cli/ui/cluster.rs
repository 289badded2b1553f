//! A simulated cluster that changes while `ui` runs.

pub use crate::cluster::Cluster as Contents;

use crate::cluster::is_watch;
use crate::fake_apiserver::{LIVE, operation, serve};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::broadcast;

/// A running cluster.
pub struct Cluster {
    _runtime: tokio::runtime::Runtime,
    pub address: SocketAddr,
    contents: Arc<Mutex<Contents>>,
    /// The lines of all watches of operations. An empty line ends the watches.
    watches: broadcast::Sender<String>,
    /// Number of requests for operations that were refused because the server does not run.
    refused: Arc<AtomicUsize>,
}

/// Returns a cluster without objects.
pub fn contents() -> Contents {
    Contents {
        records: Some(Vec::new()),
        activities: Some(Vec::new()),
        ..Contents::default()
    }
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
        let refused = Arc::new(AtomicUsize::new(0));
        let (shared, sender, count) = (contents.clone(), watches.clone(), refused.clone());
        let (runtime, address) = serve(move |request| {
            let answer = shared.lock().expect("no test has failed").answer(request);
            let is_operations = request.uri().path() == LIVE;
            if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
                count.fetch_add(usize::from(is_operations), Ordering::Relaxed);
            } else if is_operations && is_watch(request) {
                return watch_response(&sender);
            }
            answer
        });
        Self {
            _runtime: runtime,
            address,
            contents,
            watches,
            refused,
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
        while self.refused.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Waits until this number of watches of operations is open.
    pub fn until_watches(&self, count: usize) {
        while self.watches.receiver_count() != count {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    pub fn end_watches(&self) {
        let _ = self.watches.send(String::new());
    }
}

fn watch_response(watches: &broadcast::Sender<String>) -> Response {
    let lines = futures::stream::unfold(watches.subscribe(), |mut lines| async move {
        Some((lines.recv().await.ok()?, lines))
    });
    let lines = lines.take_while(|line| std::future::ready(!line.is_empty()));
    axum::body::Body::from_stream(lines.map(Ok::<_, std::io::Error>)).into_response()
}
