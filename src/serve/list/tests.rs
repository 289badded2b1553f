//! Tests that lists share the processor with other requests.

use super::list_turns::ENTRIES_PER_TURN;
use crate::index::{Key, VersionAssignment, Write};
use crate::serve::tests::{Fixture, operation, request};
use http::StatusCode;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const ALL: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";

/// More objects than several turns process.
pub const MANY: usize = 2_000;

/// Smallest number of turns of other tasks while these objects are processed.
pub const LEAST: usize = MANY / ENTRIES_PER_TURN;

/// Commits this many operations.
pub fn put_many(fixture: &mut Fixture, progress: u8) {
    let put = |n: usize| {
        let name = format!("n{n}");
        let mut object = operation("many", &name);
        object["status"]["progress"] = json!(progress);
        Write::Put {
            key: Key::new("many", name),
            json: object.to_string().into_bytes(),
        }
    };
    let batch: Vec<Write> = (0..MANY).map(put).collect();
    fixture.live.commit(batch, VersionAssignment::Mint).unwrap();
}

/// Counts the turns of other tasks.
pub fn turns() -> Arc<AtomicUsize> {
    let turns = Arc::new(AtomicUsize::new(0));
    tokio::spawn({
        let turns = turns.clone();
        async move {
            loop {
                turns.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        }
    });
    turns
}

#[tokio::test]
async fn a_selecting_list_yields_to_other_tasks() {
    let mut fixture = Fixture::new();
    put_many(&mut fixture, 1);
    for selector in ["fieldSelector=spec.operation%3DNone", "labelSelector=none"] {
        let turns = turns();
        let response = fixture
            .send(request("GET", &format!("{ALL}?{selector}"), &[]))
            .await;
        assert_eq!(response.status(), StatusCode::OK);
        let had = turns.load(Ordering::Relaxed);
        assert!(had >= LEAST, "{had}");
    }
}
