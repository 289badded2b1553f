//! Compares the event streams of watches. The test opens the watches of the live resource and of
//! the custom resource before the objects change, and compares the received events after the last
//! change.

use super::compare::Comparison;
use super::exchange::{Pair, TableRequest, requests_in};
use super::masks::Mask;
use super::side::Side;
use super::test_objects::Twin;
use crate::harness::Events;
use serde_json::Value;

/// Name of the VirtualMachine with the last operation that starts while the watches are open. The
/// name of an operation begins with the name of its VirtualMachine. The selectors of all watches
/// match this operation. So if a watch has received this operation, it has received all earlier
/// events.
pub const LAST: &str = "last";

/// The open watches: each request with its events from the live resource and the custom resource.
pub struct Streams(Vec<(TableRequest, Events, Events)>);

/// Opens all watches.
pub async fn open(twin: &Twin) -> Streams {
    let mut streams = Vec::new();
    for request in requests_in(include_str!("requests/streams.txt")) {
        let open = async |side: &Side| {
            let (_, path, headers) = request.parts(side);
            let events = Events::with(twin.caller(), &path, &headers).await;
            events.unwrap_or_else(|error| panic!("{}: {error}", request.0))
        };
        let opened =
            twin.without_changes(async || (open(&twin.live).await, open(&twin.custom).await));
        let (live, custom) = opened.await;
        streams.push((request, live, custom));
    }
    Streams(streams)
}

impl Streams {
    /// Compares the events of both resources, up to the first event about the operation on
    /// [`LAST`].
    pub async fn compare(self, twin: &Twin, comparison: &mut Comparison) {
        for (request, mut live, mut custom) in self.0 {
            let all = async |side: &Side, events: &mut Events| {
                let events = events.until("the last operation", |events| {
                    let end = events.iter().position(is_last)?;
                    Some(events[..=end].to_vec())
                });
                let mask = Mask {
                    request: &request,
                    side,
                    namespace: twin.namespace(),
                };
                mask.events(events.await)
            };
            let pair = Pair {
                live: all(&twin.live, &mut live).await,
                custom: all(&twin.custom, &mut custom).await,
            };
            comparison.record(&format!("LIVE {}", request.0), &pair);
        }
    }
}

/// Returns true if an event is about the operation on [`LAST`]. The event can contain an object or
/// a table.
fn is_last(event: &Value) -> bool {
    let name = ["/object/metadata/name", "/object/rows/0/cells/0"]
        .into_iter()
        .find_map(|pointer| event.pointer(pointer)?.as_str());
    name.is_some_and(|name| name.starts_with(&format!("{LAST}-")))
}
