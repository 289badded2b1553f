//! Test of the attack "rapid reset": a client opens thousands of HTTP/2 streams and resets them.

use super::http2_client::{ENHANCE_YOUR_CALM, RawConnector};
use super::peak_memory;
use crate::harness::{Caller, OPERATION, alone};
use crate::persistence::Persisting;

#[test]
fn a_client_that_resets_thousands_of_streams_is_disconnected_without_affecting_others() {
    alone(async |world| {
        let mut target = Persisting::start(world, &super::WITHOUT_PERSISTENCE).await;
        let server = &mut target.server;
        let way = RawConnector::to(world, server, false).await;
        let kubelet = Caller::new(server.stranger());
        let path = OPERATION.path(None);
        let mut goaways = Vec::new();
        for _ in 0..10 {
            let mut wire = way.connect(65_535).await;
            for round in 1..=100 {
                for _ in 0..100 {
                    let stream = wire.get(&path, &[]);
                    wire.reset(stream);
                }
                wire.ping();
                // The test waits until the server has read all frames. If the server closed the
                // connection while it had unread data, the kernel could drop its GOAWAY frame.
                if wire.send().await.is_err() {
                    break;
                }
                wire.until("an answer to PING", |seen| {
                    seen.pongs == round || seen.closed
                })
                .await;
            }
            wire.until("the server closes the connection", |seen| seen.closed)
                .await;
            goaways.extend(wire.seen().goaway);
            kubelet.get("/livez").await.ok();
        }
        // A GOAWAY frame can still get lost at the end of a connection, so one of ten is enough.
        assert!(!goaways.is_empty());
        let is_calm = |code: &u32| *code == ENHANCE_YOUR_CALM;
        assert!(goaways.iter().all(is_calm), "{goaways:?}");
        // On this connection, each request is sent before the previous one is reset, so that the
        // server begins to handle each request.
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
