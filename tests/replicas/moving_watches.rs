//! Watches that move between replicas (processes of the server). A roaming client lists the
//! operations, and then starts one watch after the other. Each watch goes to a random replica, and
//! continues from the resourceVersion at which the previous watch ended. Each event must fit the
//! objects of the client, and at the end the client must have the listed operations.

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
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// The name of a count in the report: the number of events that the roaming clients have received.
pub const EVENTS: &str = "events of watches";

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

/// Starts the roaming clients as tasks.
pub fn start(
    endpoints: &Endpoints,
    report: &Arc<Report>,
    tasks: &mut JoinSet<()>,
) -> Vec<RoamingClient> {
    let start = |number| {
        let objects = Arc::new(Mutex::new(Objects::new()));
        let roam = Roaming {
            endpoints: endpoints.clone(),
            report: report.clone(),
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
        let list = read(&chosen.endpoint.caller, &OPERATION.path(None)).await;
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
        let answer = tokio::time::timeout(SILENCE, endpoint.caller.client.send(request)).await;
        let answer = answer.map_err(|_| "a watch got no answer")?;
        let answer = answer.map_err(|error| format!("connection: {error}"))?;
        let code = answer.status().as_u16();
        let body = answer.into_body();
        if code != 200 {
            let body = body.collect().await.map_err(|error| error.to_string())?;
            let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
            return Err(format!("{code} {text}"));
        }
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
            *at = self.apply(*at, &event, &line);
        }
    }

    /// Applies an event to the objects of the client. Returns the resourceVersion of the event.
    fn apply(&self, before: u64, event: &Value, line: &str) -> u64 {
        self.report.count(EVENTS);
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
