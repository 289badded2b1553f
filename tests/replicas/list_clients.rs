//! Clients that list the operations continuously. A client reports failed reads, and each list that
//! is older than the previous list of this client.

use crate::harness::{ApiAnswer, Caller, OPERATION, text};
use crate::load_balancer::{Chosen, Endpoints};
use crate::report::{Phase, Report};
use std::sync::Arc;
use std::time::Duration;

/// Name, in the report, of the number of lists through the kube-apiserver.
pub const AGGREGATED: &str = "lists through the aggregator";

/// Name, in the report, of the number of lists that clients read directly from a replica.
pub const DIRECT: &str = "lists at a replica";

/// Pause between two reads.
const PAUSE: Duration = Duration::from_millis(50);

/// Time limit for an answer. If no answer comes within this time, the read has failed. The
/// kube-apiserver has the same limit.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Sends a GET request. Returns an error in these cases:
///
/// - The status code is not 200. The error begins with the status code.
/// - The connection fails, or there is no answer within [`TIMEOUT`].
pub async fn read(caller: &Caller, path: &str) -> Result<ApiAnswer, String> {
    match tokio::time::timeout(TIMEOUT, caller.try_get(path)).await {
        Ok(Ok(answer)) if answer.code == 200 => Ok(answer),
        Ok(Ok(answer)) => Err(format!("{} {}", answer.code, short(&answer.text))),
        Ok(Err(error)) => Err(format!("connection: {}", short(&error))),
        Err(_) => Err("no answer".to_owned()),
    }
}

fn short(text: &str) -> String {
    text.chars().take(300).collect()
}

/// Returns the resourceVersion of a list.
pub fn version(list: &ApiAnswer) -> u64 {
    let version = text(&list.body, "/metadata/resourceVersion");
    version.parse().expect("a resourceVersion must be a number")
}

/// The last list that a client has received.
#[derive(Default)]
struct LastList {
    /// The phase of the test in which the request began, and the resourceVersion of the list. None
    /// before the first list.
    last: Option<(Phase, u64)>,
}

impl LastList {
    /// Reports a violation if a list is older than the previous list of this client, even if
    /// another replica has answered. After a disturbance, a replica may answer from an older state.
    /// So if there was a disturbance since the previous request began, reports nothing. Remembers
    /// the list for the next call.
    fn check_and_remember(&mut self, report: &Report, begun: Phase, version: u64) {
        if let Some((phase, before)) = self.last
            && version < before
            && report.is_calm_since(phase)
        {
            report.violation(&format!(
                "resourceVersion decreased from {before} to {version} between two lists of one client"
            ));
        }
        self.last = Some((begun, version));
    }
}

/// Lists the operations repeatedly through the kube-apiserver, which forwards the requests to a
/// replica.
pub async fn through_aggregator(admin: Caller, report: Arc<Report>) {
    let path = OPERATION.path(None);
    let mut last_list = LastList::default();
    loop {
        let begun = report.phase();
        match read(&admin, &path).await {
            Ok(list) => {
                report.count(AGGREGATED);
                last_list.check_and_remember(&report, begun, version(&list));
            }
            Err(failure) => {
                let retried = read(&admin, &path).await.map(drop);
                report.read_failed(begun, &failure, &retried);
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Lists the operations repeatedly and directly at replicas that are ready and not disturbed. These
/// reads must not fail.
pub async fn direct(endpoints: Endpoints, report: Arc<Report>) {
    let mut last_list = LastList::default();
    loop {
        let begun = report.phase();
        if let Some(chosen) = endpoints.any_undisturbed() {
            let read = read(&chosen.endpoint.caller, &OPERATION.path(None)).await;
            if let Some(list) = unless_disturbed(&chosen, &report, read) {
                report.count(DIRECT);
                last_list.check_and_remember(&report, begun, version(&list));
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns the answer of a read. If the read failed, returns None. The failure is a violation if
/// the replica was not disturbed during the read and is still ready.
pub fn unless_disturbed<T>(chosen: &Chosen, report: &Report, read: Result<T, String>) -> Option<T> {
    match read {
        Ok(answer) => return Some(answer),
        Err(_) if !chosen.is_undisturbed() => {}
        // The replica has become unready. In a cluster, the Service would send clients to other
        // replicas.
        Err(failure) if !chosen.endpoint.is_ready() => {
            report.count(&format!(
                "reads at a replica that became unready: {failure}"
            ));
        }
        Err(failure) => {
            let number = chosen.endpoint.number;
            report.violation(&format!("a read at replica {number} failed: {failure}"));
        }
    }
    None
}
