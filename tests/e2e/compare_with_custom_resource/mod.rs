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
//! requests/*.txt ─▶ exchange ────────▶ masks ─┐
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
mod test_objects;

use crate::harness::{DEADLINE, shared};
pub use compare::differences;

use compare::Comparison;
use definition::define;
use exchange::{TableRequest, all_requests, exchange_on_both};
use futures::StreamExt as _;
use test_objects::Twin;
use tokio::time::Instant;

/// Largest number of concurrent requests to each of the two resources. Even a slow machine can
/// handle this number, because many of the requests are watches that only wait for events.
const CONCURRENT: usize = 100;

/// Least number of times that the test sends a request whose answers differ. The test gives up only if
/// [`DEADLINE`] has passed, too. The test repeats requests, because some answers depend on which of
/// two timeouts the kube-apiserver notices first.
const REPETITIONS: usize = 3;

/// Largest number of attempts of the whole test. On a slow machine, the servers may no longer have the
/// resourceVersions that the requests need. Then a test with new objects can succeed.
const ATTEMPTS: usize = 2;

#[test]
fn the_live_api_answers_like_a_custom_resource() {
    shared(async |cluster| {
        let oldest = define(cluster).await;
        let mut comparison = Comparison::default();
        for _ in 0..ATTEMPTS {
            let mut twin = Twin::create(cluster, oldest.clone()).await;
            discovery_and_openapi::compare(&twin, &mut comparison).await;
            twin.fill().await;
            let streams = streams::open(&twin).await;
            twin.make_changes().await;
            streams.compare(&twin, &mut comparison).await;
            twin.expire().await;
            tokio::select! {
                () = compare_requests(&twin, &mut comparison) => {}
                () = twin.copy_forever() => {}
            }
            if comparison.all_agree() {
                break;
            }
        }
        comparison.assert_no_differences();
    });
}

/// Sends the requests of the table concurrently, and compares their answers. Then sends the requests
/// whose answers differ again.
async fn compare_requests(twin: &Twin, comparison: &mut Comparison) {
    let deadline = Instant::now() + DEADLINE;
    let mut left = all_requests();
    let mut repetitions = 0;
    while !left.is_empty() && (repetitions < REPETITIONS || Instant::now() < deadline) {
        repetitions += 1;
        twin.wait_until_equal().await;
        let answers = futures::stream::iter(left).map(async |request: TableRequest| {
            let pair = exchange_on_both(twin, &request).await;
            (request, pair)
        });
        let answers: Vec<_> = answers.buffer_unordered(CONCURRENT).collect().await;
        let differ = |(request, pair): &(TableRequest, _)| !comparison.record(request.0, pair);
        left = answers
            .into_iter()
            .filter(differ)
            .map(|(request, _)| request)
            .collect();
        for request in &left {
            eprintln!("the answers to {} differ", request.0);
        }
    }
}
