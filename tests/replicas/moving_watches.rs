//! Watches that move between replicas (processes of the server). A roaming client lists the
//! operations, and then starts one watch after the other. Each watch goes to a random replica, and
//! continues from the resourceVersion at which the previous watch ended. All replicas must send the
//! same events.

use crate::harness::{Caller, OPERATION, eventually, text};
use crate::informers::{Objects, compare, key, list_operations};
use crate::list_clients::{read, unless_disturbed, version};
use crate::load_balancer::{Endpoint, Endpoints};
use crate::report::Report;
use futures::{AsyncBufReadExt as _, StreamExt as _, TryStreamExt as _};
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// Number of bytes that a failure prints before and after the first difference of two texts.
const PRINTED_AROUND: usize = 300;

/// The name of a count in the report: the number of pairs of watches that were compared.
pub const COMPARED_WATCH_PAIRS: &str = "pairs of watches that were compared";

/// Number of roaming clients.
const CLIENTS: usize = 3;

/// If a watch delivers no event for this time, the client reports a failure. The watches have a
/// shorter `timeoutSeconds`, so a working watch ends earlier.
const SILENCE: Duration = Duration::from_mins(1);

/// Pause after a failed list or watch.
const PAUSE: Duration = Duration::from_millis(200);

/// The state of a roaming client, for the comparison at the end of the test.
pub struct RoamingClient {
    number: usize,
    objects: Arc<Mutex<Objects>>,
}

impl RoamingClient {
    /// Waits until the objects of the client equal a list of the operations.
    pub async fn wait_until_equal(&self, admin: &Caller) {
        let number = self.number;
        eventually(
            &format!("roaming client {number} has the listed operations"),
            async || {
                let truth = list_operations(admin).await?;
                compare("the objects of the client", &locked(&self.objects), &truth)
            },
        )
        .await;
    }
}

fn locked(objects: &Mutex<Objects>) -> MutexGuard<'_, Objects> {
    objects.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All events that the roaming clients have received.
#[derive(Default)]
pub struct Events(Mutex<ReceivedEvents>);

#[derive(Default)]
struct ReceivedEvents {
    /// For each resourceVersion: the first event that any client received with this version, and
    /// the number of the replica that sent this event.
    lines: BTreeMap<u64, (usize, String)>,
    watches: Vec<Watch>,
}

/// A watch: the replica that served it, the resourceVersion from which it started, and the
/// resourceVersions of its events.
struct Watch {
    replica: usize,
    from: u64,
    versions: BTreeSet<u64>,
}

impl Events {
    fn seen(&self) -> MutexGuard<'_, ReceivedEvents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, replica: usize, from: u64) -> usize {
        let mut seen = self.seen();
        seen.watches.push(Watch {
            replica,
            from,
            versions: BTreeSet::new(),
        });
        seen.watches.len() - 1
    }

    /// Records an event of the watch with the index `watch`. Returns an error if the event differs
    /// from the first recorded event with the same resourceVersion.
    fn add(&self, watch: usize, version: u64, line: &str) -> Result<(), String> {
        let mut seen = self.seen();
        let replica = seen.watches[watch].replica;
        seen.watches[watch].versions.insert(version);
        let first = seen.lines.entry(version);
        let (other, first) = first.or_insert_with(|| (replica, line.to_owned()));
        if first == line {
            Ok(())
        } else {
            let difference = difference(first, line);
            Err(format!(
                "events of replicas {other} and {replica} differ at {version}: {difference}"
            ))
        }
    }

    /// Compares each pair of watches. Both watches must have received the same resourceVersions in
    /// the range that both cover:
    ///
    /// - The range begins at the start of the watch that started at the higher resourceVersion.
    /// - The range ends at the last resourceVersion that both watches received. Later events can
    ///   differ for two reasons: one watch has ended, or only one watch has received the changes
    ///   that were lost when the test killed the leader.
    pub fn check(&self, report: &Report) {
        let seen = self.seen();
        for (index, one) in seen.watches.iter().enumerate() {
            for other in &seen.watches[index + 1..] {
                let from = one.from.max(other.from) + 1;
                let common = one.versions.range(from..).rev();
                let Some(last) = common.into_iter().find(|it| other.versions.contains(it)) else {
                    continue;
                };
                report.count(COMPARED_WATCH_PAIRS);
                let compared = |watch: &Watch| -> Vec<u64> {
                    watch.versions.range(from..=*last).copied().collect()
                };
                if compared(one) != compared(other) {
                    report.violation(&format!(
                        "watches of replicas {} and {} differ after {}: {:?} and {:?}",
                        one.replica,
                        other.replica,
                        from - 1,
                        compared(one),
                        compared(other)
                    ));
                }
            }
        }
    }
}

/// Starts the roaming clients as tasks.
pub fn start(
    endpoints: &Endpoints,
    report: &Arc<Report>,
    events: &Arc<Events>,
    tasks: &mut JoinSet<()>,
) -> Vec<RoamingClient> {
    let start = |number| {
        let objects = Arc::new(Mutex::new(Objects::new()));
        let (endpoints, report, events) = (endpoints.clone(), report.clone(), events.clone());
        let roam = Roaming {
            endpoints,
            report,
            events,
            objects: objects.clone(),
        };
        tasks.spawn(roam.run());
        RoamingClient { number, objects }
    };
    (0..CLIENTS).map(start).collect()
}

