//! Clients that compare replicas (processes of the server) with each other. They list the
//! operations at two replicas. At the same resourceVersion, both lists must be equal. One client
//! reads whole lists, and another client reads lists in pages.

use crate::harness::{ApiAnswer, Kind, OPERATION, text};
use crate::list_clients::{read, unless_disturbed, version};
use crate::load_balancer::{Chosen, Endpoints};
use crate::report::Report;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Name of the count of compared whole lists in the report.
pub const LISTS: &str = "lists of the same version that were compared";

/// Name of the count of compared lists in pages in the report.
pub const PAGES: &str = "lists in pages that were compared";

/// Pause between two comparisons.
const PAUSE: Duration = Duration::from_millis(100);

/// Largest number of requests for a resourceVersion that a replica does not have yet. After these
/// requests, the client skips the comparison.
const ATTEMPTS: usize = 5;

/// Number of bytes that a failure prints before and after the first difference of two texts.
const PRINTED_AROUND: usize = 300;

/// Number of objects in a page. This number is small, so that a list has several pages.
const PAGE_SIZE: usize = 11;

/// Lists the objects of `kind` at a replica, at the resourceVersion `at`. If `at` is None, lists the
/// newest state. Returns None if the request failed, or if the replica does not have this
/// resourceVersion.
pub async fn list(
    chosen: &Chosen,
    report: &Report,
    kind: &Kind,
    at: Option<u64>,
) -> Option<ApiAnswer> {
    let path = match at {
        None => kind.path(None),
        Some(version) => {
            let exact = "resourceVersionMatch=Exact";
            format!("{}?resourceVersion={version}&{exact}", kind.path(None))
        }
    };
    for _ in 0..ATTEMPTS {
        match read(&chosen.endpoint.caller.0, &path).await {
            Err(failure) if at.is_some() && is_unknown(&failure) => {
                report.count(&format!(
                    "versions that a replica did not have: {}",
                    &failure[..3]
                ));
                if failure.starts_with("410") {
                    return None;
                }
            }
            read => return unless_disturbed(chosen, report, read),
        }
    }
    None
}

/// Returns true if the replica no longer has the resourceVersion (410), or does not have it yet
/// (504).
fn is_unknown(failure: &str) -> bool {
    failure.starts_with("410") || failure.starts_with("504")
}

/// Compares whole lists of two replicas repeatedly.
pub async fn lists(endpoints: Endpoints, report: Arc<Report>) {
    loop {
        tokio::time::sleep(PAUSE).await;
        let pair = [endpoints.any_undisturbed(), endpoints.any_undisturbed()];
        let [Some(one), Some(other)] = pair else {
            continue;
        };
        let Some(newest) = list(&one, &report, &OPERATION, None).await else {
            continue;
        };
        let at = version(&newest);
        for chosen in [&one, &other] {
            if let Some(exact) = list(chosen, &report, &OPERATION, Some(at)).await {
                report.count(LISTS);
                if exact.text != newest.text {
                    let numbers = (one.endpoint.number, chosen.endpoint.number);
                    let difference = difference(&newest.text, &exact.text);
                    report.violation(&format!(
                        "replicas {numbers:?} differ at {at}: {difference}"
                    ));
                }
            }
        }
    }
}

/// Reads a list in pages, each from a random replica, and compares the pages with the whole list.
/// Repeats this without end.
pub async fn pages(endpoints: Endpoints, report: Arc<Report>) {
    loop {
        tokio::time::sleep(PAUSE).await;
        let Some((at, items)) = read_in_pages(&endpoints, &report).await else {
            continue;
        };
        let Some(chosen) = endpoints.any_undisturbed() else {
            continue;
        };
        if let Some(whole) = list(&chosen, &report, &OPERATION, Some(at)).await {
            report.count(PAGES);
            let (pages, whole) = (Value::Array(items), &whole.body["items"]);
            if *whole != pages {
                let difference = difference(&pages.to_string(), &whole.to_string());
                report.violation(&format!(
                    "the pages at {at} differ from the list: {difference}"
                ));
            }
        }
    }
}

/// Reads a list in pages. Returns the resourceVersion and the objects of the list. Returns None if
/// a page cannot be read.
async fn read_in_pages(endpoints: &Endpoints, report: &Report) -> Option<(u64, Vec<Value>)> {
    let mut items = Vec::new();
    let mut path = format!("{}?limit={PAGE_SIZE}", OPERATION.path(None));
    loop {
        let chosen = endpoints.any_undisturbed()?;
        let page = match read(&chosen.endpoint.caller.0, &path).await {
            // This replica does not have the resourceVersion of the first page, so the client
            // cannot read the remaining pages.
            Err(failure) if !items.is_empty() && is_unknown(&failure) => {
                report.count(&format!(
                    "pages that a replica did not have: {}",
                    &failure[..3]
                ));
                return None;
            }
            page => unless_disturbed(&chosen, report, page)?,
        };
        items.extend(page.body["items"].as_array().cloned().unwrap_or_default());
        let next = text(&page.body, "/metadata/continue");
        if next.is_empty() {
            return Some((version(&page), items));
        }
        let next: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
        path = format!("{}?limit={PAGE_SIZE}&continue={next}", OPERATION.path(None));
    }
}

/// Returns the first position at which two texts differ, and the text around this position.
pub fn difference(one: &str, other: &str) -> String {
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
