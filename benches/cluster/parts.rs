//! The measured parts.

use crate::harness::{AS_ADMINISTRATOR, CRD, Caller, Kind, OPERATION, OPERATION_RECORD};
use crate::harness::{ServerProcess, VM, crd, items};
use crate::latency::Latencies;
use crate::process::{memory, processor_time, start_bare_watch};
use crate::{Bench, Load, NAMESPACE, SETTLE, for_each, print_processor};
use futures::{AsyncBufReadExt as _, StreamExt as _};
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Number of operations in flight at the end of the part `records`.
const IN_FLIGHT: usize = 2_000;
/// Number of lists from each of the two servers in each format. The benchmark reads from the two
/// servers in turn. Only the fastest list of each server counts.
const LISTS: usize = 8;

const COPY: Kind = Kind::new("bench.ifo.kubevirt.io/v1alpha1", "Copy", "copies");
const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// Sends a GET request. Returns the body of the answer.
async fn open(caller: &Caller, path: &str, accept: &str) -> Body {
    let mut request = Request::get(path).header("accept", accept);
    for (name, value) in AS_ADMINISTRATOR {
        request = request.header(name, value);
    }
    let request = request.body(Body::empty()).expect("the request is valid");
    let answer = caller
        .client
        .send(request)
        .await
        .expect("the server answers");
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
    answer.into_body()
}

/// Starts a watch of the changes from now on. Passes each event, which is one line of JSON, to
/// `on_line`.
async fn watch(
    caller: &Caller,
    kind: &Kind,
    on_line: impl Fn(&[u8]) + Send + 'static,
) -> JoinHandle<()> {
    let list = caller
        .get(&format!("{}?limit=1", kind.path(None)))
        .await
        .ok();
    let version = list["metadata"]["resourceVersion"]
        .as_str()
        .expect("a list has a version");
    let path = format!("{}?watch=1&resourceVersion={version}", kind.path(None));
    let request = Request::get(path).body(Vec::new());
    let request = request.expect("the request is valid");
    let events = caller.client.request_stream(request).await;
    let mut lines = Box::pin(events.expect("the watch is allowed").lines());
    tokio::spawn(async move {
        while let Some(Ok(line)) = lines.next().await {
            on_line(line.as_bytes());
        }
    })
}

/// Reads a list. Returns the time until the last byte has arrived, and the length in bytes.
async fn time_list(caller: &Caller, path: &str, accept: &str) -> (Duration, usize) {
    let start = Instant::now();
    let body = open(caller, path, accept).await.collect().await;
    let bytes = body.expect("the answer is complete").to_bytes();
    (start.elapsed(), bytes.len())
}

impl Bench {
    /// Measures the processor time for each event, and the latency of operations.
    pub async fn measure_loads(&self, server: &ServerProcess) {
        let kubeconfig = &self.cluster.control_plane.addresses.kubeconfig;
        let mut bare = start_bare_watch(kubeconfig);
        tokio::time::sleep(SETTLE).await;
        let events = self.rate * self.seconds;
        let (before, bare_before) = (processor_time(server.pid()), processor_time(bare.id()));
        self.load(Load::Heartbeat, events, None).await;
        let own = print_processor(server, "heartbeats", before, events);
        let all = processor_time(bare.id()).saturating_sub(bare_before);
        let each = all / u32::try_from(events).expect("there are few events");
        let times = own.as_secs_f64() / each.as_secs_f64();
        println!("a bare watch {each:.1?}; {times:.2} times");
        let _ = bare.kill();
        let _ = bare.wait();
        let latencies = self.load_with_watches(server).await;
        latencies.print();
        println!("after both loads: {}", memory(server.pid()));
    }

