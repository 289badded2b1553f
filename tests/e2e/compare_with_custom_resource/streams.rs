//! Compares the event streams of watches. The test opens the watches of the live resource and of
//! the custom resource before the objects change, and compares the received events after the last
//! change.

use super::compare::Comparison;
use super::exchange::{Pair, TableRequest};
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

const TABLE: &str = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "Accept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";

/// Returns the watch requests. If a request has a selector, the selector must match the operation
/// on [`LAST`].
fn requests() -> Vec<TableRequest> {
    let start = "resourceVersion={before}";
    let initial =
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut lines = Vec::new();
    for options in [
        start.to_owned(),
        String::new(),
        "resourceVersion=0".to_owned(),
        initial.to_owned(),
        "sendInitialEvents=false&resourceVersionMatch=NotOlderThan".to_owned(),
        format!("{start}&labelSelector=node%3Dnode-1"),
        format!("{start}&labelSelector=node%21%3Dnode-2"),
        format!("{start}&labelSelector=size%3C6"),
        format!("{start}&fieldSelector=status.state%3DProgressing"),
        format!("{start}&fieldSelector=status.state%21%3DFailing"),
        format!("{start}&fieldSelector=status.state%3DProgressing&labelSelector=node%3Dnode-1"),
        format!("{initial}&fieldSelector=status.state%3DProgressing"),
    ] {
        lines.push(format!("GET {{list}}?watch=1&{options}"));
        lines.push(format!("GET {{list}}?watch=1&{options} | {TABLE}"));
    }
    for (options, header) in [
        (format!("{start}&includeObject=Object"), TABLE.to_owned()),
        (format!("{start}&includeObject=None"), TABLE.to_owned()),
        (start.to_owned(), METADATA.to_owned()),
        (
            format!("{start}&fieldSelector=status.state%3DProgressing"),
            METADATA.to_owned(),
        ),
        (initial.to_owned(), METADATA.to_owned()),
    ] {
        lines.push(format!("GET {{list}}?watch=1&{options} | {header}"));
    }
    for (options, header) in [
        (start, String::new()),
        (initial, String::new()),
        (start, format!(" | {TABLE}")),
        (initial, format!(" | {TABLE}")),
        (start, format!(" | {METADATA}")),
    ] {
        lines.push(format!(
            "GET {{list}}?watch=1&{options} | Upgrade: websocket{header}"
        ));
    }
    lines.push(format!("GET {{all}}?watch=1&{{mine}}&{start}"));
    lines.push(format!(
        "GET {{gv}}/watch/namespaces/{{namespace}}/inflightoperations?{start}"
    ));
    lines.iter().map(|line| TableRequest::parse(line)).collect()
}

/// The open watches: each request with its events from the live resource and the custom resource.
pub struct Streams(Vec<(TableRequest, Events, Events)>);

/// Opens all watches.
pub async fn open(twin: &Twin) -> Streams {
    let mut streams = Vec::new();
    for request in requests() {
        let open = async |side: &Side| {
            let (path, headers) = request.parts(side);
            let events = Events::with(twin.caller(), &path, &headers).await;
            events.unwrap_or_else(|error| panic!("{}: {error}", request.line))
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
            comparison.add(&format!("LIVE {}", request.line), &pair);
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
