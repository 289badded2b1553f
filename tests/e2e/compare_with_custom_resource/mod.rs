//! The differential test compares the APIs of two resources with the same schema and the same
//! objects. `ifo-apiserver` serves the live resource, `inflightoperations` in the API group
//! `live.ifo.kubevirt.io`. The kube-apiserver serves the custom resource, a copy with the same
//! plural name in the API group `twin.ifo.kubevirt.io`.
//!
//! The test sends each request of a table to both resources, through the same kube-apiserver. The
//! test fails if the answers have a difference that is not in the list `intended_differences.yaml`.
//!
//! ```text
//! definition, test_objects, copy_changes: create two resources with the same objects
//!
//! table: requests/*.txt ─▶ exchange ─▶ masks ─┐
//! streams: watches during changes ───▶ masks ─┼─▶ compare ─▶ intended differences, or a failure
//! documents: discovery and OpenAPI ───────────┘
//! ```

mod compare;
mod copy_changes;
mod definition;
mod discovery_and_openapi;
mod exchange;
mod masks;
mod side;
mod streams;
mod table;
mod test_objects;

use crate::harness::{DEADLINE, shared};
pub use compare::differences;

use compare::Comparison;
use definition::define;
use exchange::{TableRequest, exchange_on_both};
use futures::StreamExt as _;
use test_objects::Twin;
use tokio::time::Instant;

/// Largest number of concurrent requests to each of the two resources. Even a slow machine can
/// handle this number, because many of the requests are watches that only wait for events.
const CONCURRENT: usize = 100;

/// Minimum number of attempts before the test gives up a request whose answers differ. The test
/// gives up only if [`DEADLINE`] has passed, too. The test repeats requests, because some answers
/// depend on which of two timeouts the kube-apiserver notices first.
const MIN_REPETITIONS: usize = 3;

/// Largest number of attempts of the whole test. The test starts again if answers differ and the
/// server no longer has the resourceVersions that the requests need. The result of the last attempt
/// always counts.
const ATTEMPTS: usize = 3;

#[test]
fn the_live_api_answers_like_a_custom_resource() {
    shared(async |cluster| {
        let oldest = define(cluster).await;
        for attempt in 1..=ATTEMPTS {
            let mut twin = Twin::create(cluster, oldest.clone()).await;
            let mut comparison = Comparison::new();
            discovery_and_openapi::compare(&twin, &mut comparison).await;
            twin.fill().await;
            let streams = streams::open(&twin).await;
            twin.make_changes().await;
            streams.compare(&twin, &mut comparison).await;
            twin.expire().await;
            tokio::select! {
                () = requests(&twin, &mut comparison) => {}
                () = twin.copy_forever() => {}
            }
            if attempt == ATTEMPTS || comparison.all_agree() || twin.has_old_versions().await {
                return comparison.assert_no_differences();
            }
            eprintln!("resourceVersions have expired during the test, so the test starts again");
        }
    });
}

/// Sends the requests of the table, and compares their answers. Sends the requests whose answers
/// differ again, as a group, until the size of this group no longer falls. Then repeats each
/// request of the group alone.
async fn requests(twin: &Twin, comparison: &mut Comparison) {
    let mut left = table::all();
    loop {
        let count = left.len();
        left = disagreeing(twin, comparison, left).await;
        if left.is_empty() || left.len() == count {
            break;
        }
    }
    let deadline = Instant::now() + DEADLINE;
    for request in left {
        let mut tries = 0;
        let pair = loop {
            let pair = twin
                .without_changes(async || exchange_on_both(twin, &request).await)
                .await;
            tries += 1;
            let gives_up = tries >= MIN_REPETITIONS && Instant::now() > deadline;
            if gives_up || comparison.compare_and_record(&request.line, &pair) {
                break pair;
            }
        };
        comparison.add(&request.line, &pair);
    }
}

/// Sends requests concurrently. Adds the requests whose answers agree to `comparison`, and returns
/// the other requests.
async fn disagreeing(
    twin: &Twin,
    comparison: &mut Comparison,
    requests: Vec<TableRequest>,
) -> Vec<TableRequest> {
    twin.wait_until_equal().await;
    let mut answers = futures::stream::iter(requests)
        .map(async |request: TableRequest| {
            let pair = exchange_on_both(twin, &request).await;
            (request, pair)
        })
        .buffer_unordered(CONCURRENT);
    let mut left = Vec::new();
    while let Some((request, pair)) = answers.next().await {
        if comparison.compare_and_record(&request.line, &pair) {
            comparison.add(&request.line, &pair);
        } else {
            eprintln!("the first answers to {} differ", request.line);
            left.push(request);
        }
    }
    left
}
