//! The differential test. A custom resource has the same schema and objects as the live resource.
//! Every request of a table is sent to both through the same kube-apiserver. Each difference
//! between the answers must be listed in [`meant`] with its reason. Otherwise the test fails and
//! shows it.
//!
//! ```text
//! definition, twin, mirror: CRD, subjects, copies ─▶ two sides with the same objects
//! table: requests/*.txt ─▶ exchange ─▶ masks ─▶ compare ─▶ meant, or a failure
//! streams: watches over transitions ────┤
//! documents: discovery, OpenAPI ─────────┘
//! ```

mod compare;
mod definition;
mod documents;
mod exchange;
mod masks;
mod meant;
mod mirror;
mod side;
mod streams;
mod table;
mod twin;

use crate::harness::{DEADLINE, shared};
use compare::Comparison;
use definition::define;
use exchange::{Request, both};
use futures::StreamExt as _;
use tokio::time::Instant;
use twin::Twin;

/// Number of concurrent requests to each side. A small machine can answer them in time, and waiting
/// requests wait at the same time.
const AT_ONCE: usize = 100;

/// Smallest number of repetitions of a request whose answers differ. They are sent alone. On a busy
/// machine there are more, until the deadline. Some answers of kube-apiserver depend on which of
/// two deadlines it notices first. Real differences appear in every repetition.
const AGAIN: usize = 3;

/// Number of attempts of the whole test, if versions that the requests need expire during it.
const ATTEMPTS: usize = 3;

#[test]
fn the_live_api_answers_like_a_custom_resource() {
    shared(async |world| {
        let oldest = define(world).await;
        for attempt in 1..=ATTEMPTS {
            let mut twin = Twin::create(world, oldest.clone()).await;
            let mut comparison = Comparison::new();
            documents::compare(&twin, &mut comparison).await;
            twin.fill().await;
            let streams = streams::open(&twin).await;
            twin.transitions().await;
            streams.compare(&twin, &mut comparison).await;
            twin.expire().await;
            tokio::select! {
                () = requests(&twin, &mut comparison) => {}
                () = twin.follow() => {}
            }
            if attempt == ATTEMPTS || comparison.all_agree() || twin.remembers().await {
                return comparison.verdict();
            }
            eprintln!("the versions from before the transitions have expired");
        }
    });
}

/// Sends the requests of the table, and compares their answers. Requests whose answers differ are
/// repeated: all together as long as some of them then agree, and after that one by one.
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
            let pair = twin.undisturbed(async || both(twin, &request).await).await;
            tries += 1;
            let over = tries >= AGAIN && Instant::now() > deadline;
            if over || comparison.agrees(&request.line, &pair) {
                break pair;
            }
        };
        comparison.add(&request.line, &pair);
    }
}

/// Sends requests concurrently, and returns those whose answers differ.
async fn disagreeing(
    twin: &Twin,
    comparison: &mut Comparison,
    requests: Vec<Request>,
) -> Vec<Request> {
    twin.in_step().await;
    let mut answers = futures::stream::iter(requests)
        .map(async |request: Request| {
            let pair = both(twin, &request).await;
            (request, pair)
        })
        .buffer_unordered(AT_ONCE);
    let mut left = Vec::new();
    while let Some((request, pair)) = answers.next().await {
        if comparison.agrees(&request.line, &pair) {
            comparison.add(&request.line, &pair);
        } else {
            eprintln!("{} was answered differently at first", request.line);
            left.push(request);
        }
    }
    left
}
