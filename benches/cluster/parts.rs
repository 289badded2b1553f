//! The measured parts.

use crate::harness::{AS_ADMINISTRATOR, Caller, Kind, OPERATION, OPERATION_RECORD, RULE_SET};
use crate::harness::{CRD, ServerProcess, VM, crd, items, rule_set};
use crate::latency::{Latencies, number_after, percentile};
use crate::process::{kilobytes, memory, processor_time, start_bare_watch};
use crate::{Bench, Load, NAMESPACE, SETTLE, for_each, print_processor, set};
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Number of measured starts. The fastest start is reported, because other processes can delay a
/// start.
const STARTS: usize = 5;
/// Number of operations in flight at the end of the part `records`.
const IN_FLIGHT: usize = 2_000;
/// Number of lists from each of the two servers in each format. The benchmark reads from the two
/// servers in turn. Only the fastest list of each server counts.
const LISTS: usize = 8;
/// Number of HTTP/2 connections that the watchers share. A kube-apiserver also forwards many
/// watches on few connections.
const CONNECTIONS: usize = 4;
/// Number of changes that the watchers receive, and their number per second.
const CHANGES: (usize, u32) = (200, 10);
const HOSTILE_RULE_SETS: usize = 100;

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
    let mut body = open(caller, &path, JSON).await;
    tokio::spawn(async move {
        let mut line = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            for part in frame
                .data_ref()
                .map_or(&[][..], |data| data)
                .split_inclusive(|it| *it == b'\n')
            {
                line.extend_from_slice(part);
                if line.ends_with(b"\n") {
                    on_line(&line);
                    line.clear();
                }
            }
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
    pub async fn measure_start(&self) {
        let mut best = Duration::MAX;
        for number in 0..STARTS {
            let folder = format!("start-{number}");
            let mut server = self.cluster.start_unready(&folder, &self.deployment).await;
            let start = Instant::now();
            let port = self
                .cluster
                .control_plane
                .addresses
                .dir
                .join(folder)
                .join("port");
            while std::fs::read_to_string(&port).map_or(true, |text| text.trim().is_empty()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            server.until_listening().await;
            let caller = Caller::new(server.stranger());
            caller.get("/apis/live.ifo.kubevirt.io/v1alpha1").await.ok();
            best = best.min(start.elapsed());
        }
        println!("start to serving discovery: {best:.0?}, the quickest of {STARTS}");
    }

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
        let before = processor_time(server.pid());
        let latencies = self.load_with_watches().await;
        let what = "status changes, with one watch of the operations";
        print_processor(server, what, before, events);
        latencies.print();
        println!("after both loads: {}", memory(server.pid()));
    }

    /// Changes statuses while one watch receives the subjects and another watch receives the
    /// operations. Returns the latencies of both.
    async fn load_with_watches(&self) -> Arc<Latencies> {
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
        self.load(Load::StatusChange, updates, Some(&latencies))
            .await;
        tokio::time::sleep(Duration::from_secs(2)).await;
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

    /// Measures the memory of operations in flight. At the end, every subject has an operation in
    /// flight. The parts `list` and `watchers` then use these operations.
    pub async fn measure_operations(&self, server: &ServerProcess) {
        let resident = || kilobytes(server.pid(), "VmRSS:");
        self.set_all("Running").await;
        tokio::time::sleep(2 * SETTLE).await;
        println!("none in flight: {}", memory(server.pid()));
        let none = resident();
        self.set_all("Migrating").await;
        tokio::time::sleep(SETTLE).await;
        println!("{} in flight: {}", self.subjects, memory(server.pid()));
        #[allow(clippy::cast_precision_loss)] // The values are kilobytes.
        let each = (resident() as f64 - none as f64) / self.subjects as f64;
        println!("each operation in flight: {each:.2} KB");
    }

    /// Creates a custom resource with the content of each operation, and the table columns of
    /// operations. Compares the duration of a list of the operations with the duration of a list of these
    /// custom resources from the kube-apiserver's cache.
    pub async fn measure_lists(&self, server: &ServerProcess) {
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

    /// Measures how long the server needs to send one change to many watchers: from the time at which the
    /// first watcher has received the change until the last watcher has received it.
    pub async fn measure_watchers(&self, server: &ServerProcess) {
        // For each change, by its resourceVersion: the first and the last time, and the number of
        // watchers.
        type Sightings = Arc<Mutex<HashMap<u64, (Instant, Instant, usize)>>>;
        let sightings = Sightings::default();
        let options = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
        let path = format!("{}?{options}", OPERATION.path(None));
        let mut watches = Vec::new();
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let connection = self.cluster.front_proxy_of(server.stranger());
            for _ in 0..crate::number("IFO_BENCH_WATCHERS", 1_000) / CONNECTIONS {
                let mut body = open(&connection, &path, JSON).await;
                let sightings = sightings.clone();
                watches.push(tokio::spawn(async move {
                    while let Some(Ok(frame)) = body.frame().await {
                        let data = frame.data_ref().map_or(&[][..], |data| data);
                        for version in number_after(data, b"\"resourceVersion\":\"") {
                            let now = Instant::now();
                            let mut sightings = sightings.lock().expect("no watcher panics");
                            let (_, last, count) =
                                sightings.entry(version).or_insert((now, now, 0));
                            *last = now;
                            *count += 1;
                        }
                    }
                }));
            }
            connections.push(connection);
        }
        println!("{} watchers: {}", watches.len(), memory(server.pid()));
        let before = processor_time(server.pid());
        let mut tick = tokio::time::interval(Duration::from_secs(1) / CHANGES.1);
        for number in 0..CHANGES.0 {
            tick.tick().await;
            set(
                &self.cluster,
                0,
                ["Running", "Migrating"][number % 2],
                number,
            )
            .await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let sightings = sightings.lock().expect("no watcher panics").clone();
        let complete = sightings
            .values()
            .filter(|(.., count)| *count == watches.len());
        let complete: Vec<Duration> = complete.map(|(first, last, _)| *last - *first).collect();
        let [half, most, all] = [50, 99, 100].map(|it| percentile(complete.iter().copied(), it));
        println!(
            "{} of {} changes were received by all watchers; from the first watcher to the last: \
             p50 {half:.1?}, p99 {most:.1?}, at most {all:.1?}",
            complete.len(),
            sightings.len(),
        );
        print_processor(server, "changes", before, complete.len());
        watches.iter().for_each(JoinHandle::abort);
    }

    /// Measures how much hostile rule sets delay the operations of another rule set for the same
    /// resource. A hostile rule set has an expression with a very high cost. Prints the 99th percentile
    /// of the latency without and with the hostile rule sets, each the smaller one of two rounds.
    pub async fn measure_hostile_rule_sets(&self, server: &ServerProcess) {
        let name = |number: usize| format!("a-hostile-{number}");
        let (mut without, mut with) = (Duration::MAX, Duration::MAX);
        for _ in 0..2 {
            without = without.min(self.load_with_watches().await.print());
            let expressions = hostile_expressions();
            for (number, expression) in expressions
                .iter()
                .cycle()
                .take(HOSTILE_RULE_SETS)
                .enumerate()
            {
                let mut rules = rule_set(&name(number), &VM, &[("Hostile", expression)]);
                rules["spec"]["component"] = Value::from("hostile");
                self.cluster.create(&RULE_SET, None, &rules).await;
            }
            let before = processor_time(server.pid());
            println!("with {HOSTILE_RULE_SETS} hostile rule sets:");
            with = with.min(self.load_with_watches().await.print());
            print_processor(server, "updates", before, self.rate * self.seconds);
            for number in 0..HOSTILE_RULE_SETS {
                self.cluster.delete_rule_set(&name(number)).await;
            }
        }
        let times = with.as_secs_f64() / without.as_secs_f64();
        println!(
            "p99 with {HOSTILE_RULE_SETS} hostile rule sets {with:.2?}, without {without:.2?}: {times:.2} times"
        );
    }
}

/// Returns expressions that compile, and whose evaluation has a high cost.
fn hostile_expressions() -> Vec<String> {
    let ten = "[0,1,2,3,4,5,6,7,8,9]";
    let nested = (0..12).fold("false".to_owned(), |inner, depth| {
        format!("{ten}.exists(x{depth}, {inner})")
    });
    let doubling = (0..40).fold("[1]".to_owned(), |inner, depth| {
        format!("[{inner}].map(x{depth}, x{depth} + x{depth})[0]")
    });
    let text = "a".repeat(1500);
    let conditions = "object.status.conditions";
    vec![
        nested,
        format!("size({doubling}) > 0"),
        "object.metadata.name.matches('(a|aa|v|vm|m-)+$')".to_owned(),
        format!("'{text}'.replace('a', '{text}').size() > 0"),
        format!(
            "{conditions}.all(a, {conditions}.all(b, {conditions}.all(c, {conditions}.all(d, \
             {conditions}.all(e, a.type + b.type + c.type + d.type + e.type != '')))))"
        ),
    ]
}
