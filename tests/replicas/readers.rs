//! Clients that list continuously, and decide which failures are allowed.

use crate::balancer::{Chosen, Endpoints};
use crate::harness::{Answer, Caller, OPERATION, text};
use crate::report::{Phase, Report};
use std::sync::Arc;
use std::time::Duration;

/// A count of the report.
pub const AGGREGATED: &str = "lists through the aggregator";

/// A count of the report.
pub const DIRECT: &str = "lists at a replica";

/// Pause between two reads.
const PAUSE: Duration = Duration::from_millis(50);

/// Time limit for an answer, the same as that of the kube-apiserver.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Reads. The error is a short reason.
pub async fn read(caller: &Caller, path: &str) -> Result<Answer, String> {
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

/// The resourceVersion of a list.
pub fn version(list: &Answer) -> u64 {
    let version = text(&list.body, "/metadata/resourceVersion");
    version.parse().expect("a resourceVersion is a number")
}

/// The versions of the lists that one reader has received, in order.
#[derive(Default)]
struct Versions {
    last: Option<(Phase, u64)>,
}

impl Versions {
    /// Checks that a list without a resourceVersion is not older than the previous one, at any
    /// replica. During a disturbance, a replica may answer from an older state.
    fn next(&mut self, report: &Report, begun: Phase, version: u64) {
        if let Some((phase, before)) = self.last
            && version < before
            && report.is_calm_since(phase)
        {
            report.violation(&format!("a list is of version {version}, after {before}"));
        }
        self.last = Some((begun, version));
    }
}

/// Lists through the aggregator.
pub async fn through_aggregator(admin: Caller, report: Arc<Report>) {
    let path = OPERATION.path(None);
    let mut versions = Versions::default();
    loop {
        let begun = report.phase();
        match read(&admin, &path).await {
            Ok(list) => {
                report.count(AGGREGATED);
                versions.next(&report, begun, version(&list));
            }
            Err(failure) => {
                let retried = read(&admin, &path).await.map(drop);
                report.read_failed(begun, &failure, &retried);
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Lists at replicas that are not disturbed, so no read may fail.
pub async fn direct(endpoints: Endpoints, report: Arc<Report>) {
    let mut versions = Versions::default();
    loop {
        let begun = report.phase();
        if let Some(chosen) = endpoints.any_undisturbed() {
            let read = read(&chosen.endpoint.caller.0, &OPERATION.path(None)).await;
            if let Some(list) = unless_disturbed(&chosen, &report, read) {
                report.count(DIRECT);
                versions.next(&report, begun, version(&list));
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns the answer. A failure is a violation, unless a test has disturbed the replica.
pub fn unless_disturbed<T>(chosen: &Chosen, report: &Report, read: Result<T, String>) -> Option<T> {
    match read {
        Ok(answer) => return Some(answer),
        Err(_) if !chosen.is_undisturbed() => {}
        // The replica has become unready by itself, so the Service leads clients to other replicas.
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
