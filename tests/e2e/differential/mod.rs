//! The differential test: a custom resource with the schema and the objects of the live
//! kind stands beside it, and every request of a table is sent to both through the same
//! kube-apiserver. Whatever the two answer differently must be listed in [`meant`], with
//! its reason, or the test fails and shows it.
//!
//! ```text
//! definition, twin: CRD, subjects, copies ─▶ two sides with the same objects
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
mod side;
mod streams;
mod table;
mod twin;

use crate::harness::shared;
use compare::Comparison;
use exchange::{Request, both};
use futures::StreamExt as _;
use twin::Twin;

/// Requests under way at once to each side: few enough for a small machine to answer in
/// time, and many enough that those which wait do so together.
const AT_ONCE: usize = 100;

/// How often a request is sent again, with no other beside it, whose answers differ. Some
/// of kube-apiserver's depend on which of two deadlines it notices first, and which that is
/// depends on how busy the machine is; what the two really answer differently they always do.
const AGAIN: usize = 3;

#[test]
fn a_client_cannot_tell_the_live_kind_from_a_custom_resource() {
    shared(async |world| {
        let mut twin = Twin::create(world).await;
        let streams = streams::open(&twin).await;
        twin.transitions().await;
        let mut comparison = Comparison::new();
        streams.compare(&twin, &mut comparison).await;
        twin.expire().await;

        tokio::select! {
            () = requests(&twin, &mut comparison) => {}
            () = twin.stir() => {}
        }
        comparison.verdict();
    });
}

/// Sends the requests of the table, and compares their answers.
async fn requests(twin: &Twin, comparison: &mut Comparison) {
    documents::compare(twin, comparison).await;
    let mut answers = futures::stream::iter(table::all())
        .map(async |request: Request| {
            let pair = both(twin, &request).await;
            (request, pair)
        })
        .buffer_unordered(AT_ONCE);
    let mut differ = Vec::new();
    while let Some((request, pair)) = answers.next().await {
        if comparison.agrees(&request.line, &pair) {
            comparison.add(&request.line, &pair);
        } else {
            differ.push((request, pair));
        }
    }
    drop(answers);
    for (request, mut pair) in differ {
        for _ in 0..AGAIN {
            pair = both(twin, &request).await;
            if comparison.agrees(&request.line, &pair) {
                eprintln!("{} was answered differently at first", request.line);
                break;
            }
        }
        comparison.add(&request.line, &pair);
    }
}
