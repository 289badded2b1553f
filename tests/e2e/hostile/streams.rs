//! Tests of rapid reset: thousands of streams that are opened and reset.

use super::peak_memory;
use super::wire::{ENHANCE_YOUR_CALM, Way};
use crate::harness::{Caller, OPERATION, alone};
use crate::persistence::Persisting;

#[test]
fn a_client_that_resets_thousands_of_streams_is_disconnected_without_affecting_others() {
    alone(async |world| {
        let mut target = Persisting::start(world, &super::UNWRITTEN).await;
        let server = &mut target.server;
        let way = Way::to(world, server, false).await;
        let kubelet = Caller::new(server.stranger());
        let path = OPERATION.path(None);
        let mut goodbyes = Vec::new();
        for _ in 0..10 {
            let mut wire = way.connect(65_535).await;
            for round in 1..=100 {
                for _ in 0..100 {
                    let stream = wire.get(&path, &[]);
                    wire.reset(stream);
                }
                wire.ping();
                // Everything is read before more is sent. Otherwise the kernel can drop the
                // server's GOAWAY when the server closes the connection with unread data.
                if wire.send().await.is_err() {
                    break;
                }
                wire.until("it is heard of", |seen| seen.pongs == round || seen.closed)
                    .await;
            }
            wire.until("it is closed", |seen| seen.closed).await;
            goodbyes.extend(wire.seen().goodbye);
            kubelet.get("/livez").await.ok();
        }
        // For the last requests this cannot be excluded, so one answer is enough.
        assert!(!goodbyes.is_empty());
        let calm = |goodbye: &u32| *goodbye == ENHANCE_YOUR_CALM;
        assert!(goodbyes.iter().all(calm), "{goodbyes:?}");
        // The streams are reset slowly enough for each request to begin.
        let mut wire = way.connect(65_535).await;
        for _ in 0..5000 {
            let stream = wire.get(&path, &[]);
            if wire.send().await.is_err() {
                break;
            }
            wire.reset(stream);
        }
        kubelet.get("/livez").await.ok();
        let peak = peak_memory(server.pid());
        let limit = server.memory_limit();
        assert!(peak < limit, "{peak} bytes, the Deployment allows {limit}");
        assert!(server.is_running());
    });
}
