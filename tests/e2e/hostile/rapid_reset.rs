//! Test of a client that opens thousands of HTTP/2 streams and resets each stream right after its
//! request. This attack is known as "rapid reset".

use super::http2_client::{ENHANCE_YOUR_CALM, RawConnector};
use super::peak_memory;
use crate::harness::{Caller, OPERATION, alone};
use crate::persistence::Persisting;

#[test]
fn a_client_that_resets_thousands_of_streams_is_disconnected_without_affecting_others() {
    alone(async |cluster| {
        let mut target = Persisting::start(cluster, &super::WITHOUT_PERSISTENCE).await;
        let server = &mut target.server;
        let connector = RawConnector::to(cluster, server, false).await;
        let kubelet = Caller::new(server.stranger());
        let path = OPERATION.path(None);
        let mut goaways = Vec::new();
        for _ in 0..10 {
            let mut connection = connector.connect(65_535).await;
            for round in 1..=100 {
                for _ in 0..100 {
                    let stream = connection.add_get(&path, &[]);
                    connection.add_reset(stream);
                }
                connection.add_ping();
                // The test checks that the server sends a GOAWAY frame. This frame can get lost if
                // the server closes the connection before it has read all data. So after each
                // round, the test waits for the answer to PING, which the server sends after it has
                // read all frames.
                if connection.send().await.is_err() {
                    break;
                }
                connection
                    .until("an answer to PING", |seen| {
                        seen.pongs == round || seen.closed
                    })
                    .await;
            }
            connection
                .until("the server closes the connection", |seen| seen.closed)
                .await;
            goaways.extend(connection.seen().goaway);
            kubelet.get("/livez").await.ok();
        }
        // A GOAWAY frame can still get lost when the server closes the connection. So one received
        // GOAWAY frame on the ten connections is enough.
        assert!(!goaways.is_empty());
        let is_calm = |code: &u32| *code == ENHANCE_YOUR_CALM;
        assert!(goaways.iter().all(is_calm), "{goaways:?}");
        // On the connections above, a reset arrives together with its request, so the server may
        // never begin to handle the request. On this connection, a reset arrives later, together
        // with the next request.
        let mut connection = connector.connect(65_535).await;
        for _ in 0..5000 {
            let stream = connection.add_get(&path, &[]);
            if connection.send().await.is_err() {
                break;
            }
            connection.add_reset(stream);
        }
        kubelet.get("/livez").await.ok();
        let peak = peak_memory(server.pid());
        let limit = server.memory_limit();
        assert!(peak < limit, "{peak} bytes, the Deployment allows {limit}");
        assert!(server.is_running());
    });
}
