//! Tests that a list with a selector lets other tasks run.

use super::{Fixture, operation, request};
use crate::index::{Key, VersionAssignment, Write};
use http::StatusCode;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const ALL: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";

/// Number of objects in these tests. A request pauses several times while it compares them.
pub const OBJECTS: usize = 2_000;

/// Smallest expected number of times that another task runs while a request compares all objects.
///
/// tokio lets a task compare 128 objects before other tasks run.
pub const MIN_RUNS: usize = OBJECTS / 128;

/// Writes [`OBJECTS`] operations to the index. `progress` is the value of their `status.progress`.
pub fn put_many(fixture: &mut Fixture, progress: u8) {
    let put = |n: usize| {
        let name = format!("n{n}");
        let mut object = operation("many", &name);
        object["status"]["progress"] = json!(progress);
        Write::Put {
            key: Key::new("many", name),
            object: ifo_api::testing::object(&object),
        }
    };
    let batch: Vec<Write> = (0..OBJECTS).map(put).collect();
    fixture.live.commit(batch, VersionAssignment::Mint).unwrap();
}

/// Starts a task that counts how often it runs.
pub fn start_counting_task() -> Arc<AtomicUsize> {
    let runs = Arc::new(AtomicUsize::new(0));
    tokio::spawn({
        let runs = runs.clone();
        async move {
            loop {
                runs.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        }
    });
    runs
}

#[tokio::test]
async fn a_list_with_a_selector_yields_to_other_tasks() {
    let mut fixture = Fixture::new();
    put_many(&mut fixture, 1);
    for selector in ["fieldSelector=spec.operation%3DNone", "labelSelector=none"] {
        let runs = start_counting_task();
        let response = fixture
            .send(request("GET", &format!("{ALL}?{selector}"), &[]))
            .await;
        assert_eq!(response.status(), StatusCode::OK);
        let runs = runs.load(Ordering::Relaxed);
        assert!(runs >= MIN_RUNS, "{runs}");
    }
}