struct Roaming {
    endpoints: Endpoints,
    report: Arc<Report>,
    events: Arc<Events>,
    objects: Arc<Mutex<Objects>>,
}

/// How a watch ended.
enum End {
    /// The watch reached its timeout or failed, or no replica was available. The next watch
    /// continues from this resourceVersion.
    At(u64),
    /// The replica no longer has the requested resourceVersion, so the client must list again.
    Gone,
}

impl Roaming {
    async fn run(self) {
        loop {
            let Some(mut at) = self.list().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            while let End::At(version) = self.watch(at).await {
                at = version;
            }
            self.report.count("watches that got 410");
        }
    }

    async fn list(&self) -> Option<u64> {
        let chosen = self.endpoints.any_undisturbed()?;
        let list = read(&chosen.endpoint.caller.0, &OPERATION.path(None)).await;
        let list = unless_disturbed(&chosen, &self.report, list)?;
        let items = list.body["items"].as_array().cloned().unwrap_or_default();
        *locked(&self.objects) = items.into_iter().map(|it| (key(&it), it)).collect();
        Some(version(&list))
    }

    async fn watch(&self, from: u64) -> End {
        let Some(chosen) = self.endpoints.any_undisturbed() else {
            tokio::time::sleep(PAUSE).await;
            return End::At(from);
        };
        let mut at = from;
        let end = self.follow(&chosen.endpoint, &mut at).await;
        match end {
            Ok(()) => End::At(at),
            Err(failure) if failure.starts_with("410") => End::Gone,
            Err(failure) if failure.starts_with("504") => {
                self.report
                    .count("watches from a version that a replica had not reached");
                tokio::time::sleep(PAUSE).await;
                End::At(at)
            }
            Err(failure) => {
                let _: Option<()> = unless_disturbed(&chosen, &self.report, Err(failure));
                tokio::time::sleep(PAUSE).await;
                End::At(at)
            }
        }
    }

    /// Reads one watch to its end. At the call, `at` is the resourceVersion from which the watch
    /// starts. After each event, this function sets `at` to the resourceVersion of the event.
    async fn follow(&self, endpoint: &Endpoint, at: &mut u64) -> Result<(), String> {
        let seconds = fastrand::u32(1..8);
        let path = format!(
            "{}?watch=1&resourceVersion={at}&timeoutSeconds={seconds}",
            OPERATION.path(None)
        );
        let request = Request::get(path).body(Body::empty());
        let request = request.expect("the path is valid");
        let answer = tokio::time::timeout(SILENCE, endpoint.caller.0.client.send(request)).await;
        let answer = answer.map_err(|_| "a watch got no answer")?;
        let answer = answer.map_err(|error| format!("connection: {error}"))?;
        let code = answer.status().as_u16();
        let body = answer.into_body();
        if code != 200 {
            let body = body.collect().await.map_err(|error| error.to_string())?;
            let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
            return Err(format!("{code} {text}"));
        }
        let watch = self.events.begin(endpoint.number, *at);
        let bytes = body.into_data_stream().map_err(io::Error::other);
        let mut lines = bytes.into_async_read().lines();
        loop {
            let line = tokio::time::timeout(SILENCE, lines.next()).await;
            let line =
                line.map_err(|_| "a watch delivered no event and did not end within 1 minute")?;
            let Some(line) = line else {
                return Ok(());
            };
            let line = line.map_err(|error| format!("connection: {error}"))?;
            let event: Value = serde_json::from_str(&line).map_err(|error| error.to_string())?;
            if event["type"] == "ERROR" {
                return Err(format!("{} {line}", event["object"]["code"]));
            }
            *at = self.apply(watch, *at, &event, &line);
        }
    }

    /// Applies an event to the objects of the client. Returns the resourceVersion of the event.
    fn apply(&self, watch: usize, before: u64, event: &Value, line: &str) -> u64 {
        self.report.count("events of watches");
        let object = &event["object"];
        let version: u64 = text(object, "/metadata/resourceVersion")
            .parse()
            .unwrap_or_default();
        let violation = |why: &str| {
            self.report
                .violation(&format!("{why}, after {before}: {line}"));
        };
        if version <= before {
            violation("the version of an event is not higher than the version before it");
        }
        if let Err(difference) = self.events.add(watch, version, line) {
            self.report.violation(&difference);
        }
        let mut objects = locked(&self.objects);
        let known = match text(event, "/type") {
            "DELETED" => objects.remove(&key(object)).is_some(),
            _ => objects.insert(key(object), object.clone()).is_some(),
        };
        match (text(event, "/type"), known) {
            ("ADDED", false) | ("MODIFIED" | "DELETED", true) => {}
            _ => violation("the type of an event does not fit the state of the client"),
        }
        version
    }
}

/// Returns the first position at which two texts differ, and the text around this position.
fn difference(one: &str, other: &str) -> String {
    let pairs = one.bytes().zip(other.bytes());
    let same = pairs.take_while(|(one, other)| one == other).count();
    let around = |text: &str| {
        let bytes = text.as_bytes();
        let from = same.saturating_sub(PRINTED_AROUND).min(bytes.len());
        let to = (same + PRINTED_AROUND).min(bytes.len());
        String::from_utf8_lossy(&bytes[from..to]).into_owned()
    };
    format!("at byte {same}:\n  {}\n  {}", around(one), around(other))
}