    /// Changes statuses while one watch receives the subjects and another watch receives the
    /// operations. Prints the processor time, and returns the latencies of both watches.
    async fn load_with_watches(&self, server: &ServerProcess) -> Arc<Latencies> {
        // Wait until the operations of the previous load have ended.
        self.set_all("Running").await;
        tokio::time::sleep(2 * SETTLE).await;
        let latencies = Arc::new(Latencies::default());
        let mut watches = Vec::new();
        for (which, kind) in [VM, OPERATION].into_iter().enumerate() {
            let latencies = latencies.clone();
            let on_line = move |line: &[u8]| latencies.received(which, line);
            watches.push(watch(&self.cluster.admin, &kind, on_line).await);
        }
        tokio::time::sleep(SETTLE).await;
        let updates = self.rate * self.seconds;
        let before = processor_time(server.pid());
        self.load(Load::StatusChange, updates, Some(&latencies))
            .await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let what = "status changes, with one watch of the operations";
        print_processor(server, what, before, updates);
        watches.iter().for_each(JoinHandle::abort);
        latencies
    }

    /// Measures the memory of [`IN_FLIGHT`] operations in flight and of two records for each subject.
    pub async fn measure_records(&self, server: &ServerProcess) {
        let updates = 4 * self.subjects + IN_FLIGHT;
        self.load(Load::StatusChange, updates, None).await;
        tokio::time::sleep(2 * SETTLE).await;
        for kind in [OPERATION, OPERATION_RECORD] {
            let path = format!("{}?limit=1", kind.path(None));
            let page = self.cluster.admin.get(&path).await.ok();
            let remaining = page["metadata"]["remainingItemCount"].as_u64();
            println!("{}: {}", kind.plural, remaining.unwrap_or_default() + 1);
        }
        println!(
            "with these operations and records: {}",
            memory(server.pid())
        );
    }

    /// Lets each subject have an operation. Creates a custom resource with the content of each
    /// operation, and the table columns of operations. Compares the duration of a list of the operations with the duration of a list of these
    /// custom resources from the kube-apiserver's cache.
    pub async fn measure_lists(&self, server: &ServerProcess) {
        self.set_all("Migrating").await;
        tokio::time::sleep(SETTLE).await;
        let cluster = &self.cluster;
        let direct = cluster.front_proxy_of(server.stranger());
        let columns = direct
            .get_with(
                &OPERATION.path(None),
                &[("accept", TABLE), AS_ADMINISTRATOR[0], AS_ADMINISTRATOR[1]],
            )
            .await
            .ok();
        let columns = columns["columnDefinitions"]
            .as_array()
            .expect("a table has columns");
        let mut copies = crd(&COPY, "Namespaced");
        copies["spec"]["versions"][0]["additionalPrinterColumns"] = columns[1..]
            .iter()
            .map(|column| {
                let name = column["name"].as_str().expect("a column has a name");
                let path = crate::harness::path_of_column(name).replace('/', ".");
                json!({"name": name, "jsonPath": path, "type": column["type"]})
            })
            .collect();
        cluster.create(&CRD, None, &copies).await;
        cluster.admin.until_code(&COPY.path(None), 200).await;
        let list = cluster.admin.get(&OPERATION.path(None)).await.ok();
        let operations = items(&list);
        println!("{} operations", operations.len());
        for_each(operations.len(), async |number| {
            let mut copy = operations[number].clone();
            copy["metadata"] = json!({"labels": copy["metadata"]["labels"]});
            let copy = COPY.object(&format!("copy-{number}"), copy);
            cluster.create(&COPY, Some(NAMESPACE), &copy).await;
        })
        .await;
        for (name, accept) in [("JSON", JSON), ("Table", TABLE)] {
            let (mut ours, mut theirs) = ((Duration::MAX, 0), (Duration::MAX, 0));
            let before = processor_time(server.pid());
            for _ in 0..LISTS {
                ours = ours.min(time_list(&direct, &OPERATION.path(None), accept).await);
                let cached = format!("{}?resourceVersion=0", COPY.path(None));
                theirs = theirs.min(time_list(&cluster.admin, &cached, accept).await);
            }
            println!(
                "list as {name}: operations: {:.1?} for {} bytes; custom resources from the \
                 kube-apiserver's cache: {:.1?} for {} bytes; operations are {:.1} times as fast",
                ours.0,
                ours.1,
                theirs.0,
                theirs.1,
                theirs.0.as_secs_f64() / ours.0.as_secs_f64(),
            );
            print_processor(server, "lists", before, LISTS);
        }
    }
}
